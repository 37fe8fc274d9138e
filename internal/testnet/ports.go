package testnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// FreeBasePort returns ports in this range. It is below the ports that systems assign by
// themselves, and apart from ports that people commonly choose.
//
// The range is cut into blocks, and each block has a claim: a port on which the process that uses
// the block listens until it ends. A test that kills a node leaves its ports free for a while, and
// without the claims another process would take them.
const (
	lowestFreePort = 20000
	lowestClaim    = 26300
	portBlocks     = 120
	blockPorts     = 50
)

// ports are the blocks that this process has claimed.
var ports struct {
	sync.Mutex
	claims []claim
	// next is the first port that was not given out yet, of those before end.
	next, end int
	// reused is how often a block was used again.
	reused int
}

// claim is a row of blocks that this process has claimed.
type claim struct {
	block, count int
	listeners    []net.Listener
}

// FreeBasePort finds a base port for the given number of nodes of all shards together. All their
// ports are free now. No other process of this machine that still runs gets them from this
// function, and this one gets them again only after all others.
func FreeBasePort(nodes int) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	wanted := 2 * nodes
	for range portBlocks {
		for ; ports.end-ports.next >= wanted; ports.next++ {
			base := ports.next
			if areFree(base, wanted) {
				ports.next += wanted
				return base, nil
			}
		}
		taken, found := claimBlocks((wanted + blockPorts - 1) / blockPorts)
		if !found {
			break
		}
		ports.next = lowestFreePort + taken.block*blockPorts
		ports.end = ports.next + taken.count*blockPorts
	}
	return 0, fmt.Errorf("%w: no %d free ports in a row found", ErrLayout, wanted)
}

func areFree(base, count int) bool {
	for port := base; port < base+count; port++ {
		listener, err := net.Listen("tcp", address(port))
		if err != nil || listener.Close() != nil {
			return false
		}
	}
	return true
}

// claimBlocks claims some blocks in a row for this process. If there are none, it returns those
// that this process claimed longest ago. The caller must hold the mutex.
func claimBlocks(count int) (claim, bool) {
	first := rand.IntN(portBlocks)
	for i := range portBlocks {
		if made, ok := claimFrom((first+i)%portBlocks, count); ok {
			ports.claims = append(ports.claims, made)
			return made, true
		}
	}
	for range ports.claims {
		old := ports.claims[ports.reused%len(ports.claims)]
		if ports.reused++; old.count >= count {
			return old, true
		}
	}
	return claim{}, false
}

// claimFrom claims some blocks from one on, or none if another process has one of them.
func claimFrom(block, count int) (claim, bool) {
	made := claim{block: block, count: count}
	for b := block; b < block+count; b++ {
		listener, err := net.Listen("tcp", address(lowestClaim+b))
		if err != nil || b >= portBlocks {
			for _, listener := range append(made.listeners, listener) {
				if listener != nil {
					_ = listener.Close() // no one connects to it
				}
			}
			return claim{}, false
		}
		made.listeners = append(made.listeners, listener)
	}
	return made, true
}
