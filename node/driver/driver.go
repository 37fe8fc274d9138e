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

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// LaneName is the lane that carries the engines' frames.
const LaneName = "order"

// Defaults of Config.
const (
	DefaultLinger      = time.Millisecond
	DefaultMaxBatch    = 1 << 20
	DefaultInboxFrames = 4096
	DefaultInboxBytes  = 32 << 20
	DefaultHeldFrames  = 1024
	DefaultParkedBytes = 64 << 20

	DefaultParkedPatience = 2 * time.Second
	DefaultFarewell       = 10 * time.Second
)

// StatusInterval is how old a published Status can be while rounds run.
const StatusInterval = 100 * time.Millisecond

// Source is where batches come from: the pool of transactions.
type Source interface {
	// Next gives the next batch, at most maxBytes long, or nil when there is none. The driver and
	// the engine keep the slice, which nobody may change again. It is called by one goroutine at a
	// time and must not block. A batch that was taken may be lost with the generation that it was
	// A-broadcast in: the source remembers what it wants to see delivered.
	Next(maxBytes int) []byte
	// Ready gives a channel on which a value arrives after Next gave nil and something came since.
	// One buffered value is enough.
	Ready() <-chan struct{}
}

// Sink is where A-delivered rounds go.
type Sink interface {
	// Deliver takes the next A-delivered rounds, in order, all or none of them, and keeps the
	// slices, whose payloads are never changed. It may block, and so slow the group down. An error
	// means that none were taken; one that is not ctx's halts the engine. Origins and Removed are
	// places in Config.Peers.
	Deliver(ctx context.Context, deliveries []order.Delivery) error
}

// Group is who takes part in a run.
type Group struct {
	// Generation is the number of the run: it grows with each engine that this shard ever had, from
	// 1. A node makes it of the number of a generation and that of an eon in it, generation<<16 |
	// eon.
	Generation uint64
	// FirstRound is the round that the engine begins with.
	FirstRound order.Round
	// Members are the places of the members in Config.Peers, ascending. Inside the engine a member
	// is its place in this list.
	Members []order.ServerID
	// Shard is how many members the shard has, of which those of the group are a part; 0 stands for
	// as many as the group. It is NewEngine's to heed.
	Shard int
}

// Remains is what a run leaves behind in a server that is in it no more.
type Remains struct {
	// Votes are the engine's votes for rounds that it has not A-delivered, ascending, at most two;
	// servers are places in Config.Peers.
	Votes []allconcur.Vote
	// Known are the votes of others that the engine saw for such rounds; servers are places in
	// Config.Peers.
	Known []allconcur.KnownVote
	// Untaken are rounds that the engine A-delivered, for good, and that the Sink did not take any
	// more: whoever froze the run hands them on, after what the Sink took.
	Untaken []order.Delivery
}

// Config says what a driver connects. Host, Peers, NewEngine, FrameGeneration, Source and Sink are
// needed.
type Config struct {
	// Host is this server's end of the fabric; the driver takes its lane LaneName.
	Host rdmanet.Host
	// Self is this server's place in Peers.
	Self order.ServerID
	// Peers are all servers that can be members of a group, this one included, until SetPeers. A
	// place may be empty.
	Peers []rdmanet.PeerID
	// NewEngine makes the engine of a group, in which this server has the given place.
	NewEngine func(group Group, place order.ServerID) (order.Broadcaster, error)
	// FrameGeneration reads the generation from a frame's header. An error means that the bytes are
	// no frame.
	FrameGeneration func(frame []byte) (uint64, error)
	Source          Source
	Sink            Sink
	// Linger is how long this server waits, with nothing to send, before it A-broadcasts an empty
	// message to get other servers' messages delivered. Zero stands for DefaultLinger, a negative
	// one for no wait.
	Linger time.Duration
	// MaxBatch bounds a batch in bytes. Zero stands for DefaultMaxBatch.
	MaxBatch int
	// InboxFrames and InboxBytes bound what was received and waits for the engine. Zero stands for
	// the defaults.
	InboxFrames, InboxBytes int
	// HeldFrames bounds the frames of later runs that are held, a peer. Zero stands for
	// DefaultHeldFrames.
	HeldFrames int
	// ParkedBytes is how much may be parked for one peer before this server holds back its own
	// batches. Zero stands for DefaultParkedBytes.
	ParkedBytes int
	// ParkedPatience is for how long a peer may hold this server's batches back so without taking
	// anything, before it is given up. Zero stands for DefaultParkedPatience.
	ParkedPatience time.Duration
	// Farewell is for how long members that are not in the next run, or while there is none, may
	// take what a run that ended has yet to send to them. Zero stands for DefaultFarewell.
	Farewell time.Duration
	// Lost, if set, hears of members whose lane broke or whose frames were malformed. The driver
	// has told the engine already. It must return quickly and not call the driver's Activate,
	// Freeze or Close.
	Lost func(generation uint64, server order.ServerID, cause error)
	// Removed, if set, hears of members that left the group, before the Sink does. The rules of
	// Lost hold.
	Removed func(generation uint64, servers []order.ServerID)
	// Halted, if set, hears that a generation's engine delivers no more, and why, once its
	// goroutine is done: it may call the driver.
	Halted func(group Group, reason string)
	// Ended, if set, hears that a run is over since its eon is: the Sink took all of its rounds.
	// Members are those of the group that were not removed, as places in Config.Peers, ascending.
	// It may call the driver, which waits for Activate with the run that follows, and holds the
	// frames of that.
	Ended func(group Group, members []order.ServerID)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// withDefaults fills in what is zero and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Host == nil, c.NewEngine == nil, c.FrameGeneration == nil, c.Source == nil,
		c.Sink == nil:
		return c, fmt.Errorf("%w: Host, NewEngine, FrameGeneration, Source and Sink are needed",
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
	c.Linger = cmp.Or(c.Linger, DefaultLinger)
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
	// ErrConfig says what is wrong with a Config.
	ErrConfig = errors.New("driver: bad configuration")
	// ErrGroup says that a group cannot be activated: it is not newer than the last one, or its
	// members make no sense.
	ErrGroup = errors.New("driver: group cannot be activated")
	// ErrClosed says that the driver was closed.
	ErrClosed = errors.New("driver: closed")
)

// Driver runs engines. All methods may be called from several goroutines.
type Driver struct {
	config Config
	inbox  *inbox
	status atomic.Pointer[Status]
	broken atomic.Bool // a lane broke, and the running engine's goroutine is to look which

	mu        sync.Mutex       // held while a run starts or ends
	peers     []rdmanet.PeerID // as SetPeers said
	current   *running         // nil before the first activation; a frozen one stays
	farewells []*farewell      // at most one a member, and none to members of the current run
	closed    bool
	// the goroutines of all generations, their last words to Halted and farewells included
	ends sync.WaitGroup
}

// New makes a driver that runs nothing yet, and registers it for the host's lanes.
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
	if err := config.Host.Receive(LaneName, inbox.receive); err != nil {
		return nil, fmt.Errorf("driver: register for lane %q: %w", LaneName, err)
	}
	config.Host.Watch(d.event)
	return d, nil
}

