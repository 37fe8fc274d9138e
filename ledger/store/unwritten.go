package store

import (
	"bytes"
	"math"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// pendingBlock is an executed block that the database does not have yet. All but group is
// read-only.
type pendingBlock struct {
	block   *ledger.Block
	encoded []byte
	changes *state.Changes
	// group is the block's group in the journal; 0 until it is there. The store's mutex guards it.
	group uint64

	sorting sync.Once
	sorted  []state.HistoryChange

	listing sync.Once
	listed  []state.Change

	labelling sync.Once
	labelled  []uint32
}

// history returns the block's history in the order of accounts and ordinals.
func (p *pendingBlock) history() []state.HistoryChange {
	p.sorting.Do(func() { p.sorted = byAccount(p.changes.History) })
	return p.sorted
}

// listedIn returns the block's changes to accounts, holds, schedules and records from a key on, and
// before another one unless that is nil, in the order of the keys.
func (p *pendingBlock) listedIn(from, to []byte) []state.Change {
	p.listing.Do(func() {
		for change := range p.changes.Entries.All() {
			if state.IsAccountKey(change.Key) || state.IsHoldKey(change.Key) ||
				state.IsScheduleKey(change.Key) || state.IsRecordKey(change.Key) {
				p.listed = append(p.listed, change)
			}
		}
		slices.SortFunc(p.listed, func(a, b state.Change) int {
			return bytes.Compare(a.Key, b.Key)
		})
	})
	place := func(key []byte) int {
		at, _ := slices.BinarySearchFunc(p.listed, key, func(change state.Change, key []byte) int {
			return bytes.Compare(change.Key, key)
		})
		return at
	}
	if to == nil {
		return p.listed[place(from):]
	}
	return p.listed[place(from):max(place(from), place(to))]
}

// layer is a row of pending blocks that go to the database together. Its indexes answer what the
// database cannot answer yet. Blocks are added to the newest layer only.
type layer struct {
	// spans are those as of the last block.
	spans  spans
	blocks []*pendingBlock
	// bytes are those of the encodings, held is the sum of heldBytes.
	bytes, held int
	// places finds ids and block hashes by their first bytes. others has those whose first bytes
	// an earlier one in the layer has.
	places map[uint64]place
	others map[ledger.Hash]place
	// forwards finds the entries of streams to other shards, carried those of the parent's stream,
	// and settlements the ends of waits that are not found by their ids.
	forwards    map[forwardPlace]position
	carried     map[uint64]position
	settlements map[ledger.Hash]position
	// replaced finds what blocks replaced: the block of the layer, and the place among what it
	// replaced, in the order of the blocks.
	replaced map[state.ReplacedKey][]place
}

// place is a transaction of a layer: which of its blocks, and where there. The index wholeBlock
// names the block itself. transfers is how many a packed bundle has that begins there, or 0.
type place struct{ block, index, transfers uint32 }

const wholeBlock = math.MaxUint32

type forwardPlace struct {
	child  ledger.ShardID
	number uint64
}

func newLayer() *layer {
	return &layer{places: make(map[uint64]place), others: make(map[ledger.Hash]place),
		forwards: make(map[forwardPlace]position), carried: make(map[uint64]position),
		settlements: make(map[ledger.Hash]position),
		replaced:    make(map[state.ReplacedKey][]place)}
}

func (l *layer) add(pending *pendingBlock) {
	at := uint32(len(l.blocks))
	block := pending.block
	l.blocks, l.bytes = append(l.blocks, pending), l.bytes+len(pending.encoded)
	l.held += heldBytes(block, len(pending.encoded))
	for head := range block.Heads() {
		l.put(head.ID, place{at, uint32(head.Index), uint32(head.Transfers)})
	}
	l.put(block.Hash, place{block: at, index: wholeBlock})
	for i := range block.Bundles {
		if number := block.Bundles[i].Number; number != 0 {
			l.carried[number] = position{height: block.Header.Height, index: uint32(i)}
		}
	}
	for i := range pending.changes.Replaced {
		of := pending.changes.Replaced[i].ReplacedKey
		l.replaced[of] = append(l.replaced[of], place{block: at, index: uint32(i)})
	}
	for _, forward := range pending.changes.Forwards {
		l.forwards[forwardPlace{forward.Child, forward.Number}] = position{
			height: block.Header.Height, index: forward.Bundle}
	}
	for _, settlement := range pending.changes.Settlements {
		if foundByID(block, &settlement) {
			continue
		}
		l.settlements[settlement.ID] = position{height: block.Header.Height,
			index: settlement.Index}
	}
}

func (l *layer) put(id ledger.Hash, at place) {
	if _, taken := l.places[shortID(id)]; taken {
		l.others[id] = at
	} else {
		l.places[shortID(id)] = at
	}
}

// find looks up an id or a block hash.
func (l *layer) find(id ledger.Hash) (where position, found bool) {
	at, found := l.places[shortID(id)]
	if !found {
		return position{}, false
	}
	if where, found = l.holds(at, id); found {
		return where, true
	}
	if at, found = l.others[id]; !found {
		first, _ := ledger.PackedPlace(id)
		if at, found = l.others[first]; !found {
			return position{}, false
		}
	}
	return l.holds(at, id)
}

// holds returns the position of an id or a block hash if it is that of the block or transaction at
// a place, or of a transfer of the packed bundle that begins there.
func (l *layer) holds(at place, id ledger.Hash) (where position, holds bool) {
	block := l.blocks[at.block].block
	where.height = block.Header.Height
	if at.index == wholeBlock {
		where.kind = indexBlock
		return where, block.Hash == id
	}
	head := block.Entry(int(at.index))
	where.index, where.kind = at.index, indexKind(head.Result)
	if at.transfers > 0 {
		first, offset := ledger.PackedPlace(id)
		where.index += uint32(offset)
		return where, first == head.ID && offset < int(at.transfers)
	}
	return where, head.ID == id
}

// unwritten are the blocks that the database does not have yet. The store's mutex guards it.
type unwritten struct {
	// blocks are those of all layers, by height. The slice is only appended to and cut at its
	// beginning, so that a copy of it may be read without the mutex.
	blocks []*pendingBlock
	// bytes are those of the encodings, held is the sum of heldBytes.
	bytes, held int
	// layers are the layers, oldest first. The last one takes new blocks. One before it is being
	// written.
	layers []*layer
}

func newUnwritten() unwritten { return unwritten{layers: []*layer{newLayer()}} }

func (u *unwritten) newest() *layer { return u.layers[len(u.layers)-1] }

func (u *unwritten) add(pending *pendingBlock) {
	u.blocks, u.bytes = append(u.blocks, pending), u.bytes+len(pending.encoded)
	u.held += heldBytes(pending.block, len(pending.encoded))
	u.newest().add(pending)
}

// seal begins a new layer and returns the one before it, which gets no more blocks.
func (u *unwritten) seal() *layer {
	sealed := u.newest()
	u.layers = append(u.layers, newLayer())
	return sealed
}

// drop removes the oldest layer, which the database has.
func (u *unwritten) drop() {
	oldest := u.layers[0]
	u.blocks, u.bytes = u.blocks[len(oldest.blocks):], u.bytes-oldest.bytes
	u.held -= oldest.held
	u.layers = slices.Clone(u.layers[1:])
}

func (u *unwritten) find(id ledger.Hash) (where position, found bool) {
	for i := len(u.layers) - 1; i >= 0 && !found; i-- {
		where, found = u.layers[i].find(id)
	}
	return where, found
}

// forward looks up an entry of a stream to another shard. The index of the position is that of the
// bundle.
func (u *unwritten) forward(child ledger.ShardID, number uint64) (where position, found bool) {
	for i := len(u.layers) - 1; i >= 0 && !found; i-- {
		where, found = u.layers[i].forwards[forwardPlace{child, number}]
	}
	return where, found
}

// carriedEntry looks up an entry of the parent's stream. The index of the position is that of the
// bundle.
func (u *unwritten) carriedEntry(number uint64) (where position, found bool) {
	for i := len(u.layers) - 1; i >= 0 && !found; i-- {
		where, found = u.layers[i].carried[number]
	}
	return where, found
}

// settlement looks up the end of a transaction's wait.
func (u *unwritten) settlement(id ledger.Hash) (where position, found bool) {
	for i := len(u.layers) - 1; i >= 0 && !found; i-- {
		where, found = u.layers[i].settlements[id]
	}
	return where, found
}

// at returns the block at a height, or nil.
func (u *unwritten) at(height ledger.Height) *pendingBlock {
	if len(u.blocks) == 0 || height < u.blocks[0].block.Header.Height {
		return nil
	}
	if at := height - u.blocks[0].block.Header.Height; at < ledger.Height(len(u.blocks)) {
		return u.blocks[at]
	}
	return nil
}
