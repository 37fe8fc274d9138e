package multicast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// dareServers is DARE: one group whose servers order all messages. A client hands its message to
// every server. One of them A-broadcasts it, and the others do so after a while if it was not
// A-delivered. Whichever copy comes first is A-delivered.
//
// A replica that starts again takes over the messages that another one's user A-delivered. They are
// those of its earlier life, and more: both lives together A-deliver each message once.
type dareServers struct {
	world   *World
	config  dare.Config
	servers []*dareServer
	operator
	// watch judges the logs in a run. In a search, which goes back in time, it is nil.
	watch *dare.Watch
	// known are the messages that were A-delivered, told those of each replica in all its lives,
	// and rounds how many rounds some server A-delivered. They are the frame's, for its judgement.
	known  map[order.MessageID]order.Multicast
	told   [][]order.MessageID
	rounds order.Round
}

// dareServer is a server, with what clients handed to it.
type dareServer struct {
	*dare.Server
	waiting   []dareMessage // in the order of arrival, and not A-delivered
	delivered []order.MessageID
	worked    time.Duration // for the detector of lost servers, as in tramReplicas
	round     order.Round   // the next one, 0 before a server that joins knows it
	read      dareRead
	trail     dare.Trail // in a search
}

// dareMessage is a message that a server has from a client.
type dareMessage struct {
	order.Multicast
	since time.Duration
	sent  bool // this server A-broadcast it
}

const (
	// dareHead bounds what appendMessage puts before a payload for one group.
	dareHead = 32
	// dareTakesOver is how long the next server waits before it A-broadcasts a message too.
	dareTakesOver = 3 * time.Millisecond
)

// darePlants names the bugs that can be planted, and that seeds show. Tests of package dare show
// the others, whose moment is rare: a leader that rewrites what it finds in order has to end
// between two of its writes; the only server that can win has to wait longer than all others; a
// server that never learns of another has to be the only one that a majority lacks; two leaders
// change the group at once; a leader that counts itself in a smaller group needs a bare majority of
// it. And no run ends here.
func darePlants() []string {
	hidden := []dare.Fault{dare.FaultAdjustToCommit, dare.FaultRefusalWaits,
		dare.FaultLateNeverLearns, dare.FaultConfigWithoutCommit, dare.FaultLeaderCountsItself,
		dare.FaultFreezeKeepsLog, dare.FaultAppendsPastEnd, dare.FaultPartialRounds,
		dare.FaultNeverAsks}
	var names []string
	for _, fault := range dare.Faults() {
		if !slices.Contains(hidden, fault) {
			names = append(names, fault.String())
		}
	}
	return names
}

func newDARE(world *World, plant string) (Form, error) {
	d := world.Deployment()
	members := d.Members(0)
	f := &dareServers{world: world, known: map[order.MessageID]order.Multicast{},
		told: make([][]order.MessageID, len(members)), rounds: 1}
	if !world.searched() {
		f.watch = dare.NewWatch(len(members))
	}
	timeout := 600*time.Microsecond + 2*d.Patience
	config := dare.Config{FirstRound: 1, PayloadMax: d.PayloadMax + dareHead, LogSlots: d.Slots,
		Window: max(d.Slots/2, 1), Timeout: timeout, Beat: timeout / 6, Patience: d.Patience}
	for _, fault := range dare.Faults() {
		if plant == fault.String() {
			config.Fault = fault
		}
	}
	for _, member := range members {
		host, err := world.Host(member)
		if err != nil {
			return nil, err
		}
		config.Peers = append(config.Peers,
			rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()})
	}
	f.config = config
	f.operator = operator{slices.Clone(config.Peers), len(members), d.Slots%2 == 0,
		make([]bool, len(members))}
	for _, member := range members {
		server, err := f.make(member)
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, &dareServer{Server: server, round: config.FirstRound})
	}
	return f, nil
}

// make makes a server on its host.
func (f *dareServers) make(member order.Replica) (*dare.Server, error) {
	host, err := f.world.Host(member)
	if err != nil {
		return nil, err
	}
	own := f.config
	own.Self = member.Server
	own.Peers = slices.Clone(f.config.Peers)
	own.Note = func(format string, arguments ...any) {
		f.world.Note(member, format, arguments...)
	}
	server, err := dare.New(own, host)
	if err != nil {
		return nil, fmt.Errorf("make server %d: %w", member.Server, err)
	}
	return server, nil
}

