package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Bounds of a batch.
const (
	MaxBatchBytes   = 16 << 20
	MaxBatchBundles = 1 << 16
)

// MaxBatchCarried and MaxBatchVerdicts bound the entries from other shards in a batch. The verdicts
// of groups count, too.
const (
	MaxBatchCarried  = 1 << 16
	MaxBatchVerdicts = 1 << 16
)

const (
	batchVersion        = 1
	shardedBatchVersion = 2
	clockedBatchVersion = 3
	vouchedBatchVersion = 4
	groupedBatchVersion = 5
)

// BatchHeader describes the proposer of a batch. Each round message of a node starts with it.
type BatchHeader struct {
	// Time is the proposer's clock, or NoTime if the clock is not near the clocks of a majority.
	Time Milliseconds
	// Height and Tip identify the proposer's last executed block. A peer that holds another block
	// at this height stops (the fork alarm).
	Height Height
	Tip    Hash
}

// Batch is one node's message of a round: its header and the bundles that it proposes, as the
// clients submitted them. In a book of several shards it also proposes entries from other shards.
// Without such entries, its encoding is the same as in a book of one shard.
type Batch struct {
	Header BatchHeader
	// Bundles are the encoded bundles. In a decoded batch each shares the memory of the message.
	Bundles [][]byte
	// Carried are entries of the parent's stream, and copies of transactions that are too late.
	Carried []Carried
	// Verdicts are other shards' verdicts on cross-shard transactions that wait in this chain.
	Verdicts []Verdict
	// Clocks are the members' clocks, by index, that prove the header's time. A proposer adds them
	// if its time is more than MaxStep beyond the time of its last block. Without them, the
	// encoding is of an earlier version.
	Clocks []MemberClock
	// Voucher is the proposer's word on the entries from other shards, in a book with
	// Genesis.VouchedCrossings; see Vouch.
	Voucher *Voucher
	// Groups are good verdicts of other shards for which the proposer vouches together. Only a
	// batch with a voucher has them, where a chain takes them (see TakesAgreements).
	Groups []VerdictGroup
}

// EncodeBatch returns the canonical encoding of a batch. It copies the bundles' bytes unchanged.
// The caller must keep to MaxBatchBytes (see BatchSize) and MaxBatchBundles; peers refuse a larger
// batch.
func EncodeBatch(header BatchHeader, bundles [][]byte) []byte {
	return (&Batch{Header: header, Bundles: bundles}).Encode()
}

// Sharded reports whether the batch proposes entries from other shards.
func (b *Batch) Sharded() bool {
	return len(b.Carried)+len(b.Verdicts)+len(b.Groups) > 0 || b.Voucher != nil
}

// Encode returns the canonical encoding, as EncodeBatch does. The encoding has version 1 unless the
// batch has more than bundles. Version 2 adds, after the bundles, the entries of the parent's
// stream and the verdicts. Version 3 adds the clocks after the verdicts. Version 4 is version 3
// with the voucher after the clocks, of which there may be none. Version 5 is version 4 with the
// groups of verdicts, at least one, after the voucher. A batch with groups must have a voucher.
func (b *Batch) Encode() []byte {
	size := batchOverhead
	for _, bundle := range b.Bundles {
		size += BatchSize(len(bundle))
	}
	if !b.Sharded() && len(b.Clocks) == 0 {
		return b.appendTo(append(make([]byte, 0, size), batchVersion))
	}
	for i := range b.Carried {
		size += CarriedSize(len(b.Carried[i].Bundle))
	}
	version := byte(shardedBatchVersion)
	switch {
	case b.Voucher != nil:
		version = vouchedBatchVersion
		size += VoucherSize(len(b.Voucher.Stream))
	case len(b.Clocks) > 0:
		version = clockedBatchVersion
	}
	if len(b.Groups) > 0 {
		version = groupedBatchVersion
		size += binary.MaxVarintLen32
		for i := range b.Groups {
			size += VerdictGroupSize(len(b.Groups[i].IDs))
		}
	}
	size += 6 + VerdictSize*len(b.Verdicts) + ClocksSize(len(b.Clocks))
	to := b.appendTo(append(make([]byte, 0, size), version))
	to = binary.AppendUvarint(to, uint64(len(b.Carried)))
	for i := range b.Carried {
		to = binary.AppendUvarint(to, b.Carried[i].Number)
		to = codec.AppendString(to, b.Carried[i].Bundle)
	}
	to = binary.AppendUvarint(to, uint64(len(b.Verdicts)))
	for i := range b.Verdicts {
		to = b.Verdicts[i].append(to)
	}
	if version >= clockedBatchVersion {
		to = binary.AppendUvarint(to, uint64(len(b.Clocks)))
		for _, clock := range b.Clocks {
			to = binary.AppendUvarint(to, uint64(clock.Member))
			to = binary.AppendUvarint(to, zigzag(clock.Offset))
		}
	}
	if b.Voucher != nil {
		to = b.Voucher.append(to)
	}
	if len(b.Groups) > 0 {
		to = binary.AppendUvarint(to, uint64(len(b.Groups)))
		for i := range b.Groups {
			to = b.Groups[i].append(to)
		}
	}
	return to
}

