package state

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger"
)

// Draft is a sealed block that has not been executed. Its results, roots and digest are missing.
type Draft struct {
	block ledger.Block
	// Duplicates counts the transactions that were dropped because their id was seen before.
	// Malformed counts the batches and bundles that were left out because they could not be
	// decoded, and Forged the bundles with a wrong signature. No correct node proposes such batches
	// or bundles.
	Duplicates, Malformed, Forged int
	// The following are only for books of several shards. Misplaced counts the transactions that
	// were left out because they concern shards that this shard does not reach, and so must enter
	// elsewhere, or because their signer is not registered here yet. Repeated counts the entries of
	// the parent's stream that were seen before, and the verdicts that no transaction waits for, or
	// none yet. Gaps counts the entries of the stream that arrived before their predecessors and
	// must be sent again. Unvouched counts the verdicts and entries that too few members vouch for
	// in this round.
	Misplaced, Repeated, Gaps, Unvouched int
}

// Len returns the number of transactions.
func (d *Draft) Len() int { return d.block.Len() }

// Parent is the previous block.
type Parent struct {
	Header ledger.Header
	Hash   ledger.Hash
	// Members returns the members after the block. Seal calls it only if a batch's time is more
	// than MaxStep beyond the block's. If it is nil, no such time counts.
	Members func() ledger.Membership
	// Packed says that the chain takes packed bundles after the block; see ledger.TakesPacked.
	Packed bool
	// Version is the version of the chain after the block. It is only for books of one shard.
	Version int
	// Due returns the transactions that follow from the state before the block, given its time: the
	// occurrences of schedules. If it is nil, there are none. It is only for books of one shard.
	Due func(ledger.Milliseconds) []ledger.Transaction
}

// times returns an empty set of times for the round after the parent.
func (p *Parent) times() clock.Round {
	times := clock.Round{Parent: p.Header.Time}
	if p.Members != nil {
		times.Members = func() []ledger.MemberIndex {
			members := p.Members()
			return members.Indexes()
		}
	}
	return times
}

// Seal makes one block, in a book of one shard, from a round's batches in the order of delivery. It
// drops bundles with a wrong signature, and transactions whose id was seen before: earlier in the
// round, or in an earlier block, as seen reports. It returns nil if no new transaction is left,
// because an empty round makes no block. A nil batch stands for one that cannot be decoded. The
// draft shares the memory of the batches, which must not change any more.
func Seal(parent Parent, epoch ledger.Epoch, round ledger.Round, batches []*ledger.VerifiedBatch,
	seen func(id ledger.Hash, transaction *ledger.Transaction) bool) *Draft {
	draft := &Draft{block: ledger.Block{Header: ledger.Header{Height: parent.Header.Height + 1,
		Previous: parent.Hash, Epoch: epoch, Round: round}}}
	times := parent.times()
	ids := draft.reserve(batches, 0)
	for _, batch := range batches {
		if batch == nil || batch.Sharded() {
			draft.Malformed++
			continue
		}
		times.Add(batch.Header.Time, batch.Clocks)
	}
	draft.block.Header.Time = times.Block()
	if parent.Due != nil {
		draft.addDue(parent.Due(draft.block.Header.Time))
	}
	for _, batch := range batches {
		if batch == nil || batch.Sharded() {
			continue
		}
		for i := range batch.Proposals {
			switch proposal := &batch.Proposals[i]; {
			case !draft.takes(proposal, parent.Version):
			case !proposal.Packed():
				draft.add(proposal.Bundle, ids, seen)
			case parent.Packed:
				draft.addPacked(proposal.Bundle, ids, seen)
			default:
				draft.Malformed++
			}
		}
	}
	if draft.Len() == 0 {
		return nil
	}
	draft.block.Header.Transactions = uint32(draft.Len())
	draft.block.Header.Total = parent.Header.Total + uint64(draft.Len())
	return draft
}

