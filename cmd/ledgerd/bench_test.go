package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// serveBench makes this test binary the program of the servers of p2p. They inherit the variable
// with the environment.
func serveBench(t *testing.T) {
	t.Setenv(benchServerVariable, "1")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	original := benchServerProcess
	benchServerProcess = func() ([]string, error) { return []string{program}, nil }
	t.Cleanup(func() { benchServerProcess = original })
}

func TestBenchEngine(t *testing.T) {
	serveBench(t)
	for _, test := range []struct{ name, engine, servers, batch, size, fabric, flags string }{
		{"one server", "allconcur+", "1", "1", "64", "memory", ""},
		{"three in memory", "allconcur+", "3", "16", "64", "memory", ""},
		{"AllConcur", "allconcur", "3", "16", "64", "memory", ""},
		{"three processes", "allconcur+", "3", "16", "64", "p2p", ""},
		{"AllConcur, three processes", "allconcur", "3", "1", "8", "p2p", ""},
		{"three processes without encryption", "allconcur+", "3", "16", "64", "p2p-trusted", ""},
		{"three processes over UNIX sockets", "allconcur+", "3", "16", "64", "shm", ""},
		{"three processes without the poller", "allconcur+", "3", "16", "64", "p2p-trusted",
			"--no-poller"},
		{"each by itself", "allconcur+", "3", "16", "64", "p2p-trusted", "--each"},
		{"TRAINS as in its paper", "trains", "3", "10", "100", "p2p-trusted", "--layout paper"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var result map[string]any
			for _, window := range windows {
				var err error
				result, err = runBench(t, append([]string{"engine", "--engine", test.engine,
					"--servers", test.servers, "--batch", test.batch, "--size", test.size,
					"--fabric", test.fabric, "--for", window, "--json"},
					strings.Fields(test.flags)...)...)
				if err == nil {
					break
				}
				if !nothingMeasured(err.Error()) {
					t.Fatal(err)
				}
			}
			wire := result["wire_bytes_per_byte"]
			if test.servers == "1" { // it has no peer to send to
				result["wire_bytes_per_byte"], result["cpu_us_per_frame"] = 1.0, 1.0
			}
			checkBenchKeys(t, result, "compared_round", "cpu_us_per_frame")
			if result["engine"] != test.engine || result["fabric"] != test.fabric ||
				result["each"] != (test.flags == "--each") ||
				result["no_poller"] != (test.flags == "--no-poller") {
				t.Errorf("parameters are missing in %v", result)
			}
			if layout, has := result["layout"]; has != strings.Contains(test.flags, "--layout") ||
				has && layout != "paper" {
				t.Errorf("the layout is %v", layout)
			}
			for _, key := range []string{"syscalls_per_message", "reads_and_writes_per_message",
				"switches_per_message", "hashed", "pote_percent"} {
				if _, there := result[key]; !there {
					t.Errorf("no %s in %v", key, result)
				}
			}
			t.Logf("%.0f requests/s, p50 %.0f us, %v bytes on lanes a byte",
				result["requests_per_second"], result["latency_p50_us"], wire)
		})
	}
}

func TestBenchEngineRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"--servers 0", "--servers 65", "--batch 0", "--size 0",
		"--batch 1000000 --size 1000", "--engine raft", "--fabric tcp", "--for 0s",
		"--no-poller --fabric memory", "--batch 8192 --size 1024 --each",
		"--in-flight 65", "--in-flight 0", "--in-flight -1", "--rate -1", "--delay 2s"} {
		if _, err := runBench(t, append([]string{"engine"},
			strings.Fields(arguments)...)...); !errors.Is(err, bench.ErrParameters) {
			t.Errorf("%s: %v, want ErrParameters", arguments, err)
		}
	}
	misused := (*usageError)(nil)
	if _, err := runBench(t, "engine", "--compare", "--servers", "3"); !errors.As(err, &misused) {
		t.Errorf("--compare with a number of servers: %v", err)
	}
	if _, err := runBench(t, "engine", "--compare-engines", "--engine",
		"trains"); !errors.As(err, &misused) {
		t.Errorf("--compare-engines with an engine: %v", err)
	}
	if _, err := runBench(t, "engine", "--compare-engines", "--layout", "house"); err == nil ||
		!strings.Contains(err.Error(), "--layout") {
		t.Errorf("--compare-engines with a layout: %v", err)
	}
	if _, err := runBench(t, "engine", "--layout", "paper"); err == nil ||
		!strings.Contains(err.Error(), "only trains has a layout") {
		t.Errorf("a layout of allconcur+: %v", err)
	}
	if _, err := runBench(t, "engine", "--compare-engines", "--compare"); err == nil {
		t.Error("--compare-engines with --compare")
	}
}

func TestBenchCompareEngines(t *testing.T) {
	t.Parallel()
	for _, window := range windows {
		var text bytes.Buffer
		command := newBenchCommand()
		command.SetOut(&text)
		command.SetErr(io.Discard)
		command.SilenceUsage = true
		command.SetArgs([]string{"engine", "--compare-engines", "--servers", "3", "--in-flight",
			"2", "--for", window, "--json"})
		if err := command.ExecuteContext(t.Context()); err != nil && nothingMeasured(err.Error()) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		var compared bench.EnginesInTurns
		decoder := json.NewDecoder(bytes.NewReader(text.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&compared); err != nil {
			t.Fatalf("%v\n%s", err, &text)
		}
		if len(compared.Engines) != len(bench.Engines()) ||
			compared.Engines[0].ThroughputRatio != 1 {
			t.Errorf("%+v", compared)
		}
		text.Reset()
		if err := writeEnginesInTurns(&text, compared); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"REQUESTS/S", "allconcur+", "trains is not measured: "} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%q is not in\n%s", want, &text)
			}
		}
		return
	}
	t.Fatal("nothing was measured")
}

func TestBenchEngineCompare(t *testing.T) {
	serveBench(t)
	original := benchEngineLoads
	benchEngineLoads = func(measured time.Duration) []bench.EngineLoad {
		load := original(measured)[0]
		load.Servers = 2
		return []bench.EngineLoad{load}
	}
	t.Cleanup(func() { benchEngineLoads = original })
	var text bytes.Buffer
	for _, window := range windows {
		text.Reset()
		command := newBenchCommand()
		command.SetOut(&text)
		command.SetErr(io.Discard)
		command.SilenceUsage = true
		command.SetArgs([]string{"engine", "--compare", "--json", "--for", window})
		if err := command.ExecuteContext(t.Context()); err == nil {
			break
		} else if !nothingMeasured(err.Error()) {
			t.Fatal(err)
		}
	}
	var result struct {
		Loads []struct {
			Load     string
			Loopback map[string]float64
			Poller   map[string]any
			NoPoller map[string]any `json:"no_poller"`
		}
	}
	if err := json.Unmarshal(text.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, &text)
	}
	load := result.Loads[0]
	if load.Load != "allconcur+_4_alone" || load.Loopback["gbit_per_second"] <= 0 ||
		load.Loopback["round_trip_us_p50"] <= 0 {
		t.Errorf("%+v", load)
	}
	for _, figures := range []map[string]any{load.Poller, load.NoPoller} {
		checkBenchKeys(t, figures, "latency_p50_round_trips", "loopback_share", "cpu_us_per_frame")
	}
	var compared bench.EngineComparison
	if err := json.Unmarshal(text.Bytes(), &compared); err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := writeEngineComparison(&text, compared); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"allconcur+_4_alone", "off", "SWITCHES", "by sampling"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in:\n%s", part, &text)
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
	kinds := []string{"memory", "p2p", "p2p-trusted", "shm"}
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
