package ledger

import "github.com/ledgerd/ledgerd/ledger/internal/codec"

// ErrMalformed reports that bytes are not a canonical encoding of the expected kind: they are cut
// short, too long, out of bounds or not in the canonical form.
var ErrMalformed = codec.ErrMalformed

// reader decodes a canonical encoding. Each kind of value adds a method, beside its encoding.
type reader struct{ codec.Reader }

func read(data []byte) reader { return reader{codec.Reader{Data: data}} }

func appendAmount(to []byte, amount Amount) []byte {
	high, low := amount.Magnitude()
	return codec.AppendAmount(to, amount.high < 0, high, low)
}

func (r *reader) amount() Amount {
	amount, inRange := AmountOf(r.Amount())
	if !inRange {
		r.Fail("amount overflows 128 bits")
		return Amount{}
	}
	return amount
}
