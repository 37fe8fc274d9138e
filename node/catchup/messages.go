package catchup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The kinds of requests.
const (
	kindBlocks       byte = 1
	kindContents     byte = 2
	kindCertificates byte = 3
)

const (
	requestSize        = pointSize + 8 + 8 + 4 + 4
	contentRequestSize = 32 + 8 + 4
	answerHeaderSize   = 1 + 8
	blocksHeaderSize   = 4
	blockHeaderSize    = 4
	partHeaderSize     = 8 + 8
	pointSize          = 8 + ledger.HashSize
	reasonMax          = 512
	// chunkBytes is how many bytes of blocks the server collects before it sends them.
	chunkBytes = 64 << 10
)

// errMessage means that a request or an answer is malformed.
var errMessage = errors.New("malformed message")

// request asks for the blocks after a point.
type request struct {
	after Point
	// to is the last height wanted, above the point's.
	to ledger.Height
	// offset is where to begin in the encoding of the first block. If it is not 0, only that block
	// is wanted.
	offset uint64
	limits limits
	// from is the peer that asks; it is not in the encoding.
	from rdmanet.PeerID
}

// answerMax bounds an answer within the limits, in bytes.
func (l limits) answerMax() int {
	chunks := int(l.bytes)/chunkBytes + 1
	return int(l.bytes) + int(l.blocks)*blockHeaderSize +
		chunks*(answerHeaderSize+blocksHeaderSize) + partHeaderSize + pointSize + reasonMax
}

func (r request) encode() []byte {
	to := appendPoint(make([]byte, 0, requestSize), r.after)
	to = binary.LittleEndian.AppendUint64(to, uint64(r.to))
	to = binary.LittleEndian.AppendUint64(to, r.offset)
	to = binary.LittleEndian.AppendUint32(to, r.limits.blocks)
	return binary.LittleEndian.AppendUint32(to, r.limits.bytes)
}

func decodeRequest(data []byte) (request, error) {
	if len(data) != requestSize {
		return request{}, fmt.Errorf("%w: a request of %d bytes", errMessage, len(data))
	}
	r := request{after: pointAt(data)}
	rest := data[pointSize:]
	r.to, r.offset = ledger.Height(binary.LittleEndian.Uint64(rest)),
		binary.LittleEndian.Uint64(rest[8:])
	r.limits = limits{blocks: binary.LittleEndian.Uint32(rest[16:]),
		bytes: binary.LittleEndian.Uint32(rest[20:])}
	switch {
	case r.to <= r.after.Height:
		return request{}, fmt.Errorf("%w: blocks after %d up to %d", errMessage, r.after.Height,
			r.to)
	case r.limits.blocks < 1 || r.limits.blocks > PieceBlocksMax:
		return request{}, fmt.Errorf("%w: a piece of %d blocks", errMessage, r.limits.blocks)
	case r.limits.bytes < PieceBytesMin || r.limits.bytes > PieceBytesMax:
		return request{}, fmt.Errorf("%w: a piece of %d bytes", errMessage, r.limits.bytes)
	}
	return r, nil
}

// contentRequest asks for contents by their hash, from an offset on.
type contentRequest struct {
	hash   [32]byte
	offset uint64
	bytes  uint32 // of a piece
}

func (r contentRequest) encode() []byte {
	to := append(make([]byte, 0, contentRequestSize), r.hash[:]...)
	to = binary.LittleEndian.AppendUint64(to, r.offset)
	return binary.LittleEndian.AppendUint32(to, r.bytes)
}

