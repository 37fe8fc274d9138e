package ledger

import (
	"encoding/hex"
	"fmt"
)

// DiskID is the identity of a disk: 128 random bits. The zero value means no disk. The text form is
// 32 hex digits, and empty for the zero value.
type DiskID [16]byte

// Bounds of the disk map.
const (
	// AdmitStream is the nonce stream of every ChangeAdmit. The sequence number of its nonce is the
	// number of the membership that the change makes.
	AdmitStream = 1<<64 - 1
	// AdmitLife is the number of blocks for which a transaction made by NewAdmit is valid.
	AdmitLife = 1000
	// MaxMemberDisks bounds the disks that were ever named for one member. The member's entry of
	// the state keeps all of them, because MembershipAt returns the disk map of any height.
	MaxMemberDisks = 4096
)

// ParseDiskID parses the text form of a disk's identity, or returns ErrMalformed.
func ParseDiskID(text string) (DiskID, error) {
	var disk DiskID
	if text == "" {
		return disk, nil
	}
	if len(text) != 2*len(disk) {
		return DiskID{}, fmt.Errorf("%w: a disk is 32 hex digits, not %d characters",
			ErrMalformed, len(text))
	}
	if _, err := hex.Decode(disk[:], []byte(text)); err != nil {
		return DiskID{}, fmt.Errorf("%w: a disk is 32 hex digits: %w", ErrMalformed, err)
	}
	if disk.IsZero() {
		return DiskID{}, fmt.Errorf("%w: a disk of zeros", ErrMalformed)
	}
	return disk, nil
}

// IsZero reports whether the value means no disk.
func (d DiskID) IsZero() bool { return d == DiskID{} }

// String returns 32 hex digits, or "" for the zero value.
func (d DiskID) String() string {
	if d.IsZero() {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// MarshalText returns 32 hex digits, or nothing for the zero value.
func (d DiskID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the output of MarshalText, or returns ErrMalformed.
func (d *DiskID) UnmarshalText(text []byte) error {
	parsed, err := ParseDiskID(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// NewAdmit returns the signed bundle that makes disk count for the member with this index. The
// private key has ed25519.PrivateKeySize bytes. It is an operator's key or the node key of another
// member of now, or of the member itself if it is the only member. Chain is Genesis.Hash, now is
// the newest membership that the caller knows, and head is the height of the newest block.
//
// Several members may propose the same admission, and each may propose it again. The change is
// valid only as the next one after now, so at most one of the proposals changes anything. Proposals
// made at the same head are the same transaction. The others are recorded as applied without a
// change, or as StaleNonce if another change came first. None takes a nonce.
//
// A failed transaction is not executed again. To repeat a proposal that failed with
// MembershipChanging, call NewAdmit with the present membership and head. The block with the
// failure has raised the head, so the new transaction has another id.
func NewAdmit(private []byte, chain Hash, now *Membership, index MemberIndex, disk DiskID,
	head Height) (*Bundle, error) {
	bundle, err := NewAdmission(chain, now, index, disk, head)
	if err != nil {
		return nil, err
	}
	if err := bundle.Sign(Operator, private); err != nil {
		return nil, fmt.Errorf("admitting disk %s for member %d: %w", disk, index, err)
	}
	return bundle, nil
}

// NewAdmission returns the bundle of NewAdmit without a signature.
func NewAdmission(chain Hash, now *Membership, index MemberIndex, disk DiskID, head Height) (
	*Bundle, error) {
	bundle, err := NewBundle(Transaction{
		Ledger:    chain,
		Nonce:     Nonce{Stream: AdmitStream, Sequence: now.Number + 1},
		LastValid: head + AdmitLife,
		Change:    &MembershipChange{Kind: ChangeAdmit, Index: index, Disk: disk},
	})
	if err != nil {
		return nil, fmt.Errorf("admitting disk %s for member %d: %w", disk, index, err)
	}
	return bundle, nil
}
