package book

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/trace"
)

const (
	// restTurns bounds the second phase of a run, which ends as soon as the book rests. A tree
	// whose links lose half of all messages takes 1,700 turns to pass on what was submitted.
	restTurns = 4000
	// againAfter is how many turns a client waits before it submits a bundle again.
	againAfter = 16
	// traceColumn is the width of the turns in a trace.
	traceColumn = 5
)

// world is a run.
type world struct {
	options Options
	plan    *plan
	result  Result
	turn    Turn
	// random is the chance of the present turn. Each turn has its own, so that leaving something
	// out of the plan changes little else.
	random *rand.Rand
	trace  *trace.Trace[Turn]
	groups []*group
	// tree is that of the shards that have begun.
	tree *ledger.ShardTree
	// usedBefore says that some of the registered asset was moved before it was registered.
	usedBefore bool
	// holdsMoved are the holds that arrived with an organisation in any shard.
	holdsMoved map[ledger.Hash]bool
	// detailsMoved are the entries whose keys, or of which what is left, arrived so.
	detailsMoved map[ledger.Hash]bool
	// submitted are the transactions that members are asked about, and foreseen those of them of
	// which members foresaw that they fail.
	submitted []submitted
	foreseen  map[ledger.Hash]foresight
	// post are the messages under way, by the turn in which they arrive.
	post  map[Turn][]letter
	paths []ledger.AccountPath
	// changed is set if a chain has changed since the last judgement.
	changed bool
}

// stop ends a run at its first violation.
type stop struct{}

// Run makes a run. It returns an error only for bad options.
func Run(options Options) (Result, error) {
	if err := options.Validate(); err != nil {
		return Result{}, err
	}
	p, err := newPlan(&options)
	if err != nil {
		return Result{}, err
	}
	w := &world{options: options, plan: p, post: make(map[Turn][]letter),
		holdsMoved: make(map[ledger.Hash]bool), detailsMoved: make(map[ledger.Hash]bool),
		foreseen: make(map[ledger.Hash]foresight),
		trace:    trace.New[Turn](options.Trace, traceColumn), paths: p.workload.paths()}
	w.result = Result{Seed: options.Seed, Plan: p.String(), Shards: len(p.genesis),
		Members: len(p.genesis) * len(p.keys[0])}
	w.result.Mixed = p.mixed
	w.listSubmitted()
	w.play()
	w.result.Turns, w.result.Hash = w.turn, w.trace.Hash()
	for _, g := range w.groups {
		w.result.Blocks += g.head()
	}
	return w.result, w.trace.Close()
}

// RunSeed makes the run with another seed.
func (o Options) RunSeed(seed uint64) (Result, error) {
	o.Seed = seed
	return Run(o)
}

// play plays the run until it ends or a property is broken.
func (w *world) play() {
	defer func() {
		switch reason := recover().(type) {
		case nil, stop:
		default:
			w.result.Violations = []*order.Violation{{Property: Contract,
				Evidence: []string{fmt.Sprintf("panic: %v", reason), string(debug.Stack())}}}
		}
	}()
	w.say("%v", w.plan)
	w.begin()
	for w.turn = 1; w.turn <= w.plan.calm; w.turn++ {
		w.pass()
	}
	w.say("no more faults")
	for ; w.turn <= w.plan.calm+restTurns; w.turn++ {
		w.pass()
		if w.turn%8 == 0 && len(w.unrest()) == 0 {
			w.judgeRest()
			return
		}
	}
	w.fail(Progress, w.unrest()...)
}

// begin starts all members.
func (w *world) begin() {
	w.random = rand.New(rand.NewPCG(w.options.Seed, 1))
	w.tree = w.plan.tree
	for _, genesis := range w.plan.genesis {
		w.found(genesis, nil)
	}
}

// found starts the members of a shard.
func (w *world) found(genesis *ledger.Genesis, seed []byte) {
	g := &group{world: w, shard: genesis.Shard, genesis: genesis, seed: seed,
		origin: genesis.Block()}
	g.adopt(nil)
	w.groups = append(w.groups, g)
	for i := range w.plan.keys[g.shard] {
		m := &member{group: g, number: i, slot: i, key: w.plan.keys[g.shard][i],
			up: !w.isGone(g.shard)}
		g.slots = append(g.slots, i)
		if m.up {
			m.open(false)
		} else {
			m.returns = math.MaxInt64
		}
		g.members = append(g.members, m)
	}
}

