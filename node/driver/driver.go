package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// LaneName is the lane that carries the engines' frames.
const LaneName = "order"

// Defaults of Config.
const (
	DefaultMaxBatch    = 1 << 20
	DefaultInboxFrames = 4096
	DefaultInboxBytes  = 32 << 20
	DefaultHeldFrames  = 1024
	DefaultParkedBytes = 64 << 20

	DefaultParkedPatience = 2 * time.Second
	DefaultFarewell       = 10 * time.Second
)

// StatusInterval bounds the age of a published Status while rounds run.
const StatusInterval = 100 * time.Millisecond

// Source is the source of batches: the pool of transactions.
type Source interface {
	// Next returns the next batch, at most maxBytes long, or nil if there is none. The engine
	// copies it, so the source may reuse the slice at the next call. One goroutine at a time calls
	// Next, which must not block. A batch may be lost with the generation in which it was
	// A-broadcast, so the source must remember the batches that it wants delivered. Next is called
	// whenever the engine may A-broadcast, also after it returned nil and before Ready's next
	// value.
	Next(maxBytes int) []byte
	// Ready returns a channel that receives a value when Next has returned nil and there is
	// something new since. One buffered value is enough.
	Ready() <-chan struct{}
}

// RoundSource is a Source whose batches depend on the round. NextIn is called in place of Next.
type RoundSource interface {
	Source
	// NextIn returns the next batch, as Next does. round returns the number of the round, which is
	// the same at all members. due reports whether an empty message is A-broadcast if the batch is
	// nil, so that the round takes place anyway. Both are called during NextIn only.
	NextIn(round func() uint64, due func() bool, maxBytes int) []byte
}

// Sink receives A-delivered rounds.
type Sink interface {
	// Deliver takes the next A-delivered rounds in order, either all or none of them. It keeps the
	// slices. The payloads never change. It may block, which slows the group down. An error means
	// that no round was taken. An error other than ctx's halts the engine. Origins and Removed are
	// places in Config.Peers.
	Deliver(ctx context.Context, deliveries []order.Delivery) error
}

// PromptSink is a Sink that can take rounds without waiting. With it the driver takes turns on the
// goroutine that reads the network.
type PromptSink interface {
	Sink
	// TryDeliver is like Deliver but never waits. It returns false and no error if there is no room
	// for the rounds.
	TryDeliver(deliveries []order.Delivery) (taken bool, err error)
}

// Group is the group of a run.
type Group struct {
	// Run is the number of the run. It starts at 1 and grows with each engine that this
	// shard ever had. A node computes it from the numbers of a generation and of an eon in it:
	// generation<<16 | eon.
	Run uint64
	// FirstRound is the first round of the engine.
	FirstRound order.Round
	// Members are the members' places in Config.Peers, ascending. Inside the engine a member is its
	// place in this list.
	Members []order.ServerID
	// Shard is the number of members of the shard. The group is a part of them. 0 means the size of
	// the group. Only NewEngine uses it, and Engine, the name of the run's engine.
	Shard  int
	Engine string
}

// Remains is what a run leaves behind on a server that is no longer in it.
type Remains struct {
	// Votes are the engine's votes for rounds that it has not A-delivered, ascending, and VotesMax
	// how many such votes a server of the run may have; 0 if the engine has none. Servers are
	// places in Config.Peers.
	Votes    []order.Vote
	VotesMax int
	// Log is set if the engine orders by a log: its last entry, of which Votes are the rounds.
	Log *order.FrozenLog
	// Known are the votes of others that the engine saw for such rounds. Servers are places in
	// Config.Peers.
	Known []order.KnownVote
	// Held is the content that an engine with prompt delivery holds of rounds that it has not
	// closed. Servers are places in Config.Peers.
	Held []order.Held
	// Untaken are rounds that the engine A-delivered, for good, and that the Sink no longer took.
	// The caller that froze the run must pass them on, after the rounds that the Sink took.
	Untaken []order.Delivery
	// Err says that the run could not be frozen. The server must then promise nothing.
	Err error
}

