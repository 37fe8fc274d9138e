package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledgerd/ledger"
)

// maxProblems bounds the problems that Verify lists.
const maxProblems = 20

// ErrWrong means that a journal does not hold.
var ErrWrong = errors.New("journal: it does not hold")

// Problem is what is wrong with a line.
type Problem struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// Verified is what Verify found.
type Verified struct {
	Chain ledger.Hash
	Shard ledger.ShardID
	Lines int
	// Height and Hash are those of the last block that is right.
	Height       ledger.Height
	Hash         ledger.Hash
	Transactions uint64
	// Certificates is the number of certificates, and Certified the height of the last one. Blocks
	// up to it are final. Later ones follow from it, and nobody vouches for them.
	Certificates int
	Certified    ledger.Height
	// Problems are the first lines that are wrong, in order.
	Problems []Problem
}

// Verify checks a journal in JSON lines with nothing but the genesis of its book: the chain of
// hashes from the genesis on, the roots of each block over its transactions, results and bundles,
// the signatures of all transactions, and the certificates by the members of their time. It
// believes no word: it makes each line again from what it checked, and compares the bytes.
//
// It returns ErrWrong if something is wrong, and what that is in Problems. It goes on after a wrong
// word, and ends at the first block or certificate that does not hold.
func Verify(ctx context.Context, in io.Reader, genesis *ledger.Genesis,
	progress func(height ledger.Height)) (Verified, error) {
	v := &verifier{in: bufio.NewReaderSize(in, 1<<16)}
	err := v.verify(ctx, genesis, progress)
	if wrong := (*lineError)(nil); errors.As(err, &wrong) {
		v.problem(wrong.line, wrong.err.Error())
	} else if err != nil {
		return v.found, err
	}
	v.found.Lines = v.number
	if len(v.found.Problems) > 0 {
		return v.found, ErrWrong
	}
	return v.found, nil
}

// lineError ends a verification.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

func (e *lineError) Unwrap() error { return e.err }

// verifier reads a journal.
type verifier struct {
	in     *bufio.Reader
	number int // of the last line that was read
	// taken are the last lines that were read and not compared yet.
	taken   [][]byte
	auditor *ledger.Auditor
	lines   lines // writes to expected
	// expected gets what the lines must be.
	expected bytes.Buffer
	found    Verified
}

func (v *verifier) problem(line int, reason string) {
	if len(v.found.Problems) < maxProblems {
		v.found.Problems = append(v.found.Problems, Problem{line, reason})
	}
}

// wrong returns the error that the last line that was read is wrong.
func (v *verifier) wrong(format string, arguments ...any) error {
	return &lineError{v.number, fmt.Errorf(format, arguments...)}
}

// next reads a line, which has to be compared later, or returns io.EOF.
func (v *verifier) next() ([]byte, error) {
	var line []byte
	for {
		part, err := v.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			v.number++
			v.taken = append(v.taken, line)
			return line, nil
		case len(line) > maxLine:
			v.number++
			return nil, v.wrong("it has more than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			v.number++
			return nil, v.wrong("it is cut short: the export was interrupted, run it again")
		}
		return nil, err
	}
}

// compare compares the expected bytes with the lines that were taken and, if there are more, with
// the next ones. It fails if those end.
func (v *verifier) compare() error {
	if err := v.lines.out.Flush(); err != nil {
		return err
	}
	for rest := v.expected.Bytes(); len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		want := rest[:end]
		rest = rest[end:]
		if len(v.taken) == 0 {
			if _, err := v.next(); errors.Is(err, io.EOF) {
				return &lineError{v.number + 1, fmt.Errorf("the journal ends within block %d: "+
					"the export was interrupted, run it again", v.found.Height)}
			} else if err != nil {
				return err
			}
		}
		got, number := v.taken[0], v.number-len(v.taken)+1
		if v.taken = v.taken[1:]; !bytes.Equal(got, want) {
			v.problem(number, difference(got, want))
		}
	}
	v.expected.Reset()
	return nil
}

// difference says where a line differs from what it must be.
func difference(got, want []byte) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	const shown = 40
	around := func(text []byte) string {
		return string(bytes.TrimRight(text[max(0, at-shown/2):min(len(text), at+shown)], "\n"))
	}
	return fmt.Sprintf("it does not say what the block says, from byte %d on: it is …%q…, and "+
		"must be …%q…", at+1, around(got), around(want))
}

func (v *verifier) verify(ctx context.Context, genesis *ledger.Genesis,
	progress func(height ledger.Height)) error {
	v.lines.out = bufio.NewWriter(&v.expected)
	first, err := v.next()
	if errors.Is(err, io.EOF) {
		return &lineError{1, errors.New("the file is empty")}
	}
	if err != nil {
		return err
	}
	if genesis, err = v.head(first, genesis); err != nil {
		return err
	}
	v.auditor, v.found.Chain = ledger.NewAuditor(genesis), genesis.Hash()
	v.found.Shard, v.found.Hash = genesis.Shard, v.found.Chain
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := v.next()
		if errors.Is(err, io.EOF) {
			return &lineError{v.number + 1, errors.New("the line with the end is missing: the " +
				"export was interrupted, run it again")}
		}
		if err != nil {
			return err
		}
		kind, err := typeOf(line)
		if err != nil {
			return v.wrong("%w", err)
		}
		switch kind {
		case "block":
			if err := v.block(line); err != nil {
				return err
			}
			if progress != nil {
				progress(v.found.Height)
			}
		case "certificate":
			if err := v.certificate(line); err != nil {
				return err
			}
		case "end":
			return v.end()
		default:
			return v.wrong("a line of type %.40q has no place here", kind)
		}
	}
}

