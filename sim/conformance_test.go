package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
)

// sweep runs seeds of a group and fails the test with the first that breaks a property.
func sweep(t *testing.T, options Options, first uint64, count int) (rounds, crashes int) {
	t.Helper()
	err := Sweep(context.Background(), options, first, count, func(r Result) bool {
		rounds += r.Rounds
		crashes += len(r.Crashed)
		if len(r.Violations) > 0 {
			t.Errorf("seed %d, %s:\n%v", r.Seed, r.Schedule, r.Violations[0])
		}
		return len(r.Violations) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return rounds, crashes
}

func TestEnginesConform(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus} {
		for servers := 1; servers <= 32; servers++ {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				options, err := Group{Engine: engine, Servers: servers}.Options()
				if err != nil {
					t.Fatal(err)
				}
				rounds, crashes := sweep(t, options, 1, 20)
				t.Logf("%d rounds, %d crashes", rounds, crashes)
			})
		}
	}
}
