package trains

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// The frames of a ring. There are two layouts; Config.Layout chooses one for the group. In the
// house's layout numbers are little-endian:
//
//	a train                                 a wake
//	offset size                             offset size
//	0      1    kind, 1                     0      1    kind, 2
//	1      1    zero                        1      1    zero
//	2      8    generation                  2      8    generation
//	10     1    id                          10     8    round
//	11     8    clock: hops so far
//	19     8    rotation
//	27     -    wagons
//
//	a wagon of a train                      a wagon's own frame
//	offset size                             offset size
//	0      2    origin                      0      1    kind, 3
//	2      1    rotations since the origin  1      1    zero
//	            attached it, 0 or 1         2      8    generation
//	3      4    length of the payload,      10     2    origin
//	            highest bit: own frame      12     8    round
//	7      -    payload                     20     -    payload, one byte or more
//
// A wagon with a large payload has a frame of its own, which its origin makes and all servers pass
// on as it is: nobody copies the payload. It goes on the lane before its train. In the train the
// highest bit of the length says so, and the payload is left out. The own frames since the last
// train are those of the train, in its order. A train that lists others is refused, so that no gap
// in a lane can take a wagon away from its train.
//
// In the paper's layout numbers are big-endian, clock and rotations are their lowest bytes, and all
// lengths count the whole train or wagon [TRAINS, appendix A]:
//
//	a train                                 a wagon
//	offset size                             offset size
//	0      4    length                      0      4    length
//	4      1    type, 1                     4      2    sender
//	5      2    zero: of the membership     6      1    rotation
//	            service                     7      -    messages
//	7      1    id
//	8      1    clock
//	9      1    rotation                    a message of a wagon: 4 length, 1 type, message
//	10     -    wagons
//
//	a wake: as a train of type 2, with 8 bytes of round instead of id, clock, rotation and wagons
const (
	houseTrainSize = 27
	houseWakeSize  = 18
	paperTrainSize = 10
	paperWakeSize  = 15
	// wagonHeaderSize is the same in both layouts.
	wagonHeaderSize = 7
	// wagonFrameSize is the header of a wagon's own frame.
	wagonFrameSize = 20
	// ownFrame is the bit of a wagon's length that says that the payload has a frame of its own.
	ownFrame = 1 << 31
	// messageHeaderSize is the header of a message in the paper's wagons.
	messageHeaderSize = 5
	// ageMax is the most rotations that a wagon travels. It may be in sight of the server that
	// begins a rotation right before it has been everywhere.
	ageMax = 1
)

// frameKind is the kind of a frame.
type frameKind uint8

const (
	// kindTrain is a train with its wagons.
	kindTrain frameKind = 1
	// kindWake asks the servers with resting trains to let them go (rest.go).
	kindWake frameKind = 2
	// kindWagon is a wagon of the train that follows on the same lane.
	kindWagon frameKind = 3
)

// frameHeader is a decoded frame without its wagons. Only the fields of its kind are set. In the
// paper's layout clock and rotation have their lowest byte only.
type frameHeader struct {
	kind       frameKind
	generation uint64
	id         uint8
	clock      uint64
	rotation   uint64
	round      order.Round
	origin     order.ServerID
}

// wagonView is a wagon in a train's memory.
type wagonView struct {
	origin order.ServerID
	// age is how many rotations ago the origin attached it, seen from its train.
	age uint8
	// size is the length of the payload. If apart is set, the payload is in a frame of its own.
	size    int
	apart   bool
	payload []byte
	// next is where the next wagon of the train begins.
	next int
}

// FrameSizeMax returns the size in bytes of the largest frame of a ring whose payloads are bounded
// by maxPayload. Lanes are sized by it.
func FrameSizeMax(servers, maxPayload int) int {
	return houseTrainSize + servers*(wagonHeaderSize+maxPayload)
}

// errHeader is made once: a node asks of each frame which engine has it.
var errHeader = fmt.Errorf("%w: no header of a ring's frame", order.ErrFrame)

