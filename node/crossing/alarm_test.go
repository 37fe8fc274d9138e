package crossing

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// waits is a chain in which entries wait, by the times of their blocks in seconds. Each transaction
// waits for one shard.
type waits struct {
	transactions map[ledger.ShardID][]int64
	entries      map[ledger.ShardID][]int64 // of the streams
	absent       bool                       // the blocks of the entries are not here
	err          error
	reads        int
	// lost entries of each stream are in blocks that are not here.
	lost   uint64
	height ledger.Height
	// uncounted plants a bug: the oldest transaction is not counted.
	uncounted bool
}

func waitAmong(shard ledger.ShardID, times []int64, cutoff ledger.Milliseconds) store.Wait {
	wait := store.Wait{Shard: shard, Count: uint64(len(times)),
		Since: ledger.Milliseconds(times[0] * 1000)}
	for _, each := range times {
		if ledger.Milliseconds(each*1000) <= cutoff {
			wait.Old++
		}
	}
	return wait
}

// Waiting implements waitingChain.
func (w *waits) Waiting(cutoff ledger.Milliseconds) (by []store.Wait, old uint64, err error) {
	w.reads++
	for shard := range ledger.ShardID(8) {
		times := w.transactions[shard]
		if w.uncounted && len(times) > 0 {
			times = times[1:]
		}
		if len(times) > 0 {
			wait := waitAmong(shard, times, cutoff)
			by, old = append(by, wait), old+wait.Old
		}
	}
	return by, old, w.err
}

// Untaken implements waitingChain.
func (w *waits) Untaken(child ledger.ShardID, taken uint64, cutoff ledger.Milliseconds) (store.Wait,
	error) {
	if w.absent {
		return store.Wait{}, store.ErrAbsent
	}
	return waitAmong(child, w.entries[child][taken:], cutoff), nil
}

// FirstUntaken implements waitingChain.
func (w *waits) FirstUntaken(child ledger.ShardID, taken uint64) (first, last uint64, any bool) {
	last = uint64(len(w.entries[child]))
	return taken + 1, last, taken < last
}

// Stream implements waitingChain.
func (w *waits) Stream(child ledger.ShardID, from uint64, _ int, _ ledger.Height) ([]ledger.Carried,
	error) {
	if from <= w.lost {
		return nil, &store.AbsentError{Height: w.height, Absent: w.height}
	}
	return make([]ledger.Carried, min(1, len(w.entries[child]))), nil
}

// AppendedHeight implements waitingChain.
func (w *waits) AppendedHeight() ledger.Height { return 1000 }

// Absent implements waitingChain.
func (w *waits) Absent() ledger.Height { return w.height }

func at(second int64) time.Time { return time.Unix(second, 0) }

// alarmOf returns the alarm of a shard with these children.
func alarmOf(after time.Duration, taken func(ledger.ShardID) (uint64, bool),
	children ...ledger.ShardID) *alarm {
	return newAlarm(after, taken, nil, func() []ledger.ShardID { return children })
}

// Transactions are overdue once their block is older than the bound, and not a moment earlier.
func TestAlarmForTransactions(t *testing.T) {
	t.Parallel()
	run := func(uncounted bool) (wrong []string) {
		chain := &waits{uncounted: uncounted, transactions: map[ledger.ShardID][]int64{
			2: {100, 100, 130}, 3: {120}}}
		a := alarmOf(time.Minute, nil)
		for _, step := range []struct {
			now             int64
			overdue, of2    uint64
			line, over, off bool
		}{
			{now: 101}, {now: 159}, {now: 160, overdue: 2, of2: 2, line: true},
			{now: 161, overdue: 2, of2: 2}, {now: 180, overdue: 3, of2: 2},
			{now: 219, overdue: 4, of2: 3}, {now: 220, overdue: 4, of2: 3, line: true},
			{now: 222, over: true, off: true}, {now: 224, overdue: 4, of2: 3},
			{now: 281, overdue: 4, of2: 3, line: true},
		} {
			now := chain
			if step.off {
				now = new(waits)
			}
			found, due, err := a.look(now, at(step.now))
			if err != nil {
				t.Fatal(err)
			}
			of2 := uint64(0)
			if len(found.Verdicts) > 0 {
				of2 = found.Verdicts[0].Overdue
			}
			if found.Overdue != step.overdue || of2 != step.of2 ||
				found.Alarm() != (step.overdue > 0) ||
				(due != nil && !due.over) != step.line || (due != nil && due.over) != step.over {
				wrong = append(wrong, at(step.now).UTC().Format(time.TimeOnly))
				continue
			}
			if step.off {
				continue
			}
			if !found.Since.Equal(at(100)) || len(found.Verdicts) != 2 ||
				!found.Verdicts[1].Since.Equal(at(120)) || found.Verdicts[0].Count != 3 {
				wrong = append(wrong, "since")
			}
			if step.line && !strings.Contains(due.text, "shard 2 since 1970-01-01T00:01:40Z (") {
				wrong = append(wrong, due.text)
			}
		}
		return wrong
	}
	if wrong := run(false); len(wrong) > 0 {
		t.Errorf("wrong: %v", wrong)
	}
	if wrong := run(true); len(wrong) == 0 {
		t.Error("a transaction that is not counted is not found")
	}
}

