package allconcur

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// errHeader is made once: a node asks of each frame which engine has it.
var errHeader = fmt.Errorf("%w: no header of version %d or %d", order.ErrFrame, frameVersion,
	promptVersion)

// FrameGeneration returns the generation of a frame without examining the rest of it. A driver
// needs it to keep the frames of a generation that has yet to start here. An error wraps
// order.ErrFrame. No error does not mean that the frame is well formed.
func FrameGeneration(frame []byte) (uint64, error) {
	if len(frame) < failureFrameSize || frame[0] != frameVersion && frame[0] != promptVersion ||
		frame[1] == 0 { // the second byte of another engine's frames
		return 0, errHeader
	}
	return binary.LittleEndian.Uint64(frame[8:]), nil
}

// MessageID identifies a message: its server's, of a round of an epoch.
type MessageID struct {
	Generation uint64
	Epoch      order.Epoch
	Round      order.Round
	Origin     order.ServerID
}

// FrameMessage returns the payload of a message's frame, in the frame's memory, without examining
// the rest of it. Whether the engine takes the frame is another question. It reports false for
// other frames, and for bytes that are no frame.
func FrameMessage(frame []byte) (id MessageID, payload []byte, is bool) {
	if len(frame) < messageHeaderSize || frame[0] != frameVersion && frame[0] != promptVersion ||
		frameKind(frame[1]) != kindUnreliable && frameKind(frame[1]) != kindReliable ||
		frame[0] == promptVersion && !entriesFit(frame) || len(frame) < payloadStart(frame) {
		return MessageID{}, nil, false
	}
	return MessageID{
		Origin:     order.ServerID(binary.LittleEndian.Uint32(frame[4:])),
		Generation: binary.LittleEndian.Uint64(frame[8:]),
		Epoch:      order.Epoch(binary.LittleEndian.Uint64(frame[16:])),
		Round:      order.Round(binary.LittleEndian.Uint64(frame[24:])),
	}, payloadOf(frame), true
}
