package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A book of three shards, in which the organisations of shards 1 and 2 deal with each other: the
// advice is to bring them together, whichever node is asked.
func TestShardsAdvise(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	if text := s.must("shards advise %n"); !strings.Contains(text, "no traffic to advise on") {
		t.Error(text)
	}
	for shard := range 3 {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	for range 5 {
		s.must("tx transfer org1:mint org2:a 5 %n %k")
	}
	s.must("tx put org0:rate 7 %n %k")
	failed := s.run("tx transfer org0:a org1:a 9 %n %k") // there is nothing to pay with
	if failed.status == exitDone {
		t.Error(failed)
	}
	file := filepath.Join(s.folder, "deals.csv")
	for door := range 3 {
		s.doors[0] = book.Door(ledger.ShardID(door))
		report := s.object("shards advise --save %d/deals.csv %n")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const want = "org0,3\norg0,org1,1\norg1,2\norg1,org2,5\norg2,2\n"
		if string(text) != want {
			t.Errorf("shard %d: %q, want %q", door, text, want)
		}
		moves := report["moves"].([]any)
		if report["transactions"] != 13.0 || report["crossings"] != 6.0 ||
			report["failed"] != 1.0 || report["hidden_entries"] != 0.0 ||
			report["registered_organisations"] != 3.0 || len(moves) == 0 ||
			len(report["silent_shards"].([]any)) != 0 ||
			report["ended"] != "the chains begin there" {
			t.Errorf("%v", report)
		}
		together := map[any]bool{"org1": true, "org2": true}
		if move := moves[0].(map[string]any); !together[move["organisation"]] ||
			move["from"].(float64)+move["to"].(float64) != 3 {
			t.Errorf("%v", move)
		}
	}
	if text := s.must("shards advise %n"); !strings.Contains(text, "13 transactions in ") ||
		!strings.Contains(text, "stays where it is") || !strings.Contains(text, "3 of 3 organ") ||
		!strings.Contains(text, oneShardText) {
		t.Error(text)
	}
	// What was saved makes the same plan.
	out := s.must("plan --shards 3 --traffic %d/deals.csv")
	if !strings.Contains(out, "13 transactions, 46.2 % cross") {
		t.Error(out)
	}

	// Of some transactions only, and of some time only.
	some := s.object("shards advise --transactions 4 %n")
	if some["ended"] != "that is --transactions" || some["transactions"].(float64) < 4 ||
		some["transactions"] == 13.0 {
		t.Errorf("%v", some)
	}
	none := s.object("shards advise --period 1ns %n")
	if none["ended"] != "that is --period" || none["transactions"] == 13.0 {
		t.Errorf("%v", none)
	}

	// Shard 2 does not answer. What it has in common with shard 1 is in shard 1's chain.
	s.doors[0] = book.Door(0)
	book.Silence(2, true)
	partly := s.object("shards advise %n")
	if fmt.Sprint(partly["silent_shards"]) != "[2]" || partly["transactions"] != 11.0 ||
		partly["crossings"] != 6.0 {
		t.Errorf("%v", partly)
	}
	if text := s.must("shards advise %n"); !strings.Contains(text, "shard 2: no node answers") {
		t.Error(text)
	}
	for line, want := range map[string]string{
		"--transactions 0":       "--transactions",
		"--transactions 9999999": "--transactions",
		"--period -1s":           "--period",
		"--moves 0":              "--moves",
		"--measured nowhere":     "--measured",
	} {
		if got := s.run("shards advise " + line + " %n"); got.status != exitUsage ||
			!strings.Contains(got.errs, want) {
			t.Errorf("%s: %v", line, got)
		}
	}
	if got := s.run("shards advise --save /no/such/folder %n"); got.status != exitFailure ||
		!strings.Contains(got.errs, "--save") {
		t.Error(got)
	}
}

// A book of one shard has no advice, but traffic to plan with.
func TestShardsAdviseOnOneShard(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	if got := s.run("shards advise %n"); got.status != exitFailure ||
		!strings.Contains(got.errs, "--save") {
		t.Error(got)
	}
	s.must("keys create acme --plain %k")
	s.must("org add acme %n %k")
	s.must("account open acme:mint --issuer %n %k")
	if text := s.must("shards advise --save %d/deals.csv %n"); !strings.Contains(text,
		"ledgerd plan --shards") {
		t.Error(text)
	}
	if text, err := os.ReadFile(filepath.Join(s.folder, "deals.csv")); err != nil ||
		string(text) != "acme,1\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// drawnChains are chains of blocks, newest first, each perhaps with an error at its end.
func drawnChains(t *rapid.T) (chains [][]chainBlock) {
	number := 0
	for shard := range rapid.Uint32Range(1, 4).Draw(t, "shards") {
		var chain []chainBlock
		at := rapid.Uint64Range(40, 60).Draw(t, "head")
		for range rapid.IntRange(0, 6).Draw(t, "blocks") {
			block := chainBlock{shard: shard, header: &ledgerdv1.BlockHeader{TimeMs: at}}
			for range rapid.IntRange(0, 3).Draw(t, "transactions") {
				number++
				block.transactions = append(block.transactions, &ledgerdv1.TransactionSummary{
					Signer: "acme", Status: &ledgerdv1.TransactionStatus{
						Id: []byte(fmt.Sprint(number / rapid.IntRange(1, 2).Draw(t, "copies")))}})
			}
			block.header.TransactionCount = uint32(len(block.transactions))
			chain = append(chain, block)
			at -= rapid.Uint64Range(0, 9).Draw(t, "before")
		}
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			code := rapid.SampledFrom([]connect.Code{connect.CodeUnavailable,
				connect.CodeDataLoss}).Draw(t, "code")
			chain = append(chain, chainBlock{shard: shard,
				err: connect.NewError(code, errors.New("no block"))})
		}
		chains = append(chains, chain)
	}
	return chains
}

// What was read is all that the chains of shards that answer have since one moment, whatever ends
// it.
func TestTrafficIsWholeSinceOneMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chains := drawnChains(t)
		reader := trafficReader{homes: map[string]uint32{"acme": 0},
			limit: rapid.Uint64Range(1, 20).Draw(t, "limit"), progress: func(uint64) {},
			period: time.Duration(rapid.IntRange(0, 30).Draw(t, "period")) * time.Millisecond}
		var sources []<-chan chainBlock
		for _, chain := range chains {
			source := make(chan chainBlock, len(chain))
			for _, block := range chain {
				source <- block
			}
			close(source)
			sources = append(sources, source)
		}
		found := &bookTraffic{Ended: "all"}
		if err := reader.merge(context.Background(), found, sources); err != nil {
			if found.Blocks > 0 {
				t.Fatalf("%v after %d blocks", err, found.Blocks)
			}
			return
		}
		var later, least uint64
		distinct := map[string]bool{} // of blocks that must be there
		whole := map[string]bool{}    // of those that may be there
		for shard, chain := range chains {
			if slices.Contains(found.Silent, uint32(shard)) {
				continue
			}
			for _, block := range chain {
				if block.err != nil || block.header.TimeMs < found.Begin {
					continue
				}
				later++
				for _, each := range block.transactions {
					whole[string(each.Status.Id)] = true
					if block.header.TimeMs > found.Begin {
						distinct[string(each.Status.Id)] = true
					}
				}
				if block.header.TimeMs > found.Begin {
					least++
				}
			}
		}
		if found.Blocks < least || found.Blocks > later ||
			found.Transactions < uint64(len(distinct)) ||
			found.Transactions > uint64(len(whole)) {
			t.Fatalf("%+v of %d to %d blocks, %d to %d transactions", found, least, later,
				len(distinct), len(whole))
		}
		if found.Ended == "all" && (found.Blocks != later ||
			found.Transactions != uint64(len(whole))) {
			t.Fatalf("%+v of %d blocks, %d transactions", found, later, len(whole))
		}
		if traffic := found.Traffic(); traffic.Transactions() != found.Transactions {
			t.Fatalf("%+v has %d transactions", found, traffic.Transactions())
		}
		if reader.period > 0 && found.End-found.Begin > uint64(reader.period.Milliseconds()) {
			t.Fatalf("%+v is longer than %v", found, reader.period)
		}
	})
}

