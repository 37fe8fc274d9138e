package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// runSim executes ledgerd sim alone.
func runSim(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := newSimCommand()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(io.Discard) // the progress of long runs
	command.SilenceErrors = true
	// Nil would stand for the arguments of the test binary.
	command.SetArgs(append([]string{}, arguments...))
	err := command.Execute()
	return out.String(), err
}

func TestSimCheckPasses(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"allconcur", "allconcur+"} {
		out, err := runSim(t, "check", "--engine", engine, "--servers", "5", "--seeds", "20",
			"--seed", "7")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if want := engine + ", 5 servers, seeds 7 to 26: 20 passed, 0 failed\n"; !strings.HasPrefix(
			out, want) {
			t.Errorf("%q does not begin with %q", out, want)
		}
	}
}

func TestSimCheckJSON(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "check", "--engine", "allconcur", "--servers", "5", "--seeds", "5",
		"--crashes", "4", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report map[string]any
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	for key, want := range map[string]any{"engine": "allconcur", "servers": 5.0, "seeds": 5.0,
		"first_seed": 1.0, "passed": 5.0, "failed": 0.0} {
		if report[key] != want {
			t.Errorf("%s is %v, want %v", key, report[key], want)
		}
	}
	if failures, isList := report["failures"].([]any); !isList || len(failures) != 0 {
		t.Errorf("failures are %v, want an empty list", report["failures"])
	}
}

// A planted bug is found, and the printed command replays it.
func TestSimCheckFindsAPlantedBugAndReplaysIt(t *testing.T) {
	t.Parallel()
	for _, plant := range []string{"dropped-forward", "early-delivery", "pruned-too-soon"} {
		out, err := runSim(t, "check", "--engine", "allconcur+", "--servers", "6", "--seeds",
			"60", "--plant", plant, "--json")
		if err == nil || !strings.Contains(err.Error(), "of 60 seeds break a property") {
			t.Fatalf("%s: %v\n%s", plant, err, out)
		}
		var report simReport
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if report.Failed == 0 || report.Failed+report.Passed != 60 || len(report.Failures) == 0 ||
			len(report.Failures) > simFailuresShown {
			t.Fatalf("%s: %+v", plant, report)
		}
		failure := report.Failures[0]
		arguments := strings.Fields(failure.Replay)
		if len(arguments) < 2 || arguments[0] != "ledgerd" || arguments[1] != "sim" {
			t.Fatalf("%s: replay with %q", plant, failure.Replay)
		}
		out, err = runSim(t, arguments[2:]...)
		if err == nil {
			t.Fatalf("%s: %q passes", plant, failure.Replay)
		}
		for _, want := range append(failure.Evidence, failure.Property, "crashes", "A-delivers",
			failure.Schedule) {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q prints no %q:\n%s", plant, failure.Replay, want, out)
			}
		}
	}
}

// A run with all faults at once passes, and reports its counts.
func TestSimCheckWithAllFaults(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "check", "--engine", "allconcur+", "--servers", "5", "--seeds", "30",
		"--faults", "crash,suspect,partition,join,leave,pause,power,disk", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report simReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Passed != 30 ||
		report.Faults != "crash,suspect,partition,join,leave,pause,power,disk" ||
		report.Detector != "eventual" || report.Crashes == 0 || report.Disturbances < 30 ||
		report.Runs <= 30 || report.Generations <= 30 {
		t.Errorf("%+v", report)
	}
}

// Disabling a part of the protocol is detected, and the printed command replays it.
func TestSimCheckFindsWhatMendsPrevent(t *testing.T) {
	t.Parallel()
	for plant, arguments := range map[string]string{
		"no-forward-backward":    "--servers 5 --seeds 20 --faults suspect,partition",
		"tolerated-not-majority": "--servers 7 --seeds 40 --faults suspect,partition",
		"sets-ignored":           "--servers 5 --seeds 40 --faults suspect,partition",
		"promise-not-frozen":     "--servers 7 --seeds 60 --faults suspect,partition,pause",
		"stale-eon":              "--servers 5 --seeds 60 --faults all --engine allconcur",
		"revoke-wrong-sequence":  "--servers 5 --seeds 60 --seed 1",
		"tail-by-length":         "--servers 3 --seeds 20 --faults partition --engine dare",
		"tail-of-minority":       "--servers 3 --seeds 20 --faults partition --engine dare",
		"freeze-keeps-log":       "--servers 5 --seeds 40 --faults suspect,partition --engine dare",
	} {
		out, err := runSim(t, append(strings.Fields("check --json --plant "+plant),
			strings.Fields(arguments)...)...)
		if err == nil {
			t.Errorf("%s is not found: %s", plant, out)
			continue
		}
		var report simReport
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%s: %v\n%s", plant, err, out)
		}
		replay := strings.Fields(report.Failures[0].Replay)
		if out, err := runSim(t, replay[2:]...); err == nil ||
			!strings.Contains(out, report.Failures[0].Property) {
			t.Errorf("%s: %q does not replay %s: %v", plant, report.Failures[0].Replay,
				report.Failures[0].Property, err)
		}
	}
}

