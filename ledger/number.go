package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Height numbers the blocks of a chain. The genesis is height 0, and the first block after it is
// height 1.
type Height uint64

// Epoch numbers the reliable rounds that ordered a block, as counted by the ordering engine.
type Epoch uint64

// Round numbers the round of broadcast that ordered a block, as counted by the ordering engine.
type Round uint64

// ShardID names a shard of the ledger.
type ShardID uint32

// HashSize is the size of a Hash in bytes.
const HashSize = 32

// Hash is a SHA-256 hash: a transaction's id, a block's hash, a Merkle root or the identity of a
// genesis. Its text form is 64 lower-case hex digits.
type Hash [HashSize]byte

// ErrHash reports that a text is not a hash.
var ErrHash = errors.New("ledger: a hash is 64 hex digits")

// ParseHash parses the text form of a hash. It accepts digits of either case.
func ParseHash(text string) (Hash, error) {
	var hash Hash
	if len(text) != 2*HashSize {
		return Hash{}, fmt.Errorf("%w: %d characters", ErrHash, len(text))
	}
	if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
		return Hash{}, fmt.Errorf("%w: %w", ErrHash, err)
	}
	return hash, nil
}

// String returns 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether all bytes are zero.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText returns 64 hex digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (h *Hash) UnmarshalText(text []byte) error {
	parsed, err := ParseHash(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

// sum256 returns the SHA-256 of the parts, one after the other. It does not copy them, and the
// digest stays on the stack.
func sum256(parts ...[]byte) (sum Hash) {
	digest := sha256.New()
	for _, part := range parts {
		digest.Write(part)
	}
	digest.Sum(sum[:0])
	return sum
}
