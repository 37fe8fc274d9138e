package state_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// mover is the chain of the root, to which organisation acme moves from shard 1. After each block
// it goes on with a restored state.
type mover struct {
	t      *testing.T
	own    *ledger.Genesis
	state  *state.State
	parent state.Parent
	seen   map[ledger.Hash]bool
}

func newMover(t *testing.T) *mover { return newMoverOf(t, 0, 0) }

// newMoverOf makes the chain of the root of a book with a shard for each parent.
func newMoverOf(t *testing.T, parents ...ledger.ShardID) *mover {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.GrowthVersion
	own, err := genesis.ForShard(0)
	if err != nil {
		t.Fatal(err)
	}
	return &mover{t: t, own: own, state: state.New(own), seen: make(map[ledger.Hash]bool),
		parent: state.Parent{Header: own.Block().Header, Hash: own.Block().Hash}}
}

// round seals and executes a round, and returns the results of its block.
func (m *mover) round(verdicts []ledger.Verdict, bundles ...*ledger.Bundle) (codes []ledger.Code) {
	m.t.Helper()
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: m.parent.Header.Time + 1},
		Verdicts: verdicts}
	for _, bundle := range bundles {
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	draft := m.state.Seal(m.parent, 1, ledger.Round(m.parent.Header.Height)+1,
		ledger.VerifyBatches([][]byte{batch.Encode()}),
		func(id ledger.Hash, _ *ledger.Transaction) bool { return m.seen[id] })
	if draft == nil {
		return nil
	}
	block, changes := m.state.Execute(draft)
	if changes.OutOfPlace > 0 {
		m.t.Fatalf("block %d has %d entries out of place", block.Header.Height, changes.OutOfPlace)
	}
	for _, entry := range block.All() {
		m.seen[entry.ID] = true
		codes = append(codes, entry.Result.Code)
	}
	m.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	restored := state.New(m.own)
	if err := m.state.Entries(restored.Restore); err != nil {
		m.t.Fatal(err)
	}
	if err := restored.Complete(nil); err != nil || restored.Digest() != m.state.Digest() {
		m.t.Fatalf("after block %d the restored state has another digest: %v", block.Header.Height,
			err)
	}
	m.state = restored
	return codes
}

// expect makes a round and checks its results.
func (m *mover) expect(verdicts []ledger.Verdict, bundles []*ledger.Bundle, want ...ledger.Code) {
	m.t.Helper()
	if got := m.round(verdicts, bundles...); len(got) != len(want) ||
		len(want) > 0 && got[0] != want[0] {
		m.t.Errorf("a block of %v, want %v", got, want)
	}
}

func (m *mover) signed(t ledger.Transaction, names ...string) *ledger.Bundle {
	m.t.Helper()
	bundle, err := ledger.NewBundle(t)
	for _, name := range names {
		organisation := ledger.OrganisationName(name)
		if name == "operator" {
			organisation = ledger.Operator
		}
		if err == nil {
			err = bundle.Sign(organisation, ed25519.PrivateKey(ledgertest.Key(name)))
		}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return bundle
}

func (m *mover) move(number uint64, to ledger.ShardID) *ledger.Bundle {
	return m.signed(ledger.Transaction{Ledger: m.own.Book(), Book: &ledger.BookChange{
		Number: number,
		Move:   &ledger.OrganisationMove{Organisation: "acme", To: to}}}, "operator")
}

func bundles(all ...*ledger.Bundle) []*ledger.Bundle { return all }

func words(all ...ledger.Verdict) []ledger.Verdict { return all }

// A chain takes exactly the arrivals that the old home told, in order, and nothing else of the
// organisation before the last one. A state that is restored meanwhile goes on.
func TestOnlyWhatLeftArrives(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	acme := ledgertest.NewClient(m.own, "acme")
	registration := acme.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 1
	m.expect(nil, bundles(m.signed(registration, "acme")), ledger.Applied)
	m.expect(nil, bundles(m.move(1, 1)), ledger.OrganisationHome)
	m.expect(nil, bundles(m.move(2, 0)), ledger.BookOutdated)
	m.expect(nil, bundles(m.move(1, 7)), ledger.UnknownShard)
	m.expect(nil, bundles(m.move(1, 0)), ledger.Applied)

	var entries []ledger.MovedEntry
	for _, name := range []string{"a", "b", "c"} {
		entries = append(entries, state.MovedAccountEntry(&ledger.Account{Number: 9,
			Path: acme.Account(name), Balances: []ledger.Balance{{Asset: "unit"}}}))
	}
	entries = append(entries, state.MovedRecordEntry(ledger.RecordKey(acme.Account("note")),
		[]byte("value")))
	arrivals, first, err := state.Arrivals(m.own.Book(), 1, entries, 30)
	if err != nil || len(arrivals) != 4 {
		t.Fatalf("%d arrivals: %v", len(arrivals), err)
	}
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: acme.Account("d")}}
	early := m.signed(opening, "acme")
	m.expect(nil, bundles(early, arrivals[0]))
	m.expect(words(ledger.Departure(2, 1, first)), nil)
	m.expect(words(ledger.Departure(1, 1, first), ledger.Departure(1, 1, ledger.Hash{1})),
		bundles(early), ledger.Applied)
	m.expect(words(ledger.Departure(1, 1, first)), bundles(arrivals[1], arrivals[3], early))
	m.expect(nil, arrivals[:2], ledger.Applied, ledger.Applied)
	if m.state.LivesHere("acme") {
		t.Error("it lives here before it has arrived")
	}
	m.expect(nil, bundles(arrivals[0], arrivals[3], arrivals[2], early), ledger.Applied)
	m.expect(nil, bundles(arrivals[3], early), ledger.Applied)
	if number, holds := m.state.Holds("acme"); number != 1 || !holds || !m.state.LivesHere("acme") {
		t.Error("it does not live here")
	}
	m.expect(nil, bundles(early), ledger.Applied)
	if use := m.state.Use("acme"); use.Accounts != 4 || use.Records != 1 || use.Streams != 1 {
		t.Errorf("it has %+v", use)
	}
	m.expect(nil, bundles(m.move(2, 1)), ledger.OrganisationHome) // it lived there
}

