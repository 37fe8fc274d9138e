package state

import "github.com/ledgerd/ledgerd/ledger"

// A member that began with a snapshot may lack earlier blocks. Of their entries it has the ids and
// results, and no transactions: their outlines. From these it answers other shards as well as it
// can.

// AnswersAbsent is AnswersTo for an entry of an absent block, of which there is only the result. A
// refusal is one for every shard. An agreement is not: a copy may have come to the shard that asks
// after a move, also if this chain lacks that move yet. So the chain itself has to show that the
// shard was among those that agreed together:
//
//   - The transaction waits here: the state has the shards.
//   - It does not, and the chain has the good verdict of the shard that asks. It took that because
//     it waited for it.
//   - It took effect here without: then it did not concern the shard that asks.
//   - Else another shard refused it, and those that it concerned hear that from there. This shard's
//     agreement decides nothing for them. Members that have the block say what it is for others.
//
// What passed through here, or took effect here alone, never becomes an agreement either.
//
// If open is set, AnswerOfChain answers.
func (s *State) AnswersAbsent(entry *ledger.Entry, asks ledger.ShardID) (verdict ledger.Verdict,
	answers, open bool) {
	verdict, answers = ledger.VerdictOf(entry, s.shard)
	with, waits := s.AgreedWith(entry.ID, asks)
	switch {
	case answers && !verdict.Good(), !answers && !s.HasMoves():
		return verdict, answers, false
	case with:
		return verdict, true, false
	case !answers, waits:
		return s.refusesStranger(entry.ID), true, false
	}
	return verdict, true, true
}

// AnswerOfChain answers where AnswersAbsent leaves it open, with the verdict that this one
// returned. Known says whether the chain has a transaction, and settled whether it has one with the
// result ledger.Settled; both need no more of the blocks than their outlines. It has no answer if
// only a member has it that has the block.
func AnswerOfChain(verdict ledger.Verdict, book ledger.Hash, asks ledger.ShardID, shards int,
	known, settled func(id ledger.Hash) (bool, error)) (answer ledger.Verdict, answers bool,
	err error) {
	good := func(of ledger.ShardID) ledger.Hash {
		return ledger.Verdict{ID: verdict.ID, Shard: of,
			Result: whole(ledger.SetAside)}.Entry(book).ID
	}
	if said, err := known(good(asks)); said || err != nil {
		return verdict, err == nil, err
	}
	for shard := range ledger.ShardID(shards) {
		if applied, err := settled(good(shard)); err != nil {
			return ledger.Verdict{}, false, err
		} else if applied {
			return ledger.Verdict{ID: verdict.ID, Shard: verdict.Shard,
				Result: whole(ledger.StaleNonce)}, true, nil
		}
	}
	return ledger.Verdict{}, false, nil
}

// refusesStranger is the answer to a shard that had no part in a transaction.
func (s *State) refusesStranger(id ledger.Hash) ledger.Verdict {
	return ledger.Verdict{ID: id, Shard: s.shard, Result: whole(ledger.StaleNonce)}
}
