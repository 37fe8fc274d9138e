package state_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// waited is the chain of shard 1, a leaf, for which others wait.
type waited struct {
	t       *testing.T
	own     *ledger.Genesis
	state   *state.State
	parent  state.Parent
	seen    map[ledger.Hash]bool
	carried uint64
}

func newWaited(t *testing.T) *waited {
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0, 0)
	genesis.Version = ledger.GrowthVersion
	own, err := genesis.ForShard(1)
	if err != nil {
		t.Fatal(err)
	}
	return &waited{t: t, own: own, state: state.New(own), seen: make(map[ledger.Hash]bool),
		parent: state.Parent{Header: own.Block().Header, Hash: own.Block().Hash}}
}

// copyOf returns a bundle as streams carry it.
func copyOf(bundle *ledger.Bundle) []byte {
	block := ledger.Block{Bundles: []ledger.BundleSeal{bundle.Seal([]bool{true})},
		Unpacked: []ledger.Entry{bundle.Entry(0, 0)}}
	return block.CarriedCopy(0)
}

// rounds is round with several batches. It returns the block.
func (w *waited) rounds(at ledger.Milliseconds, batches ...[]ledger.Carried) *ledger.Block {
	w.t.Helper()
	_, block, _ := w.seal(at, batches...)
	if block == nil {
		w.t.Fatal("no block")
	}
	return block
}

// round seals and executes a round at a time. It returns nil for no block.
func (w *waited) round(at ledger.Milliseconds, carried ...ledger.Carried) (*state.Draft,
	*ledger.Block, *state.Changes) {
	w.t.Helper()
	return w.seal(at, carried)
}

// seal seals and executes a round of batches at a time.
func (w *waited) seal(at ledger.Milliseconds, batches ...[]ledger.Carried) (*state.Draft,
	*ledger.Block, *state.Changes) {
	w.t.Helper()
	var payloads [][]byte
	for _, carried := range batches {
		batch := &ledger.Batch{Header: ledger.BatchHeader{Time: at}, Carried: carried}
		payloads = append(payloads, batch.Encode())
	}
	draft := w.state.Seal(w.parent, 1, ledger.Round(w.parent.Header.Height)+1,
		ledger.VerifyBatches(payloads),
		func(id ledger.Hash, _ *ledger.Transaction) bool { return w.seen[id] })
	if draft == nil {
		return nil, nil, nil
	}
	block, changes := w.state.Execute(draft)
	if changes.OutOfPlace > 0 {
		w.t.Fatalf("block %d has %d entries out of place", block.Header.Height, changes.OutOfPlace)
	}
	for _, entry := range block.All() {
		w.seen[entry.ID] = true
	}
	w.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	return draft, block, changes
}

// next takes a bundle as the next entry of the stream from above.
func (w *waited) next(bundle *ledger.Bundle) *ledger.Block {
	w.t.Helper()
	w.carried++
	_, block, _ := w.round(w.parent.Header.Time,
		ledger.Carried{Number: w.carried, Bundle: copyOf(bundle)})
	return block
}

// A chain refuses a transaction beside the order of the tree once its deadline is over and one of
// its organisations moved, and only once. It does not take it from above after that.
func TestLateCopiesAreRefusedBesideTheOrder(t *testing.T) {
	t.Parallel()
	w := newWaited(t)
	m := &mover{t: t, own: w.own}
	acme, cora := ledgertest.NewClient(w.own, "acme"), ledgertest.NewClient(w.own, "cora")
	for shard, client := range map[ledger.ShardID]*ledgertest.Client{2: acme, 3: cora} {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
		w.next(m.signed(registration, string(client.Organisation)))
	}
	deadline := w.parent.Header.Time + 1000
	payment := acme.Next()
	payment.Deadline = deadline
	payment.Postings = []ledger.Posting{
		{Account: acme.Account("a"), Asset: "unit", Amount: ledger.NewAmount(-1)},
		{Account: cora.Account("a"), Asset: "unit", Amount: ledger.NewAmount(1)}}
	paid := m.signed(payment, "acme")
	late := ledger.Carried{Bundle: copyOf(paid)}
	if _, block, _ := w.round(deadline, late); block != nil {
		t.Error("a copy is refused though nobody moved")
	}
	w.next(m.move(1, 1))
	if _, block, _ := w.round(deadline-1, late); block != nil {
		t.Error("a copy is refused before its deadline")
	}
	forged := []byte(late.Bundle)
	forged = append([]byte(nil), forged...)
	forged[len(forged)-1]++
	if _, block, _ := w.round(deadline, ledger.Carried{Bundle: forged}); block != nil {
		t.Error("a copy with a wrong signature is taken")
	}
	draft, block, changes := w.round(deadline, late, late)
	if block == nil {
		t.Fatal("a copy is not taken after its deadline")
	}
	entry := block.Entry(0)
	if block.Len() != 1 || entry.ID != paid.ID(0) || draft.Duplicates != 1 ||
		entry.Result.Code != ledger.DeadlinePassed || len(changes.Forwards) != 0 {
		t.Errorf("%d entries, %d duplicates, %v, %d handed on", block.Len(), draft.Duplicates,
			entry.Result.Code, len(changes.Forwards))
	}
	if len(changes.Verdicts) != 1 || len(changes.Verdicts[0].To) != 1 ||
		changes.Verdicts[0].To[0] != 3 || changes.Verdicts[0].Good() {
		t.Errorf("the verdicts are %+v", changes.Verdicts)
	}
	if verdict, answers := w.state.AnswersTo(&entry, block.Header.Height, 2); !answers ||
		verdict.Result.Code != ledger.DeadlinePassed {
		t.Errorf("shard 2 gets the answer %+v, %v", verdict, answers)
	}
	if _, again, _ := w.round(deadline+1, late); again != nil {
		t.Error("a copy is refused twice")
	}
	if block := w.next(paid); block == nil || block.Len() != 0 {
		t.Error("what was refused comes from above, too")
	}
	decoded, err := ledger.DecodeBlock(block.Encode())
	if err != nil || decoded.Hash != block.Hash {
		t.Errorf("the block does not decode: %v", err)
	}
}

