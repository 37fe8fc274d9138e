package streams

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

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// Defaults, and what the members of a book agree on.
const (
	// EntryMax bounds an entry of a stream, in bytes.
	EntryMax = ledger.MaxBundleBytes
	// RingSizeDefault is the size of a ring, in bytes.
	RingSizeDefault = 4 << 20
	// EntriesDefault bounds the entries of a stream under way.
	EntriesDefault = 1024
	// PatienceDefault is how long a position stands still before the next member takes over.
	PatienceDefault = 200 * time.Millisecond
	// AskEveryDefault is how often a ring is asked for.
	AskEveryDefault = 500 * time.Millisecond
	// RepeatAfterDefault is when feedback is said again for the first time.
	RepeatAfterDefault = time.Second

	stretch = 64
	depth   = 64
	// tick is the unit of the machines' time.
	tick = time.Microsecond
)

// The pace of the loop.
const (
	// lookAround is the longest that it sleeps.
	lookAround = time.Second
	// feedbackPause is between two feedbacks to a writer, and repeatMax the longest pause between
	// repetitions in units of the first one.
	feedbackPause = 2 * time.Millisecond
	repeatMax     = 8
	// ringPause is between two rings for a writer.
	ringPause = 50 * time.Millisecond
	// readPause is how long a chain that could not be read is left alone.
	readPause = time.Second
	// absentPause is how long a chain is left alone that lacks an entry: its older blocks may come.
	absentPause = 5 * time.Second
	// attachTimeout bounds an attempt to connect to a ring.
	attachTimeout = 10 * time.Second
)

// ErrConfig says that a configuration lacks something.
var ErrConfig = errors.New("streams: bad configuration")

// Member is a member of a shard.
type Member struct {
	// Index is the member's in its shard's chain.
	Index ledger.MemberIndex
	// Peer is the member on the fabric.
	Peer rdmanet.PeerID
}

// Directory says who is where. Its methods may be called from several goroutines, and do not block.
type Directory interface {
	// Own is this node's shard.
	Own() ledger.ShardID
	// Tree is the book's.
	Tree() *ledger.ShardTree
	// Members are a shard's, ascending by index; read-only.
	Members(shard ledger.ShardID) []Member
	// Changed is closed at the next change of any shard's members.
	Changed() <-chan struct{}
}

// Chain is what is read of the own shard's chain; a *store.Store has it.
type Chain interface {
	// Stream gives entries of the stream to a child in order from a number on, those of blocks up
	// to a height. store.ErrAbsent where an entry is not here for good.
	Stream(child ledger.ShardID, from uint64, limit int, upTo ledger.Height) ([]ledger.Carried,
		error)
	// Carried is the number of the last entry of the parent's stream in the chain.
	Carried() uint64
	// AppendedHeight is the last block's.
	AppendedHeight() ledger.Height
}

// Config of Streams. Directory, Host, Control, Chain, Durable and Ready are needed.
type Config struct {
	Directory Directory
	// Host is this node's end of the fabric. The members of the parent and of the children have to
	// be members of it.
	Host    rdmanet.RegionHost
	Control *control.Control
	// Chain gives the chain as it is now, nil while there is none.
	Chain func() Chain
	// Durable gives the height up to which a majority of the own shard has the chain on disk, as
	// far as this node knows.
	Durable func() ledger.Height
	// Ready is told that Propose has something. It must not block.
	Ready  func()
	Logger *slog.Logger

	// RingSize, in bytes, Entries and Patience are the same at all members of the book. Zero values
	// mean the defaults, here and below.
	RingSize, Entries int
	Patience          time.Duration
	// AskEvery is how often a ring is asked for, and RepeatAfter when feedback is repeated.
	AskEvery, RepeatAfter time.Duration

	fault fault
}

// fault is a bug to plant, for the tests to find.
type fault uint8

const (
	_ fault = iota // none
	// faultSameRing offers the same ring again to whoever asks for another.
	faultSameRing
	// faultBeyondDurable offers writers what the chain can still take back.
	faultBeyondDurable
	// faultEarlyPosition tells writers a position that is not durable.
	faultEarlyPosition
)

