package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
)

const (
	// fileRows is the number of rows at which a file ends, with the block that reaches it.
	fileRows = 1 << 20
	// groupBytes is the size of the texts at which a group of rows ends, which is what the writer
	// holds in memory.
	groupBytes = 32 << 20
	groupRows  = 1 << 16
	// partial ends the name of the file that is being written.
	partial = ".partial"

	genesisKey = "ledgerd.genesis"
	hashKey    = "ledgerd.last_block"
)

// row is a journal.Row as columns. Values that a row does not have are null.
type row struct {
	Type         string    `parquet:"type,dict"`
	Height       int64     `parquet:"height,delta"`
	Index        *int32    `parquet:"index,optional"`
	Time         time.Time `parquet:"time,timestamp(millisecond)"`
	ID           *string   `parquet:"id,optional"`
	Outcome      *string   `parquet:"outcome,optional,dict"`
	Reason       *string   `parquet:"reason,optional,dict"`
	Signer       *string   `parquet:"signer,optional,dict"`
	Organisation *string   `parquet:"organisation,optional,dict"`
	Account      *string   `parquet:"account,optional,dict"`
	Asset        *string   `parquet:"asset,optional,dict"`
	// Amount is text: amounts have up to 39 digits, and decimals of Parquet 38.
	Amount        *string `parquet:"amount,optional"`
	AmountDecimal *string `parquet:"amount_decimal,optional"`
	Key           *string `parquet:"key,optional"`
	Value         *string `parquet:"value,optional"`
	Note          *string `parquet:"note,optional"`
	Hash          *string `parquet:"hash,optional"`
}

// columnsOf returns a row as columns, and the size of its texts.
func columnsOf(r *journal.Row, at ledger.Milliseconds) (row, int) {
	size := 64
	text := func(value string) *string {
		if size += len(value); value == "" {
			return nil
		}
		return &value
	}
	made := row{Type: r.Type, Height: int64(r.Height), Time: time.UnixMilli(int64(at)).UTC(),
		ID: text(r.ID), Outcome: text(r.Outcome), Reason: text(r.Reason), Signer: text(r.Signer),
		Organisation: text(r.Organisation), Account: text(r.Account), Asset: text(r.Asset),
		Amount: text(r.Amount), AmountDecimal: text(r.AmountDecimal), Key: text(r.Key),
		Value: text(r.Value), Note: text(r.Note), Hash: text(r.Hash)}
	if r.Index >= 0 {
		index := int32(r.Index)
		made.Index = &index
	}
	return made, size
}

// ExportFolder writes the blocks up to Options.To into a folder of Parquet files, and goes on with
// what is there. If the folder has anything else, it changes nothing and returns journal.ErrOther.
func ExportFolder(ctx context.Context, dir string, source journal.Source,
	options journal.Options) (journal.Written, error) {
	return export(ctx, dir, source, options, fileRows)
}

func export(ctx context.Context, dir string, source journal.Source, options journal.Options,
	rows int) (journal.Written, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return journal.Written{}, fmt.Errorf("parquet: %w", err)
	}
	from, err := resume(dir, source, options.To, rows)
	if err != nil {
		return journal.Written{}, err
	}
	written := journal.Written{From: from, To: options.To}
	for next := from; next <= options.To; {
		if next, err = exportFile(ctx, dir, source, next, &options, rows); err != nil {
			return written, err
		}
	}
	return written, nil
}

// nameOf returns the name of the file with some blocks. The names are in the order of the blocks.
func nameOf(first, last ledger.Height) string {
	return fmt.Sprintf("blocks-%012d-%012d.parquet", first, last)
}

// resume finds the block with which the export goes on, and removes a file that is not full or not
// whole.
func resume(dir string, source journal.Source, to ledger.Height, rows int) (ledger.Height, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return 0, fmt.Errorf("parquet: %w", err)
	}
	other := func(format string, arguments ...any) error {
		return fmt.Errorf("%w than blocks of this chain in %s: %w", journal.ErrOther, dir,
			fmt.Errorf(format, arguments...))
	}
	next := ledger.Height(1)
	var obsolete []string
	for i, entry := range entries {
		if entry.Name() == partial {
			obsolete = append(obsolete, partial)
			continue
		}
		var first, last ledger.Height
		if _, err := fmt.Sscanf(entry.Name(), "blocks-%d-%d.parquet", &first, &last); err != nil ||
			entry.Name() != nameOf(first, last) || first != next || last < first || last > to {
			return 0, other("%s has no place there", entry.Name())
		}
		count, err := check(filepath.Join(dir, entry.Name()), source, last)
		if err != nil {
			return 0, other("%s: %w", entry.Name(), err)
		}
		if count < int64(rows) {
			if i < len(entries)-1 {
				return 0, other("%s is small, and not the last one", entry.Name())
			}
			obsolete = append(obsolete, entry.Name())
			continue
		}
		next = last + 1
	}
	for _, name := range obsolete {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return 0, fmt.Errorf("parquet: %w", err)
		}
	}
	return next, nil
}

// check checks that a file has blocks of this chain, and returns the number of its rows.
func check(path string, source journal.Source, last ledger.Height) (_ int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	opened, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		return 0, err
	}
	genesis, _ := opened.Lookup(genesisKey)
	hash, _ := opened.Lookup(hashKey)
	if genesis != source.Genesis().Hash().String() {
		return 0, errors.New("it is of another chain")
	}
	block, err := source.Block(last)
	if err != nil {
		return 0, err
	}
	if block.Hash.String() != hash {
		return 0, fmt.Errorf("block %d is %s there, and %s here", last, hash, block.Hash)
	}
	return opened.NumRows(), nil
}

// exportFile writes the file that begins with a block, and returns the block after the file.
func exportFile(ctx context.Context, dir string, source journal.Source, first ledger.Height,
	options *journal.Options, rows int) (next ledger.Height, err error) {
	path := filepath.Join(dir, partial)
	file, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("parquet: %w", err)
	}
	last, err := write(ctx, file, source, first, options, rows)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, fmt.Errorf("parquet: %w", err)
	}
	if err := os.Rename(path, filepath.Join(dir, nameOf(first, last))); err != nil {
		return 0, fmt.Errorf("parquet: %w", err)
	}
	return last + 1, nil
}

// write writes blocks from first on, until there are enough rows.
func write(ctx context.Context, file io.Writer, source journal.Source, first ledger.Height,
	options *journal.Options, rows int) (last ledger.Height, err error) {
	to := parquet.NewGenericWriter[row](file, parquet.Compression(&snappy.Codec{}),
		parquet.CreatedBy("ledgerd", "1", ""),
		parquet.KeyValueMetadata(genesisKey, source.Genesis().Hash().String()))
	all, held, bytes := 0, 0, 0
	for height := first; height <= options.To && all < rows; height++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		block, err := source.Block(height)
		if err != nil {
			return 0, fmt.Errorf("block %d: %w", height, err)
		}
		err = journal.Rows(source, block, func(r *journal.Row) error {
			made, size := columnsOf(r, block.Header.Time)
			all, held, bytes = all+1, held+1, bytes+size
			if _, err := to.Write([]row{made}); err != nil {
				return err
			}
			if held < groupRows && bytes < groupBytes {
				return nil
			}
			held, bytes = 0, 0
			return to.Flush()
		})
		if err != nil {
			return 0, fmt.Errorf("block %d: %w", height, err)
		}
		to.SetKeyValueMetadata(hashKey, block.Hash.String())
		if options.Progress != nil {
			options.Progress(height, options.To)
		}
		last = height
	}
	return last, to.Close()
}
