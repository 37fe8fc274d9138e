package crossing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
)

// A shard that hangs elsewhere by now needs nothing more from here once it has all that this
// shard's chain has for it. It may be silent for long after that, for reasons that do not concern
// this shard. So the node writes down how many entries it had. Otherwise the alarm would be on
// after a start, until the shard is heard.

// formerFile holds this, in the home of a node whose shard has former children.
const formerFile = "former-children.json"

// formerChildren is what the shards that were right below this one are known to have of their
// streams.
type formerChildren struct {
	path string

	mutex sync.Mutex
	taken map[ledger.ShardID]uint64
	// changed gets a value when the file lacks something.
	changed chan struct{}
}

// formerTaken is an entry of the file.
type formerTaken struct {
	Shard ledger.ShardID `json:"shard"`
	Taken uint64         `json:"taken"`
}

// readFormerChildren returns what the file in a home says. If it cannot be read, it also returns an
// empty one, which takes its place.
func readFormerChildren(dir string) (*formerChildren, error) {
	f := &formerChildren{path: filepath.Join(dir, formerFile),
		taken: make(map[ledger.ShardID]uint64), changed: make(chan struct{}, 1)}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	var all []formerTaken
	if err := json.Unmarshal(text, &all); err != nil {
		return f, fmt.Errorf("%s: %w", f.path, err)
	}
	for _, each := range all {
		if each.Shard < ledger.MaxShards {
			f.taken[each.Shard] = each.Taken
		}
	}
	return f, nil
}

// has returns how many entries of its stream a shard is known to have, given what is heard of it,
// and notes what is new. It returns false if nothing is known.
func (f *formerChildren) has(shard ledger.ShardID, taken uint64, known bool) (uint64, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	before, noted := f.taken[shard]
	if !known || taken <= before {
		return max(taken, before), known || noted
	}
	f.taken[shard] = taken
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return taken, true
}

// write writes the file.
func (f *formerChildren) write() error {
	f.mutex.Lock()
	taken := maps.Clone(f.taken)
	f.mutex.Unlock()
	var all []formerTaken
	for _, shard := range slices.Sorted(maps.Keys(taken)) {
		all = append(all, formerTaken{Shard: shard, Taken: taken[shard]})
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return home.WriteFile(f.path, append(text, '\n'), 0o644)
}
