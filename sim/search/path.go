package search

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// path lists the actions that lead to a state, in order.
func (x *explorer) path(own uint32) []action {
	var all []action
	for x.parents[own].before != own {
		all = append(all, x.parents[own].action)
		own = x.parents[own].before
	}
	slices.Reverse(all)
	return all
}

// root returns the scenario of a state. The first states are the first ones that are visited.
func (x *explorer) root(own uint32) scenario {
	for x.parents[own].before != own {
		own = x.parents[own].before
	}
	return x.first[own]
}

// unfold puts the frames that the search removed from the channels by itself back into a path. An
// unreduced search removes none.
func (x *explorer) unfold(s scenario, path []action) []action {
	if x.options.Unreduced {
		return path
	}
	var all []action
	state := x.firstState(s)
	plain := slices.Clone(state)
	for _, a := range path {
		in := x.inputOf(state, a)
		for a.kind() == inputReceive && x.inputOf(plain, a) != in {
			idle := newAction(a.server(), in, 0)
			all = append(all, idle)
			plain = x.after(plain, idle, false)
		}
		all = append(all, a)
		if x.step(state[a.server()], in).broken != nil {
			return all
		}
		state, plain = x.after(state, a, true), x.after(plain, a, false)
	}
	if x.persistent(state) == 0 {
		all = append(all, x.drain(plain)...)
	}
	return all
}

// drain takes all frames that are left on the channels when nothing else is left to do.
func (x *explorer) drain(plain []uint32) []action {
	var all []action
	for p := range x.n {
		for _, source := range x.sources[p] {
			for plain[x.channels[source*x.n+p]] != 0 {
				a := newAction(p, newInput(inputReceive, source, 0), 0)
				all = append(all, a)
				plain = x.after(plain, a, false)
			}
		}
	}
	return all
}

// after makes the state after an action. If advance is set, it removes frames that will never
// change anything.
func (x *explorer) after(state []uint32, a action, advance bool) []uint32 {
	in := x.inputOf(state, a)
	next, sent := x.outcomeOf(x.step(state[a.server()], in), a)
	successor := make([]uint32, x.width)
	x.apply(successor, state, a.server(), in, next, sent, advance)
	return successor
}

// describe takes the path once more and describes it.
func (x *explorer) describe(s scenario, path []action, broken *order.Violation) Violation {
	v := Violation{Property: broken.Property, Evidence: broken.Evidence,
		Path: []string{s.describe()}}
	var schedule []string
	state := x.firstState(s)
	for _, a := range path {
		next, line, short := x.tell(state, a)
		v.Path = append(v.Path, line)
		schedule = append(schedule, short)
		if next == nil {
			break
		}
		state = next
	}
	v.Schedule = s.String() + ":" + strings.Join(schedule, ",")
	return v
}

func (x *explorer) firstState(s scenario) []uint32 {
	state := make([]uint32, x.width)
	for p := range x.n {
		state[p] = x.firstServer(s, p)
	}
	return state
}

// tell takes an action, and describes it in words and in the short form. The next state is nil if
// the step broke a property by itself.
func (x *explorer) tell(state []uint32, a action) (next []uint32, line, short string) {
	p := a.server()
	in := x.inputOf(state, a)
	switch in.kind() {
	case inputReceive:
		short, line = fmt.Sprintf("%dr%d", p, a.peer()),
			fmt.Sprintf("server %d receives from %d: %s", p, a.peer(), x.describeFrame(in.frame()))
		if in.frame() == endOfChannel {
			line = fmt.Sprintf("server %d suspects %d, which has stopped", p, a.peer())
		}
	case inputBroadcast:
		short, line = fmt.Sprintf("%db", p),
			fmt.Sprintf("server %d A-broadcasts its payload of round %d", p,
				x.servers[state[p]].round)
	case inputEmpty:
		short, line = fmt.Sprintf("%de", p),
			fmt.Sprintf("server %d A-broadcasts an empty message in round %d",
				p, x.servers[state[p]].round)
	case inputSuspect:
		short, line = fmt.Sprintf("%ds%d", p, a.peer()),
			fmt.Sprintf("server %d suspects %d falsely", p, a.peer())
	case inputTrust:
		short, line = fmt.Sprintf("%dt%d", p, a.peer()),
			fmt.Sprintf("server %d trusts %d again", p, a.peer())
	case inputStart:
		short, line = fmt.Sprintf("%dg", p), fmt.Sprintf("server %d begins", p)
	case inputCrash:
		short, line = fmt.Sprintf("%dx", p), fmt.Sprintf("server %d crashes", p)
	}
	s := *x.step(state[p], in)
	if s.broken != nil {
		return nil, line, short
	}
	after, sent := x.outcomeOf(&s, a)
	if a.crash() > 0 {
		line += ", and crashes in it"
		short += fmt.Sprintf("x%d", a.crash())
	}
	return x.after(state, a, false), line + x.describeStep(state[p], after, sent), short
}

// describeStep describes the server after a step, what it sent and what it A-delivered.
func (x *explorer) describeStep(before, after, sent uint32) string {
	text := ""
	for to, id := range x.sent[sent : int(sent)+x.n] {
		for _, frame := range x.contents.of(id) {
			if frame != endOfChannel {
				text += fmt.Sprintf("; to %d: %s", to, x.describeFrame(frame))
			}
		}
	}
	from, s := &x.servers[before], &x.servers[after]
	var delivered []string
	for id := s.delivered; id != from.delivered && id != 0; id = x.judge.rounds[id].before {
		delivered = append(delivered, "; A-delivers "+describeDelivery(x.judge.rounds[id].delivery))
	}
	slices.Reverse(delivered)
	text += strings.Join(delivered, "")
	switch {
	case s.halted != "":
		text += "; halts: " + s.halted
	case s.stopped:
	case from.epoch != s.epoch || from.round != s.round || from.reliable != s.reliable:
		open, end := "[", "]"
		if s.reliable {
			open, end = "[[", "]]"
		}
		text += fmt.Sprintf("; is in %s%d,%d%s", open, s.epoch, s.round, end)
	}
	return text
}

func (x *explorer) describeFrame(frame uint32) string {
	return x.model.describe(x.contents.frames[frame])
}

func describeDelivery(d order.Delivery) string {
	text := fmt.Sprintf("round %d with messages of", d.Round)
	for _, m := range d.Messages {
		text += fmt.Sprintf(" %d", m.Origin)
	}
	if len(d.Removed) > 0 {
		text += ", removing " + strings.Trim(fmt.Sprint(d.Removed), "[]")
	}
	return text
}
