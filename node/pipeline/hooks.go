package pipeline

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// hookCaller calls the hooks in order. A nil telling calls nothing.
type hookCaller struct {
	hooks *Config

	mu      sync.Mutex
	head    ledger.Height // of the last call of Applied
	durable ledger.Height // of the last call of DurableTo
}

func newTelling(hooks *Config, head ledger.Height) *hookCaller {
	if hooks.Applied == nil && hooks.DurableTo == nil && hooks.Exchanged == nil {
		return nil
	}
	return &hookCaller{hooks: hooks, head: head}
}

func (t *hookCaller) applied(block *ledger.Block) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = block.Header.Height
	if t.hooks.Applied != nil {
		t.hooks.Applied(block)
	}
}

// durableTo reads the height with the lock held. So it never reports a height of a chain that was
// set aside after exchanged was called.
func (t *hookCaller) durableTo(height func() ledger.Height) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	durable := min(height(), t.head)
	if durable <= t.durable {
		return
	}
	t.durable = durable
	if t.hooks.DurableTo != nil {
		t.hooks.DurableTo(durable)
	}
}

func (t *hookCaller) exchanged(heights func() (head, durable ledger.Height)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head, t.durable = heights()
	if t.hooks.Exchanged != nil {
		t.hooks.Exchanged()
	}
}
