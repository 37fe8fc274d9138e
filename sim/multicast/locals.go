package multicast

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is the local states of a table. A local state has three parts, each with a number: the
// machine, the memory, and the operations under way (the net). Most operations that take place
// change one part of the owner's state and one part of the holder's, and no machine has to handle
// anything. Then the next local state is put together from its parts, and exists as a recipe: a
// saved state, with the memory that it has by now, and the operations of its own that took place
// since. A search looks at many more of these states than it goes on from.

// local is a local state.
type local struct {
	taken *taken
	parts parts
	// base is nil for a saved state. Otherwise this one is base with other memory, after the first
	// operations of some attachments took place.
	base    *local
	landed  []int // the attachments
	crashed bool
	said    order.ServerID
	view    uint32
	ways    []localWay   // those with operations under way, by region
	queue   []localEntry // the completions that are not handled, peer by peer
	live    []cut        // the regions that it is attached to; no operation there is refused
	looks   [tabledMax]uint32
}

// parts are the parts of a local state. Equal parts are equal states.
type parts struct {
	core        fingerprint
	memory, net uint32
}

// localWay is an attachment with operations under way.
type localWay struct {
	number, owner, region int
	ordinal               int // among those of the same region
	live                  bool
	awaited               bool // by the holder, if the operations succeed
	operations            []localOperation
}

// localOperation is an operation under way. Two writes with the same number do the same.
type localOperation struct {
	number         uint32
	write          bool
	offset, length int
}

// localEntry is a completion that is to come. If it is idle, handling it changes nothing.
type localEntry struct {
	peer       rdmanet.PeerID
	way        int
	done, idle bool
}

// memory is the contents of a process's regions.
type memory struct {
	bytes  []byte
	grants []rdmanet.Permission
	closed []bool
	shown  uint32 // numbers the contents of Tabled.Shown
}

// netKey is the first operation of an attachment that takes place. It names the attachment so that
// the name is the same in all local states with that net.
type netKey struct {
	net                             uint32
	process, owner, region, ordinal uint8
}

// memoryKey is a write that takes place.
type memoryKey struct {
	process       uint8
	memory, write uint32
}

// intern returns the number of a process's present state.
func (t *table) intern(process int) uint32 {
	p := t.play
	name := p.world.processes[process].name
	state := p.appendMachine(p.scratch[:0], process)
	before := len(state)
	state = t.form.AppendView(state, name)
	own := parts{core: fingerprintOf(state)}
	crashed := p.world.processes[process].crashed
	view := append(t.scratch[:0], state[before:]...)
	view = append(view, p.delivered[process]...)
	if crashed {
		view = append(view, 'x')
	}
	t.scratch = view[:0]
	h := p.stage.hosts[process]
	if h != nil {
		state = h.appendWays(state[:0], p.naming(process))
		own.net = t.name('n', state)
		if !crashed {
			own.memory = t.internMemory(process, t.memoryOf(h))
		}
	}
	p.scratch = state[:0]
	number, known := t.known[process][own]
	if known {
		return number
	}
	p.changes(process)
	s := &p.standings[process]
	s.taken = &taken{p.stage.belongings(process), p.form.(Copier).Copy(name),
		slices.Clip(p.delivered[process]), p.said[process]}
	l := local{taken: s.taken, parts: own, crashed: crashed, said: p.said[process],
		view: t.name('v', view)}
	if h != nil {
		if !crashed {
			s.taken.belongings.memory = t.memories[process][own.memory].bytes
		}
		t.describe(&l, h)
	}
	return t.add(process, &l)
}

// add adds a local state that is not known.
func (t *table) add(process int, l *local) uint32 {
	number := uint32(len(t.locals[process]))
	t.locals[process] = append(t.locals[process], l)
	t.known[process][l.parts] = number
	return number
}

// memoryOf describes the memory of a host. The result is valid until the next call.
func (t *table) memoryOf(h *chosenHost) memory {
	m := memory{bytes: t.present.bytes[:0], grants: t.present.grants[:0],
		closed: t.present.closed[:0]}
	for _, r := range h.regions {
		m.bytes = append(m.bytes, r.bytes...)
		m.grants = append(m.grants, r.grants...)
		m.closed = append(m.closed, r.closed)
	}
	t.present = m
	return m
}

