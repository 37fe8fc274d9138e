package store

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/big"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// bitcoinLine is a line of the import file.
type bitcoinLine struct {
	Postings []struct {
		Account string        `json:"account"`
		Amount  ledger.Amount `json:"amount"`
	} `json:"postings"`
}

// openBitcoin opens the whole file if it exists, and otherwise the excerpt.
func openBitcoin(t *testing.T) io.Reader {
	t.Helper()
	if file, err := os.Open("../../../shared/data/bitcoin-blocks-0-14131.jsonl.gz"); err == nil {
		t.Cleanup(func() { _ = file.Close() })
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		return unpacked
	}
	t.Log("the whole file is not there; this is the excerpt of 250 lines")
	file, err := os.Open("testdata/bitcoin-excerpt.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// TestBitcoin books Bitcoin's first transactions and compares every balance with the plain sum of
// the postings.
func TestBitcoin(t *testing.T) {
	t.Parallel()
	options := small()
	options.MemTableBytes, options.DecodedCacheBytes = 8<<20, 32<<20
	s := open(t, t.TempDir(), options)
	client := ledgertest.NewClient(testGenesis(), "bank")
	sums := map[string]*big.Int{}
	pending := []ledger.Transaction{client.Register()}
	round := ledger.Round(0)
	flush := func() {
		round++
		block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(1, client.Bundle(pending...))})
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			if !block.Entry(i).Result.OK() {
				t.Fatalf("transaction %d of block %d: %s", i, block.Header.Height,
					block.Entry(i).Result)
			}
		}
		pending = nil
	}
	for lines := bufio.NewScanner(openBitcoin(t)); lines.Scan(); {
		var line bitcoinLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		transaction := client.Next()
		for _, posting := range line.Postings {
			account := client.Account(posting.Account)
			if sums[posting.Account] == nil {
				sums[posting.Account] = new(big.Int)
				transaction.Openings = append(transaction.Openings,
					ledger.Opening{Account: account, Alias: posting.Account,
						Issuer: posting.Account == "coinbase"})
			}
			amount, _ := new(big.Int).SetString(posting.Amount.String(), 10)
			sums[posting.Account].Add(sums[posting.Account], amount)
			transaction.Postings = append(transaction.Postings,
				ledger.Posting{Account: account, Asset: ledger.DefaultAsset,
					Amount: posting.Amount})
		}
		if pending = append(pending, transaction); len(pending) == 500 {
			flush()
		}
	}
	flush()
	seen := 0
	err := s.ExportBalances(t.Context(), func(line BalanceLine) error {
		seen++
		if sums[line.Account] == nil || sums[line.Account].String() != line.Amount.String() {
			t.Errorf("%s has %s, the postings add up to %s", line.Account, line.Amount,
				sums[line.Account])
		}
		return nil
	})
	if err != nil || seen != len(sums) {
		t.Fatalf("%d balances of %d: %v", seen, len(sums), err)
	}
}
