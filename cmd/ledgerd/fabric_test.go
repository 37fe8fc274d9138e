package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// verbsMissing reports whether this machine has no RDMA.
func verbsMissing() bool { return fabric.Check(fabric.Verbs) != nil }

func TestFabricLists(t *testing.T) {
	t.Parallel()
	o := ledgerd(t, "fabric", "--json")
	var report fabricReport
	if err := json.Unmarshal([]byte(o.out), &report); err != nil || o.status != exitDone {
		t.Fatalf("%v in %+v", err, o)
	}
	var kinds []fabric.Kind
	for _, provider := range report.Fabrics {
		kinds = append(kinds, provider.Kind)
		if provider.Usable != (len(provider.Missing) == 0) {
			t.Errorf("%+v", provider)
		}
	}
	if !slices.Equal(kinds, fabric.Kinds()) || report.Devices == nil {
		t.Errorf("%+v", report)
	}
	o = ledgerd(t, "fabric")
	for _, provider := range report.Fabrics {
		if !strings.Contains(o.out, provider.About) {
			t.Errorf("nothing about %s in %s", provider.Kind, o.out)
		}
		for _, missing := range provider.Missing {
			if !strings.Contains(o.out, missing.What) || !strings.Contains(o.out, missing.Remedy) {
				t.Errorf("%+v is not in %s", missing, o.out)
			}
		}
	}
	if o := ledgerd(t, "fabric", "mesure"); o.status != exitUsage ||
		!strings.Contains(o.errs, "ledgerd fabric measure") {
		t.Errorf("%+v", o)
	}
}

// Show a machine with a device, and one on which the device cannot be used.
func TestFabricShowsDevices(t *testing.T) {
	t.Parallel()
	report := fabricReport{
		Fabrics: []fabric.Provider{{Kind: fabric.Verbs, About: "RDMA",
			Missing: []fabric.Missing{{What: "a cable", Remedy: "plug it in"}}}},
		Devices: []fabric.Device{
			{Name: "rxe0", File: "/dev/infiniband/uverbs0", Openable: true,
				Ports: []fabric.Port{{Number: 1, State: "ACTIVE", Link: "Ethernet",
					Rate: "100 Gb/sec", GIDs: []fabric.GID{{Index: 1, Type: "RoCE v2",
						Interface: "eth0"}}}}},
			{Name: "bad\x1b[31m", File: "/dev/infiniband/uverbs1"}, {Name: "none"},
		},
	}
	var text strings.Builder
	if err := writeFabrics(&text, report); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"verbs needs", "a cable\n    plug it in",
		"rxe0: programs may open it", "port 1: ACTIVE, Ethernet, 100 Gb/sec", "GID 1 ",
		"RoCE v2     eth0\n", "may not open", "no file"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in:\n%s", part, &text)
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Error("a name steers the terminal")
	}
}

func checkFabricResults(t *testing.T, text string, kinds ...fabric.Kind) {
	t.Helper()
	var results []bench.FabricResult
	if err := json.Unmarshal([]byte(text), &results); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var measured []fabric.Kind
	for _, r := range results {
		measured = append(measured, r.Fabric)
		if l := r.Lanes; l.RoundTripP50 <= 0 || l.RoundTripP99 < l.RoundTripP50 ||
			l.BytesPerSecond <= 0 || l.FramesPerSecond <= 0 {
			t.Errorf("%s: lanes %+v", r.Fabric, l)
		}
		if m := r.Regions; m == nil || m.WriteP50 <= 0 || m.ReadP50 <= 0 ||
			m.WriteBytesPerSecond <= 0 || m.ReadBytesPerSecond <= 0 {
			t.Errorf("%s: regions %+v", r.Fabric, m)
		}
	}
	if !slices.Equal(measured, kinds) {
		t.Errorf("measured %v, want %v", measured, kinds)
	}
}

func TestFabricMeasure(t *testing.T) {
	t.Parallel()
	kinds := []fabric.Kind{fabric.Memory, fabric.P2P, fabric.P2PTrusted, fabric.SharedMemory}
	if !verbsMissing() {
		kinds = append(kinds, fabric.Verbs)
	}
	o := ledgerd(t, "fabric", "measure", "--for", "140ms", "--json")
	if o.status != exitDone {
		t.Fatalf("%+v", o)
	}
	checkFabricResults(t, o.out, kinds...)
	if o = ledgerd(t, "fabric", "measure", "--for", "140ms", "--fabric",
		"memory"); o.status != exitDone || !strings.Contains(o.out, "read 64 bytes") {
		t.Errorf("%+v", o)
	}
}

// One side listens and prints the command for the other side, which runs it.
func TestFabricMeasureBetweenTwo(t *testing.T) {
	t.Parallel()
	for _, kind := range []fabric.Kind{fabric.P2P, fabric.P2PTrusted} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			listening := begin(t, "fabric", "measure", "--listen", "127.0.0.1:0", "--fabric",
				string(kind))
			typed := strings.Fields(listening.errs.await(t, `(?m)^  ledgerd (fabric measure .*)$`))
			for i, word := range typed {
				typed[i] = strings.Replace(word, "ADDRESS", "127.0.0.1", 1)
			}
			o := ledgerd(t, append(typed, "--for", "140ms", "--json")...)
			if o.status != exitDone {
				t.Fatalf("%+v", o)
			}
			checkFabricResults(t, o.out, kind)
			if status := <-listening.status; status != exitDone {
				t.Errorf("the one that listened: %d, %s", status, listening.errs.String())
			}
		})
	}
}

func TestFabricRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	base, err := testnet.FreeBasePort(2)
	if err != nil {
		t.Fatal(err)
	}
	homes, err := testnet.Make(testnet.Layout{Dir: dir, Nodes: 2, BasePort: base})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line   string
		status int
		says   string
		verbs  bool // only if there is no RDMA
	}{
		{line: "start --fabric tcp --home " + homes[0].Dir, status: exitUsage, says: "p2p-trusted"},
		{line: "start --fabric memory --home " + homes[0].Dir, status: exitUsage,
			says: "ledgerd testnet --dir " + dir + " --fabric memory --run"},
		{line: "start --fabric verbs --home " + homes[0].Dir, status: exitFailure,
			says: "cannot be used here: verbs", verbs: true},
		{line: "testnet --run --fabric verbs --nodes 2 --dir " + dir + "-verbs",
			status: exitFailure, says: "cannot be used here: verbs", verbs: true},
		{line: "testnet --run --fabric verbs --dir " + dir, status: exitFailure,
			says: "with fabric p2p and not verbs"},
		{line: "testnet --fabric tcp --dir " + dir + "-tcp", status: exitUsage,
			says: "no such fabric"},
		{line: "bench engine --fabric tcp", status: exitFailure, says: "no such fabric"},
		{line: "bench ledger --fabric verbs", status: exitUsage, says: "cannot be used here: verbs",
			verbs: true},
		{line: "bench fabric --fabric tcp", status: exitUsage, says: "no such fabric"},
		{line: "bench fabric --fabric verbs", status: exitFailure,
			says: "cannot be used here: verbs", verbs: true},
		{line: "bench fabric --for 0s", status: exitUsage, says: "--for"},
		{line: "fabric measure --fabric tcp", status: exitUsage, says: "no such fabric"},
		{line: "fabric measure --fabric verbs", status: exitFailure,
			says: "cannot be used here: verbs", verbs: true},
		{line: "fabric measure --fabric memory --listen 127.0.0.1:0", status: exitUsage,
			says: "one process"},
		{line: "fabric measure --listen 127.0.0.1:0 --connect 127.0.0.1:1", status: exitUsage,
			says: "two sides"},
		{line: "fabric measure --connect 127.0.0.1:1", status: exitUsage, says: "--token"},
		{line: "fabric measure --token x", status: exitUsage, says: "--token"},
		{line: "fabric measure --for 0s", status: exitUsage, says: "--for"},
		{line: "fabric measure --listen nowhere", status: exitFailure, says: "nowhere"},
	} {
		if test.verbs && !verbsMissing() {
			continue
		}
		if o := ledgerd(t, strings.Fields(test.line)...); o.status != test.status ||
			!strings.Contains(o.errs, test.says) {
			t.Errorf("ledgerd %s: %+v, want status %d and %q", test.line, o, test.status, test.says)
		}
	}
	if _, err := os.Stat(dir + "-verbs"); err == nil && verbsMissing() {
		t.Error("a refused testnet left its folder")
	}
}

// testnet keeps the fabric in the homes, and with memory runs all nodes in its own process.
func TestTestnetInMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net")
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	o := ledgerd(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base),
		"--fabric", "memory", "--json")
	var report testnetReport
	if err := json.Unmarshal([]byte(o.out), &report); err != nil || report.Fabric != fabric.Memory {
		t.Fatalf("%v, %+v", err, o)
	}
	h, err := home.Load(filepath.Join(dir, "node-1"))
	if err != nil || h.Config.Fabric.Kind != fabric.Memory {
		t.Fatalf("%+v, %v", h, err)
	}
	if o := ledgerd(t, "start", "--home", h.Dir); o.status != exitUsage ||
		!strings.Contains(o.errs, "one process") {
		t.Errorf("%+v", o)
	}
	for _, account := range []string{"first", "again"} {
		r := begin(t, "testnet", "--dir", dir, "--run")
		r.out.await(t, `ready: all 3 nodes`)
		node := newClient(t, testnet.URL(h))
		if account == "first" {
			fill(t, node)
		}
		state, err := node.Node(t.Context())
		if err != nil || state.GetOrderedHeight() == 0 {
			t.Errorf("%s: %v, %v", account, state, err)
		}
		r.end(t)
		if said := r.out.String(); strings.Contains(said, "process ") ||
			!strings.Contains(said, "all nodes have ended") {
			t.Errorf("it said:\n%s", said)
		}
	}
}

// Run testnet and start over the fabric without encryption. The flag is kept in the homes, and the
// nodes order.
func TestTestnetTrusted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net")
	base, err := testnet.FreeBasePort(3)
	if err != nil {
		t.Fatal(err)
	}
	r := begin(t, "testnet", "--dir", dir, "--nodes", "3", "--base-port", strconv.Itoa(base),
		"--fabric", "p2p-trusted", "--run")
	r.out.await(t, `ready: all 3 nodes`)
	h, err := home.Load(filepath.Join(dir, "node-2"))
	if err != nil || h.Config.Fabric.Kind != fabric.P2PTrusted {
		t.Fatalf("%+v, %v", h, err)
	}
	fill(t, newClient(t, testnet.URL(h)))
	log, err := os.ReadFile(filepath.Join(h.Dir, testnet.LogFile))
	if err != nil || !strings.Contains(string(log), "over=p2p-trusted") {
		t.Errorf("%v, %s", err, log)
	}
	r.end(t)
}
