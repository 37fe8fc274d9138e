package replica

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Replica is one server of one group [TRAM, Algorithms 2 to 5]. It is a machine that is polled. It
// is not safe for concurrent use.
type Replica struct {
	options Options
	self    order.Replica
	ways    *protected.Ways
	courses courses
	closed  bool

	boards   *protected.Boards
	log      *protected.Log
	buffers  []*buffer // by source; nil for sourceNone, and for the parent where there is none
	children []*child
	all      []*protected.Way // the ways to all of these, by place
	askers   []asker          // the replicas of the parent, and the clients
	cursor   int              // the source where a leader's next search begins

	delivered []order.Multicast
	handed    []order.Multicast
}

var _ protected.Machine = (*Replica)(nil)

// buffer is where a client, or the parent, puts its messages: the paper's HM.
type buffer struct {
	protected.Buffer
	// the number of the last message in the applied part of the log: the paper's slot_in, on which
	// all replicas agree
	taken    uint64
	proposed uint64 // the same up to the log's end, while this replica leads
}

// asker is a process that may ask for a buffer.
type asker struct {
	protected.Asker
	buffer *buffer
	client bool // it finds the answer in the buffer's header, and not on its board
}

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
	r := &Replica{options: options, self: self}
	r.boards = protected.NewBoards(boardRegion, options.number(self), options.processes(), rowWords)
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
	r.log.Use(r.ways)
	if err := r.expose(host); err != nil {
		_ = r.Close() // the first error counts
		return nil, err
	}
	return r, nil
}

