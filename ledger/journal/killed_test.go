package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// exportTo names the file of an export that is to be killed, in a process of its own.
const exportTo = "LEDGERD_TEST_EXPORT_TO"

// TestMain runs the export that TestKilled kills, or the tests.
func TestMain(m *testing.M) {
	if path := os.Getenv(exportTo); path != "" {
		os.Exit(exportUntilKilled(path))
	}
	os.Exit(m.Run())
}

// fixed is a chain of blocks in memory, the same in every process.
type fixed struct {
	journal.Source
	genesis *ledger.Genesis
	blocks  []*ledger.Block
	// certificate is that of each block, or nil.
	certificate *ledger.Certificate
	// stop is the block at which the source says so and then blocks for ever; 0 for none.
	stop ledger.Height
}

func (f *fixed) Genesis() *ledger.Genesis { return f.genesis }

func (f *fixed) Certificate(ledger.Height) (*ledger.Certificate, error) {
	return f.certificate, nil
}

func (f *fixed) Asset(ledger.AssetName) (ledger.Asset, bool) { return ledger.Asset{}, false }

func (f *fixed) Block(height ledger.Height) (*ledger.Block, error) {
	if height == f.stop {
		fmt.Println("here")
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent never writes, and kills this process
	}
	return f.blocks[height-1], nil
}

// fixedChain returns a chain of an organisation with 60 blocks of a hundred transfers each.
func fixedChain() *fixed {
	f := &fixed{genesis: ledgertest.OperatedGenesis(1)}
	client := ledgertest.NewClient(f.genesis, "acme")
	block := ledgertest.Block(f.genesis, client.Bundle(client.Register("mint", "cash")))
	for len(f.blocks) < 60 {
		f.blocks = append(f.blocks, block)
		var transfers []ledger.Transaction
		for i := range 100 {
			transfers = append(transfers, client.Transfer("acme:mint", "acme:cash", int64(i+1)))
		}
		block = ledgertest.After(block, client.Bundle(transfers...))
	}
	return f
}

func exportUntilKilled(path string) int {
	source := fixedChain()
	source.stop = ledger.Height(len(source.blocks) / 2)
	format, err := journal.FormatOf("jsonl")
	if err == nil {
		_, err = journal.ExportFile(context.Background(), path, source, format,
			journal.Options{To: ledger.Height(len(source.blocks))})
	}
	fmt.Println("it was not killed:", err)
	return 1
}

// An export that is killed in the middle goes on, and the file is the same as without that.
func TestKilled(t *testing.T) {
	t.Parallel()
	source := fixedChain()
	options := journal.Options{To: ledger.Height(len(source.blocks))}
	want := export(t, source, "jsonl", options)
	path := filepath.Join(t.TempDir(), "journal")
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), exportTo+"="+path)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 5)
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "here\n" {
		t.Fatalf("it said %q: %v", said, err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
	left, err := os.ReadFile(path)
	if err != nil || len(left) == 0 || len(left) >= len(want) || !bytes.HasPrefix(want, left) {
		t.Fatalf("the killed export left %d bytes of %d: %v", len(left), len(want), err)
	}
	format, err := journal.FormatOf("jsonl")
	if err != nil {
		t.Fatal(err)
	}
	written, err := journal.ExportFile(t.Context(), path, source, format, options)
	if err != nil || written.From <= 1 || written.From > options.To/2 {
		t.Fatalf("%+v %v", written, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the file differs from that of an export without interruption: %v", err)
	}
}
