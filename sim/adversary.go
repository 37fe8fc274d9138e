package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// moment is what a server is doing when it crashes.
type moment uint8

const (
	quietly moment = iota // between two inputs
	// in the middle of what its engine wants sent; it delivers none of what was to be delivered
	// after that
	sending
	delivering // everything sent, and some deliveries made
	effecting  // between two effects that a member wants
)

// cut is which frames a server gets out of those that it sends as it crashes. Every receiver gets
// the first few frames meant for it, as links are in order.
type cut uint8

const (
	cutPrefix cut = iota // sent one by one in the engine's order, up to some point
	cutLinks             // on each link some of them, as if each link had a thread of its own
	cutToOne             // all to one receiver, none to the others
	cutAll               // none
)

// crash is one planned crash.
type crash struct {
	server order.ServerID
	// after is the planned crash that comes before this one, by its place in the plan; -1 where
	// there is none.
	after int
	// wait is how long after that, or after the beginning of the run, the crash becomes possible.
	wait Instant
	// heard makes it possible as soon as this server has received the last frame of the one that
	// crashed before.
	heard  bool
	moment moment
	// reliable lets only moments in reliable rounds count.
	reliable bool
	// skip is how many sends or deliveries pass first, once the crash is possible.
	skip int
	cut  cut
	// favoured is the only receiver of cutToOne.
	favoured order.ServerID
	// slow is added to the delay of links.
	slow  Instant
	slows slowing
}

// slowing is which links a planned crash makes slow.
type slowing uint8

const (
	// from this server to the favoured, from when the crash is possible
	slowLast      slowing = iota
	slowAll               // from this server to all, from when the crash is possible
	slowSuccessor         // from the favoured to most others, from the crash
)

// String tells the plan of a crash.
func (c crash) String() string {
	text := fmt.Sprintf("%d crashes %s", c.server, [...]string{"quietly", "while sending",
		"after delivering", "between two effects"}[c.moment])
	if c.moment == sending {
		text += [...]string{" to some in turn", " on some links",
			fmt.Sprintf(" to %d only", c.favoured), ", nothing sent"}[c.cut]
	}
	if c.reliable {
		text += ", in a reliable round"
	}
	if c.slow > 0 {
		text += [...]string{", the last frames slowed by ", ", all its frames slowed by ",
			", the receiver's frames slowed by "}[c.slows] + c.slow.String()
	}
	return text
}

// adversary plans the crashes of a run. It knows the reliable digraph, and its plans aim at what
// the proofs lean on.
type adversary struct {
	random     *rand.Rand
	servers    int
	budget     int
	span       Instant // of the workload
	successors func(order.ServerID) []order.ServerID
	plan       []crash
	used       []bool
}

// strategies are drawn from evenly.
var strategies = []struct {
	name string
	plan func(*adversary)
}{
	{"scattered", (*adversary).scattered},
	{"together", (*adversary).together},
	{"chain", func(a *adversary) { a.chain(-1) }},
	{"chain", func(a *adversary) { a.chain(-1) }},
	{"chain in the rerun", (*adversary).chainInRerun},
	{"chain in the rerun", (*adversary).chainInRerun},
	{"two chains", (*adversary).twoChains},
	{"last deliveries", (*adversary).lastDeliveries},
}

// planCrashes plans at most budget crashes and tells the name of the strategy.
func planCrashes(seed uint64, options *Options, span Instant, budget int) ([]crash, string) {
	random := stream(seed, adversaryStream)
	chosen := strategies[random.IntN(len(strategies))]
	if random.IntN(12) == 0 || budget == 0 {
		return nil, "nobody crashes"
	}
	a := &adversary{random: random, servers: options.Servers, budget: budget, span: span,
		successors: options.successors, used: make([]bool, options.Servers)}
	chosen.plan(a)
	if options.lives() && !options.alone() {
		for i := range a.plan {
			if c := &a.plan[i]; c.after < 0 && random.IntN(3) == 0 {
				c.moment, c.skip = effecting, random.IntN(40)
			}
		}
	}
	return a.plan, chosen.name
}