// pass plays one turn.
func (w *world) pass() {
	w.random = rand.New(rand.NewPCG(w.options.Seed, uint64(w.turn)+1))
	w.strike()
	w.lose()
	w.operate()
	w.replaceMembers()
	for _, s := range w.plan.submissions {
		switch {
		case s.at == w.turn:
			w.result.Submissions++
			w.result.submitted = append(w.result.submitted, s.number)
			w.submit(&s)
		case s.at < w.turn && (w.turn-s.at)%againAfter == 0 && w.worthwhile(&s):
			w.submitAgain(&s)
		}
	}
	arrived := w.post[w.turn]
	delete(w.post, w.turn)
	for i := range arrived {
		w.arrive(&arrived[i])
	}
	for _, g := range w.groups {
		g.adjust()
		if w.random.IntN(100) < w.plan.haste {
			g.order()
		}
		for _, m := range g.members {
			if m.up {
				m.step()
			}
		}
		g.settleDurable()
		for _, m := range g.members {
			if m.takesPart() {
				m.foresee()
				m.talk()
			}
		}
	}
	for _, g := range w.groups {
		g.grow()
	}
	if w.changed {
		w.changed = false
		w.judgeStreams()
		w.conserve(w.heads())
	}
}

// strike makes the faults of the turn happen, and ends those that are over.
func (w *world) strike() {
	for i := range w.plan.faults {
		f := &w.plan.faults[i]
		if f.at != w.turn {
			continue
		}
		if int(f.shard) >= len(w.groups) {
			continue // it was not added
		}
		w.result.Faults++
		w.result.struck = append(w.result.struck, f.number)
		w.trace.Note(w.turn, uint64(f.number))
		w.say("%v", f)
		g := w.groups[f.shard]
		for _, slot := range f.members {
			if f.kind == FaultMembers {
				g.replacing = append(g.replacing, &replacement{slot: slot})
				continue
			}
			for _, m := range g.inSlot(slot) {
				m.strike(f)
			}
		}
	}
	for _, g := range w.groups {
		for _, m := range g.members {
			if !m.up && w.turn >= m.returns {
				m.start()
			}
		}
	}
}

// strike makes a fault happen to a member.
func (m *member) strike(f *fault) {
	w := m.group.world
	until := min(w.turn+f.length, w.plan.calm)
	switch f.kind {
	case FaultSlow:
		m.slowUntil = until
		return
	case FaultLie:
		m.liesUntil = until
		return
	case FaultReplace:
		m.loseDisk()
	}
	m.crash()
	m.returns = max(m.returns, until)
}

// submit submits a bundle where the plan says.
func (w *world) submit(s *submission) {
	w.say("submission %d: %s", s.number, s.what)
	if s.astray {
		w.admit(s.shard, s.member, s.bundle)
		return
	}
	entry, known := w.entry(s.bundle)
	if !known {
		return // the client will try again
	}
	if s.copies {
		w.admit(entry, s.member, s.bundle)
	}
	for range s.above {
		if parent, below := w.tree.Parent(entry); below {
			entry = parent
		}
	}
	w.admit(entry, s.member, s.bundle)
}

// worthwhile reports whether a submission is to be made again: it is in no chain, and once faults
// have ended the chains can take it. Otherwise members would propose it for ever, and the book
// would come to rest only by chance.
func (w *world) worthwhile(s *submission) bool {
	return !w.placed(s.bundle) && (w.turn <= w.plan.calm || w.takes(s.bundle))
}

// submitAgain submits a bundle that is in no chain at its entry, or at the root: a shard may not
// know yet where it belongs.
func (w *world) submitAgain(s *submission) {
	entry, known := w.entry(s.bundle)
	if !known || w.random.IntN(3) == 0 {
		entry = w.tree.Root()
	}
	w.admit(entry, w.random.IntN(MembersMax), s.bundle)
}

// entry returns where a bundle enters, as a member says that happens to be up.
func (w *world) entry(bundle *ledger.Bundle) (ledger.ShardID, bool) {
	m := w.groups[w.random.IntN(len(w.groups))].members[0]
	if !m.up {
		return 0, false
	}
	return m.state.BundleEntry(bundle), true
}

func (w *world) admit(shard ledger.ShardID, member int, bundle *ledger.Bundle) {
	if int(shard) >= len(w.groups) {
		return // it is added and has not begun
	}
	members := w.groups[shard].members
	if m := members[member%len(members)]; m.up {
		m.admit(bundle)
	}
}

// send sends a message, which may get lost, come twice, or be overtaken.
func (w *world) send(l letter) {
	copies := 1
	if w.random.IntN(100) < w.plan.repeats {
		copies = 2
	}
	for range copies {
		if w.random.IntN(100) < w.plan.loss {
			continue
		}
		at := w.turn + 1 + Turn(w.random.IntN(w.plan.delay))
		w.post[at] = append(w.post[at], l)
	}
}

func (w *world) arrive(l *letter) {
	m := w.groups[l.to.shard].member(l.to.member)
	if m == nil || !m.up || w.unheard(l) {
		return
	}
	if w.trace.HasText() && l.position == nil {
		w.say("%v", l)
	}
	m.receive(l)
}

func (w *world) say(format string, arguments ...any) { w.trace.Say(w.turn, format, arguments...) }

// fail ends the run with a broken property.
func (w *world) fail(property order.Property, evidence ...string) {
	w.result.Violations = []*order.Violation{{Property: property, Evidence: slices.Clip(evidence)}}
	w.say("%v", w.result.Violations[0])
	panic(stop{})
}
