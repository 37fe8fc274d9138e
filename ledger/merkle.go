package ledger

import (
	"fmt"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Merkle trees are those of RFC 6962. The hash of a leaf is SHA-256(0x00, data), the hash of a node
// is SHA-256(0x01, left, right), and the hash of an empty tree is SHA-256().

func leafHash(data []byte) Hash { return sum256([]byte{0}, data) }

func nodeHash(left, right *Hash) Hash { return sum256([]byte{1}, left[:], right[:]) }

// merkleRoot returns the root over the leaf hashes. It overwrites them.
func merkleRoot(level []Hash) Hash {
	if len(level) == 0 {
		return sum256()
	}
	for len(level) > 1 {
		next := level[:0]
		for i := 0; i+1 < len(level); i += 2 {
			next = append(next, nodeHash(&level[i], &level[i+1]))
		}
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
		next := level[:0]
		for i := 0; i+1 < len(level); i += 2 {
			next = append(next, nodeHash(&level[i], &level[i+1]))
		}
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
	for i := range ids {
		leaves[i] = leafHash(ids[i][:])
	}
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
