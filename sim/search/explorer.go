package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// explorer is one search. A state of the group is a list of words: a number for each server's
// state, then a number for the contents of each channel.
type explorer struct {
	options Options
	model   *model
	n       int
	// width is the number of words of a state. channels[from*n+to] is the word of a channel, 0 if
	// there is no such channel.
	width    int
	channels []int
	// sources[p] lists the servers that may send to p.
	sources [][]int

	contents *contents
	judge    *judge
	// servers are the distinct states of single servers, steps the distinct effects of inputs on
	// them.
	servers    []server
	serverIDs  map[string]uint32
	steps      []step
	stepIDs    map[uint64]uint32
	crashSteps []crashStep
	// sent holds what steps put on channels: n words a step.
	sent        []uint32
	engineSteps int

	claims  *claims
	visited *visited
	// parents[i] is the state before state i, and the step between them.
	parents  []parent
	frontier frontier
	first    []scenario

	result Result
	// The remaining fields are scratch memory.
	key       []byte
	sending   [][]uint32
	prefix    []uint32
	successor []uint32
	outcomes  []uint32
}

// parent is how a state was first reached. For a first state, before is its own number.
type parent struct {
	before uint32
	action action
}

// action is a step of the group: the server, the kind of input, the peer, and the crash within it:
// 0 for none, else its number counted from 1.
type action uint32

const (
	actionKindShift   = 28
	actionServerShift = 24
	actionPeerShift   = 20
	actionCrashesMax  = 1<<actionPeerShift - 1
)

func newAction(p int, in input, crash uint32) action {
	return action(uint32(in.kind())<<actionKindShift | uint32(p)<<actionServerShift | uint32(
		in.peer())<<actionPeerShift | crash)
}

func (a action) kind() inputKind { return inputKind(a >> actionKindShift) }
func (a action) server() int     { return int(a >> actionServerShift & 15) }
func (a action) peer() int       { return int(a >> actionPeerShift & 15) }
func (a action) crash() int      { return int(a & actionCrashesMax) }

// Reached is the progress of a search.
type Reached struct{ States, Depth int }

// withdrawnStates is the minimum number of further states to visit after a claim is withdrawn.
const withdrawnStates = 1 << 14

// progressEvery is the number of expanded states between two checks of the context.
const progressEvery = 4096

// Run searches until it has visited all states, a property is broken, the bound on states is
// reached or the context ends. It calls progress from time to time unless progress is nil. The
// result follows from the options alone, unless the context ends the search. The error wraps
// ErrOptions.
func Run(ctx context.Context, options Options, progress func(Reached)) (Result, error) {
	x, err := newExplorer(options)
	if err != nil {
		return Result{}, err
	}
	return x.run(ctx, progress), nil
}

// run searches, and repeats the search while claims are withdrawn.
func (x *explorer) run(ctx context.Context, progress func(Reached)) Result {
	for x.search(ctx, progress); x.claims.withdrawn &&
		x.result.Bound == ""; x.search(ctx, progress) {
		x.claims.withdrawn = false
		x.claims.restarts++
	}
	x.result.States = x.visited.count
	x.result.Complete = x.result.Bound == ""
	x.result.ServerStates, x.result.EngineSteps, x.result.Scenarios, x.result.Restarts = len(
		x.servers), x.engineSteps, len(x.first), x.claims.restarts
	return x.result
}

// search searches from the first states on. After a claim is withdrawn, it visits as many states
// again before it gives up, to find other wrong claims. A violation that it finds is real whatever
// was claimed: a frame was only removed where it changed nothing.
func (x *explorer) search(ctx context.Context, progress func(Reached)) {
	clear(x.claims.advanced)
	x.result, x.visited, x.parents, x.frontier = Result{}, newVisited(), x.parents[:0],
		frontier{width: x.width + 2, newestFirst: x.options.DepthFirst}
	for _, s := range x.first {
		x.start(s)
	}
	giveUp := 0
	for looked := 0; x.frontier.more() && x.result.Bound == "" &&
		(giveUp == 0 || x.visited.count < giveUp); looked++ {
		if x.claims.withdrawn && giveUp == 0 {
			giveUp = 2*x.visited.count + withdrawnStates
		}
		if looked%progressEvery == 0 {
			x.look(ctx, progress)
		}
		if x.visited.count >= x.options.StatesMax {
			x.result.Bound = BoundStates
		}
		x.expand(x.frontier.take())
	}
}

// look ends the search with its context.
func (x *explorer) look(ctx context.Context, progress func(Reached)) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		x.result.Bound = BoundTime
	case ctx.Err() != nil:
		x.result.Bound = BoundInterrupt
	case progress != nil:
		progress(Reached{x.visited.count, x.result.Depth})
	}
}

func newExplorer(options Options) (*explorer, error) {
	model, err := options.group()
	if err != nil {
		return nil, err
	}
	return explore(options, model), nil
}

// explore begins the search of a group. The options are valid.
func explore(options Options, model *model) *explorer {
	if options.StatesMax == 0 {
		options.StatesMax = StatesMaxDefault
	}
	n := options.Servers
	x := &explorer{
		options: options, model: model, n: n,
		channels: make([]int, n*n), sources: make([][]int, n),
		contents: newContents(), judge: newJudge(options, model),
		serverIDs: map[string]uint32{}, stepIDs: map[uint64]uint32{}, claims: newClaims(),
		sending: make([][]uint32, n), outcomes: make([]uint32, n),
	}
	x.width = n
	for from := range n {
		for to := range n {
			if from != to && (model.sends(from, to) || model.watch.HasEdge(from, to)) {
				x.channels[from*n+to] = x.width
				x.sources[to] = append(x.sources[to], from)
				x.width++
			}
		}
	}
	x.successor = make([]uint32, x.width)
	x.first = scenarios(model.watch, options.Crashes, options.Suspicions, x.symmetries())
	return x
}

