//go:build !verbs

package verbs

// Start gives ErrNotBuilt.
func Start(Options) (Host, error) { return nil, ErrNotBuilt }

// Devices gives ErrNotBuilt.
func Devices() ([]Device, error) { return nil, ErrNotBuilt }
