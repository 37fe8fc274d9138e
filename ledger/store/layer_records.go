package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// This file sorts what the runs of a layer have: ids, steps of histories and entries of the state.

// recordsOf returns the sorted records of a row of blocks.
func recordsOf(blocks []*pendingBlock) []record {
	count := len(blocks)
	for _, pending := range blocks {
		for i := 0; i < len(pending.block.Entries); i += max(1, transfersFrom(pending.block, i)) {
			count++
		}
	}
	records, order := make([]record, 0, count), make([]keyOrder, 0, count)
	add := func(id ledger.Hash, where position) {
		order = append(order, keyOrder{part: binary.BigEndian.Uint64(id[:]),
			at: uint32(len(records))})
		records = append(records, record{id, where})
	}
	for _, pending := range blocks {
		block, height := pending.block, pending.block.Header.Height
		for i := 0; i < len(block.Entries); {
			entry, count := &block.Entries[i], transfersFrom(block, i)
			add(block.Entries[i+max(count, 1)-1].ID, position{height: height, index: uint32(i),
				kind: indexKind(entry.Result), packed: count > 0})
			i += max(count, 1)
		}
		add(block.Hash, position{height: height, kind: indexBlock})
	}
	sortParts(order, func(a, b keyOrder) int {
		return bytes.Compare(records[a.at].id[:], records[b.at].id[:])
	})
	return inOrder(records, order)
}

// transfersFrom returns how many transactions of a block, from the one at index on, are the
// transfers of a packed bundle of which that is the first; 0 if it has an id of its own.
func transfersFrom(block *ledger.Block, index int) int {
	if seal := &block.Bundles[block.Entries[index].Bundle]; seal.Packed() {
		return seal.Len()
	}
	return 0
}

// entriesOf returns the changes of a row of blocks to the state, in the order of their keys: of
// each entry, its value after the last block.
func entriesOf(blocks []*pendingBlock) []state.Change {
	count := 0
	for _, pending := range blocks {
		count += len(pending.changes.Entries)
	}
	// Most entries change several times in a layer. A table finds their earlier changes: it
	// has places in changed, and 0 where there is none.
	changed := make([]state.Change, 1, count+1)
	size := 1 << bits.Len(uint(2*count))
	table, seed := make([]uint32, size), maphash.MakeSeed()
	for _, pending := range blocks {
		for _, change := range pending.changes.Entries {
			at := int(maphash.Bytes(seed, change.Key)) & (size - 1)
			for table[at] != 0 && !bytes.Equal(changed[table[at]].Key, change.Key) {
				at = (at + 1) & (size - 1)
			}
			if table[at] != 0 {
				changed[table[at]].After = change.After
				continue
			}
			table[at] = uint32(len(changed))
			changed = append(changed, change)
		}
	}
	order := make([]keyOrder, len(changed)-1)
	for i := range order {
		order[i].at = uint32(i + 1)
	}
	sortKeys(order, 0, func(at uint32) []byte { return changed[at].Key })
	return inOrder(changed, order)
}

// step is a step of an account's history: the transaction that was applied to the account.
type step struct {
	state.HistoryChange
	height ledger.Height
}

// history are the steps of a row of blocks: the order has the places of each account's steps
// adjacent and in order.
type history struct {
	blocks []*pendingBlock
	order  []keyOrder
}

// historyOf returns the steps of a row of blocks.
func historyOf(blocks []*pendingBlock) history {
	count := 0
	for _, pending := range blocks {
		count += len(pending.changes.History)
	}
	order := make([]keyOrder, 0, count)
	for block, pending := range blocks {
		for at := range pending.changes.History {
			order = append(order, keyOrder{part: pending.changes.History[at].Number,
				at: uint32(at), list: uint32(block)})
		}
	}
	// Of one account, they are in order already.
	sortParts(order, nil)
	return history{blocks, order}
}

// inOrder returns the items at these places of a list. To sort places moves less memory.
func inOrder[T any](list []T, order []keyOrder) []T {
	sorted := make([]T, len(order))
	for i, next := range order {
		sorted[i] = list[next.at]
	}
	return sorted
}

// maxSteps bounds the steps in one record or row.
const maxSteps = 512

// records cuts the steps into records: steps of one account without a gap. The next record
// overwrites the steps of the one before.
func (h history) records(put func(number, ordinal uint64, steps []step) error) error {
	steps := make([]step, 0, maxSteps)
	for i := range h.order {
		next := &h.order[i]
		if len(steps) > 0 && (len(steps) == maxSteps || steps[0].Number != next.part) {
			if err := put(steps[0].Number, steps[0].Ordinal, steps); err != nil {
				return err
			}
			steps = steps[:0]
		}
		block := h.blocks[next.list]
		steps = append(steps, step{block.changes.History[next.at], block.block.Header.Height})
	}
	if len(steps) == 0 {
		return nil
	}
	return put(steps[0].Number, steps[0].Ordinal, steps)
}

// byAccount returns a copy of a block's history in which the steps of each account are adjacent and
// in order.
func byAccount(history []state.HistoryChange) []state.HistoryChange {
	sorted := slices.Clone(history)
	slices.SortFunc(sorted, func(a, b state.HistoryChange) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return sorted
}
