package shards

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func someWaiting() report.Waiting {
	return report.Waiting{
		Overdue: 3, Since: time.UnixMilli(1_700_000_000_000),
		Verdicts: []report.Wait{
			{Shard: 0, Count: 7, Overdue: 3, Since: time.UnixMilli(1_700_000_000_000)},
			{Shard: 2, Count: 1, Since: time.UnixMilli(1_700_000_000_009)},
		},
		Streams: []report.Wait{{Shard: 2, Count: 9, Overdue: 8}},
	}
}

func TestWaitingComesBack(t *testing.T) {
	t.Parallel()
	lossy := someWaiting()
	lossy.Streams = append(lossy.Streams, report.Wait{Shard: 5, Count: 3, Lost: 2, LostHeight: 77},
		report.Wait{Shard: 6, Count: 1}, report.Wait{Shard: 7, Count: 1, Lost: 1, LostHeight: 7})
	for _, want := range []report.Waiting{someWaiting(), {}, lossy} {
		whole := encodeWaiting(2, &want)
		if shard, got, err := decodeWaiting(whole); err != nil || shard != 2 ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%+v\ncame back as %+v of shard %d, %v", want, got, shard, err)
		}
		for size := range whole {
			if _, _, err := decodeWaiting(whole[:size]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("the first %d bytes of %d: %v", size, len(whole), err)
			}
		}
		if _, _, err := decodeWaiting(append(whole, 0)); !errors.Is(err, ErrMalformed) {
			t.Error("a byte too many was taken")
		}
	}
	twice := report.Waiting{Verdicts: []report.Wait{{Shard: 4}, {Shard: 4}}}
	if _, _, err := decodeWaiting(encodeWaiting(2, &twice)); !errors.Is(err, ErrMalformed) {
		t.Errorf("the same shard twice: %v", err)
	}
	for what, spoil := range map[string]func(w *report.Waiting, b []byte) []byte{
		"more is lost than waits": func(w *report.Waiting, _ []byte) []byte {
			w.Streams[1].Lost = 4
			return encodeWaiting(2, w)
		},
		"nothing is lost": func(w *report.Waiting, _ []byte) []byte {
			w.Streams[1].Lost, w.Streams[3].Lost = 0, 0
			return append(append([]byte{lossVersion}, encodeWaiting(2, w)[1:]...), 0, 0)
		},
		"a stream twice": func(_ *report.Waiting, b []byte) []byte {
			copy(b[len(b)-lossSize:], b[len(b)-2*lossSize:len(b)-lossSize])
			return b
		},
		"no such stream": func(_ *report.Waiting, b []byte) []byte {
			b[len(b)-lossSize]++
			return b
		},
	} {
		w := lossy
		w.Streams = slices.Clone(w.Streams)
		if _, _, err := decodeWaiting(spoil(&w, encodeWaiting(2, &w))); !errors.Is(err,
			ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	late := encodeWaiting(2, &report.Waiting{})
	late[1+4+8+7] = 0xff // the time of the oldest
	if _, _, err := decodeWaiting(late); !errors.Is(err, ErrMalformed) {
		t.Errorf("a time after the year 9999: %v", err)
	}
}

func FuzzDecodeWaiting(f *testing.F) {
	w := someWaiting()
	f.Add(encodeWaiting(2, &w))
	f.Add(encodeWaiting(0, &report.Waiting{}))
	w.Streams[0].Lost, w.Streams[0].LostHeight = 2, 7
	f.Add(encodeWaiting(2, &w))
	f.Fuzz(func(t *testing.T, data []byte) {
		shard, decoded, err := decodeWaiting(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(encodeWaiting(shard, &decoded), data) {
			t.Fatalf("%+v has two encodings", decoded)
		}
	})
}

// What members of the shard above say is lost is what a shard lacks: as a member says, or with
// vouched crossings as far as more than half of them agree.
func TestLacksOfAShard(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		d := directoryOf(t, vouched, 6) // shard 2 is below shard 1
		say := func(i int, lost uint64, height ledger.Height) {
			d.Heard(peerOf(t, i), Announcement{Shard: 1, Mode: report.ModeOrdering}, time.Now())
			d.HeardWaiting(peerOf(t, i), 1, report.Waiting{Streams: []report.Wait{{Shard: 2,
				Count: 9, Overdue: 9, Lost: lost, LostHeight: height}}}, time.Now())
		}
		say(3, 0, 0)
		say(4, 5, 70)
		say(5, 0, 0)
		want := report.Wait{Shard: 1, Count: 9, Overdue: 9, Lost: 5, LostHeight: 70}
		if vouched {
			if got := d.Lacks(2); got.Lost > 0 {
				t.Errorf("one of three says so: %+v", got)
			}
			say(3, 5, 70)
		}
		if got := d.Lacks(2); got != want || d.States()[2].Waiting.Lacks != want ||
			!d.States()[2].Waiting.Alarm() {
			t.Errorf("vouched %t: %+v, want %+v", vouched, got, want)
		}
		if d.Lacks(0).Lost+d.Lacks(1).Lost > 0 || d.States()[1].Waiting.Lacks.Lost > 0 {
			t.Error("another shard lacks it")
		}
	}
}

// Of a shard counts what the member says that says most is overdue. What a member said long before
// its last announcement does not count any more, and what a silent shard last said does.
func TestWaitingOfOtherShards(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	now := time.Now()
	d.now = func() time.Time { return now }
	announce := func(i int) {
		d.Heard(peerOf(t, i), Announcement{Shard: 1, Mode: report.ModeOrdering}, now)
	}
	say := func(i int, overdue uint64) {
		d.HeardWaiting(peerOf(t, i), 1, report.Waiting{Overdue: overdue, Since: now,
			Verdicts: []report.Wait{{Shard: 2, Count: 9, Overdue: overdue, Since: now}}}, now)
	}
	want := func(what string, overdue uint64) {
		t.Helper()
		waiting := d.States()[1].Waiting
		if waiting.Overdue != overdue || (overdue > 0) != waiting.Alarm() {
			t.Errorf("%s: %+v", what, waiting)
		}
	}
	say(3, 1)
	want("no announcement", 0)
	for i := 3; i < 6; i++ {
		announce(i)
	}
	want("one member", 1)
	say(4, 5)
	say(5, 2)
	say(6, 9) // a member of shard 2
	want("the member that says most", 5)
	now = now.Add(ReportLifetime + time.Second)
	want("a silent shard", 5)
	announce(4)
	want("a member for which nothing waits any more", 2)
	d.HeardWaiting(peerOf(t, 4), 1, report.Waiting{Streams: []report.Wait{{Shard: 2, Count: 8,
		Overdue: 7}}}, now)
	if waiting := d.States()[1].Waiting; !waiting.Alarm() || len(waiting.Streams) != 1 {
		t.Errorf("entries of a stream: %+v", waiting)
	}
	d.Learn(1, changed(1, map[ledger.MemberIndex]int{0: 3, 3: 20, 4: 21}))
	now = now.Add(time.Second)
	announce(3)
	want("its members were replaced", 0)
}

// A node hears from another shard that entries wait there, and that they do not any more. Only a
// member of the shard is believed.
func TestShardsSayWhatWaits(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	var waits atomic.Bool
	waits.Store(true)
	directories, announcers := map[int]*Directory{}, map[int]*Announcer{}
	for _, i := range []int{0, 3} {
		d := directory(t, i)
		host, c := controlOf(t, network, peerOf(t, i))
		announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: c, Logger: quiet,
			Every: 20 * time.Millisecond, Gap: time.Millisecond,
			Own: func() Announcement {
				return Announcement{Shard: d.Own(), Mode: report.ModeOrdering}
			},
			Waiting: func() report.Waiting {
				if d.Own() == 1 && waits.Load() {
					return someWaiting()
				}
				return report.Waiting{}
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(announcer.Close)
		host.Watch(announcer.Event)
		directories[i], announcers[i] = d, announcer
	}
	eventually(t, "entries of shard 1 wait", func() bool {
		return reflect.DeepEqual(directories[0].States()[1].Waiting, someWaiting())
	})
	waits.Store(false)
	eventually(t, "no entry of shard 1 waits", func() bool {
		waiting := directories[0].States()[1].Waiting
		return waiting.None() && !waiting.Alarm()
	})
	w := someWaiting()
	for from, payload := range map[rdmanet.PeerID][]byte{
		"stranger": encodeWaiting(1, &w), peerOf(t, 6): encodeWaiting(1, &w),
		peerOf(t, 1): encodeWaiting(0, &w), peerOf(t, 4): {waitingVersion},
	} {
		announcers[0].receiveWaiting(rdmanet.Peer{ID: from}, payload)
	}
	for _, state := range directories[0].States() {
		if !state.Waiting.None() {
			t.Errorf("shard %d: %+v", state.Shard, state.Waiting)
		}
	}
	announcers[0].Close()
	announcers[0].receiveWaiting(rdmanet.Peer{ID: peerOf(t, 4)}, encodeWaiting(1, &w))
	if _, said := directories[0].waiting[peerOf(t, 4)]; said {
		t.Error("a closed announcer took a message")
	}
	if err := announcers[3].config.Control.Register(wire.KindWaiting, nil); err == nil {
		t.Error("the kind of the message has no handler")
	}
}

// With vouched crossings a minority of a shard's members raises no alarm and silences none.
func TestAlarmsThatAMinorityForges(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	d.vouched = true
	now := time.UnixMilli(1_700_000_000_000)
	d.now = func() time.Time { return now }
	say := func(i int, carried, overdue uint64, since time.Time) {
		height := ledger.Height(carried)
		d.Heard(peerOf(t, i), Announcement{Shard: 1, Mode: report.ModeOrdering,
			Heights: report.Heights{Ordered: height}, Carried: carried}, now)
		d.HeardWaiting(peerOf(t, i), 1, report.Waiting{Overdue: overdue, Since: since,
			Verdicts: []report.Wait{{Shard: 2, Count: overdue, Overdue: overdue, Since: since}},
			Streams:  []report.Wait{{Shard: 0, Count: overdue, Overdue: overdue, Since: since}},
		}, now)
	}
	want := func(what string, carried, overdue uint64, since time.Time) {
		t.Helper()
		state := d.States()[1]
		if w := state.Waiting; state.Carried != carried || w.Overdue != overdue ||
			w.Alarm() != (overdue > 0) || !w.Since.Equal(since) {
			t.Errorf("%s: %d carried, %+v", what, state.Carried, w)
		} else if overdue > 0 && (len(w.Verdicts) != 1 || len(w.Streams) != 1 ||
			w.Verdicts[0] != (report.Wait{Shard: 2, Count: overdue, Overdue: overdue,
				Since: since})) {
			t.Errorf("%s: %+v", what, w)
		}
	}
	old, older := now.Add(-time.Minute), now.Add(-time.Hour)
	for _, i := range []int{3, 4} {
		d.Heard(peerOf(t, i), Announcement{Shard: 1, Mode: report.ModeOrdering, Carried: 5}, now)
	}
	say(5, 1<<60, 1<<40, older)
	want("one of three says that entries wait", 5, 0, time.Time{})
	say(3, 6, 7, old)
	want("two of three", 6, 7, old)
	say(4, 7, 8, old)
	want("three of three", 7, 8, old)
	say(5, 0, 0, time.Time{})
	want("one of three says that none wait", 6, 7, old)
}

// What a member says of shards that are not in the tree does not count, nor that more is overdue
// than waits.
func TestImpossibleAlarms(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	now := time.Now()
	d.Heard(peerOf(t, 3), Announcement{Shard: 1, Mode: report.ModeOrdering}, now)
	d.HeardWaiting(peerOf(t, 3), 1, report.Waiting{Overdue: math.MaxUint64,
		Verdicts: []report.Wait{{Shard: 1, Count: 9, Overdue: 9},
			{Shard: 2, Count: 3, Overdue: math.MaxUint64}, {Shard: 3, Count: 4, Overdue: 4}},
		Streams: []report.Wait{{Shard: math.MaxUint32, Count: 5, Overdue: 5}}}, now)
	want := report.Waiting{Overdue: 3, Verdicts: []report.Wait{{Shard: 2, Count: 3, Overdue: 3}}}
	if w := d.States()[1].Waiting; w.Overdue != 3 || len(w.Streams) != 0 ||
		!slices.Equal(w.Verdicts, want.Verdicts) {
		t.Errorf("%+v, want %+v", w, want)
	}
	many := report.Waiting{Verdicts: []report.Wait{{Shard: 0, Count: waitMax + 1}}}
	if _, _, err := decodeWaiting(encodeWaiting(1, &many)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d entries that wait: %v", many.Verdicts[0].Count, err)
	}
}
