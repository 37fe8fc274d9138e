package shards

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for an expected event.
const patience = time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// controlOf starts a member's host, which is closed at the test's end, with its control lane.
func controlOf(t testing.TB, network *memory.Network, peer rdmanet.PeerID) (*memory.Host,
	*wire.Datagrams) {
	t.Helper()
	return controlWith(t, network, peer, quiet)
}

// controlWith is controlOf with a log of the lane.
func controlWith(t testing.TB, network *memory.Network, peer rdmanet.PeerID,
	logger *slog.Logger) (*memory.Host, *wire.Datagrams) {
	t.Helper()
	host, err := network.Host(peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Do not wait for frames in the windows of dead peers.
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_ = host.Close(ctx)
	})
	c, err := wire.NewDatagrams(host, logger)
	if err != nil {
		t.Fatal(err)
	}
	return host, c
}

var quiet = slog.New(slog.DiscardHandler)

func TestShardsHearOfEachOther(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	join := changed(1, map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5, 3: 20})
	var joined, full atomic.Bool
	directories, announcers := map[int]*Directory{}, map[int]*Announcer{}
	for _, i := range []int{0, 1, 3, 6} {
		d := directory(t, i)
		host, c := controlOf(t, network, peerOf(t, i))
		announcer, err := NewAnnouncer(AnnouncerConfig{
			Directory: d, Control: c, Logger: quiet, Every: 20 * time.Millisecond,
			Gap: time.Millisecond,
			Own: func() Announcement {
				a := Announcement{Shard: d.Own(), Mode: report.ModeOrdering,
					Heights: report.Heights{Ordered: ledger.Height(i)}}
				if i == 3 && joined.Load() {
					a.Membership = &join
				}
				return a
			},
			Full: func() []ledger.ShardID {
				if i == 3 && full.Load() {
					return []ledger.ShardID{0, 2}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(announcer.Close)
		host.Watch(announcer.Event)
		directories[i], announcers[i] = d, announcer
	}
	eventually(t, "both other shards order", func() bool {
		s := directories[0].States()
		return s[1].Mode == report.ShardOrdering && s[2].Mode == report.ShardOrdering &&
			s[1].Height == 3 && s[2].Members[0].Mode == report.ModeOrdering
	})
	if directories[0].Candidates(1)[0] != peerOf(t, 3) {
		t.Error("the one that orders is not asked first")
	}
	if s := directories[0].States()[0]; s.Mode != report.ShardSilent {
		t.Error("a member of the own shard was heard here")
	}
	full.Store(true)
	for _, i := range []int{0, 6} {
		eventually(t, "shard 1 is full", func() bool {
			return slices.Equal(directories[i].fullFor(1), []ledger.ShardID{0, 2})
		})
	}
	full.Store(false)
	eventually(t, "it is not full any more, as it says itself", func() bool {
		directories[0].mu.RLock()
		defer directories[0].mu.RUnlock()
		said, known := directories[0].full[peerOf(t, 3)]
		return known && len(said.awaited) == 0
	})
	change := directories[6].Changed()
	joined.Store(true)
	announcers[3].Soon()
	select {
	case <-change:
	case <-time.After(patience):
		t.Fatal("the change of another shard's members never came")
	}
	if shard, member, known := directories[6].Find(peerOf(t, 20)); !known || shard != 1 ||
		member.Index != 3 {
		t.Errorf("who joined is %+v of %d", member, shard)
	}
	network.Kill(peerOf(t, 3))
	eventually(t, "who is gone is asked last", func() bool {
		return directories[0].Candidates(1)[0] != peerOf(t, 3)
	})
}

// A shard that becomes full says so at once, whatever the gap between announcements. The members of
// another shard look at it at once, and only when it changes what they believe.
func TestShardSaysAtOnceThatItIsFull(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	var full atomic.Bool
	directories, announcers := map[int]*Directory{}, map[int]*Announcer{}
	var looks [7]atomic.Int32
	controls := map[int]*wire.Datagrams{}
	members := []int{0, 6, 3, 4}
	for _, i := range members {
		_, controls[i] = controlOf(t, network, peerOf(t, i))
	}
	// Shards 0 and 2 listen before shard 1 makes its first announcement: the next is in an hour.
	for _, i := range members {
		d := directory(t, i)
		d.vouched = i == 6 // and needs two members of shard 1 to say so
		announcer, err := NewAnnouncer(AnnouncerConfig{
			Directory: d, Control: controls[i], Logger: quiet, Every: time.Hour, Gap: time.Hour,
			Own: func() Announcement {
				return Announcement{Shard: d.Own(), Mode: report.ModeOrdering}
			},
			Full: func() []ledger.ShardID {
				if d.Own() == 1 && full.Load() {
					return []ledger.ShardID{0, 2}
				}
				return nil
			},
			FullChanged: func() {
				if len(d.fullFor(1)) == 2 {
					looks[i].Add(1)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(announcer.Close)
		directories[i], announcers[i] = d, announcer
	}
	eventually(t, "the first announcement was made", func() bool {
		return directories[0].States()[1].Mode == report.ShardOrdering &&
			directories[6].States()[1].Mode == report.ShardOrdering
	})
	full.Store(true)
	announcers[3].Filled()
	eventually(t, "shard 0 looks", func() bool { return looks[0].Load() == 1 })
	said := func(i, by int) bool {
		directories[i].mu.RLock()
		defer directories[i].mu.RUnlock()
		return len(directories[i].full[peerOf(t, by)].awaited) == 2
	}
	eventually(t, "shard 2 hears it, too", func() bool { return said(6, 3) })
	announcers[4].Filled()
	eventually(t, "shard 2 looks", func() bool { return looks[6].Load() == 1 })
	eventually(t, "shard 0 hears it again", func() bool { return said(0, 4) })
	if got := looks[0].Load(); got != 1 {
		t.Errorf("shard 0 looked %d times at one change", got)
	}
}

// A member announces itself while another one starts, which has no ear for it yet. It announces
// itself again when it first hears that one, and does not wait for the next interval.
func TestAnnouncementThatCameTooEarly(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	begin := func(d *Directory, c *wire.Datagrams) {
		announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: c, Logger: quiet,
			Every: time.Hour, Gap: time.Millisecond, Own: func() Announcement {
				return Announcement{Shard: d.Own(), Mode: report.ModeOrdering}
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(announcer.Close)
	}
	dropped := make(firstRecord, 1)
	_, lateControl := controlWith(t, network, peerOf(t, 0), slog.New(dropped))
	_, earlyControl := controlOf(t, network, peerOf(t, 3))
	begin(directory(t, 3), earlyControl) // its link was there before, so no event follows
	select {
	case <-dropped:
	case <-time.After(patience):
		t.Fatal("nothing came too early")
	}
	late := directory(t, 0)
	begin(late, lateControl)
	eventually(t, "the early one announces itself again", func() bool {
		return late.States()[1].Mode == report.ShardOrdering
	})
}

// firstRecord is a log that tells when it has lines.
type firstRecord chan struct{}

func (firstRecord) Enabled(context.Context, slog.Level) bool { return true }

func (r firstRecord) Handle(context.Context, slog.Record) error {
	wake(r)
	return nil
}

func (r firstRecord) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r firstRecord) WithGroup(string) slog.Handler { return r }

// What is not new is repeated seldom, but often enough to stay current. What is new, and what a
// member that connects has not heard, is announced at once.
func TestAnnouncementsThatAreNotNewAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		var height atomic.Uint64
		begin := func(i int) (*Directory, *memory.Host, *Announcer) {
			d := directory(t, i)
			host, err := network.Host(peerOf(t, i))
			if err != nil {
				t.Fatal(err)
			}
			control, err := wire.NewDatagrams(host, quiet)
			if err != nil {
				t.Fatal(err)
			}
			announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: control,
				Logger: quiet, Own: func() Announcement {
					return Announcement{Shard: d.Own(), Mode: report.ModeOrdering,
						Heights: report.Heights{Ordered: ledger.Height(height.Load())}}
				}})
			if err != nil {
				t.Fatal(err)
			}
			host.Watch(announcer.Event)
			return d, host, announcer
		}
		end := func(i int, host *memory.Host, announcer *Announcer) {
			announcer.Close()
			network.Kill(peerOf(t, i))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = host.Close(ctx)
		}
		d, host, listener := begin(0)
		defer end(0, host, listener)
		_, from, announcer := begin(3)
		defer end(3, from, announcer)
		heard := func() heard {
			d.mu.RLock()
			defer d.mu.RUnlock()
			return d.heard[peerOf(t, 3)]
		}
		time.Sleep(10 * time.Second)
		announcements, last := 0, heard().at
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if at := heard().at; !at.Equal(last) {
				announcements, last = announcements+1, at
			}
			if !heard().lately(time.Now().Add(ReportLifetime / 2)) {
				t.Fatal("one lost announcement would be missed")
			}
		}
		if announcements < 29 || announcements > 31 {
			t.Errorf("%d announcements in a minute without news", announcements)
		}
		for at := heard().at; heard().at.Equal(at); time.Sleep(time.Millisecond) {
		}
		time.Sleep(AnnounceEveryDefault / 2) // no repeat is due soon
		height.Store(7)
		announcer.Soon()
		time.Sleep(2 * AnnounceGapDefault)
		if heard().announcement.Heights.Ordered != 7 {
			t.Error("what is new was not announced at once")
		}
		// The next repeat comes more than a second later. But a link may have lost what was sent.
		before := heard().at
		announcer.Event(rdmanet.PeerEvent{Kind: rdmanet.PeerRestarted,
			Peer: rdmanet.Peer{ID: peerOf(t, 0)}})
		time.Sleep(2 * AnnounceGapDefault)
		if heard().at.Equal(before) {
			t.Error("a member that connected has heard nothing")
		}
	})
}

// A member that changes all the time what its shard is full for makes this node look no more than
// once in a gap.
func TestLooksAtFullShardsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		d := directory(t, 0)
		host, err := network.Host(peerOf(t, 0))
		if err != nil {
			t.Fatal(err)
		}
		control, err := wire.NewDatagrams(host, quiet)
		if err != nil {
			t.Fatal(err)
		}
		var looks atomic.Int32
		announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: control,
			Logger:      quiet,
			Own:         func() Announcement { return Announcement{Mode: report.ModeOrdering} },
			FullChanged: func() { looks.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			announcer.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = host.Close(ctx)
		}()
		from := rdmanet.Peer{ID: peerOf(t, 3)}
		time.Sleep(time.Second)
		announcer.receiveFull(from, encodeFull([]ledger.ShardID{0}))
		synctest.Wait()
		if got := looks.Load(); got != 1 {
			t.Errorf("%d looks at the first change", got)
		}
		for i := range 1000 {
			announcer.receiveFull(from, encodeFull([]ledger.ShardID{0, 2}[:i%2+1]))
			time.Sleep(time.Millisecond)
		}
		if got, most := looks.Load(), int32(time.Second/AnnounceGapDefault)+2; got > most ||
			got < most-4 {
			t.Errorf("%d looks in a second, at most %d wanted", got, most)
		}
	})
}

