package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// runPlan executes the command alone.
func runPlan(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := newPlanCommand()
	var out strings.Builder
	command.SetOut(&out)
	command.SetArgs(arguments)
	command.SilenceUsage, command.SilenceErrors = true, true
	err := command.Execute()
	return out.String(), err
}

func TestPlanJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments         string
		degree, tolerated int
		meets             bool
	}{
		{"--servers 1", 0, 0, false},
		{"--servers 3", 2, 1, false},
		{"--servers 8", 3, 2, true},
		{"--servers 128 --deployment dc", 5, 4, true},
		{"--servers 128 --mttf 17520", 6, 5, true},
		{"--servers 128 --mttf 17520h", 6, 5, true},
		{"--servers 30 --deployment europe --nines 6 --batch 16", 4, 3, true},
	} {
		out, err := runPlan(t, append(strings.Fields(test.arguments), "--json")...)
		if err != nil {
			t.Errorf("%s: %v", test.arguments, err)
			continue
		}
		var report planReport
		decoder := json.NewDecoder(strings.NewReader(out))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&report); err != nil {
			t.Errorf("%s: %v", test.arguments, err)
		}
		if report.Degree != test.degree || report.Tolerated != test.tolerated ||
			report.Meets != test.meets {
			t.Errorf("%s: %+v", test.arguments, report)
		}
		for _, m := range []planMode{report.Unreliable, report.Reliable, report.Eventual} {
			if m.Round <= 0 || m.Latency < m.Round || m.Uniform < m.Latency || m.Throughput <= 0 ||
				m.Bound == "" {
				t.Errorf("%s: %+v", test.arguments, m)
			}
		}
		if report.Heartbeat.Timeout <= report.Heartbeat.Period ||
			report.Careful.Timeout < report.Heartbeat.Timeout || report.Careful.Wrong > 1e-6 {
			t.Errorf("%s: %+v, %+v", test.arguments, report.Heartbeat, report.Careful)
		}
	}
}

// TestPlanFieldsAreDocumented looks for every field in the help.
func TestPlanFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	out, err := runPlan(t, "--servers", "65", "--json") // too many for some engines
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(out), &fields); err != nil {
		t.Fatal(err)
	}
	help := newPlanCommand().Long
	var check func(fields map[string]any)
	check = func(fields map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !strings.Contains(help, name) {
				t.Errorf("the help has no word of %s", name)
			}
			switch below := fields[name].(type) {
			case map[string]any:
				check(below)
			case []any:
				for _, each := range below {
					check(each.(map[string]any))
				}
			}
		}
	}
	check(fields)
}

func TestPlanText(t *testing.T) {
	t.Parallel()
	out, err := runPlan(t, "--servers", "72", "--deployment", "dc", "--batch", "4")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GS(72,5)", "failures survived", "3.25 ms", "tx/s", "uniform",
		"beyond fault diameter", "heartbeat / timeout", "ordering.suspect_after"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "  ") && len(strings.Fields(line)) < 3 {
			t.Errorf("a line explains nothing: %q", line)
		}
	}
}

// Every refusal names a flag to change.
func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for arguments, advice := range map[string]string{
		"":                                                "--servers 8",
		"--servers -1":                                    "--servers 8",
		"--servers 5000":                                  "up to 1024",
		"--servers 8 --nines 0":                           "--nines",
		"--servers 8 --nines 99":                          "--nines",
		"--servers 8 --mttf 0":                            "--mttf",
		"--servers 8 --mttf -3h":                          "--mttf",
		"--servers 8 --mttf soon":                         "a number of hours",
		"--servers 8 --mttf NaN":                          "--mttf",
		"--servers 8 --mttf 1ns":                          "--mttf",
		"--servers 8 --deployment moon":                   "lan, dc or europe",
		"--servers 8 --batch 0":                           "--batch",
		"--servers 8 --batch 99999999":                    "--batch",
		"--servers 8 --transaction 0":                     "--transaction",
		"--servers 8 --accuracy 1":                        "--accuracy",
		"--servers 8 --accuracy 0":                        "--accuracy",
		"--servers 8 --tail -1ms":                         "--tail",
		"--servers 8 --tail 9000h":                        "--tail",
		"--servers 8 --distance -1ms":                     "--distance",
		"--servers 8 --distance 2h":                       "--distance",
		"--servers 8 --load -1":                           "--load",
		"--servers 8 --load NaN":                          "--load",
		"--servers 8 --engine paxos":                      "allconcur+, allconcur, trains, dare",
		"--shards 3 --engine trains":                      "--engine is for one shard",
		"--servers 8 --batch 65536 --transaction 1048576": "--batch",
		"--servers 8 more":                                "unknown command",
	} {
		out, err := runPlan(t, strings.Fields(arguments)...)
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("%q: error %v, want one with %q", arguments, err, advice)
		}
		if out != "" {
			t.Errorf("%q: printed %q", arguments, out)
		}
	}
}
