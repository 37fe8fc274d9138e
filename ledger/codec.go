package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"
)

// ErrMalformed reports that bytes are not a canonical encoding of the expected kind: they are cut
// short, too long, out of bounds or not in the canonical form.
var ErrMalformed = errors.New("ledger: malformed encoding")

// The canonical encoding consists of fixed-size big-endian integers and hashes, uvarints (LEB128)
// in their shortest form, byte strings after their length, lists after their count, and amounts. An
// amount is a length byte, with the sign in the highest bit, and the magnitude without leading
// zeros.

func appendString[T ~string | ~[]byte](to []byte, value T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(value))), value...)
}

func appendBool(to []byte, value bool) []byte {
	if value {
		return append(to, 1)
	}
	return append(to, 0)
}

func appendAmount(to []byte, amount Amount) []byte {
	high, low := amount.magnitude()
	length := (bits.Len64(high) + 7) / 8
	if length > 0 {
		length += 8
	} else {
		length = (bits.Len64(low) + 7) / 8
	}
	head := byte(length)
	if amount.high < 0 {
		head |= 0x80
	}
	to = append(to, head)
	for i := length - 1; i >= 0; i-- {
		if i >= 8 {
			to = append(to, byte(high>>(8*(i-8))))
		} else {
			to = append(to, byte(low>>(8*i)))
		}
	}
	return to
}

// reader decodes a canonical encoding. The first failure sticks: later calls return zero values, so
// the caller checks err once.
type reader struct {
	data []byte
	err  error
}

func (r *reader) fail(format string, arguments ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, arguments...)...)
	}
	r.data = nil
}

// take returns the next count bytes without copying them.
func (r *reader) take(count int) []byte {
	if count < 0 || len(r.data) < count {
		r.fail("cut short")
		return nil
	}
	taken := r.data[:count:count]
	r.data = r.data[count:]
	return taken
}

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		r.fail("cut short")
		return 0
	}
	value := r.data[0]
	r.data = r.data[1:]
	return value
}

func (r *reader) bool() bool {
	value := r.byte()
	if value > 1 {
		r.fail("a boolean of %d", value)
	}
	return value == 1
}

func (r *reader) uint32() uint32 {
	if taken := r.take(4); taken != nil {
		return binary.BigEndian.Uint32(taken)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if taken := r.take(8); taken != nil {
		return binary.BigEndian.Uint64(taken)
	}
	return 0
}

func (r *reader) hash() (hash Hash) {
	copy(hash[:], r.take(HashSize))
	return hash
}

func (r *reader) uvarint() uint64 {
	value, length := binary.Uvarint(r.data)
	if length <= 0 {
		r.fail("cut short or overlong integer")
		return 0
	}
	if length > 1 && r.data[length-1] == 0 {
		r.fail("integer not in its shortest form")
		return 0
	}
	r.data = r.data[length:]
	return value
}

// count reads the length of a list or byte string and fails if it is above most. An element takes
// at least size bytes, so a count that exceeds the data fails at once.
func (r *reader) count(what string, most, size int) int {
	value := r.uvarint()
	if value > uint64(most) {
		r.fail("%d %s, at most %d allowed", value, what, most)
		return 0
	}
	if int(value)*size > len(r.data) {
		r.fail("cut short")
		return 0
	}
	return int(value)
}

// bytes reads a byte string without copying it.
func (r *reader) bytes(what string, most int) []byte {
	return r.take(r.count(what, most, 1))
}

// string reads a byte string as a string that shares the memory of the data.
func (r *reader) string(what string, most int) string {
	taken := r.bytes(what, most)
	return unsafe.String(unsafe.SliceData(taken), len(taken))
}

func (r *reader) amount() Amount {
	head := r.byte()
	length := int(head & 0x7f)
	if length > 16 || head == 0x80 {
		r.fail("amount of %d bytes", length)
		return Amount{}
	}
	magnitude := r.take(length)
	if len(magnitude) > 0 && magnitude[0] == 0 {
		r.fail("amount not in its shortest form")
		return Amount{}
	}
	var high, low uint64
	for _, digit := range magnitude {
		high, low = high<<8|low>>56, low<<8|uint64(digit)
	}
	amount, inRange := amountOf(head&0x80 != 0, high, low)
	if !inRange {
		r.fail("amount overflows 128 bits")
		return Amount{}
	}
	return amount
}

// end returns the first failure. It fails if any bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.data) > 0 {
		r.fail("%d bytes too many", len(r.data))
	}
	return r.err
}
