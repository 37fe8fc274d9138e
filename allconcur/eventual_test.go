package allconcur

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// chaos is a network whose failure detectors err and whose links stall for any time. A server that
// halts counts as crashed from then on, because its driver stops its heartbeats.
type chaos struct {
	*network
	// stalled[from*n+to] says that nothing arrives on a channel for now.
	stalled []bool
	halted  []bool
	// voted[p] has the votes of server p, by round.
	voted []map[order.Round]order.Delivery
	// complete has the epoch in which an unreliable round of a run was complete at a server of the
	// whole group.
	complete map[runRound]order.Epoch
	// anyGroup makes completeOnce look at servers that removed others, too.
	anyGroup bool
	// logs are the servers' logs of rounds; nil for none.
	logs *roundLogs
	// heldFirst plants a bug: what counts is what was held in the first state, not in the last.
	heldFirst bool
	// mistrust and stall are how often a detector errs and a link stalls, in steps. 0 means never.
	mistrust, stall int
	// mistakes is how many more mistakes detectors may make; negative means no bound.
	mistakes int
	// config and groups make the engines of the next eon. early[p] are the frames of eons that have
	// yet to begin at p.
	config Config
	groups []*digraph.Digraph
	early  [][]early
	eons   int
}

// runRound is a round of a run.
type runRound struct {
	run   uint64
	round order.Round
}

func newChaos(seed uint64, config Config) (*chaos, error) {
	w, err := newNetwork(seed, config)
	if err != nil {
		return nil, err
	}
	c := &chaos{network: w, stalled: make([]bool, w.n()*w.n()), halted: make([]bool, w.n()),
		complete: map[runRound]order.Epoch{}}
	c.config, c.groups, c.early = config, []*digraph.Digraph{config.Reliable},
		make([][]early, w.n())
	for range w.n() {
		c.voted = append(c.voted, map[order.Round]order.Delivery{})
	}
	return c, nil
}

// steps lists the steps that the network may take now: deliver on a link that does not stall,
// suspect a crashed server, and A-broadcast.
func (c *chaos) steps(payloads bool) []action {
	all := c.actions(payloads)
	return slices.DeleteFunc(all, func(a action) bool {
		return a.kind == "receive" && c.stalled[a.from*c.n()+a.to]
	})
}

// step takes one action, and records servers that halted.
func (c *chaos) step(a action) error {
	if a.kind == "receive" && c.keepsOrDrops(a.from, a.to) {
		return nil
	}
	err := c.take(a)
	if err == nil {
		err = c.turn()
	}
	if err != nil && !errors.Is(err, order.ErrHalted) {
		return err
	}
	c.bury()
	if err := errors.Join(c.voteOnce(a.to), c.completeOnce(a.to), c.completeAfter(a.to),
		c.writeLog(a.to)); err != nil {
		return err
	}
	return c.agree()
}

// completeOnce checks that a round of the whole group is complete in one unreliable state only,
// whichever server completed it and whether or not it was A-delivered: until a server is removed,
// a round that any server completed is rerun reliably or not at all. docs/design/rounds.md builds
// on that.
func (c *chaos) completeOnce(p int) error {
	e := c.engines[p]
	for _, set := range []*roundSet{e.older, e.newer} {
		if !set.filled || set.reliable || e.removedCount > 0 && !c.anyGroup {
			continue
		}
		at := runRound{e.config.Generation, set.round}
		if epoch, before := c.complete[at]; before && epoch != set.epoch {
			return fmt.Errorf("round %d of run %d is complete in epoch %d, and at server %d in "+
				"epoch %d", at.round, at.run, epoch, p, set.epoch)
		}
		c.complete[at] = set.epoch
	}
	return nil
}

