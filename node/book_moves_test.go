package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// move returns the operators' change that gives an organisation another home.
func (b *book) move(number uint64, organisation int, to ledger.ShardID) *ledger.Bundle {
	b.t.Helper()
	bundle, err := ledger.NewBundle(ledger.Transaction{Ledger: b.homes[0].Genesis.Book(),
		Book: &ledger.BookChange{Number: number, Move: &ledger.OrganisationMove{
			Organisation: b.clients[organisation].Organisation, To: to}}})
	if err == nil {
		err = bundle.Sign(ledger.Operator, ledgertest.Key("operator"))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return bundle
}

// An organisation moves under load, with more than one arrival brings. Each of its payments takes
// effect once, none waits long, and a balance at a cut adds up.
func TestOrganisationMovesUnderLoad(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			t.Parallel()
			b := newBook(t, members, 0, 0, 0)
			b.open()
			b.movesUnderLoad()
		})
	}
}

// movesUnderLoad moves the organisation of shard 2 to shard 1 while it pays.
func (b *book) movesUnderLoad() {
	t := b.t
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	payer := b.clients[2]
	noted := payer.Next()
	for i := range 4 {
		noted.Records = append(noted.Records, ledger.Record{Value: make([]byte, 50_000),
			Key: ledger.RecordKey(payer.Account(fmt.Sprintf("note-%d", i)))})
	}
	b.executed(b.submitAt(b.of(2)[0], noted))
	moved := make(chan time.Time, 1)
	var longest time.Duration
	var after, paid, again int
	for client := b.via(b.of(2)[0], b.of(1)[0]); after < 20 && ctx.Err() == nil; {
		if paid == 20 {
			go func() {
				statuses, err := b.via(0).Submit(ctx, b.move(1, 2, 1),
					ledgerdv1.Level_LEVEL_DURABLE)
				if err != nil || statuses[0].GetState() !=
					ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
					t.Errorf("the move: %v, %v", statuses, err)
				}
				moved <- time.Now()
			}()
		}
		payment := payer.Transfer(payer.Account("a"), payer.Account("b"), 1)
		began := time.Now()
		for {
			statuses, err := client.Submit(ctx, b.signed(payment), ledgerdv1.Level_LEVEL_ORDERED)
			if err != nil {
				t.Fatalf("payment %d: %v", paid, err)
			}
			if statuses[0].GetReasonCode() == api.ReasonCode(ledger.OrganisationMoving) {
				again++
				payment.Note = append(payment.Note, '.') // another id, and the same nonce
				continue
			}
			if statuses[0].GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED {
				t.Fatalf("payment %d: %v", paid, statuses[0])
			}
			break
		}
		longest = max(longest, time.Since(began))
		paid++
		if len(moved) > 0 {
			after++
		}
	}
	t.Logf("%d payments, the longest took %v, %d were signed again", paid, longest, again)
	for _, k := range b.of(1) {
		b.eventually("the organisation has arrived", func() bool {
			account, err := b.nodes[k].Store().Account(payer.Account("b"))
			return err == nil &&
				account.Balance(ledger.DefaultAsset) == ledger.NewAmount(int64(paid))
		})
	}
	b.executed(b.submitAt(0, b.pay(2, 0, 5)))
	b.executed(b.submitAt(b.of(1)[0], b.pay(1, 2, 9)))
	b.holds(0, 1000+5)
	b.holds(1, 1000-9)
	account, err := b.via(0).Account(ctx, payer.Account("a"))
	if want := ledger.NewAmount(int64(1000 - paid - 5 + 9)).String(); err != nil ||
		len(account.GetBalances()) != 1 || account.GetBalances()[0].GetAmount() != want {
		t.Errorf("it has %v, want %v (%v)", account, want, err)
	}
	record, err := b.nodes[b.of(1)[0]].Store().Record(ledger.RecordKey(payer.Account("note-3")))
	if err != nil || len(record.Value) != 50_000 {
		t.Errorf("a record has %d bytes (%v)", len(record.Value), err)
	}
	cut, err := b.via(0).Cut(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := ledger.Amount{}
	for account, err := range b.via(b.of(2)[0]).AccountsAt(ctx, "", cut.GetPlaces()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, balance := range account.GetBalances() {
			amount, err := ledger.ParseAmount(balance.GetAmount())
			if err == nil {
				sum, err = sum.Add(amount)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if sum.Sign() != 0 {
		t.Errorf("at a cut the balances add up to %v", sum)
	}
}

// The old home is down while its organisation moves, and the new home restarts meanwhile. Then the
// organisation arrives, with a payment that waited for its old home.
func TestMoveWaitsForTheOldHome(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	b.stop(2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waiting := b.signed(b.pay(1, 2, 30)) // before the move
	if _, err := b.via(1).SubmitInOrder(ctx, []*ledger.Bundle{waiting},
		ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it waits for shard 2", func() bool {
		return b.nodes[1].Store().PendingCount() == 1
	})
	if _, err := b.via(0).Submit(ctx, b.move(1, 2, 1), ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		t.Fatal(err)
	}
	name := b.clients[2].Organisation
	b.eventually("it is on its way", func() bool {
		coming, _ := b.nodes[1].Store().Coming()
		return len(coming) == 1
	})
	if shown, err := b.via(0).Organisation(ctx, name); err != nil || !shown.GetMoving() ||
		shown.GetShard() != 1 {
		t.Errorf("%v, %v", shown, err)
	}
	b.stop(1)
	b.start(1)
	b.start(2)
	b.eventually("it has arrived", func() bool { return b.nodes[1].Store().LivesHere(name) })
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(1, waiting.ID(0))})
	account, err := b.via(2).Account(ctx, b.clients[2].Account("a"))
	if err != nil || account.GetShard() != 1 || len(account.GetBalances()) != 1 ||
		account.GetBalances()[0].GetAmount() != "1030" {
		t.Errorf("%v, %v", account, err)
	}
	shown, err := b.via(2).Organisation(ctx, name)
	if err != nil || shown.GetMoving() || len(shown.GetEarlierHomes()) != 1 {
		t.Errorf("%v, %v", shown, err)
	}
}

// A payment failed in a shard between two others, and comes again after its organisations moved to
// these. The shard between has it and does not hand it on. It ends all the same once its deadline
// is over.
func TestCopyEndsThatAShardNeverGets(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 1)
	b.open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	move := func(number uint64, organisation int, to ledger.ShardID) {
		if _, err := b.via(0).Submit(ctx, b.move(number, organisation, to),
			ledgerdv1.Level_LEVEL_DURABLE); err != nil {
			t.Fatal(err)
		}
		b.eventually("it has arrived", func() bool {
			return b.nodes[to].Store().LivesHere(b.clients[organisation].Organisation) &&
				b.nodes[to].Store().HasMoves()
		})
	}
	move(1, 0, 1)
	failing := b.pay(1, 0, 30)
	failing.Postings[1].Account = b.clients[0].Account("absent")
	failing.Deadline = soon(10 * time.Second)
	if status := b.submitAt(1, failing)[0]; status.GetReasonCode() !=
		api.ReasonCode(ledger.UnknownAccount) {
		t.Fatal(status)
	}
	move(2, 1, 0)
	move(3, 0, 2)
	copied := b.signed(failing)
	if _, err := b.via(0).SubmitInOrder(ctx, []*ledger.Bundle{copied}, ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it waits for shard 2", func() bool {
		return b.nodes[0].Store().PendingCount() == 1
	})
	if status := b.settled(0, copied.ID(0)); status.GetReasonCode() !=
		api.ReasonCode(ledger.DeadlinePassed) {
		t.Errorf("it ends as %v", status)
	}
	crossing, err := b.nodes[2].Store().Crossing(copied.ID(0))
	if err != nil || crossing.Entry.Result.Code != ledger.DeadlinePassed {
		t.Errorf("shard 2 has it as %+v, %v", crossing, err)
	}
}