// FrameGeneration returns the generation of a frame in the house's layout without examining the
// rest of it. A driver needs it to keep the frames of a generation that has yet to start here. An
// error wraps order.ErrFrame. No error does not mean that the frame is well formed.
func FrameGeneration(frame []byte) (uint64, error) {
	if len(frame) < houseWakeSize || frame[0] < byte(kindTrain) || frame[0] > byte(kindWagon) ||
		frame[1] != 0 {
		return 0, errHeader
	}
	return binary.LittleEndian.Uint64(frame[2:]), nil
}

// decodeHeader decodes a frame up to its wagons, strictly: it accepts exactly the bytes that an
// encoder returns. An error wraps order.ErrFrame.
func decodeHeader(layout Layout, frame []byte) (frameHeader, error) {
	if layout == LayoutPaper {
		return decodePaper(frame)
	}
	if len(frame) < houseWakeSize || frame[1] != 0 {
		return frameHeader{}, fmt.Errorf("%w: %d bytes are no frame", order.ErrFrame, len(frame))
	}
	h := frameHeader{kind: frameKind(frame[0]), generation: binary.LittleEndian.Uint64(frame[2:])}
	switch {
	case h.kind == kindWake && len(frame) == houseWakeSize:
		h.round = order.Round(binary.LittleEndian.Uint64(frame[10:]))
	case h.kind == kindTrain && len(frame) >= houseTrainSize:
		h.id = frame[10]
		h.clock = binary.LittleEndian.Uint64(frame[11:])
		h.rotation = binary.LittleEndian.Uint64(frame[19:])
	case h.kind == kindWagon && len(frame) > wagonFrameSize:
		h.origin = order.ServerID(binary.LittleEndian.Uint16(frame[10:]))
		h.round = order.Round(binary.LittleEndian.Uint64(frame[12:]))
	default:
		return frameHeader{}, fmt.Errorf("%w: kind %d with %d bytes", order.ErrFrame, frame[0],
			len(frame))
	}
	return h, nil
}

func decodePaper(frame []byte) (frameHeader, error) {
	if len(frame) < paperTrainSize || uint64(binary.BigEndian.Uint32(frame)) != uint64(len(frame)) {
		return frameHeader{}, fmt.Errorf("%w: %d bytes are no frame", order.ErrFrame, len(frame))
	}
	h := frameHeader{kind: frameKind(frame[4])}
	switch {
	case frame[5] != 0 || frame[6] != 0:
		return frameHeader{}, fmt.Errorf("%w: word of a membership service", order.ErrFrame)
	case h.kind == kindWake && len(frame) == paperWakeSize:
		h.round = order.Round(binary.BigEndian.Uint64(frame[7:]))
	case h.kind == kindTrain:
		h.id, h.clock, h.rotation = frame[7], uint64(frame[8]), uint64(frame[9])
	default:
		return frameHeader{}, fmt.Errorf("%w: type %d with %d bytes", order.ErrFrame, frame[4],
			len(frame))
	}
	return h, nil
}

// wagonsAt returns where the wagons of a train begin.
func wagonsAt(layout Layout) int {
	if layout == LayoutPaper {
		return paperTrainSize
	}
	return houseTrainSize
}

// nextWagon decodes the wagon at an offset of a train. It reports false if there is no whole wagon.
// The payload is nil if it is empty or has a frame of its own. An append to it cannot write into
// the frame.
func nextWagon(layout Layout, frame []byte, at int) (wagonView, bool) {
	if len(frame)-at < wagonHeaderSize {
		return wagonView{}, false
	}
	var w wagonView
	size := int64(0)
	if layout == LayoutPaper {
		size = int64(binary.BigEndian.Uint32(frame[at:])) - wagonHeaderSize
		w.origin = order.ServerID(binary.BigEndian.Uint16(frame[at+4:]))
		w.age = frame[9] - frame[at+6]
	} else {
		length := binary.LittleEndian.Uint32(frame[at+3:])
		size, w.apart = int64(length&^ownFrame), length&ownFrame != 0
		w.origin = order.ServerID(binary.LittleEndian.Uint16(frame[at:]))
		w.age = frame[at+2]
	}
	w.size, w.next = int(size), at+wagonHeaderSize
	switch {
	case w.apart && size == 0 || size < 0:
		return wagonView{}, false
	case w.apart || size == 0:
		return w, true
	case size > int64(len(frame)-w.next):
		return wagonView{}, false
	}
	from := w.next
	w.next += w.size
	w.payload = frame[from:w.next:w.next]
	return w, true
}