// relations finds the members, parents, children and clients of this replica.
func (r *Replica) relations() {
	o := &r.options
	r.log = protected.NewLog(r.logConfig(), r.boards, (*asUser)(r))
	r.buffers = make([]*buffer, int(sourceClients)+len(o.Clients))
	if parent, has := o.Tree.Parent(r.self.Group); has {
		own := r.addBuffer(sourceParent)
		for server, peer := range o.Replicas[parent] {
			process := o.number(order.Replica{Group: parent, Server: order.ServerID(server)})
			r.boards.Add(process, peer)
			r.askers = append(r.askers, asker{Asker: protected.Asker{Process: process, Peer: peer},
				buffer: own})
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
		own := r.addBuffer(sourceClients + source(client))
		own.Holder = peer
		r.askers = append(r.askers, asker{Asker: protected.Asker{Process: process, Peer: peer},
			buffer: own, client: true})
	}
}

// logConfig describes the group's log.
func (r *Replica) logConfig() protected.LogConfig {
	o := &r.options
	config := protected.LogConfig{Name: logRegion, Self: r.self.Server,
		Peers: o.Replicas[r.self.Group], WordExcluded: wordHalt, Slots: o.LogSlots,
		EntryMax: o.messageMax(), Window: o.Window, Quiet: o.Quiet, Note: o.Note, Fault: o.fault()}
	for server := range config.Peers {
		config.Processes = append(config.Processes, o.number(order.Replica{Group: r.self.Group,
			Server: order.ServerID(server)}))
	}
	return config
}

func (r *Replica) addBuffer(of source) *buffer {
	b := &buffer{}
	b.Ring, b.Fault = r.options.bufferRing(), r.options.fault()
	r.buffers[of] = b
	return b
}

// expose exposes the regions.
func (r *Replica) expose(host rdmanet.RegionHost) error {
	if err := r.boards.Expose(host); err != nil {
		return err
	}
	if err := r.log.Expose(host); err != nil {
		return err
	}
	var err error
	if parent := r.buffers[sourceParent]; parent != nil {
		if parent.Region, err = host.Expose(parentRegion, parent.Ring.Size()); err != nil {
			return fmt.Errorf("expose the parent's buffer: %w", err)
		}
	}
	for client, peer := range r.options.Clients {
		b := r.buffers[int(sourceClients)+client]
		if b.Region, err = host.Expose(clientRegionName(order.ServerID(client)),
			b.Ring.Size()); err != nil {
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
func (r *Replica) Lead(server order.ServerID) { r.log.Lead(server) }

// Exclude gives up a member of this replica's group for good: the group no longer waits for it
// before it reuses slots of the log. A member that is excluded by mistake is left behind, and halts
// when it finds out; it counts as failed. Without Exclude, a crashed member stops the group once
// the log has wrapped around.
func (r *Replica) Exclude(server order.ServerID) { r.log.Exclude(server) }

// Poll makes the replica work once: it reads its memory and the completions, and acts on them. now
// is the time since any fixed instant, and never runs backwards. Poll never waits. It reports
// whether there was anything to do. If not, nothing changes before the driver's next input, a write
// with Ring to one of Regions, a completion, or the end of a Patience or Quiet span.
func (r *Replica) Poll(now time.Duration) bool {
	if r.log.Halted() != "" || r.closed {
		return false
	}
	busy := r.Complete(now)
	w := r.ways
	busy = r.answer() || busy
	busy = r.log.Work() || busy
	busy = r.log.Apply() || busy
	if r.log.Leading() {
		busy = r.handOn() || busy
		busy = r.order() || busy
		busy = r.log.Replicate() || busy
	}
	busy = r.boards.Drive(w) || busy
	if err := w.Flush(); err != nil {
		r.log.Halt(err.Error())
	}
	return busy && r.log.Halted() == ""
}

// answer answers the requests on the board [TRAM, Algorithm 2, step 2.7]. It reports whether there
// were any.
func (r *Replica) answer() bool {
	busy, halts := r.log.Answer()
	if halts {
		return true
	}
	for i := range r.askers {
		a := &r.askers[i]
		if asked, has := r.boards.Asked(&a.Asker); has {
			busy = true
			r.answerOne(a, asked)
			if r.log.Halted() != "" {
				return true
			}
		}
	}
	return busy
}

func (r *Replica) answerOne(a *asker, asked protected.Ticket) {
	held := &a.buffer.Held
	if a.client {
		if r.log.Pass(held, a.Peer) {
			a.Seen = asked
			held.Region.Store(protected.HeadTicket, uint64(asked)) // the client reads it there
		}
		return
	}
	if asked > held.Granted {
		if !r.log.Pass(held, a.Peer) {
			return
		}
		r.options.note("grants the parent's buffer to process %d", a.Process)
		held.Granted = asked
	}
	r.boards.Answer(&a.Asker, asked, held.Granted)
}

// Complete is the first part of Poll: it handles completions and nothing else. It reports whether
// there were any. A search over all schedules calls it separately.
func (r *Replica) Complete(now time.Duration) bool {
	if r.log.Halted() != "" || r.closed {
		return false
	}
	return r.ways.Complete(now, r.completed)
}

// completed handles the completion of a post of a way's present life.
func (r *Replica) completed(p protected.Post, err error) {
	switch owner := p.Way.Owner.(type) {
	case *protected.Row:
		owner.Completed(r.ways, err)
	case *receiver:
		r.receiverCompleted(owner, p, err)
	default:
		r.log.Completed(p, err)
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
	case *receiver:
		owner.Answered(r.ways, err)
	default:
		r.log.Answered(way, err)
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
	regions := []rdmanet.Region{r.boards.Region(), r.log.Region()}
	for _, b := range r.buffers {
		if b != nil {
			regions = append(regions, b.Region)
		}
	}
	return regions
}

// Outstanding returns the number of operations under way. Completions come while there are any.
func (r *Replica) Outstanding() int { return r.ways.Outstanding() }

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
	r.log.Detach()
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
	// LogStatus is the state of the group's log. It delivers no more once that halted.
	protected.LogStatus
	// Forwarded has, for each child in ascending order, how many messages were due to it so far and
	// how many of them it has ordered, as far as this replica knows.
	Forwarded []Forwarded
}

// Forwarded is the progress of a child's stream.
type Forwarded struct {
	Child      order.GroupID
	Due, Taken uint64
}

// Status describes the replica. It allocates, so do not call it in the hot path.
func (r *Replica) Status() Status {
	s := Status{LogStatus: r.log.Status()}
	for _, c := range r.children {
		s.Forwarded = append(s.Forwarded, Forwarded{c.group, c.out, c.taken})
	}
	return s
}

// String describes the replica's state in one line.
func (r *Replica) String() string {
	text := r.log.String()
	for _, c := range r.children {
		text += fmt.Sprintf("; child %d took %d of %d", c.group, c.taken, c.out)
		for _, v := range c.receivers {
			if r.log.Leading() {
				text += fmt.Sprintf(" (%s, next %d)", v.Petition.String(), v.next)
			}
		}
	}
	if why := r.log.Halted(); why != "" {
		text += "; halted: " + why
	}
	return text
}
