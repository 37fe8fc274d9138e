package state_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// one is a chain in memory. Each call of block makes one block.
type one struct {
	t      *testing.T
	state  *state.State
	parent state.Parent
	seen   map[ledger.Hash]bool
	// careless skips the verification of signatures.
	careless bool
	// clock is the time that the batches state, if it is not 0.
	clock ledger.Milliseconds
}

func newChain(t *testing.T, genesis *ledger.Genesis) *one {
	return &one{t: t, state: state.New(genesis),
		parent: state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()},
		seen:   map[ledger.Hash]bool{}}
}

func (o *one) block(bundles ...*ledger.Bundle) *ledger.Block {
	o.t.Helper()
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(max(5, o.clock), bundles...)})
	for i := range batches[0].Proposals {
		if o.careless {
			batches[0].Proposals[i].Err = nil
		}
	}
	o.parent.Packed = o.state.Version() >= ledger.PackedVersion
	o.parent.Version, o.parent.Due = o.state.Version(), o.state.Due
	draft := state.Seal(o.parent, 1, 1, batches,
		func(id ledger.Hash, _ *ledger.Transaction) bool {
			return o.seen[id]
		})
	if draft == nil {
		o.t.Fatal("no block")
	}
	block, _ := o.state.Execute(draft)
	o.parent = state.Parent{Header: block.Header, Hash: block.Hash}
	for i := range block.Len() {
		o.seen[block.Entry(i).ID] = true
	}
	return block
}

func (o *one) result(bundle *ledger.Bundle) ledger.Result {
	o.t.Helper()
	digest := o.state.Digest()
	tried := o.state.Try(&state.Trying{ID: bundle.ID(0), Transaction: bundle.Transaction(0),
		Root: bundle.Root(), Signatures: bundle.Signatures(),
		Height: o.parent.Header.Height + 1, Round: 1, Time: o.parent.Header.Time})
	before := o.parent.Header.Time
	block := o.block(bundle)
	result := block.Entry(0).Result
	if tried != result && block.Header.Time == before && !o.careless {
		o.t.Errorf("tried %s, executed %s", tried, result)
	}
	if err := o.state.CheckUses(); err != nil {
		o.t.Error(err)
	}
	if !result.OK() && o.state.Digest() != digest {
		o.t.Errorf("%s changed the state", result)
	}
	return result
}

func TestEveryReason(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	chain := newChain(t, genesis)
	acme, other := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "other")
	a, b := acme.Account("a"), acme.Account("b")
	expect := func(code ledger.Code, bundle *ledger.Bundle) {
		t.Helper()
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
	}
	with := func(change func(*ledger.Transaction)) *ledger.Bundle {
		transaction := acme.Transfer(acme.Account("issuer"), a, 1)
		change(&transaction)
		return acme.Bundle(transaction)
	}
	expect(ledger.UnknownOrganisation, with(func(*ledger.Transaction) {}))
	expect(ledger.Applied, acme.Bundle(acme.Register("issuer", "a", "b")))
	expect(ledger.Applied, acme.Bundle(acme.Register("issuer", "a", "b")))
	expect(ledger.Applied, with(func(*ledger.Transaction) {}))
	expect(ledger.WrongLedger, with(func(t *ledger.Transaction) { t.Ledger[0]++ }))
	expect(ledger.Expired, with(func(t *ledger.Transaction) { t.LastValid = 1 }))
	expect(ledger.StaleNonce, with(func(t *ledger.Transaction) { t.Nonce.Sequence = 2 }))
	expect(ledger.Unbalanced, with(func(t *ledger.Transaction) {
		t.Postings[0].Amount = ledger.NewAmount(-2)
	}))
	expect(ledger.Unbalanced, with(func(t *ledger.Transaction) { t.Postings = t.Postings[:1] }))
	expect(ledger.Unbalanced, with(func(t *ledger.Transaction) { t.Postings = nil }))
	expect(ledger.UnknownAccount, with(func(t *ledger.Transaction) {
		t.Postings[1].Account = "acme:nobody"
	}))
	expect(ledger.InsufficientFunds, acme.Bundle(acme.Transfer(a, b, 2)))
	expect(ledger.AccountExists, with(func(t *ledger.Transaction) {
		t.Openings = []ledger.Opening{{Account: a, Issuer: true}}
	}))
	expect(ledger.OrganisationExists, with(func(t *ledger.Transaction) {
		t.Registrations = []ledger.Registration{{Name: "acme",
			Keys: []ledger.PublicKey{ledgertest.PublicKey("thief")}}}
	}))
	expect(ledger.Overflow, with(func(t *ledger.Transaction) {
		t.Postings[0].Amount, _ = ledger.MaxAmount.Neg()
		t.Postings[1].Amount = ledger.MaxAmount
	}))
	expect(ledger.Unauthorised, with(func(t *ledger.Transaction) {
		t.Signer = "other"
		t.Registrations = other.Register().Registrations
	}))
	expect(ledger.Applied, other.Bundle(other.Register("purse")))
	expect(ledger.Unauthorised, other.Bundle(other.Transfer(a, other.Account("purse"), 1)))
	expect(ledger.Unauthorised, with(func(t *ledger.Transaction) {
		t.Records = []ledger.Record{{Key: "other:record"}}
	}))
	expect(ledger.Applied, acme.Bundle(acme.Transfer(a, other.Account("purse"), 1)))
	for i := range ledger.MaxAssets {
		bundle := with(func(t *ledger.Transaction) {
			for p := range t.Postings {
				t.Postings[p].Asset = ledger.AssetName([]byte{'a' + byte(i/26), 'a' + byte(i%26)})
			}
		})
		if result := chain.result(bundle); (i < ledger.MaxAssets-1) != result.OK() {
			t.Errorf("asset %d: %s", i, result)
		}
	}
}

