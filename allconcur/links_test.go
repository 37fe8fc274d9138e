package allconcur

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// checkCounts compares an engine's counters with what they count.
func (e *Engine) checkCounts() error {
	held, revoking := 0, 0
	for i := range e.links {
		held += len(e.links[i].held)
		if e.links[i].revoking {
			revoking++
		}
	}
	if held != e.held || revoking != e.revoking {
		return fmt.Errorf("server %d holds %d messages and revokes on %d links, and counts %d "+
			"and %d", e.self, held, revoking, e.held, e.revoking)
	}
	return nil
}

// TestTrustThatChangesNothing: trust in a server that is not suspected, that was removed, on a link
// that was given up, or whose numbers are used up.
func TestTrustThatChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*Engine)
		changes bool
	}{
		"suspected":      {func(*Engine) {}, true},
		"not suspected":  {func(e *Engine) { e.linkFrom(1).suspected = false }, false},
		"removed":        {func(e *Engine) { e.members.remove(1) }, false},
		"given up":       {func(e *Engine) { e.linkFrom(1).cut = true }, false},
		"no more number": {func(e *Engine) { e.linkFrom(1).sequence = math.MaxUint32 }, false},
		"ended":          {func(e *Engine) { e.ended = true }, false},
		"halted":         {func(e *Engine) { e.halted = "why" }, false},
	} {
		e := threeServers(t, Config{Engine: EngineAllConcur})[0]
		must(t, e.Suspect(1))
		c.prepare(e)
		before := e.AppendState(nil)
		if err := e.Trust(1); (err != nil) != (name == "halted") {
			t.Errorf("%s: %v", name, err)
		}
		if changes := !slices.Equal(before, e.AppendState(nil)); changes != c.changes {
			t.Errorf("%s: changes %v", name, changes)
		}
		if err := e.checkCounts(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSuspicionThatChangesNothing: a suspicion of a removed server, or in a run that ended.
func TestSuspicionThatChangesNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*Engine){
		"removed": func(e *Engine) { e.members.remove(1) },
		"ended":   func(e *Engine) { e.ended = true },
	} {
		e := threeServers(t, Config{Engine: EngineAllConcur})[0]
		prepare(e)
		before := e.AppendState(nil)
		must(t, e.Suspect(1))
		if !slices.Equal(before, e.AppendState(nil)) {
			t.Errorf("%s: it changes something", name)
		}
	}
}

// TestRevocationOfAnother: an A-delivered revocation ends a suspicion only if it is the one under
// way, with the same number.
func TestRevocationOfAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		revoking bool
		sequence uint32
		ends     bool
	}{
		"the one under way": {true, 1, true}, "an earlier one": {true, 0, false},
		"none is under way": {false, 1, false},
	} {
		e := threeServers(t, Config{Engine: EngineAllConcur})[0]
		must(t, e.Suspect(1))
		if c.revoking {
			must(t, e.Trust(1))
		}
		e.revoke(0, revocation{target: 1, sequence: c.sequence})
		if ends := !e.linkFrom(1).suspected; ends != c.ends || e.checkCounts() != nil {
			t.Errorf("%s: ends %v, %v", name, ends, e.checkCounts())
		}
	}
}

// TestReleasedMessagesOfRemovedServers: released messages from removed servers, or of them, are not
// taken.
func TestReleasedMessagesOfRemovedServers(t *testing.T) {
	t.Parallel()
	for _, removed := range []order.ServerID{1, 2} {
		e := threeServers(t, Config{Engine: EngineAllConcur})[0]
		e.members.remove(removed)
		e.released = []heldMessage{{from: 1, frame: encodeMessage(kindReliable, 0, e.epoch, e.round,
			2, nil)}}
		if e.settle(); e.Received(2) {
			t.Errorf("a message of server 2 from server 1 is taken, and server %d was removed",
				removed)
		}
	}
}

