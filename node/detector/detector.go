package detector

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// ErrConfig reports an invalid Config or Group. Match it with errors.Is.
var ErrConfig = errors.New("detector: bad configuration")

// Config configures a detector. Host, Control, Peers and Suspect are required.
type Config struct {
	Host    rdmanet.Host
	Control *wire.Datagrams
	// Self is this server's place in Peers.
	Self order.ServerID
	// Peers are all servers that can be members of a group. SetPeers replaces them. A place may be
	// empty.
	Peers []rdmanet.PeerID
	// Suspect is called for a predecessor that becomes suspected. It must return quickly and must
	// not call the detector. The round driver's method of that name fits.
	Suspect func(generation uint64, server order.ServerID, cause error)
	// Trust, if set, is called for a predecessor that is no longer suspected. Without it no
	// suspicion is taken back. The rules of Suspect apply.
	Trust  func(generation uint64, server order.ServerID)
	Timing Timing
	// Lane is the lane with the group's frames. "" means DefaultLane. If a message on it was lost,
	// the suspicion stands.
	Lane string
	// Quiet, if set, reports whether this server has nothing under way that its failure would hold
	// up. Its heartbeats then come every Timing.Quiet. Call Hurry when that ends.
	Quiet func() bool
	// Attach, if set, returns the data that this server's heartbeats carry. Attached, if set, is
	// called with the data of another server's heartbeats, also of other generations.
	Attach   func() []byte
	Attached func(server order.ServerID, payload []byte)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// DefaultLane is the default of Config.Lane: the round driver's lane.
const DefaultLane = "order"

// eonBits is how many low bits of a run's number count the eons of its generation.
const eonBits = 16

// Group is the group that a detector watches. Members are the members of a run, as places in
// Config.Peers, ascending. Reliable is the reliable digraph over the places in Members. Generation
// is the run's number, generation<<16 | eon. A heartbeat of another eon of the same generation
// shows life, too.
type Group struct {
	Generation uint64
	Members    []order.ServerID
	Reliable   *digraph.Digraph
}

// Detector sends heartbeats and watches predecessors, from Activate to Deactivate. From Prepare on
// it sends heartbeats. All methods are safe for concurrent use.
type Detector struct {
	config  Config
	changed chan struct{} // the time of the next tick may have changed
	stop    chan struct{}
	done    chan struct{}

	telling sync.Mutex // held while news is passed on; taken before mu

	mu      sync.Mutex
	closed  bool
	peers   []rdmanet.PeerID
	servers map[rdmanet.PeerID]order.ServerID
	machine *Machine // nil while no run runs
	past    *Machine // the machine of the last run, for its knowledge of the links
	group   Group
	news    []news    // to be passed on, in order
	next    *Group    // the prepared group
	beat    time.Time // when the next group's heartbeats are due
	// lost are members that this server cannot reach in this run. The first told of them have been
	// reported to other servers.
	lost    []order.ServerID
	told    int
	removed []order.ServerID // members that left the group in this run
}

// news is a suspicion, or its end, in a run.
type news struct {
	run uint64
	Suspicion
}

// New makes a detector that watches no server yet, and registers it with Control and the host's
// events.
func New(config Config) (*Detector, error) {
	if config.Host == nil || config.Control == nil || config.Suspect == nil ||
		int(config.Self) >= len(config.Peers) {
		return nil, fmt.Errorf("%w: Host, Control, Suspect and Self among Peers are needed",
			ErrConfig)
	}
	timing, err := config.Timing.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	config.Timing = timing
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.Lane = cmp.Or(config.Lane, DefaultLane)
	d := &Detector{config: config, changed: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{})}
	if err := d.SetPeers(config.Peers); err != nil {
		return nil, err
	}
	if err := config.Control.Register(wire.KindHeartbeat, d.heartbeat); err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	if err := config.Control.Register(wire.KindAccusation, d.accused); err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	config.Host.Watch(d.event)
	go d.run()
	return d, nil
}

