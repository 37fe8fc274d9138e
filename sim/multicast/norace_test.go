//go:build !race

package multicast

// raceEnabled tells that the race detector slows everything down.
const raceEnabled = false