// head checks the first line, and returns the genesis of the journal's shard.
func (v *verifier) head(line []byte, genesis *ledger.Genesis) (*ledger.Genesis, error) {
	var head journalLine
	if err := json.Unmarshal(line, &head); err != nil || head.Type != "journal" {
		return nil, v.wrong("it is not the first line of a journal in JSON lines")
	}
	if head.Version != linesVersion {
		return nil, v.wrong("its version is %d: use a newer version of ledgerd", head.Version)
	}
	if head.Shard != genesis.Shard && int64(head.Shard) < int64(genesis.BookShards()) {
		var err error
		if genesis, err = genesis.ForShard(head.Shard); err != nil {
			return nil, err
		}
	}
	if head.Genesis != genesis.Hash() {
		return nil, v.wrong("it is the journal of the chain %s, and the genesis is that of %s",
			head.Genesis, genesis.Hash())
	}
	v.lines.proofs = head.Proofs
	if err := v.lines.head(genesis); err != nil {
		return nil, err
	}
	return genesis, v.compare()
}

// block checks the lines of a block, of which the first one was read.
func (v *verifier) block(line []byte) error {
	block, encoded, err := v.take(line)
	if err != nil {
		return err
	}
	if err := ledger.VerifySignatures(block); err != nil {
		return v.wrong("block %d: %w", block.Header.Height, err)
	}
	if err := v.lines.block(block, encoded); err != nil {
		return err
	}
	return v.compare()
}

// take returns the block that a line begins, which has to follow the last one, and its encoding.
func (v *verifier) take(line []byte) (*ledger.Block, []byte, error) {
	var head blockLine
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, nil, v.wrong("it does not begin a block: %w", err)
	}
	begins := v.number
	var encoded []byte
	for len(encoded) < head.Bytes {
		line, err := v.next()
		if errors.Is(err, io.EOF) {
			return nil, nil, &lineError{v.number + 1, fmt.Errorf("the journal ends within "+
				"block %d: the export was interrupted, run it again", head.Height)}
		}
		if err != nil {
			return nil, nil, err
		}
		var part partLine
		if err := json.Unmarshal(line, &part); err != nil || part.Type != "part" ||
			len(part.Encoded) == 0 {
			return nil, nil, v.wrong("it is no part of block %d", head.Height)
		}
		encoded = append(encoded, part.Encoded...)
	}
	block, err := ledger.DecodeBlock(encoded)
	if err != nil {
		return nil, nil, v.wrong("block %d: %w", head.Height, err)
	}
	if err := v.follows(block); err != nil {
		return nil, nil, &lineError{begins, err}
	}
	v.found.Height, v.found.Hash = block.Header.Height, block.Hash
	v.found.Transactions = block.Header.Total
	return block, encoded, nil
}

// follows checks that a block is the one after the last one.
func (v *verifier) follows(block *ledger.Block) error {
	h := &block.Header
	switch {
	case h.Height != v.found.Height+1:
		return fmt.Errorf("it is block %d, after block %d", h.Height, v.found.Height)
	case h.Previous != v.found.Hash:
		return fmt.Errorf("block %d is not the one after block %d: it follows %s, and that is %s",
			h.Height, v.found.Height, h.Previous, v.found.Hash)
	case h.Total != v.found.Transactions+uint64(block.Len()):
		return fmt.Errorf("block %d counts %d transactions, and there are %d", h.Height, h.Total,
			v.found.Transactions+uint64(block.Len()))
	}
	return nil
}

// certificate checks the certificate of the last block.
func (v *verifier) certificate(line []byte) error {
	var head certificateLine
	if err := json.Unmarshal(line, &head); err != nil {
		return v.wrong("it is no certificate: %w", err)
	}
	c, err := ledger.DecodeCertificate(head.Encoded)
	if err != nil {
		return v.wrong("the certificate: %w", err)
	}
	if c.Height != v.found.Height || c.Hash != v.found.Hash || c.Height == v.found.Certified {
		return v.wrong("it certifies block %d %s, after block %d %s", c.Height, c.Hash,
			v.found.Height, v.found.Hash)
	}
	if c.Change != nil {
		if c.Epoch != v.auditor.Members().Epoch {
			return v.wrong("%w: block %d is certified by members of epoch %d, not %d",
				ledger.ErrCertificate, c.Height, c.Epoch, v.auditor.Members().Epoch)
		}
		err = v.auditor.Follow(c)
	} else {
		err = v.auditor.Check(c)
	}
	if err != nil {
		return v.wrong("%w", err)
	}
	v.found.Certificates++
	v.found.Certified = c.Height
	if err := v.lines.certificate(c); err != nil {
		return err
	}
	return v.compare()
}

// end checks the last line, which was read.
func (v *verifier) end() error {
	if err := v.lines.finish(&ledger.Block{Hash: v.found.Hash, Header: ledger.Header{
		Height: v.found.Height, Total: v.found.Transactions}}); err != nil {
		return err
	}
	if err := v.compare(); err != nil {
		return err
	}
	if _, err := v.next(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = v.wrong("there is more after the end")
		}
		return err
	}
	return nil
}