// SetPeers replaces the peers. A known peer keeps its place. The places of departed peers are
// empty, and new peers come last. It returns ErrConfig if this server's own place is wrong or a
// peer is listed twice.
func (d *Detector) SetPeers(peers []rdmanet.PeerID) error {
	servers := make(map[rdmanet.PeerID]order.ServerID, len(peers))
	for i, peer := range peers {
		if _, twice := servers[peer]; twice {
			return fmt.Errorf("%w: peer %s is listed twice", ErrConfig, peer)
		}
		if peer != "" {
			servers[peer] = order.ServerID(i)
		}
	}
	if self, listed := servers[d.config.Host.ID()]; !listed || self != d.config.Self {
		return fmt.Errorf("%w: peer %d of %d is not the host, %s", ErrConfig, d.config.Self,
			len(peers), d.config.Host.ID())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for peer, was := range d.servers {
		// A departed peer is watched until the run's end, as it may be a member.
		if _, listed := servers[peer]; !listed && int(was) < len(peers) && peers[was] == "" &&
			d.machine != nil && slices.Contains(d.group.Members, was) {
			servers[peer] = was
		}
	}
	d.peers, d.servers = slices.Clone(peers), servers
	for peer, server := range servers {
		d.peers[server] = peer
	}
	return nil
}

// check returns this server's place in a group, or an error for an invalid group.
func (d *Detector) check(group Group) (place int, err error) {
	place, member := slices.BinarySearch(group.Members, d.config.Self)
	switch {
	case !member:
		return 0, fmt.Errorf("%w: server %d is not among the members %v", ErrConfig, d.config.Self,
			group.Members)
	case group.Reliable == nil || group.Reliable.Order() != len(group.Members):
		return 0, fmt.Errorf("%w: the digraph is not over the %d members", ErrConfig,
			len(group.Members))
	case int(group.Members[len(group.Members)-1]) >= len(d.peers):
		return 0, fmt.Errorf("%w: members %v among %d peers", ErrConfig, group.Members,
			len(d.peers))
	}
	return place, nil
}

// Prepare starts heartbeats for a later group, to the servers that will watch this server in it,
// until the next Activate or Deactivate. The current run is still watched.
func (d *Detector) Prepare(group Group) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.check(group); err != nil {
		return err
	}
	group.Members = slices.Clone(group.Members)
	d.next, d.beat = &group, time.Now()
	d.wake()
	return nil
}

// Activate begins to watch the group instead of the one before. It keeps the knowledge of the
// links.
func (d *Detector) Activate(group Group) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	place, err := d.check(group)
	if err != nil {
		return err
	}
	group.Members = slices.Clone(group.Members)
	machine, err := NewMachine(d.config.Timing, group.servers(group.Reliable.Predecessors(place)),
		time.Now())
	if err != nil {
		return err
	}
	if d.closed {
		return nil
	}
	machine.final = d.config.Trust == nil
	machine.learn(d.past)
	d.machine, d.past, d.group, d.next = machine, machine, group, nil
	d.lost, d.told, d.removed = nil, 0, nil
	d.wake()
	return nil
}

// servers converts places in the group to servers.
func (g Group) servers(places []int) []order.ServerID {
	servers := make([]order.ServerID, len(places))
	for i, place := range places {
		servers[i] = g.Members[place]
	}
	return servers
}

// successors returns the servers that watch a member.
func (g Group) successors(server order.ServerID) []order.ServerID {
	place, _ := slices.BinarySearch(g.Members, server)
	return g.servers(g.Reliable.Successors(place))
}

// Deactivate ends watching and heartbeats until the next Activate or Prepare.
func (d *Detector) Deactivate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machine, d.next = nil, nil
	d.wake()
}

// Close ends the detector and waits for its goroutine. Closing again does nothing more.
func (d *Detector) Close() {
	d.Deactivate()
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.stop)
	}
	d.mu.Unlock()
	<-d.done
}

// Lost reports that this server lost its lane to another server, or gave it up. That server is
// suspected for the rest of the run: by this server if it watches it, else by one of the servers
// that watch it, after an accusation. The round driver's hook of that name fits.
func (d *Detector) Lost(generation uint64, server order.ServerID, cause error) {
	d.mu.Lock()
	if d.runs(generation) {
		d.unreachable(server, cause)
	}
	d.mu.Unlock()
	d.pass()
}

// runs reports whether that run is watched. The lock must be held.
func (d *Detector) runs(run uint64) bool { return d.machine != nil && d.group.Generation == run }

// Removed reports that servers left the group of that generation. They are no longer watched and
// get no heartbeats. If such a server is alive after all, it gets no heartbeats from any member
// then, and finds out that the group continues without it. Its accusations are ignored. The round
// driver's hook of that name fits.
func (d *Detector) Removed(generation uint64, servers []order.ServerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.runs(generation) {
		return
	}
	d.removed = append(d.removed, servers...)
	for _, server := range servers {
		d.machine.Forget(server)
	}
	d.told = 0 // a server that suspects because of this server's accusation may be gone
	d.wake()
}

