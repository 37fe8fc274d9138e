package multicast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// SearchOptions describe an exhaustive search: a small deployment with few messages and few faults,
// and every schedule of them.
type SearchOptions struct {
	// Engine and Plant are as for a run.
	Engine, Plant string
	// Groups form a chain, with Replicas each. Two clients submit Messages in turn, the first two
	// of them to all groups.
	Groups, Replicas, Messages int
	// Crashes is how many processes may crash. Leads is how often the leader oracle of some replica
	// may change its output. Ticks is how often the clock may advance by a process's patience. All
	// three may happen at any moment.
	Crashes, Leads, Ticks int
	// Unreduced also searches schedules that are equivalent to others. They are left out if the
	// form is a Completer and there are no Ticks.
	Unreduced bool
	// Tabulated looks the effects of events up in tables, and leaves out more schedules that are
	// equivalent to others: see tabulated.go. The form must be Tabled, without Ticks.
	Tabulated bool
	// Begin makes a tabulated search begin later: see Beginnings.
	Begin string
	// Hears are the changes of a tabulated search, instead of Leads. They happen in this order,
	// each at any moment, and perhaps not all of them. The searches of all lists of n changes
	// together cover the one with n Leads.
	Hears []Hearing
	// Shuffle is another order of a tabulated search for each number but 0. It makes no difference
	// to a search that is complete. One that is not sees other schedules in each order.
	Shuffle uint64
	// StatesMax ends the search, DepthMax a path. 0 is StatesMaxDefault or DepthMaxDefault.
	StatesMax, DepthMax int

	// The remaining options are for tests. form is run instead of an engine. replay disables
	// copying, forgets the memory of turns. rests, unless it is nil, receives the states from which
	// no choice leads to another state.
	form    Maker
	replay  bool
	forgets bool
	rests   map[fingerprint]bool
}

// Bounds of a search.
const (
	StatesMaxDefault = 1_000_000
	DepthMaxDefault  = 2_000

	searchPatience = 100 * time.Microsecond
	searchPayload  = 8
	// restRounds bounds the rounds of the fair run at an end. restMore is how many rounds follow
	// once everything is A-delivered.
	restRounds, restMore = 600, 30
	// searchShrinks bounds the runs that shorten a path.
	searchShrinks = 3_000
)

// The bounds that a SearchResult names.
const (
	BoundStates    = "states"
	BoundDepth     = "depth"
	BoundTime      = "time"
	BoundInterrupt = "interrupt"
	BoundViolation = "violation"
)

// SearchResult is the outcome of a search.
type SearchResult struct {
	// States counts the visited states, Transitions the steps between them. Ends counts the states
	// in which nothing is under way and no choice leads to a new state; a fair run followed on
	// each. Depth is the length of the longest path.
	States, Transitions, Ends, Depth int
	// Complete reports that every schedule was searched. Otherwise Bound is what ended the search.
	Complete bool
	Bound    string
	// Copied reports that the form could be copied, and was not run from its beginning again and
	// again.
	Copied bool
	// Violation is the broken property that was found, or nil. Path leads to it, line by line, and
	// was shortened.
	Violation *order.Violation
	Path      []string
}

// Validate checks the options. The error wraps ErrOptions or ErrEngine.
func (o *SearchOptions) Validate() error {
	switch {
	case o.Groups < 1 || o.Groups > 3 || o.Replicas < 1 || o.Replicas > 3:
		return fmt.Errorf("%w: a search of %d groups of %d, want 1 to 3 of 1 to 3", ErrOptions,
			o.Groups, o.Replicas)
	case o.Messages < 1 || o.Messages > 4:
		return fmt.Errorf("%w: a search of %d messages, want 1 to 4", ErrOptions, o.Messages)
	case o.Crashes < 0 || o.Leads < 0 || o.Ticks < 0 || o.StatesMax < 0 || o.DepthMax < 0:
		return fmt.Errorf("%w: a search with less than none of something", ErrOptions)
	}
	if err := errors.Join(o.checkHearings(), o.checkBegin()); err != nil {
		return err
	}
	return (&Options{Engine: o.Engine, Plant: o.Plant, Groups: o.Groups, form: o.form}).Validate()
}

func (o *SearchOptions) maker() (Maker, error) {
	return (&Options{Engine: o.Engine, Plant: o.Plant, form: o.form}).maker()
}

