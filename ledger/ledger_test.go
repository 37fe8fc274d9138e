package ledger_test

import (
	"bytes"
	"errors"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func TestAmountAgainstBigIntegers(t *testing.T) {
	t.Parallel()
	low, high := new(big.Int).Lsh(big.NewInt(-1), 127), new(big.Int).Lsh(big.NewInt(1), 127)
	draw := func(t *rapid.T, label string) (ledger.Amount, *big.Int) {
		whole := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, label))
		if rapid.Bool().Draw(t, "negative") {
			whole.Neg(whole)
		}
		amount, err := ledger.ParseAmount(whole.String())
		if fits := whole.Cmp(low) >= 0 && whole.Cmp(high) < 0; fits != (err == nil) {
			t.Fatalf("%s: %v", whole, err)
		}
		if err != nil {
			return ledger.Amount{}, new(big.Int)
		}
		if amount.String() != whole.String() || amount.Sign() != whole.Sign() {
			t.Fatalf("%s reads as %s", whole, amount)
		}
		return amount, whole
	}
	rapid.Check(t, func(t *rapid.T) {
		a, bigA := draw(t, "a")
		b, bigB := draw(t, "b")
		if a.Compare(b) != bigA.Cmp(bigB) {
			t.Fatalf("compare %s %s", a, b)
		}
		check := func(got ledger.Amount, err error, want *big.Int) {
			if fits := want.Cmp(low) >= 0 && want.Cmp(high) < 0; fits != (err == nil) ||
				(fits && got.String() != want.String()) {
				t.Fatalf("%s and %s: %s, %v, want %s", a, b, got, err, want)
			}
		}
		sum, err := a.Add(b)
		check(sum, err, new(big.Int).Add(bigA, bigB))
		difference, err := a.Sub(b)
		check(difference, err, new(big.Int).Sub(bigA, bigB))
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for path, good := range map[string]bool{
		"bank:1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa": true, "bank:coinbase": true,
		"a:b:c:d-e_f.g": true, "x:seat/12@LH": true,
		"": false, "bank": false, "bank:": false, ":a": false, "bank::a": false, "bank:a:": false,
		"b nk:a": false, "bank:a\n": false, "bank:\x00": false, "bänk:a": false, "-b:a": false,
	} {
		if err := ledger.AccountPath(path).Validate(); (err == nil) != good ||
			(err != nil && !errors.Is(err, ledger.ErrName)) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// one is a chain in memory. Each call of block makes one block.
type one struct {
	t      *testing.T
	state  *ledger.State
	parent ledger.Parent
	seen   map[ledger.Hash]bool
}

func newChain(t *testing.T, genesis *ledger.Genesis) *one {
	return &one{t: t, state: ledger.NewState(genesis),
		parent: ledger.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()},
		seen:   map[ledger.Hash]bool{}}
}

func (o *one) block(bundles ...*ledger.Bundle) *ledger.Block {
	o.t.Helper()
	draft := ledger.Seal(o.parent, 1, 1, [][]byte{ledgertest.Batch(5, bundles...)},
		func(id ledger.Hash, _ *ledger.Transaction) bool {
			return o.seen[id]
		})
	if draft == nil {
		o.t.Fatal("no block")
	}
	block, _ := o.state.Execute(draft)
	o.parent = ledger.Parent{Header: block.Header, Hash: block.Hash}
	for i := range block.Entries {
		o.seen[block.Entries[i].ID] = true
	}
	return block
}

func (o *one) result(bundle *ledger.Bundle) ledger.Result {
	o.t.Helper()
	digest := o.state.Digest()
	checked := o.state.Precheck(bundle, o.parent.Header.Height+1)
	if o.state.Digest() != digest {
		o.t.Fatal("a precheck changed the state")
	}
	result := o.block(bundle).Entries[0].Result
	if checked[0] != result {
		o.t.Errorf("precheck says %s, execution %s", checked[0], result)
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
			if got := chain.block(bundle).Entries[0].Result.Code; got != want {
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
	genesis := ledgertest.Genesis()
	rapid.Check(t, func(r *rapid.T) {
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
			for i := range block.Entries {
				if want := runModel(model, &transactions[i]); want != block.Entries[i].Result.OK() {
					r.Fatalf("transaction %d: %s, the model says %v", i, block.Entries[i].Result,
						want)
				}
			}
			decoded, err := ledger.DecodeBlock(block.Encode())
			if err != nil || decoded.Hash != block.Hash ||
				!bytes.Equal(decoded.Encode(), block.Encode()) {
				r.Fatalf("block does not survive its encoding: %v", err)
			}
			for i := range block.Entries {
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
		restored := ledger.NewState(genesis)
		if err := chain.state.Entries(restored.Restore); err != nil ||
			restored.Digest() != chain.state.Digest() {
			r.Fatalf("restored state: %v, digest %s, want %s", err, restored.Digest(),
				chain.state.Digest())
		}
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

func TestVerifyBundle(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Operators, genesis.RegistrationByOperator = []ledger.PublicKey{
		ledgertest.PublicKey("operator")}, true
	state, hash := ledger.NewState(genesis), genesis.Hash()
	client, stranger := ledgertest.NewClient(genesis, "acme"),
		ledgertest.NewClient(genesis, "stranger")
	register := client.Bundle(client.Register("issuer", "a"))
	if err := ledger.VerifyBundle(register, genesis, hash, state); !errors.Is(err,
		ledger.ErrUnauthorised) {
		t.Errorf("registration without an operator: %v", err)
	}
	if err := register.Sign(ledger.Operator, ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	if err := ledger.VerifyBundle(register, genesis, hash, state); err != nil {
		t.Errorf("registration: %v", err)
	}
	chain := newChain(t, genesis)
	chain.block(register)
	good := func() *ledger.Bundle {
		return client.Bundle(client.Transfer("acme:issuer", "acme:a", 1))
	}
	forged, err := ledger.NewBundle(client.Transfer("acme:issuer", "acme:a", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := forged.AddSignature(good().Signatures()[0]); err != nil {
		t.Fatal(err)
	}
	unbalanced := client.Transfer("acme:issuer", "acme:a", 1)
	unbalanced.Postings[0].Amount = ledger.NewAmount(5)
	foreign := client.Transfer("acme:issuer", "acme:a", 1)
	foreign.Ledger = ledger.Hash{1}
	bundles := []*ledger.Bundle{good(), forged,
		stranger.Bundle(stranger.Transfer("acme:issuer", "acme:a", 1)), client.Bundle(unbalanced),
		client.Bundle(foreign), good()}
	wants := []error{nil, ledger.ErrSignature, ledger.ErrUnknownOrganisation, ledger.ErrUnbalanced,
		ledger.ErrWrongLedger, nil}
	together := ledger.VerifyBundles(bundles, genesis, hash, chain.state)
	for i, want := range wants {
		if err := ledger.VerifyBundle(bundles[i], genesis, hash, chain.state); !errors.Is(err,
			want) {
			t.Errorf("bundle %d: %v, want %v", i, err, want)
		}
		if !errors.Is(together[i], want) {
			t.Errorf("bundle %d in a batch: %v, want %v", i, together[i], want)
		}
	}
}

func TestProofThatLies(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(client.Bundle(client.Register("issuer", "a")))
	block := chain.block(client.Bundle(client.Transfer("acme:issuer", "acme:a", 1),
		client.Transfer("acme:issuer", "acme:a", 2)),
		client.Bundle(client.Transfer("acme:issuer", "acme:a", 3)))
	for name, lie := range map[string]func(*ledger.Proof){
		"body":         func(p *ledger.Proof) { p.Body = block.Entries[0].Body },
		"id":           func(p *ledger.Proof) { p.ID = block.Entries[0].ID },
		"result":       func(p *ledger.Proof) { p.Result.Code = ledger.Expired },
		"index":        func(p *ledger.Proof) { p.Index = 0 },
		"count":        func(p *ledger.Proof) { p.Count++ },
		"path":         func(p *ledger.Proof) { p.TransactionPath[0][3]++ },
		"result path":  func(p *ledger.Proof) { p.ResultPath = p.ResultPath[1:] },
		"bundle root":  func(p *ledger.Proof) { p.BundleRoot[3]++ },
		"bundle index": func(p *ledger.Proof) { p.BundleIndex ^= 1 },
		"signature":    func(p *ledger.Proof) { p.Signatures[0].Bytes[5] ^= 1 },
		"header":       func(p *ledger.Proof) { p.Header[70] ^= 1 },
		"block hash":   func(p *ledger.Proof) { p.BlockHash[0] ^= 1 },
		"cut header":   func(p *ledger.Proof) { p.Header = p.Header[:10] },
		"too long a path": func(p *ledger.Proof) {
			p.TransactionPath = append(p.TransactionPath, ledger.Hash{})
		},
	} {
		proof := block.Proof(1)
		if err := ledger.VerifyProof(proof); err != nil {
			t.Fatal(err)
		}
		proof.Signatures = append([]ledger.Signature(nil), proof.Signatures...)
		lie(proof)
		if err := ledger.VerifyProof(proof); !errors.Is(err, ledger.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
