package multicast

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
	streams "github.com/ledgerd/ledgerd/tram/stream"
)

// The bugs that can be planted in the leaderless form.
const (
	// one member writes an entry to one other, and no member takes over: it is lost with its writer
	plantLoneWriter   = "lone-writer"
	plantEarlyReuse   = "early-reuse"   // a ring's bytes are overwritten before they are read
	plantOutOfTurn    = "out-of-turn"   // a stream's entries are taken in the order of arrival
	plantEnteredTwice = "entered-twice" // a message enters once for each proposal
	// clients enter at the first destination, not at the lowest common ancestor
	plantWrongAncestor = "wrong-ancestor"
)

var leaderlessPlants = []string{plantLoneWriter, plantEarlyReuse, plantOutOfTurn, plantEnteredTwice,
	plantWrongAncestor}

// tick is the unit of time of the streams.
const tick = time.Microsecond

// leaderless is TRAM over logs without leaders. Each group has an ideal log, its members run a
// tram.Relay over it, and streams lead from parents to children (package tram/stream). A client
// sends a message to f+1 members of the lowest common ancestor, which propose it.
type leaderless struct {
	world    *World
	plant    string
	logs     []*Log
	replicas map[order.Replica]*leaderlessReplica
	clients  map[order.Replica]*leaderlessClient
}

// leaderlessClient is the state of a client.
type leaderlessClient struct {
	// letters are to be sent, one a Poll, so that a client can crash between two.
	letters []clientLetter
}

type clientLetter struct {
	to    order.Replica
	bytes []byte
}

// leaderlessReplica is a member of a group.
type leaderlessReplica struct {
	form  *leaderless
	self  order.Replica
	host  rdmanet.RegionHost
	queue rdmanet.Queue
	log   *Log
	relay *tram.Relay
	// entered holds the messages that entered here. waiting are the clients' messages that are
	// still to be proposed.
	entered map[order.MessageID]bool
	waiting [][]byte
	// proposing reports that a proposal of this replica is not ordered yet. It has one at a time,
	// as a server has one message a round.
	proposing   bool
	down        []*downstream // by ascending child
	up          *upstream     // nil at the root
	completions [16]rdmanet.Completion
}