// event takes the fabric's news: lanes break while nothing is sent on them, too.
func (d *Driver) event(event rdmanet.PeerEvent) {
	switch {
	case event.Kind == rdmanet.PeerUnreachable && event.Lane == LaneName,
		event.Kind == rdmanet.PeerRestarted:
		d.broken.Store(true)
		d.inbox.signal()
	}
}

// Activate starts the engine of the group, which must be of a later run. A run that has not ended
// by itself ends as Freeze ends it; where it did, what its slow members have yet to get of it goes
// before anything else to those who are in the next one, too, and beside it to the others. It
// returns once the engine runs; frames that came for it before are next. ErrGroup, ErrClosed, the
// engine's own errors.
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
		return fmt.Errorf("driver: engine of run %d: %w", group.Generation, err)
	}
	d.freeze()
	defer d.bid()
	r, err := newRunning(d, group, place, engine)
	if err != nil {
		return err
	}
	r.inherit()
	d.current = r
	d.inbox.activate(group)
	r.publish()
	d.ends.Add(1)
	go func() {
		defer d.ends.Done()
		r.live()
	}()
	return nil
}

// check gives this server's place in a group that can be activated.
func (d *Driver) check(group Group) (order.ServerID, error) {
	if d.current != nil && group.Generation <= d.current.group.Generation {
		return 0, fmt.Errorf("%w: generation %d after %d", ErrGroup, group.Generation,
			d.current.group.Generation)
	}
	for i, member := range group.Members {
		if int(member) >= len(d.peers) || d.peers[member] == "" || i > 0 &&
			group.Members[i-1] >= member {
			return 0, fmt.Errorf("%w: members %v are not ascending places of peers, of which "+
				"there are %d", ErrGroup, group.Members, len(d.peers))
		}
	}
	place, found := slices.BinarySearch(group.Members, d.config.Self)
	if !found {
		return 0, fmt.Errorf("%w: server %d is not among the members %v", ErrGroup, d.config.Self,
			group.Members)
	}
	return order.ServerID(place), nil
}

// SetPeers replaces the peers. One that is known keeps its place, the running group its members;
// the places of those that are peers no more are empty, and new peers come behind. ErrConfig.
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

// Freeze ends the running engine, if any, for good: when it returns, the Sink has heard the last of
// it. It tells what that leaves behind. Freezing again tells the same. A run that ended by itself
// owes its members what it has yet to send: they get it.
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

// freeze ends the current run, all of its goroutines but the one that tells of its end included.
// What it owes waits to be inherited or bid.
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

// Close ends the running engine and all of the driver's goroutines, and waits for them. Lanes
// deliver into the void from then on; the host stays open. Closing again waits for the first call's
// end.
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

// Trust tells the engine of that run, if it still runs, that the failure detector does not suspect
// the server any more. It never blocks. It has no effect for a server that is lost to the run.
func (d *Driver) Trust(generation uint64, server order.ServerID) {
	d.inbox.trust(generation, server)
}

// Status tells how the driver and its engine are doing. It is a copy at most StatusInterval old,
// and nobody changes it.
func (d *Driver) Status() *Status { return d.status.Load() }
