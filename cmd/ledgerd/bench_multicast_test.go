package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// runBenchMulticast measures with growing windows until something was delivered.
func runBenchMulticast(t *testing.T, arguments ...string) map[string]any {
	t.Helper()
	for _, window := range windows {
		result, err := runBench(t, append([]string{"multicast", "--json", "--for", window},
			arguments...)...)
		if err == nil {
			return result
		}
		if !nothingMeasured(err.Error()) {
			t.Fatal(err)
		}
	}
	t.Fatal("nothing was measured")
	return nil
}

func TestBenchMulticast(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	if err := os.WriteFile(tree, []byte("0 1\n1 1\n2 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, arguments string }{
		{"leaders", "--groups 3 --destinations 2 --clients 2 --outstanding 8"},
		{"leaders, one group of one", "--groups 1 --destinations 1 --replicas 1 --size 0"},
		{"leaders, p2p-trusted", "--groups 2 --tree chain --fabric p2p-trusted --size 1000"},
		{"leaderless, a file", "--engine tram-leaderless --groups 3 --destinations 2 --clients " +
			"2 --outstanding 8 --tree " + tree},
		{"leaderless, p2p", "--engine tram-leaderless --groups 2 --tree chain --fabric p2p"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := runBenchMulticast(t, strings.Fields(test.arguments)...)
			for _, key := range []string{"requests_per_second", "deliveries_per_second",
				"latency_p50_us", "latency_p99_us", "cpu_seconds", "seconds",
				"compared_deliveries"} {
				if value, ok := result[key].(float64); !ok || value <= 0 {
					t.Errorf("%s is %v, want a positive number", key, result[key])
				}
			}
			for _, key := range []string{"engine", "tree", "groups", "replicas", "destinations",
				"size", "clients", "outstanding", "fabric", "gbit_per_second"} {
				if _, ok := result[key]; !ok {
					t.Errorf("no %s in %v", key, result)
				}
			}
			if _, ok := result["failovers"]; ok {
				t.Errorf("failovers that nobody asked for: %v", result)
			}
		})
	}
}

func TestBenchMulticastFailover(t *testing.T) {
	for _, test := range []struct {
		failover string
		count    float64
	}{{"crash", 2}, {"change", 10}} {
		t.Run(test.failover, func(t *testing.T) {
			result := runBenchMulticast(t, "--groups", "2", "--failover", test.failover)
			failovers, ok := result["failovers"].(map[string]any)
			if !ok {
				t.Fatalf("no failovers in %v", result)
			}
			for _, key := range []string{"without_delivery_p50_us", "without_delivery_max_us",
				"undisturbed_p50_us", "undisturbed_max_us", "interval_seconds"} {
				if value, ok := failovers[key].(float64); !ok || value <= 0 {
					t.Errorf("%s is %v, want a positive number", key, failovers[key])
				}
			}
			if failovers["count"] != test.count {
				t.Errorf("%v failovers, want %v", failovers["count"], test.count)
			}
		})
	}
}

func TestBenchMulticastRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"--engine raft", "--groups 0", "--groups 2 --destinations 3",
		"--destinations 0", "--replicas 0", "--replicas 65", "--groups 100", "--size -1",
		"--size 100000",
		"--clients 0", "--outstanding 0", "--fabric tcp", "--for 0s", "--tree missing",
		"--failover gently", "--failover crash --replicas 2",
		"--failover change --engine tram-leaderless"} {
		if _, err := runBench(t, append([]string{"multicast"},
			strings.Fields(arguments)...)...); !errors.Is(err, bench.ErrParameters) {
			t.Errorf("%s: %v, want ErrParameters", arguments, err)
		}
	}
}

func TestWriteMulticast(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	result := bench.MulticastResult{RequestsPerSecond: 1234,
		Failovers: &bench.Failovers{Count: 7, WithoutP50: 89}}
	result.Engine, result.Failover = bench.EngineTRAM, bench.FailoverChange
	if err := writeMulticast(&text, result); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"1234 messages/s", "89 us median", "7 times (change)",
		"undisturbed"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in:\n%s", part, &text)
		}
	}
}
