package intake

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The costs of decoded values in bytes, above their content.
const (
	costOfElement = 32 // a pointer or a header in a list that grows by doubling, and a oneof's box
	costOfText    = 32 // the same for a list of texts, and the rounding of the allocator
	costOfScalar  = 16
)

// CheckWire reports an error if the request, in protobuf's wire form, is over the limits of its
// call. It reads malformed data up to the place where the decoder stops.
func (t *Table) CheckWire(request protoreflect.FullName, data []byte) error {
	entry := t.requests[request]
	if entry == nil {
		return fmt.Errorf("%s is not a request", request)
	}
	if len(data) > entry.limits.Bytes {
		return fmt.Errorf("the request has %d bytes, at most %d are allowed", len(data),
			entry.limits.Bytes)
	}
	return entry.shape.walk(data, entry.spendingFor(len(data)))
}

// walk counts a message's fields. A message field that occurs again continues the message of the
// first.
func (s *shape) walk(data []byte, spending *spending) error {
	seen := make([]int, len(s.fields))
	for len(data) > 0 {
		number, kind, length := protowire.ConsumeTag(data)
		if length < 0 {
			return protowire.ParseError(length)
		}
		content := data[length:]
		size := protowire.ConsumeFieldValue(number, kind, content)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data, content = content[size:], content[:size]
		entry := s.fields[number]
		if entry == nil || kind != protowire.BytesType {
			if err := entry.scalar(length+size, spending, seen); err != nil {
				return err
			}
			continue
		}
		value, _ := protowire.ConsumeBytes(content)
		if err := entry.lengthed(value, spending, seen); err != nil {
			return err
		}
	}
	return nil
}

// scalar counts a number, or an unknown field (without an entry), of so many bytes.
func (f *field) scalar(bytes int, spending *spending, seen []int) error {
	if f != nil && f.list {
		if seen[f.index]++; seen[f.index] > f.limit {
			return tooMany(f.name, f.limit)
		}
	}
	return spending.take(costOfScalar + 2*bytes)
}

// packed returns how many numbers packed ones are, at most.
func (f *field) packed(value []byte) (count int) {
	if !f.varint {
		return len(value) // at least a byte each
	}
	for _, each := range value {
		if each < 0x80 { // the last byte of a number
			count++
		}
	}
	return count
}

// lengthed counts a field with a length: a text, a message, or packed numbers.
func (f *field) lengthed(value []byte, spending *spending, seen []int) error {
	occurrences := 1
	if !f.text && f.message == nil {
		occurrences = f.packed(value)
	}
	// A text that occurs again replaces the first. It costs memory, too, but nothing merges.
	if seen[f.index] += occurrences; seen[f.index] > f.limit && (f.list || f.message != nil) {
		return tooMany(f.name, f.limit)
	}
	switch {
	case f.message != nil:
		if err := spending.take(f.message.size + costOfElement); err != nil {
			return err
		}
		return f.message.walk(value, spending)
	case f.text && f.list:
		return spending.take(len(value) + costOfText + costOfElement/2)
	case f.text:
		return spending.take(len(value) + costOfScalar)
	}
	return spending.take(costOfScalar * occurrences)
}
