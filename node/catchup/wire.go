package catchup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	kindRequest byte = 1
	kindAnswer  byte = 2
	// kindContentRequest asks for contents instead of blocks.
	kindContentRequest byte = 3
)

const (
	requestSize = 1 + 8 + 8 + ledger.HashSize + 8 + 8 + 4 + 4
	// contentRequestSize is the size of a request for contents.
	contentRequestSize = 1 + 8 + 32 + 8 + 4
	answerHeaderSize   = 1 + 8 + 1 + 8
	blocksHeaderSize   = 4
	blockHeaderSize    = 4
	partHeaderSize     = 8 + 8
	pointSize          = 8 + ledger.HashSize
	reasonMax          = 512
)

// errFrame means that a frame does not belong to this protocol.
var errFrame = errors.New("malformed frame")

// request asks for the blocks after a point, or for contents by their hash.
type request struct {
	id uint64
	// content selects a request for contents, which uses only id, hash, offset and the limit of
	// bytes.
	content bool
	hash    [32]byte
	after   Point
	// to is the last height wanted, above the point's.
	to ledger.Height
	// offset is where to begin in the encoding of the first block. If it is not 0, only that block
	// is wanted.
	offset uint64
	limits limits
	// from is the peer that asks; it is not in the frame.
	from *peer
}

func (r request) encode() []byte {
	if r.content {
		to := append(make([]byte, 0, contentRequestSize), kindContentRequest)
		to = binary.LittleEndian.AppendUint64(to, r.id)
		to = append(to, r.hash[:]...)
		to = binary.LittleEndian.AppendUint64(to, r.offset)
		return binary.LittleEndian.AppendUint32(to, r.limits.bytes)
	}
	to := append(make([]byte, 0, requestSize), kindRequest)
	to = binary.LittleEndian.AppendUint64(to, r.id)
	to = appendPoint(to, r.after)
	to = binary.LittleEndian.AppendUint64(to, uint64(r.to))
	to = binary.LittleEndian.AppendUint64(to, r.offset)
	to = binary.LittleEndian.AppendUint32(to, r.limits.blocks)
	return binary.LittleEndian.AppendUint32(to, r.limits.bytes)
}

func decodeRequest(frame []byte) (request, error) {
	if len(frame) != requestSize || frame[0] != kindRequest {
		return request{}, fmt.Errorf("%w: a request of %d bytes", errFrame, len(frame))
	}
	r := request{id: binary.LittleEndian.Uint64(frame[1:]), after: pointAt(frame[9:])}
	rest := frame[9+pointSize:]
	r.to, r.offset = ledger.Height(binary.LittleEndian.Uint64(rest)),
		binary.LittleEndian.Uint64(rest[8:])
	r.limits = limits{blocks: binary.LittleEndian.Uint32(rest[16:]),
		bytes: binary.LittleEndian.Uint32(rest[20:])}
	switch {
	case r.to <= r.after.Height:
		return request{}, fmt.Errorf("%w: blocks after %d up to %d", errFrame, r.after.Height, r.to)
	case r.limits.blocks < 1 || r.limits.blocks > PieceBlocksMax:
		return request{}, fmt.Errorf("%w: a piece of %d blocks", errFrame, r.limits.blocks)
	case r.limits.bytes < PieceBytesMin || r.limits.bytes > PieceBytesMax:
		return request{}, fmt.Errorf("%w: a piece of %d bytes", errFrame, r.limits.bytes)
	}
	return r, nil
}

func decodeContentRequest(frame []byte) (request, error) {
	if len(frame) != contentRequestSize || frame[0] != kindContentRequest {
		return request{}, fmt.Errorf("%w: a request for contents of %d bytes", errFrame, len(frame))
	}
	r := request{content: true, id: binary.LittleEndian.Uint64(frame[1:]),
		hash: [32]byte(frame[9:41]), offset: binary.LittleEndian.Uint64(frame[41:])}
	if r.limits.bytes = binary.LittleEndian.Uint32(frame[49:]); r.limits.bytes < PieceBytesMin ||
		r.limits.bytes > PieceBytesMax {
		return request{}, fmt.Errorf("%w: a piece of %d bytes", errFrame, r.limits.bytes)
	}
	return r, nil
}

// status says what an answer holds. The numbers never change their meaning.
type status byte

const (
	statusBlocks      status = 1
	statusPart        status = 2
	statusFork        status = 3
	statusBehind      status = 4
	statusUnavailable status = 5
	statusBusy        status = 6
	statusAbsent      status = 7
)

// answer is a server's answer to one request. The slices share the memory of the frame.
type answer struct {
	id     uint64
	status status
	// head is the server's height, or 0 if it is not given.
	head ledger.Height
	// blocks are the encoded blocks after the point, at least one, for statusBlocks.
	blocks [][]byte
	// part is a piece of the first block's encoding from offset on, for statusPart. The whole
	// encoding has total bytes.
	part          []byte
	total, offset uint64
	// theirs is the server's block at the point's height, for statusFork.
	theirs Point
	// absent is the height up to which the server has no blocks, for statusAbsent.
	absent ledger.Height
	// reason is for statusUnavailable.
	reason string
}

