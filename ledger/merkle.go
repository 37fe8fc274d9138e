package ledger

import (
	"crypto/sha256"
	"fmt"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/ledgerd/ledgerd/ledger/internal/pairs"
)

// Merkle trees are those of RFC 6962. The hash of a leaf is SHA-256(0x00, data), the hash of a node
// is SHA-256(0x01, left, right), and the hash of an empty tree is SHA-256().

func leafHash(data []byte) Hash { return sum256([]byte{leafByte}, data) }

func nodeHash(left, right *Hash) Hash {
	var data [nodeSize]byte
	setNode(data[:], left, right)
	return sha256.Sum256(data[:])
}

// The first byte of what is hashed, and the sizes of a leaf that is an id, and of a node.
const (
	leafByte, nodeByte = 0, 1
	idLeafSize         = 1 + HashSize
	nodeSize           = 1 + 2*HashSize
)

func setNode(data []byte, left, right *Hash) {
	data[0] = nodeByte
	copy(data[1:], left[:])
	copy(data[1+HashSize:], right[:])
}

// hashNodes sets to to the hashes of the nodes above a level: half as many, without the last hash
// of an odd number. to may be the beginning of the level. Two at a time take little longer than
// one.
func hashNodes(to, level []Hash) {
	if len(to) == 1 {
		to[0] = nodeHash(&level[0], &level[1])
		return
	}
	var pair pairs.Pair
	i := 0
	for ; i+1 < len(to); i += 2 {
		first, second := pair.Room(nodeSize)
		setNode(first, &level[2*i], &level[2*i+1])
		setNode(second, &level[2*i+2], &level[2*i+3])
		to[i], to[i+1] = pair.SumRoom()
	}
	if i < len(to) {
		to[i] = nodeHash(&level[2*i], &level[2*i+1])
	}
}

// hashIDs sets to to the hashes of the leaves that are ids, as many as there are, two at a time.
func hashIDs(to []Hash, count int, id func(i int) *Hash) {
	if count == 1 {
		to[0] = leafHash(id(0)[:])
		return
	}
	var pair pairs.Pair
	i := 0
	for ; i+1 < count; i += 2 {
		first, second := pair.Room(idLeafSize)
		first[0], second[0] = leafByte, leafByte
		copy(first[1:], id(i)[:])
		copy(second[1:], id(i + 1)[:])
		to[i], to[i+1] = pair.SumRoom()
	}
	if i < count {
		to[i] = leafHash(id(i)[:])
	}
}

// merkleRoot returns the root over the leaf hashes. It overwrites them.
func merkleRoot(level []Hash) Hash {
	if len(level) == 0 {
		return sum256()
	}
	for len(level) > 1 {
		next := level[:len(level)/2]
		hashNodes(next, level)
		// RFC 6962 splits at the largest power of two below the count, so a last node without a
		// sibling moves up unchanged.
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level = next
	}
	return level[0]
}

// merklePath returns the sibling hashes from a leaf up to the root, in the order of RFC 6962. It
// overwrites the leaf hashes.
func merklePath(level []Hash, index int) []Hash {
	path := []Hash{}
	for len(level) > 1 {
		if sibling := index ^ 1; sibling < len(level) {
			path = append(path, level[sibling])
		}
		next := level[:len(level)/2]
		hashNodes(next, level)
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level, index = next, index/2
	}
	return path
}

// idLeaves returns the leaf hashes over ids.
func idLeaves(ids []Hash) []Hash {
	leaves := make([]Hash, len(ids))
	hashIDs(leaves, len(ids), func(i int) *Hash { return &ids[i] })
	return leaves
}

// IDRoot returns the RFC 6962 Merkle root over ids. A bundle's signatures sign it, and it is the
// transactions root of a block's header.
func IDRoot(ids []Hash) Hash { return merkleRoot(idLeaves(ids)) }

// pathRoot returns the root to which an inclusion path leads from a leaf.
func pathRoot(leaf Hash, index, size uint64, path []Hash) (root Hash, err error) {
	siblings := make([][]byte, len(path))
	for i := range path {
		siblings[i] = path[i][:]
	}
	computed, err := proof.RootFromInclusionProof(rfc6962.DefaultHasher, index, size, leaf[:],
		siblings)
	if err != nil {
		return Hash{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	return Hash(computed), nil
}

// verifyPath checks an inclusion path with the code of the transparency project.
func verifyPath(leaf Hash, index, size uint64, path []Hash, root Hash) error {
	siblings := make([][]byte, len(path))
	for i := range path {
		siblings[i] = path[i][:]
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, size, leaf[:], siblings,
		root[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}
