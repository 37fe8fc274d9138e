package store

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// The database may begin a new log between the fence and the head row, because the merger, Fill and
// certificates write beside the checkpoint. The head row must not be on the disk without its layer.
func TestHeadRowInANewLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks = 3
	var before map[string][]byte
	var s *Store
	var left folder
	taken, flushes := false, uint64(0)
	logs := func() map[string][]byte {
		p := &platter{t: t, dir: dir}
		p.logs = make(map[string][]byte)
		p.syncLogs()
		return p.logs
	}
	var armed atomic.Bool
	options.onWrite = func(step string) {
		if !armed.Load() {
			return
		}
		switch step {
		case "body":
			if before == nil {
				before = logs()
			}
		case "fence":
			flushes = s.logs.flushes.Load()
		case "head":
			if left != nil {
				return
			}
			if s.logs.flushes.Load() > flushes {
				before = logs()
			}
			count := len(logs())
			for k := 0; ; k++ {
				folder := readFolder(t, dir)
				if err := s.db.Update(func(transaction *badger.Txn) error {
					key := fmt.Appendf(nil, "%cfiller %d", rowEvidence, k)
					return transaction.Set(key, seal(key, make([]byte, 64<<10)))
				}); err != nil {
					t.Error(err)
					return
				}
				if len(logs()) != count {
					left = folder
					return
				}
			}
		case "sync database":
			if taken {
				return
			}
			taken = true
			p := &platter{t: t, dir: dir}
			names := p.glob(databaseFolder, ".mem")
			newest := filepath.Join(databaseFolder, filepath.Base(names[len(names)-1]))
			if _, known := left[newest]; known {
				t.Error("no new log")
			}
			for name := range left {
				old, known := before[filepath.Base(name)]
				switch {
				case filepath.Ext(name) != ".mem":
				case known:
					left[name] = file{data: bytes.TrimRight(old, "\x00"), size: int64(len(old))}
				default:
					delete(left, name)
				}
			}
			left[newest] = readFolder(t, dir)[newest]
		}
	}
	s = open(t, dir, options)
	b := newBook(20)
	for range 3 {
		b.apply(t, s, 5)
	}
	if err := s.awaitWritten(3); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	for range 3 {
		b.apply(t, s, 5)
	}
	if err := s.awaitWritten(6); err != nil {
		t.Fatal(err)
	}
	armed.Store(false)
	again := t.TempDir()
	left.write(t, again)
	opened := open(t, again, small())
	if opened.AppendedHeight() != 6 {
		t.Fatalf("height %d", opened.AppendedHeight())
	}
	mustReadAll(t, opened)
}

