package plan

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/trains"
)

// TestRenewalAgainstSimulator compares how long a ring of nodes stands still after a suspicion with
// lives of such rings in package sim, to a factor of two. There engines, members and synods are
// those of nodes. Networks, detectors, disks and users are drawn by the seeds, so the median of
// many lives counts. In many lives nobody crashes while the ring is busy.
func TestRenewalAgainstSimulator(t *testing.T) {
	t.Parallel()
	if testing.Short() || raceEnabled {
		t.Skip("many lives")
	}
	lan, err := DeploymentOf("lan")
	if err != nil {
		t.Fatal(err)
	}
	const lives, least = 240, 8
	for _, servers := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			t.Parallel()
			options, err := sim.Group{Engine: trains.EngineName, Servers: servers,
				Faults: sim.FaultCrash}.Options()
			if err != nil {
				t.Fatal(err)
			}
			options.Crashes = 1
			var pauses []time.Duration
			for seed := range uint64(lives) {
				var text bytes.Buffer
				options.Seed, options.Trace = seed, &text
				if _, err := sim.Check(options); err != nil {
					t.Fatal(err)
				}
				pauses = append(pauses, renewals(text.String(), servers)...)
			}
			if len(pauses) < least {
				t.Fatalf("rings stood still %d times, want %d", len(pauses), least)
			}
			slices.Sort(pauses)
			t.Logf("%d pauses from %v to %v", len(pauses), pauses[0], pauses[len(pauses)-1])
			e, err := ring(lan, servers, TransactionDefault)
			if err != nil {
				t.Fatal(err)
			}
			compareNumbers(t, "the pause of a ring of nodes", e.renewal.Seconds(),
				pauses[len(pauses)/2].Seconds(), 1)
		})
	}
}

// standstill is a ring that lost one server, as a trace shows it.
type standstill struct {
	victim    order.ServerID
	suspected map[order.ServerID]bool
	since     time.Duration // the last suspicion
	busy      bool          // it stands still, and does not just rest
	restarted map[order.ServerID]bool
	again     map[order.ServerID]bool
}

// renewals returns the times from the last suspicion of a single server that crashed to the last
// A-delivery of a first round after that, in a trace of a life. It leaves out those during which
// anything else happens, and rings at rest, which miss nobody.
func renewals(trace string, servers int) (pauses []time.Duration) {
	var s *standstill
	down := map[order.ServerID]bool{}
	for line := range strings.Lines(trace) {
		instant, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		now, err := time.ParseDuration(instant)
		if err != nil {
			continue
		}
		var a, b order.ServerID
		scans := func(format string, into ...any) bool {
			n, _ := fmt.Sscanf(text, format, into...)
			return n == len(into) && (strings.HasSuffix(format, "%d") ||
				strings.Contains(text, strings.TrimSpace(strings.TrimPrefix(format, "%d"))))
		}
		switch {
		case strings.HasSuffix(text, " crashes") && scans("%d crashes", &a):
			s = nil
			if len(down) == 0 {
				s = &standstill{victim: a, suspected: map[order.ServerID]bool{},
					restarted: map[order.ServerID]bool{}, again: map[order.ServerID]bool{}}
			}
			down[a] = true
		case scans("%d begins as process", &a):
			delete(down, a)
			s = nil
		case s == nil:
		case scans("%d suspects %d", &a, &b):
			if s.suspected[a], s.since = true, now; b != s.victim {
				s = nil
			}
		case strings.Contains(text, "no progress without suspected"):
			s.busy = true
		case scans("%d starts run", &a):
			s.restarted[a] = true
		case scans("%d A-delivers", &a) && s.restarted[a]:
			s.again[a] = true
			if len(s.again) == servers-1 {
				if s.busy && len(s.suspected) == servers-1 && now > s.since {
					pauses = append(pauses, now-s.since)
				}
				s = nil
			}
		}
	}
	return pauses
}
