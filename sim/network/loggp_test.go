package network

import (
	"math"
	"testing"
	"time"
)

// TestTable41 compares single transfers with equations 4.1 and 4.2 of [Poke19], written down again
// with the numbers of Table 4.1 in microseconds.
func TestTable41(t *testing.T) {
	t.Parallel()
	const m, poll, kb = 4096, 0.07, 1024
	for _, bytes := range []int{1, 8, 64, 128, 129, 1024, 4096, 4097, 65536, 1 << 20} {
		s := float64(bytes)
		read := 0.29 + 1.38 + (min(s, m)-1)*0.75/kb + max(0, s-m)*0.26/kb + poll
		write := 0.26 + 1.61 + (min(s, m)-1)*0.76/kb + max(0, s-m)*0.25/kb + poll
		datagram := 2*0.62 + 0.85 + (s-1)*0.77/kb
		if bytes <= 128 {
			write = 0.36 + 0.93 + (s-1)*2.21/kb + poll
			datagram = 2*0.47 + 0.54 + (s-1)*1.92/kb
		}
		for _, c := range []struct {
			name string
			got  time.Duration
			want float64
		}{
			{"read", InfiniBandRDMA.ReadTime(bytes), read},
			{"write", InfiniBandRDMA.WriteTime(bytes), write},
			{"datagram", InfiniBandRDMA.DatagramTime(bytes), datagram},
		} {
			if got := float64(c.got) / 1e3; math.Abs(got-c.want) > 0.001*c.want {
				t.Errorf("a %s of %d bytes takes %.4f us, want %.4f", c.name, bytes, got, c.want)
			}
		}
	}
}

// TestNoBytes: a transfer of nothing takes no time for bytes.
func TestNoBytes(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{0, 1} {
		if got := InfiniBandRDMA.Read.Bytes(bytes); got != 0 {
			t.Errorf("%d bytes take %v", bytes, got)
		}
	}
}
