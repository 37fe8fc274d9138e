//go:build !verbs

package verbs

import (
	"errors"
	"testing"
)

func TestNotBuilt(t *testing.T) {
	t.Parallel()
	if host, err := Start(Options{}); host != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Start gave %v, error %v", host, err)
	}
	if devices, err := Devices(); devices != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Devices gave %v, error %v", devices, err)
	}
}
