package main

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// measured runs a benchmark with windows of growing length until it measures something.
func measured(t *testing.T, arguments ...string) (result outcome) {
	t.Helper()
	for _, window := range windows {
		result = ledgerd(t, append([]string{"bench", "ledger", "--for", window}, arguments...)...)
		if !nothingMeasured(result.errs) {
			break
		}
	}
	if result.status != exitDone {
		t.Fatalf("%+v", result)
	}
	return result
}

// ledgerBenchKeys are the keys of a result that are above 0 whatever the load.
var ledgerBenchKeys = append([]string{"latency_p90_us", "latency_p999_us", "latency_max_us",
	"cpu_us_per_request", "flushes_per_request", "flushes_per_block", "bytes_on_disk_per_request",
	"acknowledged", "compared_height"}, commonBenchKeys...)

// checkLedgerBench checks the figures of a result against each other.
func checkLedgerBench(t *testing.T, report map[string]any) {
	t.Helper()
	checkBenchKeys(t, report, ledgerBenchKeys...)
	if t.Failed() {
		t.FailNow()
	}
	text, _ := report["latency_histogram"].(string)
	histogram, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		t.Fatalf("latency_histogram %.40q: %v", text, err)
	}
	number := func(key string) float64 { return report[key].(float64) }
	if median := float64(histogram.ValueAtPercentile(50)) / 1e3; median !=
		number("latency_p50_us") {
		t.Errorf("the histogram's median is %v us, not %v", median, number("latency_p50_us"))
	}
	// A transaction takes some tens to hundreds of bytes, and a short run leaves some files of the
	// database with little in them.
	if number("bytes_on_disk_per_request") > 1<<14 {
		t.Errorf("%v bytes on disk for each transaction", number("bytes_on_disk_per_request"))
	}
	// A block has a transaction at least. The two readings of the counters are not of one moment,
	// so they say little of a few transactions, as a busy machine gets done.
	if number("acknowledged") > 50 &&
		number("flushes_per_block") < number("flushes_per_request")/2 {
		t.Errorf("%v flushes a block, %v a transaction", number("flushes_per_block"),
			number("flushes_per_request"))
	}
}

// Callers share a sender, and transfers spread over accounts. The figures of processors and disks
// are those of the nodes' processes.
func TestBenchLedgerCallers(t *testing.T) {
	t.Parallel()
	for _, distribution := range []string{"uniform", "zipf", "hot"} {
		report := object(t, measured(t, "--nodes", "3", "--clients", "2", "--callers", "50",
			"--accounts", "600", "--distribution", distribution, "--dir", t.TempDir(),
			"--json").out)
		checkLedgerBench(t, report)
		if report["callers"] != 50.0 || report["accounts"] != 600.0 ||
			report["distribution"] != distribution ||
			report["flushes_per_request"].(float64) > 4 ||
			report["client_cpu_us_per_request"].(float64) <= 0 {
			t.Errorf("%v", report)
		}
	}
}

// Accounts are spread unless a flag says otherwise.
func TestBenchLedgerDefaults(t *testing.T) {
	t.Parallel()
	report := object(t, measured(t, "--nodes", "1", "--clients", "2", "--fabric", "memory", "--dir",
		t.TempDir(), "--json").out)
	report["wire_bytes_per_byte"] = 1.0 // a node alone has no peer to send to
	checkLedgerBench(t, report)
	if report["accounts"] != 10000.0 || report["distribution"] != "uniform" ||
		report["bundle"] != 1.0 || report["callers"] != 0.0 ||
		report["client_cpu_us_per_request"] != 0.0 {
		t.Errorf("%v", report)
	}
	text := measured(t, "--nodes", "1", "--clients", "2", "--bundle", "3", "--accounts", "0",
		"--fabric", "memory", "--dir", t.TempDir()).out
	for _, part := range []string{"2 x 3 a bundle", "4 hot accounts", "99.9th", "longest",
		"bytes a transaction and node", "flushes a block"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// The loads stand beside what the machine can do.
func TestBenchLedgerCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	arguments := []string{"--nodes", "1", "--compare", "--clients", "2", "--callers", "20",
		"--bundle", "10", "--accounts", "30", "--fabric", "memory", "--dir", dir}
	out := measured(t, append(arguments, "--large-accounts", "50", "--more-nodes", "0,2",
		"--json")...).out
	report := object(t, out)
	machine := report["machine"].(map[string]any)
	for _, key := range []string{"fdatasync_us_p50", "fdatasync_us_p99", "fdatasyncs_per_second",
		"verifications_per_second", "batched_verifications_per_second", "round_trip_us_p50",
		"round_trip_us_p99", "loopback_gbit_per_second"} {
		if value, ok := machine[key].(float64); !ok || value <= 0 {
			t.Errorf("machine: %s is %v", key, machine[key])
		}
	}
	type load struct {
		name, distribution       string
		nodes, accounts, callers float64
	}
	var loads []load
	for _, one := range report["loads"].([]any) {
		result := one.(map[string]any)
		if result["nodes"] == 1.0 {
			result["wire_bytes_per_byte"] = 1.0
		}
		checkLedgerBench(t, result)
		loads = append(loads, load{result["load"].(string), result["distribution"].(string),
			result["nodes"].(float64), result["accounts"].(float64), result["callers"].(float64)})
	}
	if want := []load{
		{"callers", "uniform", 1, 30, 20}, {"packed", "uniform", 1, 30, 0},
		{"alone", "uniform", 1, 30, 1},
		{"callers_large_uniform", "uniform", 1, 50, 20},
		{"packed_large_uniform", "uniform", 1, 50, 0}, {"alone_large_uniform", "uniform", 1, 50, 1},
		{"callers_large_zipf", "zipf", 1, 50, 20}, {"packed_large_zipf", "zipf", 1, 50, 0},
		{"alone_large_zipf", "zipf", 1, 50, 1},
		{"packed_2_nodes", "uniform", 2, 30, 0},
	}; !slices.Equal(loads, want) {
		t.Errorf("loads %v, want %v", loads, want)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	var comparison bench.LedgerComparison
	if err := json.Unmarshal([]byte(out), &comparison); err != nil {
		t.Fatal(err)
	}
	comparison.LeftOut = []bench.LoadLeftOut{{Load: "packed_large_zipf", Reason: "no memory"}}
	var text strings.Builder
	if err := writeLedgerComparison(&text, comparison); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"fdatasync", "verifications/s", "Gbit/s", "2 x 20 callers",
		"2 x 10 a bundle", "one caller", "30 uniform", "50 zipf", "99.9TH US", "FLUSHES", "BYTES",
		"left out packed_large_zipf: no memory"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in:\n%s", part, &text)
		}
	}
}

