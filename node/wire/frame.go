package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// frameKind says what a frame has. The numbers never change their meaning.
type frameKind byte

const (
	// frameRequest begins a request.
	frameRequest frameKind = 1
	// framePart has a later piece of a request's body.
	framePart frameKind = 2
	// frameCancel ends a request that its asker gave up.
	frameCancel frameKind = 3
	// frameChunk and frameLast have a chunk of an answer. The last one ends it.
	frameChunk frameKind = 4
	frameLast  frameKind = 5
	// frameFailure ends an answer with the reason why it is not whole.
	frameFailure frameKind = 6
	// frameWorking lists requests that the sender works on.
	frameWorking frameKind = 7
)

// Sizes of the fixed beginnings of frames, and bounds of their contents, in bytes or in number.
const (
	idEnd             = 1 + 8
	requestHeaderSize = idEnd + 1 + 4 + 4 + 4
	pieceHeaderSize   = idEnd + 4
	reasonMax         = 512
	workingMax        = 256
)

// HeadMax bounds the head of a request, in bytes.
const HeadMax = 64 << 10

// errFrame means that a frame is malformed, or does not fit those before it.
var errFrame = errors.New("malformed frame")

// requestFrame is the first frame of a request. The slices share the memory of the frame.
type requestFrame struct {
	id           uint64
	kind         byte
	milliseconds uint32 // the asker's remaining time
	total        int    // the length of the body
	head         []byte
	// body is the beginning of the body, or all of it.
	body []byte
}

// piece is a later piece of a request's body, at an offset, or a chunk of an answer, at its number.
type piece struct {
	id    uint64
	at    uint32
	bytes []byte
}

// encodeRequest returns the frames of a request, with the body cut into pieces of size bytes.
func encodeRequest(id uint64, milliseconds uint32, kind byte, head, body []byte, size int,
) [][]byte {
	first := min(len(body), size)
	frame := make([]byte, 0, requestHeaderSize+len(head)+first)
	frame = binary.LittleEndian.AppendUint64(append(frame, byte(frameRequest)), id)
	frame = binary.LittleEndian.AppendUint32(append(frame, kind), milliseconds)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(head)))
	frames := [][]byte{append(append(frame, head...), body[:first]...)}
	for at := first; at < len(body); at += size {
		frames = append(frames, encodePiece(framePart, id, uint32(at),
			body[at:min(len(body), at+size)]))
	}
	return frames
}

// encodePiece returns a frame of kind part, chunk or last, with the parts joined.
func encodePiece(kind frameKind, id uint64, at uint32, parts ...[]byte) []byte {
	size := pieceHeaderSize
	for _, part := range parts {
		size += len(part)
	}
	frame := append(make([]byte, 0, size), byte(kind))
	frame = binary.LittleEndian.AppendUint64(frame, id)
	frame = binary.LittleEndian.AppendUint32(frame, at)
	for _, part := range parts {
		frame = append(frame, part...)
	}
	return frame
}

func encodeCancel(id uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(frameCancel)}, id)
}

// encodeFailure cuts a reason that is too long.
func encodeFailure(id uint64, reason string) []byte {
	reason = strings.ToValidUTF8(reason[:min(len(reason), reasonMax)], "")
	frame := append(make([]byte, 0, idEnd+len(reason)), byte(frameFailure))
	return append(binary.LittleEndian.AppendUint64(frame, id), reason...)
}

func encodeWorking(ids []uint64) []byte {
	frame := append(make([]byte, 0, 1+8*len(ids)), byte(frameWorking))
	for _, id := range ids {
		frame = binary.LittleEndian.AppendUint64(frame, id)
	}
	return frame
}

// frameID returns the id of a frame that is long enough to have one.
func frameID(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame[1:]) }

// decodeRequest decodes a request whose body has at most bodyMax bytes.
func decodeRequest(frame []byte, bodyMax int) (requestFrame, error) {
	if len(frame) < requestHeaderSize {
		return requestFrame{}, fmt.Errorf("%w: a request of %d bytes", errFrame, len(frame))
	}
	r := requestFrame{id: frameID(frame), kind: frame[idEnd],
		milliseconds: binary.LittleEndian.Uint32(frame[idEnd+1:])}
	total := binary.LittleEndian.Uint32(frame[idEnd+5:])
	head := uint64(binary.LittleEndian.Uint32(frame[idEnd+9:]))
	rest := frame[requestHeaderSize:]
	switch {
	case r.milliseconds < 1:
		return requestFrame{}, fmt.Errorf("%w: a request with no time left", errFrame)
	case uint64(total) > uint64(bodyMax):
		return requestFrame{}, fmt.Errorf("%w: a body of %d bytes, at most %d are carried",
			errFrame, total, bodyMax)
	case head > HeadMax || head > uint64(len(rest)):
		return requestFrame{}, fmt.Errorf("%w: a head of %d bytes in %d", errFrame, head, len(rest))
	}
	r.total, r.head, r.body = int(total), rest[:head:head], rest[head:]
	switch {
	case len(r.body) > r.total:
		return requestFrame{}, fmt.Errorf("%w: %d bytes of a body of %d", errFrame, len(r.body),
			r.total)
	case len(r.body) == 0 && r.total > 0:
		return requestFrame{}, fmt.Errorf("%w: nothing of a body of %d bytes", errFrame, r.total)
	}
	return r, nil
}

// decodePiece decodes a frame of kind part, chunk or last. Only the last chunk may be empty.
func decodePiece(frame []byte) (piece, error) {
	if len(frame) < pieceHeaderSize ||
		len(frame) == pieceHeaderSize && frameKind(frame[0]) != frameLast {
		return piece{}, fmt.Errorf("%w: a piece of %d bytes", errFrame, len(frame))
	}
	return piece{id: frameID(frame), at: binary.LittleEndian.Uint32(frame[idEnd:]),
		bytes: frame[pieceHeaderSize:]}, nil
}

func decodeCancel(frame []byte) (uint64, error) {
	if len(frame) != idEnd {
		return 0, fmt.Errorf("%w: a cancel of %d bytes", errFrame, len(frame))
	}
	return frameID(frame), nil
}

func decodeFailure(frame []byte) (id uint64, reason string, err error) {
	if len(frame) < idEnd || len(frame) > idEnd+reasonMax {
		return 0, "", fmt.Errorf("%w: a failure of %d bytes", errFrame, len(frame))
	}
	return frameID(frame), string(frame[idEnd:]), nil
}

func decodeWorking(frame []byte) ([]uint64, error) {
	if len(frame) <= 1 || (len(frame)-1)%8 != 0 || len(frame) > 1+8*workingMax {
		return nil, fmt.Errorf("%w: a sign of %d bytes", errFrame, len(frame))
	}
	ids := make([]uint64, 0, len(frame)/8)
	for data := frame[1:]; len(data) > 0; data = data[8:] {
		ids = append(ids, binary.LittleEndian.Uint64(data))
	}
	return ids, nil
}
