package crossing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/home"
)

// acquaintancesFile holds the memberships of other shards, in the home of a node that learned of
// changes. Without it, the node starts with the members of the genesis and learns of changes from
// the other members of its shard. With vouched crossings it has their trails too, and they are
// verified again: the file proves nothing by itself.
const acquaintancesFile = "shards.json"

func (b *book) acquaintancesPath() string {
	return filepath.Join(b.config.Dir, acquaintancesFile)
}

// recall loads the memberships known when the node ended into the directory. The node learns again
// what it cannot read.
func (b *book) recall() {
	changes, err := readAcquaintances(b.acquaintancesPath())
	if err != nil {
		b.config.Logger.Warn("this node uses the members of other shards from the genesis until "+
			"it learns newer ones", "error", err)
	}
	b.growth.mutex.Lock()
	defer b.growth.mutex.Unlock()
	b.growth.recalled = changes
	b.recallKnown()
	b.written = numbersOf(b.directory.Changes())
}

// recallKnown gives the directory what the file had of the shards that the directory knows by now.
// The caller holds the lock of growth.
func (b *book) recallKnown() {
	count := b.directory.Tree().Shards()
	b.growth.recalled = slices.DeleteFunc(b.growth.recalled, func(change shards.Change) bool {
		if int(change.Shard) >= count {
			return false
		}
		if err := b.recallChange(&change); err != nil {
			b.config.Logger.Warn("this node learns the members of another shard again: its file "+
				"of them is of no use", "file", b.acquaintancesPath(), "shard", change.Shard,
				"error", err)
		}
		return true
	})
}

// recallChange gives the directory what the file has of one shard. A membership without a trail
// counts only in a book without vouched crossings.
func (b *book) recallChange(change *shards.Change) error {
	if !b.directory.Vouched() {
		b.directory.Learn(change.Shard, change.Membership)
		return nil
	}
	trail := make([]*ledger.Certificate, len(change.Trail))
	for i, encoded := range change.Trail {
		var err error
		if trail[i], err = ledger.DecodeCertificate(encoded); err != nil {
			return err
		}
	}
	_, err := b.directory.LearnTrail(change.Shard, trail)
	return err
}

func readAcquaintances(path string) (changes []shards.Change, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &changes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return changes, nil
}

// remember writes the memberships of other shards to disk on every change, and what former children
// have, until the node ends.
func (b *book) remember() {
	for {
		changed := b.directory.Changed()
		changes := b.directory.Changes()
		if numbers := numbersOf(changes); !slices.Equal(numbers, b.written) {
			b.written = numbers
			if err := b.write(b.withRecalled(changes)); err != nil {
				b.config.Logger.Warn(
					"the members of other shards could not be saved: this node will "+
						"have to learn them again after a restart", "error", err)
			}
		}
		select {
		case <-b.context.Done():
			return
		case <-changed:
		case <-b.former.changed:
			if err := b.former.write(); err != nil {
				b.config.Logger.Warn("what shards that hung below this one have could not be "+
					"saved", "error", err)
			}
		}
	}
}

// withRecalled adds what the file has of shards that this node does not know yet.
func (b *book) withRecalled(changes []shards.Change) []shards.Change {
	b.growth.mutex.Lock()
	defer b.growth.mutex.Unlock()
	return append(changes, b.growth.recalled...)
}

func (b *book) write(changes []shards.Change) error {
	text, err := json.MarshalIndent(changes, "", "  ")
	if err != nil {
		return err
	}
	return home.WriteFile(b.acquaintancesPath(), append(text, '\n'), 0o644)
}

// numbersOf identifies changes by the shard and the number of each membership.
func numbersOf(changes []shards.Change) (numbers [][2]uint64) {
	for i := range changes {
		numbers = append(numbers, [2]uint64{uint64(changes[i].Shard), changes[i].Membership.Number})
	}
	return numbers
}

// ownTrail returns certificates of the joins and leaves of this node's chain.
func (b *book) ownTrail(from ledger.MembersEpoch, bytesMax int) ([]*ledger.Certificate, error) {
	return b.config.Node.Store().Trail(from, bytesMax)
}

// ownEpoch returns the members' epoch up to which this node has its own shard's trail. Changes that
// are not certified yet, and may be taken back, do not count.
func (b *book) ownEpoch() ledger.MembersEpoch {
	known := ledger.MembersEpoch(b.epoch.Load())
	further, err := b.ownTrail(known, trailLookBytes)
	if err != nil && !errors.Is(err, store.ErrClosed) { // it is replaced by another store
		b.config.Logger.Warn("the certificates of this shard's members cannot be read", "error",
			err)
	}
	known += ledger.MembersEpoch(len(further))
	b.epoch.Store(uint64(known))
	return known
}

// trailLookBytes bounds how much of its own trail a node reads to find its end. The rest comes with
// the next announcement.
const trailLookBytes = 64 << 10

// SetOwn implements Crossing.
func (b *book) SetOwn(membership ledger.Membership) {
	b.directory.SetOwn(membership)
	if height := membership.Height; height > 0 {
		b.untold.Store(uint64(height))
		b.Changed()
	}
}

// tellMembers announces a change of this shard's members to the other shards as soon as the change
// is durable. Before that it may be taken back, and the other shards would know wrong members.
func (b *book) tellMembers(durable ledger.Height) {
	if height := b.untold.Load(); height > 0 && uint64(durable) >= height &&
		b.untold.CompareAndSwap(height, 0) {
		b.Changed()
	}
}
