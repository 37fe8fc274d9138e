package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// This file sorts what the runs of a layer have: ids, steps of histories and entries of the state.

// layerSorter sorts what the runs of a layer have. It keeps its memory for the next layer: there
// are some hundred thousand records, and to touch fresh memory takes longer than to sort them. What
// a method returns is valid until the next call of any method.
type layerSorter struct {
	keySorter
	order   []keyOrder
	records []record
	changed []state.Change
	last    []lastChange
	// table finds entries in last: a place that is taken has 32 bits of the entry's hash, above the
	// place in last, counted from 1. It grows with the entries, so that it is near the processor if
	// they are few, as they are where most change several times in a layer.
	table []uint64
	seed  maphash.Seed
}

// places returns room for count places.
func (l *layerSorter) places(count int) []keyOrder {
	if cap(l.order) < count {
		l.order = make([]keyOrder, 0, count)
	}
	return l.order[:0]
}

// recordsOf returns the records of a row of blocks, and their order.
func (l *layerSorter) recordsOf(blocks []*pendingBlock) (records []record, order []keyOrder) {
	count := len(blocks)
	for _, pending := range blocks {
		for range pending.block.Heads() {
			count++
		}
	}
	records, order = slices.Grow(l.records[:0], count), l.places(count)
	add := func(id ledger.Hash, where position) {
		order = append(order, keyOrder{part: binary.BigEndian.Uint64(id[:]),
			at: uint32(len(records))})
		records = append(records, record{id, where})
	}
	for _, pending := range blocks {
		block, height := pending.block, pending.block.Header.Height
		for head := range block.Heads() {
			where := position{height: height, index: uint32(head.Index),
				kind: indexKind(head.Result), packed: head.Transfers > 0}
			if where.kind == indexFailed {
				where.lapse = lapseIn(block, &head)
			}
			add(head.Last(), where)
		}
		add(block.Hash, position{height: height, kind: indexBlock})
	}
	l.sortParts(order, func(a, b keyOrder) int {
		return bytes.Compare(records[a.at].id[:], records[b.at].id[:])
	})
	l.records = records
	return records, order
}

// leastTable is the number of places of a table at first.
const leastTable = 1 << 10

// entriesOf returns the changes of a row of blocks to the state, of each entry its value after the
// last block, and the order of their keys.
func (l *layerSorter) entriesOf(blocks []*pendingBlock) ([]state.Change, []keyOrder) {
	changed := l.lastChanges(blocks)
	order := l.places(len(changed))
	for i := range changed {
		order = append(order, keyOrder{at: uint32(i)})
	}
	l.sortKeys(order, 0, func(at uint32) []byte { return changed[at].Key })
	return changed, order
}

// lastChanges returns the last change of each entry, in the order in which they first changed.
func (l *layerSorter) lastChanges(blocks []*pendingBlock) []state.Change {
	if l.table == nil {
		l.table, l.seed = make([]uint64, leastTable), maphash.MakeSeed()
	}
	clear(l.table)
	l.last = l.last[:0]
	for block, pending := range blocks {
		entries := &pending.changes.Entries
		for i := range entries.Len() {
			at := lastChange{account: entries.Account(i), block: uint32(block), change: uint32(i)}
			slot, hash := l.find(blocks, &at)
			if taken := l.table[slot]; taken != 0 {
				l.last[uint32(taken)-1] = at
				continue
			}
			l.last = append(l.last, at)
			l.table[slot] = uint64(hash)<<32 | uint64(len(l.last))
			if 2*len(l.last) > len(l.table) {
				l.table = widened(l.table)
			}
		}
	}
	l.changed = slices.Grow(l.changed[:0], len(l.last))
	for i := range l.last {
		l.changed = append(l.changed, l.last[i].in(blocks))
	}
	return l.changed
}

// lastChange is the place of an entry's last change: the block in the layer, and the change in the
// block. account is the number of the account that the entry is, or 0. Numbers are near the
// processor, and keys are all over the memory, so an account is known by its number.
type lastChange struct {
	account       uint64
	block, change uint32
}

// in returns the change.
func (c *lastChange) in(blocks []*pendingBlock) state.Change {
	return blocks[c.block].changes.Entries.At(int(c.change))
}

