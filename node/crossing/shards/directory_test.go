package shards

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// peerOf returns the peer of a test's member.
func peerOf(t testing.TB, i int) rdmanet.PeerID {
	t.Helper()
	peer, err := p2p.PeerID(ledgertest.Member(i).Key)
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

// directory returns the directory of a member in a book of three shards with three members each, 0
// above 1 above 2.
func directory(t testing.TB, self int) *Directory {
	t.Helper()
	genesis, err := ledgertest.ShardedGenesis(3, 0, 0, 1).ForShard(ledger.ShardID(self / 3))
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDirectory(genesis)
	if err != nil {
		t.Fatal(err)
	}
	d.SetSelf(peerOf(t, self))
	return d
}

// changed returns the membership of a shard of the test's book after changes.
func changed(number uint64, indexes map[ledger.MemberIndex]int) ledger.Membership {
	m := ledger.Membership{Number: number}
	for index := range ledger.MemberIndex(16) {
		if i, present := indexes[index]; present {
			m.Members = append(m.Members, ledger.GroupMember{Index: index,
				Member: ledgertest.Member(i)})
		}
	}
	return m
}

func TestDirectoryBeginsWithTheGenesis(t *testing.T) {
	t.Parallel()
	d := directory(t, 4)
	if d.Own() != 1 || d.Self() != peerOf(t, 4) || d.Tree().Shards() != 3 {
		t.Fatalf("own %d, self %s, %d shards", d.Own(), d.Self(), d.Tree().Shards())
	}
	for i := range 9 {
		shard, member, known := d.Find(peerOf(t, i))
		want := ledgertest.Member(i)
		if !known || int(shard) != i/3 || int(member.Index) != i%3 || member.Name != want.Name ||
			member.Address != want.Address {
			t.Errorf("member %d is %+v of shard %d", i, member, shard)
		}
		if _, list := d.Members(shard); len(list) != 3 || list[i%3] != member {
			t.Errorf("the members of shard %d are %+v", shard, list)
		}
	}
	if _, _, known := d.Find("stranger"); known {
		t.Error("a stranger is known")
	}
	if _, list := d.Members(3); list != nil || d.Candidates(3) != nil {
		t.Error("a shard that does not exist has members")
	}
	if _, err := NewDirectory(ledgertest.OperatedGenesis(3)); !errors.Is(err, ErrOneShard) {
		t.Errorf("a book of one shard: %v", err)
	}
}

func TestDirectoryFollowsChanges(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	before := d.Changed()
	joined := changed(1, map[ledger.MemberIndex]int{0: 3, 1: 4, 2: 5, 3: 20})
	if !d.Learn(1, joined) {
		t.Fatal("a later membership was not taken")
	}
	select {
	case <-before:
	default:
		t.Fatal("nobody was told")
	}
	before = d.Changed()
	refused := map[string]bool{
		"the same again":            d.Learn(1, joined),
		"an earlier one":            d.Learn(1, changed(0, map[ledger.MemberIndex]int{0: 3})),
		"the own shard":             d.Learn(0, changed(7, map[ledger.MemberIndex]int{0: 0})),
		"a shard that is not there": d.Learn(3, changed(7, map[ledger.MemberIndex]int{0: 30})),
		"a member of another shard": d.Learn(1, changed(7, map[ledger.MemberIndex]int{0: 6})),
		"nobody":                    d.Learn(1, ledger.Membership{Number: 7}),
	}
	for what, taken := range refused {
		if taken {
			t.Errorf("taken: %s", what)
		}
	}
	d.SetOwn(changed(0, map[ledger.MemberIndex]int{0: 0, 1: 1, 2: 2}))
	select {
	case <-before:
		t.Error("a change was told where there was none")
	default:
	}
	if shard, member, known := d.Find(peerOf(t, 20)); !known || shard != 1 || member.Index != 3 {
		t.Errorf("who joined is %+v of %d", member, shard)
	}
	d.Heard(peerOf(t, 4), Announcement{Shard: 1}, time.Now())
	if !d.Learn(1, changed(2, map[ledger.MemberIndex]int{0: 3, 2: 5, 3: 20})) {
		t.Fatal("a leave was not taken")
	}
	if _, _, known := d.Find(peerOf(t, 4)); known {
		t.Error("who left is known still")
	}
	if len(d.heard) != 0 {
		t.Error("what a member said that left is kept")
	}
	d.SetOwn(changed(1, map[ledger.MemberIndex]int{0: 0, 2: 2}))
	if number, list := d.Members(0); number != 1 || len(list) != 2 {
		t.Errorf("own shard: %d %+v", number, list)
	}
}

func TestCandidatesAreInOrderOfUse(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	now := time.Now()
	d.now = func() time.Time { return now }
	// 3 orders but was lost, 4 follows, 5 orders and is heard last.
	d.Heard(peerOf(t, 3), Announcement{Shard: 1, Mode: report.ModeOrdering}, now)
	d.Lost(peerOf(t, 3))
	d.Heard(peerOf(t, 4), Announcement{Shard: 1, Mode: report.ModeFollowing}, now)
	d.Heard(peerOf(t, 5), Announcement{Shard: 1, Mode: report.ModeOrdering}, now)
	// This member reports a shard that is not its own.
	d.Heard(peerOf(t, 6), Announcement{Shard: 1, Mode: report.ModeOrdering}, now)
	want := []rdmanet.PeerID{peerOf(t, 5), peerOf(t, 4), peerOf(t, 3)}
	if got := d.Candidates(1); !slices.Equal(got, want) {
		t.Errorf("candidates %v, want %v", got, want)
	}
	if len(d.heard) != 3 {
		t.Errorf("%d were heard", len(d.heard))
	}
	now = now.Add(ReportLifetime + 1)
	d.Heard(peerOf(t, 3), Announcement{Shard: 1, Mode: report.ModeHalted}, now)
	if got := d.Candidates(1); got[0] != peerOf(t, 3) {
		t.Errorf("who is heard again comes first, not %v", got)
	}
	if got := d.Candidates(0); len(got) != 2 || slices.Contains(got, peerOf(t, 0)) {
		t.Errorf("the own shard's candidates: %v", got)
	}
	first := map[rdmanet.PeerID]bool{}
	for self := range 3 {
		first[directory(t, self).Candidates(2)[0]] = true
	}
	if len(first) != 3 {
		t.Errorf("three members ask %d first", len(first))
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	now := time.Now()
	d.now = func() time.Time { return now }
	d.Heard(peerOf(t, 3), Announcement{Shard: 1, Mode: report.ModeHalted,
		Heights: report.Heights{Ordered: 9, Stored: 9, Durable: 8}, Pending: 3}, now)
	d.Heard(peerOf(t, 4), Announcement{Shard: 1, Mode: report.ModeFollowing,
		Heights: report.Heights{Ordered: 12, Stored: 4, Durable: 7}, Pending: 2,
		APIAddress: "http://x"}, now)
	d.Heard(peerOf(t, 6), Announcement{Shard: 2, Mode: report.ModeOrdering, Carried: 5}, now)
	states := d.States()
	if len(states) != 3 || !states[0].Members[0].Self || states[0].Mode != report.ShardSilent ||
		states[1].Mode != report.ShardHalted || states[2].Mode != report.ShardOrdering {
		t.Fatalf("states: %+v", states)
	}
	if s := states[1]; s.Height != 12 || s.Durable != 8 || s.Pending != 2 ||
		s.Members[1].APIAddress != "http://x" || s.Members[1].Mode != report.ModeFollowing ||
		s.Members[2].Mode != 0 {
		t.Errorf("shard 1: %+v", s)
	}
	now = now.Add(ReportLifetime + 1)
	if s := d.States()[2]; s.Mode != report.ShardSilent || s.Members[0].Mode != 0 ||
		s.Carried != 5 || s.LastHeard.IsZero() {
		t.Errorf("a shard that went silent: %+v", s)
	}
}

// With vouched crossings another shard is as high as more than half of its members say.
func TestHeightsThatAMinorityClaims(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	d.vouched = true
	now := time.Now()
	d.now = func() time.Time { return now }
	for _, each := range []struct {
		member int
		height ledger.Height
		want   ledger.Height
	}{{3, 9, 9}, {4, math.MaxUint64, 9}, {5, 12, 12}, {3, 0, 12}, {3, 11, 12}, {5, 10, 11}} {
		d.Heard(peerOf(t, each.member), Announcement{Shard: 1, Mode: report.ModeOrdering,
			Heights: report.Heights{Ordered: each.height, Durable: each.height}}, now)
		if s := d.States()[1]; s.Height != each.want || s.Durable != each.want {
			t.Errorf("after %+v: %d and %d", each, s.Height, s.Durable)
		}
	}
}
