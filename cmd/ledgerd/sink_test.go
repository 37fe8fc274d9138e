package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/webhook"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

const sinkSecret = "a secret that must not be printed"

// hook is a receiver of webhooks that keeps what it gets, by shard.
type hook struct {
	*httptest.Server
	mutex sync.Mutex
	lines map[ledger.ShardID][]string
	fail  bool
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{lines: make(map[ledger.ShardID][]string)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter,
		request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		mark, err := webhook.Verify([]byte(sinkSecret), request.Header, body, time.Now(),
			time.Minute)
		h.mutex.Lock()
		defer h.mutex.Unlock()
		if err != nil || h.fail {
			to.WriteHeader(http.StatusTeapot)
			return
		}
		h.lines[mark.Shard] = append(h.lines[mark.Shard], string(body))
	}))
	t.Cleanup(h.Close)
	return h
}

// all returns what came of a shard.
func (h *hook) all(shard ledger.ShardID) []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return slices.Clone(h.lines[shard])
}

// sinkFile writes a configuration for a webhook, and returns its path.
func (s *shell) sinkFile(h *hook, name, more string) string {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, "secret"), []byte(sinkSecret+"\n"),
		0o600); err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.folder, name+".toml")
	text := fmt.Sprintf("name = %q\n%s\n[webhook]\nurl = %q\nsecret_file = \"secret\"\n"+
		"folder = %q\ntries = 1\n", name, more, h.URL, "positions-"+name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// journalEntries returns the lines of entries in the journal of a shard.
func journalEntries(t *testing.T, book *apitest.Book, shards int) (entries [][]string) {
	t.Helper()
	for _, path := range journals(t, book, shards, "jsonl") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		scanner := bufio.NewScanner(bytes.NewReader(text))
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if strings.HasPrefix(scanner.Text(), `{"type":"entry",`) {
				lines = append(lines, scanner.Text())
			}
		}
		if scanner.Err() != nil {
			t.Fatal(scanner.Err())
		}
		entries = append(entries, lines)
	}
	return entries
}

// The chains of all shards of a book arrive as they are in the journals, over a node of one shard,
// with what crosses. A filter takes verdicts along with the transactions that they are about. A
// second run adds nothing, and one after further entries adds these.
func TestSinkOfABook(t *testing.T) {
	t.Parallel()
	const shards = 3
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range shards {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	const wait = " --wait durable-everywhere %n %k"
	s.must("tx transfer org1:mint org1:a 9" + wait)
	s.must("tx transfer org1:a org2:a 5" + wait)
	if result := s.run("tx transfer org2:a org0:a 6" + wait); result.status != exitFailure {
		t.Fatalf("%+v", result)
	}
	h := newHook(t)
	every := s.sinkFile(h, "every", "")
	// Chains go on for a while after a transaction has its outcome: verdicts reach all shards.
	hasAll := func() bool {
		t.Helper()
		all := true
		for shard, want := range journalEntries(t, book, shards) {
			got := h.all(ledger.ShardID(shard))
			if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("shard %d: %d entries are no beginning of %d", shard, len(got), len(want))
			}
			all = all && len(got) == len(want)
		}
		return all
	}
	for deadline := time.Now().Add(patience); ; {
		report := lastObject(t, s.must("sink webhook --once --json %n --config "+every))
		wantKeys(t, report, "event kind name written streams")
		if hasAll() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("entries are missing")
		}
	}
	s.must("tx transfer org1:a org0:a 1" + wait)
	for deadline := time.Now().Add(patience); ; {
		if out := s.must("sink webhooks --once %n --config " + every); !strings.Contains(out,
			"done: ") || !strings.Contains(out, "shard 2 is at block") {
			t.Error(out)
		}
		if hasAll() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("entries are missing")
		}
	}
	some := newHook(t)
	filtered := s.sinkFile(some, "some", "[filter]\naccounts = [\"org2:a\"]\nassets = [\"unit\"]")
	s.must("sink webhook --once %n --config " + filtered)
	var outcomes []string
	for _, line := range some.all(1) {
		outcomes = append(outcomes, object(t, line)["outcome"].(string))
	}
	if got := strings.Join(outcomes, " "); !strings.Contains(got, "waiting") ||
		!strings.Contains(got, "settled") || strings.Contains(got, "applied") {
		t.Errorf("of org2:a in shard 1: %s", got)
	}
	if got := some.all(2); len(got) == 0 {
		t.Error("nothing of org2:a in shard 2")
	}
	only := newHook(t)
	s.must("sink webhook --once %n --from head --config " + s.sinkFile(only, "one",
		"shards = [2]"))
	if got := only.all(2); len(got)+len(only.all(0)) != 0 {
		t.Errorf("from the head on: %q", got)
	}
}

// lastObject returns the last line of JSON.
func lastObject(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return object(t, lines[len(lines)-1])
}

