package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestReplayOfManyAccounts: a replay with few accounts in memory gives the same blocks, keeps the
// others on the disk, and leaves nothing there.
func TestReplayOfManyAccounts(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBook(60)
	s := open(t, dir, small())
	for range 3 * replayBlocks {
		if _, err := s.Apply(1, b.round+1, [][]byte{b.next(9)}); err != nil {
			t.Fatal(err)
		}
	}
	replayed, err := s.newReplay()
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		executed, _, err := replayed.execute(block)
		if err != nil || executed.Hash != block.Hash {
			t.Fatalf("block %d is another one: %v", height, err)
		}
		if height%replayBlocks == 1 && height > 1 {
			most = max(most, replayed.state.Resident())
		}
	}
	if replayed.scratch == nil || most >= 60 {
		t.Errorf("%d of 61 accounts stay in memory", most)
	}
	if err := replayed.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, replayFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	// What a killed process left does no harm.
	closeStore(t, s)
	if err := os.MkdirAll(filepath.Join(dir, replayFolder, "remains"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, testGenesis(), small(), nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, replayFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}
