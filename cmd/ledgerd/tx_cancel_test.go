package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// A transaction waits for a shard that stands still. It is too late to cancel it where it has been
// agreed to, and in time where the cancellation comes first.
func TestTxCancel(t *testing.T) {
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
	done := s.object("tx transfer org1:mint org2:a 5 %n %k")["id"].(string)
	if late := s.run("tx cancel " + done + " %n %k"); late.status != exitFailure ||
		!strings.Contains(late.out, "too late: it took effect") {
		t.Error(late)
	}

	// One that no chain has: its content is not known.
	unknown := strings.Repeat("ab", 32)
	if missing := s.run("tx cancel " + unknown + " %n %k"); missing.status != exitUsage ||
		!strings.Contains(missing.errs, "name its --deadline") {
		t.Error(missing)
	}
	in := s.object("tx cancel " + unknown + " --deadline 1h --shard 2 --signer org1 --json %n %k")
	shard := in["shards"].([]any)[0].(map[string]any)
	if in["outcome"] != "cancelled" || shard["outcome"] != "cancelled" || shard["shard"] != 2.0 {
		t.Error(in)
	}
	cancellation := shard["cancellation"].(string)
	shown := s.object("tx status " + cancellation + " --json %n")
	if cancels := shown["cancels"].(map[string]any); cancels["transaction"] != unknown ||
		cancels["shard"] != 2.0 || cancels["place"].(map[string]any)["state"] != "absent" {
		t.Error(shown)
	}
	if text := s.must("tx status " + cancellation + " %n"); !strings.Contains(text,
		unknown+" at shard 2, where it is absent") {
		t.Error(text)
	}
	if text := s.must(fmt.Sprintf("block %.0f --shard 2 %%n", shard["height"])); !strings.Contains(
		text, "cancels "+unknown+" at shard 2") {
		t.Error(text)
	}

	file := filepath.Join(s.folder, "cancel.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"signer": "org1", "deadline": "1h",
		"cancellation": {"transaction": %q, "shard": 0}}`, unknown), 0o600); err != nil {
		t.Fatal(err)
	}
	if posted := s.object("tx post " + file + " --json %n %k"); posted["state"] != "durable" ||
		posted["destinations"] != nil {
		t.Error(posted)
	}

	book.Stand(2, true)
	waiting := s.run("tx transfer org1:mint org2:a 7 --timeout 1s %n %k")
	id := strings.Fields(waiting.out)[1]
	undecided := s.run("tx cancel " + id + " --shard 1 --timeout 2s %n %k")
	if undecided.status != exitFailure || !strings.Contains(undecided.out, "too late: agreed") ||
		!strings.Contains(undecided.errs, "awaits the verdict of shard 2") {
		t.Error(undecided)
	}
	book.Stand(2, false)
	if late := s.run("tx cancel " + id + " --shard 1 %n %k"); late.status != exitFailure ||
		!strings.Contains(late.errs, "too late: it took effect") {
		t.Error(late)
	}
	s.must("tx transfer org1:mint org1:a 7 %n %k")
	plain := s.object("tx transfer org1:mint org1:a 7 %n %k")["id"].(string)
	if none := s.run("tx cancel " + plain + " %n %k"); none.status != exitFailure ||
		!strings.Contains(none.errs, "has no deadline") {
		t.Error(none)
	}
}
