package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
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
	self     order.ServerID
	batch    int
	size     int
	payload  int    // the bytes of a batch
	each     bool   // see Parameters.Each and Parameters.Layout
	wagons   bool   // requests are packed as the paper's wagons carry them
	requests []byte // the requests of a batch, the first of which is marked for each message
	packed   []byte // the batch, if each is set
	ready    chan struct{}
	first    chan struct{} // closed when the first round is delivered

	// take gets each delivered request by itself, if each is set. It is a variable so that it is
	// called as a program's own function would be.
	take func(request []byte)

	// rate is how many requests arrive in a second, 0 for as many as fit. hold, if it is set, says
	// how long the next batch has to wait. The timer signals ready when there may be one.
	rate  int
	hold  func() time.Duration
	timer *time.Timer

	mu        sync.Mutex
	on        bool
	since     time.Time // since when requests arrive
	sequence  uint64
	arrived   int     // requests that are in a batch
	started   []batch // the server's own batches under way, oldest first
	hash      *xxhash.Digest
	prefixes  []Prefix // a ring of the last prefixesKept
	total     Counts   // since the start
	taken     uint64   // requests that take got
	touched   uint64   // the sum of a byte of each of them
	measuring bool
	begun     time.Time
	window    Window
}

// batch is a batch under way: since when, and how many requests that arrived at a rate are in it,
// from the first on.
type batch struct {
	since           time.Time
	first, requests int
}

// Prefix is the running hash over all rounds up to Round.
type Prefix struct {
	Round order.Round `json:"round"`
	Hash  uint64      `json:"hash"`
}

// Counts count what a server delivered. Bytes are those of requests. A message is what a server
// A-broadcast in a round, with at least one request.
type Counts struct {
	Requests uint64 `json:"requests"`
	Bytes    uint64 `json:"bytes"`
	Messages uint64 `json:"messages"`
	Rounds   uint64 `json:"rounds"`
}

func (c *Counts) add(other Counts) {
	c.Requests += other.Requests
	c.Bytes += other.Bytes
	c.Messages += other.Messages
	c.Rounds += other.Rounds
}

// Window holds a server's counts in the measured window.
type Window struct {
	Seconds float64 `json:"seconds"`
	Counts
	Latency Histogram `json:"latency"`
}

func newWorkload(self order.ServerID, p Parameters) *workload {
	w := &workload{self: self, batch: p.Batch, size: p.Size, payload: p.payload(),
		each: p.Each || p.Layout != "", wagons: p.Layout != "",
		requests: make([]byte, p.Batch*p.Size), ready: make(chan struct{}, 1),
		first: make(chan struct{}), hash: xxhash.New(), rate: p.Rate}
	w.timer = time.AfterFunc(time.Hour, w.signal)
	w.timer.Stop()
	for i := range w.requests {
		w.requests[i] = byte(i*31 + int(self))
	}
	w.take = func(request []byte) {
		w.taken++
		w.touched += uint64(request[0])
	}
	return w
}

// start makes batches from now on.
func (w *workload) start() {
	w.mu.Lock()
	w.on, w.since = true, time.Now()
	w.mu.Unlock()
	w.signal()
}

// stop makes no more batches.
func (w *workload) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
}

// signal says that there may be a batch.
func (w *workload) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// arrival returns when a request with the given number, from 0, arrives.
func (w *workload) arrival(number int) time.Time {
	return w.since.Add(time.Duration(float64(number+1) / float64(w.rate) * float64(time.Second)))
}

// waiting returns how many requests wait that arrived at a rate. If there are none, the timer
// signals the next.
func (w *workload) waiting() int {
	arrived := int(time.Since(w.since).Seconds() * float64(w.rate))
	if arrived <= w.arrived {
		w.timer.Reset(max(0, time.Until(w.arrival(w.arrived))))
		return 0
	}
	return min(w.batch, arrived-w.arrived)
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
	if !w.on || w.payload > maxBytes {
		return nil
	}
	if w.hold != nil {
		if wait := w.hold(); wait > 0 {
			w.timer.Reset(wait)
			return nil
		}
	}
	requests := w.requests
	begun := batch{since: time.Now()}
	if w.rate > 0 {
		begun.first, begun.requests = w.arrived, w.waiting()
		if begun.requests == 0 {
			return nil
		}
		w.arrived += begun.requests
		requests = requests[:begun.requests*w.size]
	}
	w.sequence++
	var mark [12]byte
	binary.LittleEndian.PutUint64(mark[:], w.sequence)
	binary.LittleEndian.PutUint32(mark[8:], uint32(w.self))
	copy(w.requests, mark[:])
	w.started = append(w.started, begun)
	if !w.each {
		return requests
	}
	w.packed = w.pack(w.packed[:0], requests)
	return w.packed
}

// wagonRequest is the type of requests in wagons.
const wagonRequest = 1