// newWaitedForAcme returns a shard that knows an organisation of shard 2, and a deadline that is
// soon over.
func newWaitedForAcme(t *testing.T) (w *waited, m *mover, acme *ledgertest.Client,
	deadline ledger.Milliseconds) {
	w = newWaited(t)
	m = &mover{t: t, own: w.own}
	acme = ledgertest.NewClient(w.own, "acme")
	registration := acme.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
	w.next(m.signed(registration, "acme"))
	return w, m, acme, w.parent.Header.Time + 1000
}

// A shard where no organisation of a transaction ever lived gives no result on it, and a block
// takes a bounded number of copies.
func TestLateCopiesAreFewAndConcernTheShard(t *testing.T) {
	t.Parallel()
	w, m, acme, deadline := newWaitedForAcme(t)
	var copies []ledger.Carried
	for range 70 {
		payment := acme.Transfer("acme:a", "acme:b", 1)
		payment.Deadline = deadline
		copies = append(copies, ledger.Carried{Bundle: copyOf(m.signed(payment, "acme"))})
	}
	w.next(m.move(1, 3))
	if _, block, _ := w.round(deadline, copies...); block != nil {
		t.Error("a shard refuses what never concerned it")
	}
	w.next(m.move(2, 1))
	for _, want := range []int{64, 6} {
		_, block, _ := w.round(deadline, copies...)
		if block == nil || block.Len() != want {
			t.Fatalf("a block has not %d copies: %v", want, block)
		}
	}
	if _, block, _ := w.round(deadline, copies...); block != nil {
		t.Error("copies are refused twice")
	}
}

