package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGame plays faster than in real time. The players do the same in each run.
func TestGame(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, options{players: 512, servers: 8, frames: 30, actions: 200,
		period: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^512 players at 8 servers: 30 frames, 2\d{3} actions
all servers had the same world after every frame; the last is \w{16}
latency of a frame: median \S+, worst \S+, of 50ms
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("the example prints\n%s", out.String())
	}
}

// Two players that enter one cell end up in different worlds in different orders.
func TestOrderMatters(t *testing.T) {
	t.Parallel()
	right, left := directions[0], directions[1]
	one, other := newWorld(cells/2), newWorld(cells/2) // every second cell is free
	one.move(0, right)
	one.move(1, left)
	other.move(1, left)
	other.move(0, right)
	if one.digest() == other.digest() || one.place[0] != 1 || other.place[1] != 1 {
		t.Errorf("players at %v, and in the other order at %v", one.place[:2], other.place[:2])
	}
}
