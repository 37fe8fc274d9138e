package replica

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// role is a replica's role in its group.
type role uint8

const (
	following role = iota
	gathering      // asks for permissions, and reads logs: Algorithm 3 and step 4.1
	fetching       // reads the messages that its own log lacks: step 4.3
	leading
)

// Replica is one server of one group [TRAM, Algorithms 2 to 5]. It is a machine that is polled. It
// is not safe for concurrent use.
type Replica struct {
	options Options
	self    order.Replica
	ways    *protected.Ways
	courses courses
	halted  string
	closed  bool

	boards  *protected.Boards
	log     protected.Held
	buffers []*buffer      // by source; nil for sourceNone, and for the parent where there is none
	ring    protected.Ring // of the log

	members  []*member // by server, including itself
	children []*child
	all      []*protected.Way // of all of these, by place
	askers   []asker

	// The fields down to scanned follow from the log. They are indexes in it.
	applied uint64 // handled in order: delivered, and due to children
	horizon uint64 // all up to here is ordered, as far as this replica knows
	floor   uint64 // all up to here was taken by all members that are not excluded
	scanned uint64 // read while following
	staged  staged

	role     role
	leader   order.ServerID      // the server that the oracle names
	oracle   bool                // the oracle has named a server
	stamp    protected.Timestamp // of this replica's present or last candidacy
	counter  uint64              // the highest counter seen in a ticket
	notLead  time.Duration       // it does not try to lead until then
	failures int                 // failed candidacies in a row
	end      uint64              // the last entry of the log, while it leads
	told     uint64              // the entries that the last entry declares ordered
	real     uint64              // the last entry that is not a no-op
	ordered  time.Duration       // when it last ordered
	cursor   int                 // the source where the next search begins
	fetches  []*fetch
	missing  int // fetches that are not complete
	// all up to here is ordered, according to the logs that it read; its own log may lack entries
	// until it leads
	heard uint64

	delivered []order.Multicast
	handed    []order.Multicast
}

// buffer is where a client, or the parent, puts its messages: the paper's HM.
type buffer struct {
	protected.Buffer
	// the number of the last message in the applied part of the log: the paper's slot_in, on which
	// all replicas agree
	taken    uint64
	proposed uint64 // the same up to the log's end, while this replica leads
}

// asker is a process that may ask for a permission.
type asker struct {
	protected.Asker
	kind  askerKind
	place int // a member's server, a client's number
}

type askerKind uint8

const (
	askerMember askerKind = iota
	askerParent
	askerClient
)

// New returns the replica self on its host. The host must have the incarnation that the options
// name. New exposes the regions and grants the permissions that do not depend on the leader. The
// caller keeps the host, and closes it after Close. It returns ErrOptions, or the host's error.
func New(options Options, self order.Replica, host rdmanet.RegionHost) (*Replica, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	if self.Group == order.Clients || !options.has(self) {
		return nil, fmt.Errorf("%w: %v is no replica of the deployment", ErrOptions, self)
	}
	r := &Replica{options: options, self: self, ring: options.logRing(),
		staged: newStaged(&options)}
	r.boards = protected.NewBoards(boardRegion, options.number(self), options.processes(), rowWords)
	r.log.Fault = options.fault()
	r.courses = courses{tree: options.Tree, self: self.Group, sets: make(map[string]*course)}
	r.relations()
	r.all = r.ofAll()
	for place, way := range r.all {
		way.Place = place
	}
	posts := 0
	for _, b := range r.boards.Rows() {
		if b != nil {
			posts += 4 + 3*options.Window
		}
	}
	var err error
	if r.ways, err = protected.NewWays(host, 64+posts, options.Patience); err != nil {
		return nil, err
	}
	if err := r.expose(host); err != nil {
		_ = r.Close() // the first error counts
		return nil, err
	}
	return r, nil
}

// relations finds the members, parents, children and clients of this replica.
func (r *Replica) relations() {
	o := &r.options
	for server, peer := range o.Replicas[r.self.Group] {
		m := &member{server: order.ServerID(server)}
		m.Peer, m.Region, m.Owner = peer, logRegion, m
		m.Process = o.number(order.Replica{Group: r.self.Group, Server: m.server})
		r.members = append(r.members, m)
		if m.server != r.self.Server {
			r.boards.Add(m.Process, peer)
			own := protected.Asker{Process: m.Process, Peer: peer}
			r.askers = append(r.askers, asker{Asker: own,
				kind: askerMember, place: server})
		}
	}
	if parent, has := o.Tree.Parent(r.self.Group); has {
		for server, peer := range o.Replicas[parent] {
			process := o.number(order.Replica{Group: parent, Server: order.ServerID(server)})
			r.boards.Add(process, peer)
			r.askers = append(r.askers, asker{Asker: protected.Asker{Process: process, Peer: peer},
				kind: askerParent})
		}
	}
	for _, group := range o.Tree.Children(r.self.Group) {
		c := &child{group: group, first: 1}
		for server, peer := range o.Replicas[group] {
			v := &receiver{child: c}
			v.Peer, v.Region, v.Owner = peer, parentRegion, v
			v.Process = o.number(order.Replica{Group: group, Server: order.ServerID(server)})
			r.boards.Add(v.Process, peer)
			c.receivers = append(c.receivers, v)
		}
		r.children = append(r.children, c)
	}
	for client, peer := range o.Clients {
		process := o.number(order.Replica{Group: order.Clients, Server: order.ServerID(client)})
		r.askers = append(r.askers, asker{Asker: protected.Asker{Process: process, Peer: peer},
			kind: askerClient, place: client})
	}
}

