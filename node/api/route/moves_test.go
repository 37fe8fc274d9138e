package route_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// newChangingBook is a book of three shards in which org2:a has 5, and whose shards may change.
func newChangingBook(t *testing.T) *book {
	t.Helper()
	return newChangingBookAt(t, nil)
}

// newChangingBookAt is newChangingBook whose nodes have another clock, unless that is nil.
func newChangingBookAt(t *testing.T, clock func() time.Time) *book {
	t.Helper()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	b := newBookWith(t, genesis, api.Options{Clock: clock})
	b.settled(b.submit(2, ledgerdv1.Level_LEVEL_DURABLE,
		b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 5))), 2)
	return b
}

// change makes a change of the book, and waits until it is durable in the root.
func (b *book) change(change ledger.BookChange) {
	b.Helper()
	operator := &ledgertest.Operator{Ledger: b.Shard(0).Genesis().Book()}
	status := b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
		operator.Bundle("operator", operator.ChangeBook(change)))
	if status.GetReasonCode() != "" {
		b.Fatalf("the change: %v", status)
	}
}

// startMove moves org2 from shard 2, whose chain stands still, to shard 1, until that knows it.
func (b *book) startMove() {
	b.Helper()
	b.Stand(2, true)
	b.change(ledger.BookChange{Number: 1,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 1}})
	b.until("the new home knows of the move", func() bool {
		coming, _ := b.Shard(1).Node(0).Store().Coming()
		return len(coming) == 1
	})
}

// finishMove lets org2 arrive.
func (b *book) finishMove() {
	b.Helper()
	b.Stand(2, false)
	b.until("it has arrived", func() bool {
		return b.Shard(1).Node(0).Store().LivesHere("org2")
	})
}

func (b *book) until(what string, is func() bool) {
	b.Helper()
	for begin := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > patience/2 {
			b.Fatalf("not so: %s", what)
		}
	}
}

// reads calls each method that reads what an organisation has, at a node.
func (b *book) reads(door int) map[string]error {
	client, errs := b.clients[door], make(map[string]error)
	_, errs["GetAccount"] = client.GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a"}))
	_, errs["ListHistory"] = client.ListHistory(b.context(),
		connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "org2:a"}))
	_, errs["GetRecord"] = client.GetRecord(b.context(),
		connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: "org2:note"}))
	_, errs["GetNonce"] = client.GetNonce(b.context(),
		connect.NewRequest(&ledgerdv1.GetNonceRequest{Organisation: "org2"}))
	_, errs["GetUse"] = client.GetUse(b.context(),
		connect.NewRequest(&ledgerdv1.GetUseRequest{Organisation: "org2"}))
	return errs
}

// listedWith lists accounts with a prefix, and returns the balances of org2:a
// and who is on its way.
func (b *book) listedWith(door int, prefix string, cut []*ledgerdv1.Place) (amount string,
	moving []string) {
	b.Helper()
	page, err := b.clients[door].ListAccounts(b.context(),
		connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: prefix, Cut: cut}))
	if err != nil {
		b.Fatalf("listing %q at shard %d: %v", prefix, door, err)
	}
	for _, account := range page.Msg.GetAccounts() {
		if account.GetAccount() == "org2:a" {
			amount += account.GetBalances()[0].GetAmount()
		}
	}
	return amount, page.Msg.GetMovingOrganisations()
}

