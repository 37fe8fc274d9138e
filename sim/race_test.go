//go:build race

package sim

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = true
