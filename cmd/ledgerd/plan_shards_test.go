package main

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/plan/traffic"
)

// writeInput writes a file into the test's folder and returns its name.
func writeInput(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// decodeStrictly decodes JSON and refuses fields that the value does not have.
func decodeStrictly(t *testing.T, text string, value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

func TestPlanShardsEvenly(t *testing.T) {
	t.Parallel()
	out, err := runPlan(t, "--shards", "4", "--tree", "chain", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report evenReport
	decodeStrictly(t, out, &report)
	if report.Shards != 4 || !slices.Equal(report.Tree, []ledger.ShardID{0, 0, 1, 2}) ||
		len(report.Plans) != 6 || report.Ahead == nil || *report.Ahead <= 0 ||
		*report.Ahead >= 100 {
		t.Errorf("%s", out)
	}
	for i, plan := range report.Plans {
		if plan.Gain != plan.Shapes["chain"] || len(plan.Shapes) != 3 || len(plan.Loads) != 4 ||
			i > 0 && plan.Gain >= report.Plans[i-1].Gain {
			t.Errorf("%+v", plan)
		}
	}
	if out, err = runPlan(t, "--shards", "3", "--crossing", "20"); err != nil ||
		!strings.Contains(out, "3 shards (breadth)") || !strings.Contains(out, "20 %") ||
		!strings.Contains(out, "ahead of one up to") {
		t.Error(out, err)
	}
}

// Of two banks with a customer each, in the wrong shards, the plan moves both customers.
func TestPlanShardsFromTraffic(t *testing.T) {
	t.Parallel()
	deals := writeInput(t, "deals.csv", "bank,customer,90\nrival,client,80\nbank,rival,5\n")
	homes := writeInput(t, "homes.csv", "bank,0\nclient,0\ncustomer,1\nrival,1\n")
	out, err := runPlan(t, "--shards", "2", "--traffic", deals, "--homes", homes, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report adviceReport
	decodeStrictly(t, out, &report)
	if report.Organisations != 4 || report.Transactions != 175 || report.Crossings != 175 ||
		len(report.Moves) != 2 || report.Moves[0].Organisation != "customer" ||
		report.Moves[1].Organisation != "client" || !report.MovesComplete ||
		math.Abs(report.Moved.Gain-report.Moves[1].Gain) > 1e-9 ||
		report.Moved.Crossing != report.Moves[1].Crossing ||
		report.Moved.Gain <= report.Now.Gain {
		t.Errorf("%s", out)
	}
	if out, err = runPlan(t, "--shards", "2", "--traffic", deals, "--homes", homes, "--moves",
		"1"); err != nil || !strings.Contains(out, "customer") ||
		strings.Contains(out, "client ") ||
		!strings.Contains(out, "--moves shows more, unless") ||
		!strings.Contains(out, "--shard of `ledgerd org add`") {
		t.Error(out, err)
	}
	// Without homes, they follow from the names.
	if out, err = runPlan(t, "--shards", "2", "--traffic", deals, "--json"); err != nil {
		t.Fatal(err)
	}
	decodeStrictly(t, out, &report)
	var live [2]int
	for _, name := range []ledger.OrganisationName{"bank", "client", "customer", "rival"} {
		live[ledger.Rendezvous(name, 2)]++
	}
	for shard, load := range report.Now.Loads {
		if load.Organisations != live[shard] {
			t.Errorf("%d organisations in shard %d, want %d", load.Organisations, shard,
				live[shard])
		}
	}
	// Two busy pairs below a busy root: there is a better tree.
	deals = writeInput(t, "pairs.csv", "root,200\na,b,50\nc,d,50\n")
	homes = writeInput(t, "homes.csv", "root,0\na,1\nb,2\nc,3\nd,4\n")
	if out, err = runPlan(t, "--shards", "5", "--traffic", deals, "--homes", homes); err != nil ||
		!strings.Contains(out, "another tree would carry") || !strings.Contains(out, "--tree of") ||
		!strings.Contains(out, oneShardText) {
		t.Error(out, err)
	}
}

// The costs of a measurement make the plan, and only those of a measurement do.
func TestPlanShardsMeasured(t *testing.T) {
	t.Parallel()
	figures := func(crossed float64, nodes ...float64) *bench.ShardsFigures {
		return &bench.ShardsFigures{Crossed: crossed, NodeCPUPerRequest: nodes}
	}
	// Where all crosses, twice as much as the model has with the built-in costs.
	root := 2 * (traffic.MeasuredCosts.Crossing + traffic.MeasuredCosts.Verdict)
	below := 2 * (traffic.MeasuredCosts.Relay + traffic.MeasuredCosts.Verdict)
	result := bench.ShardsResult{Shards: 2,
		ShardsParameters: bench.ShardsParameters{Tree: []ledger.ShardID{0, 0},
			Pattern: bench.PatternUniform},
		Loads: []bench.ShardsLoad{
			{Crossing: 0, One: figures(0, 3, 5), Several: figures(0, 3, 3, 2, 4)},
			{Crossing: 100, One: figures(100, 4, 4), Several: figures(100, root-1, root+1, below,
				below)},
		}}
	result.Nodes = 2
	write := func() string {
		text, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		return writeInput(t, "measured.json", string(text))
	}
	out, err := runPlan(t, "--shards", "2", "--measured", write(), "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report evenReport
	decodeStrictly(t, out, &report)
	built := traffic.MeasuredCosts
	for i, pair := range [][2]float64{{report.Costs.Single, 4}, {report.Costs.Plain, 6},
		{report.Costs.Crossing, 2 * built.Crossing}, {report.Costs.Relay, 2 * built.Relay},
		{report.Costs.Verdict, 2 * built.Verdict}} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("cost %d is %v, want %v", i, pair[0], pair[1])
		}
	}
	for name, change := range map[string]func(){
		"--pattern":           func() { result.Pattern = bench.PatternNeighbourly },
		"without --callers":   func() { result.Loads[0].One = nil },
		"--crossing 0,50,100": func() { result.Loads = result.Loads[1:] },
		"bench ledger":        func() { result.Tree = nil },
		"nodes a shard":       func() { result.Nodes = 0 },
	} {
		kept := result
		kept.Loads = slices.Clone(result.Loads)
		change()
		if out, err := runPlan(t, "--shards", "2", "--measured", write()); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		result = kept
	}
	if _, err := runPlan(t, "--shards", "2", "--measured", writeInput(t, "x", "no")); err == nil {
		t.Error("text that is no measurement makes a plan")
	}
}

func TestPlanShardsRefuses(t *testing.T) {
	t.Parallel()
	deals := writeInput(t, "deals.csv", "bank,customer,90\n")
	for arguments, advice := range map[string]string{
		"--shards 0":                                           "--tree",
		"--shards 3 --tree nowhere":                            "--tree",
		"--shards 3 --servers 4":                               "--servers",
		"--shards 3 --batch 4":                                 "--batch",
		"--servers 3 --crossing 4":                             "--crossing is for --shards",
		"--servers 3 --moves 4":                                "--moves is for --shards",
		"--shards 3 --crossing 101":                            "--crossing",
		"--shards 3 --crossing 5 --traffic " + deals:           "exclude",
		"--shards 3 --homes " + deals:                          "--traffic",
		"--shards 3 --moves 3":                                 "--traffic",
		"--shards 3 --moves 0 --traffic " + deals:              "--moves",
		"--shards 3 --traffic nowhere":                         "--traffic",
		"--shards 3 --traffic " + deals + " --homes nowhere":   "--homes",
		"--shards 3 --traffic " + deals + " --homes " + deals:  "--homes",
		"--shards 3 --measured nowhere":                        "--measured",
		"--shards 3 --traffic " + writeInput(t, "bad", "x"):    "line 1",
		"--shards 3 --traffic " + writeInput(t, "bad", "X!,1"): "organisation",
	} {
		out, err := runPlan(t, strings.Fields(arguments)...)
		if err == nil || !strings.Contains(err.Error(), advice) ||
			!errors.As(err, new(*usageError)) || out != "" {
			t.Errorf("%q: %v, %q; want %q", arguments, err, out, advice)
		}
	}
}

// Every field is in the help.
func TestPlanShardsFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	deals := writeInput(t, "deals.csv", "root,200\na,b,50\nc,d,50\n")
	help := newPlanCommand().Long
	var check func(value any)
	check = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, each := range value {
				check(each)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				if !strings.Contains(help, name) {
					t.Errorf("the help has no word of %s", name)
				}
				check(value[name])
			}
		}
	}
	for _, arguments := range [][]string{{"--shards", "3", "--json"},
		{"--shards", "5", "--traffic", deals, "--json"}} {
		out, err := runPlan(t, arguments...)
		if err != nil {
			t.Fatal(err)
		}
		var fields any
		if err := json.Unmarshal([]byte(out), &fields); err != nil {
			t.Fatal(err)
		}
		check(fields)
	}
}
