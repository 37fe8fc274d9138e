package figure

import (
	"math"
	"slices"
	"time"
)

// spread is a median with its 95 % non-parametric confidence interval, as the dissertation reports
// latencies.
type spread struct {
	median, low, high time.Duration
	count             int
}

// spreadOf sorts the samples and returns their median and interval. Without samples, all fields are
// 0.
func spreadOf(samples []time.Duration) spread {
	count := len(samples)
	if count == 0 {
		return spread{}
	}
	slices.Sort(samples)
	// The ranks of a binomial's normal approximation: the median lies between them with a
	// probability of 95 %.
	half := 0.98 * math.Sqrt(float64(count))
	low := max(0, int(math.Floor(float64(count)/2-half)))
	high := min(count-1, int(math.Ceil(float64(count)/2+half)))
	return spread{median: samples[count/2], low: samples[low], high: samples[high], count: count}
}

// milliseconds, microseconds and seconds convert for plots.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func seconds(d time.Duration) float64      { return float64(d) / float64(time.Second) }

// significant rounds to the given number of significant digits, so that the output does not depend
// on the machine.
func significant(x float64, digits int) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
