package importer

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/report"
)

var testKey = client.NewKey("acme",
	ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize)))

func newClient(t *testing.T, urls ...string) *client.Client {
	t.Helper()
	nodes, err := client.New(urls, client.Options{Backoff: time.Millisecond, Tries: 3,
		WaitTime: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nodes.Close)
	return nodes
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entries.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func importFile(t *testing.T, nodes *client.Client, path string, options Options) (Result, error) {
	t.Helper()
	source, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	options.Key = testKey
	return Run(testContext(t), nodes, source, options)
}

// chain is a file in which every line but the first spends all that the line before brought, so no
// line can be executed out of order.
func chain(lines int) string {
	var text strings.Builder
	text.WriteString(
		`{"n":1,"postings":[{"account":"mint","amount":-7},{"account":"holder-1","amount":7}]}` +
			"\n")
	for i := 2; i <= lines; i++ {
		fmt.Fprintf(&text,
			`{"n":%d,"postings":[{"account":"holder-%d","amount":-7},{"account":"holder-%d","amount":"7"}]}`+"\n", i, i-1, i)
	}
	return text.String()
}

// checkChain checks that each line of chain was executed exactly once: there is one transaction per
// line and the registration, and the last account holds the whole amount.
func checkChain(t *testing.T, cluster *apitest.Cluster, lines int) {
	t.Helper()
	chain := cluster.Node(0).Store()
	if total := chain.Head().Total; total != uint64(lines)+1 {
		t.Errorf("%d transactions in the chain, want %d", total, lines+1)
	}
	for holder := 1; holder <= lines; holder++ {
		account, err := chain.Account(ledger.AccountPath(fmt.Sprintf("acme:holder-%d", holder)))
		want := ledger.Amount{}
		if holder == lines {
			want = ledger.NewAmount(7)
		}
		if err != nil || account.Balance(ledger.DefaultAsset) != want {
			t.Fatalf("holder-%d: %v, want %s: %v", holder, account, want, err)
		}
	}
}

func TestImportTwice(t *testing.T) {
	t.Parallel()
	const lines = 1_300
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	path, state := writeFile(t, chain(lines)), t.TempDir()
	var last Progress
	result, err := importFile(t, nodes, path, Options{Issuers: []string{"mint"}, StateFolder: state,
		Progress: func(p Progress) {
			last = p
		}})
	if err != nil || result.Imported != lines || result.Failed != 0 || result.Lines != lines ||
		result.ProgressError != nil {
		t.Fatalf("%+v, %v", result, err)
	}
	if !last.Done || last.Lines != lines || last.BytesRead != last.BytesTotal ||
		last.BytesTotal == 0 {
		t.Fatalf("last progress %+v", last)
	}
	checkChain(t, cluster, lines)

	// With the progress file all lines are skipped, and without it all are submitted again. No line
	// is imported twice.
	result, err = importFile(t, nodes, path, Options{Issuers: []string{"mint"}, StateFolder: state})
	if err != nil || result.Skipped != lines || result.Imported != lines {
		t.Fatalf("%+v, %v", result, err)
	}
	result, err = importFile(t, nodes, path, Options{Issuers: []string{"mint"}})
	if err != nil || result.Skipped != 0 || result.Imported != lines {
		t.Fatalf("%+v, %v", result, err)
	}
	checkChain(t, cluster, lines)

	// A longer file continues where the shorter one ended.
	longer := writeFile(t, chain(lines+50))
	result, err = importFile(t, nodes, longer, Options{Issuers: []string{"mint"},
		StateFolder: state})
	if err != nil || result.Skipped != lines || result.Imported != lines+50 {
		t.Fatalf("%+v, %v", result, err)
	}
	checkChain(t, cluster, lines+50)

	// A file that differs after the first line does not count as the same file.
	changed := writeFile(t, strings.Replace(chain(lines+50), `"n":2,`, `"n":-2,`, 1))
	result, err = importFile(t, nodes, changed, Options{Issuers: []string{"mint"},
		StateFolder: state})
	if err != nil || result.Skipped != 0 || result.Failed != 1 || result.Failures[0].Line != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
}

// The checks of these tests can fail: an entry executed out of order is overdrawn for good.
func TestOutOfOrderFails(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	lines := strings.SplitAfter(chain(3), "\n")
	result, err := importFile(t, nodes, writeFile(t, lines[0]+lines[2]+lines[1]),
		Options{Issuers: []string{"mint"}})
	if err != nil || result.Failed != 1 || result.Failures[0].Line != 2 ||
		result.Failures[0].Code != "insufficient_funds" ||
		!strings.Contains(result.Failures[0].Reason, "holder-2") {
		t.Fatalf("%+v, %v", result, err)
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	file := strings.Join([]string{
		`{"postings":[{"account":"mint","amount":-10},{"account":"a","amount":10}]}`,
		``,
		`not json`,
		`{"postings":[{"account":"a","amount":-11},{"account":"b","amount":11}]}`,
		`{"postings":[{"account":"a","amount":-1},{"account":"b","amount":2}]}`,
		`{"postings":[{"account":"a","amount":-1.5},{"account":"b","amount":1.5}]}`,
		`{"postings":[{"account":"b","amount":4},{"account":"a","amount":-4}],"memo":{"x": [1, 2]},"time":7}`,
		`{"postings":[{"account":"mint","amount":-3,"asset":"EUR"},{"account":"b","amount":3,"asset":"EUR"}]}`,
	}, "\n") // no newline at the end
	want := map[uint64]string{3: "malformed_line", 4: "insufficient_funds", 5: "malformed_line",
		6: "malformed_line"}

	t.Run("go on", func(t *testing.T) {
		t.Parallel()
		cluster := apitest.NewCluster(t, apitest.Options{})
		nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
		result, err := importFile(t, nodes, writeFile(t, file), Options{Issuers: []string{"mint"}})
		if err != nil || result.Lines != 8 || result.Imported != 3 ||
			int(result.Failed) != len(want) {
			t.Fatalf("%+v, %v", result, err)
		}
		for _, failure := range result.Failures {
			if want[failure.Line] != failure.Code || failure.Reason == "" {
				t.Errorf("%+v", failure)
			}
		}
		// A line that failed was the first to name b. b is open for line 7 all the same.
		b, _ := cluster.Node(0).Store().Account("acme:b")
		if b.Balance(ledger.DefaultAsset) != ledger.NewAmount(4) ||
			b.Balance("EUR") != ledger.NewAmount(3) || b.Alias != "b" {
			t.Fatalf("%+v", b)
		}
		page, err := cluster.Node(0).Store().History("acme:b", 0, 10, false)
		if err != nil || string(page.Items[0].Entry.Transaction().Note) !=
			`{"memo":{"x":[1,2]},"time":7}` {
			t.Fatalf("%+v, %v", page, err)
		}
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		cluster := apitest.NewCluster(t, apitest.Options{})
		nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
		result, err := importFile(t, nodes, writeFile(t, file),
			Options{Issuers: []string{"mint"}, StopOnError: true})
		if !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "line 3") ||
			result.Failed == 0 {
			t.Fatalf("%+v, %v", result, err)
		}
	})
}

func TestSources(t *testing.T) {
	t.Parallel()
	zipped := func(text string) []byte {
		var buffer bytes.Buffer
		writer := gzip.NewWriter(&buffer)
		_, _ = writer.Write([]byte(text))
		_ = writer.Close()
		return buffer.Bytes()
	}
	cases := []struct {
		name  string
		data  []byte
		lines uint64
		says  string
	}{
		{"plain", []byte(chain(5)), 5, ""},
		{"gzip", zipped(chain(5)), 5, ""},
		{"two gzip members", append(zipped(strings.SplitAfter(chain(2), "\n")[0]),
			zipped(strings.SplitAfter(chain(2), "\n")[1])...), 2, ""},
		{"empty", nil, 0, ""},
		{"blank lines only", []byte("\n\n \n"), 0, ""},
		{"carriage returns", []byte(strings.ReplaceAll(chain(5), "\n", "\r\n")), 5, ""},
		{"another kind of file", []byte("a;b;c\n1;2;3\n"), 0, "line 1"},
		{"gzip cut short", zipped(chain(500))[:200], 0, "unexpected EOF"},
		{"a line without end", bytes.Repeat([]byte("x"), maxLine+10), 0, "line of more than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := apitest.NewCluster(t, apitest.Options{})
			nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
			source, err := Stream(bytes.NewReader(c.data))
			if err != nil {
				t.Fatal(err)
			}
			result, err := Run(testContext(t), nodes, source,
				Options{Key: testKey, Issuers: []string{"mint"}, StateFolder: t.TempDir()})
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%+v, %v, want %q", result, err, c.says)
				}
				return
			}
			if err != nil || result.Imported != c.lines || result.Failed != 0 {
				t.Fatalf("%+v, %v", result, err)
			}
		})
	}
	if _, err := OpenFile(t.TempDir()); err == nil {
		t.Error("a folder was opened as a file")
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a missing file was opened")
	}
}

