package digraph

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const year = 365 * 24 * time.Hour

func TestDegree(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		n      int
		target Target
		want   int
	}{
		{"the defaults", 128, Target{}, 5},
		{"the defaults, spelt out", 128, Target{Nines: 6, Period: 24 * time.Hour,
			MTTF: 18304 * time.Hour}, 5},
		{"exactly two years", 128, Target{MTTF: 2 * year}, 6},
		{"fewer nines", 128, Target{Nines: 2}, 3},
		{"more nines", 128, Target{Nines: 12}, 9},
		{"a shorter period", 128, Target{Period: time.Hour}, 3},
		{"servers that fail often", 128, Target{MTTF: 1000 * time.Hour}, 15},
	} {
		if got, err := Degree(test.n, test.target); err != nil || got != test.want {
			t.Errorf("%s: degree %d, %v, want %d", test.name, got, err, test.want)
		}
	}
}

func TestDegreeRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		n      int
		target Target
		want   error
	}{
		{"no server", 0, Target{}, ErrOrder},
		{"too few servers for any GS", 5, Target{}, ErrDegree},
		{"too few servers for the target", 8, Target{Nines: 12}, ErrDegree},
		{"servers that hardly live", 64, Target{MTTF: time.Hour}, ErrDegree},
		{"negative nines", 8, Target{Nines: -1}, ErrTarget},
		{"too many nines", 8, Target{Nines: MaxNines + 1}, ErrTarget},
		{"a negative period", 8, Target{Period: -1}, ErrTarget},
		{"a negative mean time to failure", 8, Target{MTTF: -1}, ErrTarget},
		{"servers that do not live", 8, Target{MTTF: 1}, ErrTarget},
	} {
		if got, err := Degree(test.n, test.target); !errors.Is(err, test.want) || got != 0 {
			t.Errorf("%s: degree %d, %v, want %v", test.name, got, err, test.want)
		}
	}
}

// exceeds returns the probability that at least d of n servers fail, computed in floating point.
func exceeds(n, d int, target Target) float64 {
	p := -math.Expm1(-float64(target.Period) / float64(target.MTTF))
	total, _ := math.Lgamma(float64(n + 1))
	sum := 0.0
	for i := n; i >= d; i-- {
		failed, _ := math.Lgamma(float64(i + 1))
		alive, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(total - failed - alive + float64(i)*math.Log(p) +
			float64(n-i)*math.Log1p(-p))
	}
	return sum
}

// TestDegreeIsTheSmallest checks with an independent calculation that the degree is sufficient and
// the next lower one is not.
func TestDegreeIsTheSmallest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(6, 1200).Draw(t, "n")
		target := Target{
			Nines:  rapid.IntRange(1, 12).Draw(t, "nines"),
			Period: time.Duration(rapid.IntRange(1, 1000).Draw(t, "hours")) * time.Hour,
			MTTF:   time.Duration(rapid.IntRange(100, 50000).Draw(t, "hours of life")) * time.Hour,
		}
		allowed := math.Pow10(-target.Nines)
		d, err := Degree(n, target)
		if errors.Is(err, ErrDegree) {
			if got := exceeds(n, n/2, target); got < allowed*0.999 {
				t.Fatalf("degree %d would do: %g", n/2, got)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := exceeds(n, d, target); got > allowed*1.001 {
			t.Fatalf("degree %d fails with probability %g", d, got)
		}
		if got := exceeds(n, d-1, target); d > 3 && got < allowed*0.999 {
			t.Fatalf("degree %d would do: %g", d-1, got)
		}
	})
}

func TestReliable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n                 int
		target            Target
		kind              string
		degree, tolerated int
	}{
		{1, Target{}, KindComplete, 0, 0},
		{2, Target{}, KindComplete, 1, 0},
		{3, Target{}, KindComplete, 2, 1},
		{4, Target{}, KindComplete, 3, 1},
		{5, Target{}, KindComplete, 4, 2},
		{6, Target{}, KindGS, 3, 2},
		{7, Target{}, KindGS, 3, 2},
		{8, Target{}, KindGS, 3, 2},
		{32, Target{}, KindGS, 4, 3},
		{128, Target{}, KindGS, 5, 4},
		// This many nines need a degree with n < 2d.
		{8, Target{Nines: 12}, KindComplete, 7, 3},
	} {
		g, err := Reliable(test.n, test.target)
		if err != nil {
			t.Errorf("n = %d: %v", test.n, err)
			continue
		}
		if g.Kind() != test.kind || g.Degree() != test.degree || Tolerated(g) != test.tolerated {
			t.Errorf("n = %d: %s of degree %d tolerates %d, want %+v", test.n, g.Kind(), g.Degree(),
				Tolerated(g), test)
		}
	}
	if _, err := Reliable(8, Target{Nines: -1}); !errors.Is(err, ErrTarget) {
		t.Errorf("got %v, want %v", err, ErrTarget)
	}
}
