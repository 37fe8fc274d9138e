package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/shards"
)

// acquaintancesFile is who the members of other shards are, in the home of a node that has heard of
// changes. Without it the node begins with those of the genesis, and hears of the others from its
// fellows.
const acquaintancesFile = "shards.json"

func (b *between) acquaintancesPath() string {
	return filepath.Join(b.node.home.Dir, acquaintancesFile)
}

// recall has the directory know who this node knew when it ended. What cannot be read is heard
// again.
func (b *between) recall() {
	changes, err := readAcquaintances(b.acquaintancesPath())
	if err != nil {
		b.node.logger.Warn("the members of other shards are those of the genesis until others "+
			"are heard of", "error", err)
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

// remember writes down who the members of other shards are, whenever that changed, until the node
// ends.
func (b *between) remember() {
	for {
		changed := b.directory.Changed()
		changes := b.directory.Changes()
		if numbers := numbersOf(changes); !slices.Equal(numbers, b.written) {
			b.written = numbers
			if err := b.write(changes); err != nil {
				b.node.logger.Warn("this node will have to hear again who the members of other "+
					"shards are when it is started anew", "error", err)
			}
		}
		select {
		case <-b.context.Done():
			return
		case <-changed:
		}
	}
}

func (b *between) write(changes []shards.Change) error {
	text, err := json.MarshalIndent(changes, "", "  ")
	if err != nil {
		return err
	}
	return home.WriteFile(b.acquaintancesPath(), append(text, '\n'), 0o644)
}

// numbersOf identifies changes: the shard and the number of each membership.
func numbersOf(changes []shards.Change) (numbers [][2]uint64) {
	for i := range changes {
		numbers = append(numbers, [2]uint64{uint64(changes[i].Shard), changes[i].Membership.Number})
	}
	return numbers
}

// setOwn says who the members of the own shard are.
func (b *between) setOwn(membership ledger.Membership) {
	if b == nil {
		return
	}
	b.directory.SetOwn(membership)
	if height := membership.Height; height > 0 {
		b.untold.Store(uint64(height))
		b.changed()
	}
}

// tellMembers has the other shards told at once of a change of the own members that is durable now.
// One that is not may be taken back, and they would know the wrong ones.
func (b *between) tellMembers(durable ledger.Height) {
	if height := b.untold.Load(); height > 0 && uint64(durable) >= height &&
		b.untold.CompareAndSwap(height, 0) {
		b.changed()
	}
}
