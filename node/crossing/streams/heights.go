package streams

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
)

// heightsMax bounds the blocks that carried something and are not durable yet. Beyond it the newest
// blocks are merged, so their position is reported later.
const heightsMax = 4096

// heights tracks the carried number through executed blocks, and which carried number is durable.
type heights struct {
	mu sync.Mutex
	// life counts the resets.
	life uint64
	// based reports that ordered is valid. ordered is the carried number of the last executed
	// block.
	based   bool
	ordered uint64
	// rising holds the executed blocks that increased the carried number and are not durable,
	// ascending.
	rising []rise
	// settled is the carried number that is durable; it is valid if known is set.
	settled uint64
	known   bool
	durable ledger.Height
	// fault is a bug to plant.
	fault fault
}

// rise is the carried number from a height on.
type rise struct {
	height  ledger.Height
	carried uint64
}

// position is the position in this chain of the stream from the parent.
type position struct {
	ordered, durable uint64
	// known reports that the other fields are valid.
	known bool
}

// applied records an executed block.
func (h *heights) applied(height ledger.Height, carried uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rise(height, carried)
}

func (h *heights) rise(height ledger.Height, carried uint64) {
	for len(h.rising) > 0 && h.rising[len(h.rising)-1].height >= height &&
		h.fault != faultHeightsKept { // the chain went back
		h.rising = h.rising[:len(h.rising)-1]
	}
	last := len(h.rising) - 1
	before, has := h.settled, h.known
	if last >= 0 {
		before, has = h.rising[last].carried, true
	}
	switch {
	case has && carried == before:
	case last+1 == heightsMax:
		h.rising[last] = rise{height, carried}
	default:
		h.rising = append(h.rising, rise{height, carried})
	}
	h.based, h.ordered = true, carried
	h.settle()
}

// base sets the values that the chain began with in that life, unless a block was executed since.
func (h *heights) base(life uint64, height ledger.Height, carried uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if life == h.life && !h.based {
		h.rise(height, carried)
	}
}

// durableTo records that a height is durable.
func (h *heights) durableTo(height ledger.Height) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = max(h.durable, height)
	h.settle()
}

// settle updates settled from the blocks that have become durable.
func (h *heights) settle() {
	n := 0
	for n < len(h.rising) && h.rising[n].height <= h.durable {
		h.settled, h.known = h.rising[n].carried, true
		n++
	}
	if n > 0 {
		h.rising = h.rising[:copy(h.rising, h.rising[n:])]
	}
}

// reset clears everything and starts a new life.
func (h *heights) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life++
	h.based, h.known, h.durable, h.ordered, h.settled = false, false, 0, 0, 0
	h.rising = h.rising[:0]
}

// begun returns the life, and whether its base is known.
func (h *heights) begun() (life uint64, based bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life, h.based
}

// position returns the position of the stream from the parent.
func (h *heights) position() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return position{ordered: max(h.ordered, h.settled), durable: h.settled, known: h.based &&
		h.known}
}

// durableHeight returns the height up to which the chain is durable.
func (h *heights) durableHeight() ledger.Height {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.durable
}