// Nodes that are repeatedly overloaded still get all lines, in order.
func TestOverload(t *testing.T) {
	t.Parallel()
	const lines = 2_000
	cluster := apitest.NewCluster(t, apitest.Options{PoolTransactions: 300})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, changed := cluster.Node(0).Heights()
			select {
			case <-changed:
				cluster.Node(0).Overload(1)
			case <-stop:
				return
			}
		}
	}()
	result, err := importFile(t, nodes, writeFile(t, chain(lines)),
		Options{Issuers: []string{"mint"}})
	close(stop)
	<-done
	if err != nil || result.Imported != lines {
		t.Fatalf("%+v, %v", result, err)
	}
	checkChain(t, cluster, lines)
}

// A node dies with bundles in its pool, comes back empty, and stops taking writes. The import
// continues with the other nodes, and each line is executed exactly once and in order.
func TestFailover(t *testing.T) {
	t.Parallel()
	const lines = 3_000
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			cluster := apitest.NewCluster(t, apitest.Options{Nodes: 3})
			doors := make([]*apitest.TestServer, 3)
			urls := make([]string, 3)
			for i := range doors {
				doors[i] = apitest.Serve(t, cluster.Node(i), api.Options{})
				urls[i] = doors[i].URL
			}
			// A crash ends the node's calls before its pool is gone. Otherwise it could find the
			// bundle before, lose that bundle, and admit the one after it.
			crash := func(i int) {
				doors[i].Close()
				cluster.Node(i).Crash()
				listener, err := net.Listen("tcp", strings.TrimPrefix(urls[i], "http://"))
				if err != nil {
					t.Errorf("listening again: %v", err)
					return
				}
				doors[i] = apitest.ServeOn(t, listener, cluster.Node(i), api.Options{})
			}
			// The faults, at certain heights of the chain.
			deeds := []func(){
				func() { cluster.Node(0).Hold() },
				func() { crash(0) },
				func() { cluster.Node(0).SetMode(report.ModeFollowing, "left out"); crash(0) },
				func() { cluster.Node(0).SetMode(report.ModeOrdering, "") },
				func() { cluster.Node(1).Hold() },
				func() { crash(1); doors[1].Close() },
				func() { cluster.Node(2).Overload(2) },
			}
			random.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
			deeds = append(deeds, func() {
				cluster.Node(0).Release()
			}, func() { cluster.Node(1).Release() })
			var mischief sync.WaitGroup
			stop := make(chan struct{})
			mischief.Go(func() {
				for _, deed := range deeds {
					_, changed := cluster.Node(0).Heights()
					select {
					case <-changed:
					case <-time.After(200 * time.Millisecond):
						// While all bundles are held, nothing changes.
					case <-stop:
					}
					deed()
				}
			})
			result, err := importFile(t, newClient(t, urls...), writeFile(t, chain(lines)),
				Options{Issuers: []string{"mint"}})
			close(stop)
			mischief.Wait()
			if err != nil || result.Imported != lines || result.Failed != 0 {
				t.Fatalf("%d imported, %d failed, %v: %v", result.Imported, result.Failed,
					result.Failures[:min(3, len(result.Failures))], err)
			}
			checkChain(t, cluster, lines)
		})
	}
}

