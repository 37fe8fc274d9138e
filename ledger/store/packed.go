package store

import (
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/klauspost/compress/s2"

	"github.com/ledgerd/ledgerd/ledger"
)

// Most of a body repeats what came before in it, and so does most of a chunk of a run, except for
// ids. The store compresses these rows itself, once. Badger would write them to its log as they
// are, and compress them again in each compaction, together with the ids, in which nothing repeats.

// A part of a body begins with plainMark, or with packedMark if a block of S2 follows. A packed
// chunk of entries of the state begins with packedMark, too. No other chunk does, because no key is
// empty. Chunks of steps are packed otherwise (dense.go).
const (
	packedMark = 0
	plainMark  = 1
)

const (
	// A row of fewer bytes is not packed.
	packedFrom = 256
	// maxPart bounds a part of a body.
	maxPart = 128 << 10
	// maxUnpacked bounds what is unpacked. It is above the size of a chunk with the largest entry
	// of the state alone.
	maxUnpacked = 2 << 20
)

var errPacked = errors.New("it cannot be unpacked")

// packer compresses rows. It keeps its memory for the next one.
type packer struct{ buffer []byte }

// pack returns a row with packed data, if that saves an eighth of it, and otherwise one with the
// data after a prefix. The row has room for a checksum, and keeps nothing of the data.
func (p *packer) pack(prefix, data []byte) []byte {
	if len(data) >= packedFrom {
		most := s2.MaxEncodedLen(len(data))
		if cap(p.buffer) < most {
			p.buffer = make([]byte, most)
		}
		if block := s2.Encode(p.buffer[:most], data); len(block) < len(data)-len(data)/8 {
			row := make([]byte, 0, 1+len(block)+checksumSize)
			return append(append(row, packedMark), block...)
		}
	}
	row := make([]byte, 0, len(prefix)+len(data)+checksumSize)
	return append(append(row, prefix...), data...)
}

// unpack returns what a packed block has. It uses the buffer.
func unpack(buffer *[]byte, block []byte) ([]byte, error) {
	size, err := s2.DecodedLen(block)
	if err != nil || size > maxUnpacked {
		return nil, errPacked
	}
	if cap(*buffer) < size {
		*buffer = make([]byte, size)
	}
	data, err := s2.Decode((*buffer)[:size], block)
	if err != nil {
		return nil, errPacked
	}
	return data, nil
}

// packChunk returns the row of a chunk of a run, packed if that saves something. It keeps nothing
// of the chunk.
func (p *packer) packChunk(kind runKind, chunk []byte) []byte {
	if kind != rowSteps {
		return p.pack(nil, chunk)
	}
	if dense, ok := appendDense(p.buffer[:0], chunk); ok && len(dense) < len(chunk) {
		p.buffer, chunk = dense, dense
	}
	return append(make([]byte, 0, len(chunk)+checksumSize), chunk...)
}

// unpack returns a chunk of a run as it was before it was packed. It uses the buffer if it must
// unpack the chunk.
func (k runKind) unpack(buffer *[]byte, chunk []byte) (_ []byte, err error) {
	switch {
	case k == rowRun || len(chunk) == 0:
		return chunk, nil
	case k == rowEntries && chunk[0] == packedMark:
		return unpack(buffer, chunk[1:])
	case k == rowSteps && chunk[0] == denseMark:
		*buffer, err = appendSteps((*buffer)[:0], chunk[1:])
		return *buffer, err
	}
	return chunk, nil
}

// unpackPart returns a part of a body as it was before it was packed.
func unpackPart(buffer *[]byte, part []byte) ([]byte, error) {
	switch {
	case len(part) > 0 && part[0] == packedMark:
		return unpack(buffer, part[1:])
	case len(part) > 0 && part[0] == plainMark:
		return part[1:], nil
	}
	return nil, errPacked
}

// bodyRows passes the rows of an encoded block to put. It keeps nothing of the block.
func (s *Store) bodyRows(p *packer, step string, height ledger.Height, encoded []byte,
	put putRow) error {
	for chunk := 0; len(encoded) > 0; chunk++ {
		length := min(len(encoded), s.chunk(), maxPart)
		row := p.pack([]byte{plainMark}, encoded[:length])
		if err := put(step, packedKey(height, chunk), row); err != nil {
			return err
		}
		encoded = encoded[length:]
	}
	return nil
}

// readBody joins the parts of an encoded block, up to a total length. Blocks that an older version
// wrote have rows of another kind.
func readBody(transaction *badger.Txn, height ledger.Height, length uint64) ([]byte, error) {
	if _, err := transaction.Get(packedKey(height, 0)); errors.Is(err, badger.ErrKeyNotFound) {
		return readChunks(transaction, rowBody, height, length)
	}
	return readChunks(transaction, rowPacked, height, length)
}