func newLeaderless(world *World, plant string) (Form, error) {
	l := &leaderless{world: world, plant: plant, replicas: map[order.Replica]*leaderlessReplica{},
		clients: map[order.Replica]*leaderlessClient{}}
	deployment := world.Deployment()
	for group := range deployment.Groups() {
		g := order.GroupID(group)
		l.logs = append(l.logs, world.NewLog(deployment.Members(g)))
		for _, self := range deployment.Members(g) {
			host, err := world.Host(self)
			if err != nil {
				return nil, err
			}
			queue, err := host.Queue(rdmanet.QueueDepthMax)
			if err != nil {
				return nil, fmt.Errorf("queue of %v: %w", self, err)
			}
			l.replicas[self] = &leaderlessReplica{
				form: l, self: self, host: host, queue: queue, log: l.logs[group],
				relay: tram.NewRelay(deployment.Tree, g), entered: map[order.MessageID]bool{},
			}
		}
	}
	for client := range deployment.Clients {
		l.clients[order.Replica{Group: order.Clients,
			Server: order.ServerID(client)}] = &leaderlessClient{}
	}
	for group := range deployment.Groups() {
		for _, child := range deployment.Tree.Children(order.GroupID(group)) {
			if err := l.join(order.GroupID(group), child); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// config returns the configuration that the members of a parent and a child agree on.
func (l *leaderless) config(parent, child order.GroupID) streams.Config {
	d := l.world.Deployment()
	const head = 64 // of a message, besides its payload
	config := streams.Config{
		Writers: servers(d.Sizes[parent]), Carriers: servers(d.Sizes[child]),
		Stretch: uint64(1 + d.Slots%3), Patience: uint64(max(d.Patience/tick, 1)),
		Entries: d.Slots, EntryMax: head + d.PayloadMax, Depth: 4 + d.Slots,
	}
	config.RingSize = 2*streams.RecordSize(config.EntryMax) + 8*d.Slots
	switch l.plant {
	case plantLoneWriter:
		config.Fault = streams.FaultLoneWriter
	case plantEarlyReuse:
		config.Fault = streams.FaultEarlyReuse
	}
	return config
}

// servers lists the servers of a group.
func servers(size int) []order.ServerID {
	all := make([]order.ServerID, size)
	for i := range all {
		all[i] = order.ServerID(i)
	}
	return all
}

// join connects all members of a parent to all of a child.
func (l *leaderless) join(parent, child order.GroupID) error {
	d, config := l.world.Deployment(), l.config(parent, child)
	for _, self := range d.Members(child) {
		if err := l.replicas[self].openUp(parent, config); err != nil {
			return err
		}
	}
	for _, self := range d.Members(parent) {
		if err := l.replicas[self].openDown(child, config); err != nil {
			return err
		}
	}
	for _, writer := range d.Members(parent) {
		for _, carrier := range d.Members(child) {
			from, to := l.replicas[writer], l.replicas[carrier]
			life, err := to.up.renew(to, writer)
			if err != nil {
				return fmt.Errorf("ring from %v to %v: %w", writer, carrier, err)
			}
			down := from.downTo(child)
			if err := down.attach(from, carrier, life, 0); err != nil {
				return fmt.Errorf("attach %v to %v: %w", writer, carrier, err)
			}
			if err := down.renew(from, carrier); err != nil {
				return err
			}
			if err := to.up.attach(to, writer); err != nil {
				return fmt.Errorf("attach %v to %v: %w", carrier, writer, err)
			}
		}
	}
	return nil
}

// Submit makes a client send a message to f+1 members of the group where it enters.
func (l *leaderless) Submit(client order.Replica, m order.Multicast) {
	d := l.world.Deployment()
	enter := d.Tree.LCA(m.To)
	if l.plant == plantWrongAncestor {
		enter = m.To[0]
	}
	letter := appendMessage([]byte{letterMessage}, m)
	c := l.clients[client]
	members := d.Members(enter)
	for i := range d.Tolerated(enter) + 1 {
		to := members[(int(m.ID.Sequence)+i)%len(members)]
		c.letters = append(c.letters, clientLetter{to, letter})
	}
}

// Lead does nothing: this form has no leaders.
func (l *leaderless) Lead(order.Replica, order.ServerID) {}

// Poll makes a process work.
func (l *leaderless) Poll(at order.Replica) {
	if c := l.clients[at]; c != nil {
		if len(c.letters) > 0 {
			l.world.Note(at, "sends a message to %v", c.letters[0].to)
			l.world.Send(at, c.letters[0].to, c.letters[0].bytes)
			c.letters = c.letters[1:]
		}
		return
	}
	l.replicas[at].poll()
}

// poll makes a replica work: it reads its inputs first, then acts on them.
func (r *leaderlessReplica) poll() {
	for _, letter := range r.form.world.Receive(r.self) {
		r.read(letter)
	}
	r.complete()
	for _, entry := range r.log.Ordered(r.self) {
		r.ordered(entry)
	}
	now := uint64(r.form.world.Now() / tick)
	if r.up != nil {
		r.up.poll(r, now)
	}
	r.propose()
	for _, d := range r.down {
		d.poll(r, now)
	}
}

// The kinds of letter.
const (
	letterMessage  byte = iota + 1 // from a client: a message to propose
	letterWantRing                 // a writer lost its way to a ring
	letterRing                     // a ring is ready: its life and the carrier's position
	letterWantBack                 // a carrier lost its way back
	letterBack                     // the way back is open
)

// read handles a letter.
func (r *leaderlessReplica) read(letter Letter) {
	kind, body := letter.Bytes[0], letter.Bytes[1:]
	switch kind {
	case letterMessage:
		r.waiting = append(r.waiting, body)
	case letterWantRing:
		life, err := r.up.renew(r, letter.From)
		if err != nil {
			panic(fmt.Sprintf("a ring for %v: %v", letter.From, err))
		}
		r.form.world.Note(r.self, "gives %v a ring, life %d", letter.From, life)
		reply := binary.BigEndian.AppendUint16([]byte{letterRing}, uint16(life))
		r.form.world.Send(r.self, letter.From, binary.BigEndian.AppendUint64(reply,
			r.relay.Position()))
	case letterRing:
		d := r.downTo(letter.From.Group)
		if err := d.attach(r, letter.From, streams.Life(binary.BigEndian.Uint16(body)),
			binary.BigEndian.Uint64(body[2:])); err != nil {
			d.lose(r, letter.From.Server)
		}
	case letterWantBack:
		if err := r.downTo(letter.From.Group).renew(r, letter.From); err != nil {
			panic(fmt.Sprintf("a way back for %v: %v", letter.From, err))
		}
		r.form.world.Send(r.self, letter.From, []byte{letterBack})
	case letterBack:
		if err := r.up.attach(r, letter.From); err != nil {
			r.up.lose(r, letter.From.Server)
		}
	}
}

// ordered handles an entry of the log: one proposal of one member.
func (r *leaderlessReplica) ordered(entry []byte) {
	proposer := order.ServerID(binary.BigEndian.Uint32(entry))
	if proposer == r.self.Server {
		r.proposing = false
	}
	for entry = entry[4:]; len(entry) > 0; {
		number, length := binary.BigEndian.Uint64(entry), binary.BigEndian.Uint32(entry[8:])
		payload := entry[12 : 12+length]
		entry = entry[12+length:]
		m, err := decodeMessage(payload)
		if err != nil {
			panic(fmt.Sprintf("the log of group %d holds an entry that was not proposed: %v",
				r.self.Group,
				err))
		}
		r.take(tram.Item{Number: number, Message: m}, payload)
	}
}

// take handles an item in the log's order.
func (r *leaderlessReplica) take(item tram.Item, payload []byte) {
	id := item.Message.ID
	if item.Number == 0 {
		if r.entered[id] && r.form.plant != plantEnteredTwice {
			return
		}
		r.entered[id] = true
	} else if r.form.plant == plantOutOfTurn {
		r.relay = outOfTurn(r.form.world.Deployment().Tree, r.relay, item.Number)
	}
	outcome := r.relay.Order(item)
	if outcome.Skipped != tram.SkipNone {
		return
	}
	r.form.world.Note(r.self, "orders %v, number %d of the stream", id, item.Number)
	for _, forward := range outcome.Forwards {
		d := r.downTo(forward.Child)
		d.entries = append(d.entries, payload)
		if uint64(len(d.entries)) != forward.Number {
			panic(fmt.Sprintf("%v has %d entries for group %d, and the last has number %d", r.self,
				len(d.entries), forward.Child, forward.Number))
		}
	}
	if outcome.Delivered {
		r.form.world.Deliver(r.self, item.Message)
	}
}

// outOfTurn returns a relay that accepts the given number next.
func outOfTurn(tree *tram.Tree, relay *tram.Relay, number uint64) *tram.Relay {
	state := relay.AppendState(nil)
	binary.BigEndian.PutUint64(state[8:], number-1)
	forgetful, err := tram.RestoreRelay(tree, relay.Self(), state)
	if err != nil {
		panic(err)
	}
	return forgetful
}

// propose proposes everything that waits here, unless a proposal of this replica is under way.
func (r *leaderlessReplica) propose() {
	if r.proposing || len(r.waiting) == 0 && (r.up == nil || !r.up.carrier.Pending()) {
		return
	}
	proposal := binary.BigEndian.AppendUint32(nil, uint32(r.self.Server))
	add := func(number uint64, payload []byte) {
		proposal = binary.BigEndian.AppendUint64(proposal, number)
		proposal = binary.BigEndian.AppendUint32(proposal, uint32(len(payload)))
		proposal = append(proposal, payload...)
	}
	for _, message := range r.waiting {
		add(0, message)
	}
	r.waiting = nil
	carried := 0
	if r.up != nil {
		for _, entry := range r.up.carrier.Propose(2 * r.up.config.EntryMax) {
			add(entry.Number, entry.Payload)
			carried++
		}
	}
	r.form.world.Note(r.self, "proposes %d bytes, %d entries of the stream", len(proposal), carried)
	r.proposing = true
	r.log.Propose(r.self, proposal)
}

// complete handles completions. An operation's tag holds the life of the attachment and the process
// at its other end.
func (r *leaderlessReplica) complete() {
	for count := r.queue.Poll(r.completions[:]); count > 0; count = r.queue.Poll(r.completions[:]) {
		for _, done := range r.completions[:count] {
			life, peer := tagged(done.Tag)
			if r.up != nil && peer.Group == r.up.parent {
				r.up.completed(r, peer.Server, life, done.Err)
			} else {
				r.downTo(peer.Group).completed(r, peer.Server, life, done.Err)
			}
		}
	}
}

// tag returns the tag of an operation.
func tag(life uint32, peer order.Replica) uint64 {
	return uint64(life)<<32 | uint64(peer.Group)<<16 | uint64(peer.Server)
}

// tagged splits a tag.
func tagged(tag uint64) (life uint32, peer order.Replica) {
	return uint32(tag >> 32), order.Replica{Group: order.GroupID(tag >> 16 & 0xffff),
		Server: order.ServerID(tag & 0xffff)}
}

// downTo returns the stream to a child.
func (r *leaderlessReplica) downTo(child order.GroupID) *downstream {
	at, exact := slices.BinarySearchFunc(r.down, child, func(d *downstream,
		child order.GroupID) int {
		return cmp.Compare(d.child, child)
	})
	if !exact {
		panic(fmt.Sprintf("group %d is no child of group %d", child, r.self.Group))
	}
	return r.down[at]
}

// Copy returns a copy of a process's state.
func (l *leaderless) Copy(at order.Replica) any {
	if c := l.clients[at]; c != nil {
		return c.copy()
	}
	return l.replicas[at].copy()
}

// PutBack restores a process's state.
func (l *leaderless) PutBack(at order.Replica, copied any) {
	switch known := copied.(type) {
	case *leaderlessClient:
		l.clients[at] = known.copy()
	case *leaderlessReplica:
		l.replicas[at] = known.copy()
	}
}

func (c *leaderlessClient) copy() *leaderlessClient {
	return &leaderlessClient{letters: slices.Clip(c.letters)}
}

// AppendState appends a process's state.
func (l *leaderless) AppendState(state []byte, at order.Replica) []byte {
	if c := l.clients[at]; c != nil {
		return fmt.Appendf(state, "%v", c.letters)
	}
	return l.replicas[at].appendState(state)
}

// Describe describes a process's state.
func (l *leaderless) Describe(at order.Replica) string {
	if c := l.clients[at]; c != nil {
		return fmt.Sprintf("has %d letters to send", len(c.letters))
	}
	r := l.replicas[at]
	text := fmt.Sprintf("%d messages entered, position %d of the parent's stream, %d to "+
		"propose, proposing: %v", len(r.entered), r.relay.Position(), len(r.waiting), r.proposing)
	for _, d := range r.down {
		text += fmt.Sprintf("; stream to group %d: %d entries, of which it has %d", d.child,
			len(d.entries), d.writer.Position())
	}
	return text
}
