package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
)

func TestProbe(t *testing.T) {
	for _, fault := range []allconcur.Fault{allconcur.FaultDroppedForward, allconcur.FaultEarlyDelivery, allconcur.FaultPrunedTooSoon} {
		for _, engine := range []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus} {
			for _, servers := range []int{3, 5, 6, 8, 9, 16, 32} {
				options, err := Group{Engine: engine, Servers: servers, Fault: fault}.Options()
				if err != nil {
					t.Fatal(err)
				}
				first, caught := 0, map[string]int{}
				const seeds = 200
				total := 0
				Sweep(context.Background(), options, 1, seeds, func(r Result) bool {
					if len(r.Violations) > 0 {
						if first == 0 {
							first = int(r.Seed)
						}
						total++
						caught[string(r.Violations[0].Property)]++
					}
					return total < 10
				})
				fmt.Println(fault, engine, servers, "first", first, "caught", caught)
			}
		}
	}
}
