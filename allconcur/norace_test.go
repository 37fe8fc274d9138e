//go:build !race

package allconcur

// seedsDefault is the number of schedules of TestRandomSchedules and similar tests. statesDefault
// is the number of states of TestExhaustiveSearch. Flags change both.
const (
	seedsDefault  = 30
	statesDefault = 20_000
)
