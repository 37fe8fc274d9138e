package main

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/machine"
)

func Example() {
	main()
	// Output:
	// server 2 A-broadcasts +7 and crashes: the command reaches server 0 only
	// servers 0 and 1 suspect server 2
	// server 1, round 1: ["+5" "*2" "+7"], removed []: 17 at height 1
	// server 0, round 1: ["+5" "*2" "+7"], removed []: 17 at height 1
	// server 0, round 2: ["+1"], removed [2]: 18 at height 2
	// server 1, round 2: ["+1"], removed [2]: 18 at height 2
	// the replicas agree on 18
}

// A counter that is opened again has what was saved and nothing later.
func TestCounterSurvives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "counter")
	counter := &Counter{Path: path}
	if _, _, err := counter.Apply(machine.Round{}); !errors.Is(err, machine.ErrNotOpen) {
		t.Errorf("apply before open: %v", err)
	}
	if height, err := counter.Open(); height != 0 || err != nil {
		t.Fatalf("a new counter: height %d, %v", height, err)
	}
	for number, round := range []struct {
		command string
		height  machine.Height
	}{{"+4", 1}, {"", 1}, {"+", 1}, {"-4", 1}, {"*x", 1}, {"*3", 2}} {
		height, _, err := counter.Apply(machine.Round{Number: uint64(number) + 1,
			Payloads: [][]byte{[]byte(round.command)}})
		if err != nil || height != round.height {
			t.Errorf("%q: height %d, want %d: %v", round.command, height, round.height, err)
		}
	}
	if height, err := counter.Sync(); height != 2 || err != nil {
		t.Fatalf("saved height %d, %v", height, err)
	}
	if _, _, err := counter.Apply(machine.Round{Payloads: [][]byte{[]byte("+1")}}); err != nil {
		t.Fatal(err)
	}
	again := &Counter{Path: path} // the process ended before it saved the last round
	if height, err := again.Open(); height != 2 || err != nil {
		t.Fatalf("height %d, %v", height, err)
	}
	if err := again.Lookup(func(value int64) error {
		if value != 12 {
			t.Errorf("value %d, want 12", value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
