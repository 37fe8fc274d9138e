package multicast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// This file searches with tables (table.go), and leaves out schedules that are equivalent to others
// by rules that do not depend on the form. Call operations on memory, arrivals of letters and
// submissions small steps. Call polls, changes of leaders and crashes of replicas events. A letter
// is taken when it arrives, and a completion is handled when it comes (Completer), so a small step
// is nothing but its effect on one or two local states.
//
// A schedule may be changed by these rules. Each keeps the state that it leads to:
//
//  1. A poll that changes nothing is left out.
//  2. A small step right before an event is put behind it, if both orders lead to the same state.
//     The search computes both states and compares them. It assumes nothing about operations,
//     errors or crashes.
//  3. Two small steps that follow each other change places, if both orders lead to the same state.
//  4. A fault (a crash or a change of leaders) right before small steps and a poll is put behind
//     them, if both orders lead to the same state. The search computes both here too.
//
// Rules 1, 2 and 4 can be applied only so often: a schedule has so many polls, each fault can move
// behind so many of them, and each step behind so many events. (Rule 4 puts small steps before a
// fault, but takes away a poll behind it. Rule 2 puts no fault before a poll.) In a schedule to
// which they cannot be applied any more, in whatever order rule 3 puts the small steps between two
// events, each event comes right behind small steps that matter to it. This is a turn. Turns are
// all that the search takes (moves): it lists the states that the small steps before an event lead
// to (turn), takes the event in each, and drops those states where rule 1 or 2 applies to one of
// the ways to reach the state (needless). Of the turns right behind a fault it drops those that
// rule 4 applies to (strike). Behind the last turn of a schedule are small steps without an event.
// So every state that any schedule ends in is reached by turns, and small steps behind them.
//
// So the search crashes a process only right before another one notices, or at the end. A state
// right behind a fault is not one of those that the search remembers and goes on from: what may
// follow it depends on what was before the fault. Such a state is judged, and everything under way
// in it comes (settle), as in all others.
//
// Small steps that concern neither the process of an event nor its memory do not change what the
// event does, except by a permission that a completion changes. The search refuses forms that do
// this (land). They are not even tried (coming). The same is true of a completion without error
// that its holder does not await (Completer.Awaits), and of an operation that such steps and others
// do not overlap with.
//
// At each state the search also lets everything come that is under way (settle), in one order. If
// no poll changes anything then, the state is at rest, and a fair run follows. With two servers of
// DARE the order makes no difference, as a test shows. With three it may, since a server may handle
// two completions in either order. States at rest behind other orders are then left out, and only
// those: an order that matters to a later event is a turn. A crash of a client has no effect
// but that it submits nothing more, and that its letters may be lost. So it can be put behind
// everything else, and happens there. In the same way, an operation of a crashed replica that is
// lost is one that never takes place.
//
// Fewer moments of a schedule are looked at than without these rules: two servers that know nothing
// of each other work one after the other. So a property must be one that stays broken. Those of
// package order are. For others a form keeps a history (Tabled.Judge): two servers that ever led
// one term contradict each other for ever.
//
// The tests compare all states at rest with those of a search without these rules, of two servers
// and of three.

// tabulation is a tabulated search, depth first.
type tabulation struct {
	*explorer
	table *table
	// seen are the visited states, settled those in which everything has come, and rested those
	// that a fair run followed on.
	seen, settled map[tabled]struct{}
	rested        map[[tabledMax]uint32]bool
	// known are the turns of a process, by what it sees.
	known map[sight][][]step
	// struck are the states right before and behind a fault.
	struck map[[2]tabled]struct{}
	// begun are the steps before the search, and path the moves to the present state.
	begun []step
	path  []move
	// nodes are the states of the present turn, and results those behind its event.
	nodes   []node
	results []tabled
	whole   bool // without the rules
	random  *rand.Rand
}

// move is what leads from a state to another one: operations that take place, and then an event.
// The state right before the event is at.
type move struct {
	at, to tabled
	steps  []step
}

// fault reports whether a move ends in a crash or a change of leaders.
func (m *move) fault() bool {
	kind := m.steps[len(m.steps)-1].kind
	return kind == choiceCrash || kind == choiceLead
}

// node is a state within a turn: some operations have taken place.
type node struct {
	state  tabled
	parent int
	last   step
	before []before
}

// before is another way to reach a node: from a node by a step.
type before struct {
	node int
	last step
}

