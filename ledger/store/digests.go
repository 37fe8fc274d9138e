package store

import (
	"runtime"
	"sync"

	"github.com/ledgerd/ledgerd/ledger/state"
)

// digests computes the digest of many entries of a state on all processors. It may, because the
// digest of a set does not depend on the order of its entries.
type digests struct {
	batches chan entryBatch
	next    entryBatch
	working sync.WaitGroup

	mutex sync.Mutex
	sum   state.Digest
}

// entryBatch is a row of entries, each a key followed by its value.
type entryBatch struct {
	data []byte
	ends []int
}

// entryBatchBytes is the size at which a batch ends.
const entryBatchBytes = 64 << 10

// newDigests starts the goroutines that compute. The caller must call end.
func newDigests() *digests {
	workers := runtime.GOMAXPROCS(0)
	d := &digests{batches: make(chan entryBatch, workers)}
	for range workers {
		d.working.Go(d.work)
	}
	return d
}

func (d *digests) work() {
	var some state.Digest
	for batch := range d.batches {
		begin := 0
		for _, end := range batch.ends {
			some.Add(batch.data[begin:end])
			begin = end
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.sum.Join(&some)
}

// add adds an entry. It copies key and value.
func (d *digests) add(key, value []byte) {
	if len(d.next.data) >= entryBatchBytes {
		d.batches <- d.next
		d.next = entryBatch{}
	}
	if d.next.data == nil {
		d.next.data = make([]byte, 0, entryBatchBytes+len(key)+len(value))
	}
	d.next.data = append(append(d.next.data, key...), value...)
	d.next.ends = append(d.next.ends, len(d.next.data))
}

// end waits for the goroutines and returns the digest of all entries.
func (d *digests) end() *state.Digest {
	d.batches <- d.next
	close(d.batches)
	d.working.Wait()
	return &d.sum
}
