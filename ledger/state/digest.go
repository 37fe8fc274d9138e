package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/wide"
)

const digestLanes = 1024

const (
	digestDomain     = "ledgerd/state/1\x00"
	treeDigestDomain = "ledgerd/state/2\x00"
	slotDigestDomain = "ledgerd/state/3\x00"
)

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
	wide.End()
}

func (d *Digest) expandLong(entry []byte) {
	hasher := blake3.New(sha256.Size, nil)
	// Write and Read of this hasher never fail.
	_, _ = hasher.Write(entry)
	output := hasher.XOF()
	for i := range d.expanded {
		_, _ = output.Read(d.expanded[i][:])
	}
	wide.End()
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

// entry is a part of the state with a key and a value.
type entry interface {
	// appendEntry appends the key and the value.
	appendEntry(to []byte) (entry []byte, keyLength int)
}

// Version returns the version of the chain: that of the next block, and of the state digest.
func (s *State) Version() int { return max(ledger.FirstVersion, s.charter.Version) }

// sum computes the state digest of the version.
func (s *State) sum() ledger.Hash {
	if s.accountTree == nil {
		return s.digest.Sum()
	}
	root, others := s.accountTree.root(s.divide), s.othersDigest()
	to := append(make([]byte, 0, len(treeDigestDomain)+8+2*ledger.HashSize), treeDigestDomain...)
	to = binary.BigEndian.AppendUint64(to, uint64(s.accountTree.accounts()))
	return sha256.Sum256(append(append(to, root[:]...), others[:]...))
}

// Divide calls do for each part from 0 to parts-1, perhaps several at a time, and returns when all
// calls have.
type Divide func(parts int, do func(part int))

// inTurn is a Divide without concurrency.
func inTurn(parts int, do func(part int)) {
	for part := range parts {
		do(part)
	}
}

// Complete computes the digest after all entries were restored. The computation is divided by
// divide, and so are later ones over the whole state. If divide is nil, they are not. Complete
// returns ErrEntry if the numbers of the accounts have gaps, if leaves were restored in a chain
// without an account tree, or if the shards that were added to the book are no tree, and
// ledger.ErrVersion if the chain is of a version that this package does not know.
func (s *State) Complete(divide Divide) error {
	if divide != nil {
		s.divide = divide
	}
	if err := ledger.CheckVersion(s.Version()); err != nil {
		return err
	}
	s.arena = nil
	if err := s.checkNumbers(); err != nil {
		return err
	}
	if err := s.completeGrowth(); err != nil {
		return err
	}
	if err := s.completeAssets(); err != nil {
		return err
	}
	s.pending.linkRestored()
	s.countRestored()
	s.sortRestoredMoves()
	s.completeHolds()
	s.completeDetails()
	s.completeSchedules()
	s.digestAll()
	return nil
}

// checkNumbers checks that the accounts have all numbers from 1 to their number.
func (s *State) checkNumbers() error {
	switch {
	case s.hasLeaves() && s.Version() < ledger.AccountTreeVersion:
		return fmt.Errorf("%w: cold accounts in a chain of version %d", ErrEntry, s.Version())
	case s.hasLeaves(): // RestoreLeaves has checked that none is there twice
		return s.accountTree.complete()
	}
	numbers := make([]bool, s.opened)
	for each := range s.accounts.all() {
		if each.number == 0 || each.number > uint64(len(numbers)) || numbers[each.number-1] {
			return fmt.Errorf("%w: %s is account %d of %d", ErrEntry, each.path, each.number,
				len(numbers))
		}
		numbers[each.number-1] = true
	}
	return nil
}

// digestAll computes the digest of all entries anew. All accounts must be resident, or their leaves
// restored.
func (s *State) digestAll() {
	s.digest = Digest{}
	switch tree := s.Version() >= ledger.AccountTreeVersion; {
	case s.hasLeaves():
		s.accountTree.hashAll(s.divide)
	case tree:
		s.accountTree = newAccountTree(slices.Collect(s.accounts.all()), s.divide)
	default:
		s.accountTree = nil
		addAll(&s.digest, slices.Collect(s.accounts.all()), s.divide)
	}
	addAll(&s.digest, s.others(), s.divide)
	if s.slotTree = nil; s.takesSlotTree() {
		s.slotTree = restoredSlots(s.pending.slots)
	} else {
		addAll(&s.digest, s.waitingEntries(), s.divide)
	}
	if s.assetTree = nil; s.takesAssetTree() {
		s.assetTree = newAssetTree(s.assets.all)
	}
	s.stateDigest = s.sum()
}

// addAll adds entries to a digest. The digest of a set does not depend on the order of its entries.
func addAll[E entry](to *Digest, entries []E, divide Divide) {
	digests := make([]*Digest, parts(len(entries)))
	divide(len(digests), func(part int) {
		var some Digest
		var buffer []byte
		for _, each := range entries[part*partSize : min((part+1)*partSize, len(entries))] {
			buffer, _ = each.appendEntry(buffer[:0])
			some.Add(buffer)
		}
		digests[part] = &some
	})
	for _, some := range digests {
		to.Join(some)
	}
}

// partSize is how many entries or hashes one part of a computation has.
const partSize = 1 << 12

// blockPart is how many hashes of a block one part of a computation has: work for some 50
// microseconds, which is several times what it takes to give it to another processor.
const blockPart = 1 << 9

// divided calls do for parts of a row of count hashes, perhaps several at a time, and returns when
// all calls have.
func divided(divide Divide, count int, do func(from, to int)) {
	if count < 2*blockPart {
		do(0, count)
		return
	}
	divide((count+blockPart-1)/blockPart, func(part int) {
		do(part*blockPart, min((part+1)*blockPart, count))
	})
}

// parts returns the number of parts of a computation over count entries or hashes.
func parts(count int) int { return (count + partSize - 1) / partSize }
