package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimMulticastPasses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tree")
	if err := os.WriteFile(file, []byte("0 1\n1 1 # the root\n2 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{{}, {"--groups", "3", "--replicas", "2", "--tree", file},
		{"--groups", "2", "--tree", "chain", "--faults", "none", "--messages", "5"}} {
		out, err := runSim(t, append([]string{"multicast", "--engine", "sequencer", "--seeds", "20",
			"--seed", "7"}, more...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", more, err, out)
		}
		if want := "sequencer, seeds 7 to 26: 20 passed, 0 failed\n"; !strings.HasPrefix(out,
			want) {
			t.Errorf("%v: %q does not begin with %q", more, out, want)
		}
	}
}

// A planted bug is found. The printed commands replay it: the reduced run, and the run as it was
// found.
func TestSimMulticastFindsAPlantedBugAndReplaysIt(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "multicast", "--engine", "sequencer", "--seeds", "60", "--plant",
		"cyclic-order", "--json")
	if err == nil || !strings.Contains(err.Error(), "of 60 seeds break a property") {
		t.Fatalf("%v\n%s", err, out)
	}
	var report multicastReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if report.Failed == 0 || report.Failed+report.Passed != 60 || len(report.Failures) == 0 ||
		len(report.Failures) > simFailuresShown || report.Plant != "cyclic-order" {
		t.Fatalf("%+v", report)
	}
	failure := report.Failures[0]
	if failure.Property != "acyclic order" {
		t.Errorf("%s is broken", failure.Property)
	}
	for _, command := range []string{failure.Replay, failure.Whole} {
		out, err := runSim(t, strings.Fields(strings.TrimPrefix(command, "ledgerd sim "))...)
		if err == nil {
			t.Fatalf("%q passes", command)
		}
		want := []string{failure.Property + " is broken", "submits c", "A-delivers", "1 of 1 seeds"}
		if command == failure.Replay {
			want = append(append(want[:3:3], failure.Evidence...), failure.Plan)
		}
		for _, want := range want {
			if !strings.Contains(out+err.Error(), want) {
				t.Errorf("%q does not tell %q:\n%s", command, want, out)
			}
		}
	}
}

func TestSimMulticastEndsInTime(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "multicast", "--engine", "sequencer", "--seeds", "100000000", "--for",
		"2s", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report multicastReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Bound != "time" ||
		report.Seeds == 0 || report.Passed != report.Seeds {
		t.Errorf("%v in %q", err, out)
	}
}

func TestSimMulticastFlags(t *testing.T) {
	t.Parallel()
	cases := []struct {
		arguments string
		want      string
	}{
		{"", "say which engine with --engine"},
		{"--engine paxos", "use one of"},
		{"--engine sequencer --plant gremlin", "use one of lost-delivery"},
		{"--engine sequencer --seeds 0", "run at least one"},
		{"--engine sequencer --seed 18446744073709551615", "use a smaller --seed"},
		{"--engine sequencer --for -1s", "go on for some time"},
		{"--engine sequencer --trace --seeds 2", "are about one run, not 2"},
		{"--engine sequencer --trace --json", "leave one out"},
		{"--engine sequencer --tree chain", "add --groups"},
		{"--engine sequencer --groups 3 --tree shrub", "there is no file of that name"},
		{"--engine sequencer --groups 9", "want 1 to 8"},
		{"--engine sequencer --replicas 8", "want 1 to 7"},
		{"--engine sequencer --faults flood", "no such fault"},
		{"--engine sequencer --only-messages two", "is not a number"},
		{"--engine sequencer --only-faults 0", "is not a number"},
	}
	for _, c := range cases {
		out, err := runSim(t, append([]string{"multicast"}, strings.Fields(c.arguments)...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, want %q\n%s", c.arguments, err, c.want, out)
		}
	}
	out, err := runSim(t, "multicast", "--help")
	if err != nil || !strings.Contains(out, "sequencer") || !strings.Contains(out, "overwhelm") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSimMulticastSearch(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "multicast", "search", "--engine", "sequencer", "--replicas", "1",
		"--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report multicastSearchReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Complete ||
		report.States < 10 || report.Ends == 0 {
		t.Errorf("%v in %q", err, out)
	}
	out, err = runSim(t, "multicast", "search", "--engine", "sequencer", "--replicas", "1",
		"--messages", "3", "--plant", "lost-delivery")
	if err == nil || !strings.Contains(err.Error(), "validity is broken") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"client 0 submits c0.1 to groups [0 1]", "never A-delivers it",
		"not complete: it ended with the violation"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not tell %q:\n%s", want, out)
		}
	}
	states := map[bool]int{}
	for _, unreduced := range []bool{false, true} {
		out, err := runSim(t, "multicast", "search", "--engine", "tram", "--replicas", "1",
			"--messages", "1", "--json", fmt.Sprintf("--unreduced=%v", unreduced))
		var report multicastSearchReport
		if err != nil || json.Unmarshal([]byte(out), &report) != nil || !report.Complete ||
			report.Unreduced != unreduced {
			t.Errorf("%v: %s", err, out)
		}
		states[unreduced] = report.States
	}
	if states[false] >= states[true] {
		t.Errorf("%d states, unreduced %d", states[false], states[true])
	}
	for arguments, want := range map[string]string{
		"":                                      "say which engine with --engine",
		"--engine paxos":                        "use one of",
		"--engine sequencer --groups 4":         "want 1 to 3",
		"--engine sequencer --messages 5":       "want 1 to 4",
		"--engine sequencer --for -1s":          "search for some time",
		"--engine sequencer --states -1":        "less than none",
		"--engine sequencer --plant unheard-of": "use one of lost-delivery",
	} {
		if out, err := runSim(t, append([]string{"multicast", "search"},
			strings.Fields(arguments)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q\n%s", arguments, err, want, out)
		}
	}
}
