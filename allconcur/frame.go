package allconcur

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// FrameGeneration returns the generation of a frame without examining the rest of it. A driver
// needs it to keep the frames of a generation that has yet to start here. An error wraps
// order.ErrFrame. No error does not mean that the frame is well formed.
func FrameGeneration(frame []byte) (uint64, error) {
	if len(frame) < failureFrameSize || frame[0] != frameVersion {
		return 0, fmt.Errorf("%w: %d bytes without a header of version %d", order.ErrFrame,
			len(frame), frameVersion)
	}
	return binary.LittleEndian.Uint64(frame[8:]), nil
}
