package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// keyOrder is the place of a key in a list, and eight bytes of the key. If there are several lists,
// it says which one.
type keyOrder struct {
	part     uint64
	at, list uint32
}

// few is a number of keys that are sorted at once.
const few = 8

// The bytes of parts by which sortParts distributes places. There are mostly less places than
// values of so many bytes, so hashes are in order then.
const (
	radixBytes = 3
	radixFrom  = 256 // places; fewer are sorted by comparing them
)

// keySorter sorts places. It keeps its memory for the next time.
type keySorter struct{ spare []keyOrder }

// sortParts sorts places in the order of compare, which is first that of the parts of their keys.
// If compare is nil, those with equal parts stay in the order that they are in. It distributes the
// places by the highest bytes in which the parts differ, which takes less time than comparing them.
func (k *keySorter) sortParts(order []keyOrder, compare func(a, b keyOrder) int) {
	whole := compare == nil
	if whole {
		compare = compareParts
	}
	if len(order) < radixFrom {
		slices.SortStableFunc(order, compare)
		return
	}
	var differ uint64
	for i := range order {
		differ |= order[i].part ^ order[0].part
	}
	var shifts []int // of the bytes, the highest first
	rest := differ
	for ; rest != 0 && len(shifts) < radixBytes; rest &= 1<<shifts[len(shifts)-1] - 1 {
		shifts = append(shifts, (bits.Len64(rest)-1)/8*8)
	}
	if cap(k.spare) < len(order) {
		k.spare = make([]keyOrder, len(order))
	}
	from, to := order, k.spare[:len(order)]
	for _, shift := range slices.Backward(shifts) {
		distribute(to, from, shift)
		from, to = to, from
	}
	if len(shifts)%2 == 1 {
		copy(order, from)
	}
	if rest == 0 && whole {
		return
	}
	// Sort the places with equal bytes.
	mask := ^uint64(0)
	if len(shifts) > 0 {
		mask = ^uint64(0) << shifts[len(shifts)-1]
	}
	for len(order) > 0 {
		end := 1
		for end < len(order) && (order[end].part^order[0].part)&mask == 0 {
			end++
		}
		if end > 1 {
			slices.SortStableFunc(order[:end], compare)
		}
		order = order[end:]
	}
}

// distribute copies places in the order of one byte of their parts. Those with the same byte stay
// in the order that they are in.
func distribute(to, from []keyOrder, shift int) {
	var begins [256]int
	for i := range from {
		begins[byte(from[i].part>>shift)]++
	}
	begin := 0
	for i, count := range begins {
		begins[i], begin = begin, begin+count
	}
	for i := range from {
		next := &begins[byte(from[i].part>>shift)]
		to[*next] = from[i]
		*next++
	}
}

// keyPart returns the first eight bytes of a key. One that ends before counts as if it went on with
// zeros.
func keyPart(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var part [8]byte
	copy(part[:], key)
	return binary.BigEndian.Uint64(part[:])
}

// compareParts compares the parts of two keys.
func compareParts(a, b keyOrder) int { return cmp.Compare(a.part, b.part) }

// sortKeys sorts the places of different keys by these keys, of which the bytes before depth are
// equal. It compares eight bytes at a time, which it reads once: the keys lie all over the memory,
// and many begin alike.
func (k *keySorter) sortKeys(order []keyOrder, depth int, key func(at uint32) []byte) {
	if len(order) < few {
		slices.SortFunc(order, func(a, b keyOrder) int {
			return bytes.Compare(key(a.at), key(b.at))
		})
		return
	}
	short := false // whether a key ends before the next eight bytes do
	for i := range order {
		rest := key(order[i].at)[depth:]
		order[i].part, short = keyPart(rest), short || len(rest) < 8
	}
	k.sortParts(order, nil)
	endsHere := func(place keyOrder) bool { return len(key(place.at)) < depth+8 }
	for len(order) > 0 {
		end := 1
		for end < len(order) && order[end].part == order[0].part {
			end++
		}
		switch alike := order[:end]; {
		case end == 1:
		case short && slices.ContainsFunc(alike, endsHere):
			// A key that ends here counted as if it went on with zeros.
			slices.SortFunc(alike, func(a, b keyOrder) int {
				return bytes.Compare(key(a.at), key(b.at))
			})
		default:
			k.sortKeys(alike, depth+8, key)
		}
		order = order[end:]
	}
}
