package clock

// Fault is a bug to plant, to prove that the simulator's oracles find it.
type Fault uint8

// The bugs.
const (
	FaultNone Fault = iota
	// FaultOwnMedian dates a block by the proposers' clocks alone: no majority confirms them, so
	// one proposer is its own median.
	FaultOwnMedian
	// FaultUnboundedStep takes a step of any size without the clocks of a majority, and shows none.
	FaultUnboundedStep
	// FaultOwnClockCounts lets a node propose its own clock, whatever the other members' clocks
	// show.
	FaultOwnClockCounts
)
