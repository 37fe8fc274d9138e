package importer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// packingGenesis is of a chain that takes packed bundles.
func packingGenesis() ledger.Genesis {
	genesis := *ledgertest.Genesis()
	genesis.Version = ledger.PackedVersion
	return genesis
}

// plainChain is chain without notes, so that all lines can be packed. The credit comes first in
// some lines. Blank lines, lines with notes and lines that are no entries may be among them; they
// do not break the chain. It returns the number of lines of the file, too.
func plainChain(random *rand.Rand, lines, odd int) (text string, all uint64, bad int) {
	var out strings.Builder
	line := func(i, from int, note string) {
		debit := fmt.Sprintf(`{"account":"holder-%d","amount":-7}`, from)
		if from == 0 {
			debit = `{"account":"mint","amount":-7}`
		}
		credit := fmt.Sprintf(`{"account":"holder-%d","amount":7}`, i)
		if random.IntN(2) == 0 {
			debit, credit = credit, debit
		}
		fmt.Fprintf(&out, `{%s"postings":[%s,%s]}`+"\n", note, debit, credit)
	}
	for i := 1; i <= lines; i++ {
		note := ""
		if odd > 0 {
			switch random.IntN(odd) {
			case 0:
				out.WriteString("\n")
				all++
			case 1:
				note = `"note":1,`
			case 2:
				out.WriteString("no entry\n")
				all++
				bad++
			case 3: // it is overdrawn, whenever it is executed
				fmt.Fprintf(&out, `{"postings":[{"account":"poor","amount":-1},`+
					`{"account":"holder-%d","amount":1}]}`+"\n", i)
				all++
				bad++
			}
		}
		line(i, i-1, note)
		all++
	}
	return out.String(), all, bad
}

// checkHolders checks that each line of plainChain was applied exactly once and in order.
func checkHolders(t *testing.T, chain *store.Store, lines int) {
	t.Helper()
	for holder := 1; holder <= lines; holder++ {
		account, err := chain.Account(ledger.AccountPath(fmt.Sprintf("acme:holder-%d", holder)))
		want := ledger.Amount{}
		if holder == lines {
			want = ledger.NewAmount(7)
		}
		if err != nil || account.Balance(ledger.DefaultAsset) != want {
			t.Fatalf("holder-%d: %v, want %s, %v", holder, account, want, err)
		}
	}
}

// packedTransfers counts the transfers in the packed bundles of a chain, and the lines that failed
// because their nonces were stale.
func packedTransfers(t *testing.T, chain *store.Store) (packed, stale int) {
	t.Helper()
	for height := ledger.Height(1); height <= chain.Head().Height; height++ {
		block, err := chain.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			if entry := block.Entry(i); entry.Result.Code == ledger.StaleNonce &&
				len(entry.Transaction().Postings) > 0 {
				stale++
			}
		}
		for i := range block.Bundles {
			if block.Bundles[i].Packed() {
				packed += block.Bundles[i].Len()
			}
		}
	}
	return packed, stale
}

// Plain lines go in packed bundles, and the same lines in the same ones in every run.
func TestImportPacks(t *testing.T) {
	t.Parallel()
	const lines = 1_300
	cluster := apitest.NewCluster(t, apitest.Options{Genesis: packingGenesis()})
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	random := rand.New(rand.NewPCG(1, 1))
	text, all, _ := plainChain(random, lines, 0)
	path, state := writeFile(t, text), t.TempDir()
	options := Options{Issuers: []string{"mint"}, StateFolder: state}
	result, err := importFile(t, nodes, path, options)
	if err != nil || result.Imported != lines || result.Failed != 0 || result.Lines != all {
		t.Fatalf("%+v, %v", result, err)
	}
	chain := cluster.Node(0).Store()
	checkHolders(t, chain, lines)
	if packed, _ := packedTransfers(t, chain); packed != lines/groupLines*groupLines {
		t.Errorf("%d lines of %d were packed", packed, lines)
	}
	total := chain.Head().Total
	for _, folder := range []string{state, ""} {
		options.StateFolder = folder
		result, err = importFile(t, nodes, path, options)
		if err != nil || result.Imported != lines || result.Skipped != 0 && folder == "" {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	if now := chain.Head().Total; now != total {
		t.Errorf("importing again added %d transactions", now-total)
	}
	// The end of the longer file goes on in the middle of a group, and from its beginning the lines
	// of that group are known as they were imported.
	more, _, _ := plainChain(rand.New(rand.NewPCG(1, 1)), lines+700, 0)
	for _, folder := range []string{state, ""} {
		options.StateFolder = folder
		result, err = importFile(t, nodes, writeFile(t, more), options)
		if err != nil || result.Imported != lines+700 || result.Failed != 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		checkHolders(t, chain, lines+700)
	}
	if _, stale := packedTransfers(t, chain); stale > 0 {
		t.Errorf("%d lines were submitted in two forms", stale)
	}
}

// In an import that is killed again and again, by programs that pack and that do not, at nodes that
// lose their pools, each line is applied exactly once and in order, and reported as it was.
func TestPackedImportIsKilled(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			const lines = 1_500
			random := rand.New(rand.NewPCG(seed, 7))
			cluster := apitest.NewCluster(t, apitest.Options{Nodes: 3, Genesis: packingGenesis()})
			var urls []string
			for i := range 3 {
				urls = append(urls, apitest.Serve(t, cluster.Node(i), api.Options{}).URL)
			}
			odd := 0
			if seed%3 == 0 {
				odd = 60
			}
			text, all, bad := plainChain(random, lines, odd)
			path := writeFile(t, text)
			state := t.TempDir()
			options := Options{Key: testKey, Issuers: []string{"mint"}}
			runs := 2 + random.IntN(6)
			older := random.IntN(runs) // programs of before
			for i := range runs {
				options.whole = i < older
				if options.StateFolder = state; random.IntN(3) == 0 {
					options.StateFolder = ""
				}
				random.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
				held := random.IntN(3)
				if random.IntN(3) == 0 {
					cluster.Node(held).Hold() // what it admits stays in its pool for now
				}
				importUntil(t, newClient(t, urls...), path, options, random.Uint64N(all))
				cluster.Node(held).Release()
			}
			options.whole, options.StateFolder = false, state
			source, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			result, err := Run(testContext(t), newClient(t, urls...), source, options)
			if err != nil || result.Imported != lines || int(result.Failed) != bad ||
				result.Lines != all {
				t.Fatalf("%d of %d imported, %d failed, want %d, %v: %v", result.Imported, lines,
					result.Failed, bad, err, result.Failures[:min(3, len(result.Failures))])
			}
			checkHolders(t, cluster.Node(0).Store(), lines)
		})
	}
}

