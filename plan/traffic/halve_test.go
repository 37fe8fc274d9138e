package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Parties that deal with each other stay together, and the halves bear about the same.
func TestHalve(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ flows, want string }{
		"nobody":              {"", ""},
		"two pairs":           {"a,b,50\nc,d,40\na,9", "c d"},
		"one that has most":   {"a,100\nb,3\nc,3\n", "b c"},
		"a chain":             {"a,b,9\nb,c,1\nc,d,9\n", "c d"},
		"others do not count": {"a,x,90\nb,x,30\nc,30\n", "b c"},
	} {
		read, err := Read(strings.NewReader(test.flows))
		if err != nil {
			t.Fatal(err)
		}
		var parties []string
		for _, each := range read.Names {
			if each != "x" {
				parties = append(parties, each)
			}
		}
		if got := strings.Join(read.Halve(parties), " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Whatever the traffic: what moves is a part of the parties, without the one with the most
// transactions, and bears at most a half.
func TestHalveAtMostHalf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c Collector
		loads := make(map[string]uint64)
		for range rapid.IntRange(0, 30).Draw(t, "flows") {
			var some []string
			for range rapid.IntRange(1, 3).Draw(t, "parties") {
				name := fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "party"))
				if !slices.Contains(some, name) {
					some = append(some, name)
				}
			}
			count := rapid.Uint64Range(1, 50).Draw(t, "count")
			if err := c.Add(count, some...); err != nil {
				t.Fatal(err)
			}
			for _, name := range some {
				loads[name] += count
			}
		}
		read := c.Traffic()
		moves := read.Halve(read.Names)
		var moved, all, most uint64
		for _, name := range read.Names {
			all, most = all+loads[name], max(most, loads[name])
			if slices.Contains(moves, name) {
				moved += loads[name]
			}
		}
		if moved > all/2 || len(moves) >= max(1, len(read.Names)) ||
			!slices.IsSorted(moves) || moved+most > all {
			t.Errorf("%v of %v move, with %d of %d", moves, loads, moved, all)
		}
	})
}
