package multicast

import "testing"

// BenchmarkRun measures the average cost of a seed.
func BenchmarkRun(b *testing.B) {
	for _, engine := range Engines() {
		b.Run(engine.Name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if _, err := Run(Options{Engine: engine.Name, Seed: uint64(i),
					Faults: FaultsAll}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