// While an organisation is on its way, no shard says that it has nothing: a read says to ask again,
// and lists name it. Then everything is there.
func TestReadsDuringAMove(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	if errs := b.reads(0); errs["GetAccount"] != nil {
		t.Fatal(errs)
	}
	b.startMove()
	for door := range 2 {
		for method, err := range b.reads(door) {
			coded := (*connect.Error)(nil)
			if !asConnect(err, &coded) || coded.Code() != connect.CodeUnavailable ||
				coded.Meta().Get(api.HeaderRetry) != "true" ||
				!strings.Contains(coded.Message(), "on its way here") {
				t.Errorf("%s at shard %d: %v", method, door, err)
			}
		}
		for _, prefix := range []string{"", "or", "org2", "org2:", "org2:a"} {
			if amount, moving := b.listedWith(door, prefix, nil); !slices.Equal(moving,
				[]string{"org2"}) {
				t.Errorf("%q at shard %d: %q, moving %v", prefix, door, amount, moving)
			}
		}
		if _, moving := b.listedWith(door, "org1", nil); len(moving) > 0 {
			t.Errorf("moving: %v", moving)
		}
	}
	b.finishMove()
	for door := range 3 {
		for method, err := range b.reads(door) {
			if err != nil && method != "GetRecord" {
				t.Errorf("%s at shard %d: %v", method, door, err)
			}
		}
		if amount, moving := b.listedWith(door, "", nil); amount != "5" || len(moving) > 0 {
			t.Errorf("at shard %d: %q, moving %v", door, amount, moving)
		}
	}
}

// A node that passed a call on may know of a move before the new home's node does, or not yet.
// Neither home answers with what it has then.
func TestReadsBeforeAllKnowOfAMove(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	b.Stand(1, true)
	b.change(ledger.BookChange{Number: 1,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 1}})
	b.until("the old home knows of the move", func() bool {
		return b.Shard(2).Node(0).Store().HomeShard("org2") == 1
	})
	for method, err := range b.reads(2) {
		coded := (*connect.Error)(nil)
		if !asConnect(err, &coded) || coded.Meta().Get(api.HeaderRetry) != "true" {
			t.Errorf("%s passed on to a node that does not know the move: %v", method, err)
		}
	}
	for method, err := range b.reads(1) { // passed on to the old home
		coded := (*connect.Error)(nil)
		if !asConnect(err, &coded) || coded.Meta().Get(api.HeaderRetry) != "true" ||
			!strings.Contains(coded.Message(), "has moved to shard 1") {
			t.Errorf("%s passed on to the old home: %v", method, err)
		}
	}
}

// Balances at a cut from before a move are read at the old home, those after it at the new one,
// whichever node is asked.
func TestBalancesAtACutFromBeforeAMove(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	before := b.cut(0, nil).GetPlaces()
	b.startMove()
	b.finishMove()
	b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
		b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 2))), 1)
	after := b.cut(0, nil).GetPlaces()
	for door := range b.clients {
		for want, cut := range map[string][]*ledgerdv1.Place{"5": before, "7": after} {
			for _, prefix := range []string{"", "org2:", "org2:a"} {
				if amount, _ := b.listedWith(door, prefix, cut); amount != want {
					t.Errorf("%q at shard %d: %q, want %s", prefix, door, amount, want)
				}
			}
			answer, err := b.clients[door].GetAccount(b.context(),
				connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: cut}))
			if err != nil || answer.Msg.GetAccount().GetBalances()[0].GetAmount() != want {
				t.Errorf("at shard %d: %v, %v, want %s", door, answer, err, want)
			}
		}
	}
}

