package pipeline

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
)

// decided counts the transactions that a block of a book with several shards decides here: those
// that are applied or fail in it, and those whose wait ends in it. A transaction that is set aside
// counts when it is settled or released. One that is passed on counts elsewhere. A verdict is not a
// client's transaction and does not count.
func decided(block *ledger.Block) (count int) {
	for _, entry := range block.All() {
		switch code := entry.Result.Code; {
		case code == ledger.Settled, code == ledger.Released:
			count++
		case code == ledger.SetAside, code == ledger.Relayed,
			entry.Transaction().Verdict != nil, entry.Transaction().Arrival != nil:
		default:
			count++
		}
	}
	return count
}

// awaited returns the statuses of transactions that a caller waits for and that this block of a
// book with several shards decides. Such a transaction is in the block, or was set aside before.
func (p *Pipeline) awaited(block *ledger.Block) (statuses []report.Status) {
	ids := p.progress.watched(func(watched func(ledger.Hash)) {
		for i, entry := range block.All() {
			switch code := entry.Result.Code; {
			case code == ledger.SetAside, code == ledger.Relayed:
			case code == ledger.Applied && !entry.Transaction().BookWide():
				// A transaction of this shard alone needs no further lookup.
				statuses = append(statuses, statusOf(entry, block.Header.Height,
					i, report.LevelOrdered))
			case code == ledger.Settled, code == ledger.Released:
				watched(entry.Transaction().Verdict.ID)
				watched(entry.ID)
			default:
				watched(entry.ID)
			}
		}
	})
	for _, id := range ids {
		status, err := p.inChain(id)
		if err != nil {
			p.config.Logger.Error("the outcome of a transaction that a caller waits for cannot "+
				"be read", "transaction", id, "error", err)
			continue
		}
		if status.Decisive() > 0 {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// crossing returns the status of a transaction in a book of several shards.
func (p *Pipeline) crossing(opened *store.Store, id ledger.Hash) (report.Status, error) {
	found, err := opened.Crossing(id)
	if err != nil {
		return report.Status{}, err
	}
	status := report.Status{ID: id, Height: found.Height, Index: uint32(found.Index),
		Result: found.Entry.Result}
	if len(found.Destinations) > 1 || found.Outcome == store.PassedThrough {
		status.Destinations = found.Destinations
	}
	switch found.Outcome {
	case store.TookEffect:
		status.Outcome = report.OutcomeExecuted
	case store.Refused:
		status.Outcome = report.OutcomeFailed
	case store.Waiting:
		status.Outcome, status.Waits = report.OutcomeWaiting, found.Waits
	case store.PassedThrough:
		status.Outcome = report.OutcomeRelayed
	}
	if found.Settled != nil {
		status.Settled = found.Settled.Height
		status.Result = ledger.Result{Code: ledger.Applied, Item: ledger.NoItem}
		if found.Outcome == store.Refused {
			status.Result = found.Settled.Entry.Transaction().Verdict.Result
		}
	}
	heights := p.progress.now()
	status.Level = heights.Level(max(status.Height, status.Settled))
	return status, nil
}
