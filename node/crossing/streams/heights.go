package streams

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// heights tracks the carried number through executed blocks, and which carried number is durable.
type heights struct {
	mu        sync.Mutex
	positions stream.Positions
}

// applied records an executed block.
func (h *heights) applied(height ledger.Height, carried uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.positions.Applied(uint64(height), carried)
}

// base sets the values that the chain began with in that life, unless a block was executed since.
func (h *heights) base(life uint64, height ledger.Height, carried uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.positions.Base(life, uint64(height), carried)
}

// durableTo records that a height is durable.
func (h *heights) durableTo(height ledger.Height) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.positions.DurableTo(uint64(height))
}

// reset clears everything and starts a new life.
func (h *heights) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.positions.Reset()
}

// begun returns the life, and whether its base is known.
func (h *heights) begun() (life uint64, based bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.positions.Begun()
}

// position returns the position of the stream from the parent.
func (h *heights) position() stream.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.positions.Position()
}

// durableHeight returns the height up to which the chain is durable.
func (h *heights) durableHeight() ledger.Height {
	h.mu.Lock()
	defer h.mu.Unlock()
	return ledger.Height(h.positions.DurableHeight())
}
