package turn

import "fmt"

// Fault is a bug that is planted on purpose. With it the simulator and this package's tests prove
// that they find bugs.
type Fault uint8

// The faults.
const (
	// FaultNone is the correct machine.
	FaultNone Fault = iota
	// FaultDeliverFirst hands deliveries over before it sends.
	FaultDeliverFirst
	// FaultOpinionsFirst gives a turn's suspicions to the engine before its frames.
	FaultOpinionsFirst
	// FaultSilencedTrusted trusts a silenced server again.
	FaultSilencedTrusted
	// FaultStaleFrames makes a gate take frames of earlier runs for frames of the running one.
	FaultStaleFrames
	// FaultRecordsAnyGroup offers complete rounds for a record in groups that are not whole.
	FaultRecordsAnyGroup

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
		"stale-frames", "records-any-group"}
	if f >= faultEnd {
		return fmt.Sprintf("Fault(%d)", uint8(f))
	}
	return names[f]
}
