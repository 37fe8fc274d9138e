package allconcur

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// The frames of a group. All numbers are little-endian.
//
//	a message (BCAST, RBCAST)                    a failure notification (FAIL)
//	offset size                                  offset size
//	0      1    version, 1                       0      1    version, 1
//	1      1    kind, 1 BCAST or 2 RBCAST        1      1    kind, 3
//	2      2    zero                             2      2    zero
//	4      4    origin                           4      4    target
//	8      8    generation                       8      8    generation
//	16     8    epoch                            16     4    owner
//	24     8    round                            20     4    zero
//	32     -    payload
const (
	frameVersion      = 1
	messageHeaderSize = 32
	failureFrameSize  = 24
)

// frameKind tells what a frame carries.
type frameKind uint8

const (
	// kindUnreliable is ⟨BCAST, m⟩ of AllConcur+: a message of an unreliable round, which travels over G_U.
	kindUnreliable frameKind = 1
	// kindReliable is ⟨RBCAST, m⟩, ⟨BCAST, m⟩ of AllConcur: a message of a reliable round, which travels over G_R.
	kindReliable frameKind = 2
	// kindFailure is ⟨FAIL, p_j, p_k⟩: owner p_k tells that its predecessor p_j failed.
	kindFailure frameKind = 3
)

// frameHeader is a decoded frame without its payload. Only the fields of its kind are set.
type frameHeader struct {
	kind       frameKind
	generation uint64
	epoch      order.Epoch
	round      order.Round
	origin     order.ServerID
	target     order.ServerID
	owner      order.ServerID
}

// FrameSizeMax is the size of the largest frame of a group whose payloads are bounded by maxPayload, in bytes; lanes are sized by it.
func FrameSizeMax(maxPayload int) int { return messageHeaderSize + maxPayload }

// decodeFrame decodes a frame, strictly: exactly the bytes that an encoder makes are accepted. The error wraps order.ErrFrame.
func decodeFrame(frame []byte, maxPayload int) (frameHeader, error) {
	if len(frame) < failureFrameSize {
		return frameHeader{}, fmt.Errorf("%w: %d bytes are too few", order.ErrFrame, len(frame))
	}
	if frame[0] != frameVersion {
		return frameHeader{}, fmt.Errorf("%w: version %d, want %d", order.ErrFrame, frame[0], frameVersion)
	}
	if frame[2] != 0 || frame[3] != 0 {
		return frameHeader{}, fmt.Errorf("%w: reserved bytes are not zero", order.ErrFrame)
	}
	header := frameHeader{kind: frameKind(frame[1]), generation: binary.LittleEndian.Uint64(frame[8:])}
	server := order.ServerID(binary.LittleEndian.Uint32(frame[4:]))
	switch header.kind {
	case kindUnreliable, kindReliable:
		if len(frame) < messageHeaderSize || len(frame) > FrameSizeMax(maxPayload) {
			return frameHeader{}, fmt.Errorf("%w: a message of %d bytes, want %d to %d", order.ErrFrame, len(frame), messageHeaderSize, FrameSizeMax(maxPayload))
		}
		header.origin = server
		header.epoch = order.Epoch(binary.LittleEndian.Uint64(frame[16:]))
		header.round = order.Round(binary.LittleEndian.Uint64(frame[24:]))
		if header.epoch == 0 || header.round == 0 {
			return frameHeader{}, fmt.Errorf("%w: epoch %d, round %d, both count from 1", order.ErrFrame, header.epoch, header.round)
		}
	case kindFailure:
		if len(frame) != failureFrameSize || binary.LittleEndian.Uint32(frame[20:]) != 0 {
			return frameHeader{}, fmt.Errorf("%w: a failure notification of %d bytes, want %d with zeros at the end", order.ErrFrame, len(frame), failureFrameSize)
		}
		header.target = server
		header.owner = order.ServerID(binary.LittleEndian.Uint32(frame[16:]))
	default:
		return frameHeader{}, fmt.Errorf("%w: kind %d", order.ErrFrame, frame[1])
	}
	return header, nil
}

// encodeMessage copies the payload behind its header.
func encodeMessage(kind frameKind, generation uint64, epoch order.Epoch, round order.Round, origin order.ServerID, payload []byte) []byte {
	frame := make([]byte, messageHeaderSize+len(payload))
	frame[0], frame[1] = frameVersion, byte(kind)
	binary.LittleEndian.PutUint32(frame[4:], uint32(origin))
	binary.LittleEndian.PutUint64(frame[8:], generation)
	binary.LittleEndian.PutUint64(frame[16:], uint64(epoch))
	binary.LittleEndian.PutUint64(frame[24:], uint64(round))
	copy(frame[messageHeaderSize:], payload)
	return frame
}

func encodeFailure(generation uint64, target, owner order.ServerID) []byte {
	frame := make([]byte, failureFrameSize)
	frame[0], frame[1] = frameVersion, byte(kindFailure)
	binary.LittleEndian.PutUint32(frame[4:], uint32(target))
	binary.LittleEndian.PutUint64(frame[8:], generation)
	binary.LittleEndian.PutUint32(frame[16:], uint32(owner))
	return frame
}

// payloadOf is the payload of a message's frame, nil where it is empty. Nobody can append into the frame through it.
func payloadOf(frame []byte) []byte {
	if len(frame) <= messageHeaderSize {
		return nil
	}
	return frame[messageHeaderSize:len(frame):len(frame)]
}
