package importer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// realFile is Bitcoin's main chain from block 0 to block 14131, if the folder with real input
// exists; excerptFile has its first 600 entries.
const (
	realFile    = "../../../../shared/data/bitcoin-blocks-0-14131.jsonl.gz"
	excerptFile = "testdata/bitcoin-blocks-0-excerpt.jsonl.gz"
)

// plainSums adds up a file's postings without any of the code under test.
func plainSums(t *testing.T, path string) (sums map[string]int64, lines uint64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	sums = make(map[string]int64)
	scanner := bufio.NewScanner(unzipped)
	scanner.Buffer(nil, maxLine)
	for ; scanner.Scan(); lines++ {
		var entry struct {
			Postings []struct {
				Account string
				Amount  int64
			}
		}
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		for _, posting := range entry.Postings {
			sums[posting.Account] += posting.Amount
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return sums, lines
}

// Every balance, by the account's name in an export, is the plain sum of the file's postings.
func TestBitcoin(t *testing.T) {
	t.Parallel()
	path := realFile
	if _, err := os.Stat(path); err != nil || testing.Short() || raceDetector {
		t.Logf("importing the committed excerpt, since %s is not there, or -short or -race was "+
			"given", realFile)
		path = excerptFile
	}
	want, lines := plainSums(t, path)
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	result, err := importFile(t, nodes, path, Options{Issuers: []string{"coinbase"}})
	if err != nil || result.Imported != lines || result.Failed != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	t.Logf("%d lines in %v", result.Lines, result.Elapsed)
	got := make(map[string]int64)
	err = cluster.Node(0).Store().ExportBalances(testContext(t),
		func(line store.BalanceLine) error {
			amount, fits := line.Amount.Int64()
			if !fits || line.Asset != ledger.DefaultAsset {
				t.Errorf("%+v", line)
			}
			got[line.Account] = amount
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%d balances differ from the %d plain sums", len(got), len(want))
	}
}
