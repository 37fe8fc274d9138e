package allconcur

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// FrameGeneration reads the generation that a frame belongs to, without looking at the rest of it: a driver keeps the frames of a
// generation that has yet to start here. The error wraps order.ErrFrame; no error does not mean that the frame is well formed.
func FrameGeneration(frame []byte) (uint64, error) {
	if len(frame) < failureFrameSize || frame[0] != frameVersion {
		return 0, fmt.Errorf("%w: %d bytes without a header of version %d", order.ErrFrame, len(frame), frameVersion)
	}
	return binary.LittleEndian.Uint64(frame[8:]), nil
}
