// Package codec is the canonical encoding of the ledger's values and of the entries of its state.
// It consists of fixed-size big-endian integers and hashes, uvarints (LEB128) in their shortest
// form, byte strings after their length, lists after their count, and amounts. An amount is a
// length byte, with the sign in the highest bit, and the magnitude without leading zeros.
//
// Each value has one encoding, and Reader refuses all others. docs/encoding.md has them byte by
// byte. Integers of a fixed size and uvarints are appended with encoding/binary. The types of the
// ledger are above this package: packages ledger and ledger/state embed Reader and add methods that
// read them.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"
)

// hashSize is the size of a hash in bytes.
const hashSize = 32

// ErrMalformed reports that bytes are not a canonical encoding of the expected kind: they are cut
// short, too long, out of bounds or not in the canonical form. Package ledger exports it.
var ErrMalformed = errors.New("ledger: malformed encoding")

// AppendString appends a byte string after its length.
func AppendString[T ~string | ~[]byte](to []byte, value T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(value))), value...)
}

// AppendBool appends a byte: 1 for true, 0 for false.
func AppendBool(to []byte, value bool) []byte {
	if value {
		return append(to, 1)
	}
	return append(to, 0)
}

// AppendAmount appends an amount, given by its sign and magnitude.
func AppendAmount(to []byte, negative bool, high, low uint64) []byte {
	length := (bits.Len64(high) + 7) / 8
	if length > 0 {
		length += 8
	} else {
		length = (bits.Len64(low) + 7) / 8
	}
	head := byte(length)
	if negative {
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

// Reader decodes a canonical encoding. The first failure sticks: later calls return zero values, so
// the caller checks Err once.
type Reader struct {
	// Data is what is left to read.
	Data []byte
	// Err is the first failure.
	Err error
}

// Fail makes the reader fail with ErrMalformed and this reason, unless it has failed before.
func (r *Reader) Fail(format string, arguments ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, arguments...)...)
	}
	r.Data = nil
}

// Take returns the next count bytes without copying them.
func (r *Reader) Take(count int) []byte {
	if count < 0 || len(r.Data) < count {
		r.Fail("cut short")
		return nil
	}
	taken := r.Data[:count:count]
	r.Data = r.Data[count:]
	return taken
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.Data) == 0 {
		r.Fail("cut short")
		return 0
	}
	value := r.Data[0]
	r.Data = r.Data[1:]
	return value
}

// Bool reads what AppendBool appends.
func (r *Reader) Bool() bool {
	value := r.Byte()
	if value > 1 {
		r.Fail("a boolean of %d", value)
	}
	return value == 1
}

// Uint32 reads an integer of 4 bytes.
func (r *Reader) Uint32() uint32 {
	if taken := r.Take(4); taken != nil {
		return binary.BigEndian.Uint32(taken)
	}
	return 0
}

// Uint64 reads an integer of 8 bytes.
func (r *Reader) Uint64() uint64 {
	if taken := r.Take(8); taken != nil {
		return binary.BigEndian.Uint64(taken)
	}
	return 0
}

// Hash reads a hash.
func (r *Reader) Hash() (hash [hashSize]byte) {
	copy(hash[:], r.Take(hashSize))
	return hash
}

// Uvarint reads a uvarint in its shortest form.
func (r *Reader) Uvarint() uint64 {
	// Most have one byte.
	if len(r.Data) > 0 && r.Data[0] < 0x80 {
		value := r.Data[0]
		r.Data = r.Data[1:]
		return uint64(value)
	}
	return r.longUvarint()
}

func (r *Reader) longUvarint() uint64 {
	value, length := binary.Uvarint(r.Data)
	if length <= 0 {
		r.Fail("cut short or overlong integer")
		return 0
	}
	if length > 1 && r.Data[length-1] == 0 {
		r.Fail("integer not in its shortest form")
		return 0
	}
	r.Data = r.Data[length:]
	return value
}

// Uvarint32 reads a uvarint of at most 32 bits.
func (r *Reader) Uvarint32(what string) uint32 {
	value := r.Uvarint()
	if value > 1<<32-1 {
		r.Fail("%s %d", what, value)
	}
	return uint32(value)
}

// Count reads the length of a list or byte string and fails if it is above most. An element takes
// at least size bytes, so a count that exceeds the data fails at once.
func (r *Reader) Count(what string, most, size int) int {
	value := r.Uvarint()
	if value > uint64(most) {
		r.Fail("%d %s, at most %d allowed", value, what, most)
		return 0
	}
	if int(value)*size > len(r.Data) {
		r.Fail("cut short")
		return 0
	}
	return int(value)
}

// Bytes reads a byte string without copying it.
func (r *Reader) Bytes(what string, most int) []byte {
	// Most have a length of one byte.
	if len(r.Data) > 0 && r.Data[0] < 0x80 {
		if end := 1 + int(r.Data[0]); end <= len(r.Data) && end-1 <= most {
			taken := r.Data[1:end:end]
			r.Data = r.Data[end:]
			return taken
		}
	}
	return r.Take(r.Count(what, most, 1))
}

// String reads a byte string as a string that shares the memory of the data.
func (r *Reader) String(what string, most int) string {
	taken := r.Bytes(what, most)
	return unsafe.String(unsafe.SliceData(taken), len(taken))
}

// Amount reads what AppendAmount appends. The magnitude may have all 128 bits: the caller checks
// that the amount is in range.
func (r *Reader) Amount() (negative bool, high, low uint64) {
	if len(r.Data) == 0 {
		r.Fail("cut short")
		return false, 0, 0
	}
	head := r.Data[0]
	length := int(head & 0x7f)
	if length > 16 || head == 0x80 {
		r.Fail("amount of %d bytes", length)
		return false, 0, 0
	}
	if len(r.Data) <= length {
		r.Fail("cut short")
		return false, 0, 0
	}
	magnitude := r.Data[1 : 1+length]
	r.Data = r.Data[1+length:]
	if length > 0 && magnitude[0] == 0 {
		r.Fail("amount not in its shortest form")
		return false, 0, 0
	}
	for _, digit := range magnitude {
		high, low = high<<8|low>>56, low<<8|uint64(digit)
	}
	return head&0x80 != 0, high, low
}

// End returns the first failure. It fails if any bytes are left.
func (r *Reader) End() error {
	if r.Err == nil && len(r.Data) > 0 {
		r.Fail("%d bytes too many", len(r.Data))
	}
	return r.Err
}
