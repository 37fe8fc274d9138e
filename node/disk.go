package node

import (
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// diskLook bounds the age of the last measurement of the free space.
const diskLook = 250 * time.Millisecond

// diskWatch knows whether there is space for writes. It measures at most every diskLook.
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
	// Refuse writes a little before the store has to. Admit them again only when there is clearly
	// more space.
	if w.isLow {
		w.isLow = w.free < w.reserve*3/2
	} else {
		w.isLow = w.free < w.reserve*5/4
	}
}

// low reports whether writes must be refused.
func (w *diskWatch) low() bool {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isLow
}

// bytes returns the free space at the last measurement.
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