// Entries of a stream are overdue once the block of the first one that the child lacks is older
// than the bound. If this block is not here, or it is not known what the child has, they wait since
// the node's first look.
func TestAlarmForStreams(t *testing.T) {
	t.Parallel()
	taken, known := uint64(0), true
	chain := &waits{entries: map[ledger.ShardID][]int64{1: {100, 110, 200}, 2: nil}}
	children := []ledger.ShardID{1, 2}
	a := alarmOf(time.Minute, func(child ledger.ShardID) (uint64, bool) {
		if child == 2 {
			t.Errorf("asked for shard %d, whose stream is empty", child)
		}
		return taken, known
	}, 1, 2)
	a.children = func() []ledger.ShardID { return children }
	want := func(second int64, streams ...report.Wait) {
		t.Helper()
		found, _, err := a.look(chain, at(second))
		if err != nil || !reflect.DeepEqual(found.Streams, streams) ||
			found.Alarm() != (len(streams) > 0) || found.Overdue != 0 {
			t.Errorf("at %d: %+v, %v; want %+v", second, found, err, streams)
		}
	}
	want(159)
	want(161, report.Wait{Shard: 1, Count: 3, Overdue: 1, Since: at(100)})
	want(171, report.Wait{Shard: 1, Count: 3, Overdue: 2, Since: at(100)})
	taken = 1 // it takes entries, and is behind
	want(173, report.Wait{Shard: 1, Count: 2, Overdue: 1, Since: at(110)})
	taken = 2
	want(175)
	known, taken = false, 0 // first look was at 159
	want(217)
	want(219, report.Wait{Shard: 1, Count: 3, Overdue: 3, Since: at(159)})
	known, chain.absent = true, true
	want(221, report.Wait{Shard: 1, Count: 3, Overdue: 3, Since: at(159)})
	taken = 3
	want(300)
	// A child that was added then, and was never heard.
	known, taken, chain.entries[1], chain.entries[3] = false, 0, nil, []int64{310}
	children = append(children, 3)
	want(320)
	want(379)
	want(381, report.Wait{Shard: 3, Count: 1, Overdue: 1, Since: at(320)})
}

// Entries that are overdue are lost if neither this node has their blocks nor any other member.
// What is not known is not lost.
func TestAlarmForLostEntries(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]struct {
		known, gone bool
		second      int64
		taken, lost uint64
		height      ledger.Height
		want        uint64
	}{
		"lost":                     {true, true, 161, 1, 4, 7, 3},
		"the last one, too":        {true, true, 171, 0, 5, 7, 5},
		"taken before":             {true, true, 161, 4, 4, 7, 0},
		"not overdue":              {true, true, 159, 1, 4, 7, 0},
		"another member may have":  {true, false, 161, 1, 4, 7, 0},
		"the child was not heard":  {false, true, 300, 0, 4, 7, 0},
		"all blocks are here":      {true, true, 161, 1, 4, 0, 0},
		"only the rows are absent": {true, true, 161, 1, 0, 7, 0},
	} {
		chain := &waits{entries: map[ledger.ShardID][]int64{1: {100, 100, 100, 100, 100}},
			lost: each.lost, height: each.height}
		a := alarmOf(time.Minute, func(ledger.ShardID) (uint64, bool) {
			return each.taken, each.known
		}, 1)
		a.gone = func(height ledger.Height) bool {
			if height != each.height {
				t.Errorf("%s: asked for block %d", name, height)
			}
			return each.gone
		}
		found, due, err := a.look(chain, at(each.second))
		if err != nil {
			t.Fatal(err)
		}
		var lost report.Wait
		if len(found.Streams) > 0 {
			lost = found.Streams[0]
		}
		if lost.Lost != each.want || (lost.LostHeight == each.height) != (each.want > 0) &&
			each.height > 0 {
			t.Errorf("%s: %+v", name, lost)
		}
		if lost.Lost > 0 && (due == nil || !strings.HasPrefix(due.text, fmt.Sprintf("shard 1 for "+
			"ever (%d that are lost: no member of this shard has the blocks up to 7)",
			each.want))) {
			t.Errorf("%s: %+v", name, due)
		}
	}
}

