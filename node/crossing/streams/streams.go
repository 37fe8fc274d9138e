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

	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// Defaults, and values that all members of a book must share.
const (
	// EntryMax bounds an entry of a stream, in bytes.
	EntryMax = ledger.MaxBundleBytes
	// RingSizeDefault is the size of a ring, in bytes.
	RingSizeDefault = 4 << 20
	// EntriesDefault bounds the entries of a stream that are under way.
	EntriesDefault = 1024
	// PatienceDefault is how long a position stands still before the next member takes over.
	PatienceDefault = 200 * time.Millisecond
	// AskEveryDefault is the interval of asking for a ring.
	AskEveryDefault = 500 * time.Millisecond
	// RepeatAfterDefault is the time until feedback is first repeated.
	RepeatAfterDefault = time.Second

	stretch = 64
	depth   = 64
	// tick is the unit of the machines' time.
	tick = time.Microsecond
)

// The pace of the loop.
const (
	// lookAround bounds the loop's sleep. It wakes together with other loops.
	lookAround = time.Second
	// feedbackPause is the minimum time between two feedbacks to a writer. repeatMax is the longest
	// pause between repetitions, as a multiple of the first.
	feedbackPause = 2 * time.Millisecond
	repeatMax     = 8
	// ringPause is the minimum time between two rings for a writer.
	ringPause = 50 * time.Millisecond
	// readPause is the pause after a failed read of the chain.
	readPause = time.Second
	// absentPause is the pause after the chain lacked an entry; its older blocks may still arrive.
	absentPause = 5 * time.Second
	// attachTimeout bounds an attempt to connect to a ring.
	attachTimeout = 10 * time.Second
)

// ErrConfig means that a configuration is incomplete or invalid.
var ErrConfig = errors.New("streams: bad configuration")

// Member is a member of a shard.
type Member struct {
	// Index is the member's index in its shard's chain.
	Index ledger.MemberIndex
	// Peer identifies the member on the fabric.
	Peer rdmanet.PeerID
}

// Directory lists the members of the shards. Its methods are safe for concurrent use and do not
// block.
type Directory interface {
	// Own returns this node's shard.
	Own() ledger.ShardID
	// Tree returns the book's tree of shards as it is now, as far as the chain here has it durably.
	// It may change before Changed tells.
	Tree() *ledger.ShardTree
	// Members returns a shard's members, ascending by index; read-only. A shard with which the
	// operators settled has none.
	Members(shard ledger.ShardID) []Member
	// Changed returns a channel that is closed at the next change of any shard's members, or of the
	// tree.
	Changed() <-chan struct{}
}

// Chain is the part of the own shard's chain that this package reads; *store.Store implements it.
type Chain interface {
	// Stream returns entries of the stream to a child in order, from a number on, from blocks up to
	// a height. It returns store.ErrAbsent if an entry is not in this chain for good.
	Stream(child ledger.ShardID, from uint64, limit int, upTo ledger.Height) ([]ledger.Carried,
		error)
	// Carried returns the number of the last entry of the parent's stream in the chain.
	Carried() uint64
	// FirstUntaken returns the first entry for a child that has entries up to a number and lacks
	// this one. It reports whether there is one.
	FirstUntaken(child ledger.ShardID, taken uint64) (first, last uint64, any bool)
	// AppendedHeight returns the height of the last block.
	AppendedHeight() ledger.Height
}

// Config of Streams. Directory, Host, Control, Chain, Durable and Ready are required.
type Config struct {
	Directory Directory
	// Host is this node's end of the fabric. The members of the parent and of the children must be
	// members of it.
	Host    rdmanet.RegionHost
	Control *wire.Datagrams
	// Chain returns the current chain, or nil while there is none.
	Chain func() Chain
	// Durable returns the height up to which a majority of the own shard has the chain on disk, as
	// far as this node knows.
	Durable func() ledger.Height
	// Ready is called when Propose has something. It must not block.
	Ready  func()
	Logger *slog.Logger

	// Vouched is the genesis' VouchedCrossings: an entry of the parent's stream counts here only if
	// more than half of the parent's present members wrote the same, and Propose says which do.
	Vouched bool

	// RingSize, in bytes, Entries and Patience must be the same at all members of the book. Zero
	// values mean the defaults, here and below.
	RingSize, Entries int
	Patience          time.Duration
	// AskEvery is the interval of asking for a ring, and RepeatAfter the time until feedback is
	// repeated.
	AskEvery, RepeatAfter time.Duration

	fault fault
}

