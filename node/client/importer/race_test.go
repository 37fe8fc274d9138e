//go:build race

package importer

// raceDetector tells whether the test runs ten times slower than it has to.
const raceDetector = true
