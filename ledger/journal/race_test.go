//go:build race

package journal_test

// raceEnabled reports that the race detector slows everything down.
const raceEnabled = true
