package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ledgerd/ledgerd/order"
)

// prefixesKept is the number of last rounds for which a server keeps the running hash. Servers are
// at most a few rounds apart.
const prefixesKept = 1024

// startTimeout limits the time until the first round is delivered.
const startTimeout = 20 * time.Second

// workload is a server's pool and its pipeline: it makes batches without end, and records
// deliveries. The driver calls both sides from one goroutine at a time. The lock is for the
// goroutines that start, stop and read it.
type workload struct {
	self    order.ServerID
	batch   int
	message []byte // the batch, which is marked anew for each message
	ready   chan struct{}
	first   chan struct{} // closed when the first round is delivered

	mu        sync.Mutex
	on        bool
	sequence  uint64
	started   []time.Time // of the server's own batches under way, oldest first
	hash      *xxhash.Digest
	prefixes  []Prefix // a ring of the last prefixesKept
	rounds    uint64
	payload   uint64 // bytes delivered since the start
	measuring bool
	begun     time.Time
	window    Window
}

// Prefix is the running hash over all rounds up to Round.
type Prefix struct {
	Round order.Round `json:"round"`
	Hash  uint64      `json:"hash"`
}

// Window holds a server's counts in the measured window.
type Window struct {
	Seconds  float64   `json:"seconds"`
	Requests uint64    `json:"requests"`
	Bytes    uint64    `json:"bytes"`
	Rounds   uint64    `json:"rounds"`
	Latency  Histogram `json:"latency"`
}

func newWorkload(self order.ServerID, batch, size int) *workload {
	w := &workload{self: self, batch: batch, message: make([]byte, batch*size),
		ready: make(chan struct{}, 1), first: make(chan struct{}),
		hash: xxhash.New()}
	for i := range w.message {
		w.message[i] = byte(i*31 + int(self))
	}
	return w
}

// start makes batches from now on.
func (w *workload) start() {
	w.mu.Lock()
	w.on = true
	w.mu.Unlock()
	w.ready <- struct{}{}
}

// running waits until the first round is delivered. Before that, the lanes have to connect.
func (w *workload) running(ctx context.Context) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-w.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("%w: server %d delivers nothing within %v", ErrServer, w.self,
			startTimeout)
	}
}

// Next implements driver.Source. No two batches of a run are equal, unless they are too short for
// that. All are made in the same memory.
func (w *workload) Next(maxBytes int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on || len(w.message) > maxBytes {
		return nil
	}
	w.sequence++
	var mark [12]byte
	binary.LittleEndian.PutUint64(mark[:], w.sequence)
	binary.LittleEndian.PutUint32(mark[8:], uint32(w.self))
	copy(w.message, mark[:])
	w.started = append(w.started, time.Now())
	return w.message
}

// Ready implements driver.Source.
func (w *workload) Ready() <-chan struct{} { return w.ready }

// Deliver implements driver.Sink.
func (w *workload) Deliver(_ context.Context, deliveries []order.Delivery) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range deliveries {
		w.deliver(&deliveries[i], now)
	}
	return nil
}

// TryDeliver implements driver.PromptSink.
func (w *workload) TryDeliver(deliveries []order.Delivery) (bool, error) {
	return true, w.Deliver(context.Background(), deliveries)
}

func (w *workload) deliver(delivery *order.Delivery, now time.Time) {
	var number [8]byte
	put := func(value uint64) {
		binary.LittleEndian.PutUint64(number[:], value)
		_, _ = w.hash.Write(number[:]) // a hash never fails
	}
	put(uint64(delivery.Round))
	put(uint64(len(delivery.Removed)))
	for _, server := range delivery.Removed {
		put(uint64(server))
	}
	put(uint64(len(delivery.Messages)))
	bytes := uint64(0)
	for _, message := range delivery.Messages {
		put(uint64(message.Origin))
		put(uint64(len(message.Payload)))
		_, _ = w.hash.Write(message.Payload)
		bytes += uint64(len(message.Payload))
		if message.Origin == w.self && len(message.Payload) > 0 {
			w.own(now)
		}
	}
	w.keep(Prefix{Round: delivery.Round, Hash: w.hash.Sum64()})
	if w.rounds == 0 {
		close(w.first)
	}
	w.rounds++
	w.payload += bytes
	if w.measuring {
		w.window.Rounds++
		w.window.Bytes += bytes
		w.window.Requests += bytes / uint64(len(w.message)) * uint64(w.batch)
	}
}

// own records the delivery of the oldest own batch under way.
func (w *workload) own(now time.Time) {
	begun := w.started[0]
	w.started = w.started[:copy(w.started, w.started[1:])]
	if w.measuring && begun.After(w.begun) {
		w.window.Latency.Add(now.Sub(begun))
	}
}

func (w *workload) keep(prefix Prefix) {
	if len(w.prefixes) < prefixesKept {
		w.prefixes = append(w.prefixes, prefix)
		return
	}
	w.prefixes[w.rounds%prefixesKept] = prefix
}

// begin opens the measured window. end closes it.
func (w *workload) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measuring, w.begun = true, time.Now()
}

func (w *workload) end() Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measuring = false
	w.window.Seconds = time.Since(w.begun).Seconds()
	return w.window
}

// delivered returns the number of rounds and payload bytes delivered since the start, and the last
// prefixes.
func (w *workload) delivered() (rounds, payload uint64, prefixes []Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rounds, w.payload, append([]Prefix(nil), w.prefixes...)
}