// The transactions of one bundle see what those before them did, and nothing of those that failed,
// both in a block and when the bundle is checked before.
func TestSeveralInOneBundle(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	chain, acme := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	issuer, a, b, c := acme.Account("issuer"), acme.Account("a"), acme.Account("b"),
		acme.Account("c")
	chain.block(acme.Bundle(acme.Register("issuer", "a", "b")))
	opening := func(from ledger.AccountPath, amount int64) ledger.Transaction {
		transaction := acme.Transfer(from, c, amount)
		transaction.Openings = []ledger.Opening{{Account: c}}
		return transaction
	}
	for _, test := range []struct {
		transactions []ledger.Transaction
		want         []ledger.Code
	}{
		{[]ledger.Transaction{acme.Transfer(issuer, a, 5), acme.Transfer(a, b, 9),
			acme.Transfer(a, b, 5), acme.Transfer(a, b, 1)},
			[]ledger.Code{ledger.Applied, ledger.InsufficientFunds, ledger.Applied,
				ledger.InsufficientFunds}},
		{[]ledger.Transaction{opening(a, 9), acme.Transfer(issuer, c, 1)},
			[]ledger.Code{ledger.InsufficientFunds, ledger.UnknownAccount}},
		{[]ledger.Transaction{opening(a, 9), opening(b, 2), opening(a, 9), acme.Transfer(c, a, 1)},
			[]ledger.Code{ledger.InsufficientFunds, ledger.Applied, ledger.InsufficientFunds,
				ledger.Applied}},
	} {
		block := chain.block(acme.Bundle(test.transactions...))
		for i, want := range test.want {
			if got := block.Entry(i).Result; got.Code != want {
				t.Errorf("transaction %d: %s, want %s", i, got, want)
			}
		}
		checkDigest(t.Fatalf, chain.state)
		if err := chain.state.CheckUses(); err != nil {
			t.Error(err)
		}
	}
	if account, _ := chain.state.Account(c); account.Number != 4 || account.History != 2 {
		t.Errorf("the account is %+v", account)
	}
}

