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
	"github.com/ledgerd/ledgerd/node/crossing/shards"
	"github.com/ledgerd/ledgerd/node/home"
)

// acquaintancesFile holds the memberships of other shards, in the home of a node that learned of
// changes. Without it, the node starts with the members of the genesis and learns of changes from
// the other members of its shard.
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
	for _, change := range changes {
		b.directory.Learn(change.Shard, change.Membership)
	}
	b.written = numbersOf(b.directory.Changes())
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

// remember writes the memberships of other shards to disk on every change, until the node ends.
func (b *book) remember() {
	for {
		changed := b.directory.Changed()
		changes := b.directory.Changes()
		if numbers := numbersOf(changes); !slices.Equal(numbers, b.written) {
			b.written = numbers
			if err := b.write(changes); err != nil {
				b.config.Logger.Warn(
					"the members of other shards could not be saved: this node will "+
						"have to learn them again after a restart", "error", err)
			}
		}
		select {
		case <-b.context.Done():
			return
		case <-changed:
		}
	}
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
