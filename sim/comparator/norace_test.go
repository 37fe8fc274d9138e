//go:build !race

package comparator

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = false
