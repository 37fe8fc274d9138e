package multicast

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// chosen is a stage that does nothing by itself: a search chooses which letter arrives and which
// operation takes place next. Its state can be saved and restored.
//
// An operation takes place as a whole, together with its completion. A delay between the two is
// covered by the schedules that do not poll its holder in between. Operations of one attachment
// take place in order, those of different attachments in any order.
type chosen struct {
	world  *World
	clock  time.Duration
	links  []chosenLink
	linkAt map[[2]int]int // the index in links
	hosts  []*chosenHost  // by process, nil until it is started
	// regranted counts changes of permissions. cuts lists them, and attached the attempts to
	// attach, since the present choice began.
	regranted int
	cuts      []cut
	attached  []attempt
}

// cut is the end of a process's attachments to a region, if it has any, by a change of its
// permission.
type cut struct{ holder, owner, region int }

// attempt is an attempt of a process to attach to a region of another one, and what it depended on.
type attempt struct {
	owner, region int // region -1: it failed because the owner had crashed
	permission    rdmanet.Permission
}

// chosenLink holds the letters under way between two processes or logs.
type chosenLink struct {
	from, to int
	letters  []Letter
}

func newChosen(world *World) *chosen {
	return &chosen{world: world, linkAt: map[[2]int]int{},
		hosts: make([]*chosenHost, len(world.processes))}
}

func (s *chosen) now() time.Duration { return s.clock }

func (s *chosen) carry(from, to int, letter Letter) {
	if to < len(s.world.processes) && s.crashed(to) {
		return
	}
	at, known := s.linkAt[[2]int{from, to}]
	if !known {
		at = len(s.links)
		s.linkAt[[2]int{from, to}] = at
		s.links = append(s.links, chosenLink{from: from, to: to})
	}
	s.links[at].letters = append(s.links[at].letters, letter)
}

// arrive delivers the first letter of a link.
func (s *chosen) arrive(link int) {
	l := &s.links[link]
	letter := l.letters[0]
	l.letters = l.letters[1:]
	s.world.arrive(l.from, l.to, letter)
}

func (s *chosen) start(id rdmanet.PeerID) (rdmanet.RegionHost, error) {
	number := slices.IndexFunc(s.world.processes, func(p process) bool {
		return PeerOf(p.name) == id
	})
	s.hosts[number] = &chosenHost{stage: s, number: number, id: id}
	return s.hosts[number], nil
}

// host returns the host with a name, nil if there is none.
func (s *chosen) host(id rdmanet.PeerID) *chosenHost {
	for _, h := range s.hosts {
		if h != nil && h.id == id {
			return h
		}
	}
	return nil
}

// crashed reports whether a process crashed.
func (s *chosen) crashed(process int) bool { return s.world.processes[process].crashed }

// errNoLanes is returned for lanes: these hosts have regions only.
var errNoLanes = errors.New("multicast: hosts in a search have no lanes")

// chosenHost is a process's host: its memory, and its attachments to the memory of others.
type chosenHost struct {
	stage   *chosen
	number  int
	id      rdmanet.PeerID
	regions []*chosenRegion
	ways    []*chosenAttachment
	queues  []*chosenQueue
}

func (h *chosenHost) ID() rdmanet.PeerID                                { return h.id }
func (h *chosenHost) Incarnation() rdmanet.Incarnation                  { return 1 }
func (h *chosenHost) Receive(string, rdmanet.ReceiveFunc) error         { return errNoLanes }
func (h *chosenHost) Lane(rdmanet.PeerID, string) (rdmanet.Lane, error) { return nil, errNoLanes }
func (h *chosenHost) Watch(func(rdmanet.PeerEvent))                     {}
func (h *chosenHost) Close(context.Context) error                       { return nil }

func (h *chosenHost) Expose(name string, size int) (rdmanet.Region, error) {
	if err := rdmanet.CheckRegion(name, size); err != nil {
		return nil, err
	}
	for _, r := range h.regions {
		if r.name == name && !r.closed {
			return nil, fmt.Errorf("%w: region %q", rdmanet.ErrDuplicate, name)
		}
	}
	r := &chosenRegion{host: h, name: name, bytes: make([]byte, size),
		grants: make([]rdmanet.Permission, len(h.stage.hosts))}
	h.regions = append(h.regions, r)
	return r, nil
}

