package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestLastHolderAboveOtherShards: the refusal to give blocks up says what that would mean for the
// shards below, where there are any, or may be. Only then is the tree asked for.
func TestLastHolderAboveOtherShards(t *testing.T) {
	t.Parallel()
	const away = ledgerdv1.MemberStanding_MEMBER_STANDING_UNREACHABLE
	leaving := &ledger.GroupMember{Index: 0, Member: ledger.Member{Name: "node-0"}}
	// Shard 2 is hung below shard 0 after the genesis, and still takes entries from shard 1. Shard
	// 3 is hung below shard 2.
	tree := &ledgerdv1.Tree{Shards: []*ledgerdv1.Shard{
		{Shard: 0, Root: true, Streams: []*ledgerdv1.StreamPosition{
			{Child: 1}, {Child: 2, Former: []uint32{1}}}},
		{Shard: 1}, {Shard: 2}, {Shard: 3, Parent: 2}}}
	for shard, below := range map[ledger.ShardID]bool{0: true, 1: true, 2: true, 3: false} {
		genesis, err := ledgertest.ShardedGenesis(2, 0, 0, 1, 1).ForShard(shard)
		if err != nil {
			t.Fatal(err)
		}
		for _, leaver := range []*ledgerdv1.MemberState{{Index: 0}, {Index: 0, Standing: away}} {
			asked, silent := 0, error(nil)
			c := &membershipSession{genesis: genesis,
				tree: func(context.Context) (*ledgerdv1.Tree, error) {
					asked++
					return tree, silent
				}, cluster: &ledgerdv1.ClusterState{
					Members: []*ledgerdv1.MemberState{leaver, {Index: 1, AbsentHeight: 7}}}}
			err := c.checkHolder(t.Context(), leaving)
			if !errors.Is(err, errLastHolder) || strings.Contains(err.Error(), "BEHIND") != below {
				t.Errorf("shard %d, %s: %v", shard, leaver.GetStanding(), err)
			}
			silent = errors.New("no answer")
			err = c.checkHolder(t.Context(), leaving)
			if !errors.Is(err, errLastHolder) || !strings.Contains(err.Error(), "BEHIND") {
				t.Errorf("shard %d, whose tree is not known: %v", shard, err)
			}
			if c.force, asked = true, 0; (c.checkHolder(t.Context(), leaving) == nil) !=
				isAway(leaver) {
				t.Errorf("shard %d, %s, forced: %v", shard, leaver.GetStanding(), err)
			}
			if isAway(leaver) && asked > 0 {
				t.Error("the tree is asked for though nothing is refused")
			}
		}
	}
	one := &membershipSession{genesis: ledgertest.OperatedGenesis(2),
		cluster: &ledgerdv1.ClusterState{Members: []*ledgerdv1.MemberState{{Index: 0},
			{Index: 1, AbsentHeight: 7}}}}
	if err := one.checkHolder(t.Context(), leaving); err == nil ||
		strings.Contains(err.Error(), "BEHIND") {
		t.Errorf("a book of one shard: %v", err)
	}
}
