package route_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// While a shard stands still, transactions that need it wait and name it. They continue by
// themselves.
func TestWaitingForAShard(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
		b.signed(b.orgs[1].Transfer("org1:mint", "org1:a", 9))), 1)
	b.Stand(2, true)
	payment := b.signed(b.orgs[1].Transfer("org1:a", "org2:a", 5))
	// A node answers up to 200 ms before the deadline, so a busy machine needs one of some seconds.
	short, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	answer, err := b.clients[2].Submit(short,
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(payment)}))
	if err != nil {
		t.Fatal(err)
	}
	status := answer.Msg.GetTransactions()[0]
	if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		len(status.GetWaitsFor()) != 1 {
		t.Errorf("status %v", status)
	}
	shown := b.everywhere(payment.ID(0), "0 passed", "1 waiting", "2 absent")
	if status := shown.GetStatus(); !slices.Equal(status.GetWaitsFor(), []uint32{2}) ||
		status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(shown.GetPlaces()[1].GetWaitsFor(), []uint32{2}) {
		t.Errorf("%v", shown)
	}
	if got := b.balance(0, "org1:a"); got.GetAmount() != "4" || got.GetSetAside() != "5" {
		t.Errorf("balance %v while 5 are set aside", got)
	}
	block, err := b.clients[2].GetBlock(b.context(), connect.NewRequest(&ledgerdv1.GetBlockRequest{
		Block: &ledgerdv1.GetBlockRequest_Height{Height: shown.GetPlaces()[1].GetHeight()},
		Shard: ref(1)}))
	if err != nil {
		t.Fatal(err)
	}
	if entry := block.Msg.GetBlock().GetTransactions()[0].GetStatus(); entry.GetReasonCode() !=
		"set_aside" || !slices.Equal(entry.GetWaitsFor(), []uint32{2}) || entry.GetShard() != 1 ||
		block.Msg.GetBlock().GetHeader().GetFailedCount() != 0 {
		t.Errorf("in the block: %v", entry)
	}
	b.Silence(2, true)
	b.clients[0], b.clients[2] = b.clients[1], b.clients[1] // its own shard is not silent
	b.everywhere(payment.ID(0), "0 passed", "1 waiting", "2 unanswered")
	b.Silence(2, false)
	b.Stand(2, false)
	id := payment.ID(0)
	waited, err := b.clients[0].WaitTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.WaitTransactionRequest{Id: id[:]}))
	if err != nil {
		t.Fatal(err)
	}
	b.settled(waited.Msg.GetTransaction().GetStatus(), 1)
	b.everywhere(id, "0 passed", "1 settled", "2 settled")
	verdicts, err := b.clients[0].GetBlock(b.context(),
		connect.NewRequest(&ledgerdv1.GetBlockRequest{
			Block: &ledgerdv1.GetBlockRequest_Height{
				Height: waited.Msg.GetTransaction().GetStatus().GetSettledHeight()},
			Shard: ref(1)}))
	if err != nil {
		t.Fatal(err)
	}
	entry := verdicts.Msg.GetBlock().GetTransactions()[0]
	if entry.GetVerdict() != "good" || entry.GetVerdictShard() != 2 ||
		entry.GetVerdictTransactionHex() != id.String() {
		t.Errorf("the verdict in its block: %v", entry)
	}
	// The entry by its own id is also a verdict, and nobody signed it.
	alone, err := b.clients[0].GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{IdHex: entry.GetStatus().GetIdHex()}))
	if err != nil {
		t.Fatal(err)
	}
	if verdict := alone.Msg.GetTransaction(); verdict.GetVerdict() != "good" ||
		verdict.GetVerdictShard() != 2 || verdict.GetVerdictTransactionHex() != id.String() ||
		len(verdict.GetSignatures()) != 0 || verdict.GetBody().GetSigner() != "" {
		t.Errorf("the verdict by its id: %v", verdict)
	}
	if paid := waited.Msg.GetTransaction(); paid.GetVerdict() != "" {
		t.Errorf("the transaction itself: %v", paid)
	}
}

