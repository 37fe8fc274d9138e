package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// The kinds of rows. The kind is the first byte of a row's key.
const (
	rowGenesis = 'm'
	rowHead    = 'H'
	rowHeader  = 'h'
	rowBody    = 'b'
	rowPacked  = 'p'
	rowIndex   = 'i'
	rowHistory = 'y'
	rowState   = 's'
	rowAbsent  = 'A'
	rowStream  = 'x'
	rowSettled = 'z'
	rowCarried = 'v'
	rowOutline = 'o'
	rowRuns    = 'R'
	rowRun     = 'r'
	rowSteps   = 'Y'
	rowEntries = 'S'
	rowGuide   = 'g'
	rowHashes  = 'k'

	rowBalances = 'B'
	rowLabel    = 'l'
	rowLabels   = 'L'

	rowTerms     = 't'
	rowAsset     = 'a'
	rowTermsFrom = 'T'
	rowTermsTo   = 'U'

	rowCertificate = 'c'
	rowEvidence    = 'e'
	rowSeed        = 'd'
)

// The kinds of entries of the index.
const (
	indexApplied = iota
	indexFailed
	indexBlock
	indexVoid
)

// indexKind returns the kind of the index row of a transaction with this result. indexFailed marks
// the transactions that are not known by their nonces.
func indexKind(result ledger.Result) byte {
	if state.KnownByNonce(result) {
		return indexApplied
	}
	return indexFailed
}

// checksumSize is the size of the checksum at the end of each value.
const checksumSize = 4

var (
	errChecksum = errors.New("checksum does not match")
	errMissing  = errors.New("missing")
)

// seal appends the checksum of key and value to the value.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, checksum(key, value))
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// unseal removes the checksum, or returns errChecksum.
func unseal(key, sealed []byte) ([]byte, error) {
	split := len(sealed) - checksumSize
	if split < 0 || binary.BigEndian.Uint32(sealed[split:]) != checksum(key, sealed[:split]) {
		return nil, errChecksum
	}
	return sealed[:split], nil
}

// get returns a copy of a row's value, or errMissing, errChecksum or an error of the database.
func get(transaction *badger.Txn, key []byte) (value []byte, err error) {
	item, err := transaction.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	sealed, err := item.ValueCopy(nil)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return unseal(key, sealed)
}

func heightKey(kind byte, height ledger.Height) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(height))
}

// packedKey returns the key of a part of a block's body.
func packedKey(height ledger.Height, chunk int) []byte {
	return chunkKey(rowPacked, height, chunk)
}

// chunkKey returns the key of a chunk of a block's body or outline.
func chunkKey(kind byte, height ledger.Height, chunk int) []byte {
	return binary.BigEndian.AppendUint32(heightKey(kind, height), uint32(chunk))
}

func indexKey(id ledger.Hash) []byte { return append([]byte{rowIndex}, id[:]...) }

func historyKey(number, ordinal uint64) []byte {
	return appendStepKey([]byte{rowHistory}, number, ordinal)
}

// appendStepKey appends the key of a record of a history: the number of the account, and that of
// the record's first step.
func appendStepKey(to []byte, number, ordinal uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(to, number), ordinal)
}

const stepKeySize = 8 + 8

// position is the place of a transaction: the value of an index or history row.
type position struct {
	height ledger.Height
	index  uint32
	kind   byte
	// packed says that it is the place of a packed bundle's first transfer, in a run of ids.
	packed bool
	// lapse is that of a failed transaction's deadline, in a record of a run of ids.
	lapse lapse
}

const positionSize = 8 + 4 + 1

func (p position) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint64(to, uint64(p.height))
	return append(binary.BigEndian.AppendUint32(to, p.index), p.kind)
}

var errRow = errors.New("malformed row")

func decodePosition(value []byte) (position, error) {
	if len(value) != positionSize || value[12] > indexVoid {
		return position{}, errRow
	}
	return position{height: ledger.Height(binary.BigEndian.Uint64(value)),
		index: binary.BigEndian.Uint32(value[8:]), kind: value[12]}, nil
}