// internMemory returns the number of memory. It copies what it keeps.
func (t *table) internMemory(process int, m memory) uint32 {
	state := append(t.scratch[:0], m.bytes...)
	for _, grant := range m.grants {
		state = append(state, byte(grant))
	}
	for _, closed := range m.closed {
		if closed {
			state = append(state, 1)
		} else {
			state = append(state, 0)
		}
	}
	t.scratch = state[:0]
	print := fingerprintOf(state)
	number, known := t.remembered[process][print]
	if known {
		return number
	}
	m.bytes, m.grants, m.closed = slices.Clone(m.bytes), slices.Clone(m.grants),
		slices.Clone(m.closed)
	if from := t.shown[process]; from[1] > 0 {
		m.shown = t.name('s', m.bytes[from[0]:from[1]])
	}
	number = uint32(len(t.memories[process]))
	t.memories[process] = append(t.memories[process], m)
	t.remembered[process][print] = number
	return number
}

// describe describes a process's attachments.
func (t *table) describe(l *local, h *chosenHost) {
	ordinals := map[[2]int]int{}
	ways := map[uint64]int{}
	for _, a := range h.byRegion() {
		owner := a.region.host.number
		if a.live() {
			l.live = append(l.live, cut{h.number, owner, a.regionNumber})
		}
		if len(a.pending) == 0 {
			continue
		}
		at := [2]int{owner, a.regionNumber}
		w := localWay{number: a.number, owner: owner, region: a.regionNumber,
			ordinal: ordinals[at], live: a.live(), awaited: !l.crashed && t.awaits(a)}
		ordinals[at]++
		for _, o := range a.pending {
			name := binary.AppendUvarint(nil, uint64(a.regionNumber))
			name = binary.AppendUvarint(name, uint64(o.Offset))
			if writes(o) {
				name = appendBytes(append(name, 'w'), o.Bytes)
			} else {
				name = binary.AppendUvarint(append(name, 'r'), uint64(len(o.Bytes)))
			}
			number := t.name('o', name)
			if writes(o) {
				t.writes[number] = o.Bytes
			}
			ways[o.number] = a.number
			w.operations = append(w.operations, localOperation{number, writes(o), o.Offset,
				len(o.Bytes)})
		}
		l.ways = append(l.ways, w)
	}
	if l.crashed {
		return
	}
	holder := t.play.world.processes[h.number].name
	for _, q := range h.queues {
		for _, e := range q.byPeer() {
			l.queue = append(l.queue, localEntry{e.completion.Peer, ways[e.number], e.done,
				e.completion.Err == nil && t.form.Idle(holder, e.completion.Tag)})
		}
	}
}

// awaits reports whether the holder of an attachment waits for one of its operations, or for
// another that completes behind one.
func (t *table) awaits(a *chosenAttachment) bool {
	holder, owner := t.play.world.processes[a.host.number].name, a.region.host.id
	for _, q := range a.host.queues {
		for _, e := range q.posted {
			if e.completion.Peer == owner && t.form.Awaits(holder, e.completion.Tag) {
				return true
			}
		}
	}
	return false
}

// quiet returns the completions that are left behind the first operation of an attachment. It
// reports whether the holder has only idle ones to handle then.
func (l *local) quiet(way int) (queue []localEntry, idle bool) {
	if l.crashed {
		return nil, true
	}
	queue = slices.Clone(l.queue)
	at := slices.IndexFunc(queue, func(e localEntry) bool { return !e.done && e.way == way })
	queue[at].done, idle = true, true
	peer, waits := queue[at].peer, false
	queue = slices.DeleteFunc(queue, func(e localEntry) bool {
		waits = waits || e.peer == peer && !e.done
		if e.peer != peer || waits {
			return false
		}
		idle = idle && e.idle
		return true
	})
	return queue, idle
}

