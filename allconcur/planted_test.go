package allconcur

import (
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestSkipAfterDecided: a server that decided the set of a rerun leaves it no more by a skip: it would vote twice for one round. With the fault it does.
func TestSkipAfterDecided(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultSkipAfterDecided} {
		e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 5, Reliable: overlays(t, 5)[0], Fault: fault})
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
		// Round 1 is complete here. All that are left suspect servers 3 and 4, so that it is rerun without them.
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
		take(1, encodeMessage(kindReliable, 0, 2, 2, 3, nil)) // server 3 is ahead: it completed round 2
		after := e.Votes()
		twice := len(after) != 1 || !equalDeliveries(before[0].Delivery, after[0].Delivery)
		if twice != (fault == FaultSkipAfterDecided) {
			t.Fatalf("%s: voted for %+v, then for %+v", fault, before, after)
		}
	}
}

// TestRevocationOfOneNotification: server 1 revokes its first notification of server 0 and makes a second, which arrives at server 2, that suspects server 1 and holds its
// messages, before server 2 A-delivers the revocation. The second stays valid. With the fault it does not, and server 2 goes its own way.
func TestRevocationOfOneNotification(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultRevokeWrongSequence} {
		e, err := New(Config{Engine: EngineAllConcurPlus, Servers: 3, Self: 2, Reliable: overlays(t, 3)[0], Fault: fault})
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
			e.Receive(1, encodeMessage(kindReliable, 0, 2, 1, 1, nil, revocation{target: 0, sequence: 1})), // held
			e.Receive(1, encodeVote(kindForward, phaseDecided, 0, 2, 1, 1, set)),
			e.Receive(1, encodeFailure(0, 0, 1, 2)),
			e.Receive(0, encodeMessage(kindReliable, 0, 2, 1, 1, nil, revocation{target: 0, sequence: 1})),
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
