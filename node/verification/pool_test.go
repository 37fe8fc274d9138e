package verification

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

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
		if rapid.Bool().Draw(t, "distrust") {
			pool.Distrust(0, time.Now().Add(time.Hour))
		}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			draw := rapid.SliceOfN(rapid.SampledFrom(known), 0, 5).Draw(t, "batches")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				for _, batch := range draw {
					number := rapid.Uint64Range(0, 3).Draw(t, "message")
					pool.Arrived(0, Message{Round: number}, batch)
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

// TestFoundBundlesAreNotDecodedAgain: a bundle that this node decoded before is part of the result,
// whether its batch arrived or a round brought it. Another bundle is not.
func TestFoundBundlesAreNotDecodedAgain(t *testing.T) {
	t.Parallel()
	pool := New()
	defer pool.Close()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	encoded := client.Bundle(client.Transfer("acme:issuer", "acme:a", 1)).Encode()
	admitted, err := ledger.DecodeBundle(encoded)
	if err != nil {
		t.Fatal(err)
	}
	pool.FindWith(func([]byte) *ledger.Bundle { return admitted })
	batch := ledger.EncodeBatch(ledger.BatchHeader{Time: 5}, [][]byte{encoded})
	arrived := bytes.Clone(batch)
	pool.Arrived(0, Message{}, arrived)
	for _, result := range pool.Batches([][]byte{batch, arrived}) {
		if result.Proposals[0].Bundle != admitted || result.Proposals[0].Err != nil {
			t.Errorf("got bundle %p, want %p; %v", result.Proposals[0].Bundle, admitted,
				result.Proposals[0].Err)
		}
	}
	result := pool.Batches([][]byte{batchOf(client, false)})[0]
	if bundle := result.Proposals[0].Bundle; bundle == nil || bundle == admitted {
		t.Errorf("another batch got bundle %p", bundle)
	}
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
	pool.Arrived(0, Message{}, longer)
	if got := pool.Batches([][]byte{longer}); got[0] != nil {
		t.Error("a batch with a byte more was decoded")
	}
	if got := pool.Batches([][]byte{longer[:len(whole)]}); got[0] == nil {
		t.Error("the batch without that byte was not decoded")
	}
}

// TestMemoryOfPackedTransfers: packed transfers, of which long names have few bytes, count for what
// they take.
func TestMemoryOfPackedTransfers(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfers := make([]ledger.Transaction, ledger.MaxBundleTransactions)
	for i := range transfers {
		to := client.Account(fmt.Sprintf("%s%04d", strings.Repeat("a", 100), i))
		transfers[i] = client.Transfer("acme:issuer", to, 1)
	}
	bundle := client.Packed(transfers...)
	whole := ledgertest.Batch(5, bundle, bundle, bundle)
	pool := newPool(time.Now, 0)
	defer pool.Close()
	for i := range uint64(4 * queueMax) {
		pool.Arrived(i%16, Message{Round: i}, bytes.Clone(whole))
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	one := len(whole) + ledger.PackedBatchMemory(whole)
	if one < 5*len(whole) || len(pool.held) != heldBytesMax/one {
		t.Errorf("holds %d batches that take %d bytes each", len(pool.held), one)
	}
}

// TestMemoryIsBounded: messages that no round takes make way for newer ones.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	pool := New()
	defer pool.Close()
	for i := range uint64(2 * heldMax) {
		pool.Arrived(i%64, Message{Round: 2 * i}, []byte("no batch"))
		pool.Arrived(i%64, Message{Round: 2*i + 1}, bytes.Repeat([]byte{9}, 3*heldBytesMax/heldMax))
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
		pool.Arrived(0, Message{Round: 1}, bytes.Clone(batch))
	}
	pool.Arrived(0, Message{Round: 2}, batch)
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
				pool.Arrived(0, Message{Origin: uint64(i)}, batch)
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
	pool.Arrived(0, Message{}, batches[0])
	for i, batch := range pool.Batches(batches[:2]) {
		if forged, _ := batch.Forged(); (forged > 0) != (i == 0) {
			t.Errorf("a closed pool finds %d forged bundles in batch %d", forged, i)
		}
	}
}

// idlePool is a pool without workers, and a function that does what a worker would, for some time.
func idlePool() (p *Pool, clock *time.Time, work func(cost time.Duration) *task) {
	clock = new(time.Time)
	*clock = time.Unix(1e9, 0)
	p = newPool(func() time.Time { return *clock }, 0)
	return p, clock, func(cost time.Duration) *task {
		t := p.next()
		if t != nil {
			t.verify()
			*clock = clock.Add(cost)
			p.spent(t, *clock, cost)
		}
		return t
	}
}

// TestSenderThatFloods: a sender of messages that no round takes gets a tenth of a processor once
// it has wasted what it may, and others come before it.
func TestSenderThatFloods(t *testing.T) {
	t.Parallel()
	p, clock, work := idlePool()
	round := uint64(0)
	flood := func() {
		for range 2 * queueMax {
			round++
			p.Arrived(1, Message{Round: round}, []byte("no batch"))
		}
	}
	const cost = 50 * time.Millisecond
	wasted := 0
	for flood(); work(cost) != nil; flood() {
		wasted++
	}
	if most := int(wasteMax/cost) * 10 / 9; wasted > most+2 || wasted < most-2 {
		t.Errorf("the flood wasted %d verifications at once, want about %d", wasted, most)
	}
	p.Arrived(2, Message{Origin: 2}, []byte("no batch"))
	if done := work(cost); done == nil || done.message.Origin != 2 {
		t.Errorf("another sender waits for the flood: %+v", done)
	}
	began, wasted := *clock, 0
	for clock.Sub(began) < 20*time.Second {
		if flood(); work(cost) != nil {
			wasted++
		} else {
			*clock = clock.Add(time.Millisecond)
		}
	}
	if spent := time.Duration(wasted) * cost; spent > clock.Sub(began)/wasteShare+2*cost {
		t.Errorf("the flood got %s of %s", spent, clock.Sub(began))
	}
}

// TestLoadIsNotWaste: what rounds take is no waste, however much it is.
func TestLoadIsNotWaste(t *testing.T) {
	t.Parallel()
	p, _, work := idlePool()
	for round := range uint64(200) {
		batch := []byte("no batch")
		p.Arrived(1, Message{Round: round}, batch)
		if work(time.Second) == nil {
			t.Fatalf("the message of round %d is not verified", round)
		}
		p.Batches([][]byte{batch})
		p.Forget([][]byte{batch})
	}
}

// TestSenderThatForged: what it delivers waits for its round.
func TestSenderThatForged(t *testing.T) {
	t.Parallel()
	p, clock, work := idlePool()
	p.Distrust(1, clock.Add(time.Minute))
	p.Arrived(1, Message{Round: 1}, []byte("no batch"))
	if work(0) != nil {
		t.Error("a message of a sender that forged is verified")
	}
	*clock = clock.Add(time.Minute)
	p.Arrived(1, Message{Round: 1}, []byte("no batch"))
	if work(0) == nil {
		t.Error("the sender is distrusted for ever")
	}
}

// TestRoundsComeFirst: a batch that a round needs is verified before what only arrived.
func TestRoundsComeFirst(t *testing.T) {
	t.Parallel()
	p, _, work := idlePool()
	needed := []byte("needed")
	p.Arrived(1, Message{Round: 1}, []byte("no batch"))
	p.Arrived(1, Message{Round: 2}, needed)
	p.Batches([][]byte{needed})
	if done := work(0); done == nil || &done.data[0] != &needed[0] {
		t.Errorf("verified first: %+v", done)
	}
	if work(0) == nil || work(0) != nil {
		t.Error("the other message is not verified once")
	}
}

// BenchmarkFlood reports which part of a processor a sender takes that floods for a second with
// batches that no round takes.
func BenchmarkFlood(b *testing.B) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	forged := make([]bool, 2000)
	for i := range forged {
		forged[i] = true
	}
	batch := batchOf(client, forged...)
	for b.Loop() {
		pool := New()
		began := time.Now()
		for round := uint64(0); time.Since(began) < 30*time.Second; round++ {
			pool.Arrived(1, Message{Round: round}, bytes.Clone(batch))
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		pool.mu.Lock()
		spent := pool.senders[1].wasted + took/wasteShare
		pool.mu.Unlock()
		pool.Close()
		b.ReportMetric(spent.Seconds()/took.Seconds(), "processors")
	}
}