// unreachable records that frames from this server to another are lost. The detector's goroutine
// tells the others. The lock must be held.
func (d *Detector) unreachable(server order.ServerID, cause error) {
	if _, member := slices.BinarySearch(d.group.Members, server); !member ||
		slices.Contains(d.removed, server) {
		return
	}
	d.note(d.machine.Lost(server, cause))
	if !slices.Contains(d.lost, server) {
		d.lost = append(d.lost, server)
		d.wake()
	}
}

// accusations returns the accusations of lost servers that were not sent yet. One goes to the lost
// server itself, which lacks what this server sent. One goes to a server that watches it, unless
// this server does. One suspicion is enough to leave the unreliable rounds, and with them the lost
// lane. More would take a live server out of the group. The lock must be held.
func (d *Detector) accusations() []accusation {
	var list []accusation
	for _, server := range d.lost[d.told:] {
		if slices.Contains(d.removed, server) {
			continue
		}
		list = append(list, accusation{judge: server, accused: server})
		judges := d.group.successors(server)
		if slices.Contains(judges, d.config.Self) {
			continue
		}
		for _, judge := range judges {
			if !slices.Contains(d.removed, judge) && !slices.Contains(d.lost, judge) {
				list = append(list, accusation{judge, server})
				break
			}
		}
	}
	d.told = len(d.lost)
	return list
}

// accusation is sent to the judge.
type accusation struct{ judge, accused order.ServerID }

// accused handles another server's accusation.
func (d *Detector) accused(from rdmanet.Peer, payload []byte) {
	if len(payload) != 12 {
		d.config.Logger.Error("malformed accusation", "peer", from, "bytes", len(payload))
		return
	}
	generation := binary.LittleEndian.Uint64(payload)
	server := order.ServerID(binary.LittleEndian.Uint32(payload[8:]))
	d.mu.Lock()
	accuser, known := d.servers[from.ID]
	if known && d.runs(generation) && slices.Contains(d.group.Members, accuser) &&
		!slices.Contains(d.removed, accuser) {
		if server == d.config.Self {
			d.note(d.machine.Lost(accuser, fmt.Errorf("%w: it lost its lane to this server",
				ErrAccused)))
		} else {
			d.note(d.machine.Lost(server, fmt.Errorf("%w: server %d says so", ErrAccused, accuser)))
		}
	}
	d.mu.Unlock()
	d.pass()
}

// heartbeat handles another server's heartbeat: its run (u64), the milliseconds until the next one
// at most (u32), and the attached data. An earlier version sends the run only. A heartbeat of
// another run of the same generation is a sign of life, too, since servers end an eon at different
// times.
func (d *Detector) heartbeat(from rdmanet.Peer, payload []byte) {
	if len(payload) != 8 && len(payload) < 12 {
		d.config.Logger.Error("malformed heartbeat", "peer", from, "bytes", len(payload))
		return
	}
	run, period := binary.LittleEndian.Uint64(payload), time.Duration(0)
	if len(payload) > 8 {
		period = time.Duration(binary.LittleEndian.Uint32(payload[8:])) * time.Millisecond
	}
	d.mu.Lock()
	server, known := d.servers[from.ID]
	switch {
	case !known || d.machine == nil:
	case run == d.group.Generation:
		d.note(d.machine.Heard(server, from.Incarnation, period, time.Now()))
	case run>>eonBits == d.group.Generation>>eonBits:
		d.note(d.machine.HeardElsewhere(server, from.Incarnation, run > d.group.Generation,
			period, time.Now()))
	}
	d.mu.Unlock()
	d.pass()
	if known && d.config.Attached != nil && len(payload) > 12 {
		d.config.Attached(server, payload[12:])
	}
}