// Submit hands a message to all servers.
func (f *dareServers) Submit(client order.Replica, m order.Multicast) {
	letter := appendMessage(nil, m)
	for _, member := range f.world.Deployment().Members(0) {
		f.world.Send(client, member, letter)
	}
}

// Lead makes the server that an oracle names campaign, and another one suspect its leader if that
// is not the one named. DARE has its own detector besides.
func (f *dareServers) Lead(at order.Replica, leader order.ServerID) {
	s := f.servers[at.Server]
	if leader == at.Server {
		s.Campaign()
	} else if follows, known := s.Leader(); known && follows != leader {
		s.Suspect()
	}
}

// Poll makes a server work. Clients have nothing to do.
func (f *dareServers) Poll(at order.Replica) {
	if at.Group == order.Clients {
		return
	}
	host, err := f.world.Host(at)
	if err != nil {
		panic(fmt.Sprintf("the host of %v: %v", at, err))
	}
	s, now := f.servers[at.Server], f.world.Now()
	s.worked = now
	for other, o := range f.servers {
		if now-o.worked > goneAfter && !f.lost(other) {
			s.Exclude(order.ServerID(other))
		}
	}
	s.take(f.world.Receive(at), now)
	s.broadcast(int(at.Server), len(f.servers), now)
	s.Server.Poll(now)
	attachWanted(host, s)
	f.join(at)
	for _, delivery := range s.Deliveries() {
		if delivery.Round < s.round {
			continue // it is in what the replica took over
		}
		for _, message := range delivery.Messages {
			if len(message.Payload) > 0 {
				f.deliver(at, message.Payload)
			}
		}
		s.round = delivery.Round + 1
		f.rounds = max(f.rounds, s.round)
	}
	if !f.world.searched() {
		f.operate(s.Server)
		f.asks(at)
	}
	f.look(int(at.Server))
}

// take keeps the messages that clients handed over.
func (s *dareServer) take(letters []Letter, now time.Duration) {
	for _, letter := range letters {
		m, err := decodeMessage(letter.Bytes)
		if err != nil {
			panic(fmt.Sprintf("a client sent what is no message: %v", err))
		}
		if !slices.Contains(s.delivered, m.ID) {
			s.waiting = append(s.waiting, dareMessage{m, now, false})
		}
	}
}

// broadcast A-broadcasts messages: those of its own clients at once, and those of others' clients
// when their server had time to do so.
func (s *dareServer) broadcast(self, servers int, now time.Duration) {
	for i := range s.waiting {
		m := &s.waiting[i]
		distance := (self + servers - int(m.ID.Sender.Server)%servers) % servers
		if m.sent || now < m.since+time.Duration(distance)*dareTakesOver {
			continue
		}
		switch err := s.Broadcast(appendMessage(nil, m.Multicast)); {
		case errors.Is(err, order.ErrNotNow), errors.Is(err, order.ErrHalted):
			return
		case err != nil:
			panic(fmt.Sprintf("a server refuses a message: %v", err))
		}
		s.waiting = slices.Clone(s.waiting) // copies keep theirs
		s.waiting[i].sent = true
	}
}

// deliver A-delivers a message, unless another server's copy of it came before.
func (f *dareServers) deliver(at order.Replica, payload []byte) {
	s := f.servers[at.Server]
	m, err := decodeMessage(payload)
	if err != nil {
		f.world.Breaks(order.Integrity, fmt.Sprintf("%v A-delivers what nobody sent: %v", at, err))
		return
	}
	if slices.Contains(s.delivered, m.ID) {
		return
	}
	s.delivered = append(slices.Clip(s.delivered), m.ID)
	kept := make([]dareMessage, 0, len(s.waiting))
	for _, other := range s.waiting {
		if other.ID != m.ID {
			kept = append(kept, other)
		}
	}
	s.waiting = kept
	if f.world.searched() {
		f.world.Deliver(at, m)
		return
	}
	f.known[m.ID] = m
	f.tell(at, len(s.delivered)-1)
}

// look judges the logs of the servers whose hosts have not ended.
func (f *dareServers) look(at int) {
	broken := ""
	if f.watch != nil {
		broken = f.watch.Look(f.live(), at)
	} else {
		f.servers[at].trail.Look(f.servers[at].Server)
	}
	if f.watch == nil && !f.world.tabulated {
		broken = dare.Check(f.live())
	}
	halted := f.servers[at].Halted()
	if broken == "" && halted != "" && !f.servers[at].Removed() {
		broken = fmt.Sprintf("server %d halts: %s", at, halted)
	}
	if broken != "" {
		f.world.Breaks(Invariant, broken)
	}
}

