package store

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// Every account of random books is proven against the head, resident or not, and a proof that says
// anything else does not hold.
func TestAccountProofsOfRandomBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		options := small()
		options.AccountsInMemory = rapid.IntRange(1, 20).Draw(r, "accounts")
		options.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		s := wanderingStore(t, r, options)
		defer s.Close()
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			r.Fatal(err)
		}
		accounts, err := s.Accounts("", 1000)
		if err != nil {
			r.Fatal(err)
		}
		head := s.Head()
		for i := range accounts {
			proof, err := s.ProveAccount(accounts[i].Path)
			if err != nil {
				r.Fatal(err)
			}
			decoded, err := ledger.DecodeAccountProof(proof.Encode())
			if err != nil {
				r.Fatal(err)
			}
			account, header, err := ledger.VerifyAccountProof(decoded)
			if err != nil || header.Hash() != head.Hash ||
				!sameAmounts(amounts(account.Balances), amounts(accounts[i].Balances)) ||
				account.History != accounts[i].History || account.Issuer != accounts[i].Issuer {
				r.Fatalf("%+v, want %+v: %v", account, accounts[i], err)
			}
			forge(r, decoded)
		}
		if _, err := s.ProveAccount("acme:none"); !errors.Is(err, ErrNotFound) {
			r.Errorf("an account that is not open: %v", err)
		}
	})
}

// forge changes a byte of a proof: then it does not hold, or does not even decode.
func forge(r *rapid.T, proof *ledger.AccountProof) {
	encoded := proof.Encode()
	random := rand.New(rand.NewPCG(uint64(len(encoded)), 3))
	for range 20 {
		forged := append([]byte(nil), encoded...)
		at := random.IntN(len(forged))
		forged[at] ^= 1 << random.IntN(8)
		changed, err := ledger.DecodeAccountProof(forged)
		if err != nil {
			continue
		}
		_, header, err := ledger.VerifyAccountProof(changed)
		// A header with another height or round is that of another block, which has no certificate.
		if original, _ := ledger.DecodeHeader(proof.Header); err == nil &&
			header.Hash() == original.Hash() {
			r.Fatalf("a proof with another byte %d holds", at)
		}
	}
}

// An account is proven after any block by executing the chain again.
func TestAccountProofAfterAnyBlock(t *testing.T) {
	t.Parallel()
	options := small()
	s := open(t, t.TempDir(), options)
	defer s.Close()
	random := rand.New(rand.NewPCG(5, 7))
	traffic := &wanderer{client: ledgertest.NewClient(testGenesis(), "acme")}
	path := traffic.client.Account("issuer")
	var want []map[ledger.AssetName]ledger.Amount
	for range 20 {
		if _, err := s.Apply(1, traffic.round+1, [][]byte{traffic.next(random)}); err != nil {
			t.Fatal(err)
		}
		account, err := s.Account(path)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, amounts(account.Balances))
	}
	for _, height := range []ledger.Height{1, 7, 20} {
		proof, err := s.ProveAccountAfter(t.Context(), path, height)
		if !errors.Is(err, ErrUncertified) {
			t.Fatal(err) // this chain has no members that certify
		}
		account, header, err := ledger.VerifyAccountProof(proof)
		if err != nil || header.Height != height ||
			!sameAmounts(amounts(account.Balances), want[height-1]) {
			t.Errorf("after block %d: %v, want %v: %v", height, account.Balances, want[height-1],
				err)
		}
	}
	if _, err := s.ProveAccountAfter(t.Context(), path, 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.ProveAccountAfter(t.Context(), path, 21); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
