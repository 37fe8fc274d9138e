package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrOther means that a file has something else than the beginning of the journal that is to be
// written.
var ErrOther = errors.New("journal: the file has something else")

// Written is what ExportFile did.
type Written struct {
	// From is the first block that this run wrote. It is above 1 if an earlier run had written the
	// blocks before.
	From ledger.Height
	To   ledger.Height
}

// ExportFile writes a journal to a file. If the file has the beginning of the same journal, it
// goes on there: it keeps all blocks before the last one that the file begins, and writes that one
// and all later ones. So the file is the same as if there had been no interruption, wherever an
// earlier run ended, even if it was killed or the machine lost power. A journal that is whole goes
// on too, if the chain has more blocks by now.
//
// If the file begins otherwise, or its last block is not in the chain, ExportFile changes nothing
// and returns ErrOther; if an asset of it was registered since, ErrRegistered. It does not compare
// the blocks before that: Verify does.
func ExportFile(ctx context.Context, path string, source Source, format *Format,
	options Options) (written Written, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return written, fmt.Errorf("journal: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<16)
	to := format.make(out, source, &options)
	var head bytes.Buffer
	first := bufio.NewWriter(&head)
	if err := errors.Join(format.make(first, source, &options).begin(), first.Flush()); err != nil {
		return written, err
	}
	keep, from, err := kept(ctx, file, source, format, head.Bytes(), to)
	if from > max(options.To, 1) {
		return written, fmt.Errorf("%w: %s has blocks up to %d, and the export ends at block %d",
			ErrOther, path, from, options.To)
	}
	if err != nil {
		return written, fmt.Errorf("%w: %s", err, path)
	}
	if err := file.Truncate(keep); err != nil {
		return written, fmt.Errorf("journal: %w", err)
	}
	if _, err := file.Seek(keep, io.SeekStart); err != nil {
		return written, fmt.Errorf("journal: %w", err)
	}
	if keep == 0 {
		if _, err := out.Write(head.Bytes()); err != nil {
			return written, fmt.Errorf("journal: %w", err)
		}
	}
	written = Written{From: from, To: options.To}
	err = exportFrom(ctx, to, source, from, &options)
	// An interrupted export leaves what it has: the next run goes on there.
	if err = errors.Join(err, out.Flush()); err != nil {
		return written, err
	}
	return written, file.Sync()
}

// kept finds how much of a file stays, and with which block the export goes on. It shows the
// writer the lines that stay.
func kept(ctx context.Context, file io.Reader, source Source, format *Format, head []byte,
	to writer) (keep int64, from ledger.Height, err error) {
	in := bufio.NewReaderSize(file, 1<<18)
	begun := make([]byte, len(head))
	n, err := io.ReadFull(in, begun)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, 0, fmt.Errorf("journal: %w", err)
	}
	if !bytes.HasPrefix(head, begun[:n]) {
		return 0, 0, fmt.Errorf("%w than the beginning of this journal", ErrOther)
	}
	if n < len(head) {
		return 0, 1, nil
	}
	var mark []byte // the line that begins the last block
	var since [][]byte
	var outdated error
	keep, from = int64(n), 1
	at := keep
	for line := []byte(nil); ; line = line[:0] {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		var whole bool
		if line, whole, err = readLine(in, line); err != nil {
			return 0, 0, fmt.Errorf("journal: %w", err)
		}
		// No format has a zero byte. After a loss of power a file may have them in its middle,
		// where what was written later reached the disk and this did not.
		if !whole || bytes.IndexByte(line, 0) >= 0 {
			break
		}
		if bytes.HasPrefix(line, []byte(format.block)) {
			for _, each := range since {
				outdated = errors.Join(outdated, to.recall(each))
			}
			since, mark, keep = since[:0], bytes.Clone(line), at
		}
		if bytes.HasPrefix(line, []byte(recalled)) {
			since = append(since, bytes.Clone(line))
		}
		at += int64(len(line))
	}
	if mark == nil {
		return keep, 1, nil
	}
	height, hash, err := format.mark(mark)
	if err != nil {
		return 0, 0, fmt.Errorf("%w than blocks: %w", ErrOther, err)
	}
	block, err := source.Block(height)
	if err != nil {
		return 0, 0, fmt.Errorf("%w than blocks of this chain: it has block %d: %w", ErrOther,
			height, err)
	}
	if block.Hash != hash {
		return 0, 0, fmt.Errorf("%w than blocks of this chain: block %d is %s here, and %s there",
			ErrOther, height, block.Hash, hash)
	}
	return keep, height, outdated
}

// recalled begins the lines that a writer has to know when it goes on.
const recalled = "; asset "

// readLine appends the next line to a buffer. A line without an end is not whole.
func readLine(in *bufio.Reader, line []byte) ([]byte, bool, error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, true, nil
		case errors.Is(err, io.EOF):
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, false, err
		}
	}
}
