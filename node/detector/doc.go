// Package detector is the failure detector of [Poke19, section 5.2.1.1]: every server sends heartbeats to its successors in the reliable
// digraph G_R, and suspects a predecessor from which it heard nothing for a timeout.
//
// A server is suspected, once a generation and for good, when
//
//   - its heartbeats of this generation have not come for Timeout;
//   - its connection is down and has not come back for Grace: a process that was killed is noticed after Grace, as its connections are reset and
//     refused; only a machine or a cable that vanishes takes the Timeout;
//   - a lane to it broke for good (the fabric's PeerUnreachable), or it came back as a new incarnation: it has forgotten its rounds;
//   - another server that cannot reach it says so (an accusation). The unreliable digraph G_U has edges that G_R has not: only the successors of a
//     server in G_R may suspect it, so whoever loses a lane to it over another edge tells them.
//
// Timers measure this process too: when it was stopped, for longer than a heartbeat, its predecessors' heartbeats wait unread. So a clock that
// jumped counts as a pause of our own, and everybody gets a fresh Timeout.
//
// Machine is the state machine, without clock, goroutine or fabric; Detector drives it over node/control. Heartbeats carry a few bytes of whoever wants
// to tell something regularly (the height that is stored).
package detector

import (
	"fmt"
	"math"
	"time"
)

// Accuracy bounds from below the probability that no server is ever suspected wrongly [Poke19, section 5.2.1.1]:
//
//	(1 - Π_{k=1..⌊Δto/Δhb⌋} Pr[T > Δto - k·Δhb])^(n·d)
//
// for n servers in a digraph of degree d, the heartbeat period Δhb and the timeout Δto, where delayed(t) gives Pr[T > t] for the delay T
// of a message. All k heartbeats that a server sends within a timeout must be late for one suspicion to be wrong, and n·d pairs of servers watch
// each other. The bound takes delays as independent, and is per timeout. Wrong arguments get an error.
func Accuracy(servers, degree int, heartbeat, timeout time.Duration, delayed func(time.Duration) float64) (float64, error) {
	if servers < 1 || degree < 0 || heartbeat <= 0 || timeout < heartbeat || delayed == nil {
		return 0, fmt.Errorf("detector: accuracy of %d servers of degree %d with heartbeats every %v and a timeout of %v makes no sense", servers, degree,
			heartbeat, timeout)
	}
	allLate := 1.0
	for k := time.Duration(1); k <= timeout/heartbeat; k++ {
		p := delayed(timeout - k*heartbeat)
		if p < 0 || p > 1 || math.IsNaN(p) {
			return 0, fmt.Errorf("detector: %v is no probability", p)
		}
		allLate *= p
	}
	return math.Pow(1-allLate, float64(servers)*float64(degree)), nil
}
