package multicast

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file tabulates a play. A process with all that belongs to it (its machine, its memory, its
// operations under way) is a local state, and has a number. A state of the play is a few such
// numbers. What an event does depends on one or two local states, so it is computed once for these
// and looked up from then on. Nothing is approximated: equal numbers stand for equal states, which
// fingerprints of 128 bits tell apart.

// Tabled is a form whose search can be tabulated. Its Poll depends on its process, on what the
// World holds for it, and on nothing else. Its Complete changes no permission.
type Tabled interface {
	Copier
	Completer
	// Take makes a process take its letters, which is what Poll does first. Doing that early has no
	// effect on other processes.
	Take(at order.Replica)
	// Idle reports whether handling the successful completion with the given tag changes nothing
	// that AppendState tells. It may do so only if Awaits is false.
	Idle(at order.Replica, tag uint64) bool
	// Shown returns the region of a process whose contents Judge depends on, or nil.
	Shown(at order.Replica) rdmanet.Region
	// AppendView appends everything else about a process that Judge depends on.
	AppendView(state []byte, at order.Replica) []byte
	// Judge returns what is broken about all processes together, or "".
	Judge() string
}

// tabledMax is the maximum number of processes of a tabulated play.
const tabledMax = 5

// tabled is a state of a play: its local states, and the rest.
type tabled struct {
	locals [tabledMax]uint32
	rest   uint32
}

// rest is what belongs to no process.
type rest struct {
	links          []chosenLink
	submitted      []int
	crashes, leads int
}

// step is an event, or an operation that takes place. It names an attachment so that the name is
// the same in all plays in the same state.
type step struct {
	kind choiceKind
	// a is the process. For a letter it is the sender, and for an operation the holder.
	a int
	// b is the process that is named as the leader, the receiver, or the owner of the region.
	b, region, ordinal int
}

// memoKey is what the effect of a step depends on.
type memoKey struct {
	kind    choiceKind
	process uint8
	local   uint32
	x, y    uint32
}

// outcome is the effect of a step on its process and the rest, if some attempts to attach end as
// they did.
type outcome struct {
	attempts []attempt
	local    uint32
	rest     uint32 // 0 if it did not change
	cuts     []cut
}

// The results of an operation for its holder. Higher numbers stand for what a read saw.
const (
	operationWrote = iota
	operationUnreachable
	operationRefused
	operationRead
)

// table holds the local states of a play, and the effects of its steps.
type table struct {
	play   *play
	form   Tabled
	locals [tabledMax][]*local
	known  [tabledMax]map[parts]uint32
	rests  []rest
	// names numbers operations, contents, nets, views and rests, each with a letter first.
	names map[string]uint32
	memo  map[memoKey][]outcome
	// memories are the memories of a process. shown is where the shown region lies in them.
	memories    [tabledMax][]memory
	remembered  [tabledMax]map[fingerprint]uint32
	shown       [tabledMax][2]int
	overwritten map[memoryKey]uint32
	writes      map[uint32][]byte // the bytes of writes, by the number of the operation
	nets        map[netKey]uint32
	judged      map[[2*tabledMax + 1]uint32]bool
	broken      *order.Violation

	scratch []byte
	present memory
}

func newTable(p *play, form Tabled) *table {
	t := &table{play: p, form: form, names: map[string]uint32{}, memo: map[memoKey][]outcome{},
		judged: map[[2*tabledMax + 1]uint32]bool{}, rests: make([]rest, 1),
		overwritten: map[memoryKey]uint32{}, writes: map[uint32][]byte{},
		nets: map[netKey]uint32{}}
	for number, process := range p.world.processes {
		t.known[number], t.remembered[number] = map[parts]uint32{}, map[fingerprint]uint32{}
		if shown := form.Shown(process.name); shown != nil {
			for at, r := range p.stage.hosts[number].regions {
				if r == shown {
					start := t.start(number, at)
					t.shown[number] = [2]int{start, start + len(r.bytes)}
				}
			}
		}
	}
	return t
}

// name numbers names of a kind from 1 on.
func (t *table) name(kind byte, name []byte) uint32 {
	key := append([]byte{kind}, name...)
	number, known := t.names[string(key)]
	if !known {
		number = uint32(len(t.names) + 1)
		t.names[string(key)] = number
	}
	return number
}

// first returns the play's state.
func (t *table) first() tabled {
	var g tabled
	for number := range t.play.standings {
		g.locals[number] = t.intern(number)
	}
	p := t.play
	g.rest = t.internRest(rest{slices.Clone(p.stage.links), slices.Clone(p.submitted), p.crashes,
		p.leads})
	return g
}

// local returns a process's local state.
func (t *table) local(g *tabled, process int) *local {
	return t.locals[process][g.locals[process]]
}

// internRest returns the number of a rest.
func (t *table) internRest(r rest) uint32 {
	slices.SortStableFunc(r.links, func(a, b chosenLink) int {
		return slices.Compare([]int{a.from, a.to}, []int{b.from, b.to})
	})
	state := []byte{byte(r.crashes), byte(r.leads)}
	for _, count := range r.submitted {
		state = append(state, byte(count))
	}
	for i, l := range r.links {
		r.links[i].letters = slices.Clip(l.letters)
		for _, letter := range l.letters {
			state = appendBytes(append(state, byte(l.from), byte(l.to)), letter.Bytes)
		}
	}
	key := "r" + string(state)
	number, known := t.names[key]
	if !known {
		number = uint32(len(t.rests))
		t.names[key] = number
		t.rests = append(t.rests, r)
	}
	return number
}

// compose puts the play into a state.
func (t *table) compose(g *tabled) {
	t.setOut(g)
	for number := range t.play.standings {
		t.place(g, number)
	}
}

// composeFor puts the play into a state in which one process can act: of the others it sets only
// what that process can notice when it attaches to their memory.
func (t *table) composeFor(g *tabled, process int) {
	t.setOut(g)
	p := t.play
	for number := range p.standings {
		l := t.local(g, number)
		if number == process || p.stage.hosts[number] == nil {
			t.place(g, number)
			continue
		}
		if p.standings[number].taken == l.taken {
			continue
		}
		p.changes(number)
		if p.world.processes[number].crashed = l.crashed; l.crashed {
			continue
		}
		m := &t.memories[number][l.parts.memory]
		grants := m.grants
		for i, r := range p.stage.hosts[number].regions {
			grants = grants[copy(r.grants, grants):]
			r.closed = m.closed[i]
		}
	}
}

// setOut begins to put the play into a state.
func (t *table) setOut(g *tabled) {
	p, r := t.play, &t.rests[g.rest]
	p.stage.putBack(contents{links: r.links})
	copy(p.submitted, r.submitted)
	p.crashes, p.leads, p.turn = r.crashes, r.leads, nobody
	p.stage.cuts, p.stage.attached = p.stage.cuts[:0], p.stage.attached[:0]
	for number := range p.standings {
		l := t.local(g, number)
		p.delivered[number], p.said[number] = l.taken.delivered, l.taken.said
	}
}

// place puts a process into its local state in a state.
func (t *table) place(g *tabled, process int) {
	if l := t.local(g, process); t.play.standings[process].taken != l.taken {
		t.restore(process, l)
	}
}

// holds reports whether an attempt to attach would end in the same way.
func (t *table) holds(g *tabled, holder int, a attempt) bool {
	owner := t.local(g, a.owner)
	if owner.crashed || a.region < 0 {
		return owner.crashed == (a.region < 0)
	}
	grants := t.memories[a.owner][owner.parts.memory].grants
	return grants[a.region*len(t.play.standings)+holder] == a.permission
}

// look looks an effect up.
func (t *table) look(g *tabled, key memoKey) *outcome {
	all := t.memo[key]
next:
	for i := range all {
		for _, a := range all[i].attempts {
			if !t.holds(g, int(key.process), a) {
				continue next
			}
		}
		return &all[i]
	}
	return nil
}

// apply changes a state by an effect.
func (t *table) apply(g *tabled, process int, o *outcome) {
	g.locals[process] = o.local
	if o.rest != 0 {
		g.rest = o.rest
	}
	for _, c := range o.cuts {
		t.cut(g, c)
	}
}

// cut ends a process's attachments to a region.
func (t *table) cut(g *tabled, c cut) {
	if !slices.Contains(t.local(g, c.holder).live, c) {
		return
	}
	key := memoKey{choiceCut, uint8(c.holder), g.locals[c.holder], uint32(c.owner),
		uint32(c.region)}
	o := t.look(g, key)
	if o == nil {
		t.compose(g)
		p := t.play
		p.changes(c.holder)
		p.stage.ends(p.stage.hosts[c.owner].regions[c.region], c.holder)
		t.memo[key] = []outcome{{local: t.intern(c.holder)}}
		o = &t.memo[key][0]
	}
	g.locals[c.holder] = o.local
}

// take returns the state after a step. If the step breaks a property, t.broken is set.
func (t *table) take(g tabled, s step) tabled {
	switch s.kind {
	case choiceLand:
		return t.land(g, s)
	case choiceCrash:
		return t.crash(g, s)
	case choiceLose:
		r := t.rests[g.rest]
		r.links = slices.Clone(r.links)
		for i := range r.links {
			if l := &r.links[i]; l.from == s.a && l.to == s.b {
				l.letters = nil
			}
		}
		g.rest = t.internRest(r)
		return g
	case choiceLoseWay:
		return t.loseWay(g, s)
	}
	process := s.a
	key := memoKey{s.kind, uint8(s.a), g.locals[s.a], 0, 0}
	switch s.kind {
	case choiceArrive:
		process = s.b
		key = memoKey{s.kind, uint8(s.b), g.locals[s.b], g.rest, uint32(s.a)}
	case choiceSubmit:
		key.x = g.rest
	case choiceLead:
		key.x, key.y = uint32(s.b), g.rest
	}
	o := t.look(&g, key)
	if o == nil {
		before := g
		switch s.kind {
		case choicePoll, choiceLead:
			t.composeFor(&before, process)
		default:
			t.compose(&before)
		}
		if t.broken = t.execute(s); t.broken != nil {
			return g
		}
		t.memo[key] = append(t.memo[key], t.effect(&before, process))
		o = &t.memo[key][len(t.memo[key])-1]
	}
	t.apply(&g, process, o)
	return g
}

// effect describes what the play's last step did to a process and the rest.
func (t *table) effect(before *tabled, process int) outcome {
	p := t.play
	o := outcome{attempts: slices.Clone(p.stage.attached), cuts: slices.Clone(p.stage.cuts),
		local: t.intern(process)}
	number := t.internRest(rest{slices.Clone(p.stage.links), slices.Clone(p.submitted), p.crashes,
		p.leads})
	if number != before.rest {
		o.rest = number
	}
	return o
}

// execute takes a step in the play.
func (t *table) execute(one step) *order.Violation {
	p := t.play
	c := p.choiceOf(one)
	if one.kind != choiceArrive {
		return p.take(c)
	}
	p.changes(one.b)
	p.stage.arrive(c.a)
	t.form.Take(p.world.processes[one.b].name)
	return nil
}

// choiceOf returns the choice that a step is in this play.
func (p *play) choiceOf(one step) choice {
	c := choice{kind: one.kind, a: one.a, b: one.b, turn: nobody}
	switch one.kind {
	case choiceArrive, choiceLose:
		c.a, c.b = p.stage.linkAt[[2]int{one.a, one.b}], 0
	case choiceSubmit:
		c.a = int(p.world.processes[one.a].name.Server)
	case choiceLand, choiceLoseWay:
		c.b = p.wayOf(one)
	}
	return c
}

// possible reports whether a step can be taken.
func (p *play) possible(one step) bool {
	crashed := p.world.processes[one.a].crashed
	link, linked := p.stage.linkAt[[2]int{one.a, one.b}]
	linked = linked && len(p.stage.links[link].letters) > 0
	switch one.kind {
	case choiceArrive:
		return linked && !p.world.processes[one.b].crashed
	case choiceLose:
		return linked && crashed
	case choiceLand:
		return p.wayOf(one) >= 0
	case choiceLoseWay:
		return crashed && p.wayOf(one) >= 0
	case choiceSubmit:
		client := int(p.world.processes[one.a].name.Server)
		return !crashed && client+2*p.submitted[client] < len(p.messages)
	case choiceLead:
		return !crashed && p.options.mayHear(p.leads, one.a, one.b, p.said[one.a])
	case choiceCrash:
		return !crashed && p.crashes > 0
	}
	return !crashed
}

// wayOf returns the number of the attachment that a step names, or -1.
func (p *play) wayOf(s step) int {
	if p.stage.hosts[s.a] == nil {
		return -1
	}
	ordinal := 0
	for _, a := range p.stage.hosts[s.a].byRegion() {
		if a.region.host.number == s.b && a.regionNumber == s.region && len(a.pending) > 0 {
			if ordinal == s.ordinal {
				return a.number
			}
			ordinal++
		}
	}
	return -1
}

// wayOf returns the attachment of a local state that a step names, or nil.
func (l *local) wayOf(s step) *localWay {
	for i := range l.ways {
		if w := &l.ways[i]; w.owner == s.b && w.region == s.region && w.ordinal == s.ordinal {
			return w
		}
	}
	return nil
}

// land makes an operation take place, and its holder handle the completion.
func (t *table) land(g tabled, s step) tabled {
	w := t.local(&g, s.a).wayOf(s)
	owner := t.local(&g, s.b)
	first := w.operations[0]
	result := uint32(operationWrote)
	switch {
	case owner.crashed:
		result = operationUnreachable
	case !w.live:
		result = operationRefused
	case !first.write:
		memory := t.memories[s.b][owner.parts.memory].bytes[t.start(s.b, s.region):]
		result = operationRead + t.name('c', memory[first.offset:][:first.length])
	}
	holds := memoKey{choiceLand, uint8(s.a), g.locals[s.a], uint32(w.number), result}
	held := t.look(&g, holds)
	if held == nil {
		next, idle := uint32(0), false
		if result == operationWrote {
			next, idle = t.landed(s.a, g.locals[s.a], w)
		}
		if !idle {
			next = t.handle(&g, s, w, result)
		}
		if t.broken != nil {
			return g
		}
		t.memo[holds] = []outcome{{local: next}}
		held = &t.memo[holds][0]
	}
	g.locals[s.a] = held.local
	if result != operationWrote {
		return g
	}
	owns := memoKey{choiceWritten, uint8(s.b), g.locals[s.b], first.number, 0}
	owned := t.look(&g, owns)
	if owned == nil {
		t.memo[owns] = []outcome{{local: t.written(s.b, g.locals[s.b], s.region, first)}}
		owned = &t.memo[owns][0]
	}
	g.locals[s.b] = owned.local
	return g
}

// handle makes a holder handle the completion of an operation. It returns its next local state.
func (t *table) handle(g *tabled, s step, w *localWay, result uint32) uint32 {
	p := t.play
	if result == operationWrote {
		t.composeFor(g, s.a)
		p.changes(s.a)
		p.stage.hosts[s.a].ways[w.number].lands()
	} else {
		t.compose(g)
		p.changes(s.a)
		p.stage.hosts[s.a].ways[w.number].land()
	}
	p.complete(s.a)
	if len(p.stage.cuts) > 0 {
		t.broken = &order.Violation{Property: Contract, Evidence: []string{
			fmt.Sprintf("a completion of %v changes a permission", p.world.processes[s.a].name),
			"a tabulated search does not look at such forms"}}
		return 0
	}
	return t.intern(s.a)
}

// crash makes a process crash. Letters and operations of other crashed ones to it are dropped.
func (t *table) crash(g tabled, s step) tabled {
	key := memoKey{choiceCrash, uint8(s.a), g.locals[s.a], g.rest, 0}
	o := t.look(&g, key)
	if o == nil {
		before := g
		t.compose(&before)
		t.play.take(choice{kind: choiceCrash, a: s.a, turn: nobody})
		t.memo[key] = []outcome{t.effect(&before, s.a)}
		o = &t.memo[key][0]
	}
	t.apply(&g, s.a, o)
	for number := range t.play.standings {
		for l := t.local(&g, number); l.crashed; l = t.local(&g, number) {
			at := slices.IndexFunc(l.ways, func(w localWay) bool { return w.owner == s.a })
			if at < 0 {
				break
			}
			w := &l.ways[at]
			g = t.loseWay(g, step{choiceLoseWay, number, w.owner, w.region, w.ordinal})
		}
	}
	return g
}

// loseWay drops what a crashed process posted on an attachment.
func (t *table) loseWay(g tabled, s step) tabled {
	w := t.local(&g, s.a).wayOf(s)
	key := memoKey{choiceLoseWay, uint8(s.a), g.locals[s.a], uint32(w.number), 0}
	o := t.look(&g, key)
	if o == nil {
		t.compose(&g)
		t.play.take(choice{kind: choiceLoseWay, a: s.a, b: w.number, turn: nobody})
		t.memo[key] = []outcome{{local: t.intern(s.a)}}
		o = &t.memo[key][0]
	}
	g.locals[s.a] = o.local
	return g
}

// judge judges a state. Equal views were judged before.
func (t *table) judge(g *tabled) *order.Violation {
	var key [2*tabledMax + 1]uint32
	for number := range t.play.standings {
		l := t.local(g, number)
		key[number] = l.view
		if !l.crashed && t.play.stage.hosts[number] != nil {
			key[tabledMax+number] = t.memories[number][l.parts.memory].shown
		}
	}
	for _, count := range t.rests[g.rest].submitted {
		key[2*tabledMax] = key[2*tabledMax]<<8 | uint32(count)
	}
	if t.judged[key] {
		return nil
	}
	t.judged[key] = true
	t.compose(g)
	return t.verdict()
}

// verdict judges the play's present state.
func (t *table) verdict() *order.Violation {
	if broken := t.form.Judge(); broken != "" {
		return &order.Violation{Property: Invariant, Evidence: []string{broken}}
	}
	return t.play.judge(order.UnderWay)
}
