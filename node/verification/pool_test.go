package verification

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// batchOf makes a batch of some bundles, of which every forged one has a wrong signature.
func batchOf(client *ledgertest.Client, forged ...bool) []byte {
	var bundles [][]byte
	for i, wrong := range forged {
		encoded := client.Bundle(client.Transfer("acme:issuer", "acme:a", int64(i+1))).Encode()
		if wrong {
			encoded = bytes.Clone(encoded)
			encoded[len(encoded)-1] ^= 1
		}
		bundles = append(bundles, encoded)
	}
	return ledger.EncodeBatch(ledger.BatchHeader{Time: 5}, bundles)
}

// same reports whether two results say the same about each bundle.
func same(a, b []*ledger.VerifiedBatch) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] == nil {
			continue
		}
		for j := range a[i].Proposals {
			if (a[i].Proposals[j].Err == nil) != (b[i].Proposals[j].Err == nil) {
				return false
			}
		}
	}
	return true
}

// TestPoolChangesNoResult: whatever arrived before, Batches returns what ledger.VerifyBatches does.
func TestPoolChangesNoResult(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var known [][]byte
	for i := range 6 {
		known = append(known, batchOf(client, i%2 == 0, i%3 == 0))
	}
	known = append(known, nil, []byte("no batch"), []byte{1})
	rapid.Check(t, func(t *rapid.T) {
		pool := New()
		defer pool.Close()
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			draw := rapid.SliceOfN(rapid.SampledFrom(known), 0, 5).Draw(t, "batches")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				for _, batch := range draw {
					number := rapid.Uint64Range(0, 3).Draw(t, "message")
					pool.Arrived(Message{Round: number}, batch)
				}
			case 1:
				pool.Forget(draw)
			case 2: // another copy of the same bytes, and longer ones that begin alike
				for i := range draw {
					draw[i] = bytes.Clone(draw[i])
				}
				fallthrough
			default:
				if got, want := pool.Batches(draw), ledger.VerifyBatches(draw); !same(got, want) {
					t.Fatalf("%d batches: got %v, want %v", len(draw), got, want)
				}
			}
		}
	})
}

// TestMemoryOfAnotherLength: a batch that begins in the same memory as another one, and is shorter,
// is another batch.
func TestMemoryOfAnotherLength(t *testing.T) {
	t.Parallel()
	pool := New()
	defer pool.Close()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	whole := batchOf(client, false)
	longer := append(bytes.Clone(whole), 0)
	pool.Arrived(Message{}, longer)
	if got := pool.Batches([][]byte{longer}); got[0] != nil {
		t.Error("a batch with a byte more was decoded")
	}
	if got := pool.Batches([][]byte{longer[:len(whole)]}); got[0] == nil {
		t.Error("the batch without that byte was not decoded")
	}
}

// TestMemoryIsBounded: messages that no round takes make way for newer ones.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	pool := New()
	defer pool.Close()
	for i := range uint64(2 * heldMax) {
		pool.Arrived(Message{Round: 2 * i}, []byte("no batch"))
		pool.Arrived(Message{Round: 2*i + 1}, bytes.Repeat([]byte{9}, 3*heldBytesMax/heldMax))
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if len(pool.held) > heldMax || pool.bytes > heldBytesMax ||
		pool.order.Len() != len(pool.held) ||
		len(pool.messages) > len(pool.held) {
		t.Errorf("holds %d batches of %d bytes", len(pool.held), pool.bytes)
	}
}

// TestCopiesAreIgnored: another copy of a message is not verified while the first one is held.
func TestCopiesAreIgnored(t *testing.T) {
	t.Parallel()
	pool := New()
	defer pool.Close()
	batch := []byte("no batch")
	for range 3 {
		pool.Arrived(Message{Round: 1}, bytes.Clone(batch))
	}
	pool.Arrived(Message{Round: 2}, batch)
	pool.mu.Lock()
	held := len(pool.held)
	pool.mu.Unlock()
	if held != 2 {
		t.Errorf("holds %d batches, want 2", held)
	}
}

// TestManyCallers: messages arrive while rounds are taken and forgotten.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	pool := New()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var batches [][]byte
	for i := range 64 {
		batches = append(batches, batchOf(client, i%5 == 0))
	}
	var working sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		working.Go(func() {
			for i, batch := range batches {
				pool.Arrived(Message{Origin: uint64(i)}, batch)
			}
		})
		working.Go(func() {
			for i := range batches {
				got := pool.Batches(batches[i : i+1])
				if forged, _ := got[0].Forged(); (forged > 0) != (i%5 == 0) {
					t.Errorf("batch %d: %d forged", i, forged)
				}
				pool.Forget(batches[i : i+1])
			}
		})
	}
	working.Wait()
	pool.Close()
	pool.Close()
	pool.Arrived(Message{}, batches[0])
	for i, batch := range pool.Batches(batches[:2]) {
		if forged, _ := batch.Forged(); (forged > 0) != (i == 0) {
			t.Errorf("a closed pool finds %d forged bundles in batch %d", forged, i)
		}
	}
}