// A stream goes on until it is stopped, and never past the last durable block. Its figures are
// served.
func TestSinkFollows(t *testing.T) {
	t.Parallel()
	s := newShellOf(t, 1, apitest.Options{Manual: true})
	h := newHook(t)
	path := s.sinkFile(h, "follow", "[metrics]\nlisten = \"127.0.0.1:0\"")
	submitted := make(chan outcome, 1)
	submit := func(line string) {
		go func() { submitted <- s.run(line) }()
	}
	advance := func(step func() error, until func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !until(); {
			if err := step(); err != nil || time.Now().After(deadline) {
				t.Fatalf("it did not come: %v", err)
			}
		}
	}
	s.must("keys create acme --plain %k")
	submit("org add acme %n %k")
	var registered outcome
	advance(s.cluster.Advance, func() bool {
		select {
		case registered = <-submitted:
			return true
		default:
			return false
		}
	})
	if registered.status != exitDone {
		t.Fatalf("%+v", registered)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	options := sinkOptions{config: path, quiet: true, json: true}
	address := make(chan string, 1)
	options.bound = func(bound string) { address <- bound }
	options.remote.nodes = []string{s.doors[0].URL}
	command := newSinkCommand()
	command.SetContext(ctx)
	var out bytes.Buffer
	command.SetOut(&out)
	ended := make(chan error, 1)
	go func() { ended <- options.run(command, []string{"webhook"}) }()
	advance(func() error { return nil }, func() bool { return len(h.all(0)) == 1 })
	submit("account open acme:cash --wait ordered %n %k")
	advance(s.cluster.Order, func() bool {
		select {
		case opened := <-submitted:
			return opened.status == exitDone
		default:
			return false
		}
	})
	served := <-address
	scrape := func() string {
		answer, err := http.Get("http://" + served + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	advance(func() error { return nil }, func() bool {
		return strings.Contains(scrape(), `ledgerd_sink_height{shard="0"} 1`)
	})
	if got := h.all(0); len(got) != 1 {
		t.Fatalf("%d entries before the block is durable", len(got))
	}
	if err := s.cluster.Store(); err != nil {
		t.Fatal(err)
	}
	s.cluster.Durable()
	advance(func() error { return nil }, func() bool { // it has heard of the answer
		return strings.Contains(scrape(), `ledgerd_sink_records_total{shard="0"} 2`)
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var report sinkReport
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Event != "stopped" ||
		report.Written != 2 {
		t.Fatalf("%s %v", &out, err)
	}
}

// What fails is shown with --quiet, too.
func TestSinkQuietShowsFailures(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		told := &sinkProgress{out: &out, errs: &out, json: asJSON, quiet: true,
			shown:   make(map[ledger.ShardID]time.Time),
			streams: make(map[ledger.ShardID]sink.Event)}
		for _, name := range []string{"begin", "progress", "end"} {
			if told.take(sink.Event{Event: name}); out.Len() > 0 {
				t.Errorf("%s: %s", name, &out)
			}
		}
		for _, name := range []string{"retry", "lost", "shards"} {
			out.Reset()
			if told.take(sink.Event{Event: name, Error: "why"}); !strings.Contains(out.String(),
				"why") {
				t.Errorf("%s: %s", name, &out)
			}
		}
	}
}

// Errors say what to do, and no secret is in them or in what is printed.
func TestSinkRefusals(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	h := newHook(t)
	good := s.sinkFile(h, "good", "")
	s.must("sink webhook --once %n --config " + good)
	other := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	elsewhere := apitest.Serve(t, other.Node(0), api.Options{}).URL
	failing := newHook(t)
	failing.fail = true
	for _, each := range []struct{ line, words string }{
		{"sink fax --config " + good, "use postgres, kafka"},
		{"sink webhook", "--config FILE"},
		{"sink webhook --config " + s.sinkFile(h, "typo", "nodez = 1"), "unknown key nodez"},
		{"sink webhook --from 0 --config " + good, "a height from 1 on"},
		{"sink webhook --from head --from 3 --config " + good, "stands alone"},
		{"sink webhook --once --config " + good + " --node " + elsewhere, "another chain"},
		{"sink webhook --once %n --config " + s.sinkFile(h, "one", "shards = [4]"), "no shard 4"},
		{"sink webhook --once %n --from 99 --config " + s.sinkFile(h, "far", ""),
			"ends with block"},
		{"sink webhook --once %n --config " + s.sinkFile(failing, "teapot",
			"[retry]\ngive_up = \"1ms\""), "418"},
		{"sink kafka --config " + good, "no brokers"},
		{"sink nats --config " + good, "no servers"},
	} {
		result := s.run(each.line)
		if result.status == exitDone || !strings.Contains(result.errs, each.words) {
			t.Errorf("%s: %+v", each.line, result)
		}
		if strings.Contains(result.out+result.errs, sinkSecret) {
			t.Errorf("%s prints the secret", each.line)
		}
	}
	var position sink.Mark
	text, err := os.ReadFile(filepath.Join(s.folder, "positions-good", "shard-0.json"))
	if err != nil || json.Unmarshal(text, &position) != nil || position.Height == 0 {
		t.Errorf("the position is %s: %v", text, err)
	}
}
