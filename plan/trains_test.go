package plan

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustRing(t interface{ Fatal(...any) }, servers, bytes, train int) Ring {
	r, err := RingOf(servers, bytes, train)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRingEfficiency compares with Table II of [TRAINS], and with numbers for smaller messages that
// follow from the paper's formulas by hand: TRAINS, LCR and the improvement, in hundredths.
func TestRingEfficiency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes                    int
		trains, lcr, improvement float64
	}{
		{1, 16.5, 2.2, 643}, {2, 28.3, 4.3, 551}, {5, 49.5, 10.2, 385.5},
		{10, 66.0, 18.5, 257}, {100, 94.3, 69.4, 35.8}, {1000, 98.6, 95.8, 2.9},
		{10000, 99.9, 99.6, 0.3},
	} {
		r := mustRing(t, 5, c.bytes, TrainPaper)
		for name, pair := range map[string][2]float64{
			"TRAINS": {100 * r.Trains(), c.trains}, "LCR": {100 * r.LCR(), c.lcr},
			"improvement": {100 * r.Improvement(), c.improvement},
		} {
			// The numbers are rounded.
			if want := pair[1]; math.Abs(pair[0]-want) > max(0.0501, 0.002*want) {
				t.Errorf("%d bytes: %s %.2f %%, want %v %%", c.bytes, name, pair[0], want)
			}
		}
		// TestThroughputEfficiency of package trains counts both layouts' bytes.
		if house := r.TrainsInHouse(); house > r.Trains() || house < 0.99*r.Trains() {
			t.Errorf("%d bytes: %v in the house's layout, %v in the paper's", c.bytes, house,
				r.Trains())
		}
	}
	for bytes, want := range map[int]float64{10: 1014. / 15, 1000: 1014. / 1005, 10000: 1} {
		if got := mustRing(t, 5, bytes, TrainPaper).MessagesPerWagon(); got != want {
			t.Errorf("%d bytes: %v messages a wagon, want %v", bytes, got, want)
		}
	}
}

// TestRingImprovementHasNoPeak: the smaller a message, the larger the improvement, also below the
// ten bytes at which the paper sees a peak (E9).
func TestRingImprovementHasNoPeak(t *testing.T) {
	t.Parallel()
	for bytes := 2; bytes <= 10_000; bytes++ {
		more, less := mustRing(t, 5, bytes-1, TrainPaper), mustRing(t, 5, bytes, TrainPaper)
		if more.Improvement() <= less.Improvement() {
			t.Fatalf("an improvement of %v at %d bytes, %v at %d", more.Improvement(), bytes-1,
				less.Improvement(), bytes)
		}
	}
}

// TestRingLatency compares with Table III of [TRAINS].
func TestRingLatency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers                 int
		lcr, trains, alteration float64
	}{{2, 2, 4.5, 125}, {4, 6, 9.5, 58.3}, {6, 10, 14.5, 45}, {8, 14, 19.5, 39.3},
		{ServersMax, 2*ServersMax - 2, 2.5*ServersMax - 0.5, 25.1}} {
		r := mustRing(t, c.servers, 1, TrainPaper)
		sum := 0
		for place := range c.servers {
			sum += r.TrainsLatencyFrom(place)
		}
		if r.LCRLatency() != c.lcr || r.TrainsLatency() != c.trains ||
			r.TrainsLatency() != float64(sum)/float64(c.servers) ||
			math.Abs(100*r.Alteration()-c.alteration) > 0.05 {
			t.Errorf("%d servers: %v rounds, %v with LCR, %v longer", c.servers, r.TrainsLatency(),
				r.LCRLatency(), r.Alteration())
		}
	}
}

// TestRingCapacity compares with the paper's 94 Mb/s from point to point.
func TestRingCapacity(t *testing.T) {
	t.Parallel()
	if got := mustRing(t, 5, 1, TrainPaper).Capacity(94); got != 117.5 {
		t.Errorf("%v Mb/s, want 117.5", got)
	}
}

func TestRingOfRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{1, 1, 1}, {-1, 1, 1}, {ServersMax + 1, 1, 1}, {2, 0, 1},
		{2, payloadMax + 1, 1}, {2, 1, 0}, {2, 1, payloadMax + 1}} {
		if _, err := RingOf(c[0], c[1], c[2]); !errors.Is(err, ErrQuestion) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestRingsAreShares: whatever the ring, efficiencies are shares of 1, and larger trains are not
// less efficient.
func TestRingsAreShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(2, ServersMax).Draw(t, "servers")
		bytes := rapid.IntRange(1, 1<<20).Draw(t, "bytes")
		train := rapid.IntRange(1, 1<<20).Draw(t, "train")
		r, larger := mustRing(t, servers, bytes, train), mustRing(t, servers, bytes, 2*train)
		for _, share := range []float64{r.Trains(), r.TrainsInHouse(), r.LCR()} {
			if !(share > 0 && share < 1) {
				t.Fatalf("%+v: a share of %v", r, share)
			}
		}
		if larger.Trains() < r.Trains()*(1-1e-12) || r.TrainsInHouse() > r.Trains() {
			t.Fatalf("%+v: %v, twice as large %v, in the house's layout %v", r, r.Trains(),
				larger.Trains(), r.TrainsInHouse())
		}
	})
}
