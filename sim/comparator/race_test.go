//go:build race

package comparator

// raceEnabled tells that the race detector slows everything down.
const raceEnabled = true
