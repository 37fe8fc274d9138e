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
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// ErrConfig says what is wrong with a Config or Group; match it with errors.Is.
var ErrConfig = errors.New("detector: bad configuration")

// Config says what a detector connects. Host, Control, Peers and Suspect are needed.
type Config struct {
	Host    rdmanet.Host
	Control *control.Control
	// Self is this server's place in Peers.
	Self order.ServerID
	// Peers are all servers that can be members of a group, until SetPeers. A place may be empty.
	Peers []rdmanet.PeerID
	// Suspect hears of a predecessor that is suspected. It must return quickly and not call the
	// detector. The round driver's method of that name fits.
	Suspect func(generation uint64, server order.ServerID, cause error)
	// Trust, if set, hears of a predecessor that is not suspected any more; without it every
	// suspicion stands. The rules of Suspect hold.
	Trust  func(generation uint64, server order.ServerID)
	Timing Timing
	// Lane is the lane with the group's frames, "" stands for DefaultLane. Where a message on it
	// was lost, the suspicion stands.
	Lane string
	// Attach, if set, gives what this server's heartbeats carry; Attached hears what another
	// server's do, also of other generations.
	Attach   func() []byte
	Attached func(server order.ServerID, payload []byte)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// DefaultLane is Config.Lane where that is empty: the round driver's.
const DefaultLane = "order"

// eonBits of a run's number count the eons of its generation.
const eonBits = 16

// Group is whom a detector watches: the members of a run, as places in Config.Peers, ascending, and
// the reliable digraph over the places in Members. Generation is the run's number, generation<<16 |
// eon: who beats for a later eon of the same generation is alive in an earlier one, too.
type Group struct {
	Generation uint64
	Members    []order.ServerID
	Reliable   *digraph.Digraph
}

// Detector sends heartbeats and watches predecessors, from Activate to Deactivate; from Prepare on
// it sends heartbeats. All methods may be called from several goroutines.
type Detector struct {
	config  Config
	changed chan struct{} // the machine's next moment may have changed
	stop    chan struct{}
	done    chan struct{}

	telling sync.Mutex // held while news is passed on; taken before mu

	mu      sync.Mutex
	closed  bool
	peers   []rdmanet.PeerID
	servers map[rdmanet.PeerID]order.ServerID
	machine *Machine // nil while no run runs
	past    *Machine // the last one, for what it learned
	group   Group
	news    []news    // to be passed on, in order
	next    *Group    // the one that is prepared
	beat    time.Time // when the next group's heartbeats are due while no machine says so
	// lost are members that this server cannot reach in this run; the first told of them were told
	// of.
	lost    []order.ServerID
	told    int
	removed []order.ServerID // members that left the group in this run
}

// news is a suspicion, or its end, in a run.
type news struct {
	run uint64
	Suspicion
}

// New makes a detector that watches nobody yet, and registers it with Control and the host's
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
	if err := config.Control.Register(control.KindHeartbeat, d.heartbeat); err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	if err := config.Control.Register(control.KindAccusation, d.accused); err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	config.Host.Watch(d.event)
	go d.run()
	return d, nil
}

// SetPeers replaces the peers. One that is known keeps its place; the places of those that are
// peers no more are empty, and new peers come behind. ErrConfig.
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
		// Who is no peer any more is watched to the run's end, as it may be a member.
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

// check gives this server's place in a group.
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

// Prepare sends heartbeats to those who will watch this server in a group that is to come, until
// the next Activate or Deactivate. What runs is watched as before.
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

// Activate begins to watch the group, and forgets the one before, but for what it learned of the
// network.
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

// servers translates places in the group.
func (g Group) servers(places []int) []order.ServerID {
	servers := make([]order.ServerID, len(places))
	for i, place := range places {
		servers[i] = g.Members[place]
	}
	return servers
}

// successors are those who watch a member.
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

// Lost takes the news that this server lost its lane to another one, or gave it up: it is suspected
// for the rest of the run, here if it is watched here, and else by one of those who watch it, who
// are told. The round driver's hook of that name fits.
func (d *Detector) Lost(generation uint64, server order.ServerID, cause error) {
	d.mu.Lock()
	if d.runs(generation) {
		d.unreachable(server, cause)
	}
	d.mu.Unlock()
	d.pass()
}

// runs tells whether that run is watched. The lock is held.
func (d *Detector) runs(run uint64) bool { return d.machine != nil && d.group.Generation == run }