// TestRevocationsInAMessage: a message carries no more revocations than others accept, and only
// revocations that its sender can have made.
func TestRevocationsInAMessage(t *testing.T) {
	t.Parallel()
	const n = 20
	g, err := digraph.Complete(n)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Engine: EngineAllConcur, Servers: n, Reliable: g})
	if err != nil {
		t.Fatal(err)
	}
	for p := order.ServerID(1); p < n; p++ {
		must(t, e.Suspect(p))
		must(t, e.Trust(p))
	}
	if list := e.pendingRevocations(); len(list) != revocationsMax ||
		list[0] != (revocation{1, 1}) {
		t.Errorf("revokes %v", list)
	}
	some := threeServers(t, Config{Engine: EngineAllConcur})[0]
	ring, err := digraph.Ring(4)
	if err != nil {
		t.Fatal(err)
	}
	inRing, err := New(Config{Engine: EngineAllConcur, Servers: 4, Reliable: ring})
	if err != nil {
		t.Fatal(err)
	}
	perfect := threeServers(t, Config{Engine: EngineAllConcur, Detector: DetectorPerfect})[0]
	for name, c := range map[string]struct {
		e    *Engine
		list []revocation
		are  bool
	}{
		"two":                      {some, []revocation{{0, 1}, {1, 1}}, true},
		"one":                      {some, []revocation{{1, 9}}, true},
		"out of order":             {some, []revocation{{1, 1}, {0, 1}}, false},
		"twice":                    {some, []revocation{{1, 1}, {1, 2}}, false},
		"of nobody":                {some, []revocation{{3, 1}}, false},
		"without a number":         {some, []revocation{{1, 0}}, false},
		"of itself":                {some, []revocation{{2, 1}}, false},
		"of no predecessor":        {inRing, []revocation{{0, 1}}, false},
		"of the predecessor":       {inRing, []revocation{{1, 1}}, true},
		"under a perfect detector": {perfect, []revocation{{1, 1}}, false},
	} {
		frame := encodeMessage(kindReliable, 0, 1, 1, 2, nil, c.list...)
		if got := c.e.areRevocations(frameHeader{origin: 2, revocations: len(c.list)},
			frame); got != c.are {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHeldMessages: messages of a suspected predecessor are held if they are not here yet, up to a
// bound. They are taken only on a link that is trusted again.
func TestHeldMessages(t *testing.T) {
	t.Parallel()
	message := func(origin order.ServerID) []byte {
		return encodeMessage(kindReliable, 0, 1, 1, origin, nil)
	}
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	must(t, e.Receive(2, message(2)))
	must(t, e.Suspect(1))
	must(t, e.Receive(1, message(2)))
	if e.held != 0 {
		t.Errorf("%d messages held that are here", e.held)
	}
	must(t, e.Receive(1, message(1)))
	if e.held != 1 || e.Received(1) {
		t.Errorf("%d messages held, received %v", e.held, e.Received(1))
	}

	// Outside of the majority, only messages held on the link that is trusted again are taken.
	e = threeServers(t, Config{Engine: EngineAllConcur})[0]
	must(t, e.Broadcast(nil))
	must(t, e.Suspect(1))
	must(t, e.Suspect(2))
	must(t, e.Receive(1, message(1)))
	if !e.OutsideMajority() || e.held != 1 {
		t.Fatalf("outside %v, %d held", e.OutsideMajority(), e.held)
	}
	must(t, e.Trust(2))
	if e.Received(1) || e.held != 1 {
		t.Errorf("taken from a server that is suspected: %d held", e.held)
	}
	must(t, e.Trust(1))
	if !e.Received(1) || e.held != 0 || e.checkCounts() != nil {
		t.Errorf("not taken from a server that is trusted: %d held, %v", e.held, e.checkCounts())
	}
}

// TestGrowingMessages: these are of the current round, and not here.
func TestGrowingMessages(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	must(t, e.Receive(2, encodeMessage(kindReliable, 0, 1, 1, 2, nil)))
	for name, c := range map[string]struct {
		frame []byte
		grows bool
	}{
		"new":           {encodeMessage(kindReliable, 0, 1, 1, 1, nil), true},
		"here":          {encodeMessage(kindReliable, 0, 1, 1, 2, nil), false},
		"another round": {encodeMessage(kindReliable, 0, 1, 2, 1, nil), false},
		"another epoch": {encodeMessage(kindReliable, 0, 2, 1, 1, nil), false},
		"another kind":  {encodeMessage(kindUnreliable, 0, 1, 1, 1, nil), false},
	} {
		header, err := decodeFrame(c.frame, 0)
		if err != nil {
			t.Fatal(err)
		}
		if e.grows(header) != c.grows {
			t.Errorf("%s: grows %v", name, !c.grows)
		}
		for _, member := range []bool{true, false} {
			e.released = []heldMessage{{from: 2, frame: c.frame}}
			e.members.add(2)
			e.members.add(1)
			if !member {
				e.members.remove(2)
			}
			if e.releasedGrows() != (c.grows && member) {
				t.Errorf("%s, from a member %v: grows %v", name, member, e.releasedGrows())
			}
			e.members.add(2)
			if e.members.remove(1); e.releasedGrows() {
				t.Errorf("%s: of a server that was removed", name)
			}
			e.members.add(1)
		}
		e.released = nil
	}
}

// TestAllAreSuspectedAnew: every predecessor that was suspected again while a revocation was under
// way is suspected anew.
func TestAllAreSuspectedAnew(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	e.anew = []order.ServerID{1, 2}
	e.settle()
	if !e.linkFrom(1).suspected || !e.linkFrom(2).suspected || e.anew != nil {
		t.Errorf("suspects %v", e.Notifications())
	}
}

// TestTrackingOfManyEdges: a server has more successors than a word has bits.
func TestTrackingOfManyEdges(t *testing.T) {
	t.Parallel()
	const n = 70
	g, err := digraph.Complete(n)
	if err != nil {
		t.Fatal(err)
	}
	members := newServerSet(n)
	for p := range order.ServerID(n) {
		members.add(p)
	}
	f := newNotifications(g)
	tr := newTracking(g, f, members, false)
	tr.reset()
	fail := func(target, owner order.ServerID) {
		index := successorIndex(g, target, owner)
		f.arrived = append(f.arrived, notification{target, owner})
		f.mark(target, index)
		tr.update(notification{target, owner}, index)
	}
	fail(69, 0)
	d := tr.digraphs[69]
	if d == nil || d.vertices.count() != n-1 || d.vertices.has(0) {
		t.Fatalf("m* may be at %v", d.vertices.appendTo(nil))
	}
	for i, owner := range []order.ServerID{68, 66, 63, 1} {
		if fail(69, owner); d.vertices.has(owner) || d.vertices.count() != n-2-i {
			t.Errorf("after %d's notification m* may be at %d servers", owner, d.vertices.count())
		}
	}
	c := tr.clone(f, members)
	if got := c.digraphs[69]; !got.vertices.equal(d.vertices) || !slices.Equal(got.edges, d.edges) {
		t.Error("the clone tracks something else")
	}
	if tr.received(69); tr.awaitedCount != n-1 || len(tr.grown) != 0 || c.awaitedCount != n {
		t.Errorf("%d messages awaited", tr.awaitedCount)
	}
}

// TestHeldMessagesAreForgotten: held messages of removed servers and of past rounds are dropped, on
// all links.
func TestHeldMessagesAreForgotten(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	for p := order.ServerID(1); p < 3; p++ {
		must(t, e.Suspect(p))
		must(t, e.Receive(p, encodeMessage(kindReliable, 0, 1, 1, p, nil)))
	}
	if e.forgetHeld(); e.held != 2 {
		t.Fatalf("%d messages held", e.held)
	}
	e.members.remove(1)
	e.delivered = 1
	if e.forgetHeld(); e.held != 0 || !e.linkFrom(1).cut || e.linkFrom(2).cut ||
		e.checkCounts() != nil {
		t.Errorf("%d messages held, %v", e.held, e.checkCounts())
	}
}

// TestRevocationsAreRecalled: a revocation is recalled if the detector suspects the server again.
func TestRevocationsAreRecalled(t *testing.T) {
	t.Parallel()
	e := threeServers(t, Config{Engine: EngineAllConcur})[0]
	for p := order.ServerID(1); p < 3; p++ {
		must(t, e.Suspect(p))
		must(t, e.Trust(p))
	}
	e.linkFrom(2).again = true
	e.recallRevocations()
	if err := e.checkCounts(); err != nil || e.revoking != 1 || e.linkFrom(2).again {
		t.Errorf("%d revocations under way, %v", e.revoking, err)
	}
	// A revocation that no message carries yet is recalled at once, except with the planted bug.
	for _, fault := range []Fault{FaultNone, FaultRevocationNotRecalled} {
		e := threeServers(t, Config{Engine: EngineAllConcurPlus, Fault: fault})[0]
		must(t, e.Suspect(1))
		must(t, e.Trust(1))
		must(t, e.Suspect(1))
		if recalled := !e.linkFrom(1).revoking; recalled != (fault == FaultNone) {
			t.Errorf("fault %v: recalled %v", fault, recalled)
		}
	}
}