// find returns the place in the table of the entry that changes, or a free place for it, and the
// hash of the entry.
func (l *layerSorter) find(blocks []*pendingBlock, change *lastChange) (slot int, hash uint32) {
	var key []byte
	if change.account != 0 {
		hash = uint32(change.account * numberHash >> 32)
	} else {
		key = change.in(blocks).Key
		hash = uint32(maphash.Bytes(l.seed, key))
	}
	for slot = int(hash) & (len(l.table) - 1); l.table[slot] != 0; {
		if taken := l.table[slot]; uint32(taken>>32) == hash {
			earlier := &l.last[uint32(taken)-1]
			if earlier.account == change.account &&
				(key == nil || bytes.Equal(earlier.in(blocks).Key, key)) {
				break
			}
		}
		slot = (slot + 1) & (len(l.table) - 1)
	}
	return slot, hash
}

// numberHash is an odd number near 2^64 divided by the golden ratio. Multiplied by it, numbers that
// follow each other lie apart.
const numberHash = 0x9e3779b97f4a7c15

// widened returns a larger table with what a table has.
func widened(table []uint64) []uint64 {
	larger := make([]uint64, 4*len(table))
	for _, taken := range table {
		if taken == 0 {
			continue
		}
		slot := int(uint32(taken>>32)) & (len(larger) - 1)
		for larger[slot] != 0 {
			slot = (slot + 1) & (len(larger) - 1)
		}
		larger[slot] = taken
	}
	return larger
}

// entriesTogether is how many entries are read together.
const entriesTogether = 32

// eachInOrder passes changes in an order to put. They lie all over the memory, so it reads from
// some of them before it passes the first one: it waits for all of these at once. Nothing needs
// first and last: loading them fetches the memory. No key is empty.
func eachInOrder(changed []state.Change, order []keyOrder,
	put func(key, after []byte) error) error {
	var read [entriesTogether]struct {
		state.Change
		first, last byte
	}
	for some := range slices.Chunk(order, entriesTogether) {
		for i := range some {
			each, change := &read[i], &changed[some[i].at]
			each.Change, each.first, each.last = *change, change.Key[0], 0
			if size := len(change.After); size > 0 {
				each.last = change.After[size-1]
			}
		}
		for i := range some {
			if err := put(read[i].Key, read[i].After); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget drops what the memory still has of the last layer's entries.
func (l *layerSorter) forget() { clear(l.changed) }

// step is a step of an account's history: the transaction that was applied to the account.
type step struct {
	number, ordinal uint64
	index           uint32
	height          ledger.Height
}

// history are the steps of a row of blocks: the order has the places of each account's steps
// adjacent and in order.
type history struct {
	blocks []*pendingBlock
	order  []keyOrder
}

// historyOf returns the steps of a row of blocks.
func (l *layerSorter) historyOf(blocks []*pendingBlock) history {
	count := 0
	for _, pending := range blocks {
		count += len(pending.changes.History)
	}
	order := l.places(count)
	for block, pending := range blocks {
		for at := range pending.changes.History {
			order = append(order, keyOrder{part: pending.changes.History[at].Number(),
				at: uint32(at), list: uint32(block)})
		}
	}
	// Of one account, they are in order already.
	l.sortParts(order, nil)
	return history{blocks, order}
}

// maxSteps bounds the steps in one record or row.
const maxSteps = 512

// records cuts the steps into records: steps of one account without a gap. The next record
// overwrites the steps of the one before. Steps lie all over the memory, so as many as a record may
// have are read together: nothing waits for the first one before all have been asked for.
func (h history) records(put func(number, ordinal uint64, steps []step) error) error {
	memory := make([]step, maxSteps)
	for order := h.order; len(order) > 0; {
		steps := memory[:min(len(order), maxSteps)]
		for i := range steps {
			block := h.blocks[order[i].list]
			change := &block.changes.History[order[i].at]
			steps[i] = step{change.Number(), change.Ordinal, change.Index(),
				block.block.Header.Height}
		}
		read := len(steps)
		for len(steps) > 0 {
			number, count := steps[0].number, 1
			for count < len(steps) && steps[count].number == number {
				count++
			}
			if count == len(steps) && count < read && read < len(order) {
				break // the account may have more steps
			}
			if err := put(number, steps[0].ordinal, steps[:count]); err != nil {
				return err
			}
			steps = steps[count:]
		}
		order = order[read-len(steps):]
	}
	return nil
}

// byAccount returns a copy of a block's history in which the steps of each account are adjacent and
// in order.
func byAccount(history []state.HistoryChange) []state.HistoryChange {
	sorted := slices.Clone(history)
	slices.SortFunc(sorted, func(a, b state.HistoryChange) int {
		return cmp.Or(cmp.Compare(a.Number(), b.Number()), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return sorted
}
