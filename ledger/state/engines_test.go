package state_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// enginesChain returns a chain of three members that takes changes of the engine.
func enginesChain(version int) *membershipState {
	genesis := ledgertest.OperatedGenesis(3)
	genesis.Version = version
	return &membershipState{genesis: genesis, state: state.New(genesis),
		parent: state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash(),
			Version: version}}
}

// engineBlock makes a block of a round and returns the code of its only transaction.
func (g *membershipState) engineBlock(round ledger.Round, bundle *ledger.Bundle) ledger.Code {
	g.parent.Version, g.parent.Packed = g.state.Version(), true
	return g.block(round, bundle).Entry(0).Result.Code
}

// TestEngineChanges: the operators change the engine as they change the members: in the same
// numbers, and as far apart. The state tells the engine of any height, also once it is restored.
func TestEngineChanges(t *testing.T) {
	t.Parallel()
	chain := enginesChain(ledger.EnginesVersion)
	operator := ledgertest.NewOperator(chain.genesis)
	used := operator.ChangeEngine("trains")
	for _, step := range []struct {
		name   string
		round  ledger.Round
		bundle *ledger.Bundle
		want   ledger.Code
	}{
		{"the first", 2, operator.ChangeEngine("allconcur"), ledger.Applied},
		{"too soon", 4, operator.ChangeEngine("allconcur+"), ledger.MembershipChanging},
		{"a member too soon", 4, operator.Leave(2), ledger.MembershipChanging},
		{"what is so", 4, operator.ChangeEngine("allconcur"), ledger.Applied},
		{"a stranger", 5, operator.Bundle("mallory", operator.Next(ledger.MembershipChange{
			Kind: ledger.ChangeEngine, Engine: "trains"})), ledger.Unauthorised},
		{"a member leaves", 6, operator.Leave(2), ledger.Applied},
		{"too soon after it", 8, operator.ChangeEngine("allconcur+"), ledger.MembershipChanging},
		{"back", 9, operator.ChangeEngine("allconcur+"), ledger.Applied},
		{"an engine of the future", 12, used, ledger.Applied},
		{"again", 15, operator.ChangeEngine("allconcur"), ledger.Applied},
	} {
		if got := chain.engineBlock(step.round, step.bundle); got != step.want {
			t.Fatalf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	for _, s := range []*state.State{chain.state,
		restoredFrom(t, chain.genesis, chain.state)} {
		for height, want := range []ledger.EngineChoice{{}, {Name: "allconcur", Height: 1},
			{Name: "allconcur", Height: 1}, {Name: "allconcur", Height: 1},
			{Name: "allconcur", Height: 1}, {Name: "allconcur", Height: 1},
			{Name: "allconcur", Height: 1}, {Name: "allconcur", Height: 1},
			{Name: "allconcur+", Height: 8}, {Name: "trains", Height: 9},
			{Name: "allconcur", Height: 10}} {
			membership := s.MembershipAt(ledger.Height(height))
			if got := s.EngineAt(ledger.Height(height)); got != want || membership.Engine != want {
				t.Errorf("block %d: %+v and %+v, want %+v", height, got, membership.Engine, want)
			}
		}
		now := s.Membership()
		if now.Number != 5 || now.Height != 10 || now.Round != 15 || len(now.Members) != 2 ||
			s.MembershipHeight() != 10 || s.Engine().Name != "allconcur" {
			t.Errorf("%+v", now)
		}
		if before := s.MembershipAt(9); before.Number != 4 || before.Height != 9 {
			t.Errorf("%+v", before)
		}
	}
}

// TestEngineNeedsItsVersion: in a chain of an older version the change is malformed, as it is for
// members whose program cannot decode it.
func TestEngineNeedsItsVersion(t *testing.T) {
	t.Parallel()
	chain := enginesChain(ledger.SchedulesVersion)
	operator := ledgertest.NewOperator(chain.genesis)
	chain.parent.Packed = true
	draft := state.Seal(chain.parent, 1, 1, ledger.VerifyBatches([][]byte{
		ledgertest.Batch(5, operator.ChangeEngine("allconcur"))}),
		func(ledger.Hash, *ledger.Transaction) bool { return false })
	if draft != nil {
		t.Error("an older chain takes it")
	}
}

// TestEntriesOfEngines: no entry is taken that no change makes.
func TestEntriesOfEngines(t *testing.T) {
	t.Parallel()
	good := append([]byte{3}, "abc\x01\x02\x03"...)
	for name, entry := range map[string]struct{ key, value []byte }{
		"a short key":     {[]byte{'e', 0, 0, 0, 0}, good},
		"no name":         {[]byte{'e', 0, 0, 0, 0, 0}, []byte{0, 1, 2, 3}},
		"no place":        {[]byte{'e', 0, 0, 0, 0, 0}, append([]byte{3}, "abc\x00\x00\x00"...)},
		"too many":        {[]byte{'e', 0, 1, 0, 0, 0}, good},
		"a name of words": {[]byte{'e', 0, 0, 0, 0, 0}, append([]byte{3}, "a b\x01\x02\x03"...)},
		"more":            {[]byte{'e', 0, 0, 0, 0, 0}, append(good, 0)},
	} {
		s := state.New(ledgertest.OperatedGenesis(3))
		if err := s.Restore(entry.key, entry.value); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	s := state.New(ledgertest.OperatedGenesis(3))
	key := []byte{'e', 0, 0, 0, 0, 0}
	if err := s.Restore(key, good); err != nil {
		t.Error(err)
	}
	if err := s.Restore(key, good); !errors.Is(err, state.ErrEntry) {
		t.Errorf("twice: %v", err)
	}
}
