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

// MaxBatchCarried and MaxBatchVerdicts bound what a batch carries for other shards.
const (
	MaxBatchCarried  = 1 << 16
	MaxBatchVerdicts = 1 << 16
)

const (
	batchVersion        = 1
	shardedBatchVersion = 2
)

// BatchHeader is what a node says of itself in each of its round messages.
type BatchHeader struct {
	// Time is the proposer's clock.
	Time Milliseconds
	// Height and Tip are the proposer's last executed block: peers that hold another block at this height stop (the fork alarm).
	Height Height
	Tip    Hash
}

// Batch is one node's message of a round: its header and the bundles that it proposes, as they were submitted. In a book of several shards it also proposes what came
// from other shards; a batch without that has the encoding of a book with one shard.
type Batch struct {
	Header BatchHeader
	// Bundles are the encoded bundles, each a part of the message's memory.
	Bundles [][]byte
	// Carried are entries of the parent's stream.
	Carried []Carried
	// Verdicts are what other shards say of cross-shard transactions that this chain waits for.
	Verdicts []Verdict
}

// EncodeBatch returns the canonical encoding of a batch. The bundles' bytes go in as they are. The caller keeps to MaxBatchBytes (see
// BatchSize) and MaxBatchBundles; peers refuse more.
func EncodeBatch(header BatchHeader, bundles [][]byte) []byte {
	return (&Batch{Header: header, Bundles: bundles}).Encode()
}

// sharded reports whether the batch proposes something that came from other shards.
func (b *Batch) sharded() bool { return len(b.Carried)+len(b.Verdicts) > 0 }

// Encode returns the canonical encoding, as EncodeBatch does; where the batch proposes something from other shards, as version 2: entries of the parent's stream and verdicts
// follow the bundles.
func (b *Batch) Encode() []byte {
	size := batchOverhead
	for _, bundle := range b.Bundles {
		size += BatchSize(len(bundle))
	}
	if !b.sharded() {
		return b.appendTo(append(make([]byte, 0, size), batchVersion))
	}
	for i := range b.Carried {
		size += CarriedSize(len(b.Carried[i].Bundle))
	}
	to := b.appendTo(append(make([]byte, 0, size+6+VerdictSize*len(b.Verdicts)), shardedBatchVersion))
	to = binary.AppendUvarint(to, uint64(len(b.Carried)))
	for i := range b.Carried {
		to = binary.AppendUvarint(to, b.Carried[i].Number)
		to = appendString(to, b.Carried[i].Bundle)
	}
	to = binary.AppendUvarint(to, uint64(len(b.Verdicts)))
	for i := range b.Verdicts {
		to = b.Verdicts[i].append(to)
	}
	return to
}

// appendTo appends the header and the bundles.
func (b *Batch) appendTo(to []byte) []byte {
	header, bundles := &b.Header, b.Bundles
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

// CarriedSize returns the most bytes that an entry of the parent's stream with a bundle of this many bytes adds to a batch.
func CarriedSize(bundle int) int { return BatchSize(bundle) + binary.MaxVarintLen64 }

// VerdictSize is the most bytes that a verdict adds to a batch.
const VerdictSize = HashSize + binary.MaxVarintLen32 + ResultSize

// DecodeBatch takes an encoding apart, or returns ErrMalformed. It does not look into the bundles. The batch shares the memory of data.
func DecodeBatch(data []byte) (*Batch, error) {
	if len(data) > MaxBatchBytes {
		return nil, fmt.Errorf("%w: a batch of %d bytes, at most %d allowed", ErrMalformed, len(data), MaxBatchBytes)
	}
	r := reader{data: data}
	version := r.byte()
	if version != batchVersion && version != shardedBatchVersion {
		r.fail("batch version %d", version)
	}
	batch := &Batch{Header: BatchHeader{Time: Milliseconds(r.uint64()), Height: Height(r.uint64()), Tip: r.hash()}}
	if count := r.count("bundles", MaxBatchBundles, 1); count > 0 {
		batch.Bundles = make([][]byte, count)
		for i := range batch.Bundles {
			batch.Bundles[i] = r.bytes("bytes of bundle", MaxBundleBytes)
		}
	}
	if version == shardedBatchVersion {
		batch.decodeSharded(&r)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return batch, nil
}

// decodeSharded decodes what came from other shards.
func (b *Batch) decodeSharded(r *reader) {
	if count := r.count("carried bundles", MaxBatchCarried, 2); count > 0 {
		b.Carried = make([]Carried, count)
		for i := range b.Carried {
			b.Carried[i] = Carried{Number: r.uvarint(), Bundle: r.bytes("bytes of bundle", MaxBundleBytes)}
			if b.Carried[i].Number == 0 {
				r.fail("entry 0 of a stream")
			}
		}
	}
	if count := r.count("verdicts", MaxBatchVerdicts, HashSize+1+ResultSize); count > 0 {
		b.Verdicts = make([]Verdict, count)
		for i := range b.Verdicts {
			b.Verdicts[i] = r.verdict()
		}
	}
	if !b.sharded() {
		r.fail("a batch of version 2 with nothing of other shards")
	}
}
