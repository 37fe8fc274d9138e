//go:build !amd64

package wide

// End does nothing: this processor's code for wide registers needs no end.
func End() {}
