package rounds

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// The bounds of a recorder.
const (
	// Capacity is how many events the ring holds.
	Capacity = 1 << 15
	// ServersCapacity is how many server numbers the lists of these events have together.
	ServersCapacity = 1 << 17
	// RunsMax is how many runs are kept.
	RunsMax = 64

	// While those that note events wait, a reader copies at most pieceEvents events, which have
	// pieceServers servers together, or one event that has more.
	pieceEvents  = 256
	pieceServers = 4096
)

// Kind is what happened.
type Kind uint8

// The kinds of events.
const (
	// RunBegun: a run of an engine began. Servers are its members.
	RunBegun Kind = iota + 1
	// RunEnded: the run is over.
	RunEnded
	// Mode: the epoch changed, or whether rounds are reliable.
	Mode
	// Broadcast: this node A-broadcast its own message.
	Broadcast
	// Received: a frame of another node was given to the engine.
	Received
	// Sent: a frame was queued for another node's lane.
	Sent
	// Waits: the current round waits for Servers. It is noted when that changes.
	Waits
	// Tracks: after a failure, the message of Origin can still be at Servers. This node waits for
	// it until no working member can have it.
	Tracks
	// Delivered: the round was A-delivered, with the messages of Servers. Bytes are their payloads.
	Delivered
	// Removed: Servers left the group with the round.
	Removed
	// Sealed: the round became the block of Height, whose agreed time is Time.
	Sealed
	// Suspected: this node suspects Origin.
	Suspected
	// Trusted: this node no longer suspects Origin.
	Trusted
	// Lost: frames from or to Origin are missing, for the rest of the run.
	Lost
)

// Event is something that happened at a node. Servers are members of the chain by their indexes.
type Event struct {
	// Number counts the events of this process, from 1.
	Number uint64
	// At is when it happened, in time since the recorder began, by the monotonic clock.
	At   time.Duration
	Kind Kind
	Run  uint64
	// Epoch and Round are those of the frame or the engine.
	Epoch order.Epoch
	Round order.Round
	// Reliable says that the current round is reliable, for Mode and Waits. Decided says that it
	// waits for votes.
	Reliable, Decided bool
	// Frame is the kind of a frame that was sent or received, as the papers name it.
	Frame string
	// From and To are the ends of the edge of a frame.
	From, To order.ServerID
	// Origin is the server that A-broadcast the message, or votes, or says that Target failed.
	Origin, Target order.ServerID
	// Bytes is the size of a frame, of an own batch or of what was A-delivered.
	Bytes int
	// Height and Time, in Unix milliseconds, are of a block.
	Height, Time uint64
	Servers      []order.ServerID
}

// Run is a run of an engine: an eon of a generation.
type Run struct {
	Number uint64
	First  order.Round
	// Members are the members by their indexes, ascending.
	Members []order.ServerID
	// Begun and Ended are in time since the recorder began. Ended is 0 while the run lasts.
	Begun, Ended time.Duration
	// End says why it ended.
	End string
}

// Window is what a recorder has at one moment.
type Window struct {
	Events []Event
	// Next is the number of the event after the last of these.
	Next uint64
	// Dropped counts the events that were asked for and that newer ones had replaced already.
	Dropped uint64
}

// Recorder notes events. All methods are safe for concurrent use. A nil Recorder is never watched.
type Recorder struct {
	begun    time.Time
	watchers atomic.Int32

	mu      sync.Mutex
	runs    []Run
	changed uint64  // counts the changes of runs
	events  []noted // the ring; nil until a client watches
	servers []order.ServerID
	first   uint64 // number of the oldest event that is whole
	next    uint64 // number of the next event
	listed  uint64 // how many servers were put into lists in all
}

// noted is an event in the ring. Its servers are in the ring of servers.
type noted struct {
	Event
	listed uint64 // where its list begins
	count  int
}

// New returns a recorder that nobody watches.
func New() *Recorder { return &Recorder{begun: time.Now(), first: 1, next: 1} }

// Begun returns when the recorder began. Times of events count from there.
func (r *Recorder) Begun() time.Time { return r.begun }

// Watched reports whether events are noted.
func (r *Recorder) Watched() bool { return r != nil && r.watchers.Load() > 0 }

// Watch makes the recorder note events until release is called. Several may watch at a time.
func (r *Recorder) Watch() (release func()) {
	r.mu.Lock()
	if r.events == nil {
		r.events = make([]noted, Capacity)
		r.servers = make([]order.ServerID, ServersCapacity)
	}
	r.mu.Unlock()
	r.watchers.Add(1)
	var once sync.Once
	return func() { once.Do(func() { r.watchers.Add(-1) }) }
}

