package book

import (
	"math/big"
	"math/bits"

	"github.com/ledgerd/ledgerd/ledger"
)

// total is a sum of amounts: 192 bits, in two's complement, the lowest word first. So it can hold
// 2^63 amounts of either sign, in any order.
type total [3]uint64

func (t *total) add(amount ledger.Amount) {
	high, low := amount.Magnitude()
	var carry uint64
	if amount.Sign() >= 0 {
		t[0], carry = bits.Add64(t[0], low, 0)
		t[1], carry = bits.Add64(t[1], high, carry)
		t[2] += carry
		return
	}
	t[0], carry = bits.Sub64(t[0], low, 0)
	t[1], carry = bits.Sub64(t[1], high, carry)
	t[2] -= carry
}

// addTotal adds another total.
func (t *total) addTotal(other *total) {
	var carry uint64
	t[0], carry = bits.Add64(t[0], other[0], 0)
	t[1], carry = bits.Add64(t[1], other[1], carry)
	t[2] += other[2] + carry
}

// String returns the sum in decimal.
func (t *total) String() string {
	sum := new(big.Int)
	for i := len(t) - 1; i >= 0; i-- {
		sum.Lsh(sum, 64).Or(sum, new(big.Int).SetUint64(t[i]))
	}
	if t[2]>>63 != 0 {
		sum.Sub(sum, new(big.Int).Lsh(big.NewInt(1), 64*uint(len(t))))
	}
	return sum.String()
}