// historySize is the size of a history row that suffices for steps, each in a block of its own.
func historySize(steps int) int { return 8 + 8*steps }

// appendHistory appends the value of a record of a history: steps of one account, in order, in
// blocks that lie close together. The key has the number of the first one. If they are all in one
// block, the value is its height, and the index of each. Otherwise it is the height with the
// highest bit set, and for each step the distance of its block from that height, and the index,
// both of 4 bytes.
func appendHistory(to []byte, steps []step) []byte {
	first := uint64(steps[0].height)
	if steps[len(steps)-1].height == steps[0].height {
		to = binary.BigEndian.AppendUint64(to, first)
		for i := range steps {
			to = binary.BigEndian.AppendUint32(to, steps[i].index)
		}
		return to
	}
	to = binary.BigEndian.AppendUint64(to, first|severalBlocks)
	for i := range steps {
		to = binary.BigEndian.AppendUint32(to, uint32(uint64(steps[i].height)-first))
		to = binary.BigEndian.AppendUint32(to, steps[i].index)
	}
	return to
}

// severalBlocks marks the height in a history row whose steps are in several blocks.
const severalBlocks = 1 << 63

// decodeHistory returns the step at an offset from the first one of a record of a history.
func decodeHistory(value []byte, offset uint64) (position, error) {
	if len(value) < 8+4 || len(value)%4 != 0 {
		return position{}, errRow
	}
	first, rest, size := binary.BigEndian.Uint64(value), value[8:], uint64(4)
	if first&severalBlocks != 0 {
		size = 8
	}
	switch count := uint64(len(rest)) / size; {
	case uint64(len(rest))%size != 0:
		return position{}, errRow
	case offset >= count:
		return position{}, errMissing
	}
	rest = rest[offset*size:]
	if size == 4 {
		return position{height: ledger.Height(first), index: binary.BigEndian.Uint32(rest)}, nil
	}
	return position{
		height: ledger.Height(first&^severalBlocks + uint64(binary.BigEndian.Uint32(rest))),
		index:  binary.BigEndian.Uint32(rest[4:])}, nil
}

// headRow returns the value of the head row.
func headRow(height ledger.Height, hash ledger.Hash) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(height)), hash[:]...)
}

func decodeHeadRow(value []byte) (ledger.Height, ledger.Hash, error) {
	if len(value) != 8+ledger.HashSize {
		return 0, ledger.Hash{}, errRow
	}
	return ledger.Height(binary.BigEndian.Uint64(value)), ledger.Hash(value[8:]), nil
}

// headerRow returns the value of a header row: the header, and the length of the encoded block.
func headerRow(header []byte, length int) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(header), uint64(length))
}

func decodeHeaderRow(value []byte) (header ledger.Header, length uint64, err error) {
	if len(value) != ledger.HeaderSize+8 {
		return ledger.Header{}, 0, errRow
	}
	header, err = ledger.DecodeHeader(value[:ledger.HeaderSize])
	return header, binary.BigEndian.Uint64(value[ledger.HeaderSize:]), err
}

// stateRow is an entry of the state in a row of its own: its value since the block at height, and
// its value before that block. An empty value means that the entry does not exist.
type stateRow struct {
	height        ledger.Height
	before, after []byte
}

func (r *stateRow) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint64(to, uint64(r.height))
	to = binary.AppendUvarint(to, uint64(len(r.before)))
	return append(append(to, r.before...), r.after...)
}

func decodeStateRow(value []byte) (stateRow, error) {
	if len(value) < 9 {
		return stateRow{}, errRow
	}
	row := stateRow{height: ledger.Height(binary.BigEndian.Uint64(value))}
	length, size := binary.Uvarint(value[8:])
	rest := value[8:]
	if size <= 0 || length > uint64(len(rest)-size) {
		return stateRow{}, errRow
	}
	row.before, row.after = rest[size:size+int(length)], rest[size+int(length):]
	return row, nil
}
