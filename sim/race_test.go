//go:build race

package sim

// raceEnabled tells that the race detector slows everything down.
const raceEnabled = true
