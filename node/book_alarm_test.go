package node_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A shard is down. Transactions that wait for it, and entries of the stream that it does not take,
// raise an alarm once they have waited for longer than a minute by the nodes' clocks. Nodes of all
// shards know. When the shard is back, the alarm ends by itself.
func TestAlarmWhileAShardIsDown(t *testing.T) {
	t.Parallel()
	b := newBookOf(t, true, 1, 0, 0, 0)
	var ahead atomic.Int64
	for range b.nodes {
		b.clocks = append(b.clocks, func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		})
	}
	b.open()
	tree := func(k int) *ledgerdv1.Tree {
		t.Helper()
		shown, err := b.via(k).Tree(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	// alarm reports whether node k says that a transaction of shard 1 is overdue, for shard 2, and
	// an entry of the stream from the root to shard 2.
	alarm := func(k int, on bool) func() bool {
		return func() bool {
			shards := tree(k).GetShards()
			root, waits := shards[0], shards[1]
			if !on {
				return waits.GetOverdue() == 0 && len(root.GetUntakenBy()) == 0
			}
			return waits.GetOverdue() == 1 && len(waits.GetWaitsFor()) == 1 &&
				waits.GetWaitsFor()[0].GetShard() == 2 &&
				waits.GetWaitsFor()[0].GetOverdue() == 1 &&
				len(root.GetUntakenBy()) == 1 && root.GetUntakenBy()[0].GetShard() == 2 &&
				root.GetUntakenBy()[0].GetOverdue() == 1
		}
	}
	b.executed(b.submitAt(1, b.pay(1, 2, 1)))
	b.holds(2, 1001)
	b.stop(2)
	payment := b.signed(b.pay(1, 2, 5))
	if _, err := b.via(1).Submit(t.Context(), payment, ledgerdv1.Level_LEVEL_ADMITTED); err != nil {
		t.Fatal(err)
	}
	b.eventually("the payment waits", func() bool {
		return b.nodes[1].Store().PendingCount() == 1 && tree(0).GetShards()[1].GetPending() == 1
	})
	for k := range 2 {
		if !alarm(k, false)() {
			t.Errorf("node %d: the alarm is on at once: %v", k, tree(k))
		}
	}
	ahead.Store(int64(2 * time.Minute))
	for k := range 2 {
		b.eventually("the alarm is on", alarm(k, true))
	}
	id := payment.ID(0)
	for k, want := range []uint64{0, 1} {
		if state := b.nodes[k].State(); state.Waiting.Overdue != want {
			t.Errorf("node %d: %+v", k, state.Waiting)
		}
		places := b.status(k, id).GetPlaces()
		if len(places) != 3 || places[0].GetOverdue() || !places[1].GetOverdue() {
			t.Errorf("node %d: %v", k, places)
		}
	}
	b.start(2)
	b.holds(2, 1006)
	b.holds(1, int64(1000-6))
	for k := range 3 {
		b.eventually("the alarm is off", alarm(k, false))
	}
	if got := b.nodes[1].State().Waiting; got.Alarm() || !got.None() || !got.Since.IsZero() {
		t.Errorf("%+v", got)
	}
	if found, err := b.nodes[1].Store().Crossing(id); err != nil ||
		len(found.Waits) > 0 || found.Entry.Result.Code != ledger.SetAside {
		t.Errorf("%+v, %v", found, err)
	}
}