func (a answer) encode() []byte {
	size := answerHeaderSize + blocksHeaderSize + partHeaderSize + pointSize + len(a.part) +
		len(a.reason)
	for _, block := range a.blocks {
		size += blockHeaderSize + len(block)
	}
	to := append(make([]byte, 0, size), kindAnswer)
	to = binary.LittleEndian.AppendUint64(to, a.id)
	to = append(to, byte(a.status))
	to = binary.LittleEndian.AppendUint64(to, uint64(a.head))
	switch a.status {
	case statusBlocks:
		to = binary.LittleEndian.AppendUint32(to, uint32(len(a.blocks)))
		for _, block := range a.blocks {
			to = binary.LittleEndian.AppendUint32(to, uint32(len(block)))
			to = append(to, block...)
		}
	case statusPart:
		to = binary.LittleEndian.AppendUint64(to, a.total)
		to = binary.LittleEndian.AppendUint64(to, a.offset)
		to = append(to, a.part...)
	case statusFork:
		to = appendPoint(to, a.theirs)
	case statusAbsent:
		to = binary.LittleEndian.AppendUint64(to, uint64(a.absent))
	case statusUnavailable:
		to = append(to, a.reason[:min(len(a.reason), reasonMax)]...)
	}
	return to
}

// answerID returns the id of the request that a frame claims to answer.
func answerID(frame []byte) (uint64, error) {
	if len(frame) < answerHeaderSize || frame[0] != kindAnswer {
		return 0, fmt.Errorf("%w: an answer of %d bytes", errFrame, len(frame))
	}
	return binary.LittleEndian.Uint64(frame[1:]), nil
}

func decodeAnswer(frame []byte) (answer, error) {
	id, err := answerID(frame)
	if err != nil {
		return answer{}, err
	}
	a := answer{id: id, status: status(frame[9]),
		head: ledger.Height(binary.LittleEndian.Uint64(frame[10:]))}
	rest := frame[answerHeaderSize:]
	switch a.status {
	case statusBlocks:
		a.blocks, err = decodeBlocks(rest)
	case statusPart:
		err = a.decodePart(rest)
	case statusFork:
		if len(rest) != pointSize {
			return answer{}, fmt.Errorf("%w: a point of %d bytes", errFrame, len(rest))
		}
		a.theirs = pointAt(rest)
	case statusAbsent:
		if len(rest) != 8 {
			return answer{}, fmt.Errorf("%w: a height of %d bytes", errFrame, len(rest))
		}
		a.absent = ledger.Height(binary.LittleEndian.Uint64(rest))
	case statusUnavailable:
		if len(rest) > reasonMax {
			return answer{}, fmt.Errorf("%w: a reason of %d bytes", errFrame, len(rest))
		}
		a.reason = string(rest)
	case statusBehind, statusBusy:
		if len(rest) != 0 {
			return answer{}, fmt.Errorf("%w: %d bytes too many", errFrame, len(rest))
		}
	default:
		return answer{}, fmt.Errorf("%w: status %d", errFrame, a.status)
	}
	if err != nil {
		return answer{}, err
	}
	return a, nil
}

func decodeBlocks(data []byte) ([][]byte, error) {
	if len(data) < blocksHeaderSize {
		return nil, fmt.Errorf("%w: no number of blocks", errFrame)
	}
	count, data := binary.LittleEndian.Uint32(data), data[blocksHeaderSize:]
	if count < 1 || count > PieceBlocksMax {
		return nil, fmt.Errorf("%w: a piece of %d blocks", errFrame, count)
	}
	blocks := make([][]byte, count)
	for i := range blocks {
		if len(data) < blockHeaderSize {
			return nil, fmt.Errorf("%w: it ends before block %d of %d", errFrame, i, count)
		}
		length := binary.LittleEndian.Uint32(data)
		data = data[blockHeaderSize:]
		if uint64(length) > uint64(len(data)) {
			return nil, fmt.Errorf("%w: it ends in block %d of %d", errFrame, i, count)
		}
		blocks[i], data = data[:length:length], data[length:]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errFrame, len(data))
	}
	return blocks, nil
}

func (a *answer) decodePart(data []byte) error {
	if len(data) <= partHeaderSize {
		return fmt.Errorf("%w: an empty part", errFrame)
	}
	a.total, a.offset, a.part = binary.LittleEndian.Uint64(data),
		binary.LittleEndian.Uint64(data[8:]), data[partHeaderSize:]
	if a.offset >= a.total || uint64(len(a.part)) > a.total-a.offset {
		return fmt.Errorf("%w: a part of %d bytes at %d of %d", errFrame, len(a.part), a.offset,
			a.total)
	}
	return nil
}

func appendPoint(to []byte, p Point) []byte {
	return append(binary.LittleEndian.AppendUint64(to, uint64(p.Height)), p.Hash[:]...)
}

// pointAt reads the point at the beginning of data, which is long enough for one.
func pointAt(data []byte) Point {
	return Point{Height: ledger.Height(binary.LittleEndian.Uint64(data)),
		Hash: ledger.Hash(data[8:pointSize])}
}

// reasonOf returns an error's text in the form that an answer carries.
func reasonOf(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), reasonMax)], "")
}