// zigzag maps small offsets of either sign to small numbers.
func zigzag(offset Milliseconds) uint64 { return uint64(offset)<<1 ^ uint64(offset>>63) }

// appendTo appends the header and the bundles.
func (b *Batch) appendTo(to []byte) []byte {
	header, bundles := &b.Header, b.Bundles
	to = binary.BigEndian.AppendUint64(to, uint64(header.Time))
	to = binary.BigEndian.AppendUint64(to, uint64(header.Height))
	to = append(to, header.Tip[:]...)
	to = binary.AppendUvarint(to, uint64(len(bundles)))
	for _, bundle := range bundles {
		to = codec.AppendString(to, bundle)
	}
	return to
}

const batchOverhead = 1 + 8 + 8 + HashSize + 3

// BatchSize returns the most bytes that a bundle of this size adds to a batch.
func BatchSize(bundle int) int { return bundle + 4 }

// CarriedSize returns the most bytes that an entry of the parent's stream adds to a batch, given
// the size of its bundle.
func CarriedSize(bundle int) int { return BatchSize(bundle) + binary.MaxVarintLen64 }

// VerdictSize is the most bytes that a verdict adds to a batch.
const VerdictSize = HashSize + binary.MaxVarintLen32 + ResultSize

// ClocksSize returns the most bytes that this number of clocks adds to a batch.
func ClocksSize(clocks int) int {
	if clocks == 0 {
		return 0
	}
	return 2*binary.MaxVarintLen16 + 3 + MemberClockSize*clocks
}

// DecodeBatch decodes a batch, or returns ErrMalformed. It does not decode the bundles. The batch
// shares the memory of data.
func DecodeBatch(data []byte) (*Batch, error) {
	if len(data) > MaxBatchBytes {
		return nil, fmt.Errorf("%w: a batch of %d bytes, at most %d allowed", ErrMalformed,
			len(data), MaxBatchBytes)
	}
	r := read(data)
	batch := new(Batch)
	version, count := r.batchHeader(&batch.Header)
	if count > 0 {
		batch.Bundles = make([][]byte, count)
		for i := range batch.Bundles {
			batch.Bundles[i] = r.Bytes("bytes of bundle", MaxBundleBytes)
		}
	}
	if version >= shardedBatchVersion {
		batch.decodeSharded(&r)
	}
	if version == shardedBatchVersion && !batch.Sharded() {
		r.Fail("a batch of version 2 with nothing of other shards")
	}
	if version >= clockedBatchVersion {
		batch.decodeClocks(&r, version)
	}
	if version >= vouchedBatchVersion {
		batch.Voucher = r.voucher()
	}
	if version == groupedBatchVersion {
		batch.Groups = r.verdictGroups(len(batch.Verdicts))
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return batch, nil
}

// batchHeader reads the beginning of a batch. It returns the version and the number of bundles.
func (r *reader) batchHeader(header *BatchHeader) (version byte, bundles int) {
	version = r.Byte()
	if version < batchVersion || version > groupedBatchVersion {
		r.Fail("batch version %d", version)
	}
	*header = BatchHeader{Time: Milliseconds(r.Uint64()), Height: Height(r.Uint64()), Tip: r.Hash()}
	return version, r.Count("bundles", MaxBatchBundles, 1)
}

// decodeSharded decodes the entries from other shards.
func (b *Batch) decodeSharded(r *reader) {
	if count := r.Count("carried bundles", MaxBatchCarried, 2); count > 0 {
		b.Carried = make([]Carried, count)
		for i := range b.Carried {
			b.Carried[i] = Carried{Number: r.Uvarint(),
				Bundle: r.Bytes("bytes of bundle", MaxBundleBytes)}
		}
	}
	if count := r.Count("verdicts", MaxBatchVerdicts, HashSize+1+ResultSize); count > 0 {
		b.Verdicts = make([]Verdict, count)
		for i := range b.Verdicts {
			b.Verdicts[i] = r.verdict()
		}
	}
}

// decodeClocks decodes the members' clocks.
func (b *Batch) decodeClocks(r *reader, version byte) {
	count := r.Count("clocks", MaxMembers, 2)
	if count == 0 {
		if version == clockedBatchVersion {
			r.Fail("a batch of version 3 without clocks")
		}
		return
	}
	b.Clocks = make([]MemberClock, count)
	for i := range b.Clocks {
		member, offset := r.Uvarint(), r.Uvarint()
		if member >= MaxMemberIndexes || i > 0 && MemberIndex(member) <= b.Clocks[i-1].Member {
			r.Fail("clock of member %d, out of order", member)
		}
		if offset > uint64(2*ClockBound) {
			r.Fail("a clock that is too far from the batch's time")
			return
		}
		signed := Milliseconds(offset>>1) ^ -Milliseconds(offset&1)
		b.Clocks[i] = MemberClock{Member: MemberIndex(member), Offset: signed}
	}
}
