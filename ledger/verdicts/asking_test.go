package verdicts

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// TestBelievedVerdictsTakeTurns: believed verdicts that had no room are judged again in turns, even
// if only one fits at a time.
func TestBelievedVerdictsTakeTurns(t *testing.T) {
	t.Parallel()
	bounds := DefaultBounds()
	bounds.Received = 1
	x := New(Config{Vouched: true, Shards: func() int { return 2 }, Bounds: bounds,
		Members: func(ledger.ShardID) []ledger.MemberIndex { return []ledger.MemberIndex{0} }})
	a := NewAsking(time.Second, time.Second)
	var pending []state.Pending
	for i := range 3 {
		x.Hear(Member{1, 0}, []ledger.Verdict{{ID: name(i), Shard: 1, Result: good}})
		pending = append(pending, state.Pending{ID: name(i), Waits: []ledger.ShardID{1}})
	}
	x.TakeReceived(1) // the chain does not take it: its place is full
	judged := make(map[ledger.Hash]bool)
	for look := range 3 {
		now := time.Duration(look+1) * time.Minute
		x.Questions(a, a.Overdue(pending, now, look == 0), now, 8, 2)
		for _, verdict := range x.TakeReceived(1) {
			judged[verdict.ID] = true
		}
	}
	if len(judged) != 3 {
		t.Errorf("%d of 3 verdicts are judged again", len(judged))
	}
}

// TestEarlyDepartures: the word that an organisation has left may come before the move is in the
// chain, as when the member that asked for it lost its last blocks. It is kept, under the id of an
// arrival, and judged again once the chain waits for it.
func TestEarlyDepartures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		vouched bool
		fault   Fault
	}{{false, FaultNone}, {true, FaultNone}, {false, FaultEarlyDeparture},
		{true, FaultEarlyDeparture}} {
		x := New(Config{Vouched: c.vouched, Shards: func() int { return 2 },
			Bounds: DefaultBounds(), Fault: c.fault,
			Members: func(ledger.ShardID) []ledger.MemberIndex { return []ledger.MemberIndex{0} }})
		a := NewAsking(time.Second, time.Second)
		left, other := ledger.Departure(7, 1, name(1)), ledger.Verdict{ID: name(2), Shard: 1,
			Result: good}
		x.Hear(Member{1, 0}, []ledger.Verdict{left, other})
		for _, verdict := range x.TakeReceived(8) {
			x.Place(&verdict, Early, x.Blocks())
		}
		move := state.Pending{ID: name(3), Departure: true, Waits: []ledger.ShardID{1}}
		pay := state.Pending{ID: name(4), Waits: []ledger.ShardID{1}}
		a.Overdue([]state.Pending{pay}, time.Minute, false)
		if x.Sweep(a); len(x.TakeReceived(8)) > 0 {
			t.Error("verdicts are judged again that nothing waits for")
		}
		a.Overdue([]state.Pending{pay, move}, 2*time.Minute, false)
		x.Hear(Member{1, 0}, []ledger.Verdict{left})
		x.Sweep(a)
		judged := x.TakeReceived(8)
		if found := slices.Equal(judged, []ledger.Verdict{left}); found != (c.fault == FaultNone) {
			t.Errorf("vouched %t, fault %d: %v is judged again", c.vouched, c.fault, judged)
		}
	}
}

// TestBelievedDeparturesAreHeardAgain: a word that was dropped for lack of room counts again when
// it is told again. It is asked for by the move's id, which says nothing of it.
func TestBelievedDeparturesAreHeardAgain(t *testing.T) {
	t.Parallel()
	x := New(Config{Vouched: true, Shards: func() int { return 2 }, Bounds: DefaultBounds(),
		Members: func(ledger.ShardID) []ledger.MemberIndex { return []ledger.MemberIndex{0} }})
	left, other := ledger.Departure(7, 1, name(1)), ledger.Verdict{ID: name(2), Shard: 1,
		Result: good}
	for time := range 2 {
		x.Hear(Member{1, 0}, []ledger.Verdict{left, other})
		judged := x.TakeReceived(8) // and dropped
		if want := []ledger.Verdict{left, other}[:2-time]; !slices.Equal(judged, want) {
			t.Errorf("%v is judged, want %v", judged, want)
		}
	}
	for range 3 { // one member that repeats it takes no room from others
		x.Hear(Member{1, 0}, []ledger.Verdict{left, left})
	}
	if judged := x.TakeReceived(8); len(judged) != 1 {
		t.Errorf("%v is judged, want it once", judged)
	}
	x.Place(&left, Awaited, x.Blocks())
	if x.Hear(Member{1, 0}, []ledger.Verdict{left}); len(x.TakeReceived(8)) > 0 {
		t.Error("what is proposed already is judged again")
	}
}

// Of a shard that is lost, others are asked for testimonies, and its own verdicts are proposed no
// more. If nobody is left to ask, the member testifies itself.
func TestTestimoniesAreAsked(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{false, true} {
		x := New(Config{Vouched: vouched, Shards: func() int { return 3 }, Bounds: DefaultBounds(),
			Members: func(shard ledger.ShardID) []ledger.MemberIndex {
				if shard == 2 {
					return nil // it is lost
				}
				return []ledger.MemberIndex{0}
			}})
		a := NewAsking(time.Second, time.Second)
		late := ledger.Verdict{ID: name(1), Shard: 2, Result: good}
		x.Believe(&late)
		for _, verdict := range x.TakeReceived(8) {
			x.Place(&verdict, Awaited, x.Blocks())
		}
		asked := ledger.Testimony{About: 2, AsOf: 2}
		pending := []state.Pending{
			{ID: name(1), Waits: []ledger.ShardID{1}, Inquiries: []state.Inquiry{{Testimony: asked,
				Of: []ledger.ShardID{1}}}},
			{ID: name(2), Inquiries: []state.Inquiry{{Testimony: asked, Of: []ledger.ShardID{0}}}},
		}
		due := a.Overdue(pending, time.Minute, true)
		x.Sweep(a)
		if x.Awaits(KeyOf(&late)) {
			t.Error("a verdict of the lost shard is proposed")
		}
		questions, vain := x.Questions(a, due, time.Minute, 8, 0)
		want := []Question{{Shard: 1, IDs: []ledger.Hash{name(1)}},
			{Shard: 1, Subject: asked.Subject(), IDs: []ledger.Hash{name(1)}}}
		if !reflect.DeepEqual(questions, want) {
			t.Errorf("asked %+v", questions)
		}
		// A certified proof shows a verdict, and no testimony.
		if len(vain) != 1 || vain[0].Subject != 0 {
			t.Errorf("asked in vain for %+v", vain)
		}
		own := asked.Verdict(name(2), 0, false)
		if !slices.Contains(x.TakeReceived(8), own) {
			t.Error("the member does not testify")
		}
		told := asked.Verdict(name(1), 1, true)
		x.Hear(Member{1, 0}, []ledger.Verdict{told})
		if !slices.Contains(x.TakeReceived(8), told) {
			t.Error("the other shard's testimony is not judged")
		}
	}
}