// A member that was not heard may have blocks. One that left does not count.
func TestBlocksThatAreGone(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(3, 0, 0)
	directory, err := shards.NewDirectory(genesis)
	if err != nil {
		t.Fatal(err)
	}
	_, members := directory.Members(0)
	b := &book{directory: directory, config: Config{Self: members[0].Peer},
		absent: map[rdmanet.PeerID]ledger.Height{}}
	want := func(what string, height ledger.Height, gone bool) {
		t.Helper()
		if b.gone(height) != gone {
			t.Errorf("%s: blocks up to %d are gone: %t", what, height, !gone)
		}
	}
	want("nobody was heard", 7, false)
	b.heardAbsent(members[1].Peer, 7)
	want("one was not heard", 7, false)
	b.heardAbsent(members[2].Peer, 9)
	want("all were heard", 7, true)
	want("one has block 8", 8, false)
	b.heardAbsent(members[1].Peer, 0)
	want("one has all by now", 7, false)
	membership := genesis.Membership()
	membership.Number, membership.Members = 1, slices.Delete(membership.Members, 1, 2)
	directory.SetOwn(membership)
	want("that one left", 7, true)
	b.heardAbsent(members[1].Peer, 0)
	if len(b.absent) != 1 {
		t.Errorf("%d members are remembered", len(b.absent))
	}
}

// The chain is read at most once a second. A chain that cannot be read leaves what was found. The
// bound 0 is no bound, and what waits is known all the same.
func TestAlarmLooksSeldom(t *testing.T) {
	t.Parallel()
	chain := &waits{transactions: map[ledger.ShardID][]int64{2: {100}},
		entries: map[ledger.ShardID][]int64{1: {100}}}
	a := alarmOf(time.Minute, nil)
	for range 3 {
		if found, _, err := a.look(chain, at(1000)); err != nil || found.Overdue != 1 {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if chain.reads != 1 {
		t.Errorf("read %d times in a second", chain.reads)
	}
	if _, _, err := a.look(chain, at(900)); err != nil || chain.reads != 2 {
		t.Errorf("after the clock was set back: read %d times, %v", chain.reads, err)
	}
	chain.err = errors.New("closed")
	if found, due, err := a.look(chain, at(2000)); err == nil || found.Overdue != 1 || due != nil {
		t.Errorf("a chain that cannot be read: %+v, %v, %v", found, due, err)
	}
	chain.err = nil
	off := alarmOf(0, func(ledger.ShardID) (uint64, bool) { return 0, true }, 1)
	found, due, err := off.look(chain, at(2000))
	if err != nil || found.Alarm() || due != nil || len(found.Verdicts) != 1 ||
		!found.Since.Equal(at(100)) {
		t.Errorf("without a bound: %+v, %v, %v", found, due, err)
	}
}

// A line names a bounded number of shards.
func TestAlarmNamesSomeShards(t *testing.T) {
	t.Parallel()
	chain := &waits{transactions: map[ledger.ShardID][]int64{}, entries: map[ledger.ShardID][]int64{
		1: {100}, 2: {100}}}
	for shard := range ledger.ShardID(8) {
		chain.transactions[shard] = []int64{100}
	}
	a := alarmOf(time.Minute, func(ledger.ShardID) (uint64, bool) { return 0, true }, 1, 2)
	_, due, err := a.look(chain, at(1000))
	if err != nil || due == nil || strings.Count(due.text, "shard ") != namedMax ||
		!strings.HasSuffix(due.text, ", and 2 more") {
		t.Errorf("%+v, %v", due, err)
	}
}
