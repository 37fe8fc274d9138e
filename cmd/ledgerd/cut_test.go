package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Run the commands that read at a cut, on a book of three shards.
func TestCommandsAtACut(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard := range 3 {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	s.must("tx transfer org1:mint org2:a 5 --wait durable-everywhere %n %k")
	text := s.must("cut --json %n")
	cut := object(t, text)
	wantKeys(t, cut, "root time_ms places")
	if places := cut["places"].([]any); len(places) != 3 {
		t.Errorf("%v", cut)
	} else {
		wantKeys(t, places[2].(map[string]any), "shard height entries carried streamed")
	}
	if table := s.must("cut %n"); !strings.HasPrefix(table, "SHARD  HEIGHT  ENTRIES\n") ||
		strings.Count(table, "\n") != 4 {
		t.Error(table)
	}
	was := s.run("export --balances %n")
	if !strings.Contains(was.errs, "balances at the cut 0:") || !strings.Contains(was.out,
		`{"account":"org2:a","asset":"unit","amount":"5"}`) {
		t.Errorf("%+v", was)
	}
	s.must("tx transfer org1:mint org2:a 2 --wait durable-everywhere %n %k")
	if now := s.must("export --balances %n"); !strings.Contains(now, `"amount":"7"}`) {
		t.Error(now)
	}
	// The cut of before, from the standard input, at all nodes and in the folders.
	var together string
	for shard := range ledger.ShardID(3) {
		s.doors = []*apitest.TestServer{book.Door(shard)}
		if got := s.run("export --balances --cut - %n", text); got.out != was.out {
			t.Errorf("at shard %d: %+v, want\n%s", shard, got, was.out)
		}
		if got := s.must("account show org2:a --cut - --json %n", text); !strings.Contains(got,
			`"amount": "5"`) {
			t.Error(got)
		}
		places, err := parseCut([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		at := api.PositionsOf(places[shard])[0].Place
		if err := export(t.Context(), &lines, storeExporter{book.Shard(shard).Node(0).Store(),
			&at}, false); err != nil {
			t.Fatal(err)
		}
		together += lines.String()
	}
	if together != was.out { // the shards' organisations are in the order of the shards
		t.Errorf("the folders have\n%sand the nodes had\n%s", together, was.out)
	}
	past := s.run("export --balances --at 1 %n")
	if past.status != exitDone || past.out != "" || !strings.Contains(past.errs, "the cut 0:1,") {
		t.Errorf("balances at block 1: %+v", past)
	}
	height := fmt.Sprint(cut["places"].([]any)[0].(map[string]any)["height"])
	if shown := s.must("account show org2:a --at " + height + " %n"); !strings.Contains(shown,
		"  5  unit") {
		t.Error(shown)
	}

	for line, want := range map[string]struct {
		status int
		words  string
	}{
		"cut --at 1000000 %n":                    {exitFailure, "ask for an earlier one"},
		"export --balances --at 1000000 %n":      {exitFailure, "ask for an earlier one"},
		"export --blocks --at 1 %n":              {exitUsage, "for --balances"},
		"export --balances --at 1 --cut x %n":    {exitUsage, "none of the others can be"},
		"export --balances --cut %d/nothing %n":  {exitUsage, "no such file"},
		"account show org2:a --cut - %n":         {exitUsage, "ledgerd cut --json"},
		"account show org2:a --at 1 %n":          {exitFailure, "no account org2:a is open"},
		"account show org2:a --at 1 --timeout x": {exitUsage, "timeout"},
		"export --balances --home %d --at x":     {exitUsage, "invalid argument"},
	} {
		if got := s.run(line, "{}"); got.status != want.status ||
			!strings.Contains(got.errs, want.words) {
			t.Errorf("%s: %+v, want %q", line, got, want.words)
		}
	}
	book.Silence(2, true)
	s.doors = []*apitest.TestServer{book.Door(1)}
	if got := s.longer("cut %n", "shard 2 does not answer"); got.status != exitFailure ||
		!strings.Contains(got.errs, "shard 2 does not answer") {
		t.Errorf("without shard 2: %+v", got)
	}
}

// The folder and the node of a book of one shard say the same at a block.
func TestFoldersAtACut(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	was := s.must("export --balances %n")
	height := s.cluster.Node(0).Store().AppendedHeight()
	s.must("tx transfer acme:mint acme:cash 1 %n %k")
	place := &store.Place{Height: height}
	var lines strings.Builder
	if err := export(t.Context(), &lines, storeExporter{s.cluster.Node(0).Store(), place},
		false); err != nil || lines.String() != was {
		t.Errorf("%s, %v, want\n%s", &lines, err, was)
	}
	if got := s.must(fmt.Sprintf("export --balances --at %d %%n", height)); got != was {
		t.Errorf("the node says\n%s, want\n%s", got, was)
	}
}

// FuzzParseCut reads any bytes as a cut: what is taken is written and read again as it is.
func FuzzParseCut(f *testing.F) {
	f.Add([]byte(`{"root":0,"time_ms":1,"places":[{"shard":0,"height":3,"entries":1,"carried":0,` +
		`"streamed":[4]},{"shard":1,"height":2,"carried":4}]}`))
	f.Add([]byte(`{"places":[{"shard":1}]}`))
	f.Add([]byte(`{"places":[]} `))
	f.Fuzz(func(t *testing.T, text []byte) {
		places, err := parseCut(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(reportCut(&ledgerdv1.GetCutResponse{Places: places}))
		if err != nil {
			t.Fatal(err)
		}
		read, err := parseCut(again)
		if err != nil || cutText(read) != cutText(places) || cutText(read) == "" {
			t.Fatalf("%v, and then %v: %v", places, read, err)
		}
	})
}
