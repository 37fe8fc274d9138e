package plan

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const day = 24 * time.Hour

// TestComponents checks Table 4.2 of [Poke19] for consistency: the mean time to failure follows
// from the annual rate (the server's nearly), and the nines from the mean time.
func TestComponents(t *testing.T) {
	t.Parallel()
	const year = 8760 * time.Hour
	for _, c := range []struct {
		Component
		nines int
	}{{Network, 4}, {NIC, 4}, {Memory, 2}, {CPU, 2}, {Server, 2}} {
		if want := float64(year) / c.AnnualFailures; !within(float64(c.MTTF), want, 0.001) {
			t.Errorf("%s: a mean time of %v, want %v", c.Name, c.MTTF, time.Duration(want))
		}
		if got := int(Nines(c.Fails(day))); got != c.nines {
			t.Errorf("%s: %d nines, want %d", c.Name, got, c.nines)
		}
	}
	if got := Zombies(); !within(got, 0.5, 0.01) {
		t.Errorf("%.3f of the failures leave zombies, want about half", got)
	}
}

// TestMemoryUnreliability compares with numbers computed from the formulas of [Poke19, section
// 4.6.2], for memory and for whole servers.
func TestMemoryUnreliability(t *testing.T) {
	t.Parallel()
	for servers, want := range map[int][2]float64{
		3: {1.4e-5, 2.1e-5}, 4: {4.0e-8, 7.2e-8}, 5: {1.0e-7, 1.8e-7}, 6: {3.3e-10, 7.0e-10},
		7: {7.6e-10, 1.6e-9}, 8: {2.6e-12, 6.8e-12}, 9: {5.9e-12, 1.5e-11}, 10: {2.1e-14, 6.7e-14},
		11: {4.7e-14, 1.5e-13}, 12: {1.7e-16, 6.6e-16},
	} {
		for i, c := range []Component{Memory, Server} {
			got, err := MemoryUnreliability(servers, day, c.MTTF)
			// The numbers have two digits.
			if err != nil || !within(got, want[i], 0.05) {
				t.Errorf("n=%d, %s: %.3g, want %.2g, %v", servers, c.Name, got, want[i], err)
			}
		}
	}
}

// recurrence is the model of [Poke19, section 4.6.2] as it is written, with K_j = k_1 - X_{j-1},
// which the formula for Pr(K_j = k) has and the sentence before it has not. It returns the
// probability that more than failures of all components are unavailable in epoch j, from 2 on.
func recurrence(all, failures, epoch int, h float64) float64 {
	choose := func(n, k int) float64 {
		result := 1.0
		for i := range k {
			result *= float64(n-i) / float64(i+1)
		}
		return result
	}
	fail := func(k, x int) float64 { // of k components, x fail
		if x > k {
			return 0
		}
		return choose(k, x) * math.Pow(h, float64(x)) * math.Pow(1-h, float64(k-x))
	}
	before := make([]float64, all+1) // Pr(X_{j-1} = x)
	for x := range before {
		before[x] = fail(all, x)
	}
	for range epoch - 2 {
		next := make([]float64, all+1)
		for x := range next {
			for k := x; k <= all; k++ {
				next[x] += before[all-k] * fail(k, x)
			}
		}
		before = next
	}
	sum := 0.0
	for u := failures + 1; u <= all; u++ {
		for x := range u + 1 {
			sum += before[x] * fail(all-x, u-x)
		}
	}
	return sum
}

// TestMemoryUnreliabilityIsTheRecurrence compares with the paper's recurrence: it is the same for
// the second epoch, and never more for later ones.
func TestMemoryUnreliabilityIsTheRecurrence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(1, 15).Draw(t, "servers")
		mttf := time.Duration(rapid.Int64Range(int64(day), int64(100_000*time.Hour)).Draw(t,
			"mttf"))
		got, err := MemoryUnreliability(servers, day, mttf)
		h := Component{MTTF: mttf}.Fails(day)
		failures := memoryQuorum(servers) - 1
		if want := recurrence(servers, failures, 2, h); err != nil || !within(got, want, 1e-6) {
			t.Fatalf("%d servers: %g, the recurrence %g, %v", servers, got, want, err)
		}
		if later := recurrence(servers, failures, rapid.IntRange(3, 8).Draw(t, "epoch"),
			h); later > got*(1+1e-6) {
			t.Fatalf("%d servers: %g, and %g later", servers, got, later)
		}
	})
}

func TestMemoryUnreliabilityRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers      int
		period, mttf time.Duration
	}{{0, day, day}, {ServersMax + 1, day, day}, {3, 0, day}, {3, day, 0}, {3, -day, day},
		{3, math.MaxInt64, day}} {
		if _, err := MemoryUnreliability(c.servers, c.period, c.mttf); !errors.Is(err,
			ErrQuestion) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
