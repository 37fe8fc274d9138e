package shards

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// Once a shard is lost, its members are nobody, and nothing brings them back. Its own nodes keep
// theirs, and say that they are lost.
func TestLostShard(t *testing.T) {
	t.Parallel()
	d := directory(t, 4)
	at := time.Unix(1000, 0)
	next := d.Changed()
	if !d.Lose(2, at) || d.Lose(2, at.Add(time.Hour)) || d.Lose(3, at) {
		t.Error("a shard is lost once, and if there is one")
	}
	select {
	case <-next:
	default:
		t.Error("the members did not change")
	}
	if _, list := d.Members(2); len(list) > 0 || len(d.Candidates(2)) > 0 {
		t.Errorf("a lost shard has the members %v", list)
	}
	if _, _, known := d.Find(peerOf(t, 6)); known {
		t.Error("a member of a lost shard is known")
	}
	if d.Learn(2, changed(1, map[ledger.MemberIndex]int{0: 6, 1: 7, 2: 8})) {
		t.Error("a lost shard has members again")
	}
	d.Heard(peerOf(t, 6), Announcement{Shard: 2, Mode: report.ModeOrdering}, at)
	if states := d.States(); states[2].Mode != report.ShardLost ||
		states[1].Mode == report.ShardLost {
		t.Errorf("%+v", states)
	}
	if since, lost := d.IsLost(2); !lost || !since.Equal(at) {
		t.Errorf("lost since %v", since)
	}
	own := directory(t, 6)
	own.Lose(2, at)
	if _, list := own.Members(2); len(list) != 3 || own.States()[2].Mode != report.ShardLost {
		t.Errorf("a node of a lost shard has the fellows %v", list)
	}
}

// A lost shard is in the way for ever, even if no other obstacle counts.
func TestLostShardIsAnObstacle(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Second} {
		d := directory(t, 4)
		o, err := NewObstacles(ObstaclesConfig{Directory: d, RefuseAfter: after,
			Waiting: func(ledger.ShardID) int { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1000, 0)
		o.Look(at)
		d.Lose(2, at)
		o.Look(at.Add(time.Second / 2)) // the others are not down yet
		list := o.List()
		if len(list) != 1 || !list[0].Lost || list[0].Shard != 2 || list[0].Refusal().Retry() {
			t.Errorf("after %v: %+v", after, list)
		}
	}
}