// An organisation that moved is known everywhere, even while its home does not answer. Only whether
// it has arrived is not.
func TestOrganisationWhoseHomeIsDown(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	get := func(door int) *ledgerdv1.Organisation {
		answer, err := b.clients[door].GetOrganisation(b.context(),
			connect.NewRequest(&ledgerdv1.GetOrganisationRequest{Name: "org2"}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg.GetOrganisation()
	}
	b.startMove()
	if shown := get(0); !shown.GetMoving() || shown.GetArrivalUnknown() || shown.GetShard() != 1 {
		t.Errorf("on its way: %v", shown)
	}
	b.finishMove()
	if shown := get(0); shown.GetMoving() || shown.GetArrivalUnknown() {
		t.Errorf("arrived: %v", shown)
	}
	b.Silence(1, true)
	if shown := get(0); shown.GetMoving() || !shown.GetArrivalUnknown() || shown.GetShard() != 1 ||
		len(shown.GetEarlierHomes()) != 1 {
		t.Errorf("its home is down: %v", shown)
	}
}

// What only a lost shard could answer is refused for good, not to be tried again.
func TestReadsOfALostShard(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	before := b.cut(0, nil).GetPlaces()
	b.Stand(2, true)
	b.Silence(2, true)
	b.change(ledger.BookChange{Number: 1, Loss: &ledger.ShardLoss{Shard: 2}})
	b.until("all know of the loss", func() bool {
		return b.Shard(0).Node(0).Store().Lost(2) && b.Shard(1).Node(0).Store().Lost(2)
	})
	for door := range 2 {
		errs := b.reads(door)
		_, errs["ListBlocks"] = b.clients[door].ListBlocks(b.context(),
			connect.NewRequest(&ledgerdv1.ListBlocksRequest{Shard: ref(2)}))
		_, errs["ListAccounts"] = b.clients[door].ListAccounts(b.context(),
			connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: "org2:", Cut: before}))
		_, errs["GetAccount at a cut"] = b.clients[door].GetAccount(b.context(),
			connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: before}))
		for method, err := range errs {
			coded := (*connect.Error)(nil)
			if !asConnect(err, &coded) || coded.Code() != connect.CodeFailedPrecondition ||
				coded.Meta().Get(api.HeaderRetry) != "" ||
				coded.Meta().Get(api.HeaderReason) != "shard_lost" {
				t.Errorf("%s at shard %d: %v", method, door, err)
			}
		}
	}
}

// A transaction that failed at the new home of its signer is not pending for ever if the old home
// is lost. Its failure is shown, with the doubt that is left.
func TestFailureAfterTheOldHomeIsLost(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	b.startMove()
	b.finishMove()
	stale := b.signed(ledger.Transaction{Ledger: b.orgs[2].Ledger, Signer: "org2",
		Nonce: ledger.Nonce{Stream: b.orgs[2].Stream, Sequence: b.orgs[2].Sequence},
		Postings: []ledger.Posting{
			{Account: "org2:mint", Asset: "unit", Amount: ledger.NewAmount(-1)},
			{Account: "org2:a", Asset: "unit", Amount: ledger.NewAmount(1)}}})
	failed := b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, stale)
	get := func(door int) *ledgerdv1.TransactionStatus {
		b.Helper()
		id := stale.ID(0)
		answer, err := b.clients[door].GetTransaction(b.context(),
			connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
		if err != nil {
			b.Fatal(err)
		}
		return answer.Msg.GetTransaction().GetStatus()
	}
	if status := get(0); failed.GetReasonCode() != "stale_nonce" ||
		status.GetReasonCode() != "stale_nonce" || strings.Contains(status.GetReason(), "lost") {
		t.Fatalf("%v, %v", failed, status)
	}
	b.Stand(2, true)
	b.Silence(2, true)
	if status := get(0); status.GetState() !=
		ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(status.GetWaitsFor(), []uint32{2}) {
		t.Errorf("while the old home is silent: %v", status)
	}
	b.change(ledger.BookChange{Number: 2, Loss: &ledger.ShardLoss{Shard: 2}})
	b.until("all know of the loss", func() bool {
		return b.Shard(0).Node(0).Store().Lost(2) && b.Shard(1).Node(0).Store().Lost(2)
	})
	for door := range 2 {
		if status := get(door); status.GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
			status.GetReasonCode() != "stale_nonce" ||
			!strings.Contains(status.GetReason(), "shard 2, where org2 lived before, is lost") {
			t.Errorf("at shard %d: %v", door, status)
		}
	}
}

// statusOf returns the status of a bundle's first transaction, as a node of shard 0 shows it.
func (b *book) statusOf(bundle *ledger.Bundle) *ledgerdv1.TransactionStatus {
	b.Helper()
	id := bundle.ID(0)
	answer, err := b.clients[0].GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
	if err != nil {
		b.Fatal(err)
	}
	return answer.Msg.GetTransaction().GetStatus()
}