// The first three loads are left if flags say so, and progress goes to standard error.
func TestBenchLedgerCompareThree(t *testing.T) {
	t.Parallel()
	result := measured(t, "--nodes", "1", "--compare", "--clients", "2", "--callers", "20",
		"--bundle", "10", "--accounts", "30", "--fabric", "memory", "--dir", t.TempDir(),
		"--large-accounts", "0", "--more-nodes", "0")
	if want := "measuring callers\nmeasuring packed\nmeasuring alone\n"; result.errs != want {
		t.Errorf("progress %q, want %q", result.errs, want)
	}
	if rows := strings.Count(result.out, "30 uniform"); rows != 3 {
		t.Errorf("%d loads in:\n%s", rows, result.out)
	}
}

// Flags of the comparison change nothing else, so they are refused without it.
func TestBenchLedgerRefusesFlagsOfCompare(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--large-accounts", "--more-nodes"} {
		if result := ledgerd(t, "bench", "ledger", flag, "5"); result.status != exitUsage ||
			!strings.Contains(result.errs, flag+" is for --compare") {
			t.Errorf("%s: %+v", flag, result)
		}
	}
}

// A load may have a book before it, alone and as one of several loads.
func TestBenchLedgerBook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	arguments := []string{"--nodes", "2", "--clients", "2", "--accounts", "20", "--bundle", "10",
		"--book-transactions", "5000", "--book-accounts", "1000", "--memory-limit", "256MiB",
		"--dir", dir}
	check := func(report map[string]any) {
		t.Helper()
		checkLedgerBench(t, report)
		if report["book_transactions"] != 5000.0 || report["book_accounts"] != 1000.0 ||
			report["memory_limit_bytes"] != float64(256<<20) ||
			report["ready_ms"].(float64) <= 0 ||
			report["peak_memory_bytes"].(float64) <= 0 && runtime.GOOS == "linux" {
			t.Errorf("%v", report)
		}
	}
	check(object(t, measured(t, append(arguments, "--json")...).out))
	loads := object(t, measured(t, append(arguments, "--json", "--compare", "--callers", "2",
		"--large-accounts", "0", "--more-nodes", "0")...).out)["loads"].([]any)
	for i, name := range []string{"callers", "packed", "alone", "packed_book"} {
		load := loads[i].(map[string]any)
		if load["load"] != name {
			t.Errorf("load %d is %v, want %s", i, load["load"], name)
		}
		if i == 3 {
			check(load)
		} else if load["book_transactions"] != 0.0 || load["ready_ms"] != 0.0 {
			t.Errorf("%v", load)
		}
	}
	text := measured(t, arguments...).out
	if part := "5000 transactions, 1000 accounts"; !strings.Contains(text, part) {
		t.Errorf("no %q in:\n%s", part, text)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestBytesFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1024": 1 << 10, "4GiB": 4 << 30,
		"3KiB": 3 << 10, "8TiB": 8 << 40} {
		var flag, again bytesFlag
		if err := flag.Set(text); err != nil || int64(flag) != want {
			t.Errorf("%s: %d, %v", text, flag, err)
		}
		if err := again.Set(flag.String()); err != nil || again != flag {
			t.Errorf("%s: printed as %s", text, &flag)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "-1GiB", "1GB", "1.5GiB", "9000000TiB",
		"1 GiB"} {
		var flag bytesFlag
		if err := flag.Set(text); err == nil {
			t.Errorf("%q: %d", text, flag)
		}
	}
}

func TestBenchLedgerRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{"--callers -1", "--callers 2000 --clients 100",
		"--callers 2 --bundle 2", "--accounts 3 --clients 2", "--distribution flat",
		"--compare --callers 0", "--compare --bundle 0", "--compare --large-accounts 5",
		"--compare --large-accounts -1", "--compare --more-nodes 5,65",
		"--book-transactions -1", "--book-transactions 5 --accounts 0",
		"--book-accounts 200 --accounts 300", "--compare --book-accounts 200 --accounts 300",
		"--memory-limit 1GiB --fabric memory", "--book-transactions 5 --fabric memory"} {
		if _, err := runBench(t, append([]string{"ledger"},
			strings.Fields(arguments)...)...); !errors.Is(err, bench.ErrParameters) {
			t.Errorf("%s: %v, want ErrParameters", arguments, err)
		}
	}
}
