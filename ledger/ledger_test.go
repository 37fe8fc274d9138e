package ledger_test

import (
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

// authority knows the organisations of some registrations, and the members of a genesis.
type authority struct {
	organisations map[ledger.OrganisationName]ledger.Organisation
	membership    ledger.Membership
	charter       ledger.Charter
	shards        int // of the book
}

func newAuthority(genesis *ledger.Genesis) *authority {
	return &authority{organisations: map[ledger.OrganisationName]ledger.Organisation{},
		membership: genesis.Membership(), charter: genesis.Charter(),
		shards: genesis.BookShards()}
}

// register notes the organisations that the bundle registers.
func (a *authority) register(bundle *ledger.Bundle) {
	for i := range bundle.Len() {
		for _, r := range bundle.Transaction(i).Registrations {
			a.organisations[r.Name] = ledger.Organisation{Name: r.Name, Keys: r.Keys}
		}
	}
}

func (a *authority) Organisation(name ledger.OrganisationName) (ledger.Organisation, bool) {
	found, known := a.organisations[name]
	return found, known
}

func (a *authority) Charter() ledger.Charter { return a.charter }
func (a *authority) BookShards() int         { return a.shards }

func (a *authority) Membership() ledger.Membership { return a.membership }

func TestVerifyBundle(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Operators, genesis.RegistrationByOperator = []ledger.PublicKey{
		ledgertest.PublicKey("operator")}, true
	known, hash := newAuthority(genesis), genesis.Hash()
	client, stranger := ledgertest.NewClient(genesis, "acme"),
		ledgertest.NewClient(genesis, "stranger")
	register := client.Bundle(client.Register("issuer", "a"))
	if err := ledger.VerifyBundle(register, genesis, hash, known); !errors.Is(err,
		ledger.ErrUnauthorised) {
		t.Errorf("registration without an operator: %v", err)
	}
	if err := register.Sign(ledger.Operator, ledgertest.Key("operator")); err != nil {
		t.Fatal(err)
	}
	if err := ledger.VerifyBundle(register, genesis, hash, known); err != nil {
		t.Errorf("registration: %v", err)
	}
	known.register(register)
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
	together := ledger.VerifyBundles(bundles, genesis, hash, known)
	for i, want := range wants {
		if err := ledger.VerifyBundle(bundles[i], genesis, hash, known); !errors.Is(err,
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
	client := ledgertest.NewClient(genesis, "acme")
	block := ledgertest.Block(genesis, client.Bundle(client.Transfer("acme:issuer", "acme:a", 1),
		client.Transfer("acme:issuer", "acme:a", 2)),
		client.Bundle(client.Transfer("acme:issuer", "acme:a", 3)))
	for name, lie := range map[string]func(*ledger.Proof){
		"body":         func(p *ledger.Proof) { p.Body = block.Unpacked[0].Body },
		"id":           func(p *ledger.Proof) { p.ID = block.Entry(0).ID },
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
