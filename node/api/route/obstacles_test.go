package route_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

const (
	admitted = ledgerdv1.Level_LEVEL_ADMITTED
	durable  = ledgerdv1.Level_LEVEL_DURABLE
)

// since is when the shards of these tests were last seen to order.
var since = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func down(shard ledger.ShardID) report.Obstacle {
	return report.Obstacle{Shard: shard, Since: since}
}

func full(shard, awaited ledger.ShardID) report.Obstacle {
	return report.Obstacle{Shard: shard, Since: since, Full: true, Awaited: awaited}
}

// refused submits a bundle that has to be refused, with this code, reason and shard.
func (b *book) refused(door int, bundle *ledger.Bundle, code connect.Code, reason, text string) {
	b.Helper()
	_, err := b.clients[door].Submit(b.context(), connect.NewRequest(&ledgerdv1.SubmitRequest{
		Bundle: api.BundleToProto(bundle), Wait: admitted}))
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) || coded.Code() != code ||
		coded.Meta().Get(api.HeaderReason) != reason ||
		coded.Meta().Get(api.HeaderRetry) != "true" ||
		coded.Meta().Get(api.HeaderUnsure) != "" || !strings.Contains(coded.Message(), text) ||
		!strings.Contains(coded.Message(), "since 2026-03-04T05:06:07Z") ||
		!strings.Contains(coded.Message(), "--queue") {
		b.Errorf("at shard %d: %v, want %v, %s and %q", door, err, code, reason, text)
	}
}

// A node of any shard refuses what crosses to a shard that is down, and says which and since when.
// Everything else goes on.
func TestShardDown(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	before := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 7))
	b.settled(b.submit(0, durable, before), 1)
	b.Obstruct(down(2))
	for door := range b.clients {
		b.refused(door, b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)),
			connect.CodeUnavailable, report.ReasonShardDown, "shard 2 is down")
		b.refused(door, b.signed(b.orgs[0].Transfer("org0:mint", "org0:a", 5),
			b.orgs[2].Transfer("org2:mint", "org2:a", 5)), // which is signed with the other
			connect.CodeUnavailable, report.ReasonShardDown, "shard 2 is down")
		b.settled(b.submit(door, durable, before), 1) // its outcome, whatever is down now
		b.settled(b.submit(door, durable,
			b.signed(b.orgs[1].Transfer("org1:mint", "org0:a", 1))), 1)
		b.settled(b.submit(door, durable,
			b.signed(b.orgs[1].Transfer("org1:mint", "org1:a", 1))), 1)
		// Shard 2 itself knows better, and its own transactions are its own affair.
		b.settled(b.submit(door, durable,
			b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))), 2)
	}
	// What all shards keep does not cross: they have to wait for each other in any case.
	b.orgs[0] = ledgertest.NewClient(b.Shard(0).Genesis(), "another")
	b.submit(1, durable, b.signed(b.orgs[0].Register()))
}

// With queue, a transaction waits for the shard that is down, at each door and in each kind of
// call.
func TestQueueForAShard(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Stand(2, true)
	b.Obstruct(down(2))
	var waiting []*ledger.Bundle
	crossing := func() *ledger.Bundle {
		waiting = append(waiting, b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)))
		return waiting[len(waiting)-1]
	}
	for door := range b.clients {
		answer, err := b.clients[door].Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(crossing()),
				Wait: admitted, Queue: true}))
		if err != nil || answer.Msg.GetTransactions()[0].GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
			t.Errorf("at shard %d: %v %v", door, answer, err)
		}
		many, err := b.clients[door].SubmitMany(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{Wait: admitted, Queue: true,
				Bundles: []*ledgerdv1.Bundle{api.BundleToProto(crossing())}}))
		if err != nil || many.Msg.GetOutcomes()[0].GetRefused() != "" {
			t.Errorf("at shard %d: %v %v", door, many, err)
		}
		stream := b.stream(door)
		answers := b.streamed(stream, &ledgerdv1.SubmitStreamRequest{Wait: admitted,
			Bundle: crossing().Encode(), Queue: true},
			&ledgerdv1.SubmitStreamRequest{Number: 1, Wait: admitted,
				Bundle: b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)).Encode()})
		if answers[0].GetRefusal() != nil {
			t.Errorf("on a stream of shard %d: %v", door, answers[0])
		}
		if refusal := answers[1].GetRefusal(); connect.Code(refusal.GetCode()) !=
			connect.CodeUnavailable || refusal.GetReasonCode() != report.ReasonShardDown ||
			!refusal.GetRetry() || refusal.GetUnsure() {
			t.Errorf("without queue on a stream of shard %d: %v", door, answers[1])
		}
	}
	b.Stand(2, false)
	for _, bundle := range waiting {
		b.everywhere(bundle.ID(0), "0 passed", "1 settled", "2 settled")
	}
}

// stream opens a stream of bundles to a shard's node.
func (b *book) stream(door int) *connect.BidiStreamForClient[ledgerdv1.SubmitStreamRequest,
	ledgerdv1.SubmitStreamResponse] {
	overHTTP2 := &http.Transport{Protocols: new(http.Protocols)}
	overHTTP2.Protocols.SetUnencryptedHTTP2(true)
	b.Cleanup(overHTTP2.CloseIdleConnections)
	return ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: overHTTP2},
		b.Door(ledger.ShardID(door)).URL).SubmitStream(b.context())
}

