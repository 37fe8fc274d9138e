package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
)

// Amount is an exact signed integer of 128 bits, from -2^127 to 2^127-1. The zero value is 0.
// Amounts can be compared with == and with Compare. The text form is decimal. The JSON form is a
// string of decimal digits, because JSON numbers lose digits beyond 2^53; a JSON integer can also
// be read.
type Amount struct {
	// high and low are the two halves of the two's complement form.
	high int64
	low  uint64
}

// ErrOverflow reports that a result does not fit into 128 bits.
var ErrOverflow = errors.New("ledger: amount overflows 128 bits")

// ErrAmount reports that a text is not an amount.
var ErrAmount = errors.New("ledger: an amount is a decimal integer")

// NewAmount returns value as an amount.
func NewAmount(value int64) Amount { return Amount{high: value >> 63, low: uint64(value)} }

// MaxAmount is 2^127-1.
var MaxAmount = Amount{high: 1<<63 - 1, low: 1<<64 - 1}

// MinAmount is -2^127.
var MinAmount = Amount{high: -1 << 63}

// Add returns a + b, or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	low, carry := bits.Add64(a.low, b.low, 0)
	high, _ := bits.Add64(uint64(a.high), uint64(b.high), carry)
	sum := Amount{high: int64(high), low: low}
	if (a.high < 0) == (b.high < 0) && (sum.high < 0) != (a.high < 0) {
		return Amount{}, ErrOverflow
	}
	return sum, nil
}

// Sub returns a - b, or ErrOverflow.
func (a Amount) Sub(b Amount) (Amount, error) {
	difference := a.Minus(b)
	if (a.high < 0) != (b.high < 0) && (difference.high < 0) != (a.high < 0) {
		return Amount{}, ErrOverflow
	}
	return difference, nil
}

// Minus returns a - b modulo 2^128. It takes back what was added, in any order: sums that are in
// range as a whole may be out of range in between.
func (a Amount) Minus(b Amount) Amount {
	low, borrow := bits.Sub64(a.low, b.low, 0)
	high, _ := bits.Sub64(uint64(a.high), uint64(b.high), borrow)
	return Amount{high: int64(high), low: low}
}

// Neg returns -a, or ErrOverflow for -2^127.
func (a Amount) Neg() (Amount, error) { return Amount{}.Sub(a) }

// Sign returns -1, 0 or 1.
func (a Amount) Sign() int {
	switch {
	case a.high < 0:
		return -1
	case a == Amount{}:
		return 0
	}
	return 1
}

// Compare returns -1, 0 or 1 if a is less than, equal to or greater than b.
func (a Amount) Compare(b Amount) int {
	return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low))
}

// Int64 returns a as an int64 and whether it fits.
func (a Amount) Int64() (int64, bool) {
	value := int64(a.low)
	return value, a.high == value>>63
}

// Magnitude returns the two halves of |a|. Unsigned, 128 bits can also hold 2^127.
func (a Amount) Magnitude() (high, low uint64) {
	if a.high >= 0 {
		return uint64(a.high), a.low
	}
	low, borrow := bits.Sub64(0, a.low, 0)
	high, _ = bits.Sub64(0, uint64(a.high), borrow)
	return high, low
}

// AmountOf returns the amount with a sign and a magnitude, and reports whether it is in range. The
// amount is valid only then.
func AmountOf(negative bool, high, low uint64) (Amount, bool) {
	if !negative {
		return Amount{high: int64(high), low: low}, high < 1<<63
	}
	negated, borrow := bits.Sub64(0, low, 0)
	negatedHigh, _ := bits.Sub64(0, high, borrow)
	return Amount{high: int64(negatedHigh), low: negated}, high < 1<<63 ||
		(high == 1<<63 && low == 0)
}

// ParseAmount parses a decimal integer of at most 128 bits: an optional minus sign, then digits
// without leading zeros. It returns ErrAmount or ErrOverflow.
func ParseAmount(text string) (Amount, error) {
	digits, negative := text, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	if len(digits) == 0 || len(digits) > 39 || (digits[0] == '0' && (len(digits) > 1 || negative)) {
		return Amount{}, fmt.Errorf("%w: %.60q", ErrAmount, text)
	}
	var high, low uint64
	for i := range len(digits) {
		digit := digits[i] - '0'
		if digit > 9 {
			return Amount{}, fmt.Errorf("%w: %.60q", ErrAmount, text)
		}
		carry, lowTimesTen := bits.Mul64(low, 10)
		overflow, highTimesTen := bits.Mul64(high, 10)
		var carryDigit, carryHigh uint64
		low, carryDigit = bits.Add64(lowTimesTen, uint64(digit), 0)
		high, carryHigh = bits.Add64(highTimesTen, carry, carryDigit)
		if overflow != 0 || carryHigh != 0 {
			return Amount{}, fmt.Errorf("%w: %.60q", ErrOverflow, text)
		}
	}
	amount, inRange := AmountOf(negative, high, low)
	if !inRange {
		return Amount{}, fmt.Errorf("%w: %.60q", ErrOverflow, text)
	}
	return amount, nil
}

// String returns the decimal form.
func (a Amount) String() string {
	if value, small := a.Int64(); small {
		return fmt.Sprintf("%d", value)
	}
	high, low := a.Magnitude()
	whole := new(big.Int).SetUint64(high)
	whole.Lsh(whole, 64).Or(whole, new(big.Int).SetUint64(low))
	if a.high < 0 {
		whole.Neg(whole)
	}
	return whole.String()
}

// MarshalText returns the decimal form.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the decimal form.
func (a *Amount) UnmarshalText(text []byte) error {
	parsed, err := ParseAmount(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}

// MarshalJSON returns the decimal form as a JSON string.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(`"` + a.String() + `"`), nil }

// UnmarshalJSON parses a JSON string of a decimal integer, or a JSON integer.
func (a *Amount) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	return a.UnmarshalText([]byte(text))
}
