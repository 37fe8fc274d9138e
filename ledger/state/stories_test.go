package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// catchInStories plants each fault in random stories over three shards, until one of them finds it.
func catchInStories[Result any](t *testing.T, seeds uint64,
	story func(fail func(format string, arguments ...any), random *rand.Rand,
		parents []ledger.ShardID, fault state.Fault) Result, faults ...state.Fault) {
	for _, fault := range faults {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				var found string
				fail := func(format string, arguments ...any) {
					if found == "" {
						found = fmt.Sprintf(format, arguments...)
					}
				}
				story(fail, rand.New(rand.NewPCG(seed, 3)), []ledger.ShardID{0, 0, 1}, fault)
				if found != "" {
					t.Logf("seed %d: %s", seed, found)
					return
				}
			}
			t.Error("not found")
		})
	}
}