func (h *chosenHost) Attach(_ context.Context, peer rdmanet.PeerID,
	name string) (rdmanet.Attachment, error) {
	owner := h.stage.host(peer)
	if owner == nil || h.stage.crashed(owner.number) {
		if owner != nil {
			h.stage.attached = append(h.stage.attached, attempt{owner: owner.number, region: -1})
		}
		return nil, fmt.Errorf("%w: %s", rdmanet.ErrUnreachable, peer)
	}
	for number, r := range owner.regions {
		if r.name != name || r.closed {
			continue
		}
		permission := r.grants[h.number]
		h.stage.attached = append(h.stage.attached, attempt{owner.number, number, permission})
		if permission == rdmanet.PermissionNone {
			return nil, fmt.Errorf("%w: region %q of %s", rdmanet.ErrAccess, name, peer)
		}
		a := &chosenAttachment{host: h, number: len(h.ways), region: r, regionNumber: number,
			permission: permission}
		h.ways = append(h.ways, a)
		return a, nil
	}
	return nil, fmt.Errorf("%w: %q of %s", rdmanet.ErrNoRegion, name, peer)
}

func (h *chosenHost) Queue(depth int) (rdmanet.Queue, error) {
	q := &chosenQueue{host: h, depth: depth}
	h.queues = append(h.queues, q)
	return q, nil
}

// chosenRegion is memory. Its bytes stay at the same address when another state is restored.
type chosenRegion struct {
	host   *chosenHost
	name   string
	bytes  []byte
	closed bool
	grants []rdmanet.Permission // by process
}

func (r *chosenRegion) Name() string  { return r.name }
func (r *chosenRegion) Size() int     { return len(r.bytes) }
func (r *chosenRegion) Bytes() []byte { return r.bytes }

func (r *chosenRegion) Load(offset int) uint64 {
	return binary.NativeEndian.Uint64(r.bytes[offset:])
}

func (r *chosenRegion) Store(offset int, word uint64) {
	binary.NativeEndian.PutUint64(r.bytes[offset:], word)
}

func (r *chosenRegion) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	if r.closed {
		return rdmanet.ErrClosed
	}
	number := slices.IndexFunc(r.host.stage.world.processes, func(p process) bool {
		return PeerOf(p.name) == peer.ID
	})
	if r.grants[number] != permission {
		r.grants[number] = permission
		r.host.stage.regranted++
		r.host.stage.ends(r, number)
	}
	return nil
}

// ends ends a process's attachments to a region. Their operations under way will be refused.
func (s *chosen) ends(r *chosenRegion, holder int) {
	if s.hosts[holder] == nil {
		return
	}
	s.cuts = append(s.cuts, cut{holder, r.host.number, slices.Index(r.host.regions, r)})
	for _, a := range s.hosts[holder].ways {
		if a.region == r {
			a.revoked = true
		}
	}
}

func (r *chosenRegion) Revoke(peer rdmanet.Peer) error {
	return r.Grant(peer, rdmanet.PermissionNone)
}

// Await does not wait, because forms poll.
func (r *chosenRegion) Await(_ context.Context, ready func() bool) error {
	if !ready() {
		panic("a form waits")
	}
	return nil
}

func (r *chosenRegion) Wake()        {}
func (r *chosenRegion) Close() error { r.closed = true; return nil }

// chosenAttachment is a process's access to a region, with the operations that were posted and did
// not take place yet.
type chosenAttachment struct {
	host         *chosenHost
	number       int // index among the host's attachments
	region       *chosenRegion
	regionNumber int // index among the owner's regions
	permission   rdmanet.Permission
	revoked      bool // the permission changed since
	err          error
	pending      []chosenOperation
}

type chosenOperation struct {
	rdmanet.Operation // the Bytes of a write are a copy
	queue             *chosenQueue
	number            uint64 // among the operations of the queue
}

func (a *chosenAttachment) Peer() rdmanet.Peer {
	return rdmanet.Peer{ID: a.region.host.id, Incarnation: 1}
}
func (a *chosenAttachment) Name() string                   { return a.region.name }
func (a *chosenAttachment) Size() int                      { return len(a.region.bytes) }
func (a *chosenAttachment) Permission() rdmanet.Permission { return a.permission }
func (a *chosenAttachment) Err() error                     { return a.err }

