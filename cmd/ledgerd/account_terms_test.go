package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// TestAccountTerms: terms of an account are set, shown, kept, and lifted.
func TestAccountTerms(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.AccountTermsVersion
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	for _, name := range []string{"acme", "bank"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " %n %k")
	}
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:cash acme:old %n %k")
	s.must("tx transfer acme:mint acme:cash 100 %n %k")
	s.must("account limit acme:cash --floor 20 --ceiling 120 --velocity 50/1h %n %k")
	s.must("account label acme:cash iban=DE12 note=ours --alias till --guardian bank %n %k")
	text := s.must("account show acme:cash %n")
	for _, want := range []string{"unit: at least 20, at most 120, at most 50 taken within 1h0m0s",
		"till", "bank", "iban=DE12", "note=ours"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	labelled := s.run("account label acme:cash note=mine --alias desk %n %k")
	for _, want := range []string{"change 3 of the terms of acme:cash, by acme", "desk",
		"label      note=mine", "limit      unit: at least 20", "guardian   bank",
		"no longer  alias: till", "no longer  label: note=ours"} {
		if labelled.status != exitDone || !strings.Contains(labelled.errs, want) {
			t.Errorf("no %q in\n%s", want, labelled.errs)
		}
	}
	refused := func(line, want string) {
		t.Helper()
		if got := s.run(line + " %n %k"); got.status == exitDone ||
			!strings.Contains(got.out+got.errs, want) {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	refused("tx transfer acme:mint acme:cash 21", "more than its ceiling")
	refused("tx transfer acme:cash acme:old 81", "less than its floor")
	refused("tx transfer acme:cash acme:old 51", "more would be taken")
	refused("account label acme:old --alias desk", "has the alias")
	refused("account limit acme:cash --velocity 5", "write AMOUNT/TIME")
	refused("account limit acme:cash", "name a limit")
	refused("account label acme:cash", "nothing to set")
	refused("account label acme:cash x", "write KEY=VALUE")
	refused("account freeze acme:old --as bank", "not the guardian")
	refused("account unfreeze acme:old", "acme:old is not frozen")
	s.must("account freeze acme:cash --as bank %n %k")
	refused("tx transfer acme:mint acme:cash 1", "is frozen")
	refused("account unfreeze acme:cash", "only the guardian")
	s.must("account unfreeze acme:cash --as bank %n %k")
	id := s.object("account limit acme:cash --no-credits --velocity none --floor none %n %k")["id"]
	if text := s.must(fmt.Sprintf("tx status %s %%n", id)); !strings.Contains(text,
		"of the terms of acme:cash") || !strings.Contains(text, "nothing may be given") {
		t.Error(text)
	}
	refused("tx transfer acme:mint acme:cash 1", "nothing may be given")
	s.must("account label acme:cash note= --alias= %n %k")
	account := s.object("account show acme:cash %n")
	if terms := fmt.Sprint(account["terms"]); account["revision"] != 7.0 ||
		account["alias"] != nil || strings.Contains(terms, "ours") {
		t.Error(account)
	}
	refused("account close acme:cash --yes", "move them first")
	refused("account close acme:old", "--yes")
	s.must("account close acme:old --yes %n %k")
	refused("tx transfer acme:cash acme:old 1", "is closed")
	if text := s.must("account show acme:old %n"); !strings.Contains(text, "closed") {
		t.Error(text)
	}
	refused("account open acme:old", "acme:old was closed")
	if text := s.must("account list --where iban=DE99 %n"); !strings.Contains(text,
		"no accounts have this metadatum") {
		t.Error(text)
	}
	before := 0.0 // changes
	opened, head := account["opened_height"].(float64), account["height"].(float64)
	for height := int(opened); height <= int(head); height++ {
		then := s.object(fmt.Sprintf("account show acme:cash --at %d %%n", height))
		revision, _ := then["revision"].(float64)
		if then["terms_at_cut"] != true || revision < before || revision > before+1 ||
			revision == 7 && fmt.Sprint(then["terms"]) != fmt.Sprint(account["terms"]) ||
			revision == 6 && fmt.Sprint(then["terms"]) == fmt.Sprint(account["terms"]) {
			t.Errorf("at block %v, after %v changes: %v", height, before, then)
		}
		before = revision
	}
	if before != 7 {
		t.Errorf("%v changes before the head", before)
	}
}

// TestGuardianOfAnotherShard: a guardian freezes an account of another shard, also while the
// account's organisation changes the terms, and lifts its freeze.
func TestGuardianOfAnotherShard(t *testing.T) {
	t.Parallel()
	book := apitest.NewBook(t, newestGenesis(0, 0), api.Options{})
	for door := range 2 {
		s := &shell{t: t, folder: t.TempDir(),
			doors: []*apitest.TestServer{book.Door(ledger.ShardID(door))}}
		owner, guardian := fmt.Sprint("acme", door), fmt.Sprint("bank", door)
		for shard, name := range []string{owner, guardian} {
			s.must("keys create " + name + " --plain %k")
			s.must(fmt.Sprintf("org add %s --shard %d %%n %%k", name, shard))
		}
		account := owner + ":cash"
		s.must("account open " + account + " %n %k")
		s.must("account label " + account + " --guardian " + guardian + " %n %k")
		frozen := s.object("account freeze " + account + " --as " + guardian + " %n %k")
		if frozen["state"] != "durable" || frozen["destinations"] != nil {
			t.Errorf("at a node of shard %d: %v", door, frozen)
		}
		if text := s.must("account show " + account + " %n"); !strings.Contains(text,
			"frozen by its guardian") {
			t.Error(text)
		}
		if got := s.run("account label " + account + " a=b %n %k"); got.status == exitDone {
			t.Error("the organisation changes what its guardian froze")
		}
		s.must("account unfreeze " + account + " --as " + guardian + " --dry-run %n %k")
		s.must("account unfreeze " + account + " --as " + guardian + " %n %k")
		s.must("account label " + account + " a=b %n %k")
	}
}

// TestTermsOfLiars: with the genesis nobody signs terms that a node made up, and amounts are read
// with the decimals that the chain proves. A proven account is shown with its terms.
func TestTermsOfLiars(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	writeGenesis(t, filepath.Join(s.folder, "genesis"), &genesis)
	s.must("keys create acme --plain %k")
	s.must("org add acme %n %k")
	s.must("account open acme:cash %n %k")
	s.must("asset register EUR --organisation acme --decimals 2 %n %k")

	honest, err := url.Parse(s.doors[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	node := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, honest.String())
	routes := http.NewServeMux()
	routes.Handle("/", httputil.NewSingleHostReverseProxy(honest))
	routes.Handle(ledgerdv1connect.LedgerServiceGetAccountProcedure, connect.NewUnaryHandler(
		ledgerdv1connect.LedgerServiceGetAccountProcedure, func(ctx context.Context,
			request *connect.Request[ledgerdv1.GetAccountRequest]) (
			*connect.Response[ledgerdv1.GetAccountResponse], error) {
			answer, err := node.GetAccount(ctx, connect.NewRequest(request.Msg))
			if err != nil {
				return nil, err
			}
			answer.Msg.Account.Terms = &ledgerdv1.AccountTerms{Guardian: "acme", NoDebits: true}
			return connect.NewResponse(answer.Msg), nil
		}))
	routes.Handle(ledgerdv1connect.LedgerServiceGetAssetProcedure, connect.NewUnaryHandler(
		ledgerdv1connect.LedgerServiceGetAssetProcedure, func(ctx context.Context,
			request *connect.Request[ledgerdv1.GetAssetRequest]) (
			*connect.Response[ledgerdv1.GetAssetResponse], error) {
			answer, err := node.GetAsset(ctx, connect.NewRequest(request.Msg))
			if err != nil {
				return nil, err
			}
			answer.Msg.Asset.Terms.Decimals = 4
			return connect.NewResponse(answer.Msg), nil
		}))
	liar := httptest.NewServer(routes)
	defer liar.Close()
	believed := s.run("account label acme:cash a=b --dry-run --node=" + liar.URL + " %k")
	if !strings.Contains(believed.errs, "nothing may be taken") {
		t.Errorf("the liar tells the truth: %+v", believed)
	}
	for _, line := range []string{"account limit acme:cash --asset EUR --ceiling 100.00",
		"account limit acme:cash --asset EUR --velocity 50.00/1h", "account label acme:cash a=b",
		"account freeze acme:cash", "account unfreeze acme:cash"} {
		got := s.run(line + " --genesis %d/genesis --node=" + liar.URL + " %k")
		if got.status != exitDone || strings.Contains(got.errs, "nothing may be taken") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	text := s.must("account show acme:cash --proof --genesis %d/genesis --node=" + liar.URL)
	for _, want := range []string{"EUR: at most 100.00, at most 50.00 taken", "a=b"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	other := genesis
	other.Chain = "other"
	writeGenesis(t, filepath.Join(s.folder, "other"), &other)
	if got := s.run("account close acme:cash --yes --genesis %d/other %n %k"); got.status ==
		exitDone || !strings.Contains(got.errs, "do not trust") {
		t.Error(got)
	}
	s.must("account close acme:cash --yes --genesis %d/genesis %n %k")
}