// Announcements of an unknown peer, of a member for another shard, and malformed ones change
// nothing.
func TestWhoMayAnnounce(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	d := directory(t, 0)
	_, c := controlOf(t, network, peerOf(t, 0))
	announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: c, Logger: quiet,
		Own: func() Announcement {
			return Announcement{Mode: report.ModeOrdering}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer announcer.Close()
	other := changed(5, map[ledger.MemberIndex]int{9: 30})
	lie := Announcement{Shard: 2, Mode: report.ModeOrdering, Membership: &other}
	truth := Announcement{Shard: 1, Mode: report.ModeOrdering}
	announcer.receive(rdmanet.Peer{ID: "stranger"}, lie.Encode())
	announcer.receive(rdmanet.Peer{ID: peerOf(t, 3)}, lie.Encode())
	announcer.receive(rdmanet.Peer{ID: peerOf(t, 3)}, []byte{1, 2})
	announcer.receive(rdmanet.Peer{ID: peerOf(t, 1)},
		(&Announcement{Shard: 0, Mode: report.ModeOrdering}).Encode())
	if len(d.heard) != 0 {
		t.Errorf("heard: %+v", d.heard)
	}
	if _, members := d.Members(2); len(members) != 3 {
		t.Error("a membership was taken from who is not in it")
	}
	announcer.receive(rdmanet.Peer{ID: peerOf(t, 3)}, truth.Encode())
	if len(d.heard) != 1 {
		t.Error("a member was not heard")
	}
	announcer.Close()
	announcer.receive(rdmanet.Peer{ID: peerOf(t, 4)}, truth.Encode())
	if len(d.heard) != 1 {
		t.Error("heard after Close")
	}
}

// A member that was away, or has just joined, learns the members of other shards from its fellows,
// even if none of the members that it knows is left.
func TestFellowsRelayWhoTheOthersAre(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	replaced := changed(6, map[ledger.MemberIndex]int{3: 20, 4: 21})
	directories := map[int]*Directory{}
	begin := func(i int) *Announcer {
		d := directory(t, i)
		host, c := controlOf(t, network, peerOf(t, i))
		// Every is so long that only events cause announcements.
		announcer, err := NewAnnouncer(AnnouncerConfig{Directory: d, Control: c, Logger: quiet,
			Every: patience, Gap: time.Millisecond, Own: func() Announcement {
				return Announcement{Mode: report.ModeOrdering}
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(announcer.Close)
		host.Watch(announcer.Event)
		directories[i] = d
		return announcer
	}
	first := begin(0)
	if !directories[0].Learn(1, replaced) {
		t.Fatal("a change was not learnt")
	}
	first.Soon() // it may have made its first announcement already
	begin(1)
	eventually(t, "who starts hears who is there", func() bool {
		number, members := directories[1].Members(1)
		return number == 6 && len(members) == 2 && members[1].Peer == peerOf(t, 21)
	})
	if changes := directories[1].Changes(); len(changes) != 1 || changes[0].Shard != 1 ||
		changes[0].Membership.Members[0].Name != ledgertest.Member(20).Name {
		t.Errorf("it would tell others of %+v", changes)
	}
	if states := directories[1].States(); states[1].Mode != report.ShardSilent {
		t.Error("what a fellow says of others counts as their word")
	}
}