// Each copy has the ids of all transactions of its bundle. So the bytes of copies in a block are
// bounded, too, and all batches get their turn: one whose copies are many or large does not keep
// those of others out.
func TestLateCopiesAreBoundedInBytesAndTakeTurns(t *testing.T) {
	t.Parallel()
	w, m, acme, deadline := newWaitedForAcme(t)
	large := ledger.Block{}
	transactions, kept := make([]ledger.Transaction, 4096), make([]bool, 4096)
	for i := range transactions {
		transactions[i] = acme.Transfer("acme:a", "acme:b", 1)
		transactions[i].Deadline, kept[i] = deadline, true
	}
	bundle, err := ledger.NewBundle(transactions...)
	if err == nil {
		err = bundle.Sign("acme", ledgertest.Key("acme"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range transactions {
		large.Unpacked = append(large.Unpacked, bundle.Entry(i, 0))
	}
	large.Bundles = append(large.Bundles, bundle.Seal(kept))
	var many, few []ledger.Carried
	for i := range 20 {
		many = append(many, ledger.Carried{Bundle: large.CarriedCopy(i)})
	}
	size, small := len(many[0].Bundle), make(map[ledger.Hash]bool)
	for range 70 {
		payment := acme.Transfer("acme:a", "acme:b", 1)
		payment.Deadline = deadline
		one := m.signed(payment, "acme")
		few, small[one.ID(0)] = append(few, ledger.Carried{Bundle: copyOf(one)}), true
	}
	w.next(m.move(1, 1))
	perBlock := 1 << 20 / size
	if block := w.rounds(deadline, many); block.Len() != perBlock {
		t.Errorf("a block has %d copies of %d bytes each, not %d", block.Len(), size, perBlock)
	}
	for range 2 {
		block, others := w.rounds(deadline, many, few[:35], few[35:]), 0
		for _, entry := range block.All() {
			if small[entry.ID] {
				others++
			}
		}
		if others < 12 || block.Len()-others < 5 {
			t.Errorf("a block has %d large copies and %d others", block.Len()-others, others)
		}
	}
	// The first turn goes to another batch in each round.
	begins := make(map[int]bool)
	for range 4 {
		var batches [2][]ledger.Carried
		var first [2]ledger.Hash
		for i := range batches {
			payment := acme.Transfer("acme:a", "acme:b", 1)
			payment.Deadline = deadline
			one := m.signed(payment, "acme")
			batches[i], first[i] = []ledger.Carried{{Bundle: copyOf(one)}}, one.ID(0)
		}
		block := w.rounds(deadline, batches[0], batches[1])
		begins[slices.Index(first[:], block.ID(0))] = true
	}
	if len(begins) != 2 {
		t.Error("the same batch begins in each round")
	}
}

// A registration in the block of a late copy may give a home elsewhere to an organisation that
// would have had its home here. So a copy waits until all of its organisations are registered.
func TestLateCopiesBesideARegistration(t *testing.T) {
	t.Parallel()
	w := newWaited(t)
	m := &mover{t: t, own: w.own}
	acme := ledgertest.NewClient(w.own, "acme")
	var dora *ledgertest.Client
	for i := 0; dora == nil; i++ {
		if name := ledger.OrganisationName(fmt.Sprintf("dora%d", i)); w.state.HomeShard(name) == 1 {
			dora = ledgertest.NewClient(w.own, name)
		}
	}
	registration := acme.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
	w.next(m.signed(registration, "acme"))
	payment := acme.Transfer("acme:a", dora.Account("a"), 1)
	payment.Deadline = w.parent.Header.Time + 1000
	late := ledger.Carried{Bundle: copyOf(m.signed(payment, "acme"))}
	w.next(m.move(1, 3))
	registration = dora.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 3
	w.carried++
	registered := ledger.Carried{Number: w.carried,
		Bundle: copyOf(m.signed(registration, string(dora.Organisation)))}
	if _, block, _ := w.round(payment.Deadline, registered, late); block == nil ||
		block.Len() != 1 {
		t.Errorf("the block is %v, not the registration alone", block)
	}
}

// Only what may wait in vain is handed over: a transaction that waits here for a shard, is too late
// and has an organisation that moved.
func TestOnlyLateTransactionsAreHandedOver(t *testing.T) {
	t.Parallel()
	m := newMoverOf(t, 0, 0, 0)
	acme, cora := ledgertest.NewClient(m.own, "acme"), ledgertest.NewClient(m.own, "cora")
	for shard, client := range map[ledger.ShardID]*ledgertest.Client{0: acme, 1: cora} {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, shard
		m.expect(nil, bundles(m.signed(registration, string(client.Organisation))), ledger.Applied)
	}
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: acme.Account("a"), Issuer: true}}
	m.expect(nil, bundles(m.signed(opening, "acme")), ledger.Applied)
	payment := acme.Next()
	payment.Deadline = m.parent.Header.Time + 1000
	payment.Postings = []ledger.Posting{
		{Account: acme.Account("a"), Asset: "unit", Amount: ledger.NewAmount(-1)},
		{Account: cora.Account("a"), Asset: "unit", Amount: ledger.NewAmount(1)}}
	paid := m.signed(payment, "acme")
	m.expect(nil, bundles(paid), ledger.SetAside)
	hands := func(to ledger.ShardID, at ledger.Milliseconds) bool {
		return m.state.HandsOver(paid.ID(0), &payment, to, at)
	}
	if hands(1, payment.Deadline) {
		t.Error("handed over though nobody moved")
	}
	m.expect(nil, bundles(m.signed(ledger.Transaction{Ledger: m.own.Book(),
		Book: &ledger.BookChange{Number: 1, Move: &ledger.OrganisationMove{Organisation: "cora",
			To: 2}}}, "operator")), ledger.Applied)
	if hands(1, payment.Deadline-1) || hands(2, payment.Deadline) || !hands(1, payment.Deadline) {
		t.Error("handed over before the deadline, to another shard, or not at all")
	}
	m.expect(words(ledger.Verdict{ID: paid.ID(0), Shard: 1, Result: ledger.Result{
		Code: ledger.DeadlinePassed, Item: ledger.NoItem}}), nil, ledger.Released)
	if hands(1, payment.Deadline) {
		t.Error("handed over though nothing waits")
	}
}