// A copy that failed where the other organisation lives now is not the outcome: the signer's home
// has that. While it is silent, the transaction is not shown as failed, however long its deadline
// is over: it may have taken effect before.
func TestFailureOfACopyWhileTheSignersHomeIsSilent(t *testing.T) {
	t.Parallel()
	var late atomic.Int64 // by which the nodes' clocks are ahead
	b := newChangingBookAt(t, func() time.Time {
		return time.Now().Add(time.Duration(late.Load()))
	})
	b.startMove()
	b.finishMove()
	payment := b.orgs[1].Transfer("org1:mint", "org2:a", 1)
	payment.Deadline = ledger.Milliseconds(time.Now().Add(time.Hour).UnixMilli())
	paid := b.signed(payment)
	b.settled(b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, paid), 1)
	b.change(ledger.BookChange{Number: 2,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 0}})
	b.until("it has arrived in shard 0", func() bool {
		return b.Shard(0).Node(0).Store().LivesHere("org2")
	})
	get := func() *ledgerdv1.TransactionStatus { return b.statusOf(paid) }
	if refused := b.Shard(0).Node(0).Admit(b.context(), []*ledger.Bundle{paid},
		false); refused[0] != nil {
		t.Fatal(refused[0])
	}
	b.until("the copy has failed in shard 0", func() bool {
		opened := b.Shard(0).Node(0).Store()
		known, err := opened.Known(paid.ID(0))
		return err == nil && known && opened.PendingCount() == 0
	})
	if status := get(); status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Errorf("while the signer's home answers: %v", status)
	}
	b.Silence(1, true)
	if status := get(); status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(status.GetWaitsFor(), []uint32{1}) {
		t.Errorf("while it is silent: %v", status)
	}
	late.Store(int64(48 * time.Hour))
	if status := get(); status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(status.GetWaitsFor(), []uint32{1}) {
		t.Errorf("while it is silent after the deadline: %v", status)
	}
	b.Silence(1, false)
	if status := get(); status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Errorf("when it answers again: %v", status)
	}
}

// Nor is a transaction shown as failed while the chain of its signer's home, which is behind, may
// still take it. Once it has, the failure is shown. So it is once the deadline has been over for a
// while.
func TestFailureBeforeTheSignersHomeHasIt(t *testing.T) {
	t.Parallel()
	var late atomic.Int64 // by which the nodes' clocks are ahead
	b := newChangingBookAt(t, func() time.Time {
		return time.Now().Add(time.Duration(late.Load()))
	})
	b.startMove()
	b.finishMove()
	b.change(ledger.BookChange{Number: 2,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 0}})
	b.until("it has arrived in shard 0", func() bool {
		return b.Shard(0).Node(0).Store().LivesHere("org2")
	})
	b.Stand(1, true)
	payment := b.orgs[1].Transfer("org1:mint", "org2:absent", 1)
	payment.Deadline = ledger.Milliseconds(time.Now().Add(time.Hour).UnixMilli())
	paid := b.signed(payment)
	if refused := b.Shard(0).Node(0).Admit(b.context(), []*ledger.Bundle{paid},
		false); refused[0] != nil {
		t.Fatal(refused[0])
	}
	b.until("it has failed in shard 0", func() bool {
		opened := b.Shard(0).Node(0).Store()
		known, err := opened.Known(paid.ID(0))
		return err == nil && known && opened.PendingCount() == 0
	})
	get := func() *ledgerdv1.TransactionStatus { return b.statusOf(paid) }
	if status := get(); status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING ||
		!slices.Equal(status.GetWaitsFor(), []uint32{1}) {
		t.Errorf("while the signer's home is behind: %v", status)
	}
	for after, want := range map[time.Duration]ledgerdv1.TransactionState{
		time.Hour:     ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING, // clocks differ
		2 * time.Hour: ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
	} {
		late.Store(int64(after))
		if status := get(); status.GetState() != want {
			t.Errorf("while the signer's home is behind %v later: %v", after, status)
		}
	}
	late.Store(0)
	b.Stand(1, false)
	b.until("the failure is shown", func() bool {
		return get().GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
	})
}

