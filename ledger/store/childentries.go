package store

import (
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A child shard that was down for long needs entries of its stream that lie in old blocks. If all
// members that have these blocks were replaced by members that began with snapshots, the child
// waits until one of those can tell the entries. So a store finds them as soon as a block is filled
// in, and does not wait for all blocks from the genesis to be there and to be executed.
//
// Which bundles of a block are entries follows from the homes of the organisations in them, and
// from the tree. The state knows when an organisation was registered or moved, when a shard was
// added, and when the tree changed. So the present directory is enough. The numbers follow from the
// positions of the streams in the state of the snapshot, counted downward with the blocks.

// childEntries finds the entries of the streams to child shards in blocks that are filled in.
type childEntries struct {
	store *Store
	legs  []state.Leg
	// streamed are the positions of the streams as of the last of these blocks.
	streamed []uint64
	// places are the places of the entries of each part of a stream, in its order.
	places [][]position
}

// beginEntries begins to find the entries in the blocks below those that are here. It finds none if
// the positions of the streams are unknown. Then only Index makes their rows.
func (s *Store) beginEntries() (*childEntries, error) {
	var m missing
	err := s.view(func(transaction *badger.Txn) (err error) {
		m, err = readMissing(transaction, s.AppendedHeight())
		return err
	})
	if err != nil {
		return nil, err
	}
	e := &childEntries{store: s, streamed: m.streamed}
	if len(m.streamed) == 0 {
		return e, nil
	}
	if e.legs = s.legs(); len(e.legs) < len(m.streamed) {
		return nil, damaged(1, "where the store began: the positions of %d streams, and there are "+
			"%d to child shards", len(m.streamed), len(e.legs))
	}
	// Streams that began since have no entries in these blocks.
	e.legs = e.legs[:len(m.streamed)]
	e.places = make([][]position, len(e.legs))
	return e, nil
}

// add finds the entries in a block. The blocks come in ascending order.
func (e *childEntries) add(block *ledger.Block) {
	if len(e.legs) == 0 {
		return
	}
	height := block.Header.Height
	tree := e.store.TreeUpTo(height - 1)
	next := 0 // of Unpacked, which has all: a book of several shards has no packed bundles
	for b := range block.Bundles {
		goes := make([]bool, len(e.legs))
		for ; next < len(block.Unpacked) && block.Unpacked[next].Bundle == b; next++ {
			transaction := block.Unpacked[next].Transaction()
			if transaction.Change != nil || transaction.Verdict != nil {
				continue
			}
			destinations := e.store.presentAt(height, e.store.Destinations(block, next))
			for c := range e.legs {
				leg := &e.legs[c]
				goes[c] = goes[c] || height > leg.Height &&
					(leg.Ended == 0 || height <= leg.Ended) &&
					tree.Concerns(leg.Child, destinations)
			}
		}
		for c := range e.legs {
			if goes[c] {
				e.places[c] = append(e.places[c], position{height: height, index: uint32(b)})
			}
		}
	}
}

// write writes the rows of the entries that were found in the blocks from first on. It returns the
// positions of the streams as of the block before first.
func (e *childEntries) write(first ledger.Height) ([]uint64, error) {
	if len(e.legs) == 0 {
		return nil, nil
	}
	streamed := slices.Clone(e.streamed)
	batch := e.store.db.NewWriteBatch()
	defer batch.Cancel()
	for c := range e.legs {
		child, count := e.legs[c].Child, uint64(len(e.places[c]))
		if has := streamed[c] - e.legs[c].Base(); count > has || first == 1 && count < has {
			return nil, damaged(first, "the blocks that are filled in from here on have %d "+
				"entries of the stream to shard %d, which has %d up to there", count, child, has)
		}
		streamed[c] -= count
		for i, place := range e.places[c] {
			key := streamKey(child, streamed[c]+uint64(i)+1)
			e.store.options.onWrite("fill stream")
			if err := batch.Set(key, seal(key, appendPlace(nil, place.height,
				place.index))); err != nil {
				return nil, e.store.failFilling(err)
			}
		}
	}
	e.store.options.onWrite("fill stream flush")
	if err := batch.Flush(); err != nil {
		return nil, e.store.failFilling(err)
	}
	return streamed, nil
}
