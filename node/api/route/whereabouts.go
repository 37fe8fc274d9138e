package route

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// sentTo says where a transaction was sent: the shard that it enters, and the shard that decides
// it.
type sentTo struct {
	entry, home ledger.ShardID
	unsure      bool // the entry did not say that it admitted it
}

// maxSent bounds how many transactions a generation of whereabouts holds.
const maxSent = 1 << 16

// whereabouts remembers where this node recently sent transactions, which avoids asking all shards
// for them. When the young generation is full, it replaces the aged one, which is dropped.
type whereabouts struct {
	mutex       sync.Mutex
	young, aged map[ledger.Hash]sentTo
}

func (w *whereabouts) note(ids []ledger.Hash, to sentTo) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, id := range ids {
		if before, known := w.find(id); known && to.unsure && !before.unsure {
			continue // it was admitted, whatever came after
		}
		if w.young == nil || len(w.young) >= maxSent {
			w.young, w.aged = make(map[ledger.Hash]sentTo), w.young
		}
		w.young[id] = to
	}
}

func (w *whereabouts) of(id ledger.Hash) (sentTo, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.find(id)
}

// find is of for a caller that holds the mutex.
func (w *whereabouts) find(id ledger.Hash) (sentTo, bool) {
	if to, known := w.young[id]; known {
		return to, true
	}
	to, known := w.aged[id]
	return to, known
}
