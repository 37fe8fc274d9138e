package store

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

var (
	// ErrDamaged reports that data on the disk is wrong or missing. Every such error is a
	// *DamageError.
	ErrDamaged = errors.New("store: damaged")
	// ErrForeign reports that the folder is not a store of this chain.
	ErrForeign = errors.New("store: foreign folder")
	// ErrLocked reports that another process has the store open.
	ErrLocked = errors.New("store: in use by another process")
	// ErrDiskFull reports that there is not enough free space to append. Reads still work. Appends
	// work again as soon as there is enough space.
	ErrDiskFull = errors.New("store: disk full")
	// ErrNoDescriptors reports that the process can open no more files. Appends work again as soon
	// as it can.
	ErrNoDescriptors = errors.New("store: no file descriptors left")
	// ErrNotFound reports that there is no such block, transaction, account or record.
	ErrNotFound = errors.New("store: not found")
	// ErrAbsent reports that the store began with a snapshot, and that the requested data is in a
	// block up to that snapshot that is not here yet.
	ErrAbsent = errors.New("before the snapshot that this store began with")
	// ErrSnapshot reports that a snapshot is malformed, belongs to another chain, or does not match
	// the block that it claims to be of.
	ErrSnapshot = errors.New("store: invalid snapshot")
	// ErrMismatch reports that a block does not follow the head, or that executing it gives another
	// block.
	ErrMismatch = errors.New("store: block does not fit the chain")
	// ErrClosed reports that the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrFailed reports that an earlier write failed. The store accepts no more writes until it is
	// opened again.
	ErrFailed = errors.New("store: an earlier write failed")
)

// AbsentError names an absent block that a read needs. Another node has it.
type AbsentError struct {
	Height ledger.Height
	// Absent is the height up to which blocks are absent.
	Absent ledger.Height
}

// Error returns the block and what to do.
func (e *AbsentError) Error() string {
	return fmt.Sprintf("store: block %d lies %v, and the blocks up to %d are not here yet: ask "+
		"another node", e.Height, ErrAbsent, e.Absent)
}

// Is makes every AbsentError an ErrAbsent.
func (e *AbsentError) Is(target error) bool { return target == ErrAbsent }

// DamageError names a damaged block and the damage.
type DamageError struct {
	// Height is the first block known to be affected.
	Height ledger.Height
	Reason string
}

// Error returns the block and the reason.
func (e *DamageError) Error() string {
	return fmt.Sprintf("store: damaged at block %d: %s", e.Height, e.Reason)
}

// Is makes every DamageError an ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

func damaged(height ledger.Height, format string, arguments ...any) error {
	return &DamageError{Height: height, Reason: fmt.Sprintf(format, arguments...)}
}

// guard turns a panic of the database because of damaged files into a DamageError.
func guard(height ledger.Height, err *error) {
	if reason := recover(); reason != nil {
		*err = damaged(height, "the database failed: %v", reason)
	}
}
