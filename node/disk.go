package node

import (
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// diskLook is how old the last look at the free space may be.
const diskLook = 250 * time.Millisecond

// diskWatch knows whether there is space for writes; it looks at most a few times a second.
type diskWatch struct {
	dir     string
	reserve uint64
	space   func(dir string) (uint64, error)

	mu     sync.Mutex
	at     time.Time
	free   uint64
	isLow  bool
	failed error
}

func newDiskWatch(dir string, options store.Options) *diskWatch {
	w := &diskWatch{dir: dir, reserve: uint64(options.ReserveBytes), space: options.FreeSpace}
	if w.reserve == 0 {
		w.reserve = store.ReserveBytesDefault
	}
	if w.space == nil {
		w.space = freeSpace
	}
	return w
}

func (w *diskWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) < diskLook {
		return
	}
	w.at = time.Now()
	if w.free, w.failed = w.space(w.dir); w.failed != nil {
		return
	}
	// Writes are refused a little before the store has to, and admitted again only when there is
	// clearly more.
	if w.isLow {
		w.isLow = w.free < w.reserve*3/2
	} else {
		w.isLow = w.free < w.reserve*5/4
	}
}

// low tells whether writes have to be refused.
func (w *diskWatch) low() bool {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isLow
}

// bytes is the free space as of the last look.
func (w *diskWatch) bytes() uint64 {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.free
}

func freeSpace(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