// pack appends the requests one after the other, each behind its length, or behind the header of a
// message in a wagon.
func (w *workload) pack(batch, requests []byte) []byte {
	for at := 0; at < len(requests); at += w.size {
		if w.wagons {
			batch = trains.AppendMessage(batch, wagonRequest, requests[at:at+w.size])
			continue
		}
		batch = binary.AppendUvarint(batch, uint64(w.size))
		batch = append(batch, requests[at:at+w.size]...)
	}
	return batch
}

// unpack hands over the requests of a batch one by one. It returns their number and their bytes.
func (w *workload) unpack(batch []byte) (requests, bytes uint64, err error) {
	for len(batch) > 0 {
		length, prefix := uint64(batch[0]), 1
		if length >= 0x80 { // a length of one byte needs no call
			length, prefix = binary.Uvarint(batch)
		}
		if prefix <= 0 || length == 0 || length > uint64(len(batch)-prefix) {
			return 0, 0, w.notPacked()
		}
		end := prefix + int(length)
		w.take(batch[prefix:end:end])
		batch = batch[end:]
		requests++
		bytes += length
	}
	return requests, bytes, nil
}

// unload hands over the requests of a wagon one by one, as unpack does.
func (w *workload) unload(wagon []byte) (requests, bytes uint64, err error) {
	for len(wagon) > 0 {
		kind, request, rest, whole := trains.NextMessage(wagon)
		if !whole || kind != wagonRequest || len(request) == 0 {
			return 0, 0, w.notPacked()
		}
		w.take(request)
		wagon = rest
		requests++
		bytes += uint64(len(request))
	}
	return requests, bytes, nil
}

// notPacked returns the error of a server that gets a batch that no server made.
func (w *workload) notPacked() error {
	return fmt.Errorf("%w: server %d was handed a batch that does not unpack", ErrServer, w.self)
}

// Ready implements driver.Source.
func (w *workload) Ready() <-chan struct{} { return w.ready }

// Deliver implements driver.Sink.
func (w *workload) Deliver(_ context.Context, deliveries []order.Delivery) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range deliveries {
		if err := w.deliver(&deliveries[i], now); err != nil {
			return err
		}
	}
	return nil
}

// TryDeliver implements driver.PromptSink.
func (w *workload) TryDeliver(deliveries []order.Delivery) (bool, error) {
	return true, w.Deliver(context.Background(), deliveries)
}

func (w *workload) deliver(delivery *order.Delivery, now time.Time) error {
	counts := Counts{Rounds: 1}
	for _, message := range delivery.Messages {
		if len(message.Payload) == 0 {
			continue
		}
		requests, bytes := uint64(len(message.Payload)/w.size), uint64(len(message.Payload))
		if w.each {
			unpack := w.unpack
			if w.wagons {
				unpack = w.unload
			}
			var err error
			if requests, bytes, err = unpack(message.Payload); err != nil {
				return err
			}
		}
		counts.add(Counts{Requests: requests, Bytes: bytes, Messages: 1})
		if message.Origin == w.self {
			w.own(now)
		}
	}
	w.digest(delivery)
	w.keep(Prefix{Round: delivery.Round, Hash: w.hash.Sum64()})
	if w.total.Rounds == 0 {
		close(w.first)
	}
	w.total.add(counts)
	if w.measuring {
		w.window.add(counts)
	}
	return nil
}

// Servers hash whole payloads in one round of hashedRounds, and the first hashedBytes of each
// payload in every round. To hash all of them takes a fourth of the processor time of large
// messages.
const (
	hashedRounds = 64
	hashedBytes  = 64
)

// digest adds a round to the running hash.
func (w *workload) digest(delivery *order.Delivery) {
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
	for _, message := range delivery.Messages {
		put(uint64(message.Origin))
		put(uint64(len(message.Payload)))
		sample := message.Payload
		if delivery.Round%hashedRounds != 0 {
			sample = sample[:min(len(sample), hashedBytes)]
		}
		_, _ = w.hash.Write(sample)
	}
}

// own records the delivery of the oldest own batch under way.
func (w *workload) own(now time.Time) {
	begun := w.started[0]
	w.started = w.started[:copy(w.started, w.started[1:])]
	if !w.measuring || !begun.since.After(w.begun) {
		return
	}
	if w.rate == 0 {
		w.window.Latency.Add(now.Sub(begun.since))
	}
	for number := range begun.requests {
		w.window.Latency.Add(now.Sub(w.arrival(begun.first + number)))
	}
}

func (w *workload) keep(prefix Prefix) {
	if len(w.prefixes) < prefixesKept {
		w.prefixes = append(w.prefixes, prefix)
		return
	}
	w.prefixes[w.total.Rounds%prefixesKept] = prefix
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

// delivered returns what was delivered since the start, and the last prefixes.
func (w *workload) delivered() (Counts, []Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, append([]Prefix(nil), w.prefixes...)
}

// messages returns how many messages were delivered since the start.
func (w *workload) messages() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total.Messages
}
