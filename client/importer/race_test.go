//go:build race

package importer

// raceDetector reports whether the race detector is on, which makes tests ten times slower.
const raceDetector = true