// A shard tells that it agreed only those that were among the transaction's shards at its place,
// also if its chain is behind and does not have the move yet.
func TestNoVerdictForStrangers(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	acme, bank := ledgertest.NewClient(m.own, "acme"), ledgertest.NewClient(m.own, "bank")
	for client, home := range map[*ledgertest.Client]ledger.ShardID{acme: 1, bank: 0} {
		registration := client.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, home
		m.expect(nil, bundles(m.signed(registration, string(client.Organisation))), ledger.Applied)
	}
	own := bank.Transfer(bank.Account("a"), bank.Account("b"), 1)
	m.expect(nil, bundles(m.signed(own, "bank")), ledger.UnknownAccount)
	height := m.parent.Header.Height
	check := func(when string, asks ledger.ShardID, decided, want ledger.Code) {
		t.Helper()
		verdict, answers := m.state.AnswersTo(&ledger.Entry{ID: ledger.Hash{1}, Decoded: &own,
			Result: ledger.Result{Code: decided, Item: ledger.NoItem}}, height, asks)
		if answers != (want != ledger.Relayed) || answers && verdict.Result.Code != want {
			t.Errorf("%s, %s, it answers shard %d %s, %v", when, decided, asks,
				verdict.Result.Code, answers)
		}
	}
	for _, asks := range []ledger.ShardID{0, 1} {
		check("before any move", asks, ledger.UnknownAccount, ledger.UnknownAccount)
		check("before any move", asks, ledger.Relayed, ledger.Relayed)
	}
	check("before any move", 0, ledger.SetAside, ledger.SetAside)
	check("before any move", 1, ledger.SetAside, ledger.StaleNonce)
	m.expect(nil, bundles(m.signed(ledger.Transaction{Ledger: m.own.Book(),
		Book: &ledger.BookChange{Number: 1, Move: &ledger.OrganisationMove{Organisation: "bank",
			To: 1}}}, "operator")), ledger.Applied)
	check("after the move", 0, ledger.SetAside, ledger.SetAside)
	check("after the move", 1, ledger.SetAside, ledger.StaleNonce)
	check("after the move", 1, ledger.Relayed, ledger.StaleNonce)
	for _, asks := range []ledger.ShardID{0, 1} {
		check("after the move", asks, ledger.UnknownAccount, ledger.UnknownAccount)
	}
}

// An organisation that is to move on from where it never arrives does not arrive at its next home
// either. That is told so, refuses what concerns the organisation, and tells the home after it.
func TestNothingArrives(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]bool{"after the loss": false, "before the loss": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothingArrives(t, behind)
		})
	}
}

// nothingArrives is TestNothingArrives. A chain that is behind does not have the loss yet.
func nothingArrives(t *testing.T, behind bool) {
	m := newMoverOf(t, 0, 0, 0, 0)
	acme := ledgertest.NewClient(m.own, "acme")
	registration := acme.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 3
	m.expect(nil, bundles(m.signed(registration, "acme")), ledger.Applied)
	m.expect(nil, bundles(m.move(1, 2)), ledger.Applied)
	number := uint64(2)
	if !behind {
		m.expect(nil, bundles(m.signed(ledger.Transaction{Ledger: m.own.Book(),
			Book: &ledger.BookChange{Number: number, Loss: &ledger.ShardLoss{Shard: 3}}},
			"operator")), ledger.Applied)
		number++
	}
	m.expect(nil, bundles(m.move(number, 0)), ledger.Applied)
	if waiting := m.state.AwaitedDepartures(); len(waiting) != 1 || waiting[0].Waits[0] != 2 ||
		!m.state.IsComing("acme") {
		t.Fatalf("it does not ask shard 2: %+v", waiting)
	}
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: acme.Account("d")}}
	early := m.signed(opening, "acme")
	m.expect(nil, bundles(early)) // it may still arrive
	m.expect(words(ledger.Departure(number, 2, ledger.MoveID(m.own.Book(), number))), nil,
		ledger.Applied)
	if coming, _ := m.state.Coming(); len(coming) > 0 || m.state.IsComing("acme") ||
		len(m.state.AwaitedDepartures()) > 0 || m.state.LivesHere("acme") {
		t.Errorf("it is still on its way: %+v", coming)
	}
	m.expect(nil, bundles(early), ledger.ShardLost)
	if _, holds := m.state.Holds("acme"); holds {
		t.Error("it has arrived")
	}
	m.expect(nil, bundles(m.move(number+1, 1)), ledger.Applied)
	if !m.state.NeverDeparts(number+1) || m.state.Departed(number+1) ||
		m.state.NeverDeparts(number) {
		t.Error("it departs with what it never had")
	}
}

// What is no entry of the organisation does not decode as one.
func TestArrivalsAreCanonical(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	arrivals, _, err := state.Arrivals(m.own.Book(), 1, nil, 60)
	if err != nil || len(arrivals) != 1 {
		t.Fatalf("nothing to take along makes %d arrivals: %v", len(arrivals), err)
	}
	decoded, err := ledger.DecodeBundle(arrivals[0].Encode())
	if err != nil || !bytes.Equal(decoded.Body(0), arrivals[0].Body(0)) {
		t.Errorf("%v", err)
	}
	if err := decoded.Transaction(0).Validate(); err == nil {
		t.Error("a client may submit an arrival")
	}
}