// completeAfter checks that Complete returns all complete rounds as long as one of them comes after
// the given round, and nothing after the last one.
func (c *chaos) completeAfter(p int) error {
	e := c.engines[p]
	all, allWhole := e.Complete(e.delivered)
	for after := e.delivered; after <= e.round; after++ {
		rounds, whole := e.Complete(after)
		wanted, wantedWhole := all, allWhole
		if len(all) == 0 || after >= all[len(all)-1].Round {
			wanted, wantedWhole = nil, false
		}
		if len(rounds) != len(wanted) || whole != wantedWhole {
			return fmt.Errorf("server %d has %d complete rounds, whole: %t; after round %d it "+
				"reports %d, whole: %t", p, len(all), allWhole, after, len(rounds), whole)
		}
	}
	return nil
}

// voteOnce checks that a server never withdraws a vote, and A-delivers no other value than the one
// that it voted for.
func (c *chaos) voteOnce(p int) error {
	for _, v := range c.engines[p].Votes() {
		before, voted := c.voted[p][v.Round]
		if voted && !equalDeliveries(before, v.Delivery) {
			return fmt.Errorf("server %d votes for %s, and for %s", p, formatDelivery(before),
				formatDelivery(v.Delivery))
		}
		c.voted[p][v.Round] = c.ownDelivery(v.Delivery)
	}
	if len(c.delivered[p]) > 0 {
		d := c.delivered[p][len(c.delivered[p])-1]
		if before, voted := c.voted[p][d.Round]; voted && !equalDeliveries(before, d) {
			return fmt.Errorf("server %d votes for %s, and A-delivers %s",
				p, formatDelivery(before), formatDelivery(d))
		}
	}
	return nil
}

// bury treats servers that halted as crashed.
func (c *chaos) bury() {
	for p, engine := range c.engines {
		if !c.crashed[p] && engine.halted != "" {
			c.note("%d halts: %s", p, engine.halted)
			c.crashed[p], c.halted[p] = true, true
		}
	}
}

// agree compares what all servers A-delivered, including crashed and halted ones.
func (c *chaos) agree() error {
	for p := range c.n() {
		for q := range p {
			if err := errors.Join(c.compareBoth(p, q), c.compareClosed(p, q)); err != nil {
				return err
			}
		}
	}
	return nil
}

// err makes one detector err: it suspects a server that works, or trusts it again.
func (c *chaos) err() error {
	from := c.rng.IntN(c.n())
	successors := c.reliable.Successors(from)
	if len(successors) == 0 {
		return nil
	}
	to := successors[c.rng.IntN(len(successors))]
	if c.crashed[from] || c.crashed[to] || !c.engines[to].config.Reliable.HasEdge(from, to) {
		return nil
	}
	c.mistakes--
	return c.change(from, to, !c.suspected[to*c.n()+from])
}

// change makes a server's detector suspect a predecessor, or trust it.
func (c *chaos) change(from, to int, suspected bool) error {
	c.suspected[to*c.n()+from] = suspected
	var err error
	if suspected {
		c.note("%d suspects %d", to, from)
		err = c.engines[to].Suspect(order.ServerID(from))
	} else {
		c.note("%d trusts %d", to, from)
		err = c.engines[to].Trust(order.ServerID(from))
	}
	if err == nil {
		c.pump(to)
		err = c.turn()
		c.bury()
	}
	return err
}

// toggle stalls a link or lets it go on. Sometimes it cuts the network in two, or heals it.
func (c *chaos) toggle() {
	switch c.rng.IntN(6) {
	case 0:
		side := c.rng.Uint64()
		for i := range c.stalled {
			c.stalled[i] = side>>(i/c.n())&1 != side>>(i%c.n())&1
		}
		c.note("the network is cut: %v", side&(1<<c.n()-1))
	case 1:
		clear(c.stalled)
		c.note("the network heals")
	default:
		i := c.rng.IntN(len(c.stalled))
		c.stalled[i] = !c.stalled[i]
	}
}