// What an organisation takes along is for members of its new home only.
func TestMovesAreOnlyForTheNewHome(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.via(0).Submit(ctx, b.move(1, 2, 1), ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		t.Fatal(err)
	}
	name := b.clients[2].Organisation
	b.eventually("it has arrived", func() bool { return b.nodes[1].Store().LivesHere(name) })
	old := b.nodes[2].Store()
	// A block may follow between the two reads. The arrivals are then those as of a later height.
	var arrivals []*ledger.Bundle
	b.eventually("the old home has the arrivals", func() bool {
		var err error
		if arrivals, err = old.Arrivals(ctx, 1, 1, old.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
		return len(arrivals) > 0
	})
	for shard, want := range []int{http.StatusForbidden, http.StatusOK} {
		b.stop(shard)
		if got := b.askForArrivals(ctx, shard, arrivals[0].ID(0)); got != want {
			t.Errorf("a member of shard %d gets %d, want %d", shard, got, want)
		}
	}
}

// askForArrivals asks shard 2 in the name of a node that is stopped. It returns the status.
func (b *book) askForArrivals(ctx context.Context, as int, from ledger.Hash) int {
	b.t.Helper()
	host, err := b.network.Host(b.peers[as])
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = host.Close(ctx) }()
	c, err := calls.New(calls.Config{Host: host, Serve: http.NotFoundHandler(),
		Logger:     slog.New(slog.DiscardHandler),
		Candidates: func(ledger.ShardID) []rdmanet.PeerID { return b.peers[2:] },
		Find: func(peer rdmanet.PeerID) (ledger.ShardID, bool) {
			return ledger.ShardID(slices.Index(b.peers, peer)), true
		}})
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	client := &http.Client{Transport: c.Transport(2)}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		calls.URL(2)+"/ledgerd/arrivals?move=1&from="+from.String(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
