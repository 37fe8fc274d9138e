//go:build !linux

package segment

// advise asks for huge pages, where there is a way to.
func advise([]byte) {}
