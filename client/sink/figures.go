package sink

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// Figures are the metrics of streams, in Prometheus' text format over HTTP.
type Figures struct {
	mutex   sync.Mutex
	streams map[ledger.ShardID]*figure
}

type figure struct {
	last    Event
	retries uint64
}

// NewFigures returns figures without streams.
func NewFigures() *Figures { return &Figures{streams: make(map[ledger.ShardID]*figure)} }

// Take counts an event.
func (f *Figures) Take(event Event) {
	if event.Event == "shards" {
		return // of no stream
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	found := f.streams[event.Shard]
	if found == nil {
		found = &figure{}
		f.streams[event.Shard] = found
	}
	found.last = event
	if event.Event == "retry" {
		found.retries++
	}
}

// ServeHTTP implements http.Handler.
func (f *Figures) ServeHTTP(to http.ResponseWriter, _ *http.Request) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var text strings.Builder
	write := func(name, kind, help string, value func(*figure) uint64) {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
		for _, shard := range slices.Sorted(maps.Keys(f.streams)) {
			fmt.Fprintf(&text, "%s{shard=\"%d\"} %d\n", name, shard, value(f.streams[shard]))
		}
	}
	write("ledgerd_sink_records_total", "counter", "Records written since the start.",
		func(f *figure) uint64 { return f.last.Written })
	write("ledgerd_sink_height", "gauge", "The block up to which the target has everything.",
		func(f *figure) uint64 { return uint64(f.last.Height) })
	write("ledgerd_sink_durable_height", "gauge", "The last durable block of the chain.",
		func(f *figure) uint64 { return uint64(f.last.Durable) })
	write("ledgerd_sink_retries_total", "counter", "Failures after which the stream began again.",
		func(f *figure) uint64 { return f.retries })
	to.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = to.Write([]byte(text.String())) // the reader may be gone
}
