package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Bounds of the lines under way.
const (
	bundleLines = 125
	// The size of the transactions at which a bundle is full; one more of the largest still fits.
	enoughBytes = ledger.MaxBundleBytes / 2
	maxAhead    = 1_000 // lines of one nonce stream
	// Lines in all, if they take turns in nonceStreams streams.
	maxAheadSpread   = 8_000
	maxAheadBytes    = 32 << 20 // of the file
	maxKeptFailures  = 1_000
	progressInterval = 200 * time.Millisecond
	saveInterval     = 2 * time.Second
)

// A line under way must not fall out of its stream's window.
var (
	_ [ledger.WindowSize - maxAhead - 1]struct{}
	_ [(ledger.WindowSize-1)*nonceStreams - maxAheadSpread]struct{}
)

// Options of an import. Key is required; the zero value of each other field means its default.
type Options struct {
	// Key is the key of the importing organisation, which is registered if the ledger does not know
	// it.
	Key client.Key
	// Organisations is the number of organisations that the accounts are spread over, up to
	// MaxOrganisations; default 1, the key's. Several organisations are named after it, NAME-0 and
	// so on, have its key, and live in the shards in turn. The number can never change.
	Organisations int
	Issuers       []string // names in the file whose accounts may go below zero
	// Wait is the level at which a line counts as acknowledged: ordered, stored or durable, the
	// default.
	Wait ledgerdv1.Level
	// StopOnError ends the import when a line has failed; default: continue. The import still waits
	// for the lines that are under way then, up to 1,000.
	StopOnError bool
	// StateFolder holds the progress files; empty: none is written.
	StateFolder string
	// Progress is called several times a second, and at the end.
	Progress func(Progress)
	// Patience is how long the nodes may refuse or not answer before the import gives up; default 2
	// min.
	Patience time.Duration
	// Connect connects to members of a shard; default: as client.New does.
	Connect func(addresses []string) (Nodes, error)

	// For tests:
	planted bool   // lines do not wait for each other
	whole   bool   // no lines are packed, as in programs of before
	window  uint64 // a smaller bound on the lines under way
	few     int    // a smaller bound on the lines of a segment and of a bundle
	now     func() time.Time
}

// Progress is the progress of an import.
type Progress struct {
	Lines      uint64 // acknowledged, including skipped ones
	Skipped    uint64 // the part of Lines that an earlier run imported
	Failed     uint64
	BytesRead  int64 // of the file, as stored on the disk
	BytesTotal int64 // 0: unknown
	Elapsed    time.Duration
	PerSecond  float64 // lines acknowledged in this run, per second
	Done       bool
}

// LineFailure says why a line has no effect in the ledger.
type LineFailure struct {
	Line uint64 `json:"line"`
	// Code is a word that never changes, such as insufficient_funds or malformed_line.
	Code   string `json:"code"`
	Reason string `json:"reason"`
	ID     string `json:"id,omitempty"` // of the failed transaction, in hex
}

// Result is the result of an import.
type Result struct {
	Lines    uint64 // read and acknowledged, including blank ones
	Imported uint64 // lines whose transactions took effect, including those of earlier runs
	Failed   uint64
	Skipped  uint64        // lines known from an earlier run
	Failures []LineFailure // the first 1,000 failures
	Elapsed  time.Duration
	// ProgressError says why the progress file could not be written, which only costs time in the
	// next run.
	ProgressError error
}

// Errors of an import.
var (
	// ErrStopped means that Options.StopOnError ended the import.
	ErrStopped = errors.New("importer: stopped at the first line that failed")
	// ErrNoProgress means that the nodes took nothing for as long as Options.Patience allows.
	ErrNoProgress = errors.New("importer: the nodes take nothing; run the same import again " +
		"later, it continues where it stopped")
	// ErrGrown means that the lines of a book's journals are not those that an earlier run imported
	// from them. A line's number keeps it from being imported twice, so that it would be now.
	ErrGrown = errors.New("importer: an earlier run has imported journals of this book that have " +
		"other lines: journals of several shards must not grow before all is imported, as their " +
		"lines get another order; name those of the earlier run")
)

