package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimFigureTable(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "figure", "5.10", "--quick")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Figure 5.10. ", "InfiniBand Verbs", "TCP", "model: work", "- "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
}

func TestSimFigureJSON(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "figure", "5.10", "--quick", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		var point map[string]any
		if err := json.Unmarshal([]byte(line), &point); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		for _, field := range []string{"figure", "panel", "series", "x", "y", "unit"} {
			if _, ok := point[field]; !ok || len(point) != 6 {
				t.Fatalf("%q has no %s, or more than it should", line, field)
			}
		}
		if point["figure"] != "5.10" || point["y"].(float64) <= 0 {
			t.Errorf("%q is no point of figure 5.10", line)
		}
	}
	if len(lines) < 20 {
		t.Errorf("%d points", len(lines))
	}
}

func TestSimFigureFiles(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "made", "here")
	out, err := runSim(t, "figure", "5.10", "--quick", "--out", folder)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, extension := range []string{".txt", ".json", ".svg"} {
		name := filepath.Join(folder, "figure-5.10"+extension)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, name) || len(content) == 0 {
			t.Errorf("%s is empty, or %q does not name it", name, out)
		}
		if extension != ".svg" {
			continue
		}
		decoder := xml.NewDecoder(bytes.NewReader(content))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSimFigureRefuses(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{{"figure"}, {"figure", "9.9"}, {"figure", "5.10", "6.6"}} {
		if out, err := runSim(t, arguments...); err == nil ||
			!strings.Contains(out+err.Error(), "figure") {
			t.Errorf("%v: %v, %q", arguments, err, out)
		}
	}
}
