package ledger

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
)

// carriedTransfer returns an entry of a stream: a signed bundle of one transfer with a long note.
func carriedTransfer(t *testing.T, number int) []byte {
	t.Helper()
	bundle, err := NewBundle(Transaction{Signer: "acme", Nonce: Nonce{Stream: 1,
		Sequence: uint64(number)}, Note: make([]byte, MaxNote), Postings: []Posting{
		{Account: "acme:a", Asset: DefaultAsset, Amount: NewAmount(-1)},
		{Account: "bank:b", Asset: DefaultAsset, Amount: NewAmount(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.Sign("acme", ed25519.NewKeyFromSeed(make([]byte, 32))); err != nil {
		t.Fatal(err)
	}
	block := Block{Unpacked: []Entry{bundle.Entry(0, 0)},
		Bundles: []BundleSeal{bundle.Seal([]bool{true})}}
	return block.CarriedBundle(0)
}

// carriedBatch returns a member's batch with entries, vouched for.
func carriedBatch(member byte, entries ...[]byte) []byte {
	batch := new(Batch)
	var vouched []Vouched
	for i, entry := range entries {
		batch.Carried = append(batch.Carried, Carried{Number: uint64(i + 1), Bundle: entry})
		vouched = append(vouched, Vouched{Number: uint64(i + 1), Hash: CarriedHash(entry)})
	}
	batch.Vouch(ed25519.NewKeyFromSeed(slices.Repeat([]byte{member}, 32)), Hash{1}, vouched)
	return batch.Encode()
}

// A verifier decodes an entry once, however many members propose it, and says of each batch what a
// verifier that remembers nothing says.
func TestVerifierDecodesEntriesOnce(t *testing.T) {
	t.Parallel()
	good, other := carriedTransfer(t, 1), carriedTransfer(t, 2)
	forged := slices.Clone(good)
	forged[len(forged)-1] ^= 1 // of the signature
	malformed := good[:len(good)-1]
	verifier := NewVerifier()
	var first *VerifiedBatch
	for member := range byte(3) {
		data := carriedBatch(member, good, forged, other, malformed)
		verified, err := verifier.Batch(data)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := NewVerifier().Batch(data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(verified.StreamHashes, fresh.StreamHashes) {
			t.Error("other hashes")
		}
		for i := range verified.Stream {
			got, want := verified.Stream[i], fresh.Stream[i]
			if !reflect.DeepEqual(got.Bundle, want.Bundle) ||
				!slices.Equal(got.Kept, want.Kept) ||
				fmt.Sprint(got.Err) != fmt.Sprint(want.Err) {
				t.Errorf("member %d, entry %d: %v, %v, want %v, %v", member, i, got.Bundle,
					got.Err, want.Bundle, want.Err)
			}
		}
		if !errors.Is(verified.Stream[1].Err, ErrSignature) ||
			!errors.Is(verified.Stream[3].Err, ErrMalformed) {
			t.Errorf("member %d: %v, %v", member, verified.Stream[1].Err, verified.Stream[3].Err)
		}
		if first == nil {
			first = verified
		}
		for _, i := range []int{0, 2} {
			if verified.Stream[i].Err != nil ||
				verified.Stream[i].Bundle != first.Stream[i].Bundle {
				t.Errorf("member %d: entry %d was decoded again: %v", member, i,
					verified.Stream[i].Err)
			}
		}
	}
}

// What is remembered is bounded, and never given for other bytes, also to several callers at once.
func TestDecodedEntriesAreBounded(t *testing.T) {
	t.Parallel()
	var entries decodedEntries
	one := carriedTransfer(t, 0)
	// The hash is the caller's word here, and the bytes decide.
	bundle, _, err := entries.decode(one, Hash{9})
	if err != nil {
		t.Fatal(err)
	}
	if another, _, err := entries.decode(carriedTransfer(t, 1), Hash{9}); err != nil ||
		another.ID(0) == bundle.ID(0) {
		t.Errorf("other bytes with the same hash give %v, %v", another, err)
	}
	all := make([][]byte, 3*decodedEntriesBytes/len(one))
	for number := range all {
		all[number] = carriedTransfer(t, number)
	}
	var working sync.WaitGroup
	for worker := range 4 {
		working.Go(func() {
			for number, encoded := range all {
				bundle, kept, err := entries.decode(encoded, CarriedHash(encoded))
				if err != nil || len(kept) != 1 ||
					bundle.Transaction(0).Nonce.Sequence != uint64(number) {
					t.Errorf("worker %d: %v, %v", worker, bundle, err)
				}
			}
		})
	}
	working.Wait()
	for _, generation := range []map[Hash]decodedEntry{entries.recent, entries.older} {
		bytes := 0
		for _, entry := range generation {
			bytes += len(entry.encoded)
		}
		if bytes > decodedEntriesBytes {
			t.Errorf("%d bytes are remembered, want at most %d", bytes, decodedEntriesBytes)
		}
	}
}