// A transaction that waits for longer than the bound is overdue: in the tree, in the state of a
// node of its shard, and at its place. So are the entries of the stream that the shard has not
// taken. Any node answers so. Without a bound nothing is overdue.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Minute, 0} {
		b := newBookWith(t, ledgertest.ShardedGenesis(1, 0, 0, 0), api.Options{AlarmAfter: after})
		b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
			b.signed(b.orgs[1].Transfer("org1:mint", "org1:a", 9))), 1)
		b.Stand(2, true)
		payment := b.signed(b.orgs[1].Transfer("org1:a", "org2:a", 5))
		b.submit(1, ledgerdv1.Level_LEVEL_ADMITTED, payment)
		b.everywhere(payment.ID(0), "0 passed", "1 waiting", "2 absent")
		overdue := uint64(0)
		if after > 0 {
			overdue = 1
		}
		id := payment.ID(0)
		for shard := range b.clients {
			tree, err := b.clients[shard].GetTree(b.context(),
				connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			root, waits := tree.Msg.GetTree().GetShards()[0], tree.Msg.GetTree().GetShards()[1]
			if waits.GetOverdue() != overdue || len(waits.GetWaitsFor()) != 1 ||
				waits.GetWaitsFor()[0].GetShard() != 2 ||
				waits.GetWaitsFor()[0].GetCount() != 1 ||
				waits.GetWaitsFor()[0].GetOverdue() != overdue ||
				waits.GetOldestWaitingMs() != waits.GetWaitsFor()[0].GetSinceMs() ||
				waits.GetOldestWaitingMs() < 1_700_000_000_000 {
				t.Errorf("asked shard %d: %v", shard, waits)
			}
			if root.GetOverdue() != 0 || len(root.GetUntakenBy()) != int(overdue) ||
				overdue > 0 && root.GetUntakenBy()[0].GetShard() != 2 {
				t.Errorf("asked shard %d: %v", shard, root)
			}
			shown, err := b.clients[shard].GetTransaction(b.context(),
				connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
			if err != nil {
				t.Fatal(err)
			}
			for _, place := range shown.Msg.GetTransaction().GetPlaces() {
				if place.GetOverdue() != (overdue > 0 && place.GetShard() == 1) {
					t.Errorf("asked shard %d: %v", shard, place)
				}
			}
		}
		node, err := b.clients[1].GetNode(b.context(),
			connect.NewRequest(&ledgerdv1.GetNodeRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if state := node.Msg.GetNode(); state.GetOverdue() != overdue ||
			len(state.GetWaitsFor()) != 1 || state.GetOldestWaitingMs() == 0 {
			t.Errorf("the node: %v", state)
		}
		b.Stand(2, false)
		b.settled(b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, payment), 1)
	}
}

// While the home of the signer does not have a transaction in its chain, the status says that it
// waits for the home.
func TestWaitingForTheHome(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Stand(1, true)
	payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
	b.submit(2, ledgerdv1.Level_LEVEL_ADMITTED, payment)
	shown := b.everywhere(payment.ID(0), "0 passed", "1 absent", "2 waiting")
	if status := shown.GetStatus(); status.GetState() !=
		ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(status.GetWaitsFor(), []uint32{1}) || !shown.GetPlaces()[1].GetHome() {
		t.Errorf("%v", shown)
	}
	b.Stand(1, false)
	b.everywhere(payment.ID(0), "0 passed", "1 settled", "2 settled")
}

// A payment can be waited for until it is durable in both its shards. Until then the answer names
// the shard that is not so far.
func TestWaitingEverywhere(t *testing.T) {
	t.Parallel()
	const everywhere = ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE
	b := newBook(t)
	b.Stand(1, true)
	payment, local := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)),
		b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 5))
	b.submit(2, ledgerdv1.Level_LEVEL_ADMITTED, payment)
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		shown := b.everywhere(payment.ID(0), "0 passed", "1 absent", "2 waiting")
		if shown.GetPlaces()[2].GetLevel() == ledgerdv1.Level_LEVEL_DURABLE {
			break // Shard 1 will hear its verdict.
		}
		if time.Since(begin) > patience {
			t.Fatalf("not durable in shard 2: %v", shown)
		}
	}
	b.Stand(2, true) // It will not hear the verdict of shard 1.
	b.Stand(1, false)
	b.everywhere(payment.ID(0), "0 passed", "1 settled", "2 waiting")
	id := payment.ID(0)
	request := &ledgerdv1.WaitTransactionRequest{Id: id[:], Wait: everywhere}
	var answer *connect.Response[ledgerdv1.GetTransactionResponse]
	var err error
	for limit := 4 * time.Second; limit < patience; limit *= 2 {
		// The node answers before the caller's time is up, unless the machine is too slow for that.
		short, cancel := context.WithTimeout(context.Background(), limit)
		answer, err = b.clients[0].WaitTransaction(short, connect.NewRequest(request))
		cancel()
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	status := answer.Msg.GetTransaction().GetStatus()
	b.settled(status, 1)
	if status.GetEverywhere() || !slices.Equal(status.GetWaitsFor(), []uint32{2}) {
		t.Errorf("durable in one of two shards: %v", status)
	}
	b.Stand(2, false)
	answer, err = b.clients[2].WaitTransaction(b.context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	many, err := b.clients[1].SubmitMany(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitManyRequest{Wait: everywhere, Bundles: []*ledgerdv1.Bundle{
			api.BundleToProto(b.signed(b.orgs[1].Transfer("org1:mint", "org0:a", 5))),
			api.BundleToProto(local)}}))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := many.Msg.GetOutcomes()
	for i, status := range []*ledgerdv1.TransactionStatus{
		answer.Msg.GetTransaction().GetStatus(), outcomes[0].GetTransactions()[0],
		b.submit(0, everywhere, b.signed(b.orgs[2].Transfer("org2:mint", "org1:a", 5))),
		outcomes[1].GetTransactions()[0],
	} {
		if status.GetEverywhere() != (i < 3) || len(status.GetWaitsFor()) > 0 ||
			status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			t.Errorf("%d: %v", i, status)
		}
	}
}