// ErrNotRepeatable is returned for a form that is in another state after the same choices. It
// depends on something outside of the frame, or a copy shares something that it should not.
var ErrNotRepeatable = errors.New("multicast: the same choices lead to different states")

// Search visits every state that the options' deployment can reach, whatever happens next, and
// judges each state. At each end, where nothing is under way or new, it also executes a fair run in
// which time passes, no fault happens, and all due messages must be A-delivered. The error wraps
// ErrOptions, ErrEngine or ErrNotRepeatable.
func Search(ctx context.Context, options SearchOptions) (SearchResult, error) {
	if err := options.Validate(); err != nil {
		return SearchResult{}, err
	}
	options = options.divided()
	if options.StatesMax == 0 {
		options.StatesMax = StatesMaxDefault
	}
	if options.DepthMax == 0 {
		options.DepthMax = DepthMaxDefault
	}
	x := &explorer{ctx: ctx, options: options, visited: map[fingerprint]bool{}}
	var err error
	if x.play, err = newPlay(options, nil); err != nil {
		return SearchResult{}, err
	}
	if options.Tabulated {
		return searchTabulated(x)
	}
	_, copies := x.play.form.(Copier)
	x.result.Copied = copies && !options.replay
	first := x.play.fingerprint()
	x.visited[first] = true
	x.result.States = 1
	x.explore(first, 0)
	if x.err != nil {
		return SearchResult{}, x.err
	}
	x.result.Complete = x.result.Bound == ""
	if x.result.Violation != nil {
		x.result.Path, err = x.tell()
	}
	return x.result, err
}

// explorer is one search, depth first, with the path to its current state.
type explorer struct {
	ctx     context.Context
	options SearchOptions
	play    *play
	visited map[fingerprint]bool
	path    []choice
	result  SearchResult
	err     error
}

// explore takes each choice of the play's current state.
func (x *explorer) explore(own fingerprint, depth int) {
	x.result.Depth = max(x.result.Depth, depth)
	if depth >= x.options.DepthMax {
		x.bound(BoundDepth)
		return
	}
	var here *moment
	if x.result.Copied {
		here = x.play.takeDown()
	}
	choices := x.play.choices()
	moved, ends := false, x.play.turn == nobody && atRest(choices)
	rests := ends
	disturbed := make([]bool, len(x.play.world.processes)) // by that process's poll
	for _, c := range choices {
		if x.over() {
			return
		}
		if c.idle && !disturbed[c.turn] {
			continue
		}
		if moved && !x.comeBack(here, own, depth) {
			return
		}
		x.path = append(x.path[:depth], c)
		broken := x.play.take(c)
		x.result.Transitions++
		if broken != nil {
			x.result.Violation = broken
			x.bound(BoundViolation)
			return
		}
		if c.kind == choicePoll {
			disturbed[c.a] = x.play.disturbed
		}
		next := x.play.fingerprint()
		moved = next != own
		rests = rests && !moved
		if x.visited[next] {
			continue
		}
		x.visited[next], ends = true, false
		x.result.States++
		x.explore(next, depth+1)
		if x.result.Bound != "" && x.result.Bound != BoundDepth {
			return
		}
	}
	if rests && x.options.rests != nil {
		x.options.rests[own] = true
	}
	if ends {
		x.end(here, own, depth, moved)
	}
}

// atRest reports whether nothing is left to submit and nothing is under way. Processes may still
// have work to do. A fair run from there must end well all the same.
func atRest(choices []choice) bool {
	return !slices.ContainsFunc(choices, func(c choice) bool { return c.kind <= choiceLand })
}

// end executes a fair run on a state with nothing under way, from which no choice leads to a new
// state, and judges it. If states lead only to each other in cycles, the last one visited is such a
// state.
func (x *explorer) end(here *moment, own fingerprint, depth int, moved bool) {
	x.result.Ends++
	if moved && !x.comeBack(here, own, depth) {
		return
	}
	x.path = append(x.path[:depth], choice{kind: choiceRest})
	if x.result.Violation = x.play.rest(); x.result.Violation != nil {
		x.bound(BoundViolation)
	}
}