// landed returns the local state of a holder after the first operation of an attachment took place,
// if the holder does not have to handle anything.
func (t *table) landed(process int, number uint32, w *localWay) (uint32, bool) {
	before := t.locals[process][number]
	queue, idle := before.quiet(w.number)
	if !idle {
		return 0, false
	}
	l := *before
	l.queue, l.looks = queue, [tabledMax]uint32{}
	if l.base == nil {
		l.base = before
	}
	l.landed = append(slices.Clip(l.landed), w.number)
	key := netKey{l.parts.net, uint8(process), uint8(w.owner), uint8(w.region), uint8(w.ordinal)}
	net, known := t.nets[key]
	if !known {
		p := t.play
		p.stage.clock = 0 // a fair run may have been the last that happened
		t.restore(process, &l)
		p.changes(process)
		name := p.world.processes[process].name
		state := t.form.AppendView(p.appendMachine(p.scratch[:0], process), name)
		if fingerprintOf(state) != l.parts.core {
			panic(fmt.Sprintf("%v changes by a completion that is idle", name))
		}
		state = p.stage.hosts[process].appendWays(state[:0], p.naming(process))
		p.scratch = state[:0]
		net = t.name('n', state)
		t.nets[key] = net
	}
	l.parts.net = net
	if number, known := t.known[process][l.parts]; known {
		return number, true
	}
	l.ways = slices.Clone(l.ways)
	at := slices.IndexFunc(l.ways, func(other localWay) bool { return other.number == w.number })
	if l.ways[at].operations = l.ways[at].operations[1:]; len(l.ways[at].operations) == 0 {
		for i := range l.ways {
			if o := &l.ways[i]; o.owner == w.owner && o.region == w.region &&
				o.ordinal > w.ordinal {
				o.ordinal--
			}
		}
		l.ways = slices.Delete(l.ways, at, at+1)
	}
	l.taken = &taken{delivered: l.base.taken.delivered, said: l.said}
	return t.add(process, &l), true
}

// written returns the local state of an owner after a write took place.
func (t *table) written(process int, number uint32, region int, o localOperation) uint32 {
	before := t.locals[process][number]
	key := memoryKey{uint8(process), before.parts.memory, o.number}
	next, known := t.overwritten[key]
	if !known {
		m := t.memories[process][before.parts.memory]
		m.bytes = append(t.present.bytes[:0], m.bytes...)
		t.present.bytes = m.bytes[:0]
		copy(m.bytes[t.start(process, region)+o.offset:], t.writes[o.number])
		next = t.internMemory(process, m)
		t.overwritten[key] = next
	}
	l := *before
	l.parts.memory, l.looks = next, [tabledMax]uint32{}
	if number, known := t.known[process][l.parts]; known {
		return number
	}
	if l.base == nil {
		l.base = before
	}
	l.taken = &taken{delivered: l.base.taken.delivered, said: l.said}
	return t.add(process, &l)
}

// start returns where a process's region begins in its memory.
func (t *table) start(process, region int) int {
	start := 0
	for _, r := range t.play.stage.hosts[process].regions[:region] {
		start += len(r.bytes)
	}
	return start
}

// restore puts a process into a local state.
func (t *table) restore(process int, l *local) {
	p := t.play
	from := l.taken
	if l.base != nil {
		from = l.base.taken
	}
	name := p.world.processes[process].name
	p.stage.giveBack(process, from.belongings)
	p.form.(Copier).PutBack(name, from.form)
	p.delivered[process], p.said[process] = from.delivered, from.said
	p.standings[process].taken, p.standings[process].printed = l.taken, false
	if l.base == nil {
		return
	}
	h := p.stage.hosts[process]
	if !l.crashed {
		bytes := t.memories[process][l.parts.memory].bytes
		for _, r := range h.regions {
			bytes = bytes[copy(r.bytes, bytes):]
		}
	}
	for _, way := range l.landed {
		h.ways[way].lands()
	}
	if len(l.landed) > 0 {
		p.complete(process)
	}
}

// lands is the holder's part of an operation that takes place.
func (a *chosenAttachment) lands() {
	o := a.pending[0]
	a.pending = a.pending[1:]
	o.queue.complete(o, nil)
}
