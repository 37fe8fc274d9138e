package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// A disk that is nearly full takes no writes until there is clearly more space. The log says so
// once each time.
func TestDiskWatch(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var free uint64
	var failure error
	w := newDiskWatch("home", store.Options{ReserveBytes: 100 << 20,
		FreeSpace: func(string) (uint64, error) { return free << 20, failure }},
		slog.New(slog.NewTextHandler(&log, nil)))
	for _, step := range []struct {
		free  uint64
		fails bool
		low   bool
		lines int // of the log so far
	}{
		{free: 125}, {free: 124, low: true, lines: 1}, {free: 10, low: true, lines: 1},
		{free: 149, low: true, lines: 1}, {free: 900, fails: true, low: true, lines: 1},
		{free: 150, lines: 2}, {free: 125, lines: 2}, {free: 0, low: true, lines: 3},
	} {
		free, failure, w.at = step.free, nil, time.Time{}
		if step.fails {
			failure = errors.New("no such file system")
		}
		if got := w.low(); got != step.low {
			t.Errorf("%d MiB free: low is %v", step.free, got)
		}
		if got := strings.Count(log.String(), "\n"); got != step.lines {
			t.Errorf("%d MiB free: %d lines, want %d:\n%s", step.free, got, step.lines,
				log.String())
		}
	}
}
