package shards

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// addedBelow are shards of three members each that are added below these parents. The members of
// the first one are 30, 31 and 32 of the test, those of the second one 33, 34 and 35.
func addedBelow(parents ...ledger.ShardID) (added []ledger.AddedShard) {
	for i, parent := range parents {
		shard := ledger.AddedShard{Parent: parent, Directory: ledger.Hash{1, byte(i)}}
		for m := range 3 {
			shard.Members = append(shard.Members, ledgertest.Member(30+3*i+m))
		}
		added = append(added, shard)
	}
	return added
}

func grow(t testing.TB, d *Directory, added []ledger.AddedShard) {
	t.Helper()
	if err := d.Grow(added); err != nil {
		t.Fatal(err)
	}
}

// The directory has an added shard as if the book had begun with it: its members, its genesis, and
// its trail from that on.
func TestDirectoryGrows(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	learn(t, d, 1, newHistory(t, 1).join(20).trail)
	first, now := peerOf(t, 30), time.Now()
	d.Heard(first, Announcement{Shard: 3, Mode: report.ModeOrdering}, now)
	if _, _, known := d.Find(first); known || d.orders(1) {
		t.Error("a member of a shard that is not there yet is known")
	}
	added := addedBelow(1, 3)
	of, err := vouchedGenesis(t, 0).GrownTo(added, 3)
	if err != nil {
		t.Fatal(err)
	}
	h := historyFrom(t, of, 30).join(21)
	if learned, err := d.LearnTrail(3, h.trail); learned || err != nil {
		t.Errorf("the trail of a shard that is not there yet: %v, %v", learned, err)
	}
	before := d.Changed()
	grow(t, d, added[:1])
	select {
	case <-before:
	default:
		t.Error("nobody was told")
	}
	before = d.Changed()
	grow(t, d, added[:1])
	grow(t, d, nil)
	select {
	case <-before:
		t.Error("growing to what is there is told")
	default:
	}
	if parent, _ := d.Tree().Parent(3); d.Tree().Shards() != 4 || parent != 1 {
		t.Errorf("%d shards, the new one below %d", d.Tree().Shards(), parent)
	}
	shard, member, known := d.Find(first)
	if !known || shard != 3 || member.Index != 0 ||
		member.Address != ledgertest.Member(30).Address {
		t.Errorf("member %+v of shard %d", member, shard)
	}
	if known, err := d.GenesisOf(3); err != nil || known.Hash() != of.Hash() {
		t.Errorf("the genesis of the new shard: %+v, %v", known, err)
	}
	d.Heard(first, Announcement{Shard: 3, Mode: report.ModeOrdering}, now)
	if states := d.States(); len(states) != 4 || states[3].Mode != report.ShardOrdering ||
		!d.orders(3) {
		t.Errorf("states %+v", states)
	}
	learn(t, d, 3, h.trail)
	grow(t, d, added)
	if d.Epoch(1) != 1 || d.Epoch(3) != 1 || d.Tree().Shards() != 5 ||
		!slices.Contains(d.Candidates(4), peerOf(t, 33)) {
		t.Errorf("epochs %d and %d of %d shards", d.Epoch(1), d.Epoch(3), d.Tree().Shards())
	}
	if _, err := d.GenesisOf(5); err == nil {
		t.Error("a shard that does not exist has a genesis")
	}
}

// A node of an added shard knows all shards up to its own from its genesis, and later ones as all
// do.
func TestDirectoryOfAnAddedShard(t *testing.T) {
	t.Parallel()
	added := addedBelow(1, 0)
	of, err := vouchedGenesis(t, 0).GrownTo(added, 3)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDirectory(of)
	if err != nil {
		t.Fatal(err)
	}
	d.SetSelf(peerOf(t, 30))
	if shard, _, known := d.Find(d.Self()); !known || shard != 3 || d.Own() != 3 ||
		d.Tree().Shards() != 4 {
		t.Errorf("this node is of shard %d, of %d", shard, d.Tree().Shards())
	}
	learn(t, d, 1, newHistory(t, 1).join(20).trail)
	grow(t, d, added)
	for shard := range ledger.ShardID(5) {
		known, err := d.GenesisOf(shard)
		if want, _ := of.GrownTo(added, shard); err != nil || known.Hash() != want.Hash() {
			t.Errorf("the genesis of shard %d: %v", shard, err)
		}
	}
	if _, list := d.Members(4); len(list) != 3 {
		t.Errorf("members %+v", list)
	}
}