// Removed takes the news that servers left the group of that generation. They are watched no more,
// and get no heartbeats: one that is alive after all hears nobody then, and finds out that the
// group goes on without it. What they say of others counts for nothing. The round driver's hook of
// that name fits.
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
	d.told = 0 // whoever suspected on this server's word may be gone
	d.wake()
}

// unreachable notes that frames of this server to that one are lost. The goroutine tells the
// others. The lock is held.
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

// accusations says whom to tell of the lost servers that were not told of: the server itself, which
// lacks what this one sent; and one of those who watch it, unless this server does. One suspicion
// suffices to leave the unreliable rounds, and with them the lane that was lost; more would take a
// server that lives out of the group. The lock is held.
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

// accusation is to be sent to the judge.
type accusation struct{ judge, accused order.ServerID }

// accused takes another server's accusation.
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

// heartbeat takes another server's heartbeat: its run, and what it attached. One of another run of
// the same generation is a sign of life, too: eons end here and there at different times.
func (d *Detector) heartbeat(from rdmanet.Peer, payload []byte) {
	if len(payload) < 8 {
		d.config.Logger.Error("malformed heartbeat", "peer", from, "bytes", len(payload))
		return
	}
	run := binary.LittleEndian.Uint64(payload)
	d.mu.Lock()
	server, known := d.servers[from.ID]
	switch {
	case !known || d.machine == nil:
	case run == d.group.Generation:
		d.note(d.machine.Heard(server, from.Incarnation, time.Now()))
	case run>>eonBits == d.group.Generation>>eonBits:
		d.note(d.machine.HeardElsewhere(server, from.Incarnation, run > d.group.Generation,
			time.Now()))
	}
	d.mu.Unlock()
	d.pass()
	if known && d.config.Attached != nil && len(payload) > 8 {
		d.config.Attached(server, payload[8:])
	}
}

// event takes the fabric's news. A LaneReset is none: a round driver opens lanes only when a run
// begins.
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

// note queues what the machine says of the current run. The lock is held.
func (d *Detector) note(suspicions []Suspicion) {
	for _, suspicion := range suspicions {
		d.news = append(d.news, news{d.group.Generation, suspicion})
	}
}

// pass tells what was noted, in order. It is called without the lock.
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

// send sends a message to each of the servers but this one.
func (d *Detector) send(peers []rdmanet.PeerID, servers []order.ServerID, kind control.Kind,
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

func (d *Detector) wake() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// run ticks the machine at its moments.
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

// tick does what is due, and gives when to tick again.
func (d *Detector) tick() (next time.Time, active bool) {
	d.mu.Lock()
	if d.machine == nil && d.next == nil {
		d.mu.Unlock()
		return time.Time{}, false
	}
	now := time.Now()
	run, beat := d.group.Generation, false
	var judged []accusation
	var watchers, later []order.ServerID
	if d.machine != nil {
		var suspicions []Suspicion
		beat, suspicions = d.machine.Tick(now)
		d.note(suspicions)
		next = d.machine.Next()
		judged = d.accusations()
	}
	if beat {
		watchers = slices.DeleteFunc(d.group.successors(d.config.Self),
			func(server order.ServerID) bool {
				return slices.Contains(d.removed, server) || slices.Contains(d.lost, server)
			})
	}
	var laterRun uint64
	if d.next != nil {
		if !now.Before(d.beat) {
			d.beat = now.Add(d.config.Timing.Heartbeat)
			laterRun, later = d.next.Generation, d.next.successors(d.config.Self)
		}
		if next.IsZero() || d.beat.Before(next) {
			next = d.beat
		}
	}
	peers := d.peers // replaced, never changed
	d.mu.Unlock()
	d.pass()
	for _, a := range judged {
		d.send(peers, []order.ServerID{a.judge}, control.KindAccusation,
			binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, run),
				uint32(a.accused)))
	}
	d.beats(peers, watchers, run)
	d.beats(peers, later, laterRun)
	return next, true
}

// beats sends heartbeats.
func (d *Detector) beats(peers []rdmanet.PeerID, servers []order.ServerID, run uint64) {
	if len(servers) == 0 {
		return
	}
	message := binary.LittleEndian.AppendUint64(nil, run)
	if d.config.Attach != nil {
		message = append(message, d.config.Attach()...)
	}
	d.send(peers, servers, control.KindHeartbeat, message)
}
