package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// Malformed changes are refused before they enter a chain.
func TestMembershipChangeForms(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	operator := ledgertest.NewOperator(genesis)
	member := ledgertest.Member(1)
	join := func(change func(*ledger.Transaction)) ledger.Transaction {
		transaction := operator.Next(ledger.MembershipChange{Kind: ledger.ChangeJoin,
			Member: member})
		change(&transaction)
		return transaction
	}
	for name, transaction := range map[string]ledger.Transaction{
		"a signer": join(func(t *ledger.Transaction) { t.Signer = "acme" }),
		"postings beside": join(func(t *ledger.Transaction) {
			t.Postings = make([]ledger.Posting, 2)
		}),
		"no kind":                join(func(t *ledger.Transaction) { t.Change.Kind = 0 }),
		"a kind of the future":   join(func(t *ledger.Transaction) { t.Change.Kind = 5 }),
		"an engine that joins":   join(func(t *ledger.Transaction) { t.Change.Engine = "trains" }),
		"an engine and a member": join(func(t *ledger.Transaction) { t.Change.Kind = 4 }),
		"an engine without a name": operator.Next(ledger.MembershipChange{
			Kind: ledger.ChangeEngine}),
		"an engine's name with a space": operator.Next(ledger.MembershipChange{
			Kind: ledger.ChangeEngine, Engine: "all concur"}),
		"an index of its choice": join(func(t *ledger.Transaction) { t.Change.Index = 7 }),
		"no name":                join(func(t *ledger.Transaction) { t.Change.Member.Name = "" }),
		"a key cut short": join(func(t *ledger.Transaction) {
			t.Change.Member.Key = member.Key[:31]
		}),
		"no address": join(func(t *ledger.Transaction) {
			t.Change.Member.Address = ""
		}),
		"an address of two lines": join(func(t *ledger.Transaction) {
			t.Change.Member.Address = "a\nb"
		}),
		"a leave with a member": join(func(t *ledger.Transaction) {
			t.Change.Kind = ledger.ChangeLeave
		}),
		"too large an index": operator.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave,
			Index: ledger.MaxMemberIndexes}),
	} {
		if _, err := transaction.EncodeBody(); err == nil {
			t.Errorf("%s: taken", name)
		}
		if err := transaction.Validate(); !errors.Is(err, ledger.ErrInvalidTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	two := operator.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave})
	if _, err := ledger.NewBundle(two, two); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("two in a bundle: %v", err)
	}
	unsigned, err := ledger.NewBundle(two)
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.VerifyBundle(unsigned, genesis, genesis.Hash(),
		newAuthority(genesis)); !errors.Is(err, ledger.ErrUnauthorised) {
		t.Errorf("without a signature: %v", err)
	}
}

func TestMembershipChangeIn(t *testing.T) {
	genesis := ledgertest.OperatedGenesis(3)
	operator, client := ledgertest.NewOperator(genesis), ledgertest.NewClient(genesis, "acme")
	plain, change := client.Bundle(client.Register("mint")), operator.Join(ledgertest.Member(3))
	mallory := operator.Bundle("mallory",
		operator.Next(ledger.MembershipChange{Kind: ledger.ChangeLeave, Index: 1}))
	cut := ledgertest.Batch(1, plain, change)
	admit := ledgertest.Admit("mallory", genesis, genesis.Membership(), 1, ledgertest.Disk(1), 0)
	for name, test := range map[string]struct {
		payload []byte
		want    bool
	}{
		"nothing":                {nil, false},
		"no bundles":             {ledgertest.Batch(1), false},
		"transactions":           {ledgertest.Batch(1, plain), false},
		"a change":               {ledgertest.Batch(1, change), true},
		"a change among others":  {ledgertest.Batch(1, plain, plain, change, plain), true},
		"a stranger's":           {ledgertest.Batch(1, mallory), true},
		"a change of the engine": {ledgertest.Batch(1, operator.ChangeEngine("allconcur+")), true},
		"an admission":           {ledgertest.Batch(1, plain, admit), true},
		"another chain's": {ledgertest.Batch(1,
			ledgertest.NewOperator(ledgertest.Genesis()).Leave(0)), false},
		"cut short, as sealing sees": {cut[:len(cut)-1], false},
		"bytes too many":             {append(slices.Clone(cut), 0), false},
	} {
		if got := ledger.MembershipChangeIn(test.payload, genesis,
			genesis.Hash()); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	busy := ledgertest.Batch(1, slices.Repeat([]*ledger.Bundle{plain}, 100)...)
	chain := genesis.Hash()
	if allocated := testing.AllocsPerRun(10, func() {
		ledger.MembershipChangeIn(busy, genesis, chain)
	}); allocated != 0 {
		t.Errorf("%v allocations where there is no change", allocated)
	}
}

func TestMembershipJSON(t *testing.T) {
	t.Parallel()
	before := ledgertest.OperatedGenesis(2).Membership()
	before.Number, before.Height, before.Round = 1, 1, 4
	before.Members = append(before.Members,
		ledger.GroupMember{Index: 2, Member: ledgertest.Member(2), Joined: 1})
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after ledger.Membership
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(after)
	if err != nil || !bytes.Equal(text, again) || after.Validate() != nil {
		t.Errorf("%s reads as %s: %v, %v", text, again, err, after.Validate())
	}
	if member, found := after.ByKey(ledgertest.Member(2).Key); !found || member.Index != 2 ||
		member.Joined != 1 {
		t.Errorf("the joined member is %+v", member)
	}
	after.Members[1].Index = 0
	if err := after.Validate(); !errors.Is(err, ledger.ErrMembership) {
		t.Errorf("an index twice: %v", err)
	}
}

func BenchmarkMembershipChangeIn(b *testing.B) {
	genesis := ledgertest.OperatedGenesis(3)
	client := ledgertest.NewClient(genesis, "acme")
	payload, chain := ledgertest.Batch(1,
		slices.Repeat([]*ledger.Bundle{client.Bundle(client.Register("mint"))}, 1000)...),
		genesis.Hash()
	b.ReportAllocs()
	for b.Loop() {
		ledger.MembershipChangeIn(payload, genesis, chain)
	}
}
