//go:build race

package figure

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = true
