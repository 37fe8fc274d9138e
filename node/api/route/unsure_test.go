package route_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/api/route"
)

// bent lets a shard answer submissions in its own way.
type bent struct {
	route.Shards
	shard ledger.ShardID
	there ledgerdv1connect.LedgerServiceClient
}

func (b *bent) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	if shard == b.shard {
		return b.there
	}
	return b.Shards.Client(shard)
}

// refusing is a shard that refuses what it is asked to admit.
type refusing struct {
	ledgerdv1connect.LedgerServiceClient
	code   connect.Code
	unsure bool // another of its members may have admitted it
}

func (r *refusing) Submit(context.Context, *connect.Request[ledgerdv1.SubmitRequest]) (
	*connect.Response[ledgerdv1.SubmitResponse], error) {
	refused := connect.NewWireError(r.code, errors.New("no"))
	if r.code == connect.CodeUnavailable {
		refused.Meta().Set(api.HeaderRetry, "true")
	}
	if r.unsure {
		refused.Meta().Set(api.HeaderUnsure, "true")
	}
	return nil, refused
}

func (r *refusing) SubmitMany(_ context.Context,
	request *connect.Request[ledgerdv1.SubmitManyRequest]) (
	*connect.Response[ledgerdv1.SubmitManyResponse], error) {
	answer := connect.NewResponse(new(ledgerdv1.SubmitManyResponse))
	for range request.Msg.GetBundles() {
		answer.Msg.Outcomes = append(answer.Msg.Outcomes,
			&ledgerdv1.BundleOutcome{Refused: "no"})
	}
	if r.unsure {
		answer.Header().Set(api.HeaderUnsure, "true")
	}
	return answer, nil
}

// serveRefusing serves a node of shard 1 that shard 0 refuses.
func (b *book) serveRefusing(there *refusing) ledgerdv1connect.LedgerServiceClient {
	b.Helper()
	there.LedgerServiceClient = b.Shards(1).Client(0)
	return b.serveBent(1, 0, there)
}

// serveBent serves a node of one shard that sees another one bent.
func (b *book) serveBent(own, shard ledger.ShardID,
	there ledgerdv1connect.LedgerServiceClient) ledgerdv1connect.LedgerServiceClient {
	b.Helper()
	server, err := route.New(b.Shard(own).Node(0), &bent{b.Shards(own), shard, there},
		api.Options{})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := api.Listen(b.context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	b.Cleanup(func() {
		if err := errors.Join(server.Shutdown(context.Background()),
			<-served); err != nil {
			b.Error(err)
		}
	})
	return ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient,
		"http://"+listener.Addr().String())
}

// A refusal says whether another member of the shard may have admitted the bundle.
func TestRefusalOfOneMember(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	for _, code := range []connect.Code{connect.CodeUnavailable, connect.CodeInvalidArgument,
		connect.CodeInternal} {
		for _, unsure := range []bool{false, true} {
			node := b.serveRefusing(&refusing{code: code, unsure: unsure})
			want := unsure || code == connect.CodeInternal // which is no refusal
			payment := api.BundleToProto(b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)))
			_, err := node.Submit(b.context(), connect.NewRequest(&ledgerdv1.SubmitRequest{
				Bundle: payment}))
			coded := (*connect.Error)(nil)
			if !errors.As(err, &coded) ||
				(coded.Meta().Get(api.HeaderUnsure) == "true") != want {
				t.Errorf("%v, unsure %v: %v", code, unsure, err)
			}
			many, err := node.SubmitMany(b.context(),
				connect.NewRequest(&ledgerdv1.SubmitManyRequest{
					Bundles: []*ledgerdv1.Bundle{payment}}))
			if err != nil || many.Msg.GetOutcomes()[0].GetRefused() != "no" ||
				many.Msg.GetOutcomes()[0].GetUnsure() != unsure {
				t.Errorf("many, unsure %v: %v, %v", unsure, many, err)
			}
		}
	}
	// A shard of which no node answers.
	b.Silence(0, true)
	many, err := b.clients[1].SubmitMany(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitManyRequest{Bundles: []*ledgerdv1.Bundle{
			api.BundleToProto(b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)))}}))
	if err != nil || !many.Msg.GetOutcomes()[0].GetUnsure() {
		t.Errorf("%v, %v", many, err)
	}
}