// event handles events of the fabric. It ignores LaneReset: a round driver opens lanes only when a
// run begins.
func (d *Detector) event(event rdmanet.PeerEvent) {
	d.mu.Lock()
	server, known := d.servers[event.Peer.ID]
	if !known || d.machine == nil {
		d.mu.Unlock()
		return
	}
	switch event.Kind {
	case rdmanet.PeerConnected:
		d.machine.Connected(server)
	case rdmanet.PeerDisconnected:
		d.machine.Disconnected(server, time.Now())
		d.wake()
	case rdmanet.PeerRestarted:
		d.note(d.machine.Restarted(server, event.Peer.Incarnation))
	case rdmanet.PeerUnreachable:
		if cause := fmt.Errorf("%w: %w", rdmanet.ErrUnreachable,
			event.Cause); event.Lane != d.config.Lane {
			d.note(d.machine.Unreachable(server, event.Peer.Incarnation, cause))
		} else if d.machine.concerns(server, event.Peer.Incarnation) {
			d.unreachable(server, cause)
		}
	case rdmanet.PeerRefused:
		d.note(d.machine.Unreachable(server, event.Peer.Incarnation,
			fmt.Errorf("its process ended: %w", syscall.ECONNREFUSED)))
	}
	d.mu.Unlock()
	d.pass()
}

// note queues the machine's suspicions for the current run. The lock must be held.
func (d *Detector) note(suspicions []Suspicion) {
	for _, suspicion := range suspicions {
		d.news = append(d.news, news{d.group.Generation, suspicion})
	}
}

// pass passes on the queued suspicions, in order. The lock must not be held.
func (d *Detector) pass() {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	list := d.news
	d.news = nil
	d.mu.Unlock()
	for _, n := range list {
		if n.TakenBack {
			d.config.Trust(n.run, n.Server)
		} else {
			d.config.Suspect(n.run, n.Server, n.Cause)
		}
	}
}

// send sends a message to each of the servers except this one.
func (d *Detector) send(peers []rdmanet.PeerID, servers []order.ServerID, kind wire.Kind,
	payload []byte) {
	for _, server := range servers {
		if server == d.config.Self || peers[server] == "" {
			continue
		}
		if err := d.config.Control.Send(peers[server], kind, payload); err != nil {
			d.config.Logger.Debug("control message not sent", "member", server, "kind", kind,
				"error", err)
		}
	}
}

// Hurry makes the heartbeats come at the short period at once if Config.Quiet no longer says that
// this server has nothing under way.
func (d *Detector) Hurry() { d.wake() }

func (d *Detector) wake() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// run ticks the machine when a tick is due.
func (d *Detector) run() {
	defer close(d.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-d.changed:
		case <-timer.C:
		}
		if next, active := d.tick(); active {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// tick does everything that is due, and returns when to tick again.
func (d *Detector) tick() (next time.Time, active bool) {
	d.mu.Lock()
	if d.machine == nil && d.next == nil {
		d.mu.Unlock()
		return time.Time{}, false
	}
	now := time.Now()
	run, due := d.group.Generation, false
	var period time.Duration
	var judged []accusation
	var watchers, later []order.ServerID
	if d.machine != nil {
		var suspicions []Suspicion
		d.machine.SetQuiet(d.config.Quiet != nil && d.config.Quiet())
		due, suspicions = d.machine.Tick(now)
		period = d.machine.UntilNext(now)
		d.note(suspicions)
		next = d.machine.Next()
		judged = d.accusations()
	}
	if due {
		watchers = slices.DeleteFunc(d.group.successors(d.config.Self),
			func(server order.ServerID) bool {
				return slices.Contains(d.removed, server) || slices.Contains(d.lost, server)
			})
	}
	var laterRun uint64
	if d.next != nil {
		if !now.Before(d.beat) {
			d.beat = beat.Next(now, d.config.Timing.Heartbeat)
			laterRun, later = d.next.Generation, d.next.successors(d.config.Self)
		}
		if next.IsZero() || d.beat.Before(next) {
			next = d.beat
		}
	}
	peers := d.peers // replaced as a whole, never modified
	d.mu.Unlock()
	d.pass()
	for _, a := range judged {
		d.send(peers, []order.ServerID{a.judge}, wire.KindAccusation,
			binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, run),
				uint32(a.accused)))
	}
	d.beats(peers, watchers, run, period)
	d.beats(peers, later, laterRun, d.config.Timing.Heartbeat)
	return next, true
}

// beats sends heartbeats of a run. The next ones come after the period at most.
func (d *Detector) beats(peers []rdmanet.PeerID, servers []order.ServerID, run uint64,
	period time.Duration) {
	if len(servers) == 0 {
		return
	}
	message := binary.LittleEndian.AppendUint64(nil, run)
	atMost := (period + time.Millisecond - 1) / time.Millisecond
	message = binary.LittleEndian.AppendUint32(message, uint32(atMost))
	if d.config.Attach != nil {
		message = append(message, d.config.Attach()...)
	}
	d.send(peers, servers, wire.KindHeartbeat, message)
}
