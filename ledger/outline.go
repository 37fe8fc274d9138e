package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// An outline of a block is what snapshots keep of it beside the header: the ids and results of its
// transactions, which the header commits to. In a block without Header.ByBundle it is each
// transaction's id and result, one after the other. With ByBundle it is the number of bytes that
// follow (4, big-endian); the number of bundles (uvarint); and for each bundle its kind (1: ids, 2:
// packed), how many of its transactions are in the block (uvarint), their ids or the packed
// bundle's root, the number of results that are not applied (uvarint), and each of those after its
// place (uvarint). None of its transactions is in the block if it is an entry of the parent's
// stream that has only copies.

// OutlinePrefix is how many bytes of an outline OutlineSize needs.
const OutlinePrefix = 4

// emptyOutline is how many bytes an outline has of a bundle of which nothing is in the block.
const emptyOutline = 3

// Outline returns the block's outline.
func (b *Block) Outline() []byte {
	if !b.Header.ByBundle {
		to := make([]byte, 0, len(b.Unpacked)*(HashSize+ResultSize))
		for i := range b.Unpacked {
			to = appendResult(append(to, b.Unpacked[i].ID[:]...), b.Unpacked[i].Result)
		}
		return to
	}
	to := binary.AppendUvarint(make([]byte, OutlinePrefix, 256), uint64(len(b.Bundles)))
	for _, each := range b.shares() {
		leaf := each.leaf()
		to = binary.AppendUvarint(append(to, leaf.kind), uint64(each.len()))
		results := each.seal.results
		if leaf.kind == leafOfPacked {
			to = append(to, leaf.root[:]...)
		} else {
			results = make([]Result, len(each.entries))
			for i := range each.entries {
				to = append(to, each.entries[i].ID[:]...)
				results[i] = each.entries[i].Result
			}
		}
		to = appendFailures(to, results)
	}
	binary.BigEndian.PutUint32(to, uint32(len(to)-OutlinePrefix))
	return to
}

// appendFailures appends those of a bundle's results that are not applied.
func appendFailures(to []byte, results []Result) []byte {
	failed := 0
	for i := range results {
		if results[i] != appliedWhole {
			failed++
		}
	}
	to = binary.AppendUvarint(to, uint64(failed))
	for i := range results {
		if results[i] != appliedWhole {
			to = appendResult(binary.AppendUvarint(to, uint64(i)), results[i])
		}
	}
	return to
}

// failures reads what appendFailures appends, and returns the results of a bundle with so many
// transactions. It returns nil if all were applied.
func (r *reader) failures(count int) (results []Result) {
	next := 0
	for range r.Count("results", count, 1+ResultSize) {
		place, result := r.Uvarint(), r.result()
		if r.Err == nil && (place < uint64(next) || place >= uint64(count) ||
			result == appliedWhole) {
			r.Fail("result of transaction %d, out of order", place)
		}
		if r.Err != nil {
			return nil
		}
		if results == nil {
			results = slices.Repeat([]Result{appliedWhole}, count)
		}
		results[place], next = result, int(place)+1
	}
	return results
}

// OutlineSize returns the size of the outline of the block with this header, which is at most some
// hundred bytes for each transaction, and three for each bundle of which none is in the block.
// prefix is the first OutlinePrefix bytes of the outline, which only matter with ByBundle. It
// returns ErrMalformed if no outline begins so.
func OutlineSize(header *Header, prefix []byte) (int, error) {
	if !header.ByBundle {
		return int(header.Transactions) * (HashSize + ResultSize), nil
	}
	r := read(prefix)
	size := uint64(r.Uint32())
	const most = 1 + binary.MaxVarintLen32 + HashSize + binary.MaxVarintLen32 +
		binary.MaxVarintLen32 + ResultSize
	if size > binary.MaxVarintLen32+uint64(header.Transactions)*most+
		MaxBlockTransactions*emptyOutline || size > math.MaxInt32 {
		r.Fail("an outline of %d bytes for %d transactions", size, header.Transactions)
	}
	return OutlinePrefix + int(size), r.Err
}

// OutlineEntry is what an outline has of a transaction with an id of its own, or of a packed
// bundle.
type OutlineEntry struct {
	// ID is the id of the transaction, or of the bundle's last transfer.
	ID Hash
	// Index is the place in the block of the transaction, or of the bundle's first transfer.
	Index uint32
	// Result is the result of the transaction, or of the bundle's first transfer.
	Result Result
	// Transfers is how many a packed bundle has, and 0 for a transaction with an id of its own.
	Transfers int
}