func (a *chosenAttachment) Close() error {
	a.end(rdmanet.ErrClosed)
	return nil
}

// end completes all pending operations with an error. When an attachment is closed, its operations
// may have taken place; the search treats them as lost.
func (a *chosenAttachment) end(err error) {
	if a.err != nil {
		return
	}
	a.err = err
	for _, o := range a.pending {
		o.queue.complete(o, err)
	}
	a.pending = nil
}

// land makes the first operation take place.
func (a *chosenAttachment) land() {
	o, r := a.pending[0], a.region
	stage := a.host.stage
	switch {
	case stage.crashed(r.host.number):
		a.end(fmt.Errorf("%w: %s", rdmanet.ErrUnreachable, r.host.id))
		return
	case r.closed || a.revoked || !a.permission.Allows(o.Kind):
		a.end(fmt.Errorf("%w: region %q of %s", rdmanet.ErrAccess, r.name, r.host.id))
		return
	case o.Kind == rdmanet.OperationWrite:
		copy(r.bytes[o.Offset:], o.Bytes)
	default:
		copy(o.Bytes, r.bytes[o.Offset:])
	}
	a.pending = a.pending[1:]
	o.queue.complete(o, nil)
}

// live reports whether the pending operations could still take place.
func (a *chosenAttachment) live() bool {
	r := a.region
	return a.err == nil && !r.closed && !a.revoked
}

// chosenQueue holds the completions of a process's operations.
type chosenQueue struct {
	host   *chosenHost
	depth  int
	count  uint64        // operations posted so far
	posted []chosenEntry // the operations whose completions are not ready, in the order of posting
	ready  []rdmanet.Completion
	closed bool
}

// chosenEntry is an operation in the order of posting. Completions of one peer come in that order,
// whichever regions they concern.
type chosenEntry struct {
	number     uint64
	done       bool
	completion rdmanet.Completion
	// saw is what a read has seen whose completion waits for an earlier one. Its process will act
	// on it.
	saw []byte
}

func (q *chosenQueue) Post(operations ...rdmanet.Operation) error {
	if q.closed {
		return rdmanet.ErrClosed
	}
	if q.Outstanding()+len(operations) > q.depth {
		return fmt.Errorf("%w: %d outstanding, %d more, room for %d", rdmanet.ErrQueueFull,
			q.Outstanding(), len(operations), q.depth)
	}
	for _, o := range operations {
		if o.Offset < 0 || o.Offset+len(o.Bytes) > o.To.Size() {
			return fmt.Errorf("%w: %s of %d bytes at %d, the region has %d", rdmanet.ErrBounds,
				o.Kind, len(o.Bytes), o.Offset, o.To.Size())
		}
	}
	for _, o := range operations {
		a := o.To.(*chosenAttachment)
		if o.Kind == rdmanet.OperationWrite {
			o.Bytes = bytes.Clone(o.Bytes)
		}
		q.count++
		own := chosenOperation{o, q, q.count}
		q.posted = append(q.posted, chosenEntry{number: q.count,
			completion: rdmanet.Completion{Tag: o.Tag, Peer: a.region.host.id}})
		if a.err != nil {
			q.complete(own, a.err)
			continue
		}
		a.pending = append(a.pending, own)
	}
	return nil
}

// complete ends an operation, and makes the completions ready that waited for it.
func (q *chosenQueue) complete(o chosenOperation, err error) {
	at := slices.IndexFunc(q.posted, func(e chosenEntry) bool { return e.number == o.number })
	q.posted = slices.Clone(q.posted) // saved states keep theirs
	q.posted[at].done, q.posted[at].completion.Err = true, err
	if !writes(o) && err == nil {
		q.posted[at].saw = bytes.Clone(o.Bytes)
	}
	peer := q.posted[at].completion.Peer
	waits := false
	q.posted = slices.DeleteFunc(q.posted, func(e chosenEntry) bool {
		if e.completion.Peer != peer || waits {
			return false
		}
		if waits = !e.done; waits {
			return false
		}
		q.ready = append(q.ready, e.completion)
		return true
	})
}

func (q *chosenQueue) Poll(into []rdmanet.Completion) int {
	count := copy(into, q.ready)
	q.ready = q.ready[count:]
	return count
}

func (q *chosenQueue) Wait(_ context.Context, into []rdmanet.Completion) (int, error) {
	if len(q.ready) == 0 {
		panic("a form waits")
	}
	return q.Poll(into), nil
}