// fault is a bug to plant, for the tests to find.
type fault uint8

const (
	_ fault = iota // none
	// faultSameRing offers the same ring again to a writer that asks for another.
	faultSameRing
	// faultBeyondDurable offers writers entries that the chain can still take back.
	faultBeyondDurable
	// faultEarlyPosition tells writers a position that is not durable.
	faultEarlyPosition
	// faultFewWitnesses believes each member of the parent.
	faultFewWitnesses
	// faultHasty calls Ready whenever there is something to vouch for.
	faultHasty
	// faultLetGo ends the stream to a shard as soon as that hangs below another one.
	faultLetGo
	// faultNotRevoked lets a ring go that its writer can still write.
	faultNotRevoked
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

// role is the relation of a peer to this node: a member of a child, of the parent, or of a shard
// that was the parent once. After changes of the tree it may be several of these.
type role struct {
	index         order.ServerID
	out           *outgoing // to the child, or nil
	above, former bool      // the parent, and a former one
}

// Streams is one node's part in the streams to and from its shard. All methods are safe for
// concurrent use.
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

	// mu guards the machines, and the fields that hold them. Only the loop changes these fields, so
	// it takes the lock to change them but not to read them.
	mu  sync.Mutex
	in  *incoming // nil at the root
	out []*outgoing
	// done are the shards that were children once, and need nothing from here any more, with the
	// number of changes of the tree that were known then.
	done map[ledger.ShardID]int

	// Only the loop uses the fields below.
	numbers     uint64 // the last attempt, life or connection
	connections map[uint64]*connection
	backlog     []rdmanet.Operation
	wake        time.Time
	carried     []ledger.Carried // guarded by mu
	vouched     []ledger.Vouched // guarded by mu
}

// New starts a node's part. Close it before the host. It returns ErrConfig, wire.ErrRegistered,
// or an error of the fabric.
func New(config Config) (*Streams, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Streams{
		config: config, self: config.Host.ID(), began: now, bell: make(chan struct{}, 1),
		// A number is never used twice, not even by an earlier process on this host.
		numbers: uint64(now.UnixNano()), connections: map[uint64]*connection{},
		done: map[ledger.ShardID]int{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	changed := config.Directory.Changed()
	s.seat()
	if s.queue, err = config.Host.Queue(rdmanet.QueueDepthMax); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	if err := config.Control.Register(wire.KindStream, s.receive); err != nil {
		return nil, errors.Join(fmt.Errorf("streams: %w", err), s.queue.Close())
	}
	s.Reset()
	s.working.Go(s.complete)
	s.working.Go(func() { s.run(changed) })
	return s, nil
}

// Applied records that a block was executed here, ordered by this node or fetched from a peer, and
// the carried number after it.
func (s *Streams) Applied(height ledger.Height, carried uint64) {
	s.heights.applied(height, carried)
	s.ring()
}

// DurableTo records that a majority of the shard has the chain on disk up to a height.
func (s *Streams) DurableTo(height ledger.Height) {
	s.heights.durableTo(height)
	s.ring()
}

// Reset records that Config.Chain now returns another chain. Applied is not called for blocks of
// the previous chain after that.
func (s *Streams) Reset() {
	s.heights.reset()
	s.mail.mu.Lock()
	s.mail.reset = true
	s.mail.mu.Unlock()
	s.ring()
}

// Event handles an event of a peer from the fabric (rdmanet.Host's Watch). It does not block.
func (s *Streams) Event(event rdmanet.PeerEvent) {
	if event.Kind != rdmanet.PeerRestarted && event.Kind != rdmanet.PeerConnected {
		return
	}
	if r, known := (*s.roles.Load())[event.Peer.ID]; known && r.out != nil && s.ctx.Err() == nil {
		s.mail.event(event)
		s.ring()
	}
}

// Propose passes to use the entries of the parent's stream for this node's next batch, in order, of
// up to room bytes in all. An entry of EntryMax bytes needs that much room, or waits. Propose does
// not call use if there is nothing for it. The slices and the bundles, which are parts of rings,
// are valid only during the call: use copies them before it returns, and calls no method of
// Streams. The entries count as proposed, and are proposed again after a while if the chain does
// not take them.
//
// If Config.Vouched is set, vouched are the entries that this node believes and that the chain
// lacks, by ascending number without gaps, whether carried or not. Every call has all of them, up
// to ledger.MaxBatchVouched or a quarter of the room, counted as ledger.VouchedSize each, which
// carried does not get. They include all of carried. An entry of EntryMax bytes needs room for
// itself and the vouched entries up to it.
func (s *Streams) Propose(room int,
	use func(carried []ledger.Carried, vouched []ledger.Vouched)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.heights.position()
	if s.in == nil || s.ctx.Err() != nil || s.in.carrier == nil || !at.Known {
		return
	}
	s.in.advance(at)
	s.vouched = s.vouched[:0]
	if s.config.Vouched {
		room = s.in.vouch(room)
	}
	s.carried = s.carried[:0]
	for _, entry := range s.in.carrier.Propose(room) {
		s.carried = append(s.carried, ledger.Carried{Number: entry.Number, Bundle: entry.Payload})
	}
	if len(s.carried)+len(s.vouched) > 0 {
		use(s.carried, s.vouched)
		clear(s.carried)
	}
}

// Close ends this node's part and waits for all its goroutines. Other methods do nothing after it.
// A second Close does nothing.
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

// ring wakes the loop.
func (s *Streams) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// receive handles a message of a member of another shard.
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
	asks := m.kind == messageAsk && m.child == s.config.Directory.Own() && (r.above || r.former)
	if !asks && (m.kind == messageAsk || r.out == nil || m.child != r.out.child) {
		s.config.Logger.Warn("streams: a message for another node", "peer", from, "kind", m.kind,
			"child", m.child)
		return
	}
	s.mail.deliver(received{from: from, message: m})
	s.ring()
}

// send sends a message to a peer; it may get lost.
func (s *Streams) send(to rdmanet.PeerID, m *message) bool {
	if err := s.config.Control.Send(to, wire.KindStream, m.encode(nil)); err != nil {
		s.config.Logger.Debug("streams: not sent", "peer", to, "error", err)
		return false
	}
	return true
}

// complete collects the completions of posted operations.
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
		s.wake = beat.Next(now, lookAround)
		s.step(now)
		timer.Reset(max(0, time.Until(s.wake)))
	}
}

