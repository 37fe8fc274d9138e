package importer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
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

// bitcoinFile returns the file to import.
func bitcoinFile(t *testing.T) string {
	if _, err := os.Stat(realFile); err != nil || testing.Short() || raceDetector {
		t.Logf("importing the committed excerpt, since %s is not there, or -short or -race was "+
			"given", realFile)
		return excerptFile
	}
	return realFile
}

// Every balance, by the account's name in an export, is the plain sum of the file's postings.
func TestBitcoin(t *testing.T) {
	t.Parallel()
	path := bitcoinFile(t)
	want, lines := plainSums(t, path)
	cluster := apitest.NewCluster(t, apitest.Options{})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	result, err := importFile(t, nodes, path, Options{Issuers: []string{"coinbase"}})
	if err != nil || result.Imported != lines || result.Failed != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	t.Logf("%d lines in %v", result.Lines, result.Elapsed)
	checkSums(t, cluster.Node(0).Store(), want)
}

// The same holds if the import is killed again and again, with the notes of the entries and without
// them, so that most lines are packed.
func TestBitcoinKilled(t *testing.T) {
	t.Parallel()
	for _, noted := range []bool{true, false} {
		t.Run(fmt.Sprint("noted ", noted), func(t *testing.T) {
			t.Parallel()
			path := bitcoinFile(t)
			want, lines := plainSums(t, path)
			short := path == excerptFile // which is imported before it can be killed
			if !noted {
				path = withoutNotes(t, path)
			}
			cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2, Genesis: packingGenesis()})
			urls := []string{apitest.Serve(t, cluster.Node(0), api.Options{}).URL,
				apitest.Serve(t, cluster.Node(1), api.Options{}).URL}
			random, state := rand.New(rand.NewPCG(1, 9)), t.TempDir()
			options := Options{Key: testKey, Issuers: []string{"coinbase"}}
			for i := range 8 {
				options.whole = i < 2 // a program of before
				if options.StateFolder = state; i%3 == 2 {
					options.StateFolder = ""
				}
				importUntil(t, newClient(t, urls[i%2]), path, options,
					random.Uint64N(lines*uint64(i+1)/8))
			}
			options.StateFolder = state
			result, err := importFile(t, newClient(t, urls...), path, options)
			if err != nil || result.Imported != lines || result.Failed != 0 {
				t.Fatalf("%d of %d imported, %d failed, %v", result.Imported, lines, result.Failed,
					err)
			}
			chain := cluster.Node(0).Store()
			checkSums(t, chain, want)
			packed, _ := packedTransfers(t, chain)
			t.Logf("%d of %d lines were packed", packed, lines)
			if packed > 0 && noted || packed == 0 && !noted && !short {
				t.Errorf("with notes: %v: %d lines were packed", noted, packed)
			}
		})
	}
}

// withoutNotes writes a file of the same postings without the other fields.
func withoutNotes(t *testing.T, path string) string {
	t.Helper()
	source, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var out strings.Builder
	for {
		line, err := source.next(nil)
		if errors.Is(err, io.EOF) {
			return writeFile(t, out.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		var entry struct {
			Postings json.RawMessage `json:"postings"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "{\"postings\":%s}\n", entry.Postings)
	}
}

// checkSums checks that the balances of a chain are sums.
func checkSums(t *testing.T, chain *store.Store, want map[string]int64) {
	t.Helper()
	got := make(map[string]int64)
	err := chain.ExportBalances(testContext(t),
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
