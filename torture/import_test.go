//go:build linux

package torture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger/store"
)

const (
	// realInput is beside the repository on machines with enough space. The excerpt is in the
	// repository.
	realInput = "../../shared/data/bitcoin-blocks-0-14131.jsonl.gz"
	excerpt   = "../ledger/store/testdata/bitcoin-excerpt.jsonl"
)

// input is an input file, its number of lines and the plain sums of its postings, by account.
type input struct {
	path  string
	lines int
	sums  map[string]*big.Int
}

// readInput returns the real input, or the excerpt if that is missing.
func readInput(t *testing.T) input {
	t.Helper()
	if _, err := os.Stat(realInput); errors.Is(err, fs.ErrNotExist) {
		t.Logf("%s is not there: the committed excerpt has to do", realInput)
		return readInputOf(t, excerpt)
	}
	return readInputOf(t, realInput)
}

// readInputOf sums up a file, in the simplest way.
func readInputOf(t *testing.T, path string) input {
	t.Helper()
	in := input{path: path, sums: map[string]*big.Int{}}
	file, err := os.Open(in.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var reader io.Reader = file
	if strings.HasSuffix(in.path, ".gz") {
		if reader, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	for lines := bufio.NewScanner(reader); lines.Scan(); in.lines++ {
		var entry struct {
			Postings []struct {
				Account string
				Amount  int64
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		for _, p := range entry.Postings {
			if in.sums[p.Account] == nil {
				in.sums[p.Account] = new(big.Int)
			}
			in.sums[p.Account].Add(in.sums[p.Account], big.NewInt(p.Amount))
		}
	}
	return in
}

// matches compares exported balances with the plain sums: the same accounts and the same amounts. A
// balance of 0 may be missing.
func (in input) matches(t *testing.T, balances string) {
	t.Helper()
	seen := map[string]bool{}
	decoder := json.NewDecoder(strings.NewReader(balances))
	for decoder.More() {
		var line struct {
			Account, Asset, Amount string
		}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		sum := in.sums[line.Account]
		if sum == nil || sum.String() != line.Amount || line.Asset != "unit" || seen[line.Account] {
			t.Fatalf("account %s holds %q %s, the file's sum is %v (seen before: %v)", line.Account,
				line.Amount, line.Asset, sum, seen[line.Account])
		}
		seen[line.Account] = true
	}
	for account, sum := range in.sums {
		if !seen[account] && sum.Sign() != 0 {
			t.Fatalf("account %s is missing, the file's sum is %v", account, sum)
		}
	}
}

// importing is a running `ledgerd tx import`.
type importing struct {
	command   *exec.Cmd
	out, errs bytes.Buffer
	ended     chan error
}

// startImport begins an import through the given nodes, in that order.
func (s *shard) startImport(path, folder string, which ...int) *importing {
	s.t.Helper()
	return s.startImportWith(nil, path, folder, which...)
}

// startImportWith is startImport with more flags.
func (s *shard) startImportWith(flags []string, path, folder string, which ...int) *importing {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	i := &importing{ended: make(chan error, 1)}
	i.command = exec.CommandContext(ctx, program,
		append([]string{"tx", "import", path, "--plain", "--issuer", "coinbase", "--json", "--keys",
			filepath.Join(folder, "keys"),
			"--state", filepath.Join(folder, "state"), "--node",
			strings.Join(s.urls(which...), ",")},
			flags...)...)
	i.command.Stdout, i.command.Stderr = &i.out, &i.errs
	if err := i.command.Start(); err != nil {
		cancel()
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		i.ended <- i.command.Wait()
		close(done)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	return i
}

// wait checks that the import succeeds, with every line imported once.
func (i *importing) wait(t *testing.T, lines int) {
	t.Helper()
	if err := <-i.ended; err != nil {
		t.Fatalf("the import: %v\n%s%s", err, &i.out, &i.errs)
	}
	var report struct {
		Lines, Imported, Failed int
		Complete                bool
		Seconds                 float64
	}
	if err := json.Unmarshal(i.out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Lines != lines || report.Imported != lines || report.Failed != 0 || !report.Complete {
		t.Fatalf("the import says %+v, the file has %d lines", report, lines)
	}
	t.Logf("%d lines in %.1f s", lines, report.Seconds)
}

// TestImport imports real input into five processes while one of them is killed and started again.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		victim int
		long   bool
	}{
		{"the importer's node is killed", 0, false},
		{"another node is killed", 3, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.long && testing.Short() {
				t.Skip("takes long")
			}
			in := readInput(t)
			s := newRunningShard(t, 5)
			folder := t.TempDir()
			run := s.startImport(in.path, folder, 0, 1, 2)
			s.reached(uint64(in.lines/4), s.others(test.victim)[0])
			s.kill(test.victim)
			begun := time.Now()
			s.reached(uint64(in.lines/2), s.others(test.victim)...)
			t.Logf("node %d was killed; the others went on, and reached half of the file after %v",
				test.victim, time.Since(begun).Round(time.Millisecond))
			s.start(test.victim)
			run.wait(t, in.lines)
			s.ordering(s.all()...)
			head := s.same(s.all()...)
			blocks, balances := s.exports(s.all()...)
			in.matches(t, balances)
			in.complete(t, blocks)
			if test.long {
				return
			}

			// Running the same command again imports nothing.
			s.startImport(in.path, folder, 4).wait(t, in.lines)
			s.startImport(in.path, t.TempDir()+"/none", 4).refused(t)
			if again := s.same(s.all()...); again < head {
				t.Errorf("the head went from %d to %d", head, again)
			}
			head = s.same(s.all()...)
			blocks, balances = s.exports(s.all()...)
			in.matches(t, balances)

			s.stop(s.all()...)
			for i := range s.homes {
				if succeed(t, "export", "--home", s.homes[i].Dir, "--blocks") != blocks {
					t.Errorf("node %d: the folder holds other blocks than the node served", i)
				}
				if succeed(t, "export", "--home", s.homes[i].Dir, "--balances") != balances {
					t.Errorf("node %d: the folder holds other balances than the node served", i)
				}
			}
			s.verified(s.all()...)

			s.start(s.all()...)
			s.ordering(s.all()...)
			if again := s.same(s.all()...); again != head {
				t.Errorf("the head was %d, after the restart it is %d", head, again)
			}
			if again, _ := s.exports(s.all()...); again != blocks {
				t.Error("the blocks are others after the restart")
			}
			s.newParty("afterwards", []string{"cash"}, 2)
			s.same(s.all()...)
		})
	}
}

// refused checks that the import fails: another key cannot write to the organisation's accounts.
func (i *importing) refused(t *testing.T) {
	t.Helper()
	if err := <-i.ended; err == nil {
		t.Fatalf("an import with a foreign key went through:\n%s", &i.out)
	}
}

// reached waits until nodes hold the given number of transactions.
func (s *shard) reached(transactions uint64, which ...int) {
	s.t.Helper()
	s.eventually("the import gets on", func() error {
		for _, i := range which {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			cluster, err := s.nodes[i].Cluster(ctx)
			cancel()
			if err != nil {
				return err
			}
			if got := cluster.GetTransactionsTotal(); got < transactions {
				return fmt.Errorf("%s holds %d of %d transactions", testnet.Name(i),
					got, transactions)
			}
		}
		return nil
	})
}

// complete checks that the blocks contain one transaction for each line, and the one that registers
// the organisation.
func (in input) complete(t *testing.T, blocks string) {
	t.Helper()
	ids := map[string]bool{}
	decoder := json.NewDecoder(strings.NewReader(blocks))
	for decoder.More() {
		var line store.BlockLine
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		for _, id := range line.Transactions {
			if ids[id.String()] {
				t.Errorf("transaction %s is in the chain twice", id)
			}
			ids[id.String()] = true
		}
	}
	if len(ids) != in.lines+1 {
		t.Errorf("the chain holds %d transactions, the file has %d lines, and one registers the "+
			"importer", len(ids), in.lines)
	}
}
