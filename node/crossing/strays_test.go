package crossing

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// noted returns a bundle with a note of some bytes.
func noted(t *testing.T, number, bytes int) *ledger.Bundle {
	t.Helper()
	note := make([]byte, max(bytes, 1))
	note[0] = byte(number)
	bundle, err := ledger.NewBundle(ledger.Transaction{Signer: "acme",
		LastValid: ledger.Height(number), Note: note[:1],
		Records: []ledger.Record{{Key: "acme:r", Value: note}}})
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// Strays reach their shards in order and in batches, also while one shard does not answer. Too many
// are dropped.
func TestStraysAreHandedOverInBatches(t *testing.T) {
	t.Parallel()
	const each = 1000
	all := make([]*ledger.Bundle, straysMax+1)
	at := make(map[*ledger.Bundle]int, len(all))
	for i := range all {
		all[i] = noted(t, i, 1)
		at[all[i]] = i
	}
	var mutex sync.Mutex
	got, calls := map[ledger.ShardID][]int{}, map[ledger.ShardID]int{}
	silent, whole := make(chan struct{}), make(chan ledger.ShardID, 2)
	s := newStrays(slog.New(slog.DiscardHandler), func(bundle *ledger.Bundle) ledger.ShardID {
		return ledger.ShardID(1 + at[bundle]%2)
	}, func(ctx context.Context, to ledger.ShardID, batch []*ledger.Bundle) (
		[]*ledger.Bundle, int, error) {
		if to == 1 {
			<-silent
		}
		mutex.Lock()
		defer mutex.Unlock()
		calls[to]++
		if len(batch) > strayBatch {
			t.Errorf("a batch of %d", len(batch))
		}
		for _, bundle := range batch {
			got[to] = append(got[to], at[bundle])
		}
		if len(got[to]) == each {
			whole <- to
		}
		return nil, 0, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for _, bundle := range all[:2*each] {
		s.add(bundle)
	}
	go func() {
		s.run(ctx)
		close(ended)
	}()
	if first := <-whole; first != 2 {
		t.Errorf("shard %d has all first", first)
	}
	close(silent)
	<-whole
	for done := false; !done; runtime.Gosched() {
		s.mutex.Lock()
		done = s.count == 0 && s.bytes == 0
		s.mutex.Unlock()
	}
	cancel()
	<-ended
	for shard, numbers := range got {
		if !slices.IsSorted(numbers) || calls[shard] != (each+strayBatch-1)/strayBatch {
			t.Errorf("shard %d got %d calls, in order: %v", shard, calls[shard],
				slices.IsSorted(numbers))
		}
	}

	full := newStrays(slog.New(slog.DiscardHandler), nil, nil)
	for _, bundle := range all {
		full.add(bundle)
	}
	if waiting, dropped := full.take(); len(waiting) != straysMax || dropped != 1 {
		t.Errorf("%d wait, %d were dropped", len(waiting), dropped)
	}
	full.add(all[0])
	if full.release(all[:2]); full.dropped != 1 {
		t.Error("those on their way do not count")
	}
	if full.add(all[0]); len(full.waiting) != 1 || full.count != straysMax-1 {
		t.Errorf("%d wait after a batch, %d in all", len(full.waiting), full.count)
	}
}

// A batch whose call fails is tried again, in order, and to the shard where it enters by then. A
// shard that fails for long is given up.
func TestStraysAreTriedAgain(t *testing.T) {
	t.Parallel()
	all := make([]*ledger.Bundle, 3*strayBatch)
	at := make(map[*ledger.Bundle]int, len(all))
	for i := range all {
		all[i] = noted(t, i, 1)
		at[all[i]] = i
	}
	var mutex sync.Mutex
	moved, later, failures, lost := false, false, 0, make(map[ledger.ShardID]bool)
	got := make(map[ledger.ShardID][]int)
	s := newStrays(slog.New(slog.DiscardHandler), func(bundle *ledger.Bundle) ledger.ShardID {
		mutex.Lock()
		defer mutex.Unlock()
		if moved && at[bundle]%2 == 1 {
			return 2
		}
		return 1
	}, func(_ context.Context, to ledger.ShardID, batch []*ledger.Bundle) (
		again []*ledger.Bundle, refused int, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		if to == 1 && failures < 3 || lost[to] {
			failures++
			moved = failures >= 2
			return batch, 0, errors.New("it starts")
		}
		for i, bundle := range batch {
			if at[bundle] == 4 && !later {
				later = true // and again: it is refused for now
				again = batch[i : i+1]
				continue
			}
			if moved && to == 1 && at[bundle]%2 == 1 {
				t.Errorf("bundle %d comes to shard %d", at[bundle], to)
			}
			got[to] = append(got[to], at[bundle])
		}
		return again, 1, errors.New("one of them is refused") // which is no reason to try again
	})
	s.pause = time.Millisecond
	for _, bundle := range all {
		s.add(bundle)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.run(ctx)
		close(ended)
	}()
	empty := func() {
		t.Helper()
		for begin := time.Now(); ; runtime.Gosched() {
			s.mutex.Lock()
			done := s.count == 0 && s.bytes == 0
			s.mutex.Unlock()
			if done {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("strays wait for good")
			}
		}
	}
	empty()
	mutex.Lock()
	got[1] = slices.DeleteFunc(got[1], func(number int) bool { return number == 4 })
	if len(got[1])+1+len(got[2]) != len(all) || !slices.IsSorted(got[1]) || failures != 3 ||
		!slices.Contains(got[2], 1) || !later {
		t.Errorf("%d and %d of %d, after %d failures", len(got[1]), len(got[2]), len(all), failures)
	}
	moved, failures, lost[1] = false, 3, true
	mutex.Unlock()
	cancel()
	<-ended
	s.lifetime = 20 * time.Millisecond
	go s.run(t.Context())
	s.add(all[0])
	empty()
	mutex.Lock()
	defer mutex.Unlock()
	if failures < 5 {
		t.Errorf("given up after %d failures", failures-3)
	}
}

// A batch has a bound of bytes, but at least one bundle.
func TestStrayBatchesAreBounded(t *testing.T) {
	t.Parallel()
	large := noted(t, 1, 60_000)
	queue := slices.Repeat([]*ledger.Bundle{large}, 100)
	if count := firstStrays(queue); count != strayBatchBytes/len(large.Encode()) {
		t.Errorf("%d bundles", count)
	}
	if firstStrays(queue[:1]) != 1 || firstStrays(slices.Repeat(queue, 9)[:2]) != 2 {
		t.Error("few are no batch")
	}
	s := newStrays(nil, nil, nil)
	for range 2 * strayBytesMax / len(large.Encode()) {
		s.add(large)
	}
	if s.bytes > strayBytesMax || s.count != strayBytesMax/len(large.Encode()) {
		t.Errorf("%d bytes wait", s.bytes)
	}
}
