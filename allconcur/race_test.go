//go:build race

package allconcur

// seedsDefault and statesDefault are small: an engine has no goroutine, and the race detector makes
// everything ten times as slow.
const (
	seedsDefault  = 6
	statesDefault = 2_000
)