// left is how many more crashes may be planned.
func (a *adversary) left() int { return a.budget - len(a.plan) }

// unused draws a server without a planned crash.
func (a *adversary) unused() order.ServerID {
	for {
		if server := a.random.IntN(a.servers); !a.used[server] {
			return order.ServerID(server)
		}
	}
}

// add adds a crash to the plan and returns its place.
func (a *adversary) add(c crash) int {
	a.used[c.server] = true
	a.plan = append(a.plan, c)
	return len(a.plan) - 1
}

// any makes a crash in which everything is drawn.
func (a *adversary) any(after int, wait Instant) crash {
	c := crash{
		server: a.unused(), after: after, wait: wait, moment: moment(a.random.IntN(3)),
		skip: a.random.IntN(4), cut: cut(a.random.IntN(4)),
	}
	if successors := a.successors(c.server); len(successors) > 0 {
		c.favoured = successors[a.random.IntN(len(successors))]
	}
	return c
}

// scattered plans crashes that have nothing to do with each other.
func (a *adversary) scattered() {
	for range 1 + a.random.IntN(a.budget) {
		a.add(a.any(-1, between(0, a.span)(a.random)))
	}
}

// together plans as many crashes as there may be, almost at once.
func (a *adversary) together() {
	at := between(0, a.span)(a.random)
	for a.left() > 0 {
		a.add(a.any(-1, at+between(0, 300*microsecond)(a.random)))
	}
}

// chain plans that a message travels along a path of the reliable digraph, each server of which
// sends it to the next one only and crashes [Poke19, section 5.2.1 and Figure 5.2], until it
// reaches a survivor. Either the hops are slow, so that everybody has heard of the failures long
// before the message gets out; or the survivor has it soon and is slow to pass it on. Who stops
// tracking the message too soon, misses it. A chain after another crash waits for the reliable
// round that it leads to.
func (a *adversary) chain(after int) {
	length := a.left()
	if length == 0 {
		return
	}
	if a.random.IntN(2) == 0 {
		length = 1 + a.random.IntN(length)
	}
	c := crash{server: a.unused(), after: after, moment: sending, skip: a.random.IntN(4),
		cut: cutToOne, reliable: after >= 0}
	if after < 0 {
		c.wait = between(0, a.span)(a.random)
	}
	slow := between(1*millisecond, 60*millisecond)(a.random)
	ending := a.random.IntN(3)
	for hop := range length {
		next, found := a.next(c.server)
		if !found {
			return
		}
		c.favoured, c.slow = next, 0
		switch {
		case hop == length-1 && ending > 0:
			c.slow, c.slows = slow, slowSuccessor
		case hop == length-1 || ending == 2:
			c.slow, c.slows = slow, slowLast
		}
		number := a.add(c)
		c = crash{server: next, after: number, heard: true, moment: sending, cut: cutToOne}
	}
}

// next draws a successor that has no crash planned.
func (a *adversary) next(server order.ServerID) (order.ServerID, bool) {
	free := slices.DeleteFunc(slices.Clone(a.successors(server)), func(s order.ServerID) bool {
		return a.used[s]
	})
	if len(free) == 0 {
		return 0, false
	}
	return free[a.random.IntN(len(free))], true
}

// chainInRerun plans a crash that makes the servers roll back, and a chain while they rerun the
// round.
func (a *adversary) chainInRerun() {
	if a.left() < 2 {
		a.chain(-1)
		return
	}
	first := a.add(a.any(-1, between(0, a.span)(a.random)))
	a.chain(first)
}

// twoChains plans two chains that run beside each other.
func (a *adversary) twoChains() {
	whole := a.budget
	a.budget = (whole + 1) / 2
	a.chain(-1)
	a.budget = whole
	a.chain(-1)
}

