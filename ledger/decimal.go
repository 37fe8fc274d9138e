package ledger

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDecimals reports that an amount is written with more decimals than its asset has.
var ErrDecimals = errors.New("ledger: too many decimals")

// Decimal returns the amount as it is written with this many decimals: 1250 with two of them is
// 12.50. It shows all of them, so the text has one form, which ParseDecimal reads.
func (a Amount) Decimal(decimals int) string { return PlacePoint(a.String(), decimals) }

// PlacePoint writes an integer that is given as text, with or without a minus sign, with this many
// decimals. It is for sums, which may be more than an Amount holds. No asset has more than
// MaxDecimals, and with more the integer stays as it is.
func PlacePoint(digits string, decimals int) string {
	sign := ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		digits, sign = rest, "-"
	}
	if decimals <= 0 || decimals > MaxDecimals {
		return sign + digits
	}
	if missing := decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole := len(digits) - decimals
	return sign + digits[:whole] + "." + digits[whole:]
}

// ParseDecimal parses an amount of an asset with this many decimals: an optional minus sign, digits
// without leading zeros, and optionally a point and up to as many digits as the asset has decimals.
// With two decimals, 12.5, 12.50 and 1250 in the smallest unit are the same amount. It returns
// ErrDecimals if there are more digits after the point, because nothing is ever rounded, or
// ErrAmount or ErrOverflow.
func ParseDecimal(text string, decimals int) (Amount, error) {
	whole, fraction, point := strings.Cut(text, ".")
	switch {
	case decimals < 0 || decimals > MaxDecimals:
		return Amount{}, fmt.Errorf("%w: %d, and an asset has at most %d", ErrDecimals, decimals,
			MaxDecimals)
	case point && decimals == 0:
		return Amount{}, fmt.Errorf("%w: %.60q, and the asset has none: write a whole number",
			ErrDecimals, text)
	case len(fraction) > decimals:
		return Amount{}, fmt.Errorf("%w: %.60q has %d, and the asset has %d: amounts are never "+
			"rounded, so write at most %d digits after the point", ErrDecimals, text,
			len(fraction), decimals, decimals)
	case point && (fraction == "" || strings.Trim(fraction, "0123456789") != ""):
		return Amount{}, fmt.Errorf("%w, with a point before decimals: %.60q", ErrAmount, text)
	}
	if _, err := ParseAmount(whole); err != nil && whole != "-0" {
		if errors.Is(err, ErrOverflow) {
			return Amount{}, err
		}
		return Amount{}, fmt.Errorf("%w: %.60q", ErrAmount, text)
	}
	digits, negative := strings.CutPrefix(whole, "-")
	digits = strings.TrimLeft(digits+fraction+strings.Repeat("0", decimals-len(fraction)), "0")
	switch {
	case digits == "" && negative:
		return Amount{}, fmt.Errorf("%w: %.60q", ErrAmount, text)
	case digits == "":
		return Amount{}, nil
	case len(digits) > 39:
		return Amount{}, fmt.Errorf("%w: %.60q", ErrOverflow, text)
	case negative:
		digits = "-" + digits
	}
	return ParseAmount(digits)
}