// expose exposes the regions.
func (r *Replica) expose(host rdmanet.RegionHost) error {
	o := &r.options
	var err error
	if err = r.boards.Expose(host); err != nil {
		return err
	}
	if r.log.Region, err = host.Expose(logRegion, r.ring.Size()); err != nil {
		return fmt.Errorf("expose the log: %w", err)
	}
	r.buffers = make([]*buffer, int(sourceClients)+len(o.Clients))
	if _, has := o.Tree.Parent(r.self.Group); has {
		parent := &buffer{}
		parent.Ring, parent.Fault = o.bufferRing(), o.fault()
		r.buffers[sourceParent] = parent
		if parent.Region, err = host.Expose(parentRegion,
			o.bufferRing().Size()); err != nil {
			return fmt.Errorf("expose the parent's buffer: %w", err)
		}
	}
	for client, peer := range o.Clients {
		b := &buffer{}
		b.Ring, b.Holder, b.Fault = o.bufferRing(), peer, o.fault()
		r.buffers[int(sourceClients)+client] = b
		if b.Region, err = host.Expose(clientRegionName(order.ServerID(client)),
			o.bufferRing().Size()); err != nil {
			return fmt.Errorf("expose the buffer of client %d: %w", client, err)
		}
		if err := b.Region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
			return fmt.Errorf("grant client %d its buffer: %w", client, err)
		}
		if err := r.boards.Admit(peer); err != nil {
			return fmt.Errorf("client %d: %w", client, err)
		}
	}
	return nil
}

// Lead sets the leader of this replica's group, as the leader oracle names it now. Only a named
// replica tries to lead, and it keeps trying as long as it is named.
func (r *Replica) Lead(server order.ServerID) { r.leader, r.oracle = server, true }

// Exclude gives up a member of this replica's group for good: the group no longer waits for it
// before it reuses slots of the log. A member that is excluded by mistake is left behind, and halts
// when it finds out; it counts as failed. Without Exclude, a crashed member stops the group once
// the log has wrapped around.
func (r *Replica) Exclude(server order.ServerID) {
	if int(server) >= len(r.members) || server == r.self.Server || r.members[server].excluded {
		return
	}
	r.exclude(r.members[server])
}

func (r *Replica) exclude(m *member) {
	r.options.note("excludes server %d", m.server)
	m.excluded = true
	m.Retire(r.ways)
	m.known = false
	r.boards.Put(m.Process, wordHalt, 1)
	if r.role == fetching {
		r.stepDown("a log that it may read from is excluded")
	}
}

// Poll makes the replica work once: it reads its memory and the completions, and acts on them. now
// is the time since any fixed instant, and never runs backwards. Poll never waits. It reports
// whether there was anything to do. If not, nothing changes before the driver's next input, a write
// with Ring to one of Regions, a completion, or the end of a Patience or Quiet span.
func (r *Replica) Poll(now time.Duration) bool {
	if r.halted != "" || r.closed {
		return false
	}
	busy := r.Complete(now)
	w := r.ways
	busy = r.answer() || busy
	if r.role == following {
		busy = r.scan() || busy
	}
	busy = r.campaign() || busy
	if r.role == leading {
		r.decide()
	}
	busy = r.apply() || busy
	if r.role == leading {
		busy = r.handOn() || busy
		busy = r.order() || busy
		busy = r.replicate() || busy
	}
	busy = r.boards.Drive(w) || busy
	if err := w.Flush(); err != nil {
		r.halt(err.Error())
	}
	return busy && r.halted == ""
}

// Complete is the first part of Poll: it handles completions and nothing else. It reports whether
// there were any. A search over all schedules calls it separately.
func (r *Replica) Complete(now time.Duration) bool {
	if r.halted != "" || r.closed {
		return false
	}
	return r.ways.Complete(now, r.completed)
}

// completed handles the completion of a post of a link's present life.
func (r *Replica) completed(p protected.Post, err error) {
	switch owner := p.Way.Owner.(type) {
	case *protected.Row:
		owner.Completed(r.ways, err)
	case *member:
		r.memberCompleted(owner, p, err)
	case *receiver:
		r.receiverCompleted(owner, p, err)
	}
}

