package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
)

// Source is where the chains come from. A client.Client is one.
type Source interface {
	// Shards returns how many shards the book has.
	Shards(ctx context.Context) (int, error)
	// ShardGenesis returns the beginning of a shard's chain.
	ShardGenesis(ctx context.Context, shard ledger.ShardID) (*ledger.Genesis, error)
	// ReadChain returns durable blocks of a shard's chain from a height on. If there is none yet,
	// it waits for so long. A block may come in many parts: the source itself bounds the time of
	// each.
	ReadChain(ctx context.Context, shard ledger.ShardID, from ledger.Height,
		wait time.Duration) (client.Chain, error)
	// TransactionIn returns a transaction of a shard's chain.
	TransactionIn(ctx context.Context, shard ledger.ShardID,
		id ledger.Hash) (*ledger.Transaction, error)
	// Rotate moves on to another node, since this one is behind or too old.
	Rotate()
}

var _ Source = (*client.Client)(nil)

// Target is the system that entries are streamed to. It is safe for concurrent use.
type Target interface {
	// Open connects to the target for the stream of one chain. The caller closes the lane.
	Open(ctx context.Context, chain Chain) (Lane, error)
	// KeepsMarks reports whether lanes keep the mark of a batch without records, too. Those that
	// keep it as part of the last record do not.
	KeepsMarks() bool
	// Close ends what the lanes share, once all of them are closed.
	Close() error
}

// Lane is a target for the stream of one chain. One goroutine uses it. After an error the caller
// closes it and opens another one.
type Lane interface {
	// Mark returns the place up to which the target has everything, or nil if it has nothing.
	Mark(ctx context.Context) (*Mark, error)
	// Write writes a batch that begins right after the mark. If it returns nil, the target has all
	// of it, and keeps it. After an error it may have all, a beginning, or nothing of it.
	Write(ctx context.Context, batch *Batch) error
	Close() error
}

// Chain is the chain that a stream is of.
type Chain struct {
	Name    string      // of the ledger
	Genesis ledger.Hash // of the shard's chain
	Shard   ledger.ShardID
}

// Position is the place of an entry: it is what makes a record unique.
type Position struct {
	Shard  ledger.ShardID `json:"shard"`
	Height ledger.Height  `json:"height"`
	Index  int            `json:"index"` // of the entry in its block
}

// String returns the position as SHARD/HEIGHT/INDEX.
func (p Position) String() string { return fmt.Sprintf("%d/%d/%d", p.Shard, p.Height, p.Index) }

// ParsePosition parses what Position.String returns.
func ParsePosition(text string) (p Position, err error) {
	var end string
	n, _ := fmt.Sscanf(text+" .", "%d/%d/%d %s", &p.Shard, &p.Height, &p.Index, &end)
	if n != 4 || p.Index < 0 || p.String() != text {
		return Position{}, fmt.Errorf("sink: %q is no position: one looks like 0/12/3", text)
	}
	return p, nil
}

// After reports whether a position of the same chain comes after another one.
func (p Position) After(other Position) bool {
	return p.Height > other.Height || p.Height == other.Height && p.Index > other.Index
}

// Mark is a position in a certain chain.
type Mark struct {
	Position
	Genesis ledger.Hash `json:"genesis"` // of the chain
	Block   ledger.Hash `json:"block"`   // the hash of the block at the height
}

// Record is an entry in the stream.
type Record struct {
	Mark
	Time    ledger.Milliseconds // of the block
	ID      ledger.Hash
	Outcome string // as in a journal
	Code    ledger.Code
	Reason  string // why it failed
	Signer  ledger.OrganisationName
	// About is the transaction that the entry is the verdict on, or zero.
	About    ledger.Hash
	Postings []ledger.Posting
	Line     []byte // the entry's line in a journal, in JSON
}

// Batch is a part of a stream.
type Batch struct {
	Chain Chain
	// After is the mark before the batch, nil at the beginning of the stream.
	After *Mark
	// Records are those that the filter lets through. There may be none.
	Records []Record
	// Through is the mark after the batch: the target has then everything up to it.
	Through Mark
}

// newRecord returns the record of an entry.
func newRecord(chain Chain, block *ledger.Block, index int, entry *ledger.Entry,
	t *ledger.Transaction) (Record, error) {
	line, err := journal.EntryLine(block, index, entry)
	if err != nil {
		return Record{}, fmt.Errorf("sink: block %d, entry %d: %w", block.Header.Height, index, err)
	}
	record := Record{Mark: markOf(chain, block, index), Time: block.Header.Time, ID: entry.ID,
		Code: entry.Result.Code, Signer: t.Signer, Postings: t.Postings, Line: line}
	record.Outcome, record.Reason = journal.OutcomeOf(entry)
	if t.Verdict != nil {
		record.About = t.Verdict.ID
	}
	return record, nil
}

func markOf(chain Chain, block *ledger.Block, index int) Mark {
	return Mark{Position: Position{Shard: chain.Shard, Height: block.Header.Height, Index: index},
		Genesis: chain.Genesis, Block: block.Hash}
}

// ErrRefused marks an error that no retry mends. Its text says what to do.
var ErrRefused = errors.New("sink: refused")

// refusal is an error that matches ErrRefused and does not show it.
type refusal struct{ error }

func (r *refusal) Unwrap() error        { return r.error }
func (r *refusal) Is(target error) bool { return target == ErrRefused }

// Refuse makes an error that ends a stream for good.
func Refuse(format string, arguments ...any) error {
	return &refusal{fmt.Errorf(format, arguments...)}
}
