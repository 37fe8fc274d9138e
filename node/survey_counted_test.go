package node

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/node/home"
)

// A recovery counts what a home took part in as the node's start does, unless the disk is a new
// one. A home of an older version has no identity yet, and gets the one that its promises name.
func TestCountedState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk  home.Disk
		keeps bool
	}{
		"the disk that promised":     {home.Disk{ID: home.DiskID{1}, Original: true}, true},
		"another disk":               {home.Disk{ID: home.DiskID{2}}, false},
		"a disk about to be new":     {home.Disk{ID: home.DiskID{1}, Renewed: true}, false},
		"a home of an older version": {home.Disk{Original: true}, true},
	} {
		run := generation.NewRun(3, 1)
		held := Holdings{Disk: &c.disk, state: generation.State{Disk: generation.DiskID{1},
			Activated: run}}
		if state := held.counted(); (state.Activated == run) != c.keeps {
			t.Errorf("%s: took part in %d", name, state.Activated)
		}
	}
}