// by makes the loop look at the given time at the latest.
func (s *Streams) by(at time.Time) {
	if at.Before(s.wake) {
		s.wake = at
	}
}

// due makes the loop look at a machine's deadline.
func (s *Streams) due(deadline uint64, waits bool) {
	if waits && deadline < uint64(s.wake.Sub(s.began)/tick) { // else it looks earlier anyway
		s.by(s.began.Add(time.Duration(deadline) * tick))
	}
}

// ticks returns the machines' time. It begins with 1.
func (s *Streams) ticks(now time.Time) uint64 { return 1 + uint64(max(0, now.Sub(s.began))/tick) }

// number returns a number that was not used before.
func (s *Streams) number() uint64 {
	s.numbers++
	return s.numbers
}

// step processes the mail and advances all streams as far as possible.
func (s *Streams) step(now time.Time) {
	came := s.mail.take()
	for i := range came.completions {
		s.completed(&came.completions[i], now)
	}
	if came.reset {
		s.restart()
	}
	for _, l := range came.asks {
		s.asked(l)
	}
	s.base()
	s.sort(&came, now)
	for _, o := range s.out {
		o.step(now)
	}
	s.letGo()
	s.post()
	if s.in != nil {
		s.in.step(now)
	}
}

// restart begins anew with another chain. Writers continue, since no chain takes back the entries
// that they were offered.
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

// sort passes input from carriers to their outlets.
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

// base reads the initial values of the chain, unless they are known already.
func (s *Streams) base() {
	life, based := s.heights.begun()
	if based {
		return
	}
	chain := s.config.Chain()
	if chain == nil {
		return
	}
	// The order matters: the chain may grow in between, and the height must not be one at which
	// less had been carried.
	carried := chain.Carried()
	height := chain.AppendedHeight()
	s.heights.base(life, height, carried)
	s.heights.durableTo(s.config.Durable())
}

// machine returns the configuration of a stream's machine.
func (s *Streams) machine(writers, carriers members, self order.ServerID) stream.Config {
	fault := stream.FaultNone
	if s.config.fault == faultFewWitnesses {
		fault = stream.FaultFewWitnesses
	}
	return stream.Config{
		Writers: writers.ids(), Carriers: carriers.ids(), Self: self, Stretch: stretch,
		Patience: uint64(s.config.Patience / tick),
		Entries:  s.config.Entries, EntryMax: EntryMax, RingSize: s.config.RingSize, Depth: depth,
		Witnessed: s.config.Vouched, Fault: fault,
	}
}

// members are the members of a shard, ascending by index.
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