// appendTrain appends the header of a train. In the paper's layout the length follows with
// finishTrain.
func appendTrain(b []byte, layout Layout, generation uint64, id uint8, clock,
	rotation uint64) []byte {
	if layout == LayoutPaper {
		return append(b, 0, 0, 0, 0, byte(kindTrain), 0, 0, id, byte(clock), byte(rotation))
	}
	b = append(b, byte(kindTrain), 0)
	b = binary.LittleEndian.AppendUint64(b, generation)
	b = append(b, id)
	b = binary.LittleEndian.AppendUint64(b, clock)
	return binary.LittleEndian.AppendUint64(b, rotation)
}

// finishTrain completes a frame of trains after its last wagon.
func finishTrain(frame []byte, layout Layout) {
	if layout == LayoutPaper {
		binary.BigEndian.PutUint32(frame, uint32(len(frame)))
	}
}

// appendWagon appends a wagon that its origin attached in a rotation, an age of rotations ago. If
// apart is set, the payload is left out, since it has a frame of its own.
func appendWagon(b []byte, layout Layout, origin order.ServerID, rotation uint64, age uint8,
	payload []byte, apart bool) []byte {
	if layout == LayoutPaper {
		b = binary.BigEndian.AppendUint32(b, uint32(wagonHeaderSize+len(payload)))
		b = binary.BigEndian.AppendUint16(b, uint16(origin))
		return append(append(b, byte(rotation)), payload...)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(origin))
	b = append(b, age)
	if apart {
		return binary.LittleEndian.AppendUint32(b, uint32(len(payload))|ownFrame)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// appendWagonFrame appends the frame of a wagon that has one of its own.
func appendWagonFrame(b []byte, generation uint64, origin order.ServerID, round order.Round,
	payload []byte) []byte {
	b = append(b, byte(kindWagon), 0)
	b = binary.LittleEndian.AppendUint64(b, generation)
	b = binary.LittleEndian.AppendUint16(b, uint16(origin))
	b = binary.LittleEndian.AppendUint64(b, uint64(round))
	return append(b, payload...)
}

// AppendMessage appends a message to the payload of a wagon as [TRAINS, appendix A] has it: its
// length, its type, and the message itself. The engine does not need it: what a payload consists of
// is the driver's business. It serves to measure what the paper computes.
func AppendMessage(payload []byte, kind uint8, message []byte) []byte {
	payload = binary.BigEndian.AppendUint32(payload, uint32(messageHeaderSize+len(message)))
	return append(append(payload, kind), message...)
}

// NextMessage splits the payload of a wagon that AppendMessage made: it returns the type of the
// first message, the message itself, and the rest of the payload. It reports false if the payload
// does not begin with a whole message.
func NextMessage(payload []byte) (kind uint8, message, rest []byte, whole bool) {
	if len(payload) < messageHeaderSize {
		return 0, nil, nil, false
	}
	size := int64(binary.BigEndian.Uint32(payload))
	if size < messageHeaderSize || size > int64(len(payload)) {
		return 0, nil, nil, false
	}
	return payload[4], payload[messageHeaderSize:size:size], payload[size:], true
}

// encodeWake returns the frame that wakes resting trains.
func encodeWake(layout Layout, generation uint64, round order.Round) []byte {
	if layout == LayoutPaper {
		frame := binary.BigEndian.AppendUint32(make([]byte, 0, paperWakeSize), paperWakeSize)
		frame = append(frame, byte(kindWake), 0, 0)
		return binary.BigEndian.AppendUint64(frame, uint64(round))
	}
	frame := append(make([]byte, 0, houseWakeSize), byte(kindWake), 0)
	frame = binary.LittleEndian.AppendUint64(frame, generation)
	return binary.LittleEndian.AppendUint64(frame, uint64(round))
}

// widen returns the number nearest to a known one whose lowest byte is the given one. The paper
// shrinks clocks and rotations to a byte. Two numbers that a server compares differ by less than
// 128: a rotation is 64 hops at most.
func widen(low uint64, known uint64) uint64 {
	return known + uint64(int64(int8(uint8(low)-uint8(known))))
}
