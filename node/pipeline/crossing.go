package pipeline

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
)

// decided counts the transactions that a block of a book with several shards decides here: those
// that are applied or fail in it, and those whose wait ends in it. A transaction that is set aside
// counts when it is settled or released, one that is passed on counts elsewhere, and a verdict is
// nobody's transaction.
func decided(block *ledger.Block) (count int) {
	for i := range block.Entries {
		switch code := block.Entries[i].Result.Code; {
		case code == ledger.Settled, code == ledger.Released:
			count++
		case code == ledger.SetAside, code == ledger.Relayed,
			block.Entries[i].Transaction.Verdict != nil:
		default:
			count++
		}
	}
	return count
}

// awaited gives the statuses of those transactions that a block of a book with several shards
// decides and that someone waits for: in it, or set aside before.
func (p *Pipeline) awaited(block *ledger.Block) (statuses []api.Status) {
	ids := p.progress.watched(func(watched func(ledger.Hash)) {
		for i := range block.Entries {
			entry := &block.Entries[i]
			switch code := entry.Result.Code; {
			case code == ledger.SetAside, code == ledger.Relayed:
			case code == ledger.Applied && len(entry.Transaction.Registrations) == 0:
				// of this shard alone: nothing more is to be looked up
				statuses = append(statuses, statusOf(entry, block.Header.Height,
					i, api.LevelOrdered))
			case code == ledger.Settled, code == ledger.Released:
				watched(entry.Transaction.Verdict.ID)
				watched(entry.ID)
			default:
				watched(entry.ID)
			}
		}
	})
	for _, id := range ids {
		status, err := p.inChain(id)
		if err != nil {
			p.config.Logger.Error("what became of a transaction that someone waits for is not "+
				"readable", "transaction", id, "error", err)
			continue
		}
		if status.Decisive() > 0 {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// crossing is the status of a transaction in a book of several shards.
func (p *Pipeline) crossing(opened *store.Store, id ledger.Hash) (api.Status, error) {
	found, err := opened.Crossing(id)
	if err != nil {
		return api.Status{}, err
	}
	status := api.Status{ID: id, Height: found.Height, Index: uint32(found.Index),
		Result: found.Entry.Result}
	if len(found.Destinations) > 1 || found.Outcome == store.PassedThrough {
		status.Destinations = found.Destinations
	}
	switch found.Outcome {
	case store.TookEffect:
		status.Outcome = api.OutcomeExecuted
	case store.Refused:
		status.Outcome = api.OutcomeFailed
	case store.Waiting:
		status.Outcome, status.Waits = api.OutcomeWaiting, found.Waits
	case store.PassedThrough:
		status.Outcome = api.OutcomeRelayed
	}
	if found.Settled != nil {
		status.Settled = found.Settled.Height
		status.Result = ledger.Result{Code: ledger.Applied, Item: ledger.NoItem}
		if found.Outcome == store.Refused {
			status.Result = found.Settled.Entry.Transaction.Verdict.Result
		}
	}
	heights := p.progress.now()
	status.Level = heights.Level(max(status.Height, status.Settled))
	return status, nil
}
