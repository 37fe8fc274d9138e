package parquet

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// fixed is a chain in memory. It fails at the block failsAt.
type fixed struct {
	journal.Source
	genesis *ledger.Genesis
	blocks  []*ledger.Block
	failsAt ledger.Height
}

var errKilled = errors.New("killed")

func (f *fixed) Genesis() *ledger.Genesis { return f.genesis }

// Asset returns unit as if it could be registered, since a block 7.
func (f *fixed) Asset(name ledger.AssetName) (ledger.Asset, bool) {
	return ledger.Asset{Registered: 7, AssetTerms: ledger.AssetTerms{Decimals: 2}},
		name == ledger.DefaultAsset
}

func (f *fixed) Block(height ledger.Height) (*ledger.Block, error) {
	if height == f.failsAt {
		return nil, errKilled
	}
	return f.blocks[height-1], nil
}

// chain returns 30 blocks of transfers, with notes, the largest amount, and bytes that are no text.
func chain(name string) *fixed {
	f := &fixed{genesis: ledgertest.Genesis()}
	f.genesis.Chain, f.genesis.Time = name, 1_790_000_000_000
	client := ledgertest.NewClient(f.genesis, "acme")
	block := ledgertest.Block(f.genesis, client.Bundle(client.Register("mint", "cash")))
	for len(f.blocks) < 30 {
		f.blocks = append(f.blocks, block)
		var transfers []ledger.Transaction
		for i := range 1 + len(f.blocks)%5 {
			transfer := client.Transfer("acme:mint", "acme:cash", int64(i+1))
			transfer.Note = []byte{'n', '\n', 0xff}
			transfer.Postings[1].Amount = ledger.MaxAmount
			transfer.Postings[0].Amount, _ = ledger.MaxAmount.Neg()
			transfer.Records = []ledger.Record{{Key: "acme:r", Value: []byte("v")}}
			transfers = append(transfers, transfer)
		}
		block = ledgertest.After(block, client.Bundle(transfers...))
	}
	return f
}

// content returns the files of a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(text)
	}
	return files
}

func run(t *testing.T, dir string, from *fixed, to ledger.Height, rows int) (journal.Written,
	error) {
	t.Helper()
	return export(t.Context(), dir, from, journal.Options{To: to}, rows)
}

// The files have the rows of all blocks, in their order.
func TestRows(t *testing.T) {
	t.Parallel()
	f, dir := chain("book"), t.TempDir()
	if _, err := run(t, dir, f, 30, 100); err != nil {
		t.Fatal(err)
	}
	var want, got []row
	for _, block := range f.blocks {
		if err := journal.Rows(f, block, func(r *journal.Row) error {
			made, _ := columnsOf(r, block.Header.Time)
			want = append(want, made)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	files := content(t, dir)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		rows, err := parquet.Read[row](strings.NewReader(files[name]), int64(len(files[name])))
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		got = append(got, rows...)
	}
	text := func(p *string) string {
		if p == nil {
			return "null"
		}
		return *p
	}
	if len(got) != len(want) || len(files) < 3 {
		t.Fatalf("%d rows in %d files, want %d", len(got), len(files), len(want))
	}
	largest := 0
	for i := range want {
		a, b := got[i], want[i]
		if a.Type != b.Type || a.Height != b.Height || !a.Time.Equal(b.Time) ||
			text(a.ID) != text(b.ID) || text(a.Account) != text(b.Account) ||
			text(a.Amount) != text(b.Amount) ||
			text(a.AmountDecimal) != text(b.AmountDecimal) ||
			(a.Amount != nil && a.Height >= 7) != (a.AmountDecimal != nil) ||
			text(a.Note) != text(b.Note) ||
			text(a.Value) != text(b.Value) || (a.Index == nil) != (b.Index == nil) ||
			text(a.Hash) != text(b.Hash) || text(a.Outcome) != text(b.Outcome) {
			t.Fatalf("row %d: %+v, want %+v", i, a, b)
		}
		if text(a.Amount) == ledger.MaxAmount.String() {
			largest++
		}
	}
	if largest == 0 {
		t.Error("no row has the largest amount")
	}
}

// An export that ends at any block goes on, and the files are the same as without that. So they are
// if the chain has grown since.
func TestResume(t *testing.T) {
	t.Parallel()
	const rows = 60
	f := chain("book")
	whole := t.TempDir()
	if _, err := run(t, whole, f, 30, rows); err != nil {
		t.Fatal(err)
	}
	want := content(t, whole)
	for at := ledger.Height(1); at <= 30; at++ {
		killed, grown := t.TempDir(), t.TempDir()
		interrupted := *f
		interrupted.failsAt = at
		if _, err := run(t, killed, &interrupted, 30, rows); !errors.Is(err, errKilled) {
			t.Fatalf("%v at block %d", err, at)
		}
		if _, left := content(t, killed)[partial]; !left {
			t.Errorf("block %d: there is no partial file", at)
		}
		if _, err := run(t, grown, f, at, rows); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{killed, grown} {
			written, err := run(t, dir, f, 30, rows)
			if err != nil || written.From > at+1 {
				t.Fatalf("block %d: %+v %v", at, written, err)
			}
			if got := content(t, dir); !maps.Equal(got, want) {
				t.Fatalf("block %d: the files differ: %v, want %v", at,
					slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	}
}

// A folder with anything else stays as it is.
func TestOther(t *testing.T) {
	t.Parallel()
	const rows = 60
	f := chain("book")
	for name, spoil := range map[string]func(dir string) error{
		"another file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600)
		},
		"another chain": func(dir string) error {
			_, err := run(t, dir, chain("other"), 9, rows)
			return err
		},
		"a gap": func(dir string) error {
			if _, err := run(t, dir, f, 30, rows); err != nil {
				return err
			}
			return os.Remove(filepath.Join(dir, slices.Sorted(maps.Keys(content(t, dir)))[1]))
		},
		"damage": func(dir string) error {
			if _, err := run(t, dir, f, 30, rows); err != nil {
				return err
			}
			path := filepath.Join(dir, slices.Sorted(maps.Keys(content(t, dir)))[0])
			return os.WriteFile(path, bytes.Repeat([]byte("x"), 100), 0o600)
		},
	} {
		dir := t.TempDir()
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		before := content(t, dir)
		if _, err := run(t, dir, f, 30, rows); !errors.Is(err, journal.ErrOther) ||
			!maps.Equal(content(t, dir), before) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	if _, err := run(t, dir, f, 30, rows); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, dir, f, 3, rows); !errors.Is(err, journal.ErrOther) {
		t.Errorf("a folder with more blocks: %v", err)
	}
}
