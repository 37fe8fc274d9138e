package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// A change of the tree is at one place of the common order. In every chain, what is before it was
// routed by the old tree and what is after it by the new one. The change itself goes down the old
// tree. So it is the last entry of the stream from the old parent, and everything before it that
// concerns the shard or those below it is there, too. The stream from the new parent begins right
// after it, with the number that it gives (ledger.StreamBase).

// rehang is a change of the tree, as an entry of the state.
type rehang struct {
	ledger.TreeChange
	// height is that of the block with the change; 0 if the chain began with it.
	height ledger.Height
	// last is the last entry of the stream that the change ended, if that was from or to this
	// shard.
	last uint64
	mark mark
}

// Rehang is a change of the tree of the book's shards.
type Rehang struct {
	ledger.TreeChange
	// Height is that of its block in this chain, or 0 if the chain began with it.
	Height ledger.Height
	// Last is the last entry of the stream from or to this shard that the change ended. It is 0 if
	// the change did not end one.
	Last uint64
}

// Rehangs returns the changes of the tree, in order.
func (s *State) Rehangs() []Rehang {
	all := make([]Rehang, len(s.growth.rehung))
	for i, each := range s.growth.rehung {
		all[i] = Rehang{TreeChange: each.TreeChange, Height: each.height, Last: each.last}
	}
	return all
}

// RehungAt returns how many changes of the tree count for the transactions of a block. A change is
// the last transaction of its block, so it counts from the next one on.
func (s *State) RehungAt(height ledger.Height) int {
	rehung := 0
	for _, each := range s.growth.rehung {
		if each.height < height {
			rehung++
		}
	}
	return rehung
}

// TreeAt returns the tree for the transactions of a block, or nil if the book has only one shard.
func (s *State) TreeAt(height ledger.Height) *ledger.ShardTree {
	if s.tree == nil {
		return nil
	}
	return s.tree.Before(s.ShardsAt(height), s.RehungAt(height))
}

// mayRehang decides on a change of the tree.
func (s *State) mayRehang(change *ledger.ShardRehang) ledger.Code {
	if code := s.tree.MayRehang(change); code != ledger.Applied {
		return code
	}
	if s.Lost(change.Shard) || s.Lost(change.Parent) {
		return ledger.ShardLost
	}
	return ledger.Applied
}

// rehang makes the change of the tree in a bundle, once the bundle is on its way to the children by
// the old tree. It returns the entries of the streams to children.
func (s *State) rehang(forwards []Forward, bundle uint32) []Forward {
	change := s.rehanging
	shard, to := change.Rehang.Shard, change.Rehang.Parent
	s.rehanging = nil
	s.tree = s.tree.Rehang(change.Number, change.Rehang)
	made := &rehang{TreeChange: s.tree.Rehung()[len(s.tree.Rehung())-1], height: s.height,
		mark: mark{touched: true}}
	s.growth.rehung = append(s.growth.rehung, made)
	base := ledger.StreamBase(change.Number)
	switch s.shard {
	case made.From:
		at := slices.IndexFunc(s.children, func(each *stream) bool { return each.shard == shard })
		ended := s.children[at]
		s.touchStream(ended)
		if made.last, ended.ended = ended.number, true; s.fault == FaultSeamForgotten {
			made.last--
			forwards = slices.DeleteFunc(forwards, func(f Forward) bool {
				return f.Child == shard && f.Bundle == bundle
			})
		}
		s.children = slices.Delete(slices.Clone(s.children), at, at+1)
	case to:
		begun := s.beginStream(shard, base)
		at, _ := slices.BinarySearchFunc(s.children, shard,
			func(each *stream, shard ledger.ShardID) int { return cmp.Compare(each.shard, shard) })
		s.children = slices.Insert(slices.Clone(s.children), at, begun)
		if s.fault == FaultSeamTwice {
			forwards = append(forwards, Forward{Child: shard, Number: s.advance(begun),
				Bundle: bundle})
		}
	case shard:
		if s.fault == FaultPositionKept {
			base = s.parent.number
		}
		s.touchStream(s.parent)
		made.last, s.parent.ended = s.parent.number, true
		s.parent = s.beginStream(to, base)
	}
	return forwards
}

// Leg is a part of the streams between this shard and another one: from the time that a change of
// the tree, or the beginning, made the one the other's parent, until another change ended that.
type Leg struct {
	Child, Parent ledger.ShardID
	// Change is the number of the change that began it, or 0, and Height that of its block, or of
	// the one with the addition of the child. Its first entry is in a later block.
	Change uint64
	Height ledger.Height
	// Last is the number of its last entry up to now, or its base if it has none. If it has ended,
	// Ended is the block with its last entry; otherwise 0.
	Last  uint64
	Ended ledger.Height
}

// Base returns the number before that of its first entry.
func (l *Leg) Base() uint64 { return ledger.StreamBase(l.Change) }

// Has reports whether its entries have this number, or will have it.
func (l *Leg) Has(number uint64) bool {
	return number > l.Base() && ledger.StreamOf(number-1) == l.Change
}

