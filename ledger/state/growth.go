package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Changes of the book's shards. All shards make them at the same place of their common order, and
// the decision depends only on the directory, the charter and the changes before: so all shards
// decide alike. A block takes no bundle after a change, so what follows it in a chain is in later
// blocks, and sealing reads the book as it is before the draft.

// growth is what the changes of the book's shards so far have made. There is no entry of the state
// before the first change, so the state of a book that never changed is the same as in earlier
// versions.
type growth struct {
	// number counts the changes.
	number uint64
	// lost are the shards that were settled with, in ascending order.
	lost []ledger.ShardID
	mark mark
	// added are the shards that were added, by their numbers (addition.go). streams are those from
	// and to shards of a tree that is not that of the genesis, from the time that they were
	// restored until the tree is.
	added   []*addition
	streams []*stream
	// rehung are the changes of the tree, in order (rehang.go).
	rehung []*rehang
}

// Lost reports whether the operators settled with a shard that is lost.
func (s *State) Lost(shard ledger.ShardID) bool { return has(s.growth.lost, shard) }

// BookChanges returns the number of changes of the book's shards so far.
func (s *State) BookChanges() uint64 { return s.growth.number }

// GrowthKey returns the key of the entry of the changes. There is none before the first one.
func GrowthKey() []byte { return []byte{kindGrowth, 0} }

// attemptBookChange decides on a change of the book's shards. It verifies the signatures again. It
// changes nothing.
func (s *State) attemptBookChange(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	switch change := t.Book; {
	case s.tree == nil:
		return whole(ledger.UnknownShard)
	case !s.operatorsSigned(root, signatures):
		return whole(ledger.Unauthorised)
	case change.Number != s.growth.number+1:
		return whole(ledger.BookOutdated)
	case change.Loss != nil:
		return s.attemptLoss(change.Loss)
	case change.Addition != nil:
		return whole(s.mayAddShard(change.Addition))
	case change.Move != nil:
		return s.attemptMove(change.Move)
	case change.Rehang != nil:
		return whole(s.mayRehang(change.Rehang))
	}
	return applied
}

// changeBook makes a change that attemptBookChange allowed.
func (s *State) changeBook(change *ledger.BookChange) {
	s.touchGrowth()
	s.growth.number = change.Number
	switch {
	case change.Addition != nil:
		s.addShard(change.Addition)
	case change.Move != nil:
		s.moveOrganisation(change.Number, change.Move)
	case change.Loss != nil:
		s.lose(change.Loss.Shard)
	case change.Rehang != nil:
		s.rehanging = change // once the entry itself is on its way by the old tree
	}
}

func (s *State) touchGrowth() {
	switch {
	case s.growth.mark.touched:
	case s.growth.number == 0:
		s.growth.mark = mark{touched: true}
	default:
		s.growth.mark = s.keep(s.growth.appendEntry)
	}
}

// finishGrowth collects the change of the entry, if there is one.
func (s *State) finishGrowth(changes *Changes) {
	if s.growth.mark.touched {
		s.settle(changes, s.growth.mark, s.growth.appendEntry)
		s.growth.mark = mark{}
	}
	s.finishLosses(changes)
	s.finishAdditions(changes)
	s.finishRehangs(changes)
}

// appendEntry appends the entry: the number of changes, and the shards that are lost.
func (g *growth) appendEntry(to []byte) (entry []byte, keyLength int) {
	to = append(to, GrowthKey()...)
	to = binary.AppendUvarint(to, g.number)
	to = binary.AppendUvarint(to, uint64(len(g.lost)))
	for _, shard := range g.lost {
		to = binary.AppendUvarint(to, uint64(shard))
	}
	return to, len(GrowthKey())
}

// restore puts the entry into the state. It reports whether there was one already.
func (g *growth) restore(key []byte, r *reader) (of entry, again bool, err error) {
	switch {
	case slices.Equal(key, GrowthKey()):
	case key[1] == 1:
		return g.restoreAddition(key, r)
	case key[1] == rehangKey:
		return g.restoreRehang(key, r)
	default:
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	again = g.number > 0
	g.number = r.Uvarint()
	g.lost = make([]ledger.ShardID, r.Count("shards", ledger.MaxShards, 1))
	for i := range g.lost {
		g.lost[i] = ledger.ShardID(r.Uvarint32("shard"))
		if i > 0 && g.lost[i] <= g.lost[i-1] {
			r.Fail("lost shards out of order")
		}
	}
	if r.Err == nil && g.number == 0 {
		r.Fail("changes of the book that are none")
	}
	return g, again, nil
}