// Every field is in the help.
func TestShardsAdviseFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	help := newShardsAdviseCommand().Long
	for _, name := range slices.Sorted(maps.Keys(s.object("shards advise --save %d/x %n"))) {
		if !strings.Contains(help, name) {
			t.Errorf("the help has no word of %s", name)
		}
	}
}

// What is no deal of organisations is counted as such, and nothing is counted twice.
func TestTrafficLeavesOut(t *testing.T) {
	t.Parallel()
	id := func(text string) *ledgerdv1.TransactionStatus {
		return &ledgerdv1.TransactionStatus{Id: []byte(text)}
	}
	failed := id("3")
	failed.State = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
	deal := &ledgerdv1.TransactionSummary{Status: id("1"), Signer: "acme",
		Postings: []*ledgerdv1.Posting{{Account: "acme:a"}, {Account: "globex:a"}}}
	block := &chainBlock{header: &ledgerdv1.BlockHeader{TransactionCount: 14},
		transactions: []*ledgerdv1.TransactionSummary{
			deal, deal,
			{Status: id("2"), Signer: "acme", FurtherOrganisationCount: 3,
				FurtherOrganisations: []string{"bank", "nobody"}},
			{Status: failed, Signer: "bank"},
			{Status: id("4"), Signer: "nobody"}, // it is not registered
			{Status: id("5"), VerdictShard: 2, Verdict: "good"},
			{Status: id("6"), Signer: "acme", Verdict: "good"},
			{Status: id("7"), Signer: "acme", OrganisationCount: 1},
			{Status: id("8"), Signer: "acme", Policy: true},
			{Status: id("9"), MembershipChange: &ledgerdv1.MembershipChange{}},
			{Status: id("10"), Charter: true},
		}}
	reader := trafficReader{homes: map[string]uint32{"acme": 0, "bank": 0, "globex": 1}}
	found, seen := &bookTraffic{}, map[string]trafficSeen{}
	if err := reader.count(found, block, seen); err != nil {
		t.Fatal(err)
	}
	if found.Transactions != 3 || found.Failed != 1 || found.Others != 7 || found.Hidden != 3 ||
		found.Partial != 1 {
		t.Errorf("%+v", found)
	}
	// Another chain decided that the first one failed, and is read after one through which it went.
	refused := id("1")
	refused.State = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
	decided := &chainBlock{header: &ledgerdv1.BlockHeader{TransactionCount: 1},
		transactions: []*ledgerdv1.TransactionSummary{{Status: refused, Signer: "acme"}}}
	for range 2 {
		if err := reader.count(found, decided, seen); err != nil || found.Failed != 2 ||
			found.Transactions != 3 {
			t.Errorf("%+v, %v", found, err)
		}
	}
	read, text := found.Traffic(), strings.Builder{}
	if err := read.Write(&text); err != nil || text.String() !=
		"acme,bank,1\nacme,globex,1\nbank,1\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
}

// When the time is over, chains end without a word. That is no beginning of theirs.
func TestTrafficUntilTimeIsOver(t *testing.T) {
	t.Parallel()
	chain := func(times ...uint64) <-chan chainBlock {
		source := make(chan chainBlock, len(times))
		for _, at := range times {
			source <- chainBlock{header: &ledgerdv1.BlockHeader{TimeMs: at}}
		}
		close(source)
		return source
	}
	reader := trafficReader{limit: 9, progress: func(uint64) {}}
	over, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	found := &bookTraffic{}
	err := reader.merge(over, found, []<-chan chainBlock{chain(50, 40, 30), chain(45)})
	if err != nil || found.Blocks != 2 || found.Begin != 45 ||
		found.Ended != "then --timeout was over" {
		t.Errorf("%+v, %v", found, err)
	}
	if err := reader.merge(over, &bookTraffic{}, []<-chan chainBlock{chain(50),
		chain()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	interrupted, stop := context.WithCancel(context.Background())
	stop()
	if err := reader.merge(interrupted, &bookTraffic{}, []<-chan chainBlock{chain(50, 40),
		chain(45)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
