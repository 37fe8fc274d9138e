package node

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/shard"
)

// TestSettingsTellPrompt: members that disagree on prompt delivery announce other settings, and
// without it they announce what older programs do.
func TestSettingsTellPrompt(t *testing.T) {
	t.Parallel()
	config := home.Default().Ordering
	if got, want := settings(config), "allconcur+, eventual"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	config.Prompt = true
	if got, want := settings(config), "allconcur+, eventual, prompt"; got != want {
		t.Errorf("with prompt: %q, want %q", got, want)
	}
}

// A refusal names nodes that take writes: not one that orders, and whose disk is full, too.
func TestWritersAreNotFull(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		said shard.Announcement
		want bool
	}{
		{shard.Announcement{Mode: shard.Ordering}, true},
		{shard.Announcement{Mode: shard.Ordering, Full: true}, false},
		{shard.Announcement{Mode: shard.Following}, false},
	} {
		if got := takesWrites(&each.said); got != each.want {
			t.Errorf("%v, full: %v: takes writes: %v", each.said.Mode, each.said.Full, got)
		}
	}
}