// A list in which an organisation is missing, because only its old home knows of its move yet, says
// that the new home does not answer. So does one of a node that does not know of the move itself.
func TestListsBeforeAllKnowOfAMove(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	list := func(door int, prefix string) *ledgerdv1.ListAccountsResponse {
		b.Helper()
		page, err := b.clients[door].ListAccounts(b.context(),
			connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: prefix}))
		if err != nil {
			b.Fatal(err)
		}
		return page.Msg
	}
	b.Stand(1, true)
	b.change(ledger.BookChange{Number: 1,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 1}})
	b.until("the old home knows of the move", func() bool {
		return b.Shard(2).Node(0).Store().BookChanges() == 1
	})
	// Shard 1 is behind: to others it does not answer, and it takes no list of others.
	for door, silent := range [][]uint32{{1}, {0, 2}, {1}} {
		page := list(door, "")
		if !slices.Equal(page.GetUnansweredShards(), silent) ||
			page.GetBookChanges() != uint64(len(silent)%2) ||
			slices.ContainsFunc(page.GetAccounts(), func(a *ledgerdv1.Account) bool {
				return a.GetAccount() == "org2:a"
			}) {
			t.Errorf("at shard %d: shards %v do not answer, after %d changes", door,
				page.GetUnansweredShards(), page.GetBookChanges())
		}
	}
	if page := list(1, "org2:"); !slices.Equal(page.GetUnansweredShards(), []uint32{2}) {
		t.Errorf("at the new home: shards %v do not answer", page.GetUnansweredShards())
	}
	if page := list(0, "org2:"); !slices.Equal(page.GetUnansweredShards(), []uint32{1}) {
		t.Errorf("at the root: shards %v do not answer", page.GetUnansweredShards())
	}
	b.Stand(1, false)
	b.until("it has arrived", func() bool {
		return b.Shard(1).Node(0).Store().LivesHere("org2") &&
			b.Shard(1).Node(0).Store().HasMoves()
	})
	for door := range 3 {
		if page := list(door, "org2:"); len(page.GetUnansweredShards()) > 0 ||
			len(page.GetAccounts()) != 2 {
			t.Errorf("at shard %d: %v", door, page)
		}
	}
}

// held is a shard whose list of accounts comes only after something else has happened.
type held struct {
	ledgerdv1connect.LedgerServiceClient
	asked, goOn chan struct{}
}

func (h *held) ListAccounts(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	h.asked <- struct{}{}
	select {
	case <-h.goOn:
		return h.LedgerServiceClient.ListAccounts(ctx, request)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An organisation leaves its home while that is asked for its accounts, and the node that asks
// learns of it meanwhile. Its list does not come out empty without a word: neither home answered.
func TestListWhileTheOrganisationLeaves(t *testing.T) {
	t.Parallel()
	b := newChangingBook(t)
	home := &held{b.Shards(0).Client(2), make(chan struct{}, 9), make(chan struct{})}
	node := b.serveBent(0, 2, home)
	list := func() (*connect.Response[ledgerdv1.ListAccountsResponse], error) {
		return node.ListAccounts(b.context(),
			connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: "org2:"}))
	}
	type answer struct {
		page *connect.Response[ledgerdv1.ListAccountsResponse]
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		page, err := list()
		answered <- answer{page, err}
	}()
	<-home.asked
	b.change(ledger.BookChange{Number: 1,
		Move: &ledger.OrganisationMove{Organisation: "org2", To: 1}})
	b.until("it lives in shard 1", func() bool {
		return b.Shard(0).Node(0).Store().HomeShard("org2") == 1 &&
			b.Shard(1).Node(0).Store().LivesHere("org2") &&
			b.Shard(2).Node(0).Store().HomeShard("org2") == 1
	})
	close(home.goOn)
	got := <-answered
	if got.err != nil {
		t.Fatal(got.err)
	}
	if len(got.page.Msg.GetAccounts()) > 0 ||
		!slices.Equal(got.page.Msg.GetUnansweredShards(), []uint32{1, 2}) {
		t.Errorf("%v, shards %v do not answer", got.page.Msg.GetAccounts(),
			got.page.Msg.GetUnansweredShards())
	}
	b.until("a list has its accounts again", func() bool {
		again, err := list()
		return err == nil && len(again.Msg.GetUnansweredShards()) == 0 &&
			len(again.Msg.GetAccounts()) == 2
	})
}
