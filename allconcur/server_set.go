package allconcur

import (
	"math/bits"

	"github.com/ledgerd/ledgerd/order"
)

const wordBits = 64

// serverSet is a set of servers, one bit each.
type serverSet []uint64

func newServerSet(n int) serverSet { return make(serverSet, words(n)) }

// words returns the number of words that hold n bits.
func words(n int) int { return (n + wordBits - 1) / wordBits }

func (s serverSet) has(p order.ServerID) bool { return s[p/wordBits]>>(p%wordBits)&1 != 0 }

func (s serverSet) add(p order.ServerID) { s[p/wordBits] |= 1 << (p % wordBits) }

func (s serverSet) remove(p order.ServerID) { s[p/wordBits] &^= 1 << (p % wordBits) }

func (s serverSet) clear() { clear(s) }

func (s serverSet) clone() serverSet { return append(serverSet(nil), s...) }

func (s serverSet) count() int {
	count := 0
	for _, word := range s {
		count += bits.OnesCount64(word)
	}
	return count
}

// equal reports whether both are the same set.
func (s serverSet) equal(other serverSet) bool {
	for i, word := range s {
		if word != other[i] {
			return false
		}
	}
	return true
}

// within reports whether every server of s is also in other.
func (s serverSet) within(other serverSet) bool {
	for i, word := range s {
		if word&^other[i] != 0 {
			return false
		}
	}
	return true
}

// next returns the first server of s from p on, in ascending order; false if there is none.
func (s serverSet) next(p order.ServerID) (order.ServerID, bool) {
	i := int(p / wordBits)
	if i >= len(s) {
		return 0, false
	}
	word := s[i] >> (p % wordBits) << (p % wordBits)
	for word == 0 {
		if i++; i == len(s) {
			return 0, false
		}
		word = s[i]
	}
	return order.ServerID(i*wordBits + bits.TrailingZeros64(word)), true
}

// appendTo appends the servers of s, ascending.
func (s serverSet) appendTo(servers []order.ServerID) []order.ServerID {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			servers = append(servers, order.ServerID(i*wordBits+bits.TrailingZeros64(word)))
		}
	}
	return servers
}
