//go:build !race

package plan

// raceEnabled reports whether the race detector, which slows everything down, is enabled.
const raceEnabled = false