// comeBack returns the play to the end of the path of the given length, and checks that the state
// is the same.
func (x *explorer) comeBack(here *moment, own fingerprint, depth int) bool {
	if here != nil {
		x.play.putBack(here)
	} else {
		again, err := newPlay(x.options, nil)
		if err != nil {
			x.err = err
			return false
		}
		x.play = again
		for _, c := range x.path[:depth] {
			again.take(c)
		}
	}
	if x.play.fingerprint() != own {
		x.err = fmt.Errorf("%w: after %d choices", ErrNotRepeatable, depth)
		return false
	}
	return true
}

// over reports whether the search has ended.
func (x *explorer) over() bool {
	switch {
	case x.err != nil:
	case x.result.States >= x.options.StatesMax:
		x.bound(BoundStates)
	case x.result.Transitions%256 != 0:
		return x.result.Bound != "" && x.result.Bound != BoundDepth
	case errors.Is(x.ctx.Err(), context.DeadlineExceeded):
		x.bound(BoundTime)
	case x.ctx.Err() != nil:
		x.bound(BoundInterrupt)
	}
	return x.err != nil || x.result.Bound != "" && x.result.Bound != BoundDepth
}

// bound records what ended the search. Any other bound overrides the one for cut paths.
func (x *explorer) bound(what string) {
	if x.result.Bound == "" || x.result.Bound == BoundDepth {
		x.result.Bound = what
	}
}

// tell shortens the path to the violation, and describes it line by line.
func (x *explorer) tell() (text []string, err error) {
	text, x.result.Violation, err = shorten(x.path, x.result.Violation, x.replay)
	return text, err
}

// shorten leaves out parts of a path to a violation that it does not need. It returns the
// description of the shorter path, and the violation there.
func shorten[C any](path []C, found *order.Violation,
	replay func([]C, io.Writer) (*order.Violation, error)) ([]string, *order.Violation, error) {
	path = slices.Clone(path)
	property := found.Property
	left := searchShrinks
	for part := len(path); part >= 1; part = min(part/2, len(path)) {
		for from := 0; from < len(path) && left > 0; left-- {
			rest := slices.Concat(path[:from], path[min(from+part, len(path)):])
			broken, err := replay(rest, nil)
			if err != nil {
				return nil, found, err
			}
			if broken != nil && broken.Property == property {
				path, found = rest, broken
			} else {
				from += part
			}
		}
	}
	var text strings.Builder
	if _, err := replay(path, &text); err != nil {
		return nil, found, err
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"), found, nil
}

// replay takes the possible choices of a path until a property is broken.
func (x *explorer) replay(path []choice, text io.Writer) (*order.Violation, error) {
	p, err := newPlay(x.options, text)
	if err != nil {
		return nil, err
	}
	for _, c := range path {
		var broken *order.Violation
		if c.kind == choiceRest {
			p.world.trace.Say(p.stage.clock, "nothing is under way; time passes")
			broken = p.rest()
		} else if slices.Contains(p.choices(), c) {
			if p.world.trace.HasText() {
				p.world.trace.Say(p.stage.clock, "%s", p.describe(c))
			}
			broken = p.take(c)
		}
		if broken != nil {
			return broken, p.world.trace.Close()
		}
	}
	return nil, p.world.trace.Close()
}

// deployment returns the deployment of a search.
func (o *SearchOptions) deployment() *Deployment {
	return &Deployment{
		Sizes: slices.Repeat([]int{o.Replicas}, o.Groups), Tree: tram.Chain(o.Groups),
		Clients: min(o.Messages, 2), Slots: 2, PayloadMax: searchPayload, Patience: searchPatience,
		OperationTimeout: operationTimeout,
	}
}

// messages returns the messages of a search, in the order of the clients' sequences.
func (o *SearchOptions) messages() []order.Multicast {
	all := make([]order.GroupID, o.Groups)
	for g := range all {
		all[g] = order.GroupID(g)
	}
	destinations := [][]order.GroupID{all, all, all[o.Groups-1:], all[:1]}
	var messages []order.Multicast
	for i := range o.Messages {
		client := order.Replica{Group: order.Clients, Server: order.ServerID(i % 2)}
		messages = append(messages, order.Multicast{ID: order.MessageID{Sender: client,
			Sequence: uint64(1 + i/2)}, To: destinations[i], Payload: []byte{byte(i + 1)}})
	}
	return messages
}