func (q *chosenQueue) Outstanding() int { return len(q.posted) + len(q.ready) }
func (q *chosenQueue) Close() error     { q.closed = true; return nil }

// appendLinks appends the letters under way between processes and logs.
func (s *chosen) appendLinks(state []byte) []byte {
	for _, l := range s.links {
		for _, letter := range l.letters {
			state = append(state, 1, byte(l.from), byte(l.to))
			state = appendBytes(state, letter.Bytes)
		}
	}
	return state
}

// appendState appends a host's memory and its operations. name appends a process's own name for an
// operation, given by its tag.
func (h *chosenHost) appendState(state []byte, name func(state []byte, tag uint64) []byte) []byte {
	crashed := h.stage.crashed(h.number)
	for number, r := range h.regions {
		if crashed || r.closed {
			state = append(state, 2, byte(number))
			continue
		}
		state = append(state, r.bytes...)
		for _, grant := range r.grants {
			state = append(state, byte(grant))
		}
	}
	return h.appendWays(state, name)
}

// appendWays appends a host's operations under way.
func (h *chosenHost) appendWays(state []byte, name func(state []byte, tag uint64) []byte) []byte {
	crashed := h.stage.crashed(h.number)
	for _, a := range h.byRegion() {
		if crashed && len(a.pending) == 0 {
			continue // the process crashed and does not use it any more
		}
		if live := a.live(); live || len(a.pending) > 0 {
			state = append(state, 3, byte(a.region.host.number), byte(a.regionNumber),
				byte(a.permission))
			if !live {
				state = append(state, 4)
			}
			for _, o := range a.pending {
				state = append(state, byte(o.Kind))
				state = binary.AppendUvarint(state, uint64(o.Offset))
				state = name(state, o.Tag)
				if o.Kind == rdmanet.OperationWrite {
					state = appendBytes(state, o.Bytes)
				} else {
					state = binary.AppendUvarint(state, uint64(len(o.Bytes)))
				}
			}
		}
	}
	if crashed {
		return state
	}
	for _, q := range h.queues {
		for _, c := range q.ready {
			state = appendCompletion(append(state, 5), c, name)
		}
		for _, e := range q.byPeer() {
			kind := byte(6)
			if e.done {
				kind = 7
			}
			state = append(appendCompletion(append(state, kind), e.completion, name), e.saw...)
		}
	}
	return state
}

// byRegion lists a host's attachments by region. Their order of creation has no effect.
func (h *chosenHost) byRegion() []*chosenAttachment {
	compare := func(a, b *chosenAttachment) int {
		return cmp.Or(cmp.Compare(a.region.host.number, b.region.host.number),
			cmp.Compare(a.regionNumber, b.regionNumber))
	}
	if slices.IsSortedFunc(h.ways, compare) {
		return h.ways
	}
	ways := slices.Clone(h.ways)
	slices.SortStableFunc(ways, compare)
	return ways
}

// byPeer lists the operations under way peer by peer. Completions of one peer come in the order of
// posting, and nothing else depends on that order.
func (q *chosenQueue) byPeer() []chosenEntry {
	compare := func(a, b chosenEntry) int {
		return cmp.Compare(a.completion.Peer, b.completion.Peer)
	}
	if slices.IsSortedFunc(q.posted, compare) {
		return q.posted
	}
	posted := slices.Clone(q.posted)
	slices.SortStableFunc(posted, compare)
	return posted
}

func appendCompletion(state []byte, c rdmanet.Completion,
	name func(state []byte, tag uint64) []byte) []byte {
	state = name(appendBytes(state, []byte(c.Peer)), c.Tag)
	if c.Err != nil {
		state = appendBytes(state, []byte(c.Err.Error()))
	}
	return state
}

func appendBytes(state, b []byte) []byte {
	return append(binary.AppendUvarint(state, uint64(len(b))), b...)
}

// described describes the next operation, for people.
func (a *chosenAttachment) described() string {
	o := a.pending[0]
	what := "lands"
	if !a.live() {
		what = "is refused"
	}
	return fmt.Sprintf("%s of %s at %d of %q of %s, %d bytes, %s", o.Kind, a.host.id, o.Offset,
		a.region.name, a.region.host.id, len(o.Bytes), what)
}