// streamed sends requests, and returns their answers by number.
func (b *book) streamed(stream *connect.BidiStreamForClient[ledgerdv1.SubmitStreamRequest,
	ledgerdv1.SubmitStreamResponse],
	requests ...*ledgerdv1.SubmitStreamRequest) []*ledgerdv1.BundleAnswer {
	b.Helper()
	for _, request := range requests {
		if err := stream.Send(request); err != nil {
			b.Fatal(err)
		}
	}
	answers := make([]*ledgerdv1.BundleAnswer, len(requests))
	for left := len(requests); left > 0; {
		message, err := stream.Receive()
		if err != nil {
			b.Fatal(err)
		}
		for _, answer := range message.GetAnswers() {
			answers[answer.GetNumber()] = answer
			left--
		}
	}
	return answers
}

// Of many bundles only those are refused that cross to the shard, and in order those behind them.
func TestManyAndAShardDown(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	known := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 7))
	b.settled(b.submit(0, durable, known), 1)
	b.Obstruct(down(2))
	for door := range b.clients {
		for _, inOrder := range []bool{false, true} {
			request := &ledgerdv1.SubmitManyRequest{Wait: admitted, InOrder: inOrder}
			for _, bundle := range []*ledger.Bundle{
				b.signed(b.orgs[0].Transfer("org0:mint", "org1:a", 1)), known,
				b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 1)),
				b.signed(b.orgs[0].Transfer("org0:mint", "org1:a", 1)),
			} {
				request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
			}
			answer, err := b.clients[door].SubmitMany(b.context(), connect.NewRequest(request))
			if err != nil {
				t.Fatal(err)
			}
			outcomes := answer.Msg.GetOutcomes()
			if outcomes[0].GetRefused() != "" || outcomes[1].GetRefused() != "" ||
				!strings.HasPrefix(outcomes[2].GetRefused(), "shard 2 is down") ||
				outcomes[2].GetReasonCode() != report.ReasonShardDown ||
				(outcomes[3].GetRefused() != "") != inOrder ||
				outcomes[3].GetReasonCode() != "" {
				t.Errorf("at shard %d, in order %v: %v", door, inOrder, outcomes)
			}
		}
	}
}

// A shard that is down blocks the way below it. Where a bundle enters a shard that is down, the
// node that takes the call refuses it, unless the home of the signer has it already.
func TestShardDownOnTheWay(t *testing.T) {
	t.Parallel()
	b := newBookOf(t, 0, 0, 1)
	entered := b.signed(b.orgs[2].Transfer("org2:mint", "org1:a", 7))
	b.settled(b.submit(0, durable, entered), 2)
	b.Obstruct(down(1))
	b.Silence(1, true)
	for _, door := range []int{0, 2} {
		b.refused(door, b.signed(b.orgs[0].Transfer("org0:mint", "org2:a", 5)),
			connect.CodeUnavailable, report.ReasonShardDown, "shard 1 is down")
		b.refused(door, b.signed(b.orgs[2].Transfer("org2:mint", "org1:a", 5)),
			connect.CodeUnavailable, report.ReasonShardDown, "shard 1 is down")
		b.settled(b.submit(door, durable, entered), 2)
		answer, err := b.clients[door].SubmitMany(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitManyRequest{Wait: durable, InOrder: true,
				Bundles: []*ledgerdv1.Bundle{api.BundleToProto(entered), api.BundleToProto(
					b.signed(b.orgs[2].Transfer("org2:mint", "org1:a", 5)))}}))
		if err != nil {
			t.Fatal(err)
		}
		outcomes := answer.Msg.GetOutcomes()
		if outcomes[1].GetReasonCode() != report.ReasonShardDown {
			t.Errorf("at shard %d: %v", door, outcomes)
		}
		b.settled(outcomes[0].GetTransactions()[0], 2)
	}
	b.settled(b.submit(0, durable, b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))), 2)
}

// A shard is full for another shard. Both are there, so only transactions that concern both are
// refused.
func TestShardFull(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Obstruct(full(1, 2))
	for door := range b.clients {
		b.refused(door, b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)),
			connect.CodeResourceExhausted, report.ReasonShardFull,
			"shard 1 is full")
		b.settled(b.submit(door, durable,
			b.signed(b.orgs[1].Transfer("org1:mint", "org0:a", 1))), 1)
		b.settled(b.submit(door, durable,
			b.signed(b.orgs[0].Transfer("org0:mint", "org2:a", 1))), 0)
	}
}

// The node where a bundle enters counts it, by shard and reason.
func TestRefusedBundlesAreCounted(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Obstruct(down(2), full(1, 0))
	for range 2 {
		b.refused(1, b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)),
			connect.CodeUnavailable, report.ReasonShardDown, "shard 2 is down")
	}
	b.refused(1, b.signed(b.orgs[1].Transfer("org1:mint", "org0:a", 5)),
		connect.CodeResourceExhausted, report.ReasonShardFull, "wait for shard 0")
	text := metricsOf(t, b.Door(0).URL)
	for _, line := range []string{
		`ledgerd_shard_refused_bundles_total{destination="2",reason="shard_down",shard="0"} 2`,
		`ledgerd_shard_refused_bundles_total{destination="1",reason="shard_full",shard="0"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}
