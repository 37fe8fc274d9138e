package clock

// Fault is a planted bug. It proves that the simulator's oracles find such bugs.
type Fault uint8

// The planted bugs.
const (
	FaultNone Fault = iota
	// FaultOwnMedian dates a block by the proposers' clocks alone. No majority confirms them, so a
	// single proposer is its own median.
	FaultOwnMedian
	// FaultUnboundedStep accepts a step of any size without the clocks of a majority, and proposes
	// such steps without showing clocks.
	FaultUnboundedStep
	// FaultOwnClockCounts lets a node propose its own clock whatever the other members' clocks
	// show.
	FaultOwnClockCounts
)
