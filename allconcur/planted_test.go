package allconcur

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestSkipAfterDecided: a server that decided the set of a rerun does not leave the rerun by a
// skip, since it would vote twice for one round. With the fault it does.
func TestSkipAfterDecided(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultSkipAfterDecided} {
		e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 5, Reliable: overlays(t, 5)[0],
			Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		take := func(from order.ServerID, frame []byte) {
			t.Helper()
			if err := e.Receive(from, frame); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Broadcast([]byte("a1")); err != nil {
			t.Fatal(err)
		}
		for p := order.ServerID(1); p < 5; p++ {
			take(p, encodeMessage(kindUnreliable, 0, 1, 1, p, nil))
		}
		// Round 1 is complete here. All remaining servers suspect servers 3 and 4, so the round is
		// rerun without them.
		for target := order.ServerID(3); target < 5; target++ {
			for owner := order.ServerID(0); owner < 5; owner++ {
				if owner == 0 {
					err = e.Suspect(target)
				} else if owner != target {
					err = e.Receive(1, encodeFailure(0, target, owner, 1))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		for p := order.ServerID(1); p < 3; p++ {
			take(p, encodeMessage(kindReliable, 0, 2, 1, p, nil))
		}
		before := e.Votes()
		if len(before) != 1 || !before[0].Reliable || !e.Status().Decided {
			t.Fatalf("votes %+v in %+v, want one for the set of three", before, e.Status())
		}
		// Server 3 is ahead: it completed round 2.
		take(1, encodeMessage(kindReliable, 0, 2, 2, 3, nil))
		after := e.Votes()
		twice := len(after) != 1 || !equalDeliveries(before[0].Delivery, after[0].Delivery)
		if twice != (fault == FaultSkipAfterDecided) {
			t.Fatalf("%s: voted for %+v, then for %+v", fault, before, after)
		}
	}
}

// TestRevocationOfOneNotification: server 1 revokes its first notification of server 0 and makes a
// second. Server 2 suspects server 1 and holds its messages. The second notification reaches server
// 2 before server 2 A-delivers the revocation. It stays valid. With the fault it does not, and
// server 2 diverges.
func TestRevocationOfOneNotification(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultRevokeWrongSequence} {
		e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 3, Self: 2,
			Reliable: overlays(t, 3)[0], Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		set := newServerSet(3)
		for p := range order.ServerID(3) {
			set.add(p)
		}
		steps := []error{
			e.Suspect(1),
			e.Receive(0, encodeFailure(0, 0, 1, 1)),
			e.Broadcast(nil),
			e.Receive(0, encodeMessage(kindReliable, 0, 2, 1, 0, nil)),
			// This message is held.
			e.Receive(1, encodeMessage(kindReliable, 0, 2, 1, 1, nil,
				revocation{target: 0, sequence: 1})),
			e.Receive(1, encodeVote(kindForward, phaseDecided, 0, 2, 1, 1, set)),
			e.Receive(1, encodeFailure(0, 0, 1, 2)),
			e.Receive(0, encodeMessage(kindReliable, 0, 2, 1, 1, nil,
				revocation{target: 0, sequence: 1})),
			e.Receive(0, encodeVote(kindForward, phaseDecided, 0, 2, 1, 0, set)),
		}
		for i, err := range steps {
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		if e.delivered != 1 {
			t.Fatalf("round 1 is not A-delivered: %+v", e.Status())
		}
		if suspected := e.failures.targets.has(0); suspected != (fault == FaultNone) {
			t.Fatalf("%s: server 0 is suspected: %t", fault, suspected)
		}
	}
}

// TestPrematureIsRelayed: a message of the next reliable round that arrives while this server is in
// the present one is relayed at once. With the fault it is not. No run of correct servers shows
// this under ◇P: links are FIFO, and a server that completes a round has relayed all the messages,
// notifications and votes by which it did. They arrive before its next message does, so the
// receiver completes the round as well. A frame may still come early if a rule changes.
func TestPrematureIsRelayed(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultPrematureNotRelayed} {
		e, err := New(Config{Engine: EngineAllConcur, Servers: 3, Reliable: overlays(t, 3)[0],
			Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		status := e.Status()
		premature := encodeMessage(kindReliable, 0, status.Epoch+1, status.Round+1,
			1, []byte("early"))
		must(t, e.Receive(1, premature))
		relayed := false
		for _, send := range e.Ready().Sends {
			relayed = relayed || bytes.Equal(send.Frame, premature) && slices.Contains(send.To, 2)
		}
		if relayed != (fault == FaultNone) {
			t.Errorf("%s: relayed: %t", fault, relayed)
		}
	}
}

// TestOutvotedSkipperHalts: server 4 alone completes round 2, and then learns that it is suspected.
// Server 3 reruns round 1, receives server 4's rerun of round 2, and skips. The three others
// suspect both, but have server 3's message of the rerun. They are a majority for round 1 without
// server 4. Server 3 voted for another value of round 1, and halts as soon as it learns of theirs.
// With the fault it goes on, until it learns of a round that the others A-deliver without its
// message.
func TestOutvotedSkipperHalts(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultOutvotedSkipperGoesOn} {
		c, err := newChaos(1, Config{Engine: EngineAllConcurPlus, Servers: 5,
			Reliable: overlays(t, 5)[0], Fault: fault})
		must(t, err)
		// arrive delivers all frames on the links that pass.
		arrive := func(pass func(from, to int) bool) {
			t.Helper()
			for moved := true; moved; {
				moved = false
				for link := range c.channels {
					from, to := link/c.n(), link%c.n()
					for pass(from, to) && len(c.channels[link]) > 0 {
						moved = true
						must(t, c.step(action{"receive", from, to}))
					}
				}
			}
		}
		suspectBy := func(target int, observers ...int) {
			t.Helper()
			for _, p := range observers {
				must(t, c.change(target, p, true))
			}
		}
		for round := 1; round <= 2; round++ {
			for p := range c.n() {
				must(t, c.step(action{"submit", p, p}))
			}
			arrive(func(from, _ int) bool { return from != 4 || round == 1 })
		}
		suspectBy(4, 0, 1, 2)
		arrive(func(from, _ int) bool { return from != 4 })
		arrive(func(from, to int) bool { return from == 4 && to == 3 })
		if s := c.engines[3].Status(); s.Epoch != 2 || s.Round != 2 || !s.Reliable {
			t.Fatalf("server 3 has not skipped: %+v", s)
		}
		suspectBy(3, 0, 1, 2)
		arrive(func(from, to int) bool { return from < 3 && to < 3 })
		for from := range 3 {
			for link := c.channel(from, 3); len(*link) > 0 && !c.halted[3]; {
				header, err := decodeFrame((*link)[0], MaxPayloadDefault)
				must(t, err)
				if header.round == 2 {
					break
				}
				must(t, c.step(action{"receive", from, 3}))
			}
		}
		if halted := c.halted[3]; halted != (fault == FaultNone) {
			t.Errorf("%s: server 3 has halted: %t, %+v", fault, halted, c.engines[3].Status())
		}
		must(t, c.calm())
		must(t, c.live())
	}
}