// DecodeOutline decodes the outline of the block with this header. It returns ErrMalformed, or
// ErrBlock unless the header commits to these ids and results, in this order. The entries take
// about as much memory as the outline.
func DecodeOutline(header *Header, data []byte) ([]OutlineEntry, error) {
	if header.Transactions > MaxBlockTransactions {
		return nil, fmt.Errorf("%w: %d transactions", ErrMalformed, header.Transactions)
	}
	r := read(data)
	if header.ByBundle {
		o := outline{reader: &r, left: int(header.Transactions)}
		return o.read(header)
	}
	var entries []OutlineEntry
	var ids, results []Hash
	for i := range header.Transactions {
		entry := OutlineEntry{ID: r.Hash(), Index: i, Result: r.result()}
		if r.Err != nil {
			break
		}
		entries = append(entries, entry)
		ids, results = append(ids, leafHash(entry.ID[:])), append(results,
			entry.Result.leaf(entry.ID))
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return entries, header.checkLeaves(len(entries), ids, results)
}

// outline is the outline of a block with ByBundle that is being decoded.
type outline struct {
	*reader
	entries               []OutlineEntry
	transactions, results []Hash // the leaf hashes of the block's trees
	left                  int    // transactions that the header says are still to come
	next                  uint32 // the index of the next transaction
}

// read reads the outline, and checks it against the header.
func (o *outline) read(header *Header) ([]OutlineEntry, error) {
	if size := o.Uint32(); int(size) != len(o.Data) {
		o.Fail("an outline of %d bytes instead of %d", len(o.Data), size)
	}
	for range o.Count("bundles", MaxBlockTransactions, emptyOutline) {
		o.bundle()
	}
	if err := o.End(); err != nil {
		return nil, err
	}
	return o.entries, header.checkLeaves(int(o.next), o.transactions, o.results)
}

// bundle reads a bundle's part.
func (o *outline) bundle() {
	leaf := bundleLeaf{kind: o.Byte(), first: o.next}
	kept := o.Count("transactions", MaxBundleTransactions, 0)
	leaf.kept = uint32(kept)
	first := len(o.entries)
	switch {
	case kept > o.left || kept == 0 && leaf.kind != leafOfIDs:
		o.Fail("a bundle with %d transactions of the %d that are left", kept, o.left)
	case leaf.kind == leafOfPacked:
		leaf.root = o.Hash()
		o.entries = append(o.entries, OutlineEntry{ID: packedID(&leaf.root, kept-1),
			Index: o.next, Transfers: kept})
	case leaf.kind == leafOfIDs:
		ids := make([]Hash, 0, min(kept, len(o.Data)/HashSize+1))
		for i := range kept {
			if ids = append(ids, o.Hash()); o.Err != nil {
				return
			}
			o.entries = append(o.entries, OutlineEntry{ID: ids[i], Index: o.next + uint32(i)})
		}
		leaf.root = IDRoot(ids)
	default:
		o.Fail("a bundle of kind %d", leaf.kind)
	}
	if o.Err != nil {
		return
	}
	results := o.failures(kept)
	if o.Err != nil {
		return
	}
	for i := range o.entries[first:] {
		o.entries[first+i].Result = appliedWhole
		if results != nil {
			o.entries[first+i].Result = results[i]
		}
	}
	o.transactions = append(o.transactions, leaf.hash())
	o.results = append(o.results, leaf.resultsHash(resultsRoot(resultsOf(len(results),
		func(i int) Result { return results[i] }))))
	o.left, o.next = o.left-kept, o.next+leaf.kept
}

// checkLeaves returns ErrBlock unless the header has this number of transactions and the roots over
// these leaf hashes, which it overwrites.
func (h *Header) checkLeaves(count int, transactions, results []Hash) error {
	switch {
	case count != int(h.Transactions):
		return fmt.Errorf("%w: %d transactions, the header says %d", ErrBlock, count,
			h.Transactions)
	case merkleRoot(transactions) != h.TransactionsRoot:
		return fmt.Errorf("%w: transactions root", ErrBlock)
	case merkleRoot(results) != h.ResultsRoot:
		return fmt.Errorf("%w: results root", ErrBlock)
	}
	return nil
}