// If no node takes anything, the import gives up in time, and says so.
func TestPatience(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	if _, err := importFile(t, nodes, writeFile(t, chain(1)),
		Options{Issuers: []string{"mint"}}); err != nil {
		t.Fatal(err)
	}
	cluster.Node(0).SetMode(report.ModeHalted, "no majority")
	_, err := importFile(t, nodes, writeFile(t, chain(2)),
		Options{Issuers: []string{"mint"}, Patience: 50 * time.Millisecond})
	if !errors.Is(err, ErrNoProgress) || !strings.Contains(err.Error(), "no majority") {
		t.Fatal(err)
	}
	gone := newClient(t, "127.0.0.1:1")
	if _, err := importFile(t, gone, writeFile(t, chain(1)), Options{}); !errors.Is(err,
		client.ErrUnreachable) {
		t.Fatal(err)
	}
}

// An organisation with other keys is not taken over.
func TestForeignOrganisation(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	if _, err := importFile(t, nodes, writeFile(t, chain(1)),
		Options{Issuers: []string{"mint"}}); err != nil {
		t.Fatal(err)
	}
	source, err := Stream(strings.NewReader(chain(1)))
	if err != nil {
		t.Fatal(err)
	}
	other := client.NewKey("acme",
		ed25519.NewKeyFromSeed(bytes.Repeat([]byte{4}, ed25519.SeedSize)))
	if _, err := Run(testContext(t), nodes, source, Options{Key: other}); err == nil ||
		!strings.Contains(err.Error(), "other keys") {
		t.Fatal(err)
	}
}
