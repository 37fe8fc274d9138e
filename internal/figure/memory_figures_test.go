package figure

import (
	"math"
	"strings"
	"testing"
)

// TestFiguresOfMemory checks points of the figures of chapter 4 that follow from its tables by
// hand, and what its text says.
func TestFiguresOfMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		figure, panel, series string
		x, want               float64
	}{
		{"4.6", "rdma-latency", "read", 1, 0.29 + 1.38 + 0.07},
		{"4.6", "rdma-latency", "write", 64, 1.496},
		{"4.6", "rdma-latency", "write", 1024, 2.699},
		{"4.6", "ud-latency", "datagram", 4096, 5.169},
		{"4.7", "reliability", "memory", 6, 9.48},
		{"4.7", "reliability", "memory", 10, 13.68},
		{"4.7", "reliability", "server", 5, 6.74},
		{"4.8", "bytes-latency", "read", 64, 5.18},
		{"4.8", "bytes-latency", "write", 2048, 11.4},
		{"4.8", "servers-latency", "write", 9, 10.33},
	} {
		f := mustMake(t, c.figure, Options{})
		got, ok := f.find(c.panel).at(c.series, c.x)
		if !ok || math.Abs(got-c.want) > 0.005*c.want {
			t.Errorf("figure %s: %s of %s for %v is %v, want %v", c.figure, c.panel, c.series, c.x,
				got, c.want)
		}
		table, _, _ := write(t, f)
		for _, text := range map[string][]string{
			"4.7": {"in 5 of 5 cases", "50 % of failures", "MTTF 22,177 h, 2 nines"},
			"4.8": {"15 us for writes"},
		}[c.figure] {
			if !strings.Contains(table, text) {
				t.Errorf("figure %s does not say %q:\n%s", c.figure, text, table)
			}
		}
	}
}