func TestNonceWindow(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	rapid.Check(t, func(r *rapid.T) {
		chain := newChain(t, genesis)
		client := ledgertest.NewClient(genesis, "acme")
		chain.block(client.Bundle(client.Register("issuer", "a")))
		used, high := map[uint64]bool{1: true}, uint64(1)
		for _, step := range rapid.SliceOfN(rapid.IntRange(-1500, 1500), 1, 40).Draw(r, "steps") {
			sequence := uint64(max(0, int(high)+step))
			transaction := client.Transfer("acme:issuer", "acme:a", 1)
			transaction.Nonce.Sequence = sequence
			transaction.Note = []byte{byte(len(used))}
			want := ledger.Applied
			if used[sequence] || sequence+ledger.WindowSize <= high {
				want = ledger.StaleNonce
			}
			bundle := client.Bundle(transaction)
			if chain.seen[bundle.ID(0)] {
				continue
			}
			if got := chain.block(bundle).Entry(0).Result.Code; got != want {
				r.Fatalf("sequence %d after %d: %s", sequence, high, got)
			}
			used[sequence], high = true, max(high, sequence)
		}
	})
}

// TestAgainstModel executes random transfers on the state and on plain integers. It checks that
// assets are conserved, that the digest equals that of a state restored from the entries, and that
// a second execution gives the same block.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		genesis := ledgertest.Genesis()
		genesis.Version = rapid.IntRange(1, ledger.NewestVersion).Draw(r, "version")
		chain, twin := newChain(t, genesis), newChain(t, genesis)
		client := ledgertest.NewClient(genesis, "acme")
		names := []string{"issuer", "a", "b", "c"}
		register := client.Bundle(client.Register(names...))
		chain.block(register)
		twin.block(register)
		model := map[ledger.AccountPath]int64{}
		for range rapid.IntRange(1, 8).Draw(r, "blocks") {
			var transactions []ledger.Transaction
			for range rapid.IntRange(1, 10).Draw(r, "transactions") {
				transaction := client.Next()
				var sum int64
				for range rapid.IntRange(1, 4).Draw(r, "postings") {
					amount := rapid.Int64Range(-20, 20).Draw(r, "amount")
					sum += amount
					transaction.Postings = append(transaction.Postings,
						ledger.Posting{Account: client.Account(rapid.SampledFrom(names).Draw(r,
							"account")), Asset: "unit", Amount: ledger.NewAmount(amount)})
				}
				transaction.Postings = append(transaction.Postings,
					ledger.Posting{Account: client.Account(rapid.SampledFrom(names).Draw(r,
						"account")), Asset: "unit", Amount: ledger.NewAmount(-sum)})
				transactions = append(transactions, transaction)
			}
			bundle := client.Bundle(transactions...)
			block := chain.block(bundle)
			if twin.block(bundle).Hash != block.Hash {
				r.Fatal("two executions differ")
			}
			for i := range block.Len() {
				if want := runModel(model, &transactions[i]); want != block.Entry(i).Result.OK() {
					r.Fatalf("transaction %d: %s, the model says %v", i, block.Entry(i).Result,
						want)
				}
			}
			decoded, err := ledger.DecodeBlock(block.Encode())
			if err != nil || decoded.Hash != block.Hash ||
				!bytes.Equal(decoded.Encode(), block.Encode()) {
				r.Fatalf("block does not survive its encoding: %v", err)
			}
			for i := range block.Len() {
				proof, err := ledger.DecodeProof(block.Proof(i).Encode())
				if err != nil || ledger.VerifyProof(proof) != nil {
					r.Fatalf("proof %d: %v %v", i, err, ledger.VerifyProof(proof))
				}
			}
		}
		var total int64
		for _, name := range names {
			account, _ := chain.state.Account(client.Account(name))
			got, _ := account.Balance("unit").Int64()
			total += got
			if got != model[account.Path] {
				r.Fatalf("%s has %d, the model says %d", account.Path, got, model[account.Path])
			}
		}
		if total != 0 {
			r.Fatalf("the asset adds up to %d", total)
		}
		restoredFrom(t, genesis, chain.state)
	})
}

// runModel applies a transaction to plain balances if it is allowed, and reports whether it did.
func runModel(model map[ledger.AccountPath]int64, transaction *ledger.Transaction) bool {
	after := map[ledger.AccountPath]int64{}
	for _, posting := range transaction.Postings {
		amount, _ := posting.Amount.Int64()
		if _, known := after[posting.Account]; !known {
			after[posting.Account] = model[posting.Account]
		}
		after[posting.Account] += amount
	}
	for account, balance := range after {
		if balance < 0 && account != "acme:issuer" {
			return false
		}
	}
	for account, balance := range after {
		model[account] = balance
	}
	return true
}
