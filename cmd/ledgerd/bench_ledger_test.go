package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// Callers share a sender, and transfers spread over accounts. The figures of processors and disks
// are those of the nodes' processes.
func TestBenchLedgerCallers(t *testing.T) {
	t.Parallel()
	for _, distribution := range []string{"uniform", "zipf"} {
		var result outcome
		for _, window := range windows {
			result = ledgerd(t, "bench", "ledger", "--nodes", "3", "--clients", "2", "--callers",
				"50", "--accounts", "600", "--distribution", distribution, "--for", window, "--dir",
				t.TempDir(), "--json")
			if !nothingMeasured(result.errs) {
				break
			}
		}
		if result.status != exitDone {
			t.Fatalf("%+v", result)
		}
		report := object(t, result.out)
		for _, key := range append([]string{"latency_p90_us", "latency_p999_us", "latency_max_us",
			"flushes_per_request", "client_cpu_us_per_request"}, commonBenchKeys...) {
			if value, ok := report[key].(float64); !ok || value <= 0 && key != "cpu_seconds" {
				t.Errorf("%s is %v", key, report[key])
			}
		}
		if report["callers"] != 50.0 || report["accounts"] != 600.0 ||
			report["distribution"] != distribution ||
			report["flushes_per_request"].(float64) > 4 {
			t.Errorf("%v", report)
		}
	}
}

// Three loads stand beside what the machine can do.
func TestBenchLedgerCompare(t *testing.T) {
	t.Parallel()
	var result outcome
	dir := t.TempDir()
	for _, window := range windows {
		result = ledgerd(t, "bench", "ledger", "--nodes", "1", "--compare", "--clients", "2",
			"--callers", "20", "--bundle", "10", "--fabric", "memory", "--for", window, "--dir",
			dir)
		if !nothingMeasured(result.errs) {
			break
		}
	}
	if result.status != exitDone {
		t.Fatalf("%+v", result)
	}
	for _, part := range []string{"fdatasync", "verifications/s", "round trip", "2 x 20 callers",
		"2 x 10 a bundle", "one caller", "99.9TH US", "FLUSHES"} {
		if !strings.Contains(result.out, part) {
			t.Errorf("no %q in:\n%s", part, result.out)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestBenchLedgerRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"--callers -1", "--callers 2000 --clients 100",
		"--callers 2 --bundle 2", "--accounts 3 --clients 2", "--distribution flat",
		"--compare --callers 0", "--compare --bundle 0"} {
		if _, err := runBench(t, append([]string{"ledger"},
			strings.Fields(arguments)...)...); !errors.Is(err, bench.ErrParameters) {
			t.Errorf("%s: %v, want ErrParameters", arguments, err)
		}
	}
}