// newTabulation returns a search that has not begun.
func newTabulation(x *explorer) (*tabulation, error) {
	form, is := x.play.form.(Tabled)
	if !is || x.options.Ticks > 0 || len(x.play.standings) > tabledMax {
		return nil, fmt.Errorf("%w: a search by tables of %s with %d ticks and %d processes; it "+
			"takes dare without ticks, and up to %d processes", ErrOptions, x.options.Engine,
			x.options.Ticks, len(x.play.standings), tabledMax)
	}
	x.play.completer = form
	return &tabulation{explorer: x, table: newTable(x.play, form), seen: map[tabled]struct{}{},
		settled: map[tabled]struct{}{}, rested: map[[tabledMax]uint32]bool{},
		known:  map[sight][][]step{},
		struck: map[[2]tabled]struct{}{}, whole: x.options.Unreduced,
		random: rand.New(rand.NewPCG(x.options.Shuffle, 0))}, nil
}

// searchTabulated executes a tabulated search.
func searchTabulated(x *explorer) (SearchResult, error) {
	s, err := newTabulation(x)
	if err != nil {
		return SearchResult{}, err
	}
	x.result.Copied = true
	first := s.table.first()
	if first = s.begin(first); s.table.broken != nil {
		return SearchResult{}, fmt.Errorf("%w: without any fault, %v", ErrOptions, s.table.broken)
	}
	s.seen[first] = struct{}{}
	x.result.States = 1
	s.explore(first, 0)
	if x.err != nil {
		return SearchResult{}, x.err
	}
	x.result.Complete = x.result.Bound == ""
	if x.result.Violation != nil {
		x.result.Path, err = s.tell()
	}
	return x.result, err
}

// explore takes each move from a state.
func (s *tabulation) explore(g tabled, depth int) {
	r := &s.result
	r.Depth = max(r.Depth, depth)
	if depth >= s.options.DepthMax {
		s.bound(BoundDepth)
		return
	}
	if s.path = s.path[:depth]; !s.settle(g, nil) {
		return
	}
	moves := s.moves(g)
	if s.table.broken != nil {
		return
	}
	if s.options.Shuffle > 0 {
		s.random.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
	}
	for _, m := range moves {
		if s.over() {
			return
		}
		if r.Transitions++; m.fault() && !s.whole {
			s.strike(m, depth)
		} else {
			s.visit(m, depth)
		}
	}
}

// visit goes on from where a move leads, unless the search was there before.
func (s *tabulation) visit(m move, depth int) {
	if _, seen := s.seen[m.to]; seen || !s.step(m, depth) {
		return
	}
	s.seen[m.to] = struct{}{}
	s.result.States++
	s.explore(m.to, depth+1)
}

// step takes a move. It reports whether no property is broken.
func (s *tabulation) step(m move, depth int) bool {
	s.path = append(s.path[:depth], m)
	if s.result.Violation = s.table.judge(&m.to); s.result.Violation != nil {
		s.bound(BoundViolation)
	}
	return s.result.Violation == nil
}

// strike takes a move that ends in a fault, and with it each next move that would not lead to the
// same state before the fault (rule 4).
func (s *tabulation) strike(m move, depth int) {
	key := [2]tabled{m.at, m.to}
	if _, struck := s.struck[key]; struck || !s.step(m, depth) {
		return
	}
	s.struck[key] = struct{}{}
	if !s.settle(m.to, nil) {
		return
	}
	fault := m.steps[len(m.steps)-1]
	for _, next := range s.moves(m.to) {
		if s.over() {
			return
		}
		s.result.Transitions++
		both := move{next.at, next.to, slices.Concat(m.steps, next.steps)}
		if next.fault() {
			s.strike(both, depth)
		} else if late, whole := s.early(m.at, next.steps, fault); !whole {
			return
		} else if late != next.to {
			s.visit(both, depth)
		}
	}
}

// early returns the state that a turn and then a fault lead to, or a state that is none if the turn
// is not possible without the fault.
func (s *tabulation) early(g tabled, turn []step, fault step) (late tabled, whole bool) {
	for _, one := range turn {
		if !s.possible(&g, one) {
			return tabled{}, true
		}
		if g, whole = s.take(g, one, 0); !whole {
			return g, false
		}
	}
	return s.take(g, fault, 0)
}

// over reports whether the search has ended.
func (s *tabulation) over() bool {
	r := &s.result
	switch {
	case r.Bound != "" && r.Bound != BoundDepth:
	case r.States >= s.options.StatesMax:
		s.bound(BoundStates)
	case r.Transitions%256 != 0:
	case errors.Is(s.ctx.Err(), context.DeadlineExceeded):
		s.bound(BoundTime)
	case s.ctx.Err() != nil:
		s.bound(BoundInterrupt)
	}
	return r.Bound != "" && r.Bound != BoundDepth
}