// Config configures a driver. Host, Peers, NewEngine, FrameRun, Source and Sink are
// required.
type Config struct {
	// Host is this server's end of the fabric. The driver takes its lane LaneName.
	Host rdmanet.Host
	// Self is this server's place in Peers.
	Self order.ServerID
	// Peers are all servers that can be members of a group, including this one. SetPeers replaces
	// them. A place may be empty.
	Peers []rdmanet.PeerID
	// NewEngine makes the engine of a group in which this server has the given place.
	NewEngine func(group Group, place order.ServerID) (order.Broadcaster, error)
	// FrameRun reads the generation from a frame's header. An error means that the bytes are
	// not a frame.
	FrameRun func(frame []byte) (uint64, error)
	// FrameHead, if set, reads what a frame's header says, for people who watch the rounds. It
	// reports false for bytes that are not a frame. It must not allocate.
	FrameHead func(frame []byte) (order.FrameHead, bool)
	Source    Source
	Sink      Sink
	// Linger is how long this server waits, with nothing to send, before it A-broadcasts an empty
	// message so that other servers' messages are delivered. Zero and less mean no wait: the
	// others' next messages are then under way at the same time as this server's, and not one after
	// the other.
	Linger time.Duration
	// MaxBatch bounds a batch in bytes. Zero means DefaultMaxBatch.
	MaxBatch int
	// InboxFrames and InboxBytes bound the received frames that wait for the engine. Zero means the
	// defaults.
	InboxFrames, InboxBytes int
	// HeldFrames bounds the held frames of later runs, per peer. Zero means DefaultHeldFrames.
	HeldFrames int
	// ParkedBytes is how many bytes may be parked for one peer before this server holds back its
	// own batches. Zero means DefaultParkedBytes.
	ParkedBytes int
	// ParkedPatience is how long a peer that takes nothing may hold back this server's batches
	// before it is given up. Zero means DefaultParkedPatience.
	ParkedPatience time.Duration
	// Farewell bounds the time that a member has to take the remaining frames of a run that ended,
	// if it is not in the next run or there is none. Zero means DefaultFarewell.
	Farewell time.Duration
	// Arrived, if set, is called with each frame that may be of use to an engine, before an engine
	// takes it, and with the place in Peers of the server that delivered it. It must return at once
	// and must not call the driver. It may keep the frame, which never changes, and must not change
	// it.
	Arrived func(from order.ServerID, frame []byte)
	// Rounds, if set, notes what passes in each run, for people who watch.
	Rounds *rounds.Recorder
	// Lost, if set, is called for members whose lane broke or whose frames were malformed, after
	// the engine was told. It must return quickly and must not call the driver's Activate, Freeze
	// or Close.
	Lost func(generation uint64, server order.ServerID, cause error)
	// Removed, if set, is called for members that left the group, before the Sink gets the round.
	// The rules of Lost apply.
	Removed func(generation uint64, servers []order.ServerID)
	// Halted, if set, is called when a generation's engine stops delivering, with the reason. The
	// engine's goroutine is then done, so Halted may call the driver.
	Halted func(group Group, reason string)
	// Ended, if set, is called when a run is over because its eon is over: the Sink took all of its
	// rounds. Members are those of the group that were not removed, as places in Config.Peers,
	// ascending. Ended may call the driver. The driver waits for Activate with the next run, and
	// holds that run's frames.
	Ended func(group Group, members []order.ServerID)
	// Moved, if set, is called while rounds run: each time that a status was published because the
	// engine got further. It must return at once and must not call the driver, except for Status.
	Moved func()
	// Record, if set, is called with rounds that are complete in a whole group and have yet to be
	// A-delivered, after the Sink got all rounds before them. It keeps the slices, and must return
	// at once. Only engines that are turn.Completers have such rounds. Origins are places in
	// Config.Peers.
	Record func(rounds []order.Delivery)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// withDefaults fills in zero values and returns ErrConfig for values that cannot work.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Host == nil, c.NewEngine == nil, c.FrameRun == nil, c.Source == nil,
		c.Sink == nil:
		return c, fmt.Errorf("%w: Host, NewEngine, FrameRun, Source and Sink are needed",
			ErrConfig)
	case int(c.Self) >= len(c.Peers):
		return c, fmt.Errorf("%w: self is %d of %d peers", ErrConfig, c.Self, len(c.Peers))
	case c.Peers[c.Self] != c.Host.ID():
		return c, fmt.Errorf("%w: the host is %s, peer %d is %s", ErrConfig, c.Host.ID(), c.Self,
			c.Peers[c.Self])
	case c.MaxBatch < 0 || c.InboxFrames < 0 || c.InboxBytes < 0 || c.HeldFrames < 0 ||
		c.ParkedBytes < 0 || c.ParkedPatience < 0 || c.Farewell < 0:
		return c, fmt.Errorf("%w: a bound is negative", ErrConfig)
	}
	c.MaxBatch = cmp.Or(c.MaxBatch, DefaultMaxBatch)
	c.InboxFrames = cmp.Or(c.InboxFrames, DefaultInboxFrames)
	c.InboxBytes = cmp.Or(c.InboxBytes, DefaultInboxBytes)
	c.HeldFrames = cmp.Or(c.HeldFrames, DefaultHeldFrames)
	c.ParkedBytes = cmp.Or(c.ParkedBytes, DefaultParkedBytes)
	c.ParkedPatience = cmp.Or(c.ParkedPatience, DefaultParkedPatience)
	c.Farewell = cmp.Or(c.Farewell, DefaultFarewell)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// Errors of the driver; match them with errors.Is.
