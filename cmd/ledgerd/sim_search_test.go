package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSimSearchProves(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"allconcur", "allconcur+"} {
		for _, detector := range []string{"perfect", "eventual"} {
			out, err := runSim(t, "search", "--engine", engine, "--servers", "3", "--rounds",
				"1", "--detector", detector, "--json")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var report map[string]any
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v in %q", err, out)
			}
			for key, want := range map[string]any{"engine": engine, "servers": 3.0, "rounds": 1.0,
				"faults": "crash", "detector": detector, "complete": true} {
				if report[key] != want {
					t.Errorf("%s is %v, want %v", key, report[key], want)
				}
			}
			for _, key := range []string{"states", "transitions", "depth", "seconds", "rate"} {
				if number, isNumber := report[key].(float64); !isNumber || number <= 0 {
					t.Errorf("%s is %v", key, report[key])
				}
			}
			if violations, isList := report["violations"].([]any); !isList || len(violations) != 0 {
				t.Errorf("violations are %v, want an empty list", report["violations"])
			}
		}
	}
}

func TestSimSearchSaysWhatEndedIt(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "search", "--engine", "allconcur", "--servers", "4", "--rounds", "2",
		"--states", "20000")
	if err != nil || !strings.Contains(out, "not complete: --states ended it") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runSim(t, "search", "--engine", "allconcur+", "--servers", "4", "--faults",
		"crash,suspect", "--states", "5000", "--json")
	if err != nil || !strings.Contains(out, `"complete": false`) ||
		!strings.Contains(out, `"bound": "states"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A planted bug is found, and the printed command replays it.
func TestSimSearchFindsAPlantedBugAndReplaysIt(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "search", "--engine", "allconcur", "--servers", "3", "--detector",
		"perfect", "--plant", "dropped-forward")
	if err == nil || !strings.Contains(err.Error(), "is broken") {
		t.Fatalf("%v\n%s", err, out)
	}
	_, command, found := strings.Cut(out, "replay: ledgerd sim ")
	if !found {
		t.Fatalf("no command in %q", out)
	}
	command, _, _ = strings.Cut(command, "\n")
	replayed, again := runSim(t, strings.Fields(command)...)
	if again == nil || again.Error() != err.Error() ||
		!strings.Contains(replayed, "set agreement is broken") {
		t.Errorf("%v\n%s", again, replayed)
	}
}

// Every schedule of a ring is looked at, a bug planted in it is found, and the printed command
// replays it.
func TestSimSearchRings(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "search", "--engine", "trains", "--trains", "1", "--servers", "3",
		"--detector", "perfect")
	if err != nil || !strings.Contains(out, "up to 2 crashes") ||
		!strings.Contains(out, "complete: every schedule") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, flags := range []string{
		"--detector perfect --plant filter-by-view --trains 1", "--plant one-rotation",
		"--plant last-round-short --eon-ends --trains 1 --faults none",
	} {
		out, err := runSim(t, append([]string{"search", "--engine", "trains", "--servers", "3",
			"--json"}, strings.Fields(flags)...)...)
		var report searchReport
		if err == nil || json.Unmarshal([]byte(out), &report) != nil ||
			len(report.Violations) != 1 {
			t.Fatalf("%s: %v\n%s", flags, err, out)
		}
		v := report.Violations[0]
		replayed, again := runSim(t, strings.Fields(v.Replay)[2:]...)
		if again == nil || !strings.Contains(replayed, v.Property+" is broken") {
			t.Errorf("%s: %v\n%s", v.Replay, again, replayed)
		}
	}
}

func TestSimSearchRefusesFlags(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{
		"", "--servers 9", "--servers 3 --rounds 0", "--servers 3 --engine raft",
		"--servers 3 --faults flood", "--servers 3 --faults none,crash",
		"--servers 3 --faults none --crashes 1", "--servers 3 --suspicions 1",
		"--servers 3 --detector psychic", "--servers 3 --plant moss",
		"--servers 3 --states -1", "--servers 3 --for -1s", "--servers 3 --replay c7:",
		"--servers 3 --faults crash --crashes 4", "--servers 3 --trains 2",
		"--servers 3 --eon-ends", "--servers 3 --engine trains --trains 65",
		"--servers 3 --plant one-rotation", "--servers 3 --engine trains --plant early-delivery",
		"--servers 3 --engine trains --detector eventual-paper",
	} {
		if out, err := runSim(t, append([]string{"search"},
			strings.Fields(flags)...)...); err == nil {
			t.Errorf("%q is taken:\n%s", flags, out)
		}
	}
}
