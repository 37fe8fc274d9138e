package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Entries that are lost are named with the shards, how many, and the blocks, by the shard that
// streams them and by the one that lacks them.
func TestLostEntriesAreNamed(t *testing.T) {
	t.Parallel()
	above := reportWaits(&ledgerdv1.Shard{UntakenBy: []*ledgerdv1.ShardWait{{Shard: 2, Count: 5,
		Overdue: 4, SinceMs: 1000, Lost: 3, LostHeight: 70}}}, 9000)
	want := []string{"alarm: 4 entries of shard 1 overdue, not taken by shard 2, the oldest for 8s",
		"alarm: 3 entries of shard 1 that shard 2 needs cannot be had any more: all members of " +
			"shard 1 say that they lack the blocks up to 70"}
	if got := above.alarms(1); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	below := reportWaits(&ledgerdv1.NodeState{Lacks: &ledgerdv1.ShardWait{Shard: 1, Count: 5,
		Lost: 1, LostHeight: 70}}, 9000)
	if got := lostLine(below.Lacks, below.Lacks.Shard, 2); got != "alarm: 1 entry of shard 1 that "+
		"shard 2 needs cannot be had any more: all members of shard 1 say that they lack the "+
		"blocks up to 70" {
		t.Error(got)
	}
	text, err := json.Marshal(&below)
	if err != nil || !strings.Contains(string(text), `"lacks":{"shard":1,"count":5,"overdue":0,`) ||
		!strings.Contains(string(text), `"lost":1,"lost_height":70}`) {
		t.Errorf("%s, %v", text, err)
	}
	none := reportWaits(&ledgerdv1.NodeState{}, 9000)
	if text, err := json.Marshal(&none); err != nil || strings.Contains(string(text),
		"lacks") {
		t.Errorf("%s, %v", text, err)
	}
}