func (c Config) withDefaults() (Config, error) {
	if c.Directory == nil || c.Host == nil || c.Control == nil || c.Chain == nil ||
		c.Durable == nil || c.Ready == nil {
		return c, fmt.Errorf("%w: directory, host, control, chain, durable and ready are needed",
			ErrConfig)
	}
	if c.Directory.Tree() == nil {
		return c, fmt.Errorf("%w: a book of one shard has no streams", ErrConfig)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.RingSize, c.Entries = cmp.Or(c.RingSize, RingSizeDefault), cmp.Or(c.Entries, EntriesDefault)
	c.Patience, c.AskEvery, c.RepeatAfter = cmp.Or(c.Patience, PatienceDefault),
		cmp.Or(c.AskEvery, AskEveryDefault), cmp.Or(c.RepeatAfter, RepeatAfterDefault)
	if c.RingSize < 2*stream.RecordSize(EntryMax) || c.RingSize > rdmanet.RegionSizeMax ||
		c.RingSize%rdmanet.WordSize != 0 || c.Entries < 1 || c.Entries > stream.EntriesMax ||
		c.Patience < tick || c.AskEvery < 0 || c.RepeatAfter < 0 {
		return c, fmt.Errorf("%w: a ring of %d bytes for %d entries, a patience of %s", ErrConfig,
			c.RingSize, c.Entries, c.Patience)
	}
	return c, nil
}

// role is what a peer is to this node: of the child where out is set, else of the parent.
type role struct {
	out   *outgoing
	index order.ServerID
}

// Streams is one node's part in the streams to and from its shard. All methods may be called from
// several goroutines.
type Streams struct {
	config  Config
	self    rdmanet.PeerID
	began   time.Time
	mail    mail
	heights heights
	roles   atomic.Pointer[map[rdmanet.PeerID]role]
	bell    chan struct{}
	queue   rdmanet.Queue
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup

	// mu guards the machines, and which there are. Only the loop changes that, so it takes the lock
	// to change and not to look.
	mu  sync.Mutex
	in  *incoming // nil at the root
	out []*outgoing

	// What follows is the loop's.
	numbers     uint64 // the last attempt, life or connection
	connections map[uint64]*connection
	backlog     []rdmanet.Operation
	wake        time.Time
	carried     []ledger.Carried // guarded by mu
}

// New begins a node's part. Close it before the host. Errors: ErrConfig, control.ErrRegistered, the
// fabric's.
func New(config Config) (*Streams, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Streams{
		config: config, self: config.Host.ID(), began: now, bell: make(chan struct{}, 1),
		// Numbers are never used twice, also by those who had the host before.
		numbers: uint64(now.UnixNano()), connections: map[uint64]*connection{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	own, tree := config.Directory.Own(), config.Directory.Tree()
	if parent, has := tree.Parent(own); has {
		s.in = newIncoming(s, parent)
	}
	for _, child := range tree.Children(own) {
		s.out = append(s.out, &outgoing{s: s, child: child, outlets: map[order.ServerID]*outlet{}})
	}
	changed := config.Directory.Changed()
	s.seat()
	if s.queue, err = config.Host.Queue(rdmanet.QueueDepthMax); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	if err := config.Control.Register(control.KindStream, s.receive); err != nil {
		return nil, errors.Join(fmt.Errorf("streams: %w", err), s.queue.Close())
	}
	s.Reset()
	s.working.Go(s.complete)
	s.working.Go(func() { s.run(changed) })
	return s, nil
}

// Applied says that a block was executed here, its own or a peer's, and the carried number behind
// it.
func (s *Streams) Applied(height ledger.Height, carried uint64) {
	s.heights.applied(height, carried)
	s.ring()
}

// DurableTo says that a majority of the shard has the chain on disk up to a height.
func (s *Streams) DurableTo(height ledger.Height) {
	s.heights.durableTo(height)
	s.ring()
}

// Reset says that Config.Chain is another one now. Applied is not called for blocks of the one
// before after that.
func (s *Streams) Reset() {
	s.heights.reset()
	s.mail.mu.Lock()
	s.mail.reset = true
	s.mail.mu.Unlock()
	s.ring()
}

// Event takes in what the fabric says of peers (rdmanet.Host's Watch). It does not block.
func (s *Streams) Event(event rdmanet.PeerEvent) {
	if event.Kind != rdmanet.PeerRestarted && event.Kind != rdmanet.PeerConnected {
		return
	}
	if r, known := (*s.roles.Load())[event.Peer.ID]; known && r.out != nil && s.ctx.Err() == nil {
		s.mail.event(event)
		s.ring()
	}
}

// Propose hands over the entries of the parent's stream that belong into this node's next batch, in
// order, of up to room bytes in all; an entry of EntryMax bytes needs as much room, or waits. The
// call is left out where there is nothing. The bundles are parts of rings: whoever uses them copies
// them before use returns, and calls no method of Streams meanwhile. They count as proposed, and
// come again after a while if the chain does not take them.
func (s *Streams) Propose(room int, use func(carried []ledger.Carried)) {
	if s.in == nil || s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.heights.position()
	if s.in.carrier == nil || !at.known {
		return
	}
	s.in.advance(at)
	s.carried = s.carried[:0]
	for _, entry := range s.in.carrier.Propose(room) {
		s.carried = append(s.carried, ledger.Carried{Number: entry.Number, Bundle: entry.Payload})
	}
	if len(s.carried) > 0 {
		use(s.carried)
		clear(s.carried)
	}
}

// Close ends this node's part and waits for all its goroutines. Other methods do nothing after it.
// Closing again does nothing.
func (s *Streams) Close() error {
	s.cancel()
	s.working.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.mail.take().attached {
		a.close()
	}
	for _, o := range s.out {
		for _, outlet := range o.outlets {
			if outlet.connection != nil {
				_ = outlet.connection.attachment.Close() // only ever nil
				outlet.connection = nil
			}
		}
		o.writer = nil
	}
	var err error
	if s.in != nil {
		s.in.carrier = nil
		for writer, r := range s.in.rings {
			err = errors.Join(err, r.region.Close())
			delete(s.in.rings, writer)
		}
	}
	return errors.Join(err, s.queue.Close())
}

// ring has the loop look.
func (s *Streams) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// receive takes a message of a member of another shard.
func (s *Streams) receive(from rdmanet.Peer, payload []byte) {
	r, known := (*s.roles.Load())[from.ID]
	if !known || s.ctx.Err() != nil {
		return
	}
	m, err := decode(payload)
	if err != nil {
		s.config.Logger.Error("streams: bad message", "peer", from, "error", err)
		return
	}
	child := s.config.Directory.Own()
	if r.out != nil {
		child = r.out.child
	}
	if m.child != child || (m.kind == messageAsk) != (r.out == nil) {
		s.config.Logger.Warn("streams: a message for somebody else", "peer", from, "kind", m.kind,
			"child", m.child)
		return
	}
	s.mail.deliver(letter{from: from, message: m})
	s.ring()
}

// send says something to a peer; it may get lost.
func (s *Streams) send(to rdmanet.PeerID, m *message) bool {
	if err := s.config.Control.Send(to, control.KindStream, m.encode(nil)); err != nil {
		s.config.Logger.Debug("streams: not sent", "peer", to, "error", err)
		return false
	}
	return true
}

// complete takes the completions of what was posted.
func (s *Streams) complete() {
	var into [64]rdmanet.Completion
	for {
		n, err := s.queue.Wait(s.ctx, into[:])
		if err != nil {
			return
		}
		s.mail.mu.Lock()
		s.mail.completions = append(s.mail.completions, into[:n]...)
		s.mail.mu.Unlock()
		s.ring()
	}
}

// run is the loop.
func (s *Streams) run(changed <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.bell:
		case <-timer.C:
		case <-changed:
			changed = s.config.Directory.Changed()
			s.seat()
		}
		now := time.Now()
		s.wake = now.Add(lookAround)
		s.step(now)
		timer.Reset(max(0, time.Until(s.wake)))
	}
}

// by has the loop look at an instant at the latest.
func (s *Streams) by(at time.Time) {
	if at.Before(s.wake) {
		s.wake = at
	}
}

// due has the loop look when a machine wants to be told the time.
func (s *Streams) due(deadline uint64, waits bool) {
	if waits && deadline < uint64(s.wake.Sub(s.began)/tick) { // else it looks around before
		s.by(s.began.Add(time.Duration(deadline) * tick))
	}
}

// ticks is the machines' time. It begins with 1.
func (s *Streams) ticks(now time.Time) uint64 { return 1 + uint64(max(0, now.Sub(s.began))/tick) }

// number gives one that was not used.
func (s *Streams) number() uint64 {
	s.numbers++
	return s.numbers
}

// step has everything go on as far as it can.
func (s *Streams) step(now time.Time) {
	came := s.mail.take()
	for i := range came.completions {
		s.completed(&came.completions[i], now)
	}
	if came.reset {
		s.restart()
	}
	if s.in != nil {
		for _, l := range came.asks {
			s.in.asked(l)
		}
	}
	s.base()
	s.sort(&came, now)
	for _, o := range s.out {
		o.step(now)
	}
	s.post()
	if s.in != nil {
		s.in.step(now)
	}
}

// restart begins anew with another chain. Writers go on: what they were offered, no chain takes
// back.
func (s *Streams) restart() {
	if s.in != nil {
		s.in.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.out {
		o.reread()
	}
}

// sort hands to the ways to carriers what came for them.
func (s *Streams) sort(came *contents, now time.Time) {
	roles := *s.roles.Load()
	outlet := func(peer rdmanet.PeerID) *outlet {
		if r := roles[peer]; r.out != nil {
			return r.out.outlets[r.index]
		}
		return nil
	}
	for peer, incarnation := range came.restarted {
		if o := outlet(peer); o != nil {
			o.restarted(incarnation, now)
		}
	}
	for peer := range came.connected {
		if o := outlet(peer); o != nil {
			o.askSoon(now)
		}
	}
	for _, l := range came.offers {
		if o := outlet(l.from.ID); o != nil {
			o.offered(l, now)
		}
	}
	for _, a := range came.attached {
		a.outlet.attached(a, now)
	}
	for _, l := range came.feedbacks {
		if o := outlet(l.from.ID); o != nil {
			o.feedback(l)
		}
	}
}

// base reads what the chain began with, where nobody said so yet.
func (s *Streams) base() {
	life, based := s.heights.begun()
	if based {
		return
	}
	chain := s.config.Chain()
	if chain == nil {
		return
	}
	// In this order: the chain may grow in between, and the height must not be one at which less
	// had been carried.
	carried := chain.Carried()
	height := chain.AppendedHeight()
	s.heights.base(life, height, carried)
	s.heights.durableTo(s.config.Durable())
}

// seat takes in who the members are.
func (s *Streams) seat() {
	own := members(s.config.Directory.Members(s.config.Directory.Own()))
	roles := map[rdmanet.PeerID]role{}
	me, present := own.find(s.self)
	if s.in != nil {
		parent := members(s.config.Directory.Members(s.in.parent))
		for _, member := range parent {
			roles[member.Peer] = role{index: order.ServerID(member.Index)}
		}
		s.in.seat(parent, own, me, present)
	}
	for _, o := range s.out {
		child := members(s.config.Directory.Members(o.child))
		for _, member := range child {
			roles[member.Peer] = role{out: o, index: order.ServerID(member.Index)}
		}
		o.seat(own, child, me, present)
	}
	s.roles.Store(&roles)
	s.ring()
}

// machine is what a machine of a stream is made with.
func (s *Streams) machine(writers, carriers members, self order.ServerID) stream.Config {
	return stream.Config{
		Writers: writers.ids(), Carriers: carriers.ids(), Self: self, Stretch: stretch,
		Patience: uint64(s.config.Patience / tick),
		Entries:  s.config.Entries, EntryMax: EntryMax, RingSize: s.config.RingSize, Depth: depth,
	}
}

// members of a shard, ascending by index.
type members []Member

func (m members) find(peer rdmanet.PeerID) (order.ServerID, bool) {
	i := slices.IndexFunc(m, func(member Member) bool { return member.Peer == peer })
	if i < 0 {
		return 0, false
	}
	return order.ServerID(m[i].Index), true
}

func (m members) ids() []order.ServerID {
	ids := make([]order.ServerID, len(m))
	for i := range m {
		ids[i] = order.ServerID(m[i].Index)
	}
	return ids
}
