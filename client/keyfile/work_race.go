//go:build race

package keyfile

// workFactor is small under the race detector, which makes scrypt many times as slow. Only tests
// run such builds.
const workFactor = 12
