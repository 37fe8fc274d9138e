package wire

import (
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// complaintEvery is the pause between two log records about what one peer sends.
const complaintEvery = 10 * time.Second

// complaintsMax bounds the peers that are remembered. Peers are members, so there are few.
const complaintsMax = 4096

// complaints keeps a peer that sends what is malformed from filling the log. The zero value is
// ready.
type complaints struct {
	mu   sync.Mutex
	last map[rdmanet.PeerID]time.Time
}

// due reports whether there was no complaint about a peer a moment ago, and records this one.
func (c *complaints) due(about rdmanet.PeerID) bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.last[about]; known && now.Sub(last) < complaintEvery {
		return false
	}
	if c.last == nil || len(c.last) >= complaintsMax {
		c.last = make(map[rdmanet.PeerID]time.Time)
	}
	c.last[about] = now
	return true
}
