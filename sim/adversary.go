package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// moment is the situation in which a server crashes.
type moment uint8

const (
	quietly moment = iota // between two inputs
	// in the middle of its engine's sends; it delivers nothing that was to be delivered after that
	sending
	delivering // after all sends and some deliveries
	effecting  // between two effects of its member
)

// cut determines which frames a crashing server sends. Links are in order, so every receiver gets
// the first few of the frames meant for it.
type cut uint8

const (
	cutPrefix cut = iota // frames leave one by one in the engine's order, up to some point
	cutLinks             // some frames on each link, as if each link had a thread of its own
	cutToOne             // all to one receiver, none to the others
	cutAll               // none
)

// crash is one planned crash.
type crash struct {
	server order.ServerID
	// after is the index in the plan of the crash that precedes this one, or -1.
	after int
	// wait is how long after that, or after the beginning of the run, the crash becomes possible.
	wait Instant
	// heard makes the crash possible as soon as this server has received the last frame of the
	// server that crashed before.
	heard  bool
	moment moment
	// reliable restricts the moment to reliable rounds.
	reliable bool
	// skip is how many sends or deliveries pass before the crash, once it is possible.
	skip int
	cut  cut
	// favoured is the only receiver of cutToOne.
	favoured order.ServerID
	// slow is added to the delay of links.
	slow  Instant
	slows slowing
}

// slowing selects the links that a planned crash makes slow.
type slowing uint8

const (
	// from this server to the favoured, once the crash is possible
	slowLast      slowing = iota
	slowAll               // from this server to all, once the crash is possible
	slowSuccessor         // from the favoured to most others, after the crash
)

// String describes the planned crash.
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

// adversary plans the crashes of a run. It knows the reliable digraph, and its plans target the
// assumptions of the proofs.
type adversary struct {
	random     *rand.Rand
	servers    int
	budget     int
	span       Instant // of the workload
	successors func(order.ServerID) []order.ServerID
	plan       []crash
	used       []bool
}

// strategies are drawn with equal probability.
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

// planCrashes plans at most budget crashes and returns the name of the strategy.
func planCrashes(seed uint64, options *Options, span Instant, budget int) ([]crash, string) {
	random := stream(seed, adversaryStream)
	chosen := strategies[random.IntN(len(strategies))]
	if random.IntN(12) == 0 || budget == 0 {
		return nil, "no server crashes"
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

// left returns how many more crashes may be planned.
func (a *adversary) left() int { return a.budget - len(a.plan) }

// unused draws a server without a planned crash.
func (a *adversary) unused() order.ServerID {
	for {
		if server := a.random.IntN(a.servers); !a.used[server] {
			return order.ServerID(server)
		}
	}
}

// add adds a crash to the plan and returns its index.
func (a *adversary) add(c crash) int {
	a.used[c.server] = true
	a.plan = append(a.plan, c)
	return len(a.plan) - 1
}

// any draws all properties of a crash.
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

// scattered plans unrelated crashes.
func (a *adversary) scattered() {
	for range 1 + a.random.IntN(a.budget) {
		a.add(a.any(-1, between(0, a.span)(a.random)))
	}
}

// together plans as many crashes as allowed, almost at once.
func (a *adversary) together() {
	at := between(0, a.span)(a.random)
	for a.left() > 0 {
		a.add(a.any(-1, at+between(0, 300*microsecond)(a.random)))
	}
}

// chain plans that a message travels along a path of the reliable digraph. Each server of the path
// sends it to the next one only and crashes [Poke19, section 5.2.1 and Figure 5.2], until it
// reaches a survivor. Either the hops are slow, so that all servers know of the failures long
// before the message gets out, or the survivor receives it soon and is slow to forward it. A server
// that stops tracking the message too soon misses it. A chain after another crash waits for the
// reliable round that the crash causes.
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

// twoChains plans two concurrent chains.
func (a *adversary) twoChains() {
	whole := a.budget
	a.budget = (whole + 1) / 2
	a.chain(-1)
	a.budget = whole
	a.chain(-1)
}

// lastDeliveries plans crashes of servers that have delivered what others may be unable to deliver:
// the frames that they sent last are slow.
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

// describePlan describes a plan on a line.
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

// heardLast tells the adversary that a server has received the last frame of a crashed one.
func (s *simulation) heardLast(crashed, by order.ServerID) {
	for number := range s.plan {
		c := &s.plan[number]
		if c.heard && c.server == by && s.plan[c.after].server == crashed {
			s.armCrash(number)
		}
	}
}

// crash crashes a server.
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
	s.trace.Note(s.now, 100, uint64(id))
	s.trace.Say(s.now, "%d crashes", id)
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

// hop is one send of a crashing server: an item goes to one receiver.
type hop struct {
	to   order.ServerID
	item int
}

// sendSome puts the part of some items on the links that leaves a crashing server. hops are all
// their sends, in order.
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