// start adds the first state of a scenario.
func (x *explorer) start(s scenario) {
	copy(x.successor, x.firstState(s))
	x.add(uint32(len(x.parents)), 0, 0)
}

// firstServer returns a server's first state in a scenario.
func (x *explorer) firstServer(s scenario, p int) uint32 {
	self := order.ServerID(p)
	engine, err := x.model.make(self)
	if err != nil {
		panic(fmt.Sprintf("search: a valid configuration makes no engine: %v", err))
	}
	first := server{id: self, engine: engine,
		starting: len(x.model.copyOf(engine).Ready().Sends) > 0}
	for _, crashed := range s.crashes {
		first.mayCrash = first.mayCrash || crashed == p
	}
	for _, lie := range s.suspicions {
		if lie.owner == p {
			first.lies[lie.target]++
			first.accused |= 1 << lie.target
		}
	}
	return x.intern(first)
}

// add visits the state in x.successor, which an action reaches from another state, unless it was
// visited before.
func (x *explorer) add(before uint32, a action, depth uint32) {
	if !x.visited.add(fingerprintOf(x.successor)) {
		x.result.Duplicates++
		return
	}
	own := uint32(len(x.parents))
	x.parents = append(x.parents, parent{before, a})
	x.frontier.put(x.successor, own, depth)
	x.result.Depth = max(x.result.Depth, int(depth))
}

// expand takes the steps that follow a state.
func (x *explorer) expand(state []uint32, own, depth uint32) {
	from := x.persistent(state)
	if from == 0 {
		x.end(state, own)
		return
	}
	for p := range x.n {
		if !from.has(p) {
			continue
		}
		for _, source := range x.sources[p] {
			if channel := state[x.channels[source*x.n+p]]; channel != 0 {
				x.follow(state, own, depth, p, newInput(inputReceive, source,
					x.contents.head(channel)))
			}
		}
		for _, in := range x.servers[state[p]].inputs {
			x.follow(state, own, depth, p, in)
		}
	}
}

// follow takes one input of a server, and each crash in the middle of it.
func (x *explorer) follow(state []uint32, own, depth uint32, p int, in input) {
	if x.result.Bound != "" {
		return
	}
	s := *x.step(state[p], in)
	x.keepClaims()
	if s.broken != nil {
		x.violate(append(x.path(own), newAction(p, in, 0)), own, s.broken)
		return
	}
	x.reach(state, own, depth, p, in, 0, s.next, s.sent)
	if s.delivers {
		for q := range x.n {
			x.outcomes[q] = x.servers[x.successor[q]].outcome
		}
		if v := x.judge.judge(x.outcomes, order.UnderWay); v.broken != nil {
			x.violate(append(x.path(own), newAction(p, in, 0)), own, v.broken)
			return
		}
	}
	for i, crash := range x.crashSteps[s.crashes:s.crashesEnd] {
		x.reach(state, own, depth, p, in, uint32(i)+1, crash.next, crash.sent)
	}
}

// reach makes the state after a step, and visits it.
func (x *explorer) reach(state []uint32, own, depth uint32, p int, in input, crash,
	next, sent uint32) {
	x.result.Transitions++
	x.apply(x.successor, state, p, in, next, sent, !x.options.Unreduced)
	x.add(own, newAction(p, in, crash), depth+1)
}

// apply makes the state after a step of a server. If advance is set, it removes frames that will
// never change anything from the channels.
func (x *explorer) apply(successor, state []uint32, p int, in input, next, sent uint32,
	advance bool) {
	copy(successor, state)
	successor[p] = next
	stopped := x.servers[next].stopped
	for _, source := range x.sources[p] {
		channel := &successor[x.channels[source*x.n+p]]
		switch {
		case stopped:
			*channel = 0 // no server reads it
			continue
		case in.kind() == inputReceive && source == in.peer():
			*channel = x.contents.rest(*channel)
		}
		if advance {
			*channel = x.advance(next, source, *channel)
		}
	}
	for to, frames := range x.sent[sent : int(sent)+x.n] {
		if frames != 0 && !x.servers[state[to]].stopped {
			channel := &successor[x.channels[p*x.n+to]]
			if *channel == 0 && advance {
				*channel = x.advance(state[to], p, frames)
			} else {
				*channel = x.contents.join(*channel, frames)
			}
		}
	}
}

// end judges a state in which nothing is left to do.
func (x *explorer) end(state []uint32, own uint32) {
	x.result.Ends++
	for p := range x.n {
		x.outcomes[p] = x.servers[state[p]].outcome
	}
	v := x.judge.judge(x.outcomes, order.AtRest)
	if v.stalled {
		x.result.Stalled++
	}
	if v.broken != nil {
		x.violate(x.path(own), own, v.broken)
	}
}

// violate ends the search with a path from a first state.
func (x *explorer) violate(path []action, own uint32, broken *order.Violation) {
	x.result.Bound = BoundViolation
	x.result.Violations = append(x.result.Violations,
		x.describe(x.root(own), x.unfold(x.root(own), path), broken))
}
