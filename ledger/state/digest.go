package state

import (
	"crypto/sha256"
	"encoding/binary"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"

	"github.com/ledgerd/ledgerd/ledger"
)

const digestLanes = 1024

const digestDomain = "ledgerd/state/1\x00"

// Digest is the LtHash of a set of entries. It depends only on the set, not on the order in which
// entries were added and removed. The zero value is the digest of the empty set. It is not safe for
// concurrent use.
type Digest struct {
	// words hold the lanes, four of 16 bits in each, the first in the lowest bits.
	words    [digestLanes / 4]uint64
	expanded [2][expandedPart]byte
}

// expandedPart is how many bytes of output BLAKE3 makes at a time, on processors that compress as
// many blocks at once.
const expandedPart = guts.MaxSIMD * guts.BlockSize

// highBits has the highest bit of each lane. Lanes are added four at a time, without a carry from
// one to the next: the highest bits apart from the others.
const highBits = 0x8000_8000_8000_8000

// expand writes the first 2,048 bytes of the entry's BLAKE3 output to d.expanded.
func (d *Digest) expand(entry []byte) {
	if len(entry) > guts.ChunkSize {
		d.expandLong(entry)
		return
	}
	// One chunk is the root of its tree. This is what blake3.Hasher does, without its buffers.
	node := guts.CompressChunk(entry, &guts.IV, 0, 0)
	node.Flags |= guts.FlagRoot
	for i := range d.expanded {
		node.Counter = uint64(i * guts.MaxSIMD)
		guts.CompressBlocks(&d.expanded[i], node)
	}
}

func (d *Digest) expandLong(entry []byte) {
	hasher := blake3.New(sha256.Size, nil)
	// Write and Read of this hasher never fail.
	_, _ = hasher.Write(entry)
	output := hasher.XOF()
	for i := range d.expanded {
		_, _ = output.Read(d.expanded[i][:])
	}
}

// Add adds an entry.
func (d *Digest) Add(entry []byte) {
	d.expand(entry)
	for i := range d.expanded {
		words, part := d.words[i*expandedPart/8:][:expandedPart/8], &d.expanded[i]
		for j := range words {
			a, b := words[j], binary.LittleEndian.Uint64(part[8*j:])
			words[j] = (a&^highBits + b&^highBits) ^ (a^b)&highBits
		}
	}
}

// Remove removes an entry that was added before.
func (d *Digest) Remove(entry []byte) {
	d.expand(entry)
	for i := range d.expanded {
		words, part := d.words[i*expandedPart/8:][:expandedPart/8], &d.expanded[i]
		for j := range words {
			a, b := words[j], binary.LittleEndian.Uint64(part[8*j:])
			words[j] = (a | highBits - b&^highBits) ^ (a^^b)&highBits
		}
	}
}

// Join adds all entries of another set.
func (d *Digest) Join(other *Digest) {
	for i, b := range other.words {
		a := d.words[i]
		d.words[i] = (a&^highBits + b&^highBits) ^ (a^b)&highBits
	}
}

// Sum returns the SHA-256 of "ledgerd/state/1", a zero byte and the lanes, little-endian.
func (d *Digest) Sum() ledger.Hash {
	to := append(make([]byte, 0, len(digestDomain)+2*digestLanes), digestDomain...)
	for _, word := range d.words {
		to = binary.LittleEndian.AppendUint64(to, word)
	}
	return sha256.Sum256(to)
}
