package abci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// Two adapters of one folder would feed one application twice: the second one is refused, until the
// first one has ended.
func TestOneAdapter(t *testing.T) {
	t.Parallel()
	chain, p, folder := newGrowing([]string{"a"}), newProgram(t), t.TempDir()
	one := startAdapter(t, p, chain, folder, nil)
	one.reaches(2)
	config := &Config{ChainID: "kv", Application: p.address, Folder: folder}
	if err := run(t, Options{Config: config, Nodes: chain}).end(); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "another adapter") {
		t.Errorf("the second one: %v", err)
	}
	one.stop()
	one.end()
	chain.put("b")
	startAdapter(t, p, chain, folder, nil).reaches(3)
	if texts, _, wrong := p.executed(); texts != "a b" || wrong != "" {
		t.Errorf("%q; %s", texts, wrong)
	}
}

// What a crash leaves of a file that was being written is used by the next writing, and a file that
// cannot be read ends the adapter with what to do about it.
func TestKeptFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	half := filepath.Join(folder, keptName+".new")
	if err := os.WriteFile(half, make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &kept{Chain: "kv", Height: 7, AppHash: []byte{1}}
	if err := k.write(folder); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if read, err := readKept(folder); err != nil || fmt.Sprint(*read) != fmt.Sprint(*k) {
		t.Errorf("%+v, %v", read, err)
	}
	if err := os.WriteFile(filepath.Join(folder, keptName), []byte(`{"chain`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := feed(t, &liar{}, newChain(), folder); err == nil ||
		!strings.Contains(err.Error(), "remove the file") {
		t.Errorf("half a file: %v", err)
	}
}

// The largest batch fits into a ledger transaction, and what is larger is refused before it is
// posted, with the limit.
func TestOversized(t *testing.T) {
	t.Parallel()
	owner := ledger.OrganisationName(strings.Repeat("o", 60))
	p := &pool{chain: strings.Repeat("c", 50), organisation: owner}
	for _, sizes := range [][]int{{ledger.MaxRecordValue},
		{ledger.MaxRecordValue, ledger.MaxRecordValue, ledger.MaxRecordValue,
			batchBytes - 3*ledger.MaxRecordValue}, full()} {
		var proposed [][]byte
		for _, size := range sizes {
			proposed = append(proposed, make([]byte, size))
		}
		transaction, err := p.transaction(proposed)
		if err != nil {
			t.Fatal(err)
		}
		genesis := ledgertest.Genesis()
		transaction.Ledger, transaction.Signer = genesis.Hash(), owner
		transaction.Nonce = ledgertest.NewClient(genesis, owner).Next().Nonce
		if _, err := ledger.NewBundle(transaction); err != nil {
			t.Errorf("%d transactions: %v", len(sizes), err)
		}
		for _, more := range [][]byte{make([]byte, ledger.MaxRecordValue+1), {}} {
			if _, err := p.transaction(append(proposed, more)); err == nil ||
				!strings.Contains(err.Error(), fmt.Sprint("1 to ", ledger.MaxRecordValue)) {
				t.Errorf("%d bytes more: %v", len(more), err)
			}
		}
	}
	chain, app := newGrowing(), newProgram(t)
	a := startAdapter(t, app, chain, t.TempDir(), nil)
	for size, want := range map[int]string{ledger.MaxRecordValue: "",
		ledger.MaxRecordValue + 1: "tx too large. max size is 65536, but got 65537"} {
		err := a.call("broadcast_tx_commit", "tx=0x"+strings.Repeat("61", size), nil)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want &&
			!strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if texts, _, wrong := app.executed(); len(texts) != ledger.MaxRecordValue || wrong != "" {
		t.Errorf("%d bytes were executed; %s", len(texts), wrong)
	}
}

// full are the sizes of the largest batch of the most transactions.
func full() []int {
	sizes := make([]int, ledger.MaxRecords)
	for i := range sizes {
		sizes[i] = batchBytes / ledger.MaxRecords
	}
	return sizes
}
