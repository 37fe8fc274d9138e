package trains

import "fmt"

// Fault is a bug that a test can plant. Most of them are errors of the published algorithm, which
// doc.go lists by the same letters.
type Fault uint8

const (
	// FaultNone plants nothing.
	FaultNone Fault = iota
	// FaultFilterByView takes a wagon only if its origin is in the view that this server had when
	// it last sent the train, as in [TRAINS, Algorithm 3, line 19; Algorithm 4] (E1).
	FaultFilterByView
	// FaultStaleAnswered answers a train that is refused with this server's last train, as in
	// [TRAINS, Algorithm 3, lines 34-36] (E2).
	FaultStaleAnswered
	// FaultClockNotStrict accepts a train whose clock is that of the last one, as in [TRAINS,
	// Algorithm 3, line 4], and takes frames of servers that were removed from the ring (E3). While
	// those are ignored, no train comes with an equal clock.
	FaultClockNotStrict
	// FaultDeadHeard takes frames of servers that were removed from the ring (E3).
	FaultDeadHeard
	// FaultJoinerDelivers makes the server at the last place pass its first trains on without
	// taking their wagons, as a server that joins does in [TRAINS, section III-D] (E4).
	FaultJoinerDelivers
	// FaultOneMaker lets the server that starts the trains alone have trains to send again; the
	// others have none before their first (E5).
	FaultOneMaker
	// FaultEmptyUnmarked leaves an empty wagon out of the train under a perfect detector (E11).
	FaultEmptyUnmarked
	// FaultOneRotation A-delivers a round one rotation too early.
	FaultOneRotation
	// FaultWagonUnderTrain files a wagon under the rotation of its train, unless it has a frame of
	// its own.
	FaultWagonUnderTrain
	// FaultResendSome leaves the oldest train out when trains are sent again.
	FaultResendSome
	// FaultLastRoundShort ends an eon one round early.
	FaultLastRoundShort
	// FaultRestsEarly lets trains rest a rotation too soon, before all servers have A-delivered the
	// last payload.
	FaultRestsEarly
	// FaultSuspicionBelieved goes on without a suspected server under ◇P, as under P. The published
	// algorithm does so with any detector.
	FaultSuspicionBelieved
	// FaultSuspicionIgnored lets trains rest under ◇P while a member that they have to pass is
	// gone.
	FaultSuspicionIgnored
	// FaultVotesShort leaves the last round out of the votes.
	FaultVotesShort
	faultEnd
)

// faultNames are the names on a command line.
var faultNames = [faultEnd]string{"none", "filter-by-view", "stale-answered", "clock-not-strict",
	"dead-heard", "joiner-delivers", "one-maker", "empty-unmarked", "one-rotation",
	"wagon-under-train", "resend-some", "last-round-short", "rests-early", "suspicion-believed",
	"suspicion-ignored", "votes-short"}

// hearsDead reports whether a fault takes frames of removed servers.
func (e *Engine) hearsDead() bool {
	return e.config.Fault == FaultDeadHeard || e.config.Fault == FaultClockNotStrict
}

// String returns the fault's name as used on a command line.
func (f Fault) String() string {
	if f >= faultEnd {
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
	return faultNames[f]
}

// Faults lists the bugs.
func Faults() []Fault {
	var all []Fault
	for f := FaultNone + 1; f < faultEnd; f++ {
		all = append(all, f)
	}
	return all
}
