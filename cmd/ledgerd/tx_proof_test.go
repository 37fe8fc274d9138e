package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// writeGenesis writes a genesis file as a node's home has it.
func writeGenesis(t *testing.T, path string, genesis *ledger.Genesis) {
	t.Helper()
	text, err := json.Marshal(genesis)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestProofsFromTheGenesis keeps a proof in a file, and checks it with the genesis alone.
func TestProofsFromTheGenesis(t *testing.T) {
	t.Parallel()
	s := newShell(t, 3)
	s.bank()
	writeGenesis(t, filepath.Join(s.folder, "genesis"), s.cluster.Genesis())
	other := *s.cluster.Genesis()
	other.Chain = "other"
	writeGenesis(t, filepath.Join(s.folder, "other"), &other)
	posted := s.object("tx transfer acme:cash acme:vault 7 %n %k")
	id := posted["id"].(string)

	online := s.object("tx status " + id + " --proof --genesis %d/genesis %n")
	certificate := online["proof"].(map[string]any)["certificate"].(map[string]any)
	wantKeys(t, certificate, "height hash epoch members members_of changes")
	s.must("tx status " + id + " --proof %d/kept %n")
	offline := s.object("tx status --proof %d/kept --genesis %d/genesis")
	wantKeys(t, offline, "id state height index block_hash signer signed_by postings proof")
	if offline["id"] != id || offline["state"] != "applied" {
		t.Errorf("%v", offline)
	}
	s.must("tx status --proof=%d/kept --genesis %d/genesis") // the other form of the flag
	if text := s.must("tx status --proof %d/kept --genesis %d/genesis"); !strings.Contains(text,
		"certified by 3 of 3 members") {
		t.Error(text)
	}
	s.must("tx status " + id + " --proof %d/again %n")
	if text := s.must("evidence %d/kept %d/again --genesis %d/genesis"); !strings.Contains(text,
		"agree with each other") {
		t.Error(text)
	}
	if text := s.must("evidence %n"); !strings.Contains(text, "no evidence against any member") {
		t.Error(text)
	}

	damaged, err := os.ReadFile(filepath.Join(s.folder, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	damaged[len(damaged)/3] ^= 1
	if err := os.WriteFile(filepath.Join(s.folder, "damaged"), damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"tx status --proof %d/kept --genesis %d/other", exitFailure, "proves nothing"},
		{"tx status --proof %d/damaged --genesis %d/genesis", exitFailure, "damaged"},
		{"tx status --proof %d/genesis --genesis %d/genesis", exitFailure, "is no proof"},
		{"tx status --proof %d/nothing --genesis %d/genesis", exitFailure, "no such file"},
		{"tx status --proof %d/kept", exitUsage, "--genesis"},
		{"tx status --proof", exitUsage, "--proof FILE"},
		{"tx status", exitUsage, "which transaction"},
		{"tx status " + id + " --genesis %d/genesis %n", exitUsage, "--proof"},
		{"tx status " + id + " --proof %d/a --out %d/b %n", exitUsage, "two files"},
		{"tx status " + id + " --proof --genesis %d/other %n", exitFailure, "do not lead from"},
		{"tx status " + id + " --proof %d/genesis %n", exitFailure, "is no proof"},
		{"tx status " + id + " --proof %d %n", exitFailure, "is a folder"},
		{"tx status " + id + " --proof %d/no/such %n", exitFailure, "no such file"},
		{"tx status --proof /dev/zero --genesis %d/genesis", exitFailure, "is no proof"},
		{"tx status --proof %d --genesis %d/genesis", exitFailure, "is a directory"},
		{"evidence --genesis %d/genesis %n", exitUsage, "FILEs"},
		{"evidence %d/kept --genesis %d/genesis", exitUsage, "two FILEs"},
		{"evidence %d/kept %d/again", exitUsage, "--genesis"},
		{"evidence %d/kept %d/damaged --genesis %d/genesis", exitFailure, "proves nothing"},
	} {
		result := s.run(c.line)
		if result.status != c.status || !strings.Contains(result.errs, c.says) {
			t.Errorf("ledgerd %s: exit status %d\n%s%s", c.line, result.status, result.out,
				result.errs)
		}
	}
}

// TestPackedTransfers submits a packed bundle, shows its transfers, and proves them offline.
func TestPackedTransfers(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(3)
	genesis.Version = ledger.PackedVersion
	s := newShellOf(t, 3, apitest.Options{Genesis: genesis})
	client := ledgertest.NewClient(&genesis, "acme")
	opened := client.Bundle(client.Register("issuer", "a"))
	packed := client.Packed(client.Transfer("acme:issuer", "acme:a", 5),
		client.Transfer("acme:a", "acme:issuer", 70), client.Transfer("acme:a", "acme:issuer", 2))
	writeGenesis(t, filepath.Join(s.folder, "genesis"), &genesis)
	for file, bundle := range map[string]*ledger.Bundle{"opened": opened, "packed": packed} {
		if err := writeBundle(filepath.Join(s.folder, file), bundle); err != nil {
			t.Fatal(err)
		}
	}
	s.must("tx submit %d/opened %n")
	submitted := s.run("tx submit %d/packed %n")
	if submitted.status != exitFailure || !strings.Contains(submitted.errs, "insufficient_funds") {
		t.Errorf("one of the transfers fails: exit status %d, %s", submitted.status, submitted.errs)
	}
	for place, want := range []struct {
		state, amount string
		status        int
	}{{"applied", "-5", exitDone}, {"failed", "-70", exitFailure}, {"applied", "-2", exitDone}} {
		id := packed.ID(place).String()
		if !strings.Contains(submitted.out, id) {
			t.Errorf("the id of transfer %d is not shown: %s", place, submitted.out)
		}
		kept := fmt.Sprintf("%%d/kept-%d", place)
		online := s.run("tx status " + id + " --proof " + kept + " --genesis %d/genesis %n --json")
		offline := s.run("tx status --proof " + kept + " --genesis %d/genesis --json")
		if online.status != want.status || offline.status != want.status {
			t.Errorf("transfer %d: exit status %d, and offline %d: %s", place, online.status,
				offline.status, offline.errs)
		}
		shown := object(t, offline.out)
		posting := shown["postings"].([]any)[0].(map[string]any)
		if shown["id"] != id || shown["state"] != want.state || posting["amount"] != want.amount {
			t.Errorf("transfer %d is %v", place, shown)
		}
	}
	another := s.run("tx status " + packed.ID(2).String() + " --proof %d/kept-2 %n")
	if another.status != exitDone || !strings.Contains(another.out, "proof        holds") {
		t.Errorf("exit status %d\n%s%s", another.status, another.out, another.errs)
	}
	unknown := packed.ID(0)
	unknown[len(unknown)-1] = 3 // the bundle has no such place
	if result := s.run("tx status " + unknown.String() + " --proof %n"); result.status !=
		exitFailure || !strings.Contains(result.errs, "no transaction "+unknown.String()) {
		t.Errorf("a place that the bundle does not have: exit status %d\n%s%s", result.status,
			result.out, result.errs)
	}
}

// TestTwoStories gives the command proofs of two chains that a majority signed.
func TestTwoStories(t *testing.T) {
	t.Parallel()
	dir, genesis := t.TempDir(), ledgertest.OperatedGenesis(3)
	writeGenesis(t, filepath.Join(dir, "genesis"), genesis)
	client := ledgertest.NewClient(genesis, "acme")
	first := ledgertest.Block(genesis, client.Bundle(client.Register("issuer", "a")))
	var files []string
	for i, signers := range [][]ledger.MemberIndex{{0, 1}, {1, 2}, {0, 1, 2}} {
		last := ledgertest.After(first, client.Bundle(client.Transfer("acme:issuer", "acme:a", 1)))
		proof := &ledger.CertifiedProof{Proof: first.Proof(0), Finality: &ledger.Finality{
			Headers:     [][]byte{last.Header.Encode()},
			Certificate: ledgertest.Certificate(genesis, 0, last, signers...)}}
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, proof.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	s := &shell{t: t, folder: dir}
	result := s.run("evidence " + strings.Join(files, " ") + " --genesis %d/genesis")
	if result.status != exitFailure || !strings.Contains(result.out,
		"block 2: two blocks are signed") ||
		!strings.Contains(result.out, "both by member 1") {
		t.Errorf("exit status %d\n%s%s", result.status, result.out, result.errs)
	}
	found := object(t, s.run("evidence "+strings.Join(files,
		" ")+" --genesis %d/genesis --json").out)
	pieces := found["evidence"].([]any)
	if len(pieces) != 3 {
		t.Fatalf("%d contradictions of three stories", len(pieces))
	}
	wantKeys(t, pieces[0].(map[string]any), "height first second members encoded")
}

// TestNodeThatSaysAnotherOutcome proves that a transfer failed, and shows something else.
func TestNodeThatSaysAnotherOutcome(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	client := ledgertest.NewClient(genesis, "acme")
	block := ledgertest.Block(genesis, client.Bundle(client.Register("issuer", "a")),
		client.Bundle(client.Transfer("acme:a", "acme:issuer", 1)))
	proof := block.Proof(1)
	proof.Result = ledger.Result{Code: ledger.Unauthorised, Item: ledger.NoItem}
	proven, err := reportProven(proof, nil)
	if err != nil || proven.State != "failed" {
		t.Fatalf("%+v, %v", proven, err)
	}
	if err := proven.agrees(proven, proof); err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*transactionReport){
		"outcome": func(r *transactionReport) { r.State = "durable" },
		"block":   func(r *transactionReport) { r.Height++ },
		"signer":  func(r *transactionReport) { r.Signer = "other" },
		"amount": func(r *transactionReport) {
			r.Postings = []postingReport{r.Postings[0], {"acme:issuer", "1000000", "unit", ""}}
		},
	} {
		shown := *proven
		lie(&shown)
		if err := shown.agrees(proven, proof); err == nil {
			t.Errorf("another %s than the proven one is shown", name)
		}
	}
	cancels := client.Next()
	cancels.Deadline = 5
	cancels.Cancellation = &ledger.Cancellation{Transaction: ledger.Hash{1}, Shard: 2}
	cancellation := ledgertest.Block(genesis, client.Bundle(cancels)).Proof(0)
	if proven, err = reportProven(cancellation, nil); err != nil {
		t.Fatal(err)
	}
	if want := (cancelsReport{Transaction: ledger.Hash{1}.String(), Shard: 2}); *proven.Cancels !=
		want {
		t.Errorf("the proof cancels %+v, want %+v", *proven.Cancels, want)
	}
	for name, lie := range map[string]*cancelsReport{
		"nothing":           nil,
		"something else":    {Transaction: ledger.Hash{2}.String(), Shard: 2},
		"at another shard":  {Transaction: ledger.Hash{1}.String(), Shard: 1},
		"none that it does": {},
	} {
		shown := *proven
		shown.Cancels = lie
		if err := shown.agrees(proven, cancellation); err == nil {
			t.Errorf("a cancellation is shown that cancels %s", name)
		}
	}
	shown := *proven
	shown.Cancels = &cancelsReport{Transaction: ledger.Hash{1}.String(), Shard: 2,
		Place: &placeReport{State: "absent"}}
	if err := shown.agrees(proven, cancellation); err != nil {
		t.Error(err)
	}
	proof.Result.Code = ledger.SetAside
	if waiting, err := reportProven(proof, nil); err != nil || waiting.State != "waiting" ||
		waiting.failure() != nil {
		t.Errorf("set aside for another shard: %+v, %v", waiting, err)
	}
}
