package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/sim/conformance"
)

func TestSimConformance(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "conformance", "--engine", "trains", "--seeds", "1")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"trains, with an eventually perfect detector",
		"properties held", "too many crashes", "20 of 20", "none"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "tram") {
		t.Errorf("other engines are in\n%s", out)
	}
}

func TestSimConformanceJSON(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "conformance", "--engine", "tram", "--seeds", "1", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var table conformance.Table
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&table); err != nil {
		t.Fatal(err)
	}
	if len(table.Parts) != 1 || table.Parts[0].Engine != "tram" || table.Seeds != 1 {
		t.Fatalf("%+v", table)
	}
	for _, row := range table.Parts[0].Rows {
		if len(row.Cells) != len(table.Parts[0].Columns) {
			t.Errorf("%s has %d cells", row.Property, len(row.Cells))
		}
	}
}

func TestSimConformanceRefuses(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"--engine paxos": "use one of allconcur+, allconcur", "--seeds 0": "run 1 to",
	} {
		if out, err := runSim(t, append([]string{"conformance"},
			strings.Fields(arguments)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", arguments, err, out)
		}
	}
}
