package state

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/zeebo/blake3"

	"github.com/ledgerd/ledgerd/ledger"
)

const digestLanes = 1024

const digestDomain = "ledgerd/state/1\x00"

// Digest is the LtHash of a set of entries. It depends only on the set, not on the order in which
// entries were added and removed. The zero value is the digest of the empty set. It is not safe for
// concurrent use.
type Digest struct {
	lanes    [digestLanes]uint16
	hasher   *blake3.Hasher
	expanded [2 * digestLanes]byte
}

func (d *Digest) expand(entry []byte) *[2 * digestLanes]byte {
	if d.hasher == nil {
		d.hasher = blake3.New()
	}
	d.hasher.Reset()
	// Write and Read of this hasher never fail.
	_, _ = d.hasher.Write(entry)
	_, _ = d.hasher.Digest().Read(d.expanded[:])
	return &d.expanded
}

// Add adds an entry.
func (d *Digest) Add(entry []byte) {
	expanded := d.expand(entry)
	for i := range d.lanes {
		d.lanes[i] += binary.LittleEndian.Uint16(expanded[2*i:])
	}
}

// Remove removes an entry that was added before.
func (d *Digest) Remove(entry []byte) {
	expanded := d.expand(entry)
	for i := range d.lanes {
		d.lanes[i] -= binary.LittleEndian.Uint16(expanded[2*i:])
	}
}

// Sum returns the SHA-256 of "ledgerd/state/1", a zero byte and the lanes, little-endian.
func (d *Digest) Sum() ledger.Hash {
	to := append(make([]byte, 0, len(digestDomain)+2*digestLanes), digestDomain...)
	for _, lane := range d.lanes {
		to = binary.LittleEndian.AppendUint16(to, lane)
	}
	return sha256.Sum256(to)
}