// Legs returns the parts of the streams to those shards that are or were right below this one, in
// the order in which they began and then of the shards. So later ones are always at the end.
func (s *State) Legs() []Leg {
	if s.tree == nil {
		return nil
	}
	return s.legs(func(_, parent ledger.ShardID) bool { return parent == s.shard })
}

// LegsAbove returns the parts of the streams from those shards that are or were right above this
// one, in order.
func (s *State) LegsAbove() []Leg {
	if s.tree == nil {
		return nil
	}
	return s.legs(func(child, _ ledger.ShardID) bool { return child == s.shard })
}

// legs returns those parts of streams that are own. It takes no longer than a look at each shard
// and each change of the tree, since writers ask for them often.
func (s *State) legs(own func(child, parent ledger.ShardID) bool) (legs []Leg) {
	for i, parent := range s.tree.FirstParents() {
		if child := ledger.ShardID(i); parent != child && own(child, parent) {
			height, _ := s.AddedAt(child)
			legs = append(legs, Leg{Child: child, Parent: parent, Height: height})
		}
	}
	var ended int // how many of legs are followed by another part of the stream to the child
	for _, each := range s.growth.rehung {
		if own(each.Shard, each.From) {
			at := ended + slices.IndexFunc(legs[ended:], func(leg Leg) bool {
				return leg.Child == each.Shard
			})
			legs[at].Last, legs[at].Ended = each.last, each.height
			legs[at], legs[ended] = legs[ended], legs[at]
			ended++
		}
		if own(each.Shard, each.To) {
			legs = append(legs, Leg{Child: each.Shard, Parent: each.To, Change: each.Number,
				Height: each.height})
		}
	}
	for i := range legs[ended:] {
		leg := &legs[ended+i]
		if of := s.streamOf(leg.Child); of != nil && leg.Parent == s.shard {
			leg.Last = of.number
		} else if leg.Child == s.shard {
			leg.Last = s.Carried()
		}
	}
	slices.SortFunc(legs, func(a, b Leg) int {
		return cmp.Or(cmp.Compare(a.Height, b.Height), cmp.Compare(a.Change, b.Change),
			cmp.Compare(a.Child, b.Child))
	})
	return legs
}

// beginStream returns a stream that a change of the tree begins.
func (s *State) beginStream(shard ledger.ShardID, base uint64) *stream {
	begun := &stream{shard: shard}
	s.touchStream(begun)
	begun.number = base
	return begun
}

// finishRehangs collects the entries of the changes of the tree that the block made.
func (s *State) finishRehangs(changes *Changes) {
	for _, each := range s.growth.rehung {
		if each.mark.touched {
			s.settle(changes, each.mark, each.appendEntry)
			each.mark = mark{}
		}
	}
}

// The keys of changes of the tree begin like GrowthKey, and go on with another byte and the number
// of the change.
const (
	rehangKey     = 3
	rehangKeySize = 2 + 4 + 1
)

// appendEntry appends the entry: the shard, the parents before and after, the height, and the last
// entry of the stream that ended.
func (h *rehang) appendEntry(to []byte) (entry []byte, keyLength int) {
	to = append(binary.BigEndian.AppendUint32(append(to, kindGrowth, rehangKey),
		uint32(h.Number)), 0)
	to = binary.AppendUvarint(to, uint64(h.Shard))
	to = binary.AppendUvarint(to, uint64(h.From))
	to = binary.AppendUvarint(to, uint64(h.To))
	to = binary.AppendUvarint(to, uint64(h.height))
	return binary.AppendUvarint(to, h.last), rehangKeySize
}

// restoreRehang puts the entry of a change of the tree into the state. It reports whether there was
// one already. The tree is made in Complete.
func (g *growth) restoreRehang(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != rehangKeySize {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	restored := &rehang{TreeChange: ledger.TreeChange{
		Number: uint64(binary.BigEndian.Uint32(key[2:]))}}
	restored.Shard, restored.From, restored.To = r.shard(), r.shard(), r.shard()
	restored.height, restored.last = ledger.Height(r.Uvarint()), r.Uvarint()
	at, again := slices.BinarySearchFunc(g.rehung, restored.Number,
		func(each *rehang, number uint64) int { return cmp.Compare(each.Number, number) })
	if !again {
		g.rehung = slices.Insert(g.rehung, at, restored)
	}
	return restored, again, nil
}

// completeRehangs makes the changes of the tree after all entries were restored.
func (s *State) completeRehangs() error {
	changes := make([]ledger.TreeChange, 0, len(s.growth.rehung))
	for _, each := range s.growth.rehung {
		if each.Number == 0 || each.Number > min(s.growth.number, ledger.MaxRehang) {
			return fmt.Errorf("%w: change %d of the tree", ErrEntry, each.Number)
		}
		changes = append(changes, each.TreeChange)
	}
	tree, err := s.tree.RehangAll(changes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	s.tree = tree
	return nil
}
