package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Height numbers the blocks of a chain. The genesis is height 0, the first block 1.
type Height uint64

// Epoch numbers the reliable rounds that ordered a block, as the ordering engine counts them.
type Epoch uint64

// Round numbers the round of broadcast that a block comes from, as the ordering engine counts them.
type Round uint64

// ShardID names a shard of the ledger.
type ShardID uint32

// HashSize is the size of a Hash in bytes.
const HashSize = 32

// Hash is a SHA-256 hash: a transaction's id, a block's hash, a Merkle root or the genesis'
// identity. Its text form is 64 hex digits, lower case.
type Hash [HashSize]byte

// ErrHash says that a text is not a hash.
var ErrHash = errors.New("ledger: a hash is 64 hex digits")

// ParseHash reads the text form of a hash; digits of either case are taken.
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

// IsZero reports whether no byte is set.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText returns 64 hex digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	parsed, err := ParseHash(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

func sum256(data []byte) Hash { return sha256.Sum256(data) }
