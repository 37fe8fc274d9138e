package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// cancelBook returns a book of shards that each have one organisation, and a shell for it.
func cancelBook(t *testing.T, parents ...ledger.ShardID) (*apitest.Book, *shell) {
	t.Helper()
	book := apitest.NewBook(t, newestGenesis(parents...), api.Options{})
	s := &shell{t: t, folder: t.TempDir(), doors: []*apitest.TestServer{book.Door(0)}}
	for shard := range parents {
		name := fmt.Sprint("org", shard)
		s.must("keys create " + name + " --plain %k")
		s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		s.must("account open " + name + ":mint --issuer %n %k")
		s.must("account open " + name + ":a %n %k")
	}
	return book, s
}

// postOut writes a signed payment to a file of the shell's folder, and returns its id.
func postOut(s *shell, file, flags string) string {
	s.t.Helper()
	out := s.must("tx post " + flags + " --out %d/" + file + " %n %k")
	for _, word := range strings.Fields(out) {
		if len(word) == 64 {
			return word
		}
	}
	s.t.Fatal(out)
	return ""
}

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
	remembered := s.run("tx cancel " + unknown +
		" --deadline 1h --shard 2 --signer org1 --json %n %k")
	var in map[string]any
	if err := json.Unmarshal([]byte(remembered.out), &in); err != nil {
		t.Fatal(remembered, err)
	}
	shard := in["shards"].([]any)[0].(map[string]any)
	if remembered.status != exitFailure || in["outcome"] != "remembered" ||
		shard["outcome"] != "remembered" || shard["shard"] != 2.0 {
		t.Error(remembered)
	}
	cancellation := shard["cancellation"].(string)
	shown := s.object("tx status " + cancellation + " --json %n")
	if cancels := shown["cancels"].(map[string]any); cancels["transaction"] != unknown ||
		cancels["shard"] != 2.0 || cancels["place"].(map[string]any)["state"] != "absent" {
		t.Error(shown)
	}
	proven := s.must("tx status " + cancellation + " --proof %n")
	if !strings.Contains(proven, unknown+" at shard 2, where it is absent (this is not proven)") {
		t.Error(proven)
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
	waiting := s.run("tx transfer org1:mint org2:a 7 --timeout 5s %n %k")
	id := strings.Fields(waiting.out)[1]
	undecided := s.longer("tx cancel "+id+" --shard 1 %n %k", "awaits the verdict of shard 2")
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

// Only a shard that a payment concerns can refuse it. What another one says, or one that a stranger
// asks or until too early a deadline, does not make it cancelled.
func TestTxCancelConcernsThePayment(t *testing.T) {
	t.Parallel()
	book, s := cancelBook(t, 0, 0, 0, 1)
	done := s.object("tx transfer org1:mint org1:a 7 --deadline 1h %n %k")["id"].(string)
	book.Stand(1, true)
	waiting := strings.Fields(s.run(
		"tx transfer org2:mint org3:a 7 --deadline 1h --timeout 5s %n %k").out)[1]
	for _, each := range []struct{ id, flags, want string }{
		{done, "--shard 0", "does not concern shard 0, but shard 1"},
		{done, "--shard 0,1,2", "does not concern shard 0, but shard 1"},
		{done, "--signer org2 --shard 1", "org2 cannot cancel"},
		{waiting, "--shard 3 --deadline 1m", "earlier --deadline"},
		{waiting, "--signer org1", "org1 cannot cancel"},
		{waiting, "--signer org3", "org3 cannot cancel"}, // it is only paid
	} {
		got := s.run("tx cancel " + each.id + " " + each.flags + " --timeout 10s %n %k")
		if got.status != exitUsage || !strings.Contains(got.errs, each.want) {
			t.Errorf("%s: %v", each.flags, got)
		}
	}
	if late := s.run("tx cancel " + done + " --timeout 3s %n %k"); late.status != exitFailure ||
		strings.Contains(late.out, "cancelled:") {
		t.Error(late) // shard 1 stands still
	}
	// Shard 3 does not have the payment yet, so the cancellation comes in time there.
	if in := s.run("tx cancel " + waiting + " --shard 3 %n %k"); in.status != exitDone ||
		!strings.Contains(in.out, "cancelled: it takes effect nowhere") {
		t.Error(in)
	}
	book.Stand(1, false)
	if ended := s.run("tx status " + waiting + " --wait durable %n"); !strings.Contains(ended.out,
		"cancelled") {
		t.Error(ended)
	}
}

// What a shard promises of a payment that no chain has yet holds on conditions, if its content is
// not known. The signed file shows it.
func TestTxCancelUnknownPayment(t *testing.T) {
	t.Parallel()
	book, s := cancelBook(t, 0, 0, 0)
	timeless := postOut(s, "timeless.tx", "--posting org1:mint=-5 --posting org1:a=5")
	got := s.run("tx cancel " + timeless + " --deadline 1h --shard 1 --signer org1 %n %k")
	if got.status != exitFailure || !strings.Contains(got.out, "remembered") ||
		!strings.Contains(got.errs, "shard 1 will refuse it if it has a deadline, which is ") ||
		!strings.Contains(got.errs, "if org1 has to sign it, and if it concerns shard 1") {
		t.Error(got)
	}
	if none := s.run("tx cancel " + timeless + " --file %d/timeless.tx %n %k"); none.status !=
		exitFailure || !strings.Contains(none.errs, "has no deadline") {
		t.Error(none)
	}
	s.must("tx submit %d/timeless.tx %n")
	timely := postOut(s, "timely.tx", "--posting org1:mint=-5 --posting org2:a=5 --deadline 1h")
	for _, each := range []struct{ id, flags, want string }{
		{timeless, "--file %d/timely.tx", "does not have transaction"},
		{timely, "--file %d/timely.tx --shard 0", "does not concern shard 0, but shards 1"},
		{timely, "--file %d/timely.tx --signer org2", "org2 cannot cancel"},
		{timely, "--file %d/timely.tx --deadline 1m", "earlier --deadline"},
	} {
		got := s.run("tx cancel " + each.id + " " + each.flags + " %n %k")
		if got.status != exitUsage || !strings.Contains(got.errs, each.want) {
			t.Errorf("%s: %v", each.flags, got)
		}
	}

	// A shard that does not answer hinders no cancellation elsewhere.
	book.Silence(0, true)
	book.Silence(2, true)
	unknown := strings.Repeat("ab", 32)
	if got := s.run("tx cancel " + unknown + " --deadline 1h --shard 1 --signer org1 --timeout " +
		"8s %n %k"); got.status != exitFailure || !strings.Contains(got.out, "remembered") {
		t.Error(got)
	}
	book.Silence(0, false)
	in := s.object("tx cancel " + timely +
		" --file %d/timely.tx --shard 1 --timeout 8s --json %n %k")
	if in["outcome"] != "cancelled" {
		t.Error(in)
	}
	book.Silence(2, false)
	if refused := s.run("tx submit %d/timely.tx %n"); refused.status != exitFailure ||
		!strings.Contains(refused.out+refused.errs, "withdrew") {
		t.Error(refused)
	}
	if again := s.object("tx cancel " + timely + " --json %n %k"); again["outcome"] != "cancelled" {
		t.Error(again)
	}
}

// A payment within one shard comes in a bundle through the root. It is cancelled in its own shard.
func TestTxCancelRelayed(t *testing.T) {
	t.Parallel()
	book, s := cancelBook(t, 0, 0, 0)
	ring, err := client.OpenKeyring(filepath.Join(s.folder, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ring.Load("org1")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.New([]string{s.doors[0].URL}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer nodes.Close()
	genesis, err := nodes.Genesis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book.Stand(1, true)
	var payments []ledger.Transaction
	for i, to := range []string{"org1:a", "org2:a"} {
		payment, _, err := transfer("org1:mint", to, "unit")
		if err == nil {
			err = setAmount(&payment, ledger.NewAmount(5), "5")
		}
		if err != nil {
			t.Fatal(err)
		}
		payment.Ledger, payment.Signer = genesis, "org1"
		payment.Nonce = ledger.Nonce{Stream: 77, Sequence: uint64(i) + 1}
		payment.Deadline = ledger.Milliseconds(time.Now().Add(time.Hour).UnixMilli())
		payments = append(payments, payment)
	}
	bundle, err := client.Sign(t.Context(), []client.Key{key}, payments...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.SubmitInOrder(t.Context(), []*ledger.Bundle{bundle},
		ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for known := false; !known; time.Sleep(time.Millisecond) {
		shown, err := nodes.Transaction(t.Context(), bundle.ID(0))
		known = err == nil && shown.GetBody() != nil
		if !known && time.Now().After(end) {
			t.Fatalf("the payment is not known: %v, %v", shown, err)
		}
	}
	late := s.run("tx cancel " + bundle.ID(0).String() + " --timeout 3s --json %n %k")
	var report cancelReport
	if err := json.Unmarshal([]byte(late.out), &report); err != nil || late.status != exitFailure ||
		len(report.Shards) != 1 || report.Shards[0].Shard != 1 || report.Outcome != "unknown" {
		t.Error(late, err)
	}
	book.Stand(1, false)
	if _, err := nodes.Wait(t.Context(), bundle.ID(0),
		ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		t.Error(err)
	}
}