// Every refusal names a flag to change.
func TestSimCheckRefuses(t *testing.T) {
	t.Parallel()
	for arguments, advice := range map[string]string{
		"check":                                         "--servers 8",
		"check --servers 0":                             "--servers 8",
		"check --servers 4000":                          "fewer --servers",
		"check --servers 3 --engine raft":               "allconcur+, allconcur, trains or dare",
		"check --servers 3 --seeds 0":                   "--seeds 100",
		"check --servers 3 --seeds -1":                  "--seeds 100",
		"check --servers 3 --seed 18446744073709551615": "smaller --seed",
		"check --servers 3 --seed x":                    "--seed",
		"check --servers 3 --crashes 4":                 "0 to 3",
		"check --servers 3 --crashes -1":                "0 to 3",
		"check --servers 3 --rounds -1":                 "--rounds 10",
		"check --servers 3 --plant bug": "dropped-forward, " +
			"early-delivery, pruned-too-soon",
		"check --servers 3 --plant none": "dropped-forward, " +
			"early-delivery, pruned-too-soon",
		"check --servers 3 --plant tail-of-minority": "--engine dare",
		"check --servers 3 --faults quake": "crash,suspect,partition," +
			"join,leave,pause,power,disk,break",
		"check --servers 3 --detector lucky":                  "eventual, perfect, eventual-paper",
		"check --servers 3 --detector perfect --faults pause": "use an eventual one",
		"check --servers 3 --trace --seeds 2":                 "--seeds 1",
		"check --servers 3 --trace --json":                    "leave one out",
		"check --servers 3 --wrong":                           "--wrong",
		"check three":                                         "three",
		"chekc":                                               "chekc",
	} {
		_, err := runSim(t, strings.Fields(arguments)...)
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("sim %s: %v, want advice on %q", arguments, err, advice)
		}
	}
}

func TestSimHelpTeaches(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{nil, {"--help"}, {"check", "--help"}} {
		out, err := runSim(t, arguments...)
		if err != nil || !strings.Contains(out, "Examples:\n  ") ||
			!strings.Contains(out,
				"ledgerd sim check --engine allconcur+ --servers 8 --seeds 1000") {
			t.Errorf("sim %v: %v\n%s", arguments, err, out)
		}
	}
}

// Rings run in the simulator, a bug planted in them is found, and the printed command replays it.
func TestSimCheckRings(t *testing.T) {
	t.Parallel()
	ring := []string{"check", "--engine", "trains", "--servers", "4", "--trains", "2"}
	out, err := runSim(t, append(ring, "--seeds", "20")...)
	if err != nil || !strings.Contains(out, "trains, 4 servers, seeds 1 to 20: 20 passed") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runSim(t, append(ring, "--seeds", "8", "--faults", "all")...)
	if err != nil || !strings.Contains(out, "8 passed") || !strings.Contains(out, "generations") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, plant := range []string{"filter-by-view", "suspicion-believed"} {
		out, err = runSim(t, append(ring, "--seeds", "12", "--plant", plant, "--json")...)
		var report simReport
		if err == nil || json.Unmarshal([]byte(out), &report) != nil || report.Failed == 0 {
			t.Fatalf("%s: %v\n%s", plant, err, out)
		}
		replay := strings.Fields(report.Failures[0].Replay)
		out, err = runSim(t, replay[2:]...)
		if err == nil || !strings.Contains(out, report.Failures[0].Property) {
			t.Errorf("%v is %v\n%s", replay, err, out)
		}
	}
	changing := []string{"check", "--engine", "trains", "--servers", "3", "--seeds", "12",
		"--faults", "all", "--engine-changes"}
	if out, err = runSim(t, changing...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = runSim(t, append(changing, "--plant", "engine-of-setting")...); err == nil ||
		!strings.Contains(out, "same engine") || !strings.Contains(out, "--engine-changes") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, wrong := range [][]string{
		{"check", "--engine", "allconcur", "--servers", "4", "--trains", "2"},
		{"check", "--engine", "trains", "--servers", "4", "--trains", "65"},
		{"check", "--engine", "trains", "--servers", "4", "--faults", "all", "--detector",
			"perfect"},
		{"check", "--engine", "trains", "--servers", "4", "--detector", "eventual-paper"},
		{"check", "--engine", "trains", "--servers", "4", "--prompt"},
		{"check", "--engine", "allconcur", "--servers", "4", "--engine-changes", "--detector",
			"perfect"},
		{"check", "--engine", "trains", "--servers", "65"},
		{"check", "--engine", "trains", "--servers", "4", "--plant", "early-delivery"},
		{"check", "--engine", "allconcur", "--servers", "4", "--plant", "filter-by-view"},
	} {
		if out, err := runSim(t, wrong...); err == nil {
			t.Errorf("%v is taken\n%s", wrong, out)
		}
	}
}
