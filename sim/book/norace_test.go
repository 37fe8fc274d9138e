//go:build !race

package book

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = false
