package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// A transaction may wait for a shard that it never reaches. A copy of it was submitted after
// organisations moved, and a shard above that one has it from before the moves, when it did not
// concern the shard below: it takes no transaction twice, and hands none on twice. So a shard that
// waits hands a copy over to the members of the one that it waits for, and that one refuses it in
// its own chain, beside the order of the tree. It may do so only once the transaction's deadline is
// over by the time of the block. From there on it could only be refused, so nothing depends on the
// order. docs/design/moves.md says why that is final.

// MaxLate bounds the copies that a block takes beside the order, and lateBytes their size in
// batches if there is more than one: each has the ids of all transactions of its bundle. Others are
// proposed again.
const MaxLate, lateBytes = 64, ledger.MaxBundleBytes

// TakesLate reports whether a block of a time may refuse a transaction that has no place in this
// shard's stream, and does not enter here: its deadline is over, one of its organisations moved,
// and one is or was at home here. That the chain does not have it yet is for the caller to know.
func (s *State) TakesLate(t *ledger.Transaction, at ledger.Milliseconds) bool {
	return s.isLate(t, at) && (s.everConcerned(t) || s.fault == FaultLateForStrangers)
}

// isLate reports whether a transaction may be one that a shard waits for in vain, and is too late.
// Only clients' transactions that do not concern all shards have organisations that moved.
func (s *State) isLate(t *ledger.Transaction, at ledger.Milliseconds) bool {
	return t.Deadline != 0 && (at >= t.Deadline || s.fault == FaultLateBeforeDeadline) &&
		t.Ledger == s.ledger && (s.MovedBefore(t) || s.fault == FaultLateUnmoved) &&
		s.registered(t)
}

// registered reports whether all organisations of a transaction are. Else a registration in the
// same block could change whom it concerns. No shard sets a transaction aside that names another
// organisation.
func (s *State) registered(t *ledger.Transaction) bool {
	for name := range t.Organisations() {
		if s.organisations[name] == nil {
			return false
		}
	}
	return true
}

// everConcerned reports whether this shard is the home of an organisation of the transaction, or
// was before. Who waits for this shard knows it as that. Any other shard must not have a result.
func (s *State) everConcerned(t *ledger.Transaction) bool {
	for name := range t.Organisations() {
		if s.HomeShard(name) == s.shard || slices.ContainsFunc(s.moves.of[name],
			func(m *move) bool { return m.from == s.shard || m.to == s.shard }) {
			return true
		}
	}
	return false
}

// HandsOver reports whether a transaction waits here for a shard, is too late for others by now,
// and may never reach that one.
func (s *State) HandsOver(id ledger.Hash, t *ledger.Transaction, to ledger.ShardID,
	now ledger.Milliseconds) bool {
	found := s.pending.byID[id]
	if found == nil || !s.isLate(t, now) || s.Lost(to) {
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

// addLate adds copies of transactions that are too late in a block of a time. The batches take
// turns, and another one begins in each round. So a member whose copies are many or large does not
// keep those of others out.
func (s *sealing) addLate(batches []*ledger.VerifiedBatch, time ledger.Milliseconds) {
	first, room := len(s.block.Unpacked), lateBytes
	late := func(t *ledger.Transaction, _ *ledger.Hash, _ uint64) bool {
		return (len(s.block.Unpacked)-first < s.state.lateMax ||
			s.state.fault == FaultLateUnbounded) && s.state.TakesLate(t, time)
	}
	for _, each := range lateCopies(batches, s.block.Header.Round) {
		// It needs no vouchers: its clients have signed it.
		if s.closed || !s.takes(each.proposal, s.version) ||
			each.size > room && len(s.block.Unpacked) > first {
			continue
		}
		before := len(s.block.Unpacked)
		s.addBundle(each.proposal.Bundle, each.proposal.Kept, 0, late)
		if len(s.block.Unpacked) > before {
			room -= each.size
		}
	}
}

// lateCopy is a copy in a batch, of a size in bytes.
type lateCopy struct {
	proposal *ledger.Proposal
	size     int
}

// lateCopies returns the copies in the batches of a round: the first one of each batch, then the
// second ones, and so on.
func lateCopies(batches []*ledger.VerifiedBatch, round ledger.Round) (all []lateCopy) {
	var turns [][]lateCopy
	for i := range batches {
		batch := batches[(uint64(i)+uint64(round))%uint64(len(batches))]
		turn := 0
		for j := range batch.Carried {
			if batch.Carried[j].Number != 0 {
				continue
			}
			if turn == len(turns) {
				turns = append(turns, nil)
			}
			turns[turn] = append(turns[turn], lateCopy{proposal: &batch.Stream[j],
				size: len(batch.Carried[j].Bundle)})
			turn++
		}
	}
	return slices.Concat(turns...)
}
