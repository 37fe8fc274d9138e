package shards

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/node/report"
)

// sighting is a look at a shard.
type sighting struct {
	at     time.Time
	orders bool
}

// sightings draws looks that are mostly a second apart. Sometimes the node was paused.
func sightings(t *rapid.T) (all []sighting) {
	at := time.Unix(1000, 0)
	orders := true
	for range rapid.IntRange(1, 80).Draw(t, "looks") {
		step := time.Duration(rapid.IntRange(100, 1100).Draw(t, "step")) * time.Millisecond
		if rapid.IntRange(0, 19).Draw(t, "paused") == 0 {
			step = time.Hour
		}
		at = at.Add(step)
		if rapid.IntRange(0, 4).Draw(t, "changes") == 0 {
			orders = !orders
		}
		all = append(all, sighting{at, orders})
	}
	return all
}

// watching follows a shard, as an outage does.
type watching func(now time.Time, step time.Duration, orders bool, after time.Duration) (down bool,
	since time.Time)

// judgeOutage shows sightings to a watching, and returns what it gets wrong. The judge looks at the
// lengths of the runs of equal sightings.
func judgeOutage(all []sighting, after time.Duration, watch watching) error {
	var run time.Duration // of sightings equal to the last one
	down, ordered := false, all[0].at
	for i, each := range all {
		var step time.Duration
		if i > 0 {
			step = min(each.at.Sub(all[i-1].at), 2*time.Second)
		}
		if run += step; i == 0 || all[i-1].orders != each.orders {
			run = step
		}
		switch {
		case !each.orders && run >= after:
			down = true
		case each.orders && run >= min(after, 10*time.Second):
			down = false
		}
		if each.orders && !down {
			ordered = each.at
		}
		got, since := watch(each.at, step, each.orders, after)
		if got != down {
			return fmt.Errorf("look %d: down is %v, after %v of a shard that orders: %v", i, got,
				run, each.orders)
		}
		if down && !since.Equal(ordered) {
			return fmt.Errorf("look %d: down since %v, want %v", i, since, ordered)
		}
	}
	return nil
}

// A shard is down once it was seen not to order for long enough, and not before: nothing is refused
// while all order. It does not flap, and a pause of this node counts for little. The judge catches
// an outage that is wrong.
func TestOutages(t *testing.T) {
	t.Parallel()
	real := func() watching {
		o := new(outage)
		return func(now time.Time, step time.Duration, orders bool,
			after time.Duration) (bool, time.Time) {
			o.look(now, step, orders, after)
			return o.down, o.since
		}
	}
	after := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(1, 15).Draw(t, "after")) * time.Second
	})
	rapid.Check(t, func(t *rapid.T) {
		if err := judgeOutage(sightings(t), after.Draw(t, "after"), real()); err != nil {
			t.Fatal(err)
		}
	})
	planted := map[string]func(o *outage, before outage, step time.Duration, orders bool){
		"up with the first report": func(o *outage, _ outage, _ time.Duration, orders bool) {
			o.down = o.down && !orders
		},
		"adds up silence": func(o *outage, before outage, _ time.Duration, orders bool) {
			if orders {
				o.silent = before.silent
			}
		},
		"adds up order": func(o *outage, before outage, _ time.Duration, orders bool) {
			if !orders {
				o.back = before.back
			}
		},
		"never down": func(o *outage, _ outage, _ time.Duration, _ bool) { o.down = false },
		"since the last report": func(o *outage, _ outage, step time.Duration, orders bool) {
			if orders {
				o.since = o.since.Add(step)
			}
		},
	}
	for name, spoil := range planted {
		found := false
		for seed := 0; seed < 200 && !found; seed++ {
			o := new(outage)
			all := rapid.Custom(sightings).Example(seed)
			found = judgeOutage(all, 3*time.Second, func(now time.Time, step time.Duration,
				orders bool, after time.Duration) (bool, time.Time) {
				before := *o
				o.look(now, step, orders, after)
				spoil(o, before, step, orders)
				return o.down, o.since
			}) != nil
		}
		if !found {
			t.Errorf("not caught: %s", name)
		}
	}
}

// watched are the obstacles that member 0 of shard 0 knows, with a clock of the test's own.
type watched struct {
	*Obstacles
	t       *testing.T
	d       *Directory
	now     time.Time
	waiting map[ledger.ShardID]int
	filled  int // how often the own shard became full for another one
	log     strings.Builder
}

