package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/ledger"
)

// Is reports whether a file that begins like this is a journal in JSON lines.
func Is(begin []byte) bool { return bytes.HasPrefix(begin, []byte(`{"type":"journal",`)) }

// Reader reads the blocks of a journal in JSON lines.
type Reader struct {
	in   verifier
	head journalLine
}

// NewReader reads the first line of a journal, or returns ErrWrong.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: verifier{in: bufio.NewReaderSize(in, 1<<16)}}
	line, err := r.in.next()
	if err == nil {
		err = json.Unmarshal(line, &r.head)
	}
	if err != nil || r.head.Type != "journal" || r.head.Version != linesVersion {
		return nil, fmt.Errorf("%w: line 1 is not the first line of a journal in JSON lines of "+
			"version %d", ErrWrong, linesVersion)
	}
	r.in.found.Hash, r.in.found.Shard = r.head.Genesis, r.head.Shard
	return r, nil
}

// Book returns the book that the chain is part of.
func (r *Reader) Book() ledger.Hash { return r.head.Book }

// Shard returns the shard of the chain, and how many the book had when the chain began.
func (r *Reader) Shard() (shard ledger.ShardID, shards int) { return r.head.Shard, r.head.Shards }

// Next returns the next block, or io.EOF. It checks the block's roots and that it follows the one
// before it, and nothing else: Verify checks who signed. Its error is ErrWrong if the journal does
// not hold, or ends before its end.
func (r *Reader) Next() (*ledger.Block, error) {
	for {
		r.in.taken = nil
		line, err := r.in.next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the line with the end is missing", ErrWrong)
		}
		if err != nil {
			return nil, asWrong(err)
		}
		switch {
		case bytes.HasPrefix(line, []byte(jsonl.end)):
			return nil, io.EOF
		case bytes.HasPrefix(line, []byte(jsonl.block)):
			block, _, err := r.in.take(line)
			return block, asWrong(err)
		}
	}
}

// asWrong turns the error of a line into ErrWrong.
func asWrong(err error) error {
	if wrong := (*lineError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%w: %w", ErrWrong, wrong)
	}
	return err
}
