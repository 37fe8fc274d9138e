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