func newWatched(t *testing.T, after time.Duration) *watched {
	w := &watched{t: t, d: directory(t, 0), now: time.Unix(1000, 0),
		waiting: map[ledger.ShardID]int{}}
	w.d.now = func() time.Time { return w.now }
	var err error
	if w.Obstacles, err = NewObstacles(ObstaclesConfig{Directory: w.d, RefuseAfter: after,
		Waiting: func(shard ledger.ShardID) int { return w.waiting[shard] },
		Filled:  func() { w.filled++ },
		Logger:  slog.New(slog.NewTextHandler(&w.log, nil))}); err != nil {
		t.Fatal(err)
	}
	return w
}

// pass lets seconds pass in which these members report, each second, that their shards order.
func (w *watched) pass(seconds int, members ...int) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		for _, member := range members {
			shard, _, _ := w.d.Find(peerOf(w.t, member))
			w.d.Heard(peerOf(w.t, member), Announcement{Shard: shard,
				Mode: report.ModeOrdering}, w.now)
		}
		w.Look(w.now)
	}
}

func (w *watched) want(what string, want ...report.Obstacle) {
	w.t.Helper()
	if got := w.List(); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		w.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestShardIsDown(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 30*time.Second)
	w.Look(w.now)
	begun := w.now
	w.pass(20, 3, 6)
	w.want("all order")
	last := w.now
	// Shard 1 ends without a word: its report is current for five seconds more.
	w.pass(34, 6)
	w.want("shard 1 is away for less than thirty seconds after that")
	w.pass(3, 6)
	since := w.List()
	if len(since) != 1 || since[0].Shard != 1 || since[0].Full ||
		since[0].Since.Sub(last) > ReportLifetime || since[0].Since.Before(last) {
		t.Fatalf("shard 1 is away: %+v, last heard at %v", since, last)
	}
	w.pass(2, 4, 6)
	w.want("it comes back", since[0])
	w.pass(10, 6)
	w.want("and goes again", since[0])
	w.pass(12, 4, 6)
	w.want("it is back")
	if got := strings.Count(w.log.String(), "\n"); got != 2 {
		t.Errorf("the log has %d lines, not one for down and one for back:\n%s", got,
			w.log.String())
	}
	// A shard that was never heard is down, too.
	never := newWatched(t, 30*time.Second)
	never.Look(begun)
	never.pass(32, 3)
	never.want("shard 2 was never heard", report.Obstacle{Shard: 2, Since: begun})
	// A shard that tells that it does not order is down at once.
	told := newWatched(t, 2*time.Second)
	told.pass(5, 3, 6)
	last = told.now
	told.d.Heard(peerOf(t, 3), Announcement{Shard: 1, Mode: report.ModeHalted}, told.now)
	told.pass(2, 6)
	told.want("a halted shard", report.Obstacle{Shard: 1, Since: last})
	without := newWatched(t, 0)
	without.pass(100)
	without.waiting[1] = state.MaxWaiting
	without.pass(1)
	without.want("refuse_after is 0")
}

// The own shard's table has two marks. Transactions are refused from the upper one on until the
// lower one.
func TestOwnShardIsFull(t *testing.T) {
	t.Parallel()
	w := newWatched(t, time.Second)
	look := func(waiting int, full bool, since time.Time) {
		t.Helper()
		w.waiting[2] = waiting
		w.pass(1, 3, 6)
		if !full {
			w.want(fmt.Sprintf("%d wait", waiting))
			return
		}
		w.want(fmt.Sprintf("%d wait", waiting), report.Obstacle{Shard: 0, Since: since,
			Full: true, Awaited: 2})
		if got := w.OwnFull(); len(got) != 1 || got[0] != 2 {
			t.Errorf("the others are told of %v", got)
		}
	}
	look(fullUntil+1, false, time.Time{})
	look(fullFrom-1, false, time.Time{})
	since := w.now.Add(time.Second)
	look(fullFrom, true, since)
	look(state.MaxWaiting, true, since)
	look(fullUntil, true, since)
	look(fullUntil-1, false, time.Time{})
	look(fullFrom-1, false, time.Time{})
	if fullFrom >= state.MaxWaiting || fullUntil >= fullFrom {
		t.Errorf("marks %d and %d of %d", fullFrom, fullUntil, state.MaxWaiting)
	}
	if got := w.OwnFull(); len(got) != 0 {
		t.Errorf("the others are told of %v", got)
	}
}