// take takes a step. It reports false if the step breaks a property, which ends the search.
func (s *tabulation) take(g tabled, last step, at int) (tabled, bool) {
	next := s.table.take(g, last)
	if s.table.broken == nil {
		return next, true
	}
	s.result.Violation = s.table.broken
	s.path = append(s.path, move{steps: append(s.steps(at), last)})
	s.bound(BoundViolation)
	return next, false
}

// steps returns the steps that lead to a node of the present turn.
func (s *tabulation) steps(at int) []step {
	var steps []step
	for ; at > 0; at = s.nodes[at].parent {
		steps = append(steps, s.nodes[at].last)
	}
	slices.Reverse(steps)
	return steps
}

// moves returns the moves from a state.
func (s *tabulation) moves(g tabled) (moves []move) {
	if s.whole {
		return s.all(g)
	}
	for process := range s.play.standings {
		if s.table.local(&g, process).crashed || s.client(process) {
			continue
		}
		turns, whole := s.turns(g, process)
		if !whole {
			return nil
		}
		for _, steps := range turns {
			m := move{to: g, steps: steps}
			for _, one := range steps {
				m.at = m.to
				if m.to, whole = s.take(m.to, one, 0); !whole {
					return nil
				}
			}
			moves = append(moves, m)
		}
	}
	return moves
}

// turns returns the turns of a process in a state. They are the same in all states that look the
// same to it, and computed once for these (turns.go).
func (s *tabulation) turns(g tabled, process int) (turns [][]step, whole bool) {
	key := s.table.sight(&g, process)
	turns, known := s.known[key]
	if known && !s.options.forgets {
		return turns, true
	}
	turns = nil
	if !s.turn(g, process) {
		return nil, false
	}
	for _, event := range s.events(&g, process) {
		s.results = s.results[:0]
		for at := range s.nodes {
			next, whole := s.take(s.nodes[at].state, event, at)
			if !whole {
				return nil, false
			}
			s.results = append(s.results, next)
		}
		for at := range s.nodes {
			needless, whole := s.needless(at)
			if !whole {
				return nil, false
			}
			if !needless {
				turns = append(turns, append(s.steps(at), event))
			}
		}
	}
	s.known[key] = turns
	return turns, true
}

// needless reports whether an event behind some operations changes nothing, or is equivalent to the
// same event with one of the operations behind it.
func (s *tabulation) needless(at int) (needless, whole bool) {
	if s.results[at] == s.nodes[at].state {
		return true, true
	}
	for _, b := range s.nodes[at].before {
		early := s.results[b.node]
		if !s.possible(&early, b.last) {
			continue
		}
		late, whole := s.take(early, b.last, at)
		if !whole || late == s.results[at] {
			return true, whole
		}
	}
	return false, true
}

// all returns the moves of an unreduced search: everything that can happen next.
func (s *tabulation) all(g tabled) (moves []move) {
	var steps []step
	for process := range s.play.standings {
		l := s.table.local(&g, process)
		for i := range l.ways {
			steps = append(steps, l.ways[i].step(process, choiceLand))
			if l.crashed {
				steps = append(steps, l.ways[i].step(process, choiceLoseWay))
			}
		}
		if !l.crashed {
			steps = append(steps, s.events(&g, process)...)
		}
	}
	for _, l := range s.table.rests[g.rest].links {
		if len(l.letters) > 0 {
			steps = append(steps, step{kind: choiceArrive, a: l.from, b: l.to})
			if s.table.local(&g, l.from).crashed {
				steps = append(steps, step{kind: choiceLose, a: l.from, b: l.to})
			}
		}
	}
	s.nodes = append(s.nodes[:0], node{state: g})
	for _, one := range steps {
		next, whole := s.take(g, one, 0)
		if !whole {
			return nil
		}
		moves = append(moves, move{g, next, []step{one}})
	}
	return moves
}

