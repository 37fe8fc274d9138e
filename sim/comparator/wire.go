package comparator

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// The frames. All numbers are little-endian. Every frame begins with its version (1 byte) and kind
// (1 byte). The columns are the offset, the size and the contents.
//
//	AllGather's message         LCR's message                   LCR's acknowledgement
//	2   2   zero                2     2   zero                  2   2   zero
//	4   4   origin              4     4   origin                4   4   origin
//	8   8   round               8     4n  clock, by ring place  8   4   sequence number
//	16  -   payload             8+4n  -   payload               12  4   zero
//
//	Paxos: prepare, promise     Paxos: submit, accept, accepted unreliable agreement
//	2   2   acceptor            2   2   acceptor                2   2   step
//	4   4   ballot              4   4   ballot                  4   4   number of blocks
//	8   8   instance            8   8   instance, 0 in submit   8   8   round
//	                            16  4   origin                  16  -   blocks, each behind its
//	                            20  4   zero                            length (4)
//	                            24  8   round
//	                            32  -   payload
const (
	frameVersion    = 1
	shortHeaderSize = 16
	valueHeaderSize = 32
	clockOffset     = 8
	entrySize       = 4
	blockHeaderSize = 4
)

// kind is the kind of a frame.
type kind uint8

const (
	kindMessage kind = iota + 1
	kindLinked
	kindStable
	kindPrepare
	kindPromise
	kindSubmit
	kindAccept
	kindAccepted
	kindBlocks
	kindEnd
)

// newFrame returns a frame with the first eight bytes filled in.
func newFrame(size int, k kind, small uint16, number uint32) []byte {
	frame := make([]byte, size)
	frame[0], frame[1] = frameVersion, byte(k)
	binary.LittleEndian.PutUint16(frame[2:], small)
	binary.LittleEndian.PutUint32(frame[4:], number)
	return frame
}

// kindOf reads the kind of a frame. The error wraps order.ErrFrame.
func kindOf(frame []byte) (kind, error) {
	if len(frame) < shortHeaderSize {
		return 0, fmt.Errorf("%w: %d bytes are too few", order.ErrFrame, len(frame))
	}
	if frame[0] != frameVersion || frame[1] == 0 || frame[1] >= byte(kindEnd) {
		return 0, fmt.Errorf("%w: version %d, kind %d", order.ErrFrame, frame[0], frame[1])
	}
	return kind(frame[1]), nil
}

func smallOf(frame []byte) uint16  { return binary.LittleEndian.Uint16(frame[2:]) }
func numberOf(frame []byte) uint32 { return binary.LittleEndian.Uint32(frame[4:]) }
func wideOf(frame []byte) uint64   { return binary.LittleEndian.Uint64(frame[8:]) }

// rest returns the payload of a frame behind its header, nil if it is empty. Appending to it does
// not write into the frame.
func rest(frame []byte, header int) []byte {
	if len(frame) <= header {
		return nil
	}
	return frame[header:len(frame):len(frame)]
}
