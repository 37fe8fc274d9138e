package streams

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// A message is its version, its kind, the child of its stream (4 bytes), and the content of its
// kind, little-endian:
//
//	ask       the attempt (8 bytes)
//	offer     the attempt (8), the ring's life (2), the position (8), the region's name (the rest)
//	feedback  as package stream lays it out (16)
const (
	wireVersion = 1
	wireHead    = 2 + 4
	offerHead   = 8 + 2 + 8
)

type messageKind uint8

const (
	messageAsk messageKind = iota + 1
	messageOffer
	messageFeedback
)

// errMessage means that bytes are no message of this package.
var errMessage = errors.New("malformed message of a stream")

// message is a message between members. Its kind determines which fields are used.
type message struct {
	kind     messageKind
	child    ledger.ShardID
	attempt  uint64
	life     stream.Life
	position uint64
	region   string
	feedback stream.Feedback
}

// encode appends the message.
func (m *message) encode(to []byte) []byte {
	to = append(to, wireVersion, byte(m.kind))
	to = binary.LittleEndian.AppendUint32(to, uint32(m.child))
	switch m.kind {
	case messageAsk:
		to = binary.LittleEndian.AppendUint64(to, m.attempt)
	case messageOffer:
		to = binary.LittleEndian.AppendUint64(to, m.attempt)
		to = binary.LittleEndian.AppendUint16(to, uint16(m.life))
		to = binary.LittleEndian.AppendUint64(to, m.position)
		to = append(to, m.region...)
	case messageFeedback:
		to = m.feedback.Append(to)
	}
	return to
}

// decode returns errMessage, with the reason, for bytes that encode does not produce.
func decode(b []byte) (message, error) {
	if len(b) < wireHead {
		return message{}, fmt.Errorf("%w: %d bytes", errMessage, len(b))
	}
	if b[0] != wireVersion {
		return message{}, fmt.Errorf("%w: version %d, want %d", errMessage, b[0], wireVersion)
	}
	m := message{kind: messageKind(b[1]), child: ledger.ShardID(binary.LittleEndian.Uint32(b[2:]))}
	rest := b[wireHead:]
	switch {
	case m.kind == messageAsk && len(rest) == 8:
		m.attempt = binary.LittleEndian.Uint64(rest)
	case m.kind == messageOffer && len(rest) > offerHead &&
		len(rest) <= offerHead+rdmanet.RegionNameMax:
		m.attempt, m.life = binary.LittleEndian.Uint64(rest),
			stream.Life(binary.LittleEndian.Uint16(rest[8:]))
		m.position, m.region = binary.LittleEndian.Uint64(rest[10:]), string(rest[offerHead:])
	case m.kind == messageFeedback && len(rest) == stream.FeedbackSize:
		m.feedback = stream.FeedbackFrom(rest)
	default:
		return message{}, fmt.Errorf("%w: kind %d with %d bytes", errMessage, m.kind, len(rest))
	}
	return m, nil
}
