package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// TestDryRun: every command that submits one transaction says what that would do, and orders
// nothing, within a shard and across shards.
func TestDryRun(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(1)}}
	for shard, name := range []string{"acme", "shop"} {
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	s.must("tx transfer acme:mint acme:cash 100 %n %k")
	before := fmt.Sprint(s.object("account show acme:cash %n")["balances"])

	text := s.must("tx transfer acme:cash shop:cash 40 --dry-run %n %k")
	for _, want := range []string{"would take effect; nothing was ordered", "shard 0", "shard 1",
		"agrees, after block", "acme:cash", "60"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	object := s.object("tx transfer acme:cash shop:cash 40 --dry-run %n %k")
	if object["dry_run"] != true || object["applies"] != true ||
		fmt.Sprint(object["destinations"]) != "[0 1]" || len(object["balances"].([]any)) != 2 {
		t.Error(object)
	}
	fails := func(line, want string) {
		t.Helper()
		if got := s.run(line + " --dry-run %n %k"); got.status == exitDone ||
			!strings.Contains(got.errs, want) || strings.Contains(got.out, "BEFORE") &&
			!strings.Contains(got.out, "shop:") {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	fails("tx transfer acme:cash acme:mint 101", "would fail (insufficient_funds)")
	fails("tx transfer acme:cash shop:none 1", "would fail (unknown_account)")
	for _, line := range []string{"account open acme:new", "account limit acme:cash --floor 5",
		"account freeze acme:cash", "account label acme:cash a=b", "tx put acme:r value",
		"tx post --posting acme:cash=-5 --posting acme:mint=5",
		"hold place acme:cash 5 --to shop:cash",
		"schedule place acme:cash shop:cash 5 --first 1h --every 1day --count 3"} {
		if text := s.must(line + " --dry-run %n %k"); !strings.Contains(text, "would take effect") {
			t.Errorf("%s:\n%s", line, text)
		}
	}
	if after := fmt.Sprint(s.object("account show acme:cash %n")["balances"]); after != before {
		t.Errorf("a dry run made %s of %s", after, before)
	}
	if got := s.run("account show acme:new %n"); got.status == exitDone {
		t.Error("a dry run opened an account")
	}
	placed := s.object("hold place acme:cash 5 --to shop:cash %n %k")["id"]
	if text := s.must(fmt.Sprintf("hold post %s 5 --dry-run %%n %%k", placed)); !strings.Contains(
		text, "would take effect") {
		t.Error(text)
	}
	s.must(fmt.Sprintf("hold void %s %%n %%k", placed))
	fails(fmt.Sprintf("hold void %s", placed), "hold")

	if got := s.object("schedule list %n")["schedules"].([]any); len(got) != 0 {
		t.Errorf("a dry run placed %v", got)
	}
	once := "schedule place acme:cash %s 5 --first %s"
	fails(fmt.Sprintf(once, "none:cash", "1h"), "would fail (unknown_organisation)")
	fails(fmt.Sprintf(once, "shop:cash", "99999h"), "would fail (schedule_time)")
	placed = s.object(fmt.Sprintf(once, "shop:cash", "1h") + " %n %k")["id"]
	cancel := fmt.Sprintf("schedule cancel %s", placed)
	if text := s.must(cancel + " --dry-run %n %k"); !strings.Contains(text, "would take effect") {
		t.Error(text)
	}
	s.must(cancel + " %n %k")
}