// run is an import. One goroutine owns all of it unless stated otherwise. Each bundle under way has
// its own goroutine, which sends events to it.
type run struct {
	nodes   Nodes
	source  *Source
	options Options
	builder lineBuilder
	tree    *ledger.ShardTree // nil in a book of one shard
	path    string            // of the progress file; empty: none

	addresses [][]string // of the members, by shard
	shards    map[ledger.ShardID]*shardNodes
	connected []Nodes

	buffer  []byte
	ahead   []byte // a line that was read and is not under way yet
	aheadAt uint64
	number  uint64 // lines read
	prefix  hash.Hash
	atEnd   bool

	segments   []*segment // in the file's order; the last one may be open
	aheadBytes int        // of the lines under way
	conflicts  *conflicts // nil if all lines go one way
	openings   *openings
	lanes      lanes
	deadlines  deadlines
	asking     int      // crossing lines being checked
	packs      bool     // plain lines are packed
	probing    bool     // lines of the next group may be in the ledger as whole transactions
	groups     []*group // in the file's order, if the import packs; the last one may be open

	saved   savedProgress
	earlier *savedProgress // the progress of an earlier run
	after   ledger.Hash    // the last transaction of an earlier run
	skipped uint64
	stopped *LineFailure // the failure that ends the import

	events  chan event
	work    sync.WaitGroup
	asks    chan struct{} // a slot for each query under way
	movedAt atomic.Int64  // when a line was last acknowledged, in Unix nanoseconds

	progressError           error
	begun, savedAt, shownAt time.Time
	registeredAt            time.Time // zero if no registration was needed
}

// segment is a group of consecutive lines. The progress of an import is the number of segments,
// from the beginning, that are over.
type segment struct {
	lines    int // entries
	bytes    int
	closed   bool
	over     int // entries that are over
	lastLine uint64
	prefix   ledger.Hash // over all lines up to lastLine
	failures []LineFailure
	bad      int // failed lines that were no entries
	last     map[ledger.ShardID]lastOf
}

// lastOf is the last transaction of a group.
type lastOf struct {
	line uint64
	id   ledger.Hash
}

// event is a message of a goroutine to the import.
type event struct {
	// bundle is acknowledged, with statuses.
	bundle   *bundle
	statuses []*ledgerdv1.TransactionStatus
	// asked is a line that crosses shards, and over reports whether it is over in all of them.
	asked *line
	over  bool
	err   error
}

// Run imports a source. The result is valid with an error, too. Lines that fail are no error.
func Run(ctx context.Context, nodes Nodes, source *Source, options Options) (Result, error) {
	if options.Patience == 0 {
		options.Patience = 2 * time.Minute
	}
	if options.Organisations == 0 {
		options.Organisations = 1
	}
	if options.Connect == nil {
		options.Connect = connectTo
	}
	if options.few == 0 {
		options.few = bundleLines
	}
	if options.window == 0 && options.Organisations == 1 {
		options.window = maxAhead
	} else if options.window == 0 {
		options.window = maxAheadSpread
	}
	if options.now == nil {
		options.now = time.Now
	}
	now := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{
		nodes: nodes, source: source, options: options, prefix: sha256.New(),
		shards: make(map[ledger.ShardID]*shardNodes), openings: newOpenings(), begun: now,
		savedAt: now,
		events:  make(chan event), asks: make(chan struct{}, maxAsks),
	}
	r.moved()
	err := r.all(ctx)
	cancel()
	r.work.Wait()
	for _, each := range r.connected {
		each.Close()
	}
	r.keep(true)
	r.show(true)
	return r.result(), err
}

func (r *run) result() Result {
	result := Result{
		Lines: r.saved.Line, Imported: r.saved.Imported, Failed: r.saved.Failed, Skipped: r.skipped,
		Failures: slices.Clone(r.saved.Failures),
		Elapsed:  time.Since(r.begun), ProgressError: r.progressError,
	}
	for _, each := range r.segments {
		result.Failed += uint64(len(each.failures))
		result.Imported += uint64(each.imported())
		result.Failures = append(result.Failures, each.failures...)
	}
	result.Failures = result.Failures[:min(len(result.Failures), maxKeptFailures)]
	return result
}

// imported returns the number of lines whose transactions took effect.
func (s *segment) imported() int { return s.over - (len(s.failures) - s.bad) }

