//go:build verbs

package verbs

import (
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
)

func TestRegions(t *testing.T) { fabrictest.RunRegions(t, newFabric) }
