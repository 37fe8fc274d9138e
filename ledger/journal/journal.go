package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/ledger"
)

// Source is the chain of a shard, as a store or a client has it.
type Source interface {
	// Genesis returns the beginning of the chain.
	Genesis() *ledger.Genesis
	// Block returns the block at a height from 1 on.
	Block(height ledger.Height) (*ledger.Block, error)
	// Certificate returns the certificate of the block at a height, or nil if there is none.
	Certificate(height ledger.Height) (*ledger.Certificate, error)
	// Crossing returns a transaction that waited for other shards.
	Crossing(id ledger.Hash) (Crossing, error)
	// Account returns an account of this shard.
	Account(path ledger.AccountPath) (ledger.Account, error)
	// Asset returns a registered asset, as the chain has it now.
	Asset(name ledger.AssetName) (ledger.Asset, bool)
}

// DecimalsOf returns with how many decimals amounts of an asset are written after a block: 0 until
// the chain has its registration. Decimals never change.
func DecimalsOf(source Source, name ledger.AssetName, after ledger.Height) int {
	asset, known := source.Asset(name)
	if !known || asset.Registered > after {
		return 0
	}
	return int(asset.Decimals)
}

// Crossing is a transaction of several shards.
type Crossing struct {
	Transaction *ledger.Transaction
	// Here reports whether this shard had the accounts of an organisation when it set its part of
	// the transaction aside.
	Here func(organisation ledger.OrganisationName) bool
}

// Options of an export.
type Options struct {
	// To is the last block.
	To ledger.Height
	// Proofs writes the proof of each entry beside it. Only jsonl has them. The work for a block
	// grows with the square of its entries.
	Proofs bool
	// Progress is called after each block.
	Progress func(height, to ledger.Height)
}

// ErrRegistered means that an asset was registered after amounts of it were written as whole
// numbers. Sums of those and of amounts with decimals would be wrong.
var ErrRegistered = errors.New("journal: an asset was registered since the file was written, and " +
	"its amounts have decimals now")

// ErrFormat means that there is no such format.
var ErrFormat = errors.New("journal: no such format")

// Format is a format of lines. The zero value is not usable: call FormatOf.
type Format struct {
	name string
	// block and end begin the first line of a block, and the last line of the file.
	block, end string
	// mark returns height and hash from the first line of a block.
	mark func(line []byte) (ledger.Height, ledger.Hash, error)
	make func(out *bufio.Writer, source Source, options *Options) writer
}

// Name returns the format's name.
func (f *Format) Name() string { return f.name }

// writer writes a journal. Its methods leave errors of the output to bufio.Writer.
type writer interface {
	// begin writes what is before the first block.
	begin() error
	// recall takes each line that an earlier run has written and that begins with recalled. It
	// returns ErrRegistered if what was written no longer fits.
	recall(line []byte) error
	writeBlock(block *ledger.Block) error
	// finish writes what is after the last block.
	finish(last *ledger.Block) error
}

// formats are the formats, by the order in which they are shown.
var formats = []Format{jsonl, csvTable, beancount, hledger}

// FormatOf returns the format of a name, or ErrFormat.
func FormatOf(name string) (*Format, error) {
	for i := range formats {
		if formats[i].name == name {
			return &formats[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrFormat, name)
}

// FormatNames returns the names of all formats of lines.
func FormatNames() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

// Export writes the journal of the blocks from 1 to Options.To.
func Export(ctx context.Context, out io.Writer, source Source, format *Format,
	options Options) error {
	buffered := bufio.NewWriterSize(out, 1<<16)
	to := format.make(buffered, source, &options)
	err := to.begin()
	if err == nil {
		err = exportFrom(ctx, to, source, 1, &options)
	}
	return errors.Join(err, buffered.Flush())
}

// exportFrom writes the blocks from a height on, and the end.
func exportFrom(ctx context.Context, to writer, source Source, from ledger.Height,
	options *Options) error {
	last := source.Genesis().Block()
	for height := from; height <= options.To; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := source.Block(height)
		if err != nil {
			return fmt.Errorf("journal: block %d: %w", height, err)
		}
		if err := to.writeBlock(block); err != nil {
			return fmt.Errorf("journal: block %d: %w", height, err)
		}
		if options.Progress != nil {
			options.Progress(height, options.To)
		}
		last = block
	}
	return to.finish(last)
}
