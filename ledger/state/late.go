package state

import "github.com/ledgerd/ledgerd/ledger"

// A transaction may wait for a shard that it never reaches. A copy of it was submitted after
// organisations moved, and a shard above that one has it from before the moves, when it did not
// concern the shard below: it takes no transaction twice, and hands none on twice. So a shard that
// waits hands a copy over to the members of the one that it waits for, and that one refuses it in
// its own chain, beside the order of the tree. It may do so only once the transaction's deadline is
// over by the time of the block. From there on it could only be refused, so nothing depends on the
// order. docs/design/moves.md says why that is final.

// TakesLate reports whether a block of a time may refuse a transaction that has no place in this
// shard's stream, and does not enter here: its deadline is over, and one of its organisations
// moved. That the chain does not have it yet is for the caller to know.
func (s *State) TakesLate(t *ledger.Transaction, at ledger.Milliseconds) bool {
	return s.mayCome(t) && (at >= t.Deadline || s.fault == FaultLateBeforeDeadline)
}

// mayCome reports whether a transaction may be one that a shard waits for in vain.
func (s *State) mayCome(t *ledger.Transaction) bool {
	return t.Deadline != 0 && t.Ledger == s.ledger && !t.BookWide() && t.Cancellation == nil &&
		t.Verdict == nil && t.Change == nil && t.Arrival == nil &&
		s.organisations[t.Signer] != nil && s.MovedBefore(t)
}

// HandsOver reports whether a transaction waits here for a shard, is too late for others by now,
// and may never reach that one.
func (s *State) HandsOver(id ledger.Hash, t *ledger.Transaction, to ledger.ShardID,
	now ledger.Milliseconds) bool {
	found := s.pending.byID[id]
	if found == nil || !s.TakesLate(t, now) || s.Lost(to) {
		return false
	}
	awaited := found.entry.wait(to)
	return awaited != nil && !awaited.said
}

// refuseLate refuses a transaction beside the order of the tree. It is not handed on.
func (s *State) refuseLate(id ledger.Hash) ledger.Result {
	s.counter++
	return s.decides(id, whole(ledger.DeadlinePassed),
		s.present(without(s.destinations, s.shard)))
}

// addLate adds copies of transactions that are too late in a block of a time.
func (s *sealing) addLate(batches []*ledger.VerifiedBatch, time ledger.Milliseconds) {
	late := func(t *ledger.Transaction, _ *ledger.Hash, _ uint64) bool {
		return s.state.TakesLate(t, time)
	}
	for _, batch := range batches {
		for i := range batch.Carried {
			if batch.Carried[i].Number != 0 {
				continue
			}
			// It needs no vouchers: its clients have signed it.
			if proposal := &batch.Stream[i]; !s.closed && s.takes(proposal, s.version) {
				s.addBundle(proposal.Bundle, proposal.Kept, 0, late)
			}
		}
	}
}
