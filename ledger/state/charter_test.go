package state_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// operated is a chain, and the transactions of its operators.
type operated struct {
	*one
	operator *ledgertest.Operator
}

func newOperated(t *testing.T, genesis *ledger.Genesis) *operated {
	return &operated{newChain(t, genesis), ledgertest.NewOperator(genesis)}
}

func (o *operated) charter(charter ledger.Charter, names ...string) *ledger.Bundle {
	return ledgertest.Signed(ledger.Operator, names, o.operator.ChangeCharter(charter))
}

func (o *operated) join(names ...string) *ledger.Bundle {
	return ledgertest.Signed(ledger.Operator, names, o.operator.Next(ledger.MembershipChange{
		Kind: ledger.ChangeJoin, Member: ledgertest.Member(7)}))
}

func (o *operated) expect(code ledger.Code, bundle *ledger.Bundle) {
	o.t.Helper()
	if got := o.result(bundle); got.Code != code {
		o.t.Errorf("%s, want %s", got, code)
	}
}

func TestCharter(t *testing.T) {
	t.Parallel()
	o := newOperated(t, ledgertest.OperatedGenesis(3))
	o.expect(ledger.Unauthorised, o.charter(ledgertest.Charter(2, "a", "b", "c"), "a", "b"))
	o.expect(ledger.Applied, o.charter(ledgertest.Charter(2, "a", "b", "c"), "operator"))
	o.expect(ledger.Unauthorised, o.join("operator")) // an operator of the old set
	o.expect(ledger.Unauthorised, o.join("a"))
	o.expect(ledger.Unauthorised, o.join("a", "a")) // an operator counts once
	o.expect(ledger.Unauthorised, o.join("a", "operator"))
	forged := o.join("a")
	_ = forged.AddSignature(ledger.Signature{Key: ledgertest.PublicKey("b")})
	o.careless = true // execution does not rely on sealing here
	o.expect(ledger.Unauthorised, forged)
	o.careless = false
	o.expect(ledger.Applied, o.join("a", "c"))
	next := ledgertest.Charter(1, "a")
	o.expect(ledger.CharterOutdated, o.charter(next, "a", "b"))
	next.Number, next.RegistrationByOperators = 2, true
	o.expect(ledger.Unauthorised, o.charter(next, "b"))
	o.expect(ledger.Applied, o.charter(next, "c", "b"))
	acme := ledgertest.NewClient(ledgertest.OperatedGenesis(3), "acme")
	o.expect(ledger.Unauthorised, acme.Bundle(acme.Register()))
	registration := acme.Bundle(acme.Register())
	if err := registration.Sign(ledger.Operator, ledgertest.Key("a")); err != nil {
		t.Fatal(err)
	}
	o.expect(ledger.Applied, registration)

	restored := restoredFrom(t, ledgertest.OperatedGenesis(3), o.state)
	if fmt.Sprint(restored.Charter()) != fmt.Sprint(o.state.Charter()) {
		t.Errorf("%v, was %v", restored.Charter(), o.state.Charter())
	}
}

// A genesis may ask for several operators, and one without a threshold for one.
func TestThresholdOfTheGenesis(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	genesis.Operators = append(genesis.Operators, ledgertest.PublicKey("b"))
	newOperated(t, genesis).expect(ledger.Applied, newOperated(t, genesis).join("b"))
	genesis.OperatorThreshold = 2
	decoded, err := ledger.DecodeGenesis(genesis.Encode())
	if err != nil || decoded.OperatorThreshold != 2 || decoded.Hash() != genesis.Hash() {
		t.Fatalf("%+v, %v", decoded, err)
	}
	o := newOperated(t, genesis)
	o.expect(ledger.Unauthorised, o.join("b"))
	o.expect(ledger.Applied, o.join("b", "operator"))
}

// A planted bug: the threshold of the old set counts, or a removed operator. The judge is a rule of
// its own: no change of the members with fewer than the charter's signatures.
func TestChartersAreJudged(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(*state.State){
		"":                             nil,
		"the threshold of the old set": func(s *state.State) { s.PlantOperators(1) },
		"a removed operator": func(s *state.State) {
			s.PlantOperators(2, ledgertest.PublicKey("operator"))
		},
	} {
		o := newOperated(t, ledgertest.OperatedGenesis(3))
		o.block(o.charter(ledgertest.Charter(2, "a", "b", "c"), "operator"))
		if plant != nil {
			plant(o.state)
		}
		caught := false
		for _, signers := range [][]string{{"a"}, {"operator"}, {"a", "operator"}} {
			block := o.block(o.join(signers...))
			caught = caught || block.MembershipChange() != nil
		}
		if caught != (plant != nil) {
			t.Errorf("%q: caught: %t", name, caught)
		}
	}
}

// All shards of a book have the same charter.
func TestCharterOfSeveralShards(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(t.Fatalf, genesis.Tree)
	transaction := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: ledgertest.Charter(2, "a", "b", "c")}}
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, transaction))
	n.flush()
	for shard, each := range n.shards {
		if charter := each.state.Charter(); charter.Number != 1 || charter.Threshold != 2 {
			t.Errorf("shard %d: %+v", shard, charter)
		}
	}
}

// Sealing knows who may register as execution will, even if that changes within the block: a
// transaction of an organisation that is still not registered after the block has no place in it.
func TestChartersWithinABlock(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(t.Fatalf, genesis.Tree)
	closed := ledgertest.Charter(1, "a")
	closed.RegistrationByOperators = true
	change := ledger.Transaction{Ledger: genesis.Book(),
		Charter: &ledger.CharterChange{Charter: closed}}
	acme := ledgertest.NewClient(genesis, "acme")
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:a"}}
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, change))
	n.submit(0, acme.Bundle(acme.Register()))
	n.submit(0, acme.Bundle(opening))
	n.flush()
	for shard, each := range n.shards {
		if _, known := each.state.Organisation("acme"); known {
			t.Errorf("shard %d: acme is registered", shard)
		}
	}
}