func decodeContentRequest(data []byte) (contentRequest, error) {
	if len(data) != contentRequestSize {
		return contentRequest{}, fmt.Errorf("%w: a request for contents of %d bytes", errMessage,
			len(data))
	}
	r := contentRequest{hash: [32]byte(data), offset: binary.LittleEndian.Uint64(data[32:]),
		bytes: binary.LittleEndian.Uint32(data[40:])}
	if r.bytes < PieceBytesMin || r.bytes > PieceBytesMax {
		return contentRequest{}, fmt.Errorf("%w: a piece of %d bytes", errMessage, r.bytes)
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

// answer is a server's answer to one request, in one chunk. Blocks may continue in further chunks,
// which are answers too. The slices share the memory of the chunk.
type answer struct {
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

// encode returns the parts as one.
func (a answer) encode() []byte { return slices.Concat(a.parts()...) }

// parts returns the encoding, in parts that share the memory of the answer.
func (a answer) parts() [][]byte {
	to := make([]byte, 0, answerHeaderSize+blocksHeaderSize+len(a.blocks)*blockHeaderSize+
		partHeaderSize+pointSize+len(a.reason))
	to = append(to, byte(a.status))
	to = binary.LittleEndian.AppendUint64(to, uint64(a.head))
	switch a.status {
	case statusBlocks:
		to = binary.LittleEndian.AppendUint32(to, uint32(len(a.blocks)))
		for _, block := range a.blocks {
			to = binary.LittleEndian.AppendUint32(to, uint32(len(block)))
		}
		return append([][]byte{to}, a.blocks...)
	case statusPart:
		to = binary.LittleEndian.AppendUint64(to, a.total)
		to = binary.LittleEndian.AppendUint64(to, a.offset)
		return [][]byte{to, a.part}
	case statusFork:
		to = appendPoint(to, a.theirs)
	case statusAbsent:
		to = binary.LittleEndian.AppendUint64(to, uint64(a.absent))
	case statusUnavailable:
		to = append(to, a.reason[:min(len(a.reason), reasonMax)]...)
	}
	return [][]byte{to}
}

func decodeAnswer(chunk []byte) (a answer, err error) {
	if len(chunk) < answerHeaderSize {
		return answer{}, fmt.Errorf("%w: an answer of %d bytes", errMessage, len(chunk))
	}
	a.status, a.head = status(chunk[0]), ledger.Height(binary.LittleEndian.Uint64(chunk[1:]))
	rest := chunk[answerHeaderSize:]
	switch a.status {
	case statusBlocks:
		a.blocks, err = decodeBlocks(rest)
	case statusPart:
		err = a.decodePart(rest)
	case statusFork:
		if len(rest) != pointSize {
			return answer{}, fmt.Errorf("%w: a point of %d bytes", errMessage, len(rest))
		}
		a.theirs = pointAt(rest)
	case statusAbsent:
		if len(rest) != 8 {
			return answer{}, fmt.Errorf("%w: a height of %d bytes", errMessage, len(rest))
		}
		a.absent = ledger.Height(binary.LittleEndian.Uint64(rest))
	case statusUnavailable:
		if len(rest) > reasonMax {
			return answer{}, fmt.Errorf("%w: a reason of %d bytes", errMessage, len(rest))
		}
		a.reason = string(rest)
	case statusBehind, statusBusy:
		if len(rest) != 0 {
			return answer{}, fmt.Errorf("%w: %d bytes too many", errMessage, len(rest))
		}
	default:
		return answer{}, fmt.Errorf("%w: status %d", errMessage, a.status)
	}
	if err != nil {
		return answer{}, err
	}
	return a, nil
}

func decodeBlocks(data []byte) ([][]byte, error) {
	if len(data) < blocksHeaderSize {
		return nil, fmt.Errorf("%w: no number of blocks", errMessage)
	}
	count, data := binary.LittleEndian.Uint32(data), data[blocksHeaderSize:]
	if count < 1 || count > PieceBlocksMax {
		return nil, fmt.Errorf("%w: a piece of %d blocks", errMessage, count)
	}
	if uint64(len(data)) < uint64(count)*blockHeaderSize {
		return nil, fmt.Errorf("%w: it ends in the lengths of %d blocks", errMessage, count)
	}
	lengths, data := data[:count*blockHeaderSize], data[count*blockHeaderSize:]
	blocks := make([][]byte, count)
	for i := range blocks {
		length := binary.LittleEndian.Uint32(lengths[i*blockHeaderSize:])
		if uint64(length) > uint64(len(data)) {
			return nil, fmt.Errorf("%w: it ends in block %d of %d", errMessage, i, count)
		}
		blocks[i], data = data[:length:length], data[length:]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errMessage, len(data))
	}
	return blocks, nil
}

func (a *answer) decodePart(data []byte) error {
	if len(data) <= partHeaderSize {
		return fmt.Errorf("%w: an empty part", errMessage)
	}
	a.total, a.offset, a.part = binary.LittleEndian.Uint64(data),
		binary.LittleEndian.Uint64(data[8:]), data[partHeaderSize:]
	if a.offset >= a.total || uint64(len(a.part)) > a.total-a.offset {
		return fmt.Errorf("%w: a part of %d bytes at %d of %d", errMessage, len(a.part), a.offset,
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