// storm takes random steps among mistakes, stalls and crashes.
func (c *chaos) storm(steps, crashes int) error {
	for range steps {
		switch {
		case c.mistrust > 0 && c.mistakes != 0 && c.rng.IntN(c.mistrust) == 0:
			if err := c.err(); err != nil {
				return err
			}
		case c.stall > 0 && c.rng.IntN(c.stall) == 0:
			c.toggle()
		case crashes > 0 && c.rng.IntN(steps/2+1) == 0:
			if p := c.rng.IntN(c.n()); !c.crashed[p] && c.crashAfter[p] < 0 {
				crashes--
				c.crashAfter[p] = c.rng.IntN(12)
			}
		default:
			if all := c.steps(true); len(all) > 0 {
				if err := c.step(all[c.rng.IntN(len(all))]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// calm ends all mistakes and stalls, and goes on until nothing is left to do.
func (c *chaos) calm() error {
	clear(c.stalled)
	c.note("calm")
	for from := range c.n() {
		for to := range c.n() {
			if c.suspected[to*c.n()+from] && !c.crashed[from] && !c.crashed[to] {
				if err := c.change(from, to, false); err != nil {
					return err
				}
			}
		}
	}
	for range 6000 * c.n() {
		all := c.steps(false)
		if len(all) == 0 {
			return nil
		}
		if err := c.step(all[c.rng.IntN(len(all))]); err != nil {
			return err
		}
	}
	return fmt.Errorf("no rest")
}

// live reports whether all servers that neither crashed nor halted A-delivered the same and hold
// nothing back, in the mode of a quiet group.
func (c *chaos) live() error {
	first := -1
	for p, engine := range c.engines {
		if c.crashed[p] {
			continue
		}
		if first < 0 {
			first = p
		}
		s := engine.Status()
		switch {
		case engine.Undelivered() || s.Decided || engine.OutsideMajority():
			return fmt.Errorf("server %d at rest waits: %+v", p, s)
		case engine.plus && s.Reliable:
			return fmt.Errorf("server %d at rest is in a reliable round: %+v", p, s)
		case len(s.Suspected) > 0:
			return fmt.Errorf("server %d at rest suspects: %+v", p, s)
		}
		have := map[string]bool{}
		for _, d := range c.delivered[p] {
			for _, m := range d.Messages {
				have[string(m.Payload)] = true
			}
		}
		for _, text := range c.broadcast[p] {
			if !have[text] {
				return fmt.Errorf("server %d never A-delivers its own %q", p, text)
			}
		}
		if len(c.delivered[p]) != len(c.delivered[first]) {
			return fmt.Errorf("servers %d and %d A-delivered %d and %d rounds", p, first,
				len(c.delivered[p]), len(c.delivered[first]))
		}
	}
	return nil
}

// judgeVotes takes random majorities of the shard, including crashed servers as if they had not
// forgotten. From the votes of each majority alone it computes which value of the rounds after the
// furthest head may have been A-delivered: never two, and always the one that was.
func (c *chaos) judgeVotes(shard int) error {
	if c.config.Detector != DetectorEventual {
		return nil
	}
	majority := shard/2 + 1
	for range 3 {
		quorum := c.rng.Perm(shard)[:majority]
		asked := make([]bool, shard)
		head := 0
		for _, p := range quorum {
			asked[p] = true
			if p < c.n() {
				// This includes deliveries that a crash kept from being reported.
				head = max(head, int(c.engines[p].delivered), int(c.engines[p].prompted))
			}
		}
		for ahead := 1; ahead <= 3; ahead++ {
			value, err := c.mayBeDelivered(asked, shard, order.Round(head+ahead))
			if err != nil {
				return fmt.Errorf("majority %v, round %d: %w", quorum, head+ahead, err)
			}
			if value == nil {
				value = c.held(asked, order.Round(head+ahead))
			}
			for p := range c.n() {
				if len(c.delivered[p]) >= head+ahead {
					if d := c.delivered[p][head+ahead-1]; value == nil ||
						!equalDeliveries(d, *value) {
						return fmt.Errorf(
							"majority %v does not find what server %d A-delivered: %s", quorum,
							p, formatDelivery(d))
					}
				}
			}
			if value == nil {
				break
			}
		}
	}
	return nil
}

// mayBeDelivered returns the value of a round that may have been A-delivered, by the votes of the
// servers that were asked. It returns nil if there is none, and an error if there are two.
func (c *chaos) mayBeDelivered(asked []bool, shard int, round order.Round) (*order.Delivery,
	error) {
	var found *candidate
	for _, o := range c.candidates(asked, shard, round) {
		if found != nil && found.confirmed == o.confirmed {
			return nil, fmt.Errorf("two values may have been A-delivered: %s and %s",
				formatDelivery(found.vote.Delivery), formatDelivery(o.vote.Delivery))
		}
		if found == nil || o.confirmed {
			found = o
		}
	}
	if found == nil {
		return nil, nil
	}
	return &found.vote.Delivery, nil
}

// candidate is a value of a round, with the votes for it.
type candidate struct {
	vote      order.Vote
	count     int
	confirmed bool
}

// candidates lists the values of a round that may have been A-delivered, according to the votes of
// the servers that were asked.
func (c *chaos) candidates(asked []bool, shard int, round order.Round) []*candidate {
	var candidates []*candidate
	for p, engine := range c.engines {
		if !asked[p] {
			continue
		}
		for _, v := range engine.Votes() {
			if v.Round != round {
				continue
			}
			i := slices.IndexFunc(candidates, func(o *candidate) bool {
				return equalDeliveries(o.vote.Delivery, v.Delivery) && o.vote.Epoch == v.Epoch &&
					o.vote.Reliable == v.Reliable && slices.Equal(o.vote.Origins, v.Origins)
			})
			if i < 0 {
				i = len(candidates)
				candidates = append(candidates, &candidate{vote: v})
			}
			candidates[i].count++
			candidates[i].confirmed = candidates[i].confirmed || v.Confirmed
		}
	}
	majority := shard/2 + 1
	return slices.DeleteFunc(candidates, func(o *candidate) bool {
		unknown := 0
		for _, m := range o.vote.Members {
			if !asked[m] {
				unknown++
			}
		}
		fast := max(majority, min(shard-(majority-1)/2, len(o.vote.Members)))
		return !o.confirmed && o.count+unknown < fast
	})
}

// storms is one kind of random schedule under ◇P.
type storms struct {
	seed            uint64
	config          Config
	shard           int
	mistrust, stall int
	crashes         int
	// mistakes is one more than the number of false suspicions and their withdrawals allowed; 0
	// means no bound.
	mistakes int
	// wantLive requires that calm brings all servers to completion. safetyOnly judges only what was
	// A-delivered.
	wantLive, safetyOnly bool
	// groups are the reliable digraphs of the eons, in turn.
	groups []*digraph.Digraph
	// oneStorm runs one storm instead of several.
	oneStorm bool
	// long makes storms longer.
	long bool
	// anyGroup is for completeOnce.
	anyGroup bool
	// logs makes servers keep logs of rounds, with the bug logFault.
	logs     bool
	logFault logFault
	// heldFirst plants a bug in what promises show of prompt delivery.
	heldFirst bool
}

// outcome counts how runs ended, and the eons of the longest.
type outcome struct{ runs, live, halted, eons int }

func (s storms) run(trace *strings.Builder, out *outcome) error {
	c, err := newChaos(s.seed, s.config)
	if err != nil {
		return err
	}
	c.trace, c.mistrust, c.stall, c.mistakes = trace, s.mistrust, s.stall, s.mistakes-1
	c.losesTail, c.anyGroup, c.heldFirst = s.seed%2 == 0, s.anyGroup, s.heldFirst
	if len(s.groups) > 0 {
		c.groups = s.groups
	}
	shard := max(s.shard, s.config.Servers)
	if s.seed%3 == 0 && !s.logs { // a log keeps payloads
		c.lendsAll()
	}
	if s.logs {
		c.logs = newRoundLogs(c.n(), 1+c.rng.IntN(12), s.logFault)
	}
	rounds := 1 + c.rng.IntN(4)
	if s.oneStorm {
		rounds = 1
	}
	for range rounds {
		steps := 20 + c.rng.IntN(40*s.config.Servers)
		if s.long {
			steps *= 8
		}
		if err := c.storm(steps, c.rng.IntN(s.crashes+1)); err != nil {
			return err
		}
		if err := c.judgeVotes(shard); err != nil && !s.safetyOnly {
			return err
		}
		if err := c.judgeLogs(); err != nil {
			return err
		}
	}
	if err := c.calm(); err != nil {
		return err
	}
	if err := c.judgeVotes(shard); err != nil && !s.safetyOnly {
		return err
	}
	for p := range c.n() {
		if err := c.judgeIntegrity(p); err != nil {
			return err
		}
	}
	out.runs++
	out.eons = max(out.eons, c.eons)
	if slices.Contains(c.halted, true) {
		out.halted++
	}
	err = c.live()
	if err == nil {
		out.live++
	} else if s.wantLive {
		return err
	}
	return nil
}

// check runs a number of schedules and reports the first that fails, with its trace.
func (s storms) check(t *testing.T, seeds int) outcome {
	t.Helper()
	var out outcome
	for range seeds {
		if err := s.run(nil, &out); err != nil {
			trace := &strings.Builder{}
			again := s.run(trace, &out)
			t.Fatalf("-allconcur.seed %d: %v (again: %v)\n%s", s.seed, err,
				again, tail(trace.String()))
		}
		s.seed++
	}
	t.Logf("%d runs, %d came to rest with all A-delivered, in %d a server halted", out.runs,
		out.live, out.halted)
	return out
}

// TestStorms: whatever the detectors and the network do, no two servers A-deliver different rounds,
// and the votes of any majority show what was A-delivered.
func TestStorms(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9} {
			for _, g := range overlays(t, n) {
				for name, s := range map[string]storms{
					"mistrust":         {mistrust: 40},
					"much mistrust":    {mistrust: 8},
					"stalls":           {stall: 10, mistrust: 10},
					"stalls, crashes":  {stall: 20, mistrust: 20, crashes: 1},
					"part of a shard":  {stall: 20, mistrust: 10, shard: n + (n-1)/2},
					"rarely, and long": {stall: 150, mistrust: 50},
				} {
					t.Run(fmt.Sprintf("%s/%d/%s/%s", engine, n, g.Kind(),
						name), func(t *testing.T) {
						t.Parallel()
						s.seed, s.config = *firstSeed, Config{Engine: engine, Servers: n,
							Reliable: g, Shard: s.shard}
						s.check(t, seedsFor(n)/3+1)
					})
				}
			}
		}
	}
}

// TestStormsCatch proves that the judge of TestStorms can fail. Each fault that ◇P can have, and
// the dissertation's own ◇P, makes two servers A-deliver different rounds, or leaves servers behind
// that a whole group brings to completion.
func TestStormsCatch(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	both := []string{EngineAllConcur, EngineAllConcurPlus}
	plus := []string{EngineAllConcurPlus}
	for _, plant := range []struct {
		config  Config
		engines []string
		servers []int
	}{
		{Config{Fault: FaultEarlyDelivery}, plus, []int{3, 5}},
		{Config{Fault: FaultNoForwardBackward}, both, []int{3, 5, 8}},
		{Config{Fault: FaultToleratedNotMajority}, both, []int{4, 6, 8}},
		{Config{Fault: FaultSetsIgnored}, both, []int{3, 5, 8}},
		{Config{Detector: DetectorEventualPaper}, both, []int{3, 5}},
	} {
		for _, engine := range plant.engines {
			for _, n := range plant.servers {
				t.Run(fmt.Sprintf("%s/%s/%s/%d", plant.config.Detector, plant.config.Fault, engine,
					n), func(t *testing.T) {
					t.Parallel()
					list := overlays(t, n)
					config := plant.config
					config.Engine, config.Servers, config.Reliable = engine, n, list[len(list)-1]
					s := storms{seed: 1, config: config, mistrust: 10, stall: 10, safetyOnly: true}
					for range 4000 {
						if err := s.run(nil, &outcome{}); err != nil {
							t.Logf("seed %d: %v", s.seed, err)
							return
						}
						s.seed++
					}
					t.Fatal("the planted bug goes unnoticed in 4000 schedules")
				})
			}
		}
	}
}

// TestCompleteTwice shows why completeOnce is about the whole group: once a server was removed, a
// round that it had completed may be complete again without it, with other messages.
func TestCompleteTwice(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := storms{seed: 1, config: Config{Engine: EngineAllConcurPlus, Servers: 3,
		Reliable: overlays(t, 3)[0]}, mistrust: 10, stall: 10, safetyOnly: true, anyGroup: true}
	for range 4000 {
		if err := s.run(nil, &outcome{}); err != nil {
			t.Logf("seed %d: %v", s.seed, err)
			return
		}
		s.seed++
	}
	t.Fatal("no round is complete in two epochs in 4000 schedules")
}

// TestFewMistakesEndWell: with accurate detectors and as many crashes as the group tolerates, or
// with one false suspicion that is withdrawn, everything is A-delivered everywhere without outside
// help, and AllConcur+ goes back to unreliable rounds.
func TestFewMistakesEndWell(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 9, 16} {
			if testing.Short() && n > 9 {
				continue
			}
			for _, g := range overlays(t, n) {
				f := digraph.Tolerated(g)
				for name, s := range map[string]storms{
					"accurate":             {},
					"accurate, crashes":    {crashes: f},
					"one mistake":          {mistrust: 10, mistakes: 2},
					"two mistakes, stalls": {mistrust: 10, mistakes: 2, stall: 20},
				} {
					t.Run(fmt.Sprintf("%s/%d/%s/%s", engine, n, g.Kind(),
						name), func(t *testing.T) {
						t.Parallel()
						s.seed, s.config, s.wantLive, s.oneStorm = *firstSeed,
							Config{Engine: engine, Servers: n, Reliable: g,
								AssertPropositions: s.mistrust == 0}, true, true
						s.check(t, seedsFor(n)/3+1)
					})
				}
			}
		}
	}
}

// catches looks for a schedule that passes without the fault and fails with it.
func (s storms) catches(t *testing.T, fault Fault, seeds int) {
	t.Helper()
	for range seeds {
		s.config.Fault = fault
		if err := s.run(nil, &outcome{}); err != nil {
			s.config.Fault = FaultNone
			if s.run(nil, &outcome{}) == nil {
				t.Logf("seed %d: %v", s.seed, err)
				return
			}
		}
		s.seed++
	}
	t.Fatalf("the planted bug goes unnoticed in %d schedules", seeds)
}

// TestLivenessCatches proves that the judge of completion can fail.
func TestLivenessCatches(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, c := range []struct {
			fault Fault
			n     int
			storm storms
			seeds int
		}{
			{FaultDroppedForward, 8, storms{}, 20},
			{FaultRevocationNotRecalled, 4, storms{mistrust: 10, stall: 10}, 200},
			{FaultRevocationNotRecalled, 5, storms{mistrust: 10, stall: 10}, 200},
			{FaultRemovedOwnerKept, 3, storms{mistrust: 10, stall: 10}, 50},
			{FaultRemovedOwnerKept, 8, storms{mistrust: 20, stall: 20, crashes: 1}, 50},
		} {
			list := overlays(t, c.n)
			s := c.storm
			s.seed, s.wantLive = 1, true
			s.config = Config{Engine: engine, Servers: c.n, Reliable: list[len(list)-1]}
			t.Run(fmt.Sprintf("%s/%s/%d", c.fault, engine, c.n), func(t *testing.T) {
				t.Parallel()
				s.catches(t, c.fault, c.seeds)
			})
		}
	}
}
