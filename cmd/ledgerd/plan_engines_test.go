package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/plan"
)

// planned returns the JSON form of a plan.
func planned(t *testing.T, arguments string) (report planReport) {
	t.Helper()
	out, err := runPlan(t, append(strings.Fields(arguments), "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// TestPlanComparesEngines checks the choice, with and without a load and a distance.
func TestPlanComparesEngines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments string
		want      planChoice
	}{
		{"--servers 5", planChoice{"allconcur+", "trains", "allconcur+", "trains"}},
		{"--servers 5 --distance 2ms", planChoice{"allconcur", "dare", "allconcur", "trains"}},
		{"--servers 5 --load 200000", planChoice{"trains", "trains", "trains", "trains"}},
		{"--servers 5 --load 1e9", planChoice{}},
		{"--servers 65", planChoice{"allconcur+", "allconcur+", "allconcur+", "allconcur+"}},
		{"--servers 5 --engine allconcur", planChoice{"allconcur", "allconcur", "allconcur",
			"allconcur"}},
	} {
		report := planned(t, test.arguments)
		if report.Choice != test.want {
			t.Errorf("%s: %+v, want %+v", test.arguments, report.Choice, test.want)
		}
		for _, e := range report.Engines {
			if (e.NotPlanned != "") != (e.Latency == 0) || e.NotPlanned == "" &&
				(e.Throughput <= 0 || e.Bound == "" || e.Pause < report.Careful.Timeout) {
				t.Errorf("%s: %+v", test.arguments, e)
			}
			if strings.Contains(test.arguments, "--engine") != (len(report.Engines) == 1) {
				t.Errorf("%s: %d engines", test.arguments, len(report.Engines))
			}
		}
	}
}

// TestPlanKnowsTheEngines compares the names of the plan with the table of engines.
func TestPlanKnowsTheEngines(t *testing.T) {
	t.Parallel()
	names := strings.Join(plan.EngineNames(), " ")
	for _, name := range engine.All().Names() {
		if !strings.Contains(names, name) {
			t.Errorf("the plan does not compare %s", name)
		}
	}
}

// TestPlanPrintsEngines checks the sentences below the table.
func TestPlanPrintsEngines(t *testing.T) {
	t.Parallel()
	for arguments, wants := range map[string][]string{
		"--servers 5": {"ENGINE", "dare ", "tram ", "For latency take allconcur+.",
			"For throughput take trains.",
			"In a node, trains has the detector eventual and survives 2 failures. PAUSE is " +
				"then 470 ms:",
			"With dare, 2 failures of nodes that do not lead cause no pause."},
		"--servers 5 --load 200000": {"Of the engines that carry 200000 tx/s:",
			"For latency take trains."},
		"--servers 5 --distance 2ms": {"For throughput dare is best with so many messages " +
			"outstanding, but nodes have fewer: take trains."},
		"--servers 3 --deployment rack": {"For latency tram is best, but no node runs it yet: " +
			"take dare."},
		"--servers 5 --distance 2ms --load 5000": {
			"For throughput dare is best, but no node runs an engine that carries the load."},
		"--servers 5 --load 1e9":        {"None of them carries 1000000000 tx/s."},
		"--servers 65":                  {"trains is not planned: a ring has at most 64 servers."},
		"--servers 65 --engine dare":    {"dare is not planned: a leader has at most 64 servers."},
		"--servers 5 --distance 1500us": {"and 1.5 ms farther apart"},
	} {
		out, err := runPlan(t, strings.Fields(arguments)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", arguments, want, out)
			}
		}
	}
}

// TestDocumentationShowsThePlan checks the table of estimates in docs/choosing-an-engine.md.
func TestDocumentationShowsThePlan(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/choosing-an-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ load, arguments string }{
		{"one request of 64 bytes a message", "--servers 5 --transaction 64"},
		{"64 requests of 100 bytes", "--servers 5 --batch 64 --transaction 100"},
		{"64 requests of 1,000 bytes", "--servers 5 --batch 64 --transaction 1000"},
		{"1,024 requests of 100 bytes", "--servers 5 --batch 1024 --transaction 100"},
		{"64 requests of 100 bytes, 5 ms apart",
			"--servers 5 --batch 64 --transaction 100 --distance 5ms"},
		{"16 servers, 16 requests of 100 bytes",
			"--servers 16 --batch 16 --transaction 100"},
		{"one request of 64 bytes, one rack", "--servers 5 --transaction 64 --deployment rack"},
		{"64 requests of 100 bytes, one rack",
			"--servers 5 --batch 64 --transaction 100 --deployment rack"},
		{"64 requests of 100 bytes, one datacentre",
			"--servers 5 --batch 64 --transaction 100 --deployment dc"},
		{"64 requests of 100 bytes, five cities",
			"--servers 5 --batch 64 --transaction 100 --deployment europe"},
	} {
		engines := planned(t, row.arguments).Engines
		first := engines[0]
		want := fmt.Sprintf("| %s | %s | %s |", row.load, threeDigits(first.Throughput/1000),
			threeDigits(1000*first.Latency))
		for _, e := range engines[1:] {
			want += fmt.Sprintf(" %.2g | %.2g |", e.Throughput/first.Throughput,
				e.Latency/first.Latency)
		}
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks the row\n%s", want)
		}
	}
}
