package abci

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The bounds of what an application may answer.
const (
	maxMessageBytes = 256 << 20
	// maxParts bounds the repeated fields of one message: an empty one takes two bytes on the wire
	// and forty in memory.
	maxParts = 1 << 20
)

// ErrMalformed reports bytes that are no message of ABCI.
var ErrMalformed = errors.New("abci: malformed message")

func malformed(format string, arguments ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, arguments...)...)
}

// message is a protobuf message, described by its fields.
type message interface{ fields() []field }

// field is a field of a message. At points to its value: *string, *[]byte, *bool, *int32, *int64,
// *uint32, *uint64, *time.Time, *time.Duration, *[]string, *[][]byte, a message (always encoded),
// or a parts.
type field struct {
	number protowire.Number
	at     any
}

// parts are the messages of a repeated or optional field.
type parts interface {
	count() int
	part(int) message
	add() message
}

// pointerTo is a message by its pointer.
type pointerTo[T any] interface {
	*T
	message
}

// many is a repeated message.
type many[T any, P pointerTo[T]] struct{ all *[]T }

func (m many[T, P]) count() int         { return len(*m.all) }
func (m many[T, P]) part(i int) message { return P(&(*m.all)[i]) }
func (m many[T, P]) add() message {
	*m.all = append(*m.all, *new(T))
	return m.part(len(*m.all) - 1)
}

// optional is a message that may be absent.
type optional[T any, P pointerTo[T]] struct{ one **T }

func (o optional[T, P]) count() int {
	if *o.one == nil {
		return 0
	}
	return 1
}
func (o optional[T, P]) part(int) message { return P(*o.one) }
func (o optional[T, P]) add() message {
	if *o.one == nil {
		*o.one = new(T)
	}
	return P(*o.one)
}

func appendBytes[B string | []byte](to []byte, number protowire.Number, value B) []byte {
	to = protowire.AppendTag(to, number, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(len(value)))
	return append(to, value...)
}

func appendNumber(to []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return to
	}
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}

// appendMoment appends seconds and nanoseconds as the well-known types of protobuf have them.
func appendMoment(to []byte, number protowire.Number, seconds, nanoseconds int64) []byte {
	inner := appendNumber(nil, 1, uint64(seconds))
	return appendBytes(to, number, appendNumber(inner, 2, uint64(nanoseconds)))
}

// encode appends a message. As in proto3, a field with its default is left out, other than a
// message that cannot be absent.
func encode(to []byte, m message) []byte {
	for _, f := range m.fields() {
		switch at := f.at.(type) {
		case *string:
			if *at != "" {
				to = appendBytes(to, f.number, *at)
			}
		case *[]byte:
			if len(*at) > 0 {
				to = appendBytes(to, f.number, *at)
			}
		case *bool:
			to = appendNumber(to, f.number, protowire.EncodeBool(*at))
		case *int32:
			to = appendNumber(to, f.number, uint64(int64(*at)))
		case *int64:
			to = appendNumber(to, f.number, uint64(*at))
		case *uint32:
			to = appendNumber(to, f.number, uint64(*at))
		case *uint64:
			to = appendNumber(to, f.number, *at)
		case *time.Time:
			to = appendMoment(to, f.number, at.Unix(), int64(at.Nanosecond()))
		case *time.Duration:
			to = appendMoment(to, f.number, int64(*at/time.Second), int64(*at%time.Second))
		case *[]string:
			for _, each := range *at {
				to = appendBytes(to, f.number, each)
			}
		case *[][]byte:
			for _, each := range *at {
				to = appendBytes(to, f.number, each)
			}
		case message:
			to = appendBytes(to, f.number, encode(nil, at))
		case parts:
			for i := range at.count() {
				to = appendBytes(to, f.number, encode(nil, at.part(i)))
			}
		}
	}
	return to
}

// decoder decodes one message. Left is how many more parts of repeated fields it may have.
type decoder struct{ left int }

// decode fills a message. It skips unknown fields, takes the last of several values of a field, as
// protobuf does, and refuses everything else that is no message. What it returns shares no memory
// with data.
func decode(data []byte, m message) error {
	d := decoder{left: maxParts}
	return d.message(data, m)
}

