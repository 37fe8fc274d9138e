package sim

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/clock"
)

// TestTimeIsJudged runs lives with wrong clocks, and expects that the oracle of the time had
// something to judge in most of them: servers that propose at rest with wrong and with right
// clocks, blocks with times far after their parents', and some lives in which the wrong clocks are
// a majority.
func TestTimeIsJudged(t *testing.T) {
	t.Parallel()
	options := Group{Engine: engines[1], Servers: 4, Faults: FaultClock | FaultCrash}.options(t)
	lives, probed, twice, unsure, far := 300, 0, 0, 0, 0
	for seed := range uint64(lives) {
		options.Seed = 8 * (seed + 1) // these wait until they hear clocks that count
		s, err := newSimulation(options)
		if err != nil {
			t.Fatal(err)
		}
		if s.run(); s.over() {
			t.Fatalf("seed %d: %v", options.Seed, s.broken)
		}
		if s.life.probed != 0 {
			probed++
			if s.life.probes > 2 {
				twice++
			}
		}
		if s.life.unsure {
			unsure++
		}
		for b := s.life.tip(); b.parent != nil; b = b.parent {
			if b.time-b.parent.time > clock.MaxStep {
				far++
			}
		}
	}
	t.Logf("%d lives, %d probed, %d of them with a wrong clock first, %d with a wrong majority, "+
		"%d far steps",
		lives, probed, twice, unsure, far)
	if 2*probed < lives || twice == 0 || unsure == 0 || 2*far < lives {
		t.Error("too little is judged")
	}
}

// TestWallClock moves one clock, and lets one gain.
func TestWallClock(t *testing.T) {
	t.Parallel()
	w := wallClock{skew: 5, wrong: 30 * yearMs, moved: second}
	if off := w.off(3 * second); off != 30*yearMs {
		t.Errorf("moved: %d", off)
	}
	w.gains = -500
	if off := w.off(3 * second); off != 30*yearMs-1000 {
		t.Errorf("losing: %d", off)
	}
}

// TestStampsOfPayloads encodes stamps of the time in payloads.
func TestStampsOfPayloads(t *testing.T) {
	t.Parallel()
	clocks := []clock.MemberClock{{Member: 1, Offset: -7}, {Member: 300, Offset: clock.Bound}}
	said := stamp{time: genesisTime, clocks: clocks}
	payload := encodePayload(said, []byte("u entry"), marks{regroup: true})
	entry, marked := splitPayload(payload)
	got := stampOf(payload)
	if string(entry) != "u entry" || !marked.regroup || got.time != said.time ||
		!slices.Equal(got.clocks, clocks) {
		t.Errorf("%q %+v %+v", entry, marked, got)
	}
	got = stampOf(encodePayload(said, nil, marks{regroup: true}))
	if got.time != clock.NoTime || got.clocks != nil {
		t.Errorf("marks alone say %+v", got)
	}
}