// settle makes everything under way in a state come, in each way that crashes allow. If no process
// has anything to do then, a fair run follows. It reports whether no property is broken.
func (s *tabulation) settle(g tabled, steps []step) bool {
	for s.unsettled(&g, &steps) {
		if s.table.broken != nil {
			return s.breaks(s.table.broken, steps)
		}
	}
	if _, settled := s.settled[g]; settled {
		return true
	}
	s.settled[g] = struct{}{}
	either, both := s.strays(&g), false
	for _, one := range either {
		next := s.table.take(g, one)
		if s.table.broken != nil {
			return s.breaks(s.table.broken, append(steps, one))
		}
		if !s.settle(next, append(slices.Clip(steps), one)) {
			return false
		}
		both = both || one.kind != choiceCrash
	}
	if both {
		return true
	}
	for process := range s.play.standings {
		if s.client(process) || s.table.local(&g, process).crashed {
			continue
		}
		poll := step{kind: choicePoll, a: process}
		next := s.table.take(g, poll)
		if s.table.broken != nil {
			return s.breaks(s.table.broken, append(steps, poll))
		}
		if next != g {
			return true
		}
	}
	if broken := s.table.judge(&g); broken != nil {
		return s.breaks(broken, steps)
	}
	if s.options.rests != nil {
		s.table.compose(&g)
		s.options.rests[s.play.fingerprint()] = true
	}
	if s.rested[g.locals] {
		return true
	}
	s.rested[g.locals] = true
	s.result.Ends++
	s.table.compose(&g)
	if broken := s.play.rest(); broken != nil {
		return s.breaks(broken, append(steps, step{kind: choiceRest}))
	}
	return true
}

// breaks ends the search with a violation behind some steps.
func (s *tabulation) breaks(broken *order.Violation, steps []step) bool {
	s.result.Violation = broken
	s.path = append(s.path, move{steps: steps})
	s.bound(BoundViolation)
	return false
}

// unsettled makes an operation of a live process take place. It reports whether there was one.
func (s *tabulation) unsettled(g *tabled, steps *[]step) bool {
	for holder := range s.play.standings {
		if l := s.table.local(g, holder); !l.crashed && len(l.ways) > 0 {
			one := l.ways[0].step(holder, choiceLand)
			*steps = append(*steps, one)
			*g = s.table.take(*g, one)
			return true
		}
	}
	return false
}

// strays lists the ways in which a state without operations of live processes can go on: what a
// crashed process sent takes place or is lost; a client submits, or its letter arrives, or it
// crashes.
func (s *tabulation) strays(g *tabled) []step {
	for holder := range s.play.standings {
		if l := s.table.local(g, holder); len(l.ways) > 0 {
			return []step{l.ways[0].step(holder, choiceLand),
				l.ways[0].step(holder, choiceLoseWay)}
		}
	}
	for _, l := range s.table.rests[g.rest].links {
		switch {
		case len(l.letters) == 0:
		case s.table.local(g, l.from).crashed:
			return []step{{kind: choiceArrive, a: l.from, b: l.to},
				{kind: choiceLose, a: l.from, b: l.to}}
		default:
			return append([]step{{kind: choiceArrive, a: l.from, b: l.to}},
				s.crashOf(g, l.from)...)
		}
	}
	for process := range s.play.standings {
		if s.client(process) && !s.table.local(g, process).crashed {
			if s.unsubmitted(g, process) {
				return append([]step{{kind: choiceSubmit, a: process}}, s.crashOf(g, process)...)
			}
			if crash := s.crashOf(g, process); crash != nil {
				return crash
			}
		}
	}
	return nil
}

// crashOf lists the crash of a client, if there may be another one.
func (s *tabulation) crashOf(g *tabled, client int) []step {
	if s.table.rests[g.rest].crashes == 0 {
		return nil
	}
	return []step{{kind: choiceCrash, a: client}}
}

// step returns a step of an attachment.
func (w *localWay) step(holder int, kind choiceKind) step {
	return step{kind, holder, w.owner, w.region, w.ordinal}
}

// unsubmitted reports whether a client has another message.
func (s *tabulation) unsubmitted(g *tabled, process int) bool {
	client := int(s.play.world.processes[process].name.Server)
	return client+2*s.table.rests[g.rest].submitted[client] < len(s.play.messages)
}

// possible reports whether a step can be taken in a state.
func (s *tabulation) possible(g *tabled, one step) bool {
	switch one.kind {
	case choiceLand:
		return s.table.local(g, one.a).wayOf(one) != nil
	case choiceSubmit:
		return !s.table.local(g, one.a).crashed && s.unsubmitted(g, one.a)
	case choicePoll:
		return !s.table.local(g, one.a).crashed
	}
	return slices.ContainsFunc(s.table.rests[g.rest].links, func(l chosenLink) bool {
		return l.from == one.a && l.to == one.b && len(l.letters) > 0
	}) && !s.table.local(g, one.b).crashed
}

// client reports whether a process is a client.
func (s *tabulation) client(process int) bool {
	return s.play.world.processes[process].name.Group == order.Clients
}

