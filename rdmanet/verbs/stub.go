//go:build !verbs

package verbs

// Start returns ErrNotBuilt.
func Start(Options) (Host, error) { return nil, ErrNotBuilt }

// Devices returns ErrNotBuilt.
func Devices() ([]Device, error) { return nil, ErrNotBuilt }
