package route_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// The bundles of one stream go to the shards where they enter, and the refusal of one does not keep
// the others from their shards.
func TestSubmitStreamAcrossShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	overHTTP2 := &http.Transport{Protocols: new(http.Protocols)}
	overHTTP2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(overHTTP2.CloseIdleConnections)
	stream := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: overHTTP2},
		b.Door(1).URL).SubmitStream(b.context())
	unregistered := b.orgs[0].Transfer("org0:mint", "org0:a", 1)
	unregistered.Signer = "nobody"
	bundles := []*ledger.Bundle{
		b.signed(b.orgs[0].Transfer("org0:mint", "org0:a", 1)),
		b.signed(b.orgs[1].Transfer("org1:mint", "org1:a", 1)),
		b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 1)),
		b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1),
			b.orgs[2].Transfer("org2:mint", "org2:a", 2)),
		b.signed(unregistered),
	}
	for number, bundle := range bundles {
		if err := stream.Send(&ledgerdv1.SubmitStreamRequest{Number: uint64(number),
			Bundle: bundle.Encode()}); err != nil {
			t.Fatal(err)
		}
	}
	answers := make([]*ledgerdv1.BundleAnswer, len(bundles))
	for left := len(bundles); left > 0; {
		message, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range message.GetAnswers() {
			answers[answer.GetNumber()] = answer
			left--
		}
	}
	for number, home := range []int{0, 1, 1, 2} {
		runs := answers[number].GetRuns()
		if len(runs) != 1 || int(runs[0].GetCount()) != bundles[number].Len() {
			t.Fatalf("bundle %d: %v", number, answers[number])
		}
		b.settled(runs[0].GetStatus(), home)
	}
	if refusal := answers[4].GetRefusal(); connect.Code(refusal.GetCode()) !=
		connect.CodePermissionDenied && connect.Code(refusal.GetCode()) !=
		connect.CodeFailedPrecondition {
		t.Errorf("the last bundle: %v", answers[4])
	}
	// The same as a unary call.
	b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, bundles[2]), 1)
	// A shard that does not answer refuses its bundles only.
	b.Silence(2, true)
	late := b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))
	if err := stream.Send(&ledgerdv1.SubmitStreamRequest{Number: 9, Bundle: late.Encode(),
		WaitMs: 500}); err != nil {
		t.Fatal(err)
	}
	message, err := stream.Receive()
	if err != nil || !message.GetAnswers()[0].GetRefusal().GetRetry() ||
		!message.GetAnswers()[0].GetRefusal().GetUnsure() {
		t.Errorf("a silent shard: %v, %v", message, err)
	}
}
