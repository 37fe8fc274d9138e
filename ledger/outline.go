package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
)

// An outline of a block is what snapshots keep of it beside the header: the ids and results of its
// transactions, which the header commits to. In a block without Header.ByBundle it is each
// transaction's id and result, one after the other. With ByBundle it is the number of bytes that
// follow (4, big-endian); the number of bundles (uvarint); and for each bundle its kind (1: ids, 2:
// packed), how many of its transactions are in the block (uvarint), their ids or the packed
// bundle's root, the number of results that are not applied (uvarint), and each of those after its
// place (uvarint).

// OutlinePrefix is how many bytes of an outline OutlineSize needs.
const OutlinePrefix = 4

// Outline returns the block's outline.
func (b *Block) Outline() []byte {
	if !b.Header.ByBundle {
		to := make([]byte, 0, len(b.Entries)*(HashSize+ResultSize))
		for i := range b.Entries {
			to = appendResult(append(to, b.Entries[i].ID[:]...), b.Entries[i].Result)
		}
		return to
	}
	to := binary.AppendUvarint(make([]byte, OutlinePrefix, 256), uint64(len(b.Bundles)))
	first := 0
	for i := range b.Bundles {
		entries := b.entriesOf(i, first)
		leaf := b.bundleLeaf(i, first, entries)
		to = binary.AppendUvarint(append(to, leaf.kind), uint64(len(entries)))
		if leaf.kind == leafOfPacked {
			to = append(to, leaf.root[:]...)
		} else {
			for j := range entries {
				to = append(to, entries[j].ID[:]...)
			}
		}
		to = appendFailures(to, entries)
		first += len(entries)
	}
	binary.BigEndian.PutUint32(to, uint32(len(to)-OutlinePrefix))
	return to
}

// appendFailures appends the results of a bundle's entries that are not applied.
func appendFailures(to []byte, entries []Entry) []byte {
	failed := 0
	for i := range entries {
		if entries[i].Result != appliedWhole {
			failed++
		}
	}
	to = binary.AppendUvarint(to, uint64(failed))
	for i := range entries {
		if entries[i].Result != appliedWhole {
			to = appendResult(binary.AppendUvarint(to, uint64(i)), entries[i].Result)
		}
	}
	return to
}

// failures reads what appendFailures appends into the results of a bundle, which are all applied.
func (r *reader) failures(results []Result) {
	next := 0
	for range r.Count("results", len(results), 1+ResultSize) {
		place, result := r.Uvarint(), r.result()
		if r.Err == nil && (place < uint64(next) || place >= uint64(len(results)) ||
			result == appliedWhole) {
			r.Fail("result of transaction %d, out of order", place)
		}
		if r.Err != nil {
			return
		}
		results[place], next = result, int(place)+1
	}
}

// OutlineSize returns the size of the outline of the block with this header, which is at most some
// hundred bytes for each transaction. prefix is the first OutlinePrefix bytes of the outline, which
// only matter with ByBundle. It returns ErrMalformed if no outline begins so.
func OutlineSize(header *Header, prefix []byte) (int, error) {
	if !header.ByBundle {
		return int(header.Transactions) * (HashSize + ResultSize), nil
	}
	r := read(prefix)
	size := uint64(r.Uint32())
	const most = 1 + binary.MaxVarintLen32 + HashSize + binary.MaxVarintLen32 +
		binary.MaxVarintLen32 + ResultSize
	if size > binary.MaxVarintLen32+uint64(header.Transactions)*most || size > math.MaxInt32 {
		r.Fail("an outline of %d bytes for %d transactions", size, header.Transactions)
	}
	return OutlinePrefix + int(size), r.Err
}

// Outline is a decoded outline.
type Outline struct {
	// IDs and Results are those of the block's transactions, in their order.
	IDs     []Hash
	Results []Result
	// Transfers has, at the place of a packed bundle's first transfer, how many the bundle has. It
	// is 0 at all other places.
	Transfers []int
}

// DecodeOutline decodes the outline of the block with this header. It returns ErrMalformed, or
// ErrBlock unless the header commits to these ids and results, in this order.
func DecodeOutline(header *Header, data []byte) (*Outline, error) {
	if header.Transactions > MaxBlockTransactions {
		return nil, fmt.Errorf("%w: %d transactions", ErrMalformed, header.Transactions)
	}
	r, o := read(data), &Outline{}
	if header.ByBundle {
		return o, o.readByBundle(&r, header)
	}
	for range header.Transactions {
		o.IDs, o.Results = append(o.IDs, r.Hash()), append(o.Results, r.result())
		if r.Err != nil {
			break
		}
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	o.Transfers = make([]int, len(o.IDs))
	leaves := make([]Hash, len(o.Results))
	for i := range leaves {
		leaves[i] = o.Results[i].leaf(o.IDs[i])
	}
	return o, header.checkLeaves(len(o.IDs), idLeaves(o.IDs), leaves)
}

// readByBundle reads the outline of a block with ByBundle, and checks it.
func (o *Outline) readByBundle(r *reader, header *Header) error {
	if size := r.Uint32(); int(size) != len(r.Data) {
		r.Fail("an outline of %d bytes instead of %d", len(r.Data), size)
	}
	count := r.Count("bundles", MaxBlockTransactions, 1+1+HashSize+1)
	transactions, results := make([]Hash, 0, count), make([]Hash, 0, count)
	for range count {
		leaf := o.readBundle(r, header)
		if r.Err != nil {
			break
		}
		of := o.Results[leaf.first:]
		transactions = append(transactions, leaf.hash())
		results = append(results, leaf.resultsHash(resultsRoot(resultsOf(len(of),
			func(i int) Result { return of[i] }))))
	}
	if err := r.End(); err != nil {
		return err
	}
	return header.checkLeaves(len(o.IDs), transactions, results)
}

// readBundle reads a bundle's part of an outline, and returns its leaf.
func (o *Outline) readBundle(r *reader, header *Header) bundleLeaf {
	leaf := bundleLeaf{kind: r.Byte(), first: uint32(len(o.IDs))}
	kept := r.Count("transactions", MaxBundleTransactions, 0)
	leaf.kept = uint32(kept)
	switch {
	case kept == 0 || kept > int(header.Transactions)-len(o.IDs):
		r.Fail("a bundle with %d of %d transactions", kept, header.Transactions)
	case leaf.kind == leafOfPacked:
		leaf.root = r.Hash()
		o.IDs = append(o.IDs, packedIDs(&leaf.root, kept)...)
	case leaf.kind == leafOfIDs:
		for range kept {
			o.IDs = append(o.IDs, r.Hash())
		}
		leaf.root = IDRoot(o.IDs[leaf.first:])
	default:
		r.Fail("a bundle of kind %d", leaf.kind)
	}
	if r.Err != nil {
		return leaf
	}
	for range kept {
		o.Results, o.Transfers = append(o.Results, appliedWhole), append(o.Transfers, 0)
	}
	if leaf.kind == leafOfPacked {
		o.Transfers[leaf.first] = kept
	}
	r.failures(o.Results[leaf.first:])
	return leaf
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
