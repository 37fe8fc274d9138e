package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// One shard and two are measured with the same loads, and nothing is left.
func TestBenchLedgerShards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := measured(t, "--shards", "2", "--nodes", "2", "--tree", "chain", "--pattern",
		"neighbourly", "--crossing", "0,50", "--clients", "4", "--bundle", "5", "--accounts", "40",
		"--ack", "durable-everywhere", "--dir", dir, "--json").out
	report := object(t, out)
	if report["shards"] != 2.0 || report["nodes"] != 2.0 || report["pattern"] != "neighbourly" ||
		report["crossing_cost"].(float64) <= 0 || len(report["tree"].([]any)) != 2 ||
		len(report["loads"].([]any)) != 2 {
		t.Errorf("%s", out)
	}
	var result bench.ShardsResult
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	for i, load := range result.Loads {
		if load.Crossing != 50*i || load.Gain <= 0 || load.GainPacked <= 0 {
			t.Errorf("%+v", load)
		}
		for nodes, f := range map[int]*bench.ShardsFigures{2: load.One, 4: load.Several} {
			if len(f.NodeCPUPerRequest) != nodes || f.RequestsPerSecond <= 0 ||
				f.LatencyP50 <= 0 || f.LatencyMax < f.LatencyP99 || f.Seconds <= 0 ||
				f.BusiestCPUPerRequest <= 0 || f.ClientCPUPerRequest <= 0 ||
				(f.Crossed > 0) != (load.Crossing > 0) {
				t.Errorf("%+v", f)
			}
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Callers share a sender, and the text names what was measured.
func TestBenchLedgerShardsOfCallers(t *testing.T) {
	t.Parallel()
	result := measured(t, "--shards", "2", "--nodes", "1", "--crossing", "40", "--clients", "2",
		"--callers", "10", "--dir", t.TempDir())
	for _, part := range []string{"2 shards of 1 node (breadth), uniform", "2 x 10 callers",
		"40 %  2 shards", "40 %  one, packed", "one with packed bundles"} {
		if !strings.Contains(result.out, part) {
			t.Errorf("no %q in:\n%s", part, result.out)
		}
	}
	if strings.Contains(result.out, "  one  ") {
		t.Errorf("one shard was not measured as it is:\n%s", result.out)
	}
	if want := "measuring one shard, packed, of which 40 % cross\n" +
		"measuring 2 shards, of which 40 % cross\n"; result.errs != want {
		t.Errorf("progress %q, want %q", result.errs, want)
	}
}

// An interrupt ends the run in good order, without processes or files.
func TestBenchLedgerShardsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := begin(t, "bench", "ledger", "--shards", "2", "--nodes", "1", "--for", "1h", "--dir", dir)
	run.errs.await(t, `measuring (one shard), of which 0`)
	run.interrupt()
	if status := <-run.status; status == exitDone || status == exitUsage {
		t.Errorf("exit status %d\n%s%s", status, run.out.String(), run.errs.String())
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Flags that make no sense are refused.
func TestBenchLedgerShardsFlags(t *testing.T) {
	t.Parallel()
	for advice, flags := range map[string][]string{
		"--crossing is for --shards": {"--crossing", "5"},
		"--pattern is for --shards":  {"--pattern", "uniform"},
		"--tree is for --shards":     {"--tree", "chain"},
		"which cannot wait for": {"--shards", "2", "--callers", "2", "--ack",
			"durable-everywhere"},
		"--shards is 1":                    {"--shards", "1"},
		"exclude each other":               {"--shards", "2", "--compare"},
		"for 2 shards":                     {"--shards", "2", "--tree", "star"},
		"101 % of the transactions cross":  {"--shards", "2", "--crossing", "101"},
		"40 shards of 3 nodes":             {"--shards", "40"},
		"are in one process":               {"--shards", "2", "--fabric", "memory"},
		`pattern "far", want one of`:       {"--shards", "2", "--pattern", "far"},
		"2 clients for 3 shards":           {"--shards", "3", "--clients", "2"},
		"a book before the load is for on": {"--shards", "3", "--book-transactions", "9"},
	} {
		refuses(t, exitUsage, advice, append([]string{"bench", "ledger"}, flags...)...)
	}
}
