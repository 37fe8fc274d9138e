// Package detector is the failure detector of [Poke19, section 5.2.1.1]: every server sends
// heartbeats to its successors in the reliable digraph G_R, and suspects a predecessor from which
// it heard nothing for a timeout.
//
// A server is suspected when
//
//   - its heartbeats have not come for a timeout, which adapts to the gaps between them and to past
//     mistakes (link.go), from Timeout up to TimeoutMax;
//   - its connection is down and has not come back for Grace, which adapts, too;
//   - its machine refuses connections, or a lane to it other than the group's broke: a process that
//     was killed is noticed within milliseconds, where the fabric can tell, and otherwise after
//     Grace; only a machine or a cable that vanishes takes the timeout.
//
// All of these err, and a later heartbeat of the same incarnation, with its connection up, takes
// the suspicion back (Config.Trust): the detector is eventually perfect, ◇P [Chandra and Toueg,
// JACM 43(2), 1996]. Never taken back in the same run, and without Config.Trust nothing is, is a
// suspicion because
//
//   - the server came back as a new incarnation: it has forgotten its rounds;
//   - messages between the two are lost: this server's lane to it, Config.Lane, broke for good, or
//     was given up (Lost); or it says that its lane to this server did;
//   - another server that lost its lane to it says so (an accusation). The unreliable digraph G_U
//     has edges that G_R has not, and only the successors of a server in G_R may suspect it.
//     Whoever loses a lane over another edge tells one of them, the first that is left: one
//     suspicion makes rounds reliable, so that the lane is not needed any more; and the accused one
//     stays in the group if it lives.
//
// Who lost its lane to a server sends it no heartbeats of this run any more, so that the other side
// suspects it as well, at the latest by its silence.
//
// Heartbeats carry the number of their run. Those of another eon of the same generation show life,
// too, since eons end here and there at different times. Who is to take part in an eon that has yet
// to begin sends heartbeats for it already (Prepare), while it fetches what it lacks, say.
//
// Timers measure this process too: when it was stopped, for longer than a heartbeat, its
// predecessors' heartbeats wait unread. So a clock that jumped counts as a pause of our own, and
// everybody gets a fresh Timeout.
//
// Machine is the state machine, without clock, goroutine or fabric; Detector drives it over
// node/control. Heartbeats carry a few bytes of whoever wants to tell something regularly (the
// height that is stored).
package detector

import (
	"fmt"
	"math"
	"time"
)

// Accuracy bounds from below the probability that no server is ever suspected wrongly [Poke19,
// section 5.2.1.1]:
//
//	(1 - Π_{k=1..⌊Δto/Δhb⌋} Pr[T > Δto - k·Δhb])^(n·d)
//
// for n servers in a digraph of degree d, the heartbeat period Δhb and the timeout Δto, where
// delayed(t) gives Pr[T > t] for the delay T of a message. All k heartbeats that a server sends
// within a timeout must be late for one suspicion to be wrong, and n·d pairs of servers watch each
// other. The bound takes delays as independent, and is per timeout. Wrong arguments get an error.
func Accuracy(servers, degree int, heartbeat, timeout time.Duration,
	delayed func(time.Duration) float64) (float64, error) {
	if servers < 1 || degree < 0 || heartbeat <= 0 || timeout < heartbeat || delayed == nil {
		return 0, fmt.Errorf("detector: accuracy of %d servers of degree %d with heartbeats "+
			"every %v and a timeout of %v makes no sense", servers, degree,
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
