package ledger

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"

	voi "github.com/oasisprotocol/curve25519-voi/primitives/ed25519"
)

// In a book with Genesis.VouchedCrossings a block takes input from other shards only if more than
// half of the members of its shard vouch for it in the same round. Members relay each other's round
// messages, so each signs what it vouches for.

// MaxBatchVouched bounds the entries of the parent's stream that a voucher names.
const MaxBatchVouched = 4096

const (
	voucherDomain = "ledgerd/vouched/1\x00"
	carriedDomain = "ledgerd/carried/1\x00"
)

// VouchedSize is the most bytes that an entry of a voucher adds to a batch.
const VouchedSize = binary.MaxVarintLen64 + HashSize

// Vouched is an entry of the parent's stream that a member believes to be in the parent's chain.
type Vouched struct {
	// Number counts the stream's entries from 1.
	Number uint64
	// Hash is the CarriedHash of the entry's bundle.
	Hash Hash
}

// CarriedHash returns the SHA-256 of "ledgerd/carried/1", a zero byte and the bytes of
// Carried.Bundle.
func CarriedHash(bundle []byte) Hash {
	return sum256([]byte(carriedDomain), bundle)
}

// Voucher is a member's word on the input from other shards in its batch: the verdicts of the
// batch, those of its groups, and the entries of the parent's stream. What it vouches for is true
// for ever, so an old voucher that another member repeats does no harm.
type Voucher struct {
	// Chain is the hash of the genesis of the member's chain, and Key its node key.
	Chain Hash
	Key   PublicKey
	// Stream are the entries, by ascending number.
	Stream []Vouched
	// Signature is that of "ledgerd/vouched/1", a zero byte, the chain, and the SHA-256 of the
	// encoded entries and verdicts, and of the ids of the groups if there are any.
	Signature SignatureBytes
}

// VoucherSize returns the most bytes that a voucher with this number of entries adds to a batch.
func VoucherSize(entries int) int {
	return 2*HashSize + len(SignatureBytes{}) + binary.MaxVarintLen16 + VouchedSize*entries
}

// Vouch signs the batch's verdicts, its groups and these entries of the parent's stream with a
// member's node key, and sets the batch's voucher. It keeps the slice of entries.
func (b *Batch) Vouch(key ed25519.PrivateKey, chain Hash, stream []Vouched) {
	b.Voucher = &Voucher{Chain: chain, Key: PublicKey(key.Public().(ed25519.PublicKey)),
		Stream: stream}
	copy(b.Voucher.Signature[:], voi.Sign(voi.PrivateKey(key), b.voucherMessage(b.groupIDs())))
}

// voucherMessage returns what the batch's voucher signs, given the ids of the groups.
func (b *Batch) voucherMessage(groups []Hash) []byte {
	said := appendVouched(make([]byte, 0, 3*binary.MaxVarintLen32+HashSize*len(groups)+
		VouchedSize*len(b.Voucher.Stream)+VerdictSize*len(b.Verdicts)), b.Voucher.Stream)
	said = binary.AppendUvarint(said, uint64(len(b.Verdicts)))
	for i := range b.Verdicts {
		said = b.Verdicts[i].append(said)
	}
	if len(groups) > 0 {
		said = appendGroupIDs(said, groups)
	}
	sum := sum256(said)
	to := append(make([]byte, 0, len(voucherDomain)+2*HashSize), voucherDomain...)
	return append(append(to, b.Voucher.Chain[:]...), sum[:]...)
}

func appendVouched(to []byte, entries []Vouched) []byte {
	to = binary.AppendUvarint(to, uint64(len(entries)))
	for i := range entries {
		to = binary.AppendUvarint(to, entries[i].Number)
		to = append(to, entries[i].Hash[:]...)
	}
	return to
}

func (v *Voucher) append(to []byte) []byte {
	to = append(append(to, v.Chain[:]...), v.Key[:]...)
	return append(appendVouched(to, v.Stream), v.Signature[:]...)
}

func (r *reader) voucher() *Voucher {
	v := &Voucher{Chain: r.Hash()}
	copy(v.Key[:], r.Take(len(v.Key)))
	if count := r.Count("vouched entries", MaxBatchVouched, 1+HashSize); count > 0 {
		v.Stream = make([]Vouched, count)
	}
	last := uint64(0)
	for i := range v.Stream {
		v.Stream[i] = Vouched{Number: r.Uvarint(), Hash: r.Hash()}
		if v.Stream[i].Number <= last {
			r.Fail("entries of a voucher out of order")
		}
		last = v.Stream[i].Number
	}
	copy(v.Signature[:], r.Take(len(v.Signature)))
	return v
}

// validateVouched checks the members of a book whose crossings are vouched for.
func (g *Genesis) validateVouched() error {
	if !g.VouchedCrossings {
		return nil
	}
	if !g.Sharded() {
		return fmt.Errorf("%w: vouched crossings in a book of one shard", ErrGenesis)
	}
	for _, members := range g.Shards {
		for i := range members {
			if len(members[i].Key) != NodeKeySize {
				return fmt.Errorf("%w: member %s has no ed25519 key, and vouches with it",
					ErrGenesis, members[i].Name)
			}
		}
	}
	return nil
}
