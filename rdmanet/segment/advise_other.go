//go:build !linux

package segment

// advise asks for huge pages on systems that support it.
func advise([]byte) {}
