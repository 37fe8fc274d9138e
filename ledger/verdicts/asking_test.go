package verdicts

import (
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
	x := New(Config{Vouched: true, Shards: 2, Bounds: bounds,
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