// turn lists the states that matter to a process's next event: some operations and letters that
// concern it have come. It puts them into s.nodes.
func (s *tabulation) turn(g tabled, process int) bool {
	s.nodes = append(s.nodes[:0], node{state: g})
	for at := 0; at < len(s.nodes); at++ {
		for _, one := range s.coming(&s.nodes[at].state, process) {
			next, whole := s.take(s.nodes[at].state, one, at)
			if !whole {
				return false
			}
			b := before{at, one}
			if same := slices.IndexFunc(s.nodes, func(n node) bool {
				return n.state == next
			}); same >= 0 {
				s.nodes[same].before = append(s.nodes[same].before, b)
				continue
			}
			s.nodes = append(s.nodes, node{next, at, one, []before{b}})
		}
	}
	return true
}

// coming lists what can come next and may matter to a process.
func (s *tabulation) coming(g *tabled, process int) []step {
	var all, others []step
	var ways, rest []*localWay
	for other := range s.play.standings {
		if s.client(other) && !s.table.local(g, other).crashed && s.unsubmitted(g, other) {
			all = append(all, step{kind: choiceSubmit, a: other})
		}
	}
	for _, l := range s.table.rests[g.rest].links {
		if l.to == process && len(l.letters) > 0 {
			all = append(all, step{kind: choiceArrive, a: l.from, b: l.to})
		}
	}
	for holder := range s.play.standings {
		l := s.table.local(g, holder)
		for i := range l.ways {
			w := &l.ways[i]
			one := w.step(holder, choiceLand)
			if w.owner == process || holder == process && (w.awaited || !w.live ||
				s.table.local(g, w.owner).crashed) {
				all, ways = append(all, one), append(ways, w)
			} else {
				others, rest = append(others, one), append(rest, w)
			}
		}
	}
	// An operation that one of these sees or overwrites comes before it or behind it.
	for i := 0; i < len(ways); i++ {
		for j := 0; j < len(rest); j++ {
			if ways[i].overlaps(rest[j]) {
				all, ways = append(all, others[j]), append(ways, rest[j])
				others, rest = slices.Delete(others, j, j+1), slices.Delete(rest, j, j+1)
				j--
			}
		}
	}
	return all
}

// overlaps reports whether the order of the operations of two attachments matters.
func (w *localWay) overlaps(other *localWay) bool {
	if w.owner != other.owner || w.region != other.region || !w.live || !other.live {
		return false
	}
	for _, x := range w.operations {
		for _, y := range other.operations {
			if (x.write || y.write) && x.offset < y.offset+y.length &&
				y.offset < x.offset+x.length {
				return true
			}
		}
	}
	return false
}

// events lists what can happen to a process.
func (s *tabulation) events(g *tabled, process int) []step {
	p, r := s.play, &s.table.rests[g.rest]
	name := p.world.processes[process].name
	var all []step
	if name.Group == order.Clients {
		if s.unsubmitted(g, process) {
			all = append(all, step{kind: choiceSubmit, a: process})
		}
	} else {
		all = append(all, step{kind: choicePoll, a: process})
		if r.leads > 0 {
			for server := range s.options.Replicas {
				said := s.table.local(g, process).said
				if s.options.mayHear(r.leads, process, server, said) {
					all = append(all, step{kind: choiceLead, a: process, b: server})
				}
			}
		}
	}
	if r.crashes > 0 {
		all = append(all, step{kind: choiceCrash, a: process})
	}
	return all
}

// tell shortens the path to the violation, and describes it line by line.
func (s *tabulation) tell() (text []string, err error) {
	steps := slices.Clone(s.begun)
	for _, m := range s.path {
		steps = append(steps, m.steps...)
	}
	text, s.result.Violation, err = shorten(steps, s.result.Violation, s.replay)
	return text, err
}

// replay takes the possible steps of a path until a property is broken.
func (s *tabulation) replay(path []step, text io.Writer) (*order.Violation, error) {
	p, err := newPlay(s.options, text)
	if err != nil {
		return nil, err
	}
	t := newTable(p, p.form.(Tabled))
	p.completer = t.form
	for _, one := range path {
		var broken *order.Violation
		switch {
		case one.kind == choiceRest:
			p.world.trace.Say(p.stage.clock, "nothing is under way; time passes")
			broken = p.rest()
		case !p.possible(one):
			continue
		default:
			if p.world.trace.HasText() {
				p.world.trace.Say(p.stage.clock, "%s", p.describe(p.choiceOf(one)))
			}
			if broken = t.execute(one); broken == nil {
				broken = t.verdict()
			}
		}
		if broken != nil {
			return broken, p.world.trace.Close()
		}
	}
	return nil, p.world.trace.Close()
}
