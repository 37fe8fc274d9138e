//go:build !race

package plan

// raceEnabled tells that the race detector slows everything down.
const raceEnabled = false
