package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSimBookPasses(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "book", "--seeds", "5", "--seed", "7", "--shards", "2", "--members", "3")
	if want := "seeds 7 to 11: 5 passed, 0 failed\n"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v: %q does not begin with %q", err, out, want)
	}
}

// A planted bug is found. The printed commands replay it: the reduced run, and the run as it was
// found.
func TestSimBookFindsAPlantedBugAndReplaysIt(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "book", "--seeds", "3", "--plant", "applied-twice", "--json")
	if err == nil || !strings.Contains(err.Error(), "of 3 seeds break a property") {
		t.Fatalf("%v\n%s", err, out)
	}
	var report bookSweepReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if report.Failed == 0 || report.Failed+report.Passed != 3 || len(report.Failures) == 0 ||
		report.Plant != "applied-twice" {
		t.Fatalf("%+v", report)
	}
	failure := report.Failures[0]
	if failure.Property != "conservation" {
		t.Errorf("%s is broken", failure.Property)
	}
	for _, command := range []string{failure.Replay, failure.Whole} {
		out, err := runSim(t, strings.Fields(strings.TrimPrefix(command, "ledgerd sim "))...)
		if err == nil {
			t.Fatalf("%q passes", command)
		}
		for _, want := range []string{failure.Property + " is broken", "settled: took effect",
			"1 of 1 seeds"} {
			if !strings.Contains(out+err.Error(), want) {
				t.Errorf("%q does not tell %q:\n%s", command, want, out)
			}
		}
	}
}

func TestSimBookEndsInTime(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "book", "--seeds", "100000000", "--for", "2s", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report bookSweepReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Bound != "time" ||
		report.Passed != report.Seeds {
		t.Errorf("%v in %q", err, out)
	}
}

func TestSimBookFlags(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"--shards 1":                    "want 2 to 8",
		"--members 8":                   "want 1 to 7",
		"--submissions -1":              "want 1 to",
		"--seeds 0":                     "run at least one",
		"--seed 18446744073709551615":   "use a smaller --seed",
		"--for -1s":                     "go on for some time",
		"--trace --seeds 2":             "are about one run, not 2",
		"--trace --json":                "leave one out",
		"--faults flood":                "no such fault",
		"--plant gremlin":               "applied-twice",
		"--only-submissions 0":          "is not a number",
		"--only-faults crash --seeds 1": "is not a number",
	} {
		out, err := runSim(t, append([]string{"book"}, strings.Fields(arguments)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q\n%s", arguments, err, want, out)
		}
	}
}
