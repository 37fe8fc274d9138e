package node

import (
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// diskLook bounds the age of the last measurement of the free space.
const diskLook = 250 * time.Millisecond

// diskWatch knows whether there is space for writes, and logs changes. It measures at most every
// diskLook.
type diskWatch struct {
	dir     string
	reserve uint64
	space   func(dir string) (uint64, error)
	logger  *slog.Logger

	mu     sync.Mutex
	at     time.Time
	free   uint64
	isLow  bool
	failed error
}

func newDiskWatch(dir string, options store.Options, logger *slog.Logger) *diskWatch {
	w := &diskWatch{dir: dir, reserve: uint64(options.ReserveBytes), space: options.FreeSpace,
		logger: logger}
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
	needed, before := w.reserve*5/4, w.isLow
	if before {
		needed = w.reserve * 3 / 2
	}
	switch w.isLow = w.free < needed; {
	case w.isLow && !before:
		w.logger.Warn("the disk is nearly full: this node takes no writes until there is more "+
			"space; free some", "dir", w.dir, "free_mib", w.free>>20,
			"needed_mib", w.reserve*3/2>>20)
	case !w.isLow && before:
		w.logger.Info("the disk has space again: this node takes writes", "dir", w.dir,
			"free_mib", w.free>>20)
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
