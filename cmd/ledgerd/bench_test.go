package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// benchServerVariable makes the test binary a server process.
const benchServerVariable = "LEDGERD_TEST_BENCH_SERVER"

func init() {
	if os.Getenv(benchServerVariable) == "" {
		return
	}
	if err := newBenchServerCommand().Execute(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func runBench(t *testing.T, arguments ...string) (map[string]any, error) {
	t.Helper()
	command := newBenchCommand()
	var output bytes.Buffer
	command.SetOut(&output)
	command.SetErr(&output)
	command.SilenceUsage = true
	command.SetArgs(arguments)
	if err := command.ExecuteContext(t.Context()); err != nil {
		return nil, err
	}
	var result map[string]any
	if err := json.Unmarshal(output.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, output.String())
	}
	return result, nil
}

var commonBenchKeys = []string{"requests_per_second", "gbit_per_second", "latency_p50_us",
	"latency_p99_us", "cpu_seconds", "wire_bytes_per_byte", "seconds"}

func checkBenchKeys(t *testing.T, result map[string]any, keys ...string) {
	t.Helper()
	for _, key := range append(keys, commonBenchKeys...) {
		if value, ok := result[key].(float64); !ok || value <= 0 {
			t.Errorf("%s is %v, want a positive number", key, result[key])
		}
	}
}

// windows are the lengths of a benchmark. The next one is used if nothing was measured in the one
// before, because the machine was busy.
var windows = []string{"300ms", "3s", "20s"}

// nothingMeasured reports whether a benchmark failed because it measured nothing.
func nothingMeasured(said string) bool { return strings.Contains(said, "measure for longer") }

func TestBenchEngine(t *testing.T) {
	// The servers of p2p are this test binary. They inherit the variable with the environment.
	t.Setenv(benchServerVariable, "1")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	original := benchServerProcess
	benchServerProcess = func() ([]string, error) { return []string{program}, nil }
	t.Cleanup(func() { benchServerProcess = original })
	for _, test := range []struct{ name, engine, servers, batch, size, fabric string }{
		{"one server", "allconcur+", "1", "1", "64", "memory"},
		{"three in memory", "allconcur+", "3", "16", "64", "memory"},
		{"AllConcur", "allconcur", "3", "16", "64", "memory"},
		{"three processes", "allconcur+", "3", "16", "64", "p2p"},
		{"AllConcur, three processes", "allconcur", "3", "1", "8", "p2p"},
		{"three processes without encryption", "allconcur+", "3", "16", "64", "p2p-trusted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var result map[string]any
			for _, window := range windows {
				var err error
				result, err = runBench(t, "engine", "--engine", test.engine, "--servers",
					test.servers, "--batch", test.batch, "--size", test.size,
					"--fabric", test.fabric, "--for", window, "--json")
				if err == nil {
					break
				}
				if !nothingMeasured(err.Error()) {
					t.Fatal(err)
				}
			}
			wire := result["wire_bytes_per_byte"]
			if test.servers == "1" {
				result["wire_bytes_per_byte"] = 1.0 // it has no peer to send to
			}
			checkBenchKeys(t, result, "compared_round")
			if result["engine"] != test.engine || result["fabric"] != test.fabric {
				t.Errorf("parameters are missing in %v", result)
			}
			t.Logf("%.0f requests/s, p50 %.0f us, %v bytes on lanes a byte",
				result["requests_per_second"], result["latency_p50_us"], wire)
		})
	}
}

func TestBenchEngineRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"--servers 0", "--servers 65", "--batch 0", "--size 0",
		"--batch 1000000 --size 1000", "--engine raft", "--fabric tcp", "--for 0s"} {
		if _, err := runBench(t, append([]string{"engine"},
			strings.Fields(arguments)...)...); !errors.Is(err, bench.ErrParameters) {
			t.Errorf("%s: %v, want ErrParameters", arguments, err)
		}
	}
}

func TestBenchLoopback(t *testing.T) {
	t.Parallel()
	result, err := runBench(t, "loopback", "--for", "150ms", "--json")
	if err != nil {
		t.Fatal(err)
	}
	checkBenchKeys(t, result, "stream_gbit_64k", "stream_gbit_1m", "stream_64k_bytes_per_second",
		"stream_1m_bytes_per_second", "round_trip_us_p50",
		"round_trip_us_p99")
}

func TestBenchFabric(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	command := newBenchCommand()
	command.SetOut(&text)
	command.SetArgs([]string{"fabric", "--for", "400ms", "--json"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var result bench.FabricComparison
	if err := json.Unmarshal(text.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, &text)
	}
	kinds := []string{"memory", "p2p", "p2p-trusted"}
	if !verbsMissing() {
		kinds = append(kinds, "verbs")
	}
	if want := append([]string{bench.BesideTCP, bench.BesideMemcpy},
		kinds...); !slices.Equal(result.Columns, want) {
		t.Errorf("columns %v, want %v", result.Columns, want)
	}
	for _, row := range result.Rows {
		for _, kind := range kinds {
			if row.Figures[kind].Value <= 0 {
				t.Errorf("%s over %s: %+v", row.Name, kind, row.Figures[kind])
			}
		}
	}
	text.Reset()
	if err := writeComparison(&text, result); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"p2p-trusted", "region, writes of 64 KiB", "awaited together",
		"medians of 5"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in:\n%s", part, &text)
		}
	}
}
