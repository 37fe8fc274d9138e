package ledger

import (
	"encoding/binary"
	"fmt"
)

// Bounds of a batch.
const (
	MaxBatchBytes   = 16 << 20
	MaxBatchBundles = 1 << 16
)

const batchVersion = 1

// BatchHeader is what a node says of itself in each of its round messages.
type BatchHeader struct {
	// Time is the proposer's clock.
	Time Milliseconds
	// Height and Tip are the proposer's last executed block: peers that hold another block at this height stop (the fork alarm).
	Height Height
	Tip    Hash
}

// Batch is one node's message of a round: its header and the bundles that it proposes, as they were submitted.
type Batch struct {
	Header BatchHeader
	// Bundles are the encoded bundles, each a part of the message's memory.
	Bundles [][]byte
}

// EncodeBatch returns the canonical encoding of a batch. The bundles' bytes go in as they are. The caller keeps to MaxBatchBytes (see
// BatchSize) and MaxBatchBundles; peers refuse more.
func EncodeBatch(header BatchHeader, bundles [][]byte) []byte {
	size := batchOverhead
	for _, bundle := range bundles {
		size += BatchSize(len(bundle))
	}
	to := append(make([]byte, 0, size), batchVersion)
	to = binary.BigEndian.AppendUint64(to, uint64(header.Time))
	to = binary.BigEndian.AppendUint64(to, uint64(header.Height))
	to = append(to, header.Tip[:]...)
	to = binary.AppendUvarint(to, uint64(len(bundles)))
	for _, bundle := range bundles {
		to = appendString(to, bundle)
	}
	return to
}

const batchOverhead = 1 + 8 + 8 + HashSize + 3

// BatchSize returns the most bytes that a bundle of this many bytes adds to a batch.
func BatchSize(bundle int) int { return bundle + 4 }

// DecodeBatch takes an encoding apart, or returns ErrMalformed. It does not look into the bundles. The batch shares the memory of data.
func DecodeBatch(data []byte) (*Batch, error) {
	if len(data) > MaxBatchBytes {
		return nil, fmt.Errorf("%w: a batch of %d bytes, at most %d allowed", ErrMalformed, len(data), MaxBatchBytes)
	}
	r := reader{data: data}
	if version := r.byte(); version != batchVersion {
		r.fail("batch version %d", version)
	}
	batch := &Batch{Header: BatchHeader{Time: Milliseconds(r.uint64()), Height: Height(r.uint64()), Tip: r.hash()}}
	if count := r.count("bundles", MaxBatchBundles, 1); count > 0 {
		batch.Bundles = make([][]byte, count)
		for i := range batch.Bundles {
			batch.Bundles[i] = r.bytes("bytes of bundle", MaxBundleBytes)
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return batch, nil
}