// After each block the node looks at its own shard only, and says at once that it is full: once for
// each shard that it becomes full for, and not while it stays so.
func TestOwnShardFillsUpWithABlock(t *testing.T) {
	t.Parallel()
	w := newWatched(t, time.Second)
	w.pass(1, 3, 6)
	applied := func(filled int) {
		t.Helper()
		w.Applied(w.now, max(w.waiting[1], w.waiting[2]))
		if w.filled != filled {
			t.Errorf("%v wait: told %d times, want %d", w.waiting, w.filled, filled)
		}
	}
	w.waiting[1], w.waiting[2] = fullUntil, fullFrom-1
	applied(0)
	w.want("less than what is full")
	w.waiting[2] = fullFrom
	applied(1)
	first := report.Obstacle{Shard: 0, Since: w.now, Full: true, Awaited: 2}
	w.want("full for shard 2", first)
	applied(1)
	w.waiting[2] = fullFrom - 1
	applied(1)
	w.now = w.now.Add(time.Millisecond)
	w.waiting[1] = fullFrom
	applied(2)
	w.want("full for both", report.Obstacle{Shard: 0, Since: w.now, Full: true, Awaited: 1}, first)
	w.waiting[2] = fullUntil - 1
	applied(2) // that is over, which can wait for the next look
	w.pass(1, 3, 6)
	if got := w.OwnFull(); len(got) != 1 || got[0] != 1 {
		t.Errorf("full for %v", got)
	}
	w.waiting[2] = fullFrom
	w.Look(w.now) // as for a client that asks for the state
	applied(3)
	without := newWatched(t, 0)
	without.waiting[1] = state.MaxWaiting
	without.pass(1)
	without.Applied(without.now, state.MaxWaiting)
	without.want("refuse_after is 0")
}

// Without vouched crossings each member is believed that its shard is full. With them, more than
// half of the members have to say so. What nobody repeats is over.
func TestOtherShardIsFull(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{false, true} {
		w := newWatched(t, 30*time.Second)
		w.d.vouched = vouched
		say := func(member int, awaited ...ledger.ShardID) {
			w.d.HeardFull(peerOf(t, member), awaited, w.now)
		}
		w.pass(1, 3, 6)
		say(3, 0, 2)
		say(6) // a member of another shard
		since := w.now.Add(time.Second)
		w.pass(1, 3, 6)
		want := []report.Obstacle{{Shard: 1, Since: since, Full: true, Awaited: 0},
			{Shard: 1, Since: since, Full: true, Awaited: 2}}
		if vouched {
			w.want("one of three says so")
			say(4, 2)
			since = w.now.Add(time.Second)
			want = []report.Obstacle{{Shard: 1, Since: since, Full: true, Awaited: 2}}
			w.pass(1, 3, 6)
		}
		w.want("shard 1 is full", want...)
		w.pass(2, 3, 6)
		say(3, 2)
		w.pass(3, 3, 6)
		if vouched {
			w.want("the other one does not repeat it")
		} else {
			w.want("it is full for one", want[1])
		}
		say(3)
		say(4)
		w.pass(1, 3, 6)
		w.want("they say that it is over")
		say(3, 2)
		say(4, 2)
		w.pass(1, 3, 6)
		if len(w.List()) != 1 {
			t.Error("it is full again")
		}
		// Who leaves says nothing any more.
		w.d.put(1, membersOf(ptr(changed(1, map[ledger.MemberIndex]int{0: 20, 1: 21, 2: 22}))))
		w.pass(1, 20, 6)
		w.want("the members that said so have left")
		if len(w.d.full) != 1 {
			t.Errorf("%d members are remembered", len(w.d.full))
		}
	}
}

func ptr[Value any](value Value) *Value { return &value }

func TestFullComesBack(t *testing.T) {
	t.Parallel()
	for _, want := range [][]ledger.ShardID{nil, {0}, {0, 2, 999}} {
		got, err := decodeFull(encodeFull(want), 1)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
	}
	many := make([]ledger.ShardID, fullMax+1)
	for i := range many {
		many[i] = ledger.ShardID(i + 2)
	}
	if got, err := decodeFull(encodeFull(many), 1); err != nil || len(got) != fullMax {
		t.Errorf("of %d shards %d came back, %v", len(many), len(got), err)
	}
	whole := encodeFull(many[:2])
	for what, message := range map[string][]byte{
		"nothing": nil, "of a future version": {2}, "half of one": whole[:3],
		"a byte too many": append(bytes.Clone(whole), 0), "itself": encodeFull([]ledger.ShardID{1}),
		"twice":         encodeFull([]ledger.ShardID{3, 3}),
		"unordered":     encodeFull([]ledger.ShardID{3, 2}),
		"no such shard": encodeFull([]ledger.ShardID{ledger.MaxShards}),
		"too many":      append(encodeFull(many), 0, 9, 0, 0),
	} {
		if _, err := decodeFull(message, 1); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzDecodeFull(f *testing.F) {
	f.Add(encodeFull(nil))
	f.Add(encodeFull([]ledger.ShardID{0, 2, 1000}))
	f.Fuzz(func(t *testing.T, data []byte) {
		awaited, err := decodeFull(data, 1)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(encodeFull(awaited), data) {
			t.Fatalf("%v have two encodings", awaited)
		}
	})
}