// A directory grows while all parts of a node read it.
func TestDirectoryGrowsWhileItIsRead(t *testing.T) {
	t.Parallel()
	d := vouchedDirectory(t, 0)
	o, err := NewObstacles(ObstaclesConfig{Directory: d, RefuseAfter: time.Second, Logger: quiet,
		Waiting: func(ledger.ShardID) int { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	added := addedBelow(make([]ledger.ShardID, 20)...)
	h := newHistory(t, 1).join(99)
	done := make(chan struct{})
	var reading sync.WaitGroup
	for _, read := range []func(){
		func() {
			for shard := range ledger.ShardID(d.Tree().Shards()) {
				d.Members(shard)
				d.Candidates(shard)
				d.Trail(shard)
				d.fullFor(shard)
				d.orders(shard)
				if _, err := d.GenesisOf(shard); err != nil {
					t.Error(err)
				}
			}
		},
		func() {
			count := d.Tree().Shards()
			if states := d.States(); len(states) < count {
				t.Errorf("%d states of %d shards", len(states), count)
			}
			d.peers(false)
		},
		func() { o.Look(time.Now()) },
		func() {
			if _, err := d.LearnTrail(1, h.trail); err != nil {
				t.Error(err)
			}
		},
	} {
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					read()
				}
			}
		})
	}
	for i := range added {
		grow(t, d, added[:i+1])
	}
	close(done)
	reading.Wait()
}

// A node that knows of an added shard and one that does not yet give each other all trails that
// both know.
func TestTrailsBetweenNodesThatHaveGrownAndNot(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	h := newHistory(t, 1).join(20)
	grown := trailNodeOf(t, network, 0, 10*time.Millisecond, nil)
	grow(t, grown.directory, addedBelow(1))
	small := trailNodeOf(t, network, 7, 10*time.Millisecond, nil)
	learn(t, small.directory, 1, h.trail)
	grown.knows(t, 1, 1)
	h.leave(0)
	learn(t, grown.directory, 1, h.trail)
	small.knows(t, 1, 2)
}

// A member that joined an added shard introduces itself to a node that knows the shard, and not to
// one that does not yet.
func TestIntroductionOfAnAddedShard(t *testing.T) {
	t.Parallel()
	added := addedBelow(1)
	of, err := vouchedGenesis(t, 0).GrownTo(added, 3)
	if err != nil {
		t.Fatal(err)
	}
	h := historyFrom(t, of, 30).join(21)
	d := vouchedDirectory(t, 0)
	message := encodeIntroduction(of.Hash(), 3, 0, h.trail)
	if _, err := decodeIntroduction(message, d); !errors.Is(err, ErrMalformed) {
		t.Errorf("a shard that is not there yet: %v", err)
	}
	grow(t, d, added)
	said, err := decodeIntroduction(message, d)
	if err != nil {
		t.Fatal(err)
	}
	learned, _, err := d.LearnIntroduction(said.shard, said.from, said.further)
	if _, _, known := d.Find(peerOf(t, 21)); !learned || err != nil || !known {
		t.Errorf("the introduction: %v, %v", learned, err)
	}
}

// An added shard is down if its nodes do not start in time, and not before.
func TestAddedShardIsDown(t *testing.T) {
	t.Parallel()
	w := newWatched(t, 30*time.Second)
	w.pass(20, 3, 6)
	grow(t, w.d, addedBelow(0))
	w.pass(1, 3, 6)
	added := w.now
	w.pass(29, 3, 6)
	w.want("its nodes start")
	w.pass(2, 3, 6)
	w.want("its nodes did not start", report.Obstacle{Shard: 3, Since: added})
	w.pass(10, 3, 6, 30)
	w.want("its nodes order")
}

// A shard may be full for a shard that this node does not know yet.
func TestFullForAShardThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	d := directory(t, 0)
	awaited, err := decodeFull(encodeFull([]ledger.ShardID{2, 3}), 1)
	if err != nil {
		t.Fatal(err)
	}
	d.HeardFull(peerOf(t, 3), awaited, time.Now())
	if got := d.fullFor(1); !slices.Equal(got, []ledger.ShardID{2}) {
		t.Errorf("full for %v", got)
	}
	grow(t, d, addedBelow(0))
	if got := d.fullFor(1); !slices.Equal(got, []ledger.ShardID{2, 3}) {
		t.Errorf("full for %v", got)
	}
	if got := d.fullFor(3); got != nil {
		t.Errorf("the new shard is full for %v", got)
	}
}

// What members of an added shard say counts once this node knows the shard. Before, it is as lost
// as any lost message: the node asks again.
func TestVerdictsOfAnAddedShard(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{Vouched: true})
	d := s.verdicts.config.Directory
	id := ledger.Hash{7}
	s.chain.mu.Lock()
	s.chain.standing[id] = verdicts.Awaited
	s.chain.mu.Unlock()
	say := func(member int) {
		s.verdicts.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, member)},
			encodeVerdicts([]ledger.Verdict{{ID: id, Shard: 3, Result: good}}))
	}
	say(30)
	say(31)
	if status := s.verdicts.Status(); status.Words != 0 || status.Received != 0 {
		t.Errorf("strangers are heard: %+v", status)
	}
	grow(t, d, addedBelow(0))
	say(30)
	if got := s.propose(1 << 20); got != nil {
		t.Errorf("one of three is believed: %v", got)
	}
	say(31)
	eventually(t, "the verdict is proposed", func() bool {
		return reflect.DeepEqual(s.propose(1<<20),
			[]ledger.Verdict{{ID: id, Shard: 3, Result: good}})
	})
}
