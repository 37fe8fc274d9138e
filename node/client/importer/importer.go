package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sort"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/client"
)

// Bounds of what is under way. Their product stays below ledger.WindowSize.
const (
	bundleLines      = 125
	bundlesUnderWay  = 8
	enoughBytes      = ledger.MaxBundleBytes / 2 // of transactions: one more of the largest still fits into the bundle
	maxKeptFailures  = 1_000
	progressInterval = 200 * time.Millisecond
	saveInterval     = 2 * time.Second
)

// A line under way must not fall out of its stream's window.
var _ [ledger.WindowSize - bundleLines*bundlesUnderWay]struct{}

// Options of an import. Key is required; the zero value of each other field means its default.
type Options struct {
	Key     client.Key      // of the organisation that imports; it is registered where the ledger does not know it
	Issuers []string        // names in the file whose accounts may go below zero
	Wait    ledgerdv1.Level // what counts as acknowledged: ordered, stored or durable, the default
	// StopOnError ends the import when a line has failed; default: go on. What was under way by then, up to 1,000 lines, is still waited for.
	StopOnError bool
	// StateFolder keeps progress files; empty: none is kept.
	StateFolder string
	// Progress hears several times a second how far things are, and at the end.
	Progress func(Progress)
	// Patience is how long the nodes may refuse or be silent before the import is given up; default 2 min.
	Patience time.Duration
}

// Progress is how far an import has come.
type Progress struct {
	Lines      uint64 // acknowledged, skipped ones included
	Skipped    uint64 // of those, known from an earlier run
	Failed     uint64
	BytesRead  int64 // of the file, as it is on the disk
	BytesTotal int64 // 0: not known
	Elapsed    time.Duration
	PerSecond  float64 // lines acknowledged in this run, per second
	Done       bool
}

// LineFailure says why a line is not in the ledger's books.
type LineFailure struct {
	Line   uint64 `json:"line"`
	Code   string `json:"code"` // a word that does not change, such as insufficient_funds or malformed_line
	Reason string `json:"reason"`
	ID     string `json:"id,omitempty"` // of the failed transaction, in hex
}

// Result is what became of an import.
type Result struct {
	Lines    uint64 // read and acknowledged, blank ones included
	Imported uint64 // lines whose transactions hold, those of earlier runs included
	Failed   uint64
	Skipped  uint64        // lines known from an earlier run
	Failures []LineFailure // the first 1,000 of the failed
	Elapsed  time.Duration
	// ProgressError says why the progress file could not be kept, which costs nothing but time in the next run.
	ProgressError error
}

// Errors of an import.
var (
	// ErrStopped says that Options.StopOnError ended the import.
	ErrStopped = errors.New("importer: stopped at the first line that failed")
	// ErrNoProgress says that the nodes took nothing for as long as Options.Patience allows.
	ErrNoProgress = errors.New("importer: the nodes take nothing; run the same import again later, it goes on where it stopped")
)

// underWay is a bundle that is not acknowledged yet.
type underWay struct {
	bundle    *ledger.Bundle // nil where no line of it is an entry
	lines     []uint64       // of its transactions
	malformed []LineFailure
	lastLine  uint64
	prefix    ledger.Hash // over all lines up to lastLine
	sent      bool
}

type run struct {
	nodes   *client.Client
	source  *Source
	options Options
	builder lineBuilder
	path    string // of the progress file; empty: none

	buffer  []byte
	ahead   []byte // a line that was read and is in no bundle yet
	aheadAt uint64
	line    uint64 // lines read
	prefix  hash.Hash
	atEnd   bool

	queue   []*underWay
	after   ledger.Hash // the last acknowledged transaction
	saved   savedProgress
	skipped uint64
	stopped *LineFailure // the failure that ends the import

	progressError                    error
	begun, savedAt, shownAt, movedAt time.Time
}