// Wanted returns the attachments that the driver should make, each once. The slice is valid until
// the next call.
func (r *Replica) Wanted() []protected.Want { return r.ways.Wanted() }

// Attached answers a Want with the result of Attach. It may be called at any time between Polls.
func (r *Replica) Attached(number uint64, attachment rdmanet.Attachment, err error) {
	way, err := r.ways.Attached(number, attachment, err)
	if way == nil {
		return
	}
	switch owner := way.Owner.(type) {
	case *protected.Row:
		owner.Answered(r.ways, err)
	case *member:
		if err != nil {
			r.loseMember(owner)
			return
		}
		r.readMember(owner)
	case *receiver:
		owner.Answered(r.ways, err)
	}
}

// Delivered implements order.Multicaster. It returns the messages A-delivered here since the last
// call, in order. The slice is valid until the next call; the messages may be kept. A replica stops
// after LogSlots deliveries that were not taken.
func (r *Replica) Delivered() []order.Multicast {
	r.handed, r.delivered = r.delivered, r.handed[:0]
	return r.handed
}

// Regions returns the regions to Await on. Other processes write to them, with Ring.
func (r *Replica) Regions() []rdmanet.Region {
	regions := []rdmanet.Region{r.boards.Region(), r.log.Region}
	for _, b := range r.buffers {
		if b != nil {
			regions = append(regions, b.Region)
		}
	}
	return regions
}

// Outstanding returns the number of operations under way. Completions come while there are any.
func (r *Replica) Outstanding() int { return r.ways.Outstanding() }

// halt ends the replica's part for good.
func (r *Replica) halt(why string) {
	r.options.note("halts: %s", why)
	r.halted = why
}

// Close closes the replica's regions. Operations under way continue until the host is closed.
func (r *Replica) Close() error {
	r.closed = true
	var first error
	for _, region := range r.Regions() {
		if region != nil {
			if err := region.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	for _, m := range r.members {
		r.ways.Detach(&m.Way)
	}
	for _, c := range r.children {
		for _, v := range c.receivers {
			r.ways.Detach(&v.Way)
		}
	}
	r.boards.Detach(r.ways)
	if err := r.ways.Close(); err != nil && first == nil {
		first = err
	}
	return first
}

// Status is a replica's view of itself, for people and for metrics.
type Status struct {
	// Leading reports that the replica has the permission of a majority and has caught up.
	Leading bool
	// Leader is the server to whose timestamp this replica last granted its log.
	Leader order.ServerID
	// Applied is the last entry of the log that it handled, Ordered the last one that it knows to
	// be ordered, End the last one of the log, if it leads.
	Applied, Ordered, End uint64
	// Taken is the last entry that all members except the excluded ones have taken, as far as it
	// knows.
	Taken uint64
	// Excluded are the members that were given up, ascending.
	Excluded []order.ServerID
	// Forwarded has, for each child in ascending order, how many messages were due to it so far and
	// how many of them it has ordered, as far as this replica knows.
	Forwarded []Forwarded
	// Halted is the reason why it delivers no more, "" while it delivers.
	Halted string
}

// Forwarded is the progress of a child's stream.
type Forwarded struct {
	Child      order.GroupID
	Due, Taken uint64
}

// Status describes the replica. It allocates, so do not call it in the hot path.
func (r *Replica) Status() Status {
	s := Status{Leading: r.role == leading, Leader: r.log.Granted.Timestamp().Server(),
		Applied: r.applied, Ordered: r.horizon, Taken: r.floor, Halted: r.halted}
	if s.Leading {
		s.End = r.end
	}
	for _, m := range r.members {
		if m.excluded {
			s.Excluded = append(s.Excluded, m.server)
		}
	}
	for _, c := range r.children {
		s.Forwarded = append(s.Forwarded, Forwarded{c.group, c.out, c.taken})
	}
	return s
}

// String describes the replica's state in one line.
func (r *Replica) String() string {
	names := [...]string{"follows", "gathers permissions", "fetches entries", "leads"}
	s := r.Status()
	text := fmt.Sprintf("%s, granted its log to %d, oracle says %d; applied %d, ordered %d, end "+
		"%d, taken by all %d; %d operations", names[r.role], s.Leader, r.leader, s.Applied,
		s.Ordered, s.End, s.Taken, r.Outstanding())
	for _, m := range r.members {
		if r.role != following && m.server != r.self.Server {
			text += fmt.Sprintf("; member %d %s, acked %d, took %d", m.server,
				m.Petition.String(),
				m.acked, m.taken)
		}
	}
	for _, c := range r.children {
		text += fmt.Sprintf("; child %d took %d of %d", c.group, c.taken, c.out)
		for _, v := range c.receivers {
			if r.role == leading {
				text += fmt.Sprintf(" (%s, next %d)", v.Petition.String(), v.next)
			}
		}
	}
	if s.Halted != "" {
		text += "; halted: " + s.Halted
	}
	return text
}
