//go:build !race

package figure

// raceEnabled tells that the race detector slows everything down.
const raceEnabled = false