var (
	// ErrConfig reports a Config that cannot work.
	ErrConfig = errors.New("driver: bad configuration")
	// ErrGroup reports that a group cannot be activated: it is not newer than the last one, or its
	// members are invalid.
	ErrGroup = errors.New("driver: group cannot be activated")
	// ErrClosed reports that the driver was closed.
	ErrClosed = errors.New("driver: closed")
)

// Driver runs engines. All methods are safe for concurrent use.
type Driver struct {
	config Config
	inbox  *inbox
	status atomic.Pointer[Status]
	broken atomic.Bool // a lane broke; the next turn has to find out which
	prompt PromptSink  // nil if only the run's goroutine takes turns
	latest atomic.Pointer[running]

	mu        sync.Mutex       // held while a run starts or ends
	peers     []rdmanet.PeerID // as set by SetPeers
	current   *running         // nil before the first activation; a frozen one stays
	farewells []*farewell      // at most one a member, and none to members of the current run
	closed    bool
	// ends waits for the goroutines of all generations, with their calls to Halted and their
	// farewells.
	ends sync.WaitGroup
}

// New makes a driver that runs no engine yet, and registers it for the host's lanes.
func New(config Config) (*Driver, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	inbox, err := newInbox(config)
	if err != nil {
		return nil, err
	}
	d := &Driver{config: config, inbox: inbox, peers: slices.Clone(config.Peers)}
	d.status.Store(&Status{})
	if err := d.register(); err != nil {
		return nil, fmt.Errorf("driver: register for lane %q: %w", LaneName, err)
	}
	config.Host.Watch(d.event)
	return d, nil
}

// register registers for the host's lanes. If host and sink need not wait, the host's goroutine
// takes turns.
func (d *Driver) register() error {
	host, promptHost := d.config.Host.(rdmanet.PromptHost)
	sink, promptSink := d.config.Sink.(PromptSink)
	if !promptHost || !promptSink {
		return d.config.Host.Receive(LaneName, d.inbox.receive)
	}
	d.prompt = sink
	receiver := rdmanet.PromptReceiver{
		TryReceive: d.inbox.tryReceive, Receive: d.inbox.receive, Turn: d.turnNow,
	}
	if d.borrows() {
		receiver.TryReceiveLent = d.inbox.tryReceiveLent
	}
	return host.ReceivePrompt(LaneName, receiver)
}

// turnNow takes turns of the current run for the frames that tryReceive took, unless its goroutine
// has to.
func (d *Driver) turnNow() {
	if r := d.latest.Load(); r == nil || !r.turnNow() {
		d.inbox.signal()
	}
}

// event handles events of the fabric. Lanes may break while nothing is sent on them, too.
func (d *Driver) event(event rdmanet.PeerEvent) {
	switch {
	case event.Kind == rdmanet.PeerUnreachable && event.Lane == LaneName,
		event.Kind == rdmanet.PeerRestarted:
		d.broken.Store(true)
		d.inbox.signal()
	}
}

// Activate starts the engine of the group, which must be of a later run. A run that has not ended
// by itself ends as with Freeze. If it has ended by itself, its slow members still get its
// remaining frames. Members of the next run get them before anything else; the others get them
// beside the next run.
//
// Activate returns once the engine runs. Frames that arrived for it earlier are its next input.
// Errors: ErrGroup, ErrClosed, and the engine's own.
func (d *Driver) Activate(group Group) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	place, err := d.check(group)
	if err != nil {
		return err
	}
	group.Members = slices.Clone(group.Members)
	engine, err := d.config.NewEngine(group, place)
	if err != nil {
		return fmt.Errorf("driver: engine of run %d: %w", group.Run, err)
	}
	d.freeze()
	defer d.bid()
	r, err := newRunning(d, group, place, engine)
	if err != nil {
		return err
	}
	r.inherit()
	r.publish()
	d.config.Rounds.Begin(group.Run, group.FirstRound, group.Members)
	d.current = r
	d.inbox.activate(group)
	d.latest.Store(r) // from now on, others may take turns
	d.ends.Add(1)
	go func() {
		defer d.ends.Done()
		r.live()
	}()
	return nil
}

