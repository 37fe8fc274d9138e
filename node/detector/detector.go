package detector

import (
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
	// Peers are all servers that can be members of a group.
	Peers []rdmanet.PeerID
	// Suspect hears of a predecessor that is suspected, once a generation. It must return quickly and not call the detector. The round driver's
	// method of that name fits.
	Suspect func(generation uint64, server order.ServerID, cause error)
	Timing  Timing
	// Attach, if set, gives what this server's heartbeats carry; Attached hears what another server's do, also of other generations.
	Attach   func() []byte
	Attached func(server order.ServerID, payload []byte)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Group is whom a detector watches: the members of a generation, as places in Config.Peers, ascending, and the reliable digraph over the places in
// Members.
type Group struct {
	Generation uint64
	Members    []order.ServerID
	Reliable   *digraph.Digraph
}

// Detector sends heartbeats and watches predecessors, from Activate to Deactivate. All methods may be called from several goroutines.
type Detector struct {
	config  Config
	servers map[rdmanet.PeerID]order.ServerID
	changed chan struct{} // the machine's next moment may have changed
	stop    chan struct{}
	done    chan struct{}

	mu         sync.Mutex
	closed     bool
	machine    *Machine // nil while no generation runs
	group      Group
	successors []order.ServerID
	// accusations are members that cannot be reached and are not watched here, each once a generation; told of them so far.
	accusations []order.ServerID
	told        int
	removed     []order.ServerID // members that left the group in this generation
}

// New makes a detector that watches nobody yet, and registers it with Control and the host's events.
func New(config Config) (*Detector, error) {
	if config.Host == nil || config.Control == nil || config.Suspect == nil || int(config.Self) >= len(config.Peers) {
		return nil, fmt.Errorf("%w: Host, Control, Suspect and Self among Peers are needed", ErrConfig)
	}
	timing, err := config.Timing.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	config.Timing = timing
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	d := &Detector{
		config:  config,
		servers: make(map[rdmanet.PeerID]order.ServerID, len(config.Peers)),
		changed: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for i, peer := range config.Peers {
		d.servers[peer] = order.ServerID(i)
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

// Activate begins to watch the group, and forgets the one before.
func (d *Detector) Activate(group Group) error {
	place, member := slices.BinarySearch(group.Members, d.config.Self)
	switch {
	case !member:
		return fmt.Errorf("%w: server %d is not among the members %v", ErrConfig, d.config.Self, group.Members)
	case group.Reliable == nil || group.Reliable.Order() != len(group.Members):
		return fmt.Errorf("%w: the digraph is not over the %d members", ErrConfig, len(group.Members))
	case int(group.Members[len(group.Members)-1]) >= len(d.config.Peers):
		return fmt.Errorf("%w: members %v among %d peers", ErrConfig, group.Members, len(d.config.Peers))
	}
	group.Members = slices.Clone(group.Members)
	machine, err := NewMachine(d.config.Timing, group.servers(group.Reliable.Predecessors(place)), time.Now())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.machine, d.group = machine, group
	d.accusations, d.told, d.removed = nil, 0, nil
	d.successors = group.servers(group.Reliable.Successors(place))
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

// Deactivate ends watching and heartbeats until the next Activate.
func (d *Detector) Deactivate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machine, d.successors = nil, nil
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

// Lost takes the news that this server lost its lane to another one, or gave it up: it is suspected here if it is watched here, and those
// who watch it are told otherwise. The round driver's hook of that name fits.
func (d *Detector) Lost(generation uint64, server order.ServerID, cause error) {
	d.mu.Lock()
	var suspicions []Suspicion
	if d.machine != nil && d.group.Generation == generation {
		suspicions = d.unreachable(server, 0, cause)
	}
	d.mu.Unlock()
	d.tell(generation, suspicions)
}

// Removed takes the news that servers left the group of that generation. They are watched no more, and get no heartbeats: one that is alive after all
// hears nobody then, and finds out that the group goes on without it. What they say of others counts for nothing. The round driver's hook of that name fits.
func (d *Detector) Removed(generation uint64, servers []order.ServerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil || d.group.Generation != generation {
		return
	}
	isRemoved := func(server order.ServerID) bool { return slices.Contains(servers, server) }
	d.removed = append(d.removed, servers...)
	// The goroutine may be sending to the old list.
	d.successors = slices.DeleteFunc(slices.Clone(d.successors), isRemoved)
	for _, server := range servers {
		d.machine.Forget(server)
	}
}

// unreachable suspects a server that is watched here, and accuses another one: the goroutine tells those who watch it. The lock is held.
func (d *Detector) unreachable(server order.ServerID, incarnation rdmanet.Incarnation, cause error) []Suspicion {
	suspicions, watched := d.machine.Unreachable(server, incarnation, cause)
	if _, member := slices.BinarySearch(d.group.Members, server); !watched && member && !slices.Contains(d.accusations, server) && !slices.Contains(d.removed, server) {
		d.accusations = append(d.accusations, server)
		d.wake()
	}
	return suspicions
}

// accuse tells the successors of the accused servers, which alone may suspect them.
func (d *Detector) accuse(group Group, accusations []order.ServerID) {
	for _, server := range accusations {
		message := binary.LittleEndian.AppendUint64(nil, group.Generation)
		message = binary.LittleEndian.AppendUint32(message, uint32(server))
		place, _ := slices.BinarySearch(group.Members, server)
		for _, judge := range group.servers(group.Reliable.Successors(place)) {
			d.send(judge, control.KindAccusation, message)
		}
	}
}

// accused takes another server's accusation.
func (d *Detector) accused(from rdmanet.Peer, payload []byte) {
	if len(payload) != 12 {
		d.config.Logger.Error("malformed accusation", "peer", from, "bytes", len(payload))
		return
	}
	generation := binary.LittleEndian.Uint64(payload)
	server := order.ServerID(binary.LittleEndian.Uint32(payload[8:]))
	accuser, known := d.servers[from.ID]
	d.mu.Lock()
	var suspicions []Suspicion
	if d.machine != nil && d.group.Generation == generation && known && slices.Contains(d.group.Members, accuser) &&
		!slices.Contains(d.removed, accuser) {
		suspicions, _ = d.machine.Unreachable(server, 0, fmt.Errorf("%w: server %d says so", ErrAccused, accuser))
	}
	d.mu.Unlock()
	d.tell(generation, suspicions)
}

// heartbeat takes another server's heartbeat: its generation, and what it attached.
func (d *Detector) heartbeat(from rdmanet.Peer, payload []byte) {
	server, known := d.servers[from.ID]
	if !known {
		return
	}
	if len(payload) < 8 {
		d.config.Logger.Error("malformed heartbeat", "peer", from, "bytes", len(payload))
		return
	}
	generation := binary.LittleEndian.Uint64(payload)
	d.mu.Lock()
	var suspicions []Suspicion
	if d.machine != nil && d.group.Generation == generation {
		suspicions = d.machine.Heard(server, from.Incarnation, time.Now())
	}
	d.mu.Unlock()
	d.tell(generation, suspicions)
	if d.config.Attached != nil && len(payload) > 8 {
		d.config.Attached(server, payload[8:])
	}
}

// event takes the fabric's news. A LaneReset is none: a round driver opens lanes only when a generation begins.
func (d *Detector) event(event rdmanet.PeerEvent) {
	server, known := d.servers[event.Peer.ID]
	if !known {
		return
	}
	d.mu.Lock()
	if d.machine == nil {
		d.mu.Unlock()
		return
	}
	generation := d.group.Generation
	var suspicions []Suspicion
	switch event.Kind {
	case rdmanet.PeerConnected:
		d.machine.Connected(server)
	case rdmanet.PeerDisconnected:
		d.machine.Disconnected(server, time.Now())
		d.wake()
	case rdmanet.PeerRestarted:
		suspicions = d.machine.Restarted(server, event.Peer.Incarnation)
	case rdmanet.PeerUnreachable:
		suspicions = d.unreachable(server, event.Peer.Incarnation, fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, event.Cause))
	case rdmanet.PeerRefused:
		suspicions = d.unreachable(server, event.Peer.Incarnation, fmt.Errorf("its process ended: %w", syscall.ECONNREFUSED))
	}
	d.mu.Unlock()
	d.tell(generation, suspicions)
}

// tell passes suspicions on. It is called without the lock.
func (d *Detector) tell(generation uint64, suspicions []Suspicion) {
	for _, suspicion := range suspicions {
		d.config.Suspect(generation, suspicion.Server, suspicion.Cause)
	}
}

func (d *Detector) send(server order.ServerID, kind control.Kind, payload []byte) {
	if server == d.config.Self {
		return
	}
	if err := d.config.Control.Send(d.config.Peers[server], kind, payload); err != nil {
		d.config.Logger.Debug("control message not sent", "server", server, "kind", kind, "error", err)
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
	if d.machine == nil {
		d.mu.Unlock()
		return time.Time{}, false
	}
	beat, suspicions := d.machine.Tick(time.Now())
	next = d.machine.Next()
	group, generation, successors := d.group, d.group.Generation, d.successors
	accusations := d.accusations[d.told:]
	d.told = len(d.accusations)
	d.mu.Unlock()
	d.tell(generation, suspicions)
	d.accuse(group, accusations)
	if beat {
		message := binary.LittleEndian.AppendUint64(nil, generation)
		if d.config.Attach != nil {
			message = append(message, d.config.Attach()...)
		}
		for _, successor := range successors {
			d.send(successor, control.KindHeartbeat, message)
		}
	}
	return next, true
}