// reserve makes room for the entries of a round's bundles that are not packed, for this number of
// verdicts, and for the ids of all bundles. Several members may propose the same entries of the
// parent's stream, so it makes no room for these.
func (d *Draft) reserve(batches []*ledger.VerifiedBatch, verdicts int) idSet {
	transactions, bundles, ids := 0, 0, 0
	for _, batch := range batches {
		if batch == nil {
			continue
		}
		for i := range batch.Proposals {
			if proposal := &batch.Proposals[i]; proposal.Err == nil {
				if bundles++; proposal.Packed() {
					ids++
				} else {
					transactions += proposal.Len()
				}
			}
		}
	}
	d.block.Unpacked = make([]ledger.Entry, 0,
		min(verdicts+transactions, ledger.MaxBlockTransactions))
	d.block.Bundles = make([]ledger.BundleSeal, 0, verdicts+bundles)
	return make(idSet, transactions+ids)
}

// addDue adds occurrences of schedules, each in a bundle of its own.
func (d *Draft) addDue(due []ledger.Transaction) {
	for i := range due {
		entry, seal := ledger.OccurrenceEntry(&due[i], len(d.block.Bundles))
		d.block.Unpacked = append(d.block.Unpacked, entry)
		d.block.Bundles = append(d.block.Bundles, seal)
	}
}

// idSet is the set of the ids of a block's transactions: their places, by the first 8 bytes of
// their ids. If another id has the key, the next free key after it is used. Ids are hashes, so
// no client can make more than a few that begin alike. Those of a packed bundle all do, and only
// the first one is in the set.
type idSet map[uint64]uint32

// find reports whether one of the block's transactions has the id. Otherwise it returns the id's
// key.
func (s idSet) find(id *ledger.Hash, block *ledger.Block) (key uint64, found bool) {
	key = binary.BigEndian.Uint64(id[:])
	for {
		place, taken := s[key]
		if !taken || block.ID(int(place)) == *id {
			return key, taken
		}
		key++
	}
}

// takes reports whether a bundle may be in the block, and counts it if not. If the bundle needs a
// later version than the chain has before the block, it is malformed, as it is for the members
// whose program does not know that version.
func (d *Draft) takes(proposal *ledger.Proposal, version int) bool {
	switch {
	case proposal.Err == nil && proposal.NeedsVersion() <= max(version, ledger.FirstVersion):
		return true
	case errors.Is(proposal.Err, ledger.ErrSignature):
		d.Forged++
	default:
		d.Malformed++
	}
	return false
}

func (d *Draft) add(bundle *ledger.Bundle, ids idSet,
	seen func(ledger.Hash, *ledger.Transaction) bool) {
	kept, first := make([]bool, bundle.Len()), d.Len()
	for place, id := range bundle.IDs() {
		transaction := bundle.Transaction(place)
		key, again := ids.find(&id, &d.block)
		if again || seen(id, transaction) || d.Len() == ledger.MaxBlockTransactions {
			d.Duplicates++
			continue
		}
		ids[key] = uint32(d.Len())
		kept[place] = true
		d.block.Unpacked = append(d.block.Unpacked, bundle.Entry(place, len(d.block.Bundles)))
	}
	if d.Len() > first {
		d.block.Bundles = append(d.block.Bundles, bundle.Seal(kept))
	}
}

// addPacked adds a packed bundle, as a whole or not at all. The id of its first transfer stands for
// all of its ids: they differ in the place only, and no other bundle has the same root.
func (d *Draft) addPacked(bundle *ledger.Bundle, ids idSet,
	seen func(ledger.Hash, *ledger.Transaction) bool) {
	first := bundle.ID(0)
	key, again := ids.find(&first, &d.block)
	if again || seen(first, bundle.Transaction(0)) ||
		d.Len()+bundle.Len() > ledger.MaxBlockTransactions {
		d.Duplicates += bundle.Len()
		return
	}
	ids[key] = uint32(d.Len())
	d.block.AddPacked(bundle.Seal(nil))
}

// Redraft returns a draft of the block, with which the block can be executed again.
func Redraft(block *ledger.Block) *Draft {
	draft := &Draft{block: *block}
	draft.block.Unpacked = slices.Clone(block.Unpacked)
	draft.block.Bundles = slices.Clone(block.Bundles)
	return draft
}
