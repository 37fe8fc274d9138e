package sim

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestScratch is for trying things.
func TestScratch(t *testing.T) {
	faults, err := ParseFaults(os.Getenv("FAULTS"))
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	engine := "allconcur+"
	if e := os.Getenv("ENGINE"); e != "" {
		engine = e
	}
	o := Group{Engine: engine, Servers: number("N", 5), Faults: faults}.options(t)
	if seed := number("SEED", 0); seed != 0 {
		o.Seed, o.Trace = uint64(seed), os.Stdout
		r, err := Check(o)
		t.Log(r.Violations, err)
		return
	}
	failed, events, runs, gens, rounds := 0, 0, 0, 0, 0
	began := time.Now()
	count := number("K", 200)
	err = Sweep(context.Background(), o, uint64(number("FIRST", 1)), count, func(r Result) bool {
		events += r.Events
		runs += r.Runs
		gens += r.Generations
		rounds += r.Rounds
		if len(r.Violations) > 0 {
			failed++
			if failed <= number("SHOW", 3) {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Schedule, r.Violations[0])
			}
		}
		return true
	})
	t.Logf("%d of %d failed; %d events, %d rounds, %d runs, %d generations, %v; %v", failed, count, events, rounds, runs, gens, time.Since(began), err)
}
