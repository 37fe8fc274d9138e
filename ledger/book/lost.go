package book

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// leaveOut drops the stores of shards that are lost according to others.
func (c *check) leaveOut() {
	for i := range c.stores {
		shard := ledger.ShardID(i)
		if slices.ContainsFunc(c.stores, func(s *store.Store) bool {
			return s != nil && s.Shard() != shard && s.Lost(shard)
		}) {
			c.report.Lost = append(c.report.Lost, shard)
			c.stores[i] = nil
		}
	}
}

// lost adds what lost shards have of a transaction that took effect in a shard.
func (c *check) lost(of *store.Store, block *ledger.Block, index int) error {
	entry := block.Entry(index)
	if len(c.report.Lost) == 0 || entry.Result.Code != ledger.SetAside || c.counted[entry.ID] {
		return nil
	}
	if !slices.ContainsFunc(of.Destinations(block, index), c.isLost) {
		return nil
	}
	crossing, err := of.Crossing(entry.ID)
	if err != nil || crossing.Outcome != store.TookEffect {
		return err
	}
	c.counted[entry.ID] = true
	postings := entry.Transaction().Postings
	for i := range postings {
		home := of.HomeAt(postings[i].Account.Organisation(), block.Header.Height)
		if c.isLost(home) {
			c.gone.add(postings[i].Asset, postings[i].Amount)
		}
	}
	return nil
}

// arrival takes what came from a lost shard with an organisation away from what that has.
func (c *check) arrival(of *store.Store, arrival *ledger.Arrival) error {
	if len(c.report.Lost) == 0 || arrival == nil {
		return nil
	}
	moves := of.AllMoves()
	at := slices.IndexFunc(moves, func(m state.Move) bool { return m.Number == arrival.Move })
	if at < 0 || moves[at].Arrived == 0 || !c.isLost(moves[at].From) {
		return nil // of what is incomplete nothing counts
	}
	for i := range arrival.Entries {
		balances, _, err := state.MovedBalances(&arrival.Entries[i])
		if err != nil {
			return err
		}
		for _, each := range balances {
			c.gone.takeAway(each.Asset, each.Amount)
		}
	}
	return nil
}

func (c *check) isLost(shard ledger.ShardID) bool { return slices.Contains(c.report.Lost, shard) }

// verdictOfLost checks that a chain has the verdict of a lost shard from before the settlement.
// What it says cannot be compared any more.
func (c *check) verdictOfLost(of *store.Store, height ledger.Height,
	verdict *ledger.Verdict) error {
	if slices.Contains(of.LostBefore(), verdict.Shard) {
		return contradiction(of.Shard(), height, "it has a verdict of shard %d on %s, which was "+
			"lost before the chain began", verdict.Shard, verdict.ID)
	}
	losses := of.Losses()
	at := slices.IndexFunc(losses, func(l state.Loss) bool { return l.Shard == verdict.Shard })
	if at >= 0 && height > losses[at].Height {
		return contradiction(of.Shard(), height, "it has a verdict of shard %d on %s, after it "+
			"settled with that shard in block %d", verdict.Shard, verdict.ID, losses[at].Height)
	}
	return nil
}

// reportLost writes down what the lost shards have.
func (c *check) reportLost() {
	for asset, sum := range c.gone {
		if *sum == (total{}) {
			continue
		}
		if c.report.LostAmounts == nil {
			c.report.LostAmounts = make(map[ledger.AssetName]string)
		}
		c.report.LostAmounts[asset] = sum.String()
	}
}
