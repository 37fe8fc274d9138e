package bench

import (
	"math/bits"
	"time"
)

// subBuckets is the number of buckets for each power of two. A value is known to 1/64.
const subBuckets = 64

// Histogram counts durations in buckets that grow with the value. Its size does not depend on the
// number of durations. The zero value is empty.
type Histogram struct {
	// Counts are the buckets up to the highest one in use.
	Counts []uint64 `json:"counts"`
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	bucket := bucketOf(uint64(max(0, d)))
	for bucket >= len(h.Counts) {
		h.Counts = append(h.Counts, 0)
	}
	h.Counts[bucket]++
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other Histogram) {
	for len(h.Counts) < len(other.Counts) {
		h.Counts = append(h.Counts, 0)
	}
	for bucket, count := range other.Counts {
		h.Counts[bucket] += count
	}
}

// Quantile returns the smallest duration, to 1/64, such that the given share of all durations is
// not above it. It returns 0 for an empty histogram.
func (h *Histogram) Quantile(share float64) time.Duration {
	total := h.total()
	rank := uint64(share * float64(total))
	seen := uint64(0)
	for bucket, count := range h.Counts {
		seen += count
		if count > 0 && seen > min(rank, total-1) {
			return time.Duration(valueOf(bucket))
		}
	}
	return 0
}

// total returns the number of durations.
func (h *Histogram) total() (total uint64) {
	for _, count := range h.Counts {
		total += count
	}
	return total
}

// bucketOf returns the bucket of a value. Values below subBuckets have a bucket each. From there,
// each power of two has subBuckets buckets.
func bucketOf(value uint64) int {
	if value < subBuckets {
		return int(value)
	}
	exponent := bits.Len64(value) - bits.Len64(subBuckets)
	return exponent*subBuckets + int(value>>exponent)
}

// valueOf returns the smallest value in a bucket.
func valueOf(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	exponent := bucket/subBuckets - 1
	return uint64(bucket-exponent*subBuckets) << exponent
}
