//go:build race

package multicast

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = true
