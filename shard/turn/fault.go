package turn

import "fmt"

// Fault is a bug to plant on purpose. The simulator and this room's tests show with it that they
// can say no.
type Fault uint8

// The faults.
const (
	// FaultNone is the machine as it should be.
	FaultNone Fault = iota
	// FaultDeliverFirst hands deliveries over before it sends.
	FaultDeliverFirst
	// FaultOpinionsFirst gives a turn's suspicions to the engine before its frames.
	FaultOpinionsFirst
	// FaultSilencedTrusted trusts a silenced server again.
	FaultSilencedTrusted
	// FaultStaleFrames has a gate take frames of earlier runs for the running one's.
	FaultStaleFrames

	faultEnd
)

// Faults lists the faults.
func Faults() []Fault {
	var all []Fault
	for f := FaultNone + 1; f < faultEnd; f++ {
		all = append(all, f)
	}
	return all
}

// String names the fault.
func (f Fault) String() string {
	names := [...]string{"none", "deliver-first", "opinions-first", "silenced-trusted",
		"stale-frames"}
	if f >= faultEnd {
		return fmt.Sprintf("Fault(%d)", uint8(f))
	}
	return names[f]
}