// Run imports a source. The result is valid with an error, too. Lines that fail are no error.
func Run(ctx context.Context, nodes *client.Client, source *Source, options Options) (Result, error) {
	if options.Patience == 0 {
		options.Patience = 2 * time.Minute
	}
	now := time.Now()
	r := &run{nodes: nodes, source: source, options: options, prefix: sha256.New(), begun: now, savedAt: now, movedAt: now}
	err := r.all(ctx)
	r.keep(true)
	r.show(true)
	return Result{
		Lines: r.saved.Line, Imported: r.saved.Imported, Failed: r.saved.Failed, Skipped: r.skipped, Failures: r.saved.Failures,
		Elapsed: time.Since(r.begun), ProgressError: r.progressError,
	}, err
}

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
	for r.stopped == nil {
		if err := r.fill(); err != nil {
			return err
		}
		if len(r.queue) == 0 {
			return nil
		}
		if err := r.send(ctx); err != nil {
			return err
		}
		if err := r.settleFirst(ctx); err != nil {
			return err
		}
		r.keep(false)
		r.show(false)
	}
	for len(r.queue) > 0 && r.queue[0].sent {
		if err := r.settleFirst(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: line %d: %s", ErrStopped, r.stopped.Line, r.stopped.Reason)
}

// firstLine finds the first line that is not blank, which must be an entry: a file that is something else is not read to its end. It stays in
// ahead. Nil means that there is none.
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
		return nil, fmt.Errorf("line %d: %w: %w", r.line, ErrLine, err)
	}
	r.ahead, r.aheadAt = bytes.Clone(line), r.line
	return r.ahead, nil
}

// read returns the next line, nil for a blank one, or io.EOF.
func (r *run) read() ([]byte, error) {
	line, err := r.source.next(r.buffer)
	if err != nil {
		return nil, err
	}
	r.buffer = line
	r.line++
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

// prepare learns the ledger's name and registers the organisation where it is not known.
func (r *run) prepare(ctx context.Context, first []byte) error {
	organisation := r.options.Key.Organisation
	if err := organisation.Validate(); err != nil {
		return err
	}
	genesis, err := r.nodes.Genesis(ctx)
	if err != nil {
		return err
	}
	r.builder = lineBuilder{organisation: organisation, issuers: make(map[string]bool), genesis: genesis, stream: streamOf(organisation, first)}
	issuers := slices.Clone(r.options.Issuers)
	sort.Strings(issuers)
	for _, name := range issuers {
		r.builder.issuers[name] = true
	}
	r.saved = savedProgress{Version: progressVersion, Genesis: genesis, Organisation: organisation, Stream: r.builder.stream, Issuers: issuers}
	if r.options.StateFolder != "" {
		r.path = progressFile(r.options.StateFolder, &r.builder)
	}
	return r.register(ctx)
}

// streamOf is the nonce stream of an import.
func streamOf(organisation ledger.OrganisationName, first []byte) uint64 {
	hasher := sha256.New()
	fmt.Fprintf(hasher, "ledgerd/import/1\x00%s\x00", organisation)
	hasher.Write(first)
	return binary.BigEndian.Uint64(hasher.Sum(nil))
}

func (r *run) register(ctx context.Context) error {
	key := r.options.Key
	public := key.Public()
	known, err := r.nodes.Organisation(ctx, key.Organisation)
	if err == nil {
		for _, its := range known.GetPublicKeys() {
			if bytes.Equal(its, public[:]) {
				return nil
			}
		}
		return fmt.Errorf("importer: organisation %s is registered with other keys than the one in the keyring: use its own, or another organisation", key.Organisation)
	}
	if client.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	bundle, err := client.Sign([]client.Key{key}, ledger.Transaction{
		Ledger: r.builder.genesis, Signer: key.Organisation, Nonce: ledger.Nonce{Stream: r.builder.stream},
		Registrations: []ledger.Registration{{Name: key.Organisation, Keys: []ledger.PublicKey{public}}},
	})
	if err != nil {
		return err
	}
	statuses, err := r.nodes.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		return fmt.Errorf("importer: registering organisation %s: %w", key.Organisation, err)
	}
	if reason := statuses[0].GetReason(); reason != "" {
		return fmt.Errorf("importer: registering organisation %s: %s", key.Organisation, reason)
	}
	return nil
}

// resume skips the lines that an earlier run knows to be in the ledger, if that can be believed.
func (r *run) resume(ctx context.Context) error {
	if r.path == "" || !r.source.rewindable() {
		return nil
	}
	saved := loadProgress(r.path, &r.builder, r.saved.Issuers)
	if saved == nil {
		return nil
	}
	if known, err := r.nodes.Transaction(ctx, saved.LastID); client.CodeOf(err) == connect.CodeNotFound || known.GetStatus().GetHeight() == 0 && err == nil {
		return nil
	} else if err != nil {
		return err
	}
	for r.line < saved.Line {
		if _, err := r.read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if r.line == saved.Line && r.prefixHash() == saved.Prefix {
		r.saved, r.after, r.skipped = *saved, saved.LastID, saved.Line
		r.ahead = nil
		return nil
	}
	// Another file with the same first line: begin again.
	r.prefix.Reset()
	r.line, r.ahead = 0, nil
	return r.source.rewind()
}