// lastDeliveries plans crashes of servers that have delivered what others may not have the means to
// deliver: what they sent last is slow.
func (a *adversary) lastDeliveries() {
	after := -1
	for range 1 + a.random.IntN(a.budget) {
		c := a.any(after, between(0, a.span)(a.random))
		if after >= 0 {
			c.wait = between(0, 5*millisecond)(a.random)
		}
		c.moment, c.slow, c.slows = delivering, between(0, 20*millisecond)(a.random), slowAll
		if a.random.IntN(2) == 0 {
			after = a.add(c)
		} else {
			a.add(c)
		}
	}
}

// describePlan tells a plan on a line.
func describePlan(plan []crash) string {
	if len(plan) == 0 {
		return "no crashes"
	}
	lines := make([]string, len(plan))
	for i, c := range plan {
		lines[i] = c.String()
	}
	return strings.Join(lines, "; ")
}

// armCrash makes a planned crash possible. Faults end with the safety phase.
func (s *simulation) armCrash(number int) {
	c := &s.plan[number]
	server := &s.servers[c.server]
	if server.crashed || s.now > s.faultsEnd {
		return
	}
	if s.life != nil && (server.process == nil || !server.process.up()) {
		return
	}
	for to := range order.ServerID(s.options.Servers) {
		if c.slows == slowAll || c.slows == slowLast && to == c.favoured {
			s.network.link(c.server, to).extra += c.slow
		}
	}
	if c.moment == quietly {
		s.crash(c.server)
		return
	}
	server.doom = c
}

// heardLast tells the adversary that a server has received the last frame of one that crashed.
func (s *simulation) heardLast(crashed, by order.ServerID) {
	for number := range s.plan {
		c := &s.plan[number]
		if c.heard && c.server == by && s.plan[c.after].server == crashed {
			s.armCrash(number)
		}
	}
}

// crash ends a server.
func (s *simulation) crash(id order.ServerID) {
	server := &s.servers[id]
	if c := server.doom; c != nil && c.slows == slowSuccessor {
		for to := range order.ServerID(s.options.Servers) {
			if s.adversary.IntN(4) > 0 {
				s.network.link(c.favoured, to).extra += c.slow
			}
		}
	}
	server.crashed, server.doom = true, nil
	s.crashed++
	s.trace.note(s.now, 100, uint64(id))
	s.trace.say(s.now, "%d crashes", id)
	if s.life == nil {
		s.history.Fail(id)
	}
	if s.options.LoseTails {
		s.loseTails(id)
	}
	if s.life != nil {
		s.crashProcess(id)
	} else {
		s.detector.crash(s, id)
	}
	for number := range s.plan {
		if c := &s.plan[number]; c.after >= 0 && !c.heard && s.plan[c.after].server == id {
			s.queue.push(event{at: s.now + c.wait, kind: arming, server: c.server, number: number})
		}
	}
}

// hop is one sending of a crash: the item goes to one receiver.
type hop struct {
	to   order.ServerID
	item int
}

// sendSome puts on the links what gets out as a server crashes, of some items and all their hops in
// order.
func (s *simulation) sendSome(items int, hops []hop, c *crash, put func(hop)) {
	random := s.adversary
	switch c.cut {
	case cutAll:
	case cutPrefix:
		for _, h := range hops[:random.IntN(len(hops)+1)] {
			put(h)
		}
	case cutLinks, cutToOne:
		quota := make([]int, len(s.servers)) // items that each receiver still gets
		for to := range quota {
			switch {
			case c.cut == cutLinks && random.IntN(2) == 0:
				quota[to] = random.IntN(items + 1)
			case c.cut == cutToOne && order.ServerID(to) == c.favoured:
				quota[to] = items
			}
		}
		for _, h := range hops {
			if quota[h.to] > 0 {
				quota[h.to]--
				put(h)
			}
		}
	}
}
