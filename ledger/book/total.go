package book

import (
	"math/big"
	"math/bits"

	"github.com/ledgerd/ledgerd/ledger"
)

// total is a sum of amounts: 192 bits, in two's complement, the lowest word first. So it can hold
// 2^63 amounts of either sign, in any order.
type total [3]uint64

func (t *total) add(amount ledger.Amount) { t.change(amount, amount.Sign() >= 0) }

// takeAway subtracts an amount.
func (t *total) takeAway(amount ledger.Amount) { t.change(amount, amount.Sign() < 0) }

// change adds the magnitude of an amount if up is set, or else subtracts it.
func (t *total) change(amount ledger.Amount, up bool) {
	high, low := amount.Magnitude()
	var carry uint64
	if up {
		t[0], carry = bits.Add64(t[0], low, 0)
		t[1], carry = bits.Add64(t[1], high, carry)
		t[2] += carry
		return
	}
	t[0], carry = bits.Sub64(t[0], low, 0)
	t[1], carry = bits.Sub64(t[1], high, carry)
	t[2] -= carry
}

// sums are the sums of assets.
type sums map[ledger.AssetName]*total

// of returns the sum of an asset.
func (s sums) of(asset ledger.AssetName) *total {
	sum := s[asset]
	if sum == nil {
		sum = new(total)
		s[asset] = sum
	}
	return sum
}

func (s sums) add(asset ledger.AssetName, amount ledger.Amount) { s.of(asset).add(amount) }

// takeAway takes an amount away from the sum of an asset.
func (s sums) takeAway(asset ledger.AssetName, amount ledger.Amount) {
	s.of(asset).takeAway(amount)
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
