package shards

import (
	"errors"
	"net/netip"
	"sync"
	"time"
)

// Bounds of what strangers may cost.
const (
	// callerPause is the time between two introductions of one address, in the long run, and
	// callerBurst is how many it may make at once: nodes may share an address, and a long trail
	// needs several.
	callerPause = time.Second
	callerBurst = 32
	// falsePause is for how long an address is not heard after an introduction that was false.
	falsePause = 10 * time.Second
	// callersMax bounds the addresses that a node remembers.
	callersMax = 1024
	// wastePause is the time for each signature that was verified for nothing, in the long run, and
	// wasteBurst is how many may be at once. To verify one takes 1/20 ms or so, so strangers cost
	// less than 3 % of a processor.
	wastePause = 2 * time.Millisecond
	wasteBurst = 4096
)

// errGate reports that a stranger's introduction is not heard now.
var errGate = errors.New("shards: introductions are not heard now")

// gate bounds what the introductions of strangers cost: those of each address, and all of them. It
// is safe for concurrent use.
type gate struct {
	now func() time.Time

	mu sync.Mutex
	// callers has the time from which on an address is as if it had never called. It lies
	// callerPause further for each introduction.
	callers map[string]time.Time
	// waste is such a time for the signatures that were verified for nothing.
	waste time.Time
}

func newGate() *gate { return &gate{now: time.Now, callers: map[string]time.Time{}} }

// admit counts an introduction of an address, or returns errGate.
func (g *gate) admit(from string) error {
	from = callerOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if g.waste.Sub(now) > wasteBurst*wastePause {
		return errGate
	}
	until, known := g.callers[from]
	if !known && len(g.callers) >= callersMax {
		g.forget()
	}
	if until.Before(now) {
		until = now
	}
	if until.Add(callerPause).Sub(now) > callerBurst*callerPause {
		return errGate
	}
	g.callers[from] = until.Add(callerPause)
	return nil
}

// blame counts a false introduction of an address, and the signatures that were verified for it.
func (g *gate) blame(from string, wasted int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.callers[callerOf(from)] = now.Add(callerBurst*callerPause + falsePause)
	if g.waste.Before(now) {
		g.waste = now
	}
	g.waste = g.waste.Add(time.Duration(wasted) * wastePause)
}

// forget forgets the address that is forgotten first anyway. The caller holds the lock.
func (g *gate) forget() {
	var first string
	for from, until := range g.callers {
		if first == "" || until.Before(g.callers[first]) {
			first = from
		}
	}
	delete(g.callers, first)
}

// callerOf returns the address for which a caller counts: IPv6 addresses count by the 64 bits that
// one subscriber has.
func callerOf(from string) string {
	address, err := netip.ParseAddr(from)
	if err != nil {
		return from // not every fabric has addresses
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	prefix, err := address.Prefix(64)
	if err != nil {
		return address.String()
	}
	return prefix.String()
}
