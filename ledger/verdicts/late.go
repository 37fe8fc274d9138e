package verdicts

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// After moves a transaction may wait for a shard that it never reaches (docs/design/moves.md). Once
// its deadline is over, a member whose shard waits hands a copy over to a member of that shard,
// which proposes it. No member has to believe another one: the clients have signed the copy, and
// the chain refuses it only if it lacks it and the deadline is over by the chain's own time.

// lateLasts is how long a copy waits for a block. Clocks may differ a little.
const lateLasts ledger.Milliseconds = 30_000

// ErrNotTaken is returned for a copy that the chain has, or does not take.
var ErrNotTaken = errors.New("the chain has the transaction, or does not take it")

// LateBounds bound the copies that wait for a block: all, and those from one shard. What does not
// fit is handed over again. A copy has the ids of all transactions of its bundle, so Bytes and
// BytesOfShard bound their sizes. One of the largest size should always have room.
type LateBounds struct{ All, OfShard, Bytes, BytesOfShard int }

// DefaultLateBounds returns the bounds of a node.
func DefaultLateBounds() LateBounds {
	return LateBounds{All: 64, OfShard: 16, Bytes: 4 * ledger.MaxBundleBytes,
		BytesOfShard: ledger.MaxBundleBytes}
}

// LateCopies are copies that were handed over and that no block took yet. They are not safe for
// concurrent use.
type LateCopies struct {
	bounds LateBounds
	fault  Fault
	all    []LateCopy
}

// NewLateCopies returns none yet. Only tests and simulators plant a fault.
func NewLateCopies(bounds LateBounds, fault Fault) *LateCopies {
	return &LateCopies{bounds: bounds, fault: fault}
}

// LateCopy is a copy of one transaction that a shard handed over.
type LateCopy struct {
	from        ledger.ShardID
	ID          ledger.Hash
	Transaction *ledger.Transaction
	encoded     []byte
	until       ledger.Milliseconds
}

// Takes reports whether the chain takes a transaction in a block of now, as a copy that is too
// late.
type Takes func(id ledger.Hash, t *ledger.Transaction) (bool, error)

// Read reads a copy that a member of another shard handed over now. The error says why it is not to
// be proposed: ledger.ErrMalformed and others of ledger.DecodeCarried if it is not a copy of one
// transaction, ErrNotTaken, that of takes, or ledger.ErrSignature. Members refuse what is not
// signed.
func (l *LateCopies) Read(from ledger.ShardID, encoded []byte, now ledger.Milliseconds,
	takes Takes) (LateCopy, error) {
	bundle, kept, err := ledger.DecodeCarried(encoded)
	if err != nil {
		return LateCopy{}, err
	}
	at := slices.Index(kept, true)
	if slices.Contains(kept[at+1:], true) && l.fault != FaultLateUnchecked {
		return LateCopy{}, fmt.Errorf("%w: more than one transaction", ledger.ErrMalformed)
	}
	late := LateCopy{from, bundle.ID(at), bundle.Transaction(at), encoded, now + lateLasts}
	taken, err := takes(late.ID, late.Transaction)
	switch {
	case err != nil:
		return LateCopy{}, err
	case !taken:
		return LateCopy{}, ErrNotTaken
	case l.fault == FaultLateUnchecked:
		return late, nil
	}
	return late, ledger.NewVerifier().Bundles([]*ledger.Bundle{bundle})[0]
}

// Add adds a copy that was read at this time, and reports whether there was room.
func (l *LateCopies) Add(added LateCopy, now ledger.Milliseconds) bool {
	l.all = slices.DeleteFunc(l.all, func(each LateCopy) bool { return now > each.until })
	ofShard, bytes, bytesOfShard := 0, len(added.encoded), len(added.encoded)
	for i := range l.all {
		each := &l.all[i]
		if each.ID == added.ID {
			each.until = added.until
			return true
		}
		bytes += len(each.encoded)
		if each.from == added.from {
			ofShard, bytesOfShard = ofShard+1, bytesOfShard+len(each.encoded)
		}
	}
	if len(l.all) >= l.bounds.All || bytes > l.bounds.Bytes ||
		bytesOfShard > l.bounds.BytesOfShard ||
		ofShard >= l.bounds.OfShard && l.fault != FaultLateUnbounded {
		return false
	}
	l.all = append(l.all, added)
	return true
}

// Forget forgets the copies that a block has.
func (l *LateCopies) Forget(block *ledger.Block) {
	if len(l.all) == 0 {
		return
	}
	for _, entry := range block.All() {
		l.all = slices.DeleteFunc(l.all, func(each LateCopy) bool { return each.ID == entry.ID })
	}
}

// Waiting returns the copies that wait at this time.
func (l *LateCopies) Waiting(now ledger.Milliseconds) []LateCopy {
	return slices.DeleteFunc(slices.Clone(l.all), func(each LateCopy) bool {
		return now > each.until
	})
}

// OfShard counts the copies that a shard handed over.
func (l *LateCopies) OfShard(from ledger.ShardID) (count int) {
	for i := range l.all {
		if l.all[i].from == from {
			count++
		}
	}
	return count
}

// Taken returns those of the copies that the chain takes now. All of a batch would be left out if
// the chain did not take any (state.Seal).
func Taken(copies []LateCopy, takes Takes) (some []ledger.Carried) {
	for i := range copies {
		if taken, err := takes(copies[i].ID, copies[i].Transaction); err == nil && taken {
			some = append(some, ledger.Carried{Bundle: copies[i].encoded})
		}
	}
	return some
}

// Within returns those of the copies that fit into room bytes of a batch.
func Within(copies []ledger.Carried, room int) (some []ledger.Carried) {
	for _, each := range copies {
		if size := ledger.CarriedSize(len(each.Bundle)); size <= room {
			room -= size
			some = append(some, each)
		}
	}
	return some
}