// live returns the servers whose hosts have not ended, and nil for the others.
func (f *dareServers) live() []*dare.Server {
	live := make([]*dare.Server, len(f.servers))
	for i, s := range f.servers {
		if !f.world.processes[i].crashed {
			live[i] = s.Server
		}
	}
	return live
}

// Take makes a process take its letters.
func (f *dareServers) Take(at order.Replica) {
	if at.Group != order.Clients {
		f.servers[at.Server].take(f.world.Receive(at), f.world.Now())
	}
}

// Shown returns the region whose contents Judge looks into, or nil.
func (f *dareServers) Shown(at order.Replica) rdmanet.Region {
	if at.Group == order.Clients {
		return nil
	}
	return f.servers[at.Server].Log()
}

// Idle reports whether a completion changes nothing.
func (f *dareServers) Idle(at order.Replica, tag uint64) bool {
	return at.Group != order.Clients && f.servers[at.Server].Idle(tag)
}

// AppendView appends what Judge depends on, except the contents of Shown.
func (f *dareServers) AppendView(state []byte, at order.Replica) []byte {
	if at.Group == order.Clients {
		return state
	}
	s := f.servers[at.Server]
	state = s.trail.Append(state)
	if f.world.processes[at.Server].crashed {
		return state
	}
	return s.Server.AppendView(state)
}

// Judge judges the servers' logs, and what they showed.
func (f *dareServers) Judge() string {
	trails := make([]*dare.Trail, len(f.servers))
	for i, s := range f.servers {
		trails[i] = &s.trail
	}
	if broken := dare.Check(f.live()); broken != "" {
		return broken
	}
	return dare.CheckTrails(trails)
}

// Copy returns a copy of a process's state.
func (f *dareServers) Copy(at order.Replica) any {
	if at.Group == order.Clients {
		return nil
	}
	return f.servers[at.Server].copy()
}

func (s *dareServer) copy() *dareServer {
	own := *s
	own.Server = s.Server.Copy()
	own.waiting, own.delivered = slices.Clone(s.waiting), slices.Clip(s.delivered)
	return &own
}

// PutBack restores a process's state. Its reads under way lead to its new memory.
func (f *dareServers) PutBack(at order.Replica, copied any) {
	if s, is := copied.(*dareServer); is {
		f.servers[at.Server] = s.copy()
		f.servers[at.Server].Reads(func(tag uint64, into []byte) {
			f.world.redirect(at, tag, into)
		})
	}
}

// Complete makes a process handle its completions.
func (f *dareServers) Complete(at order.Replica) {
	if at.Group != order.Clients {
		f.servers[at.Server].Complete(f.world.Now())
	}
}

// Awaits reports whether a process waits for a completion.
func (f *dareServers) Awaits(at order.Replica, tag uint64) bool {
	return at.Group != order.Clients && f.servers[at.Server].Awaits(tag)
}

// AppendOperation appends a description of an operation of a process.
func (f *dareServers) AppendOperation(state []byte, at order.Replica, tag uint64) []byte {
	return f.servers[at.Server].AppendOperation(state, tag)
}

// AppendState appends the process's state.
func (f *dareServers) AppendState(state []byte, at order.Replica) []byte {
	if at.Group == order.Clients {
		return state
	}
	s, now := f.servers[at.Server], f.world.Now()
	state = binary.AppendUvarint(state, uint64(min(now-s.worked, goneAfter+1)))
	for _, m := range s.waiting {
		state = appendBytes(state, appendMessage(nil, m.Multicast))
		state = binary.AppendUvarint(state,
			uint64(min(now-m.since, ReplicasMax*dareTakesOver)))
		if m.sent {
			state = append(state, 1)
		}
	}
	return s.Server.AppendState(append(state, byte(len(s.delivered))), now)
}

// Describe describes the process's state.
func (f *dareServers) Describe(at order.Replica) string {
	if at.Group == order.Clients {
		return "handed its messages to all servers"
	}
	s := f.servers[at.Server]
	return fmt.Sprintf("%v; %d messages wait", s.Server, len(s.waiting))
}
