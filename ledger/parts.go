package ledger

import (
	"iter"
	"sort"
)

// pack is the place of a packed bundle in a block.
type pack struct {
	// bundle is its index among the bundles, and first that of its first transfer in the block.
	bundle, first int
	// unpacked is how many of Block.Unpacked come before it.
	unpacked int
}

// AddPacked adds a packed bundle after all that the block has. The block owns its seal from then
// on.
func (b *Block) AddPacked(seal BundleSeal) {
	b.packs = append(b.packs, pack{bundle: len(b.Bundles), first: b.Len(),
		unpacked: len(b.Unpacked)})
	b.Bundles = append(b.Bundles, seal)
}

// Len returns the number of transactions.
func (b *Block) Len() int {
	if len(b.packs) == 0 {
		return len(b.Unpacked)
	}
	last := &b.packs[len(b.packs)-1]
	return last.first + b.Bundles[last.bundle].Len() + len(b.Unpacked) - last.unpacked
}

// find returns the last packed bundle that begins at or before an index, and the offset from its
// beginning. It returns nil if there is none.
func (b *Block) find(index int) (*pack, int) {
	after := sort.Search(len(b.packs), func(i int) bool { return b.packs[i].first > index })
	if after == 0 {
		return nil, index
	}
	at := &b.packs[after-1]
	return at, index - at.first
}

// Entry returns the transaction at an index, which must be below Len. It makes the entry of a
// transfer of a packed bundle anew each time.
func (b *Block) Entry(index int) Entry {
	at, offset := b.find(index)
	if at == nil {
		return b.Unpacked[index]
	}
	seal := &b.Bundles[at.bundle]
	if transfers := seal.Len(); offset >= transfers {
		return b.Unpacked[at.unpacked+offset-transfers]
	}
	return seal.entry(at.bundle, offset)
}

// entry returns the entry of a packed bundle's transfer, given the bundle's index.
func (s *BundleSeal) entry(bundle, place int) Entry {
	return Entry{ID: s.ID(place), packed: s.packed, Result: s.Result(place), Bundle: bundle,
		Place: place}
}

// ID returns the id of the transaction at an index.
func (b *Block) ID(index int) Hash {
	entry := b.Entry(index)
	return entry.ID
}

// All returns all transactions with their indexes, in order. It makes the entry of a transfer of a
// packed bundle anew each time.
func (b *Block) All() iter.Seq2[int, *Entry] {
	return func(yield func(int, *Entry) bool) {
		for first, part := range b.Parts() {
			for i := range part.Len() {
				if !yield(first+i, part.entry(i)) {
					return
				}
			}
		}
	}
}

// Part is a part of a block: a packed bundle, or a row of transactions between packed bundles.
type Part struct {
	// Packed is the packed bundle, or nil.
	Packed *BundleSeal
	// Unpacked are the transactions of the row. They are part of Block.Unpacked.
	Unpacked []Entry
	bundle   int // the index of the packed bundle
}

// Len returns the number of the part's transactions.
func (p *Part) Len() int {
	if p.Packed != nil {
		return p.Packed.Len()
	}
	return len(p.Unpacked)
}

func (p *Part) entry(offset int) *Entry {
	if p.Packed == nil {
		return &p.Unpacked[offset]
	}
	entry := p.Packed.entry(p.bundle, offset)
	return &entry
}

// Parts returns the parts of the block in their order, each with the index of its first
// transaction. None is empty.
func (b *Block) Parts() iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		done, packed := 0, 0 // of Unpacked; transfers before
		for i := range b.packs {
			at := &b.packs[i]
			if at.unpacked > done &&
				!yield(done+packed, Part{Unpacked: b.Unpacked[done:at.unpacked]}) {
				return
			}
			done = at.unpacked
			seal := &b.Bundles[at.bundle]
			packed += seal.Len()
			if !yield(at.first, Part{Packed: seal, bundle: at.bundle}) {
				return
			}
		}
		if done < len(b.Unpacked) {
			yield(done+packed, Part{Unpacked: b.Unpacked[done:]})
		}
	}
}

// Head is what a block has under one id that is a hash: a transaction, or all transfers of a packed
// bundle, of which the first one stands for the others.
type Head struct {
	// Index is the place in the block of the transaction or first transfer.
	Index  int
	ID     Hash
	Result Result
	// Transfers is how many a packed bundle has, and 0 for a transaction with an id of its own.
	Transfers int
}

// Last returns the id of the transaction, or of the bundle's last transfer.
func (h *Head) Last() Hash {
	if h.Transfers == 0 {
		return h.ID
	}
	return packedID(&h.ID, h.Transfers-1)
}

// Heads returns the heads of the block in their order.
func (b *Block) Heads() iter.Seq[Head] {
	return func(yield func(Head) bool) {
		for first, part := range b.Parts() {
			if seal := part.Packed; seal != nil {
				if !yield(Head{Index: first, ID: seal.ID(0), Result: seal.Result(0),
					Transfers: seal.Len()}) {
					return
				}
				continue
			}
			for i := range part.Unpacked {
				entry := &part.Unpacked[i]
				if !yield(Head{Index: first + i, ID: entry.ID, Result: entry.Result}) {
					return
				}
			}
		}
	}
}

// share is a bundle's part of a block.
type share struct {
	seal *BundleSeal
	// first is the index of its first transaction in the block.
	first int
	// entries are those of its transactions that are in the block. A packed bundle has none.
	entries []Entry
}

// len returns how many of the bundle's transactions are in the block.
func (s *share) len() int {
	if s.seal.packed != nil {
		return s.seal.Len()
	}
	return len(s.entries)
}

// results returns the leaf hashes over the results, or nil if all were applied.
func (s *share) results() []Hash {
	if s.seal.packed != nil {
		return resultsOf(len(s.seal.results), s.seal.Result)
	}
	return resultsOf(len(s.entries), func(i int) Result { return s.entries[i].Result })
}

// shares returns the shares of all bundles in their order.
func (b *Block) shares() iter.Seq2[int, share] {
	return func(yield func(int, share) bool) {
		next, first := 0, 0 // of Unpacked; in the block
		for i := range b.Bundles {
			each := share{seal: &b.Bundles[i], first: first}
			if each.seal.packed == nil {
				end := next
				for end < len(b.Unpacked) && b.Unpacked[end].Bundle == i {
					end++
				}
				each.entries, next = b.Unpacked[next:end], end
			}
			first += each.len()
			if !yield(i, each) {
				return
			}
		}
	}
}
