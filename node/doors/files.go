package doors

import (
	"os"
	"sync"
	"time"
)

// checkEvery is the minimum time between two looks at files.
const checkEvery = time.Second

// files are files that the node reads again once they change. Requests and handshakes look at them,
// so that no goroutine is needed.
type files struct {
	mu      sync.Mutex
	paths   []string
	checked time.Time
	seen    []stamp
}

// stamp tells versions of a file apart.
type stamp struct {
	changed int64 // in nanoseconds since 1970; 0 if the file is missing
	size    int64
}

// watch begins with the files as they are. Call it before reading them.
func watch(paths ...string) *files {
	f := &files{paths: paths}
	f.seen = f.stamps()
	return f
}

func (f *files) stamps() []stamp {
	stamps := make([]stamp, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime().UnixNano(), info.Size()}
		}
	}
	return stamps
}

// ifChanged calls reload if the files changed since the last look, which was at least checkEvery
// ago. It does not wait for another goroutine that looks.
func (f *files) ifChanged(now time.Time, reload func()) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if now.Sub(f.checked) < checkEvery {
		return
	}
	f.checked = now
	stamps := f.stamps()
	for i := range stamps {
		if stamps[i] != f.seen[i] {
			// Files may be replaced one after the other: the next change is another try.
			f.seen = stamps
			reload()
			return
		}
	}
}
