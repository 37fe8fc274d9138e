package node

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/home"
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
