package search

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// Replay takes one schedule, in the form of Violation.Schedule, and describes what happens.
// Property is empty if nothing is broken. The error wraps ErrOptions.
//
// A schedule is its scenario, a colon, and its steps separated by commas:
//
//	c0         server 0 is one that crashes
//	s1-2       server 1 suspects server 2 falsely once
//	0b         server 0 A-broadcasts its payload
//	0e         server 0 A-broadcasts an empty message
//	1r0        server 1 takes the next frame from server 0, or the end of the channel, a suspicion
//	1s2, 1t2   server 1 suspects server 2 falsely, and withdraws that
//	0x         server 0 crashes
//	0g         server 0 sends what it has to send before its first input
//	1r0x3      server 1 takes a frame and crashes in it, in the third of the possible ways
func Replay(options Options, schedule string) (Violation, error) {
	x, err := newExplorer(options)
	if err != nil {
		return Violation{}, err
	}
	first, steps, _ := strings.Cut(schedule, ":")
	s, err := x.parseScenario(first)
	if err != nil {
		return Violation{}, err
	}
	var path []action
	state := x.firstState(s)
	var broken *order.Violation
	for _, text := range strings.Split(steps, ",") {
		if text == "" {
			continue
		}
		a, err := x.parseAction(state, text)
		if err != nil {
			return Violation{}, err
		}
		path = append(path, a)
		if state, broken = x.replay(state, a); broken != nil {
			break
		}
	}
	if broken == nil {
		broken = x.judgeEnd(state)
	}
	if broken == nil {
		broken = &order.Violation{}
	}
	return x.describe(s, path, broken), nil
}

// replay takes one action and judges it.
func (x *explorer) replay(state []uint32, a action) ([]uint32, *order.Violation) {
	step := *x.step(state[a.server()], x.inputOf(state, a))
	if step.broken != nil {
		return nil, step.broken
	}
	next := x.after(state, a, false)
	if !step.delivers || a.crash() > 0 {
		return next, nil
	}
	for p := range x.n {
		x.outcomes[p] = x.servers[next[p]].outcome
	}
	return next, x.judge.judge(x.outcomes, order.UnderWay).broken
}

// judgeEnd judges a state in which nothing is left to do. It returns nil for other states.
func (x *explorer) judgeEnd(state []uint32) *order.Violation {
	if x.persistent(state) != 0 {
		return nil
	}
	for p := range x.n {
		x.outcomes[p] = x.servers[state[p]].outcome
	}
	return x.judge.judge(x.outcomes, order.AtRest).broken
}

// inputOf returns the input that an action gives to its server in a state.
func (x *explorer) inputOf(state []uint32, a action) input {
	frame := uint32(0)
	if a.kind() == inputReceive {
		frame = x.contents.head(state[x.channels[a.peer()*x.n+a.server()]])
	}
	return newInput(a.kind(), a.peer(), frame)
}

// outcomeOf returns the server after an action, and what it sent.
func (x *explorer) outcomeOf(s *step, a action) (next, sent uint32) {
	if a.crash() == 0 {
		return s.next, s.sent
	}
	c := x.crashSteps[int(s.crashes)+a.crash()-1]
	return c.next, c.sent
}

func (x *explorer) parseScenario(text string) (scenario, error) {
	var s scenario
	for _, part := range strings.Split(text, ".") {
		if part == "" {
			continue
		}
		owner, target, isLie := strings.Cut(part[1:], "-")
		p, err := x.parseServer(owner)
		q := 0
		if err == nil && isLie {
			q, err = x.parseServer(target)
		}
		switch {
		case err == nil && part[0] == 'c' && !isLie:
			s.crashes = append(s.crashes, p)
		case err == nil && part[0] == 's' && isLie && x.model.watch.HasEdge(q, p):
			s.suspicions = append(s.suspicions, suspicion{p, q})
		default:
			return s, fmt.Errorf("%w: %q at the start of a schedule; write a scenario such as "+
				"c0 or s1-2",
				ErrOptions, part)
		}
	}
	return s, nil
}

func (x *explorer) parseServer(text string) (int, error) {
	p, err := strconv.Atoi(text)
	if err != nil || p < 0 || p >= x.n {
		return 0, fmt.Errorf("%w: unknown server %q", ErrOptions, text)
	}
	return p, nil
}

// letters are the kinds of inputs as written in schedules.
const letters = "rbestxg"

// parseAction returns the action that a step of a schedule names, and checks that it is possible in
// a state.
func (x *explorer) parseAction(state []uint32, text string) (action, error) {
	wrong := func(why string) (action, error) {
		return 0, fmt.Errorf("%w: the step %q of a schedule: %s", ErrOptions, text, why)
	}
	if len(text) < 2 || strings.IndexByte(letters, text[1]) < 0 {
		return wrong("write a step such as 0b, 0e, 1r0, 1s0, 1t0, 0x or 0g")
	}
	p, err := x.parseServer(text[:1])
	if err != nil {
		return wrong("no such server")
	}
	kind := inputKind(strings.IndexByte(letters, text[1]))
	peer, rest := 0, text[2:]
	if kind == inputReceive || kind == inputSuspect || kind == inputTrust {
		if rest == "" {
			return wrong("a peer is missing")
		}
		if peer, err = x.parseServer(rest[:1]); err != nil {
			return wrong("no such peer")
		}
		rest = rest[1:]
	}
	a := newAction(p, newInput(kind, peer, 0), 0)
	if !x.isPossible(state, a) {
		return wrong("it is not possible in this state")
	}
	if rest == "" {
		return a, nil
	}
	crash, err := strconv.Atoi(strings.TrimPrefix(rest, "x"))
	step := x.step(state[p], x.inputOf(state, a))
	if err != nil || rest[0] != 'x' || crash < 1 || crash > int(step.crashesEnd-step.crashes) {
		return wrong("no such crash")
	}
	return a | action(crash), nil
}

// isPossible reports whether an action, without a crash in it, is possible in a state.
func (x *explorer) isPossible(state []uint32, a action) bool {
	s := &x.servers[state[a.server()]]
	if s.stopped {
		return false
	}
	if a.kind() == inputReceive {
		channel := x.channels[a.peer()*x.n+a.server()]
		return channel != 0 && state[channel] != 0
	}
	for _, in := range s.inputs {
		if in == newInput(a.kind(), a.peer(), 0) {
			return true
		}
	}
	return false
}