func (r *run) all(ctx context.Context) error {
	first, err := r.firstLine()
	if err != nil || first == nil {
		return err
	}
	if err := r.prepare(ctx, first); err != nil {
		return err
	}
	if err := r.resume(ctx); err != nil {
		return err
	}
	if err := r.beginPacking(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		if err := r.fill(ctx); err != nil {
			return err
		}
		r.placeGroups()
		r.note()
		if err := r.dispatch(ctx); err != nil {
			return err
		}
		// If nothing is under way, the import is over or fill can read more lines.
		if r.lanes.underWay == 0 && r.asking == 0 {
			if r.atEnd || r.stopped != nil {
				break
			}
			if !r.room() {
				panic("importer: there is no room for a line, and nothing is under way")
			}
			continue
		}
		select {
		case happened := <-r.events:
			if err := r.handle(ctx, happened); err != nil {
				return err
			}
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.keep(false)
		r.show(false)
	}
	if r.stopped != nil {
		return fmt.Errorf("%w: line %d: %s", ErrStopped, r.stopped.Line, r.stopped.Reason)
	}
	if len(r.segments) > 0 {
		panic("importer: lines wait, and nothing is under way")
	}
	return nil
}

// firstLine finds the first line that is not blank. It must be an entry, so a file of another kind
// is not read to its end. The line stays in ahead. Nil means that there is none.
func (r *run) firstLine() ([]byte, error) {
	line, err := r.read()
	for err == nil && line == nil {
		line, err = r.read()
	}
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := parseLine(line); err != nil {
		return nil, fmt.Errorf("line %d: %w: %w", r.number, ErrLine, err)
	}
	r.ahead, r.aheadAt = bytes.Clone(line), r.number
	return r.ahead, nil
}

// read returns the next line, nil for a blank one, or io.EOF.
func (r *run) read() ([]byte, error) {
	line, err := r.source.next(r.buffer)
	if err != nil {
		return nil, err
	}
	r.buffer = line
	r.number++
	r.prefix.Write(line)
	r.prefix.Write([]byte{'\n'})
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	return line, nil
}

func (r *run) prefixHash() (sum ledger.Hash) {
	r.prefix.Sum(sum[:0])
	return sum
}

// prepare gets the ledger's identity, its shards and their members, and registers the organisations
// that are not known.
func (r *run) prepare(ctx context.Context, first []byte) error {
	name := r.options.Key.Organisation
	if err := name.Validate(); err != nil {
		return err
	}
	genesis, err := r.nodes.ChainGenesis(ctx)
	if err != nil {
		return err
	}
	r.tree = genesis.ShardTree()
	r.meet(ctx, genesis)
	r.builder = lineBuilder{issuers: make(map[string]bool), book: genesis.Book(), tree: r.tree}
	r.builder.conflicting = r.tree != nil && r.options.Organisations > 1
	if r.builder.conflicting && !r.options.planted {
		r.conflicts = newConflicts()
	}
	issuers := append(slices.Clone(r.options.Issuers), r.source.issuers...)
	sort.Strings(issuers)
	for _, name := range issuers {
		r.builder.issuers[name] = true
	}
	r.saved = savedProgress{Version: progressVersion, Genesis: r.builder.book, Organisation: name,
		Stream: streamOf(name, first), Issuers: issuers}
	if r.options.Organisations > 1 {
		r.saved.Organisations = r.options.Organisations
	}
	if r.options.StateFolder != "" {
		r.path = progressFile(r.options.StateFolder, &r.saved)
	}
	if r.path != "" {
		if r.earlier, err = loadProgress(r.path, &r.saved); err != nil {
			return err
		}
	}
	if err := r.organise(ctx, first); err != nil {
		return err
	}
	return r.beginDeadlines(ctx, genesis, first)
}

// resume skips the lines of an earlier run, if the ledger and the file confirm its progress file.
func (r *run) resume(ctx context.Context) error {
	saved := r.earlier
	if saved == nil || !r.source.rewindable() {
		return nil
	}
	last := []ledger.Hash{saved.LastID}
	for _, id := range saved.Last {
		last = append(last, id)
	}
	for _, id := range last {
		if known, err := r.inLedger(ctx, id); err != nil || !known {
			return err
		}
	}
	for r.number < saved.Line {
		if _, err := r.read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if r.number == saved.Line && r.prefixHash() == saved.Prefix {
		r.saved, r.after, r.skipped = *saved, saved.LastID, saved.Line
		r.ahead = nil
		return nil
	}
	if len(r.source.journals) > 1 {
		return ErrGrown
	}
	// Another file with the same first line: begin again.
	r.prefix.Reset()
	r.number, r.ahead = 0, nil
	return r.source.rewind()
}

// inLedger reports whether a transaction is in a block. It retries while the transaction's shard
// does not answer.
func (r *run) inLedger(ctx context.Context, id ledger.Hash) (bool, error) {
	for {
		known, err := r.nodes.Transaction(ctx, id)
		switch {
		case err == nil:
			return known.GetStatus().GetHeight() > 0, nil
		case client.CodeOf(err) == connect.CodeNotFound:
			return false, nil
		case ctx.Err() != nil || !r.mayRetry(err) || !r.patient():
			return false, err
		}
		r.nodes.Rotate()
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return false, err
		}
	}
}