// check returns this server's place in a group, or an error if the group cannot be activated.
func (d *Driver) check(group Group) (order.ServerID, error) {
	last := uint64(0)
	if d.current != nil {
		last = d.current.group.Run
	}
	return group.PlaceOf(d.config.Self, d.peers, last)
}

// PlaceOf returns a server's place in the group, or ErrGroup if the group cannot be activated with
// these peers, after the last run: 0 if there was none.
func (g *Group) PlaceOf(self order.ServerID, peers []rdmanet.PeerID, last uint64) (order.ServerID,
	error) {
	if last != 0 && g.Run <= last {
		return 0, fmt.Errorf("%w: generation %d after %d", ErrGroup, g.Run, last)
	}
	for i, member := range g.Members {
		if int(member) >= len(peers) || peers[member] == "" || i > 0 && g.Members[i-1] >= member {
			return 0, fmt.Errorf("%w: members %v are not ascending places of peers, of which "+
				"there are %d", ErrGroup, g.Members, len(peers))
		}
	}
	place, found := slices.BinarySearch(g.Members, self)
	if !found {
		return 0, fmt.Errorf("%w: server %d is not among the members %v", ErrGroup, self,
			g.Members)
	}
	return order.ServerID(place), nil
}

// SetPeers replaces the peers. A known peer keeps its place, and the running group keeps its
// members. The places of departed peers are empty, and new peers come last. It returns ErrConfig if
// this server's own place is wrong or a peer is listed twice.
func (d *Driver) SetPeers(peers []rdmanet.PeerID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(d.config.Self) >= len(peers) || peers[d.config.Self] != d.config.Host.ID() {
		return fmt.Errorf("%w: peer %d of %d is not the host, %s", ErrConfig, d.config.Self,
			len(peers), d.config.Host.ID())
	}
	if err := d.inbox.setPeers(peers); err != nil {
		return err
	}
	d.peers = slices.Clone(peers)
	return nil
}

// Freeze ends the running engine, if any, for good. When it returns, the Sink gets nothing more of
// it. It returns what the run leaves behind. Another call returns the same. If the run had ended by
// itself, its members still get its remaining frames.
func (d *Driver) Freeze() Remains {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freeze()
	d.bid()
	if d.current == nil {
		return Remains{}
	}
	return d.current.remains()
}

// freeze ends the current run and its goroutines, except the one that calls Ended or Halted. Its
// remaining frames wait to be inherited (inherit) or sent (bid).
func (d *Driver) freeze() {
	if d.current != nil {
		d.current.cancel(errFrozen)
		d.inbox.signal()
		<-d.current.done
		<-d.current.drained
		if _, ended := d.current.turn.Ended(); ended {
			d.part(d.current)
		}
	}
}

// Close ends the running engine and all of the driver's goroutines, and waits for them. Lanes then
// drop received frames. The host stays open. A second call waits for the end of the first.
func (d *Driver) Close() {
	d.mu.Lock()
	d.closed = true
	d.freeze()
	for _, f := range d.farewells {
		f.stop()
	}
	d.farewells = nil
	d.inbox.close()
	d.mu.Unlock()
	d.ends.Wait()
}

// Suspect tells the engine of that run, if it still runs, that the failure detector suspects the
// server. It never blocks.
func (d *Driver) Suspect(generation uint64, server order.ServerID, cause error) {
	d.inbox.suspect(generation, server, cause)
}

// Trust tells the engine of that run, if it still runs, that the failure detector no longer
// suspects the server. It never blocks. It has no effect for a server that is lost to the run.
func (d *Driver) Trust(generation uint64, server order.ServerID) {
	d.inbox.trust(generation, server)
}

// Probe has the engine of that run, if it still runs, show whether the run goes on. It never
// blocks. A caller that heard that a member left the run says so with Suspect, and then calls
// Probe: the engine may have been told to suspect the member before.
func (d *Driver) Probe(run uint64) { d.inbox.probe(run) }

// Status returns the state of the driver and its engine. It is a copy at most StatusInterval old,
// and it never changes.
func (d *Driver) Status() *Status { return d.status.Load() }