// Note notes an event, whose Number and At it sets. It copies the servers. It does nothing if
// nobody watches.
func (r *Recorder) Note(e *Event) {
	if !r.Watched() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(e)
}

func (r *Recorder) note(e *Event) {
	listed := e.Servers[:min(len(e.Servers), ServersCapacity)]
	place := &r.events[r.next%Capacity]
	*place = noted{Event: *e, listed: r.listed, count: len(listed)}
	place.Number, place.At, place.Servers = r.next, time.Since(r.begun), nil
	for _, server := range listed {
		r.servers[r.listed%ServersCapacity] = server
		r.listed++
	}
	r.next++
	r.first = max(r.first, r.next-min(r.next, Capacity))
	for r.first < r.next && r.listed-r.events[r.first%Capacity].listed > ServersCapacity {
		r.first++ // a part of its list is gone
	}
}

// Begin notes that a run begins, also if nobody watches.
func (r *Recorder) Begin(number uint64, first order.Round, members []order.ServerID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.runs) == RunsMax {
		r.runs = slices.Delete(r.runs, 0, 1)
	}
	r.runs = append(r.runs, Run{Number: number, First: first, Members: slices.Clone(members),
		Begun: time.Since(r.begun)})
	r.changed++
	if r.Watched() {
		r.note(&Event{Kind: RunBegun, Run: number, Round: first, Servers: members})
	}
}

// End notes why a run ended, also if nobody watches.
func (r *Recorder) End(number uint64, why string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.runs {
		if run := &r.runs[i]; run.Number == number && run.Ended == 0 {
			run.Ended, run.End = time.Since(r.begun), why
			r.changed++
		}
	}
	if r.Watched() {
		r.note(&Event{Kind: RunEnded, Run: number})
	}
}

// Runs returns the last runs, ascending, and a number that grows whenever they change.
func (r *Recorder) Runs() (runs []Run, changed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.runs), r.changed // members never change
}

// Next returns the number of the next event.
func (r *Recorder) Next() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// From returns the events from a number on, the oldest first, at most so many.
func (r *Recorder) From(number uint64, most int) Window {
	first, next := r.bounds()
	begin := min(max(number, first), next)
	return r.window(begin, min(begin+uint64(max(most, 0)), next), begin-min(number, begin))
}

// Last returns the newest events, at most so many, of those from a number on.
func (r *Recorder) Last(number uint64, most int) Window {
	first, next := r.bounds()
	begin := min(max(number, first, next-min(next, uint64(max(most, 0)))), next)
	return r.window(begin, next, begin-min(max(number, 1), begin))
}

// bounds returns the numbers of the oldest event and of the next one.
func (r *Recorder) bounds() (first, next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first, r.next
}

// window copies events piece by piece, so that what notes events waits for a short time only. What
// newer events replace meanwhile is dropped, with what was copied of the events before it: a window
// has no gap.
func (r *Recorder) window(begin, end, dropped uint64) Window {
	w := Window{Next: end, Dropped: dropped, Events: make([]Event, 0, end-begin)}
	copied := piece{events: make([]noted, 0, min(end-begin, pieceEvents)),
		servers: make([]order.ServerID, 0, pieceServers)}
	for number := begin; number < end; {
		first := r.copyPiece(&copied, number, end)
		if first > number {
			w.Dropped += uint64(len(w.Events)) + min(first, end) - number
			w.Events = w.Events[:0]
		}
		number = first + uint64(len(copied.events))
		servers := slices.Clone(copied.servers)
		for i := range copied.events {
			event := copied.events[i].Event
			if count := copied.events[i].count; count > 0 {
				event.Servers, servers = servers[:count:count], servers[count:]
			}
			w.Events = append(w.Events, event)
		}
	}
	return w
}

// piece is what is copied at a time. The servers are those of all its events, one list after the
// other.
type piece struct {
	events  []noted
	servers []order.ServerID
}

// copyPiece copies events from a number on, or from the oldest one, and returns the number of the
// first. It stops at the bounds of a piece.
func (r *Recorder) copyPiece(to *piece, number, end uint64) (first uint64) {
	to.events, to.servers = to.events[:0], to.servers[:0]
	r.mu.Lock()
	defer r.mu.Unlock()
	first = max(number, r.first)
	for number = first; number < end && len(to.events) < pieceEvents; number++ {
		place := &r.events[number%Capacity]
		if len(to.events) > 0 && len(to.servers)+place.count > pieceServers {
			break
		}
		to.events = append(to.events, *place)
		for i := range uint64(place.count) {
			to.servers = append(to.servers, r.servers[(place.listed+i)%ServersCapacity])
		}
	}
	return first
}
