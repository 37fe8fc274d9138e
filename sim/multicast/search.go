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

// SearchOptions say what an exhaustive search looks at: a small deployment, few messages, few
// faults, and all that can come of them.
type SearchOptions struct {
	// Engine and Plant are as for a run.
	Engine, Plant string
	// Groups are in a chain, of Replicas each. Messages are submitted by two clients in turn, the
	// first two to all groups.
	Groups, Replicas, Messages int
	// Crashes is how many processes may crash, Leads how often the leader oracle of some replica
	// may change its mind, and Ticks how often the clock may go on by what a process waits before
	// it does something about it. All three may happen at any moment.
	Crashes, Leads, Ticks int
	// Unreduced has it look at schedules too that come to the same as others. They are left out
	// where the form is a Completer and there are no Ticks.
	Unreduced bool
	// StatesMax and DepthMax end the search, or a path; 0 is StatesMaxDefault and DepthMaxDefault.
	StatesMax, DepthMax int

	// form is run instead of an engine, and copying is not used, by tests. Where rests is not nil,
	// it gets the states from which nothing leads anywhere.
	form   Maker
	replay bool
	rests  map[fingerprint]bool
}

// Bounds of a search.
const (
	StatesMaxDefault = 1_000_000
	DepthMaxDefault  = 2_000

	searchPatience = 100 * time.Microsecond
	searchPayload  = 8
	// restRounds bounds the rounds of the fair run at an end, and restMore is how many follow once
	// all is A-delivered.
	restRounds, restMore = 600, 30
	// searchShrinks bounds the runs that cut a path down.
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

// SearchResult is what a search came to.
type SearchResult struct {
	// States were visited, by Transitions; in Ends of them nothing is under way and no choice leads
	// anywhere new, and a fair run followed; Depth is the longest path.
	States, Transitions, Ends, Depth int
	// Complete tells that every schedule was looked at; else Bound says what ended the search.
	Complete bool
	Bound    string
	// Copied tells that the form could be copied, and was not run from its beginning again and
	// again.
	Copied bool
	// Violation is what was found broken, nil if nothing was, and Path the way there, line by line,
	// cut down.
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
	_, err := o.maker()
	return err
}

func (o *SearchOptions) maker() (Maker, error) {
	return (&Options{Engine: o.Engine, Plant: o.Plant, form: o.form}).maker()
}

// ErrNotRepeatable says that a form is in another state after the same choices: it draws on
// something that the frame does not give it, or a copy shares what it should not.
var ErrNotRepeatable = errors.New("multicast: the same choices lead to different states")

// Search visits every state that the options' deployment can get to, whatever is chosen to happen
// next, and judges each; from each end, where nothing is under way or new, it also lets a fair run
// follow in which time passes, nothing goes wrong, and all that is due has to be A-delivered. The
// error wraps ErrOptions, ErrEngine or ErrNotRepeatable.
func Search(ctx context.Context, options SearchOptions) (SearchResult, error) {
	if err := options.Validate(); err != nil {
		return SearchResult{}, err
	}
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

// explorer is one search: depth first, with the path that leads to where it is.
type explorer struct {
	ctx     context.Context
	options SearchOptions
	play    *play
	visited map[fingerprint]bool
	path    []choice
	result  SearchResult
	err     error
}

// explore takes each choice of the state that the play is in.
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
	disturbed := make([]bool, len(x.play.world.processes)) // by the poll of that process, from here
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

// atRest tells whether nothing is left to submit and nothing is under way. Processes may still have
// something to do; a fair run has to end well from there all the same.
func atRest(choices []choice) bool {
	return !slices.ContainsFunc(choices, func(c choice) bool { return c.kind <= choiceLand })
}

// end lets a fair run follow on a state with nothing under way, from which no choice leads anywhere
// new, and judges it. Of states that lead to each other in circles and nowhere else, the last one
// that is visited is such a state.
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

// comeBack brings the play to where a path of that length leads, and checks that it is where it
// was.
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

// over tells whether the search has come to an end.
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

// bound notes what ended the search; that paths were cut off counts least.
func (x *explorer) bound(what string) {
	if x.result.Bound == "" || x.result.Bound == BoundDepth {
		x.result.Bound = what
	}
}

// tell cuts the path to the violation down, and tells it line by line.
func (x *explorer) tell() ([]string, error) {
	path := slices.Clone(x.path)
	property := x.result.Violation.Property
	left := searchShrinks
	for part := len(path); part >= 1; part = min(part/2, len(path)) {
		for from := 0; from < len(path) && left > 0; left-- {
			rest := slices.Concat(path[:from], path[min(from+part, len(path)):])
			broken, err := x.replay(rest, nil)
			if err != nil {
				return nil, err
			}
			if broken != nil && broken.Property == property {
				path, x.result.Violation = rest, broken
			} else {
				from += part
			}
		}
	}
	var text strings.Builder
	if _, err := x.replay(path, &text); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"), nil
}

// replay takes those choices of a path that there are, until something is broken.
func (x *explorer) replay(path []choice, text io.Writer) (*order.Violation, error) {
	p, err := newPlay(x.options, text)
	if err != nil {
		return nil, err
	}
	for _, c := range path {
		var broken *order.Violation
		if c.kind == choiceRest {
			p.world.trace.say(p.stage.clock, "nothing is under way; time passes")
			broken = p.rest()
		} else if slices.Contains(p.choices(), c) {
			if p.world.trace.text != nil {
				p.world.trace.say(p.stage.clock, "%s", p.describe(c))
			}
			broken = p.take(c)
		}
		if broken != nil {
			return broken, p.world.trace.close()
		}
	}
	return nil, p.world.trace.close()
}

// searchDeployment is the deployment of a search.
func (o *SearchOptions) deployment() *Deployment {
	return &Deployment{
		Sizes: slices.Repeat([]int{o.Replicas}, o.Groups), Tree: tram.Chain(o.Groups),
		Clients: min(o.Messages, 2), Slots: 2, PayloadMax: searchPayload, Patience: searchPatience,
		OperationTimeout: operationTimeout,
	}
}

// messages are what is submitted in a search, in the order of the clients' sequences.
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