func (d *decoder) message(data []byte, m message) error {
	known := m.fields()
	for len(data) > 0 {
		number, kind, length := protowire.ConsumeTag(data)
		if length < 0 {
			return malformed("%w", protowire.ParseError(length))
		}
		data = data[length:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return malformed("field %d: %w", number, protowire.ParseError(size))
		}
		value := data[:size]
		data = data[size:]
		for _, f := range known {
			if f.number != number {
				continue
			}
			if err := d.value(f, kind, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// value fills one field. The value is complete.
func (d *decoder) value(f field, kind protowire.Type, value []byte) error {
	switch f.at.(type) {
	case *bool, *int32, *int64, *uint32, *uint64:
		if kind != protowire.VarintType {
			return malformed("field %d has wire type %d, not a number", f.number, kind)
		}
		number, _ := protowire.ConsumeVarint(value)
		setNumber(f.at, number)
		return nil
	}
	if kind != protowire.BytesType {
		return malformed("field %d has wire type %d, not bytes", f.number, kind)
	}
	content, _ := protowire.ConsumeBytes(value)
	switch at := f.at.(type) {
	case *string:
		*at = string(content)
	case *[]byte:
		*at = append([]byte(nil), content...)
	case *time.Time:
		var moment moment
		if err := d.message(content, &moment); err != nil {
			return err
		}
		*at = time.Unix(moment.seconds, int64(moment.nanoseconds)).UTC()
	case *time.Duration:
		var moment moment
		if err := d.message(content, &moment); err != nil {
			return err
		}
		if moment.seconds > math.MaxInt64/int64(time.Second)-1 ||
			moment.seconds < math.MinInt64/int64(time.Second)+1 {
			return malformed("field %d is a duration of %d s", f.number, moment.seconds)
		}
		*at = time.Duration(moment.seconds)*time.Second + time.Duration(moment.nanoseconds)
	case message:
		return d.message(content, at)
	case *[]string:
		*at = append(*at, string(content))
		return d.take()
	case *[][]byte:
		*at = append(*at, append([]byte(nil), content...))
		return d.take()
	case parts:
		if err := d.take(); err != nil {
			return err
		}
		return d.message(content, at.add())
	}
	return nil
}

func (d *decoder) take() error {
	if d.left--; d.left < 0 {
		return malformed("more than %d parts of repeated fields", maxParts)
	}
	return nil
}

func setNumber(at any, number uint64) {
	switch at := at.(type) {
	case *bool:
		*at = protowire.DecodeBool(number)
	case *int32:
		*at = int32(number)
	case *int64:
		*at = int64(number)
	case *uint32:
		*at = uint32(number)
	case *uint64:
		*at = number
	}
}

// moment is a Timestamp or a Duration.
type moment struct {
	seconds     int64
	nanoseconds int32
}

func (m *moment) fields() []field { return []field{{1, &m.seconds}, {2, &m.nanoseconds}} }

// appendFrame appends a request with its length before it, as it goes over the socket.
func appendFrame(to []byte, kind protowire.Number, request message) []byte {
	return appendEnvelope(to, kind, encode(nil, request))
}

func appendEnvelope(to []byte, kind protowire.Number, encoded []byte) []byte {
	envelope := appendBytes(nil, kind, encoded)
	to = binary.AppendUvarint(to, uint64(len(envelope)))
	return append(to, envelope...)
}

// readFrame reads one frame of at most limit bytes. It takes memory as bytes come, and not as many
// as the length announces.
func readFrame(from *bufio.Reader, limit int) ([]byte, error) {
	size, err := binary.ReadUvarint(from)
	if err != nil {
		return nil, err
	}
	if size > uint64(limit) {
		return nil, malformed("a message of %d bytes, and at most %d are allowed", size, limit)
	}
	frame, err := io.ReadAll(io.LimitReader(from, int64(size)))
	if err == nil && uint64(len(frame)) < size {
		err = io.ErrUnexpectedEOF
	}
	return frame, err
}

// openEnvelope returns the kind of an answer, and its content.
func openEnvelope(frame []byte) (kind protowire.Number, content []byte, err error) {
	for len(frame) > 0 {
		number, wire, length := protowire.ConsumeTag(frame)
		if length < 0 {
			return 0, nil, malformed("%w", protowire.ParseError(length))
		}
		frame = frame[length:]
		size := protowire.ConsumeFieldValue(number, wire, frame)
		if size < 0 {
			return 0, nil, malformed("answer %d: %w", number, protowire.ParseError(size))
		}
		if wire == protowire.BytesType {
			kind = number
			content, _ = protowire.ConsumeBytes(frame[:size])
		}
		frame = frame[size:]
	}
	if kind == 0 {
		return 0, nil, malformed("an answer without content")
	}
	return kind, content, nil
}
