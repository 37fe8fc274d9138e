package state

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestIDSetKeepsIDsThatBeginAlike: a set of ids has exactly those that were put into it, also if
// many have the same first bytes, or bytes that follow each other.
func TestIDSetKeepsIDsThatBeginAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids, known := make(idSet), make(map[ledger.Hash]bool)
		block := new(ledger.Block)
		for range rapid.IntRange(0, 60).Draw(t, "ids") {
			id := ledger.Hash{7: rapid.Byte().Draw(t, "key") % 4,
				31: rapid.Byte().Draw(t, "rest") % 8}
			if rapid.Bool().Draw(t, "last") { // the keys that wrap around
				id = ledger.Hash{255, 255, 255, 255, 255, 255, 255, 255 - id[7], 31: id[31]}
			}
			key, found := ids.find(&id, block)
			if found != known[id] {
				t.Fatalf("%s is found: %v", id, found)
			}
			if !found {
				ids[key] = uint32(block.Len())
				block.Unpacked = append(block.Unpacked, ledger.Entry{ID: id})
				known[id] = true
			}
		}
	})
}