// A transaction can be waited for before it is submitted, at any node.
func TestWaitingBeforeItIsThere(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	payment := b.signed(b.orgs[2].Transfer("org2:mint", "org1:a", 5))
	local := b.signed(b.orgs[1].Transfer("org1:mint", "org1:a", 5))
	first, second := payment.ID(0), local.ID(0)
	waited := make(chan error, 1)
	go func() {
		answer, err := b.clients[0].WaitTransactions(b.context(),
			connect.NewRequest(&ledgerdv1.WaitTransactionsRequest{Ids: [][]byte{first[:],
				second[:]}}))
		if err == nil {
			for _, status := range answer.Msg.GetTransactions() {
				if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
					err = fmt.Errorf("status %v", status)
				}
			}
		}
		waited <- err
	}()
	b.submit(1, ledgerdv1.Level_LEVEL_ADMITTED, payment)
	b.submit(2, ledgerdv1.Level_LEVEL_ADMITTED, local)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	unknown := ledger.Hash{1}
	// A transaction that no shard knows does not hide the outcome of others, which clients of
	// another node submitted.
	elsewhere := b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 5))
	b.submit(2, ledgerdv1.Level_LEVEL_DURABLE, elsewhere)
	third := elsewhere.ID(0)
	// The answer comes up to 200 ms before the deadline, so a busy machine needs one of some
	// seconds.
	ctx, cancel := context.WithTimeout(b.context(), 6*time.Second)
	defer cancel()
	answer, err := b.clients[0].WaitTransactions(ctx,
		connect.NewRequest(&ledgerdv1.WaitTransactionsRequest{Ids: [][]byte{third[:], unknown[:]}}))
	if err != nil || answer.Msg.GetTransactions()[0].GetState() !=
		ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE ||
		answer.Msg.GetTransactions()[1].GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED {
		t.Errorf("one known, one not: %v %v", answer, err)
	}
	_, err = b.clients[0].GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: unknown[:]}))
	codeIs(t, err, connect.CodeNotFound)
	b.Silence(2, true)
	_, err = b.clients[0].GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: unknown[:]}))
	codeIs(t, err, connect.CodeUnavailable)
}
