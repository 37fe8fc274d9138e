package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
)

// runDigraph executes the command alone.
func runDigraph(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := newDigraphCommand()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(io.Discard)
	command.SetArgs(arguments)
	command.SilenceUsage = true
	err := command.Execute()
	return out.String(), err
}

func TestDigraphJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments                             string
		degree, diameter, connectivity, bound int
		edges                                 int
	}{
		{"--servers 1", 0, 0, 0, 0, 0},
		{"--servers 2", 1, 1, 1, 1, 2},
		{"--servers 5", 4, 1, 4, 2, 20},
		{"--servers 8", 3, 2, 3, 4, 24},
		{"--servers 8 --nines 12", 7, 1, 7, 2, 56},
		{"--servers 128", 5, 4, 5, 6, 640},
		{"--servers 128 --mttf 17520h", 6, 4, 6, 7, 768},
		{"--servers 11 --degree 3", 3, 3, 3, 5, 33},
		{"--servers 11 --kind gs --degree 5", 5, 2, 5, 3, 55},
		{"--servers 12 --kind binomial", 6, 2, 6, 4, 72},
		{"--servers 9 --kind complete", 8, 1, 8, 2, 72},
		{"--servers 7 --kind ring", 1, 6, 1, 6, 7},
	} {
		out, err := runDigraph(t, append(strings.Fields(test.arguments), "--format", "json")...)
		if err != nil {
			t.Errorf("%s: %v", test.arguments, err)
			continue
		}
		var keys map[string]any
		var report digraphReport
		if err := json.Unmarshal([]byte(out), &keys); err != nil {
			t.Errorf("%s: %v", test.arguments, err)
			continue
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Errorf("%s: %v", test.arguments, err)
		}
		want := []string{"connectivity", "degree", "diameter", "edges", "fault_diameter_bound",
			"servers"}
		if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
			t.Errorf("%s: keys %v, want %v", test.arguments, got, want)
		}
		if report.Edges == nil || len(report.Edges) != test.edges {
			t.Errorf("%s: %d edges, want %d", test.arguments, len(report.Edges), test.edges)
		}
		if g, err := digraph.New(report.Servers, report.Edges); err != nil ||
			g.Degree() != report.Degree {
			t.Errorf("%s: the edges do not make the digraph: %v", test.arguments, err)
		}
		report.Edges = nil
		if report.Degree != test.degree || report.Diameter != test.diameter ||
			report.Connectivity != test.connectivity ||
			report.FaultDiameterBound != test.bound {
			t.Errorf("%s: %+v, want %+v", test.arguments, report, test)
		}
	}
}

func TestDigraphText(t *testing.T) {
	t.Parallel()
	out, err := runDigraph(t, "--servers", "9", "--degree", "3")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GS(9,3)", "failures survived     2", "0: 3 4 5\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestDigraphDot(t *testing.T) {
	t.Parallel()
	out, err := runDigraph(t, "--servers", "3", "--kind", "ring", "--format", "dot")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"digraph overlay {", "0 -> 1;", "2 -> 0;"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestDigraphJSONFlagOfTheRoot(t *testing.T) {
	t.Parallel()
	for arguments, wantJSON := range map[string]bool{"": false, "--json": true,
		"--json --format text": false} {
		command := newDigraphCommand()
		command.PersistentFlags().Bool("json", false, "")
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(append([]string{"--servers", "4"}, strings.Fields(arguments)...))
		if err := command.Execute(); err != nil {
			t.Fatal(err)
		}
		if json.Valid(out.Bytes()) != wantJSON {
			t.Errorf("%q: json %t, want %t", arguments, !wantJSON, wantJSON)
		}
	}
}

// Every refusal names a flag to change.
func TestDigraphRefuses(t *testing.T) {
	t.Parallel()
	for arguments, advice := range map[string]string{
		"":                                          "--servers 8",
		"--servers 0":                               "--servers 8",
		"--servers -4":                              "--servers 8",
		"--servers 99999999":                        "fewer --servers",
		"--servers 60000 --kind complete":           "fewer --servers",
		"--servers 8 --kind star":                   "gs, binomial, complete or ring",
		"--servers 8 --format xml":                  "text, json or dot",
		"--servers 8 --degree 5":                    "--degree 3 to 4",
		"--servers 8 --degree 0":                    "--degree 3 to 4",
		"--servers 5 --degree 3":                    "--kind complete",
		"--servers 5 --kind gs":                     "--kind complete",
		"--servers 8 --kind gs --nines 12":          "fewer --nines",
		"--servers 8 --nines 0":                     "--nines 6",
		"--servers 8 --nines 99":                    "change --nines",
		"--servers 8 --mttf -1h":                    "--mttf 18304h",
		"--servers 8 --mttf 1ns":                    "--mttf",
		"--servers 8 --kind ring --degree 3":        "leave --degree out",
		"--servers 8 --kind ring --nines 3":         "leave them out",
		"--servers 8 --kind complete --mttf 9h":     "leave them out",
		"--servers 8 --degree 3 --nines 3":          "none of the others can be",
		"--servers 4096 --degree 200 --format json": "smaller --degree",
		"--servers 8 more":                          "unknown command",
	} {
		out, err := runDigraph(t, strings.Fields(arguments)...)
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("%q: error %v, want one with %q", arguments, err, advice)
		}
		if strings.Contains(out, "successors") {
			t.Errorf("%q: printed an overlay", arguments)
		}
	}
}
