package store

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

var (
	// ErrDamaged says that the disk does not hold what it should. Every such error is a
	// *DamageError.
	ErrDamaged = errors.New("store: damaged")
	// ErrForeign says that the folder is not a store of this chain.
	ErrForeign = errors.New("store: foreign folder")
	// ErrLocked says that another process has the store open.
	ErrLocked = errors.New("store: in use by another process")
	// ErrDiskFull says that there is not enough free space to append. Reads go on; appends do as
	// soon as there is space again.
	ErrDiskFull = errors.New("store: disk full")
	// ErrNotFound says that there is no such block, transaction, account or record.
	ErrNotFound = errors.New("store: not found")
	// ErrAbsent says that the store began with a snapshot, and that what is asked for lies in a
	// block before it, which is not here yet.
	ErrAbsent = errors.New("before the snapshot that this store began with")
	// ErrSnapshot says that a snapshot is malformed, is of another chain, or does not fit the block
	// that it is said to be of.
	ErrSnapshot = errors.New("store: not a good snapshot")
	// ErrMismatch says that a block does not follow the head, or that executing it gives another
	// block.
	ErrMismatch = errors.New("store: block does not fit the chain")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrFailed says that an earlier write failed, so that nothing more can be written until the
	// store is opened again.
	ErrFailed = errors.New("store: failed earlier")
)

// DamageError says which block is damaged, and how.
type DamageError struct {
	// Height is the first block known to be affected.
	Height ledger.Height
	Reason string
}

// Error returns a sentence.
func (e *DamageError) Error() string {
	return fmt.Sprintf("store: damaged at block %d: %s", e.Height, e.Reason)
}

// Is makes every DamageError an ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

func damaged(height ledger.Height, format string, arguments ...any) error {
	return &DamageError{Height: height, Reason: fmt.Sprintf(format, arguments...)}
}

// guard turns a panic of the database over damaged files into a DamageError.
func guard(height ledger.Height, err *error) {
	if reason := recover(); reason != nil {
		*err = damaged(height, "the database failed: %v", reason)
	}
}
