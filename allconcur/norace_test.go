//go:build !race

package allconcur

// seedsDefault and statesDefault are how much TestRandomSchedules and its like, and TestExhaustiveSearch, look at unless told otherwise.
const (
	seedsDefault  = 60
	statesDefault = 20_000
)
