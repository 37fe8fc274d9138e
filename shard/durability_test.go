package shard

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

func TestDurability(t *testing.T) {
	t.Parallel()
	const run = generation.Run(1 << 16)
	type said struct {
		run    generation.Run
		member order.ServerID
		height uint64
	}
	for _, c := range []struct {
		name    string
		members []order.ServerID
		said    []said
		want    uint64
	}{
		{"nobody said anything", []order.ServerID{0, 1, 2}, nil, 0},
		{"one of three", []order.ServerID{0, 1, 2}, []said{{run, 0, 9}}, 0},
		{"two of three", []order.ServerID{0, 1, 2}, []said{{run, 0, 9}, {run, 2, 7}}, 7},
		{"the highest counts", []order.ServerID{0, 1, 2}, []said{{run, 0, 9}, {run, 2, 7}, {run, 2, 5}}, 7},
		{"a member alone", []order.ServerID{3}, []said{{run, 3, 4}}, 4},
		{"two of five", []order.ServerID{0, 1, 2, 5, 7}, []said{{run, 0, 9}, {run, 7, 9}}, 0},
		{"three of five", []order.ServerID{0, 1, 2, 5, 7}, []said{{run, 0, 9}, {run, 1, 8}, {run, 7, 7}}, 7},
		{"a server that is no member", []order.ServerID{0, 1}, []said{{run, 0, 9}, {run, 2, 8}}, 0},
		{"another run", []order.ServerID{0, 1}, []said{{run, 0, 9}, {run + 1, 1, 8}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d Durability
			d.Begin(run, c.members)
			for _, s := range c.said {
				d.Stored(s.run, s.member, s.height)
			}
			if got := d.Height(); got != c.want {
				t.Fatalf("durable up to %d, want %d", got, c.want)
			}
			d.End()
			if d.Stored(run, c.members[0], 100); d.Height() != 0 {
				t.Fatalf("durable up to %d after the run", d.Height())
			}
		})
	}
}
