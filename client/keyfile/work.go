//go:build !race

package keyfile

// workFactor is the logarithm of scrypt's N for new files: 128 MiB, about half a second.
const workFactor = 17