// importUntil imports a file and is killed after so many lines, or when nothing moves.
func importUntil(t *testing.T, nodes *client.Client, path string, options Options, until uint64) {
	t.Helper()
	source, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(testContext(t), 2*time.Second)
	defer cancel()
	options.Progress = func(p Progress) {
		if p.Lines >= until {
			cancel()
		}
	}
	if _, err := Run(ctx, nodes, source, options); err != nil && ctx.Err() == nil &&
		!errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// relay is nodes whose SubmitInOrder is in the hands of a test.
type relay struct {
	*client.Client
	submit func(ctx context.Context, bundles []*ledger.Bundle,
		after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error)
}

func (r relay) SubmitInOrder(ctx context.Context, bundles []*ledger.Bundle,
	after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error) {
	return r.submit(ctx, bundles, after)
}

// Packs says that the chain takes packed bundles, as a node may that has just heard of it.
func (relay) Packs(context.Context) (bool, error) { return true, nil }

// A line that an earlier run submitted in the other form, and whose copy is ordered first, has the
// outcome of that copy.
func TestOtherFormIsFirst(t *testing.T) {
	t.Parallel()
	const lines = 2 * groupLines
	for _, whole := range []bool{false, true} {
		cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2, Genesis: packingGenesis()})
		var nodes []*client.Client
		for i := range 2 {
			nodes = append(nodes, newClient(t,
				apitest.Serve(t, cluster.Node(i), api.Options{}).URL))
		}
		text, all, bad := plainChain(rand.New(rand.NewPCG(1, 2)), lines, 100)
		path := writeFile(t, text)
		run := func(ctx context.Context, nodes Nodes, options Options) (Result, error) {
			source, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			options.Key, options.Issuers = testKey, []string{"mint"}
			return Run(ctx, nodes, source, options)
		}
		// The first run is killed when the lines are in the pool of node 0.
		ctx, kill := context.WithCancel(testContext(t))
		_, _ = run(ctx, relay{nodes[0], func(ctx context.Context, bundles []*ledger.Bundle,
			after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error) {
			cluster.Node(0).Hold()
			_, err := nodes[0].SubmitInOrder(ctx, bundles, after)
			if err != nil {
				t.Error(err)
			}
			kill()
			return nil, errNotReached
		}}, Options{whole: whole})
		submitted := false
		result, err := run(testContext(t), relay{nodes[1], func(ctx context.Context,
			bundles []*ledger.Bundle, after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error) {
			if !whole && bundles[0].Packed() {
				outcomes := make([]*ledgerdv1.BundleOutcome, len(bundles))
				for i := range outcomes {
					outcomes[i] = &ledgerdv1.BundleOutcome{Refused: "this node is behind"}
				}
				return outcomes, nil
			}
			if !submitted {
				submitted = true
				head := cluster.Node(0).Store().Head().Height
				cluster.Node(0).Release()
				for cluster.Node(0).Store().Head().Height == head && ctx.Err() == nil {
					_, changed := cluster.Node(0).Heights()
					if cluster.Node(0).Store().Head().Height > head {
						break
					}
					select {
					case <-changed:
					case <-ctx.Done():
					}
				}
			}
			return nodes[1].SubmitInOrder(ctx, bundles, after)
		}}, Options{})
		if err != nil || result.Imported != lines || int(result.Failed) != bad ||
			result.Lines != all {
			t.Fatalf("whole first: %v: %+v, %v", whole, result, err)
		}
		for _, failure := range result.Failures {
			if failure.Code != "malformed_line" && failure.Code != "insufficient_funds" {
				t.Errorf("whole first: %v: %+v", whole, failure)
			}
		}
		chain := cluster.Node(0).Store()
		checkHolders(t, chain, lines)
		if _, stale := packedTransfers(t, chain); stale == 0 {
			t.Errorf("whole first: %v: no line was there in both forms", whole)
		}
	}
}

// A node that refuses packed bundles, though another one takes them, gets whole transactions.
func TestNodeRefusesPackedLines(t *testing.T) {
	t.Parallel()
	const lines = 600
	cluster := apitest.NewCluster(t, apitest.Options{}) // whose chain takes none
	nodes := newClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	text, _, _ := plainChain(rand.New(rand.NewPCG(1, 3)), lines, 0)
	source, err := OpenFile(writeFile(t, text))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	result, err := Run(testContext(t), relay{nodes, nodes.SubmitInOrder}, source,
		Options{Key: testKey, Issuers: []string{"mint"}})
	if err != nil || result.Imported != lines || result.Failed != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	checkHolders(t, cluster.Node(0).Store(), lines)
}
