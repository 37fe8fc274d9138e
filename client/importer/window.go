package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// maxKnownDecimals bounds the assets whose decimals an import keeps in mind.
const maxKnownDecimals = 1_024

// fill reads lines until as many are under way as allowed, or the source ends.
func (r *run) fill(ctx context.Context) error {
	for !r.atEnd && r.stopped == nil && r.room() {
		text, number, err := r.take()
		if errors.Is(err, io.EOF) {
			r.atEnd = true
			break
		}
		if err != nil {
			return err
		}
		current := r.current()
		if text != nil {
			if err := r.begin(ctx, current, text, number); err != nil {
				return err
			}
		}
		if r.isFull(current, number) {
			r.closeSegment(current)
			r.note()
		}
		if r.packs && number%groupLines == 0 {
			if err := r.closeGroup(ctx, true); err != nil {
				return err
			}
		}
	}
	if n := len(r.segments); n > 0 && r.atEnd && !r.segments[n-1].closed {
		r.closeSegment(r.segments[n-1])
	}
	if r.atEnd || r.stopped != nil {
		if err := r.closeGroup(ctx, false); err != nil {
			return err
		}
	}
	r.note()
	return nil
}

// isFull reports whether a segment ends with this line. If the import packs, it ends with a group,
// so that the next run begins with a whole group.
func (r *run) isFull(current *segment, number uint64) bool {
	if current.bytes >= maxGroupBytes {
		return true
	}
	if r.packs {
		return number%groupLines == 0
	}
	return current.lines+current.bad == r.options.few ||
		r.number-r.before() >= 2*uint64(r.options.few)
}

// room reports whether one more line may be under way: none may fall out of the window of its nonce
// stream.
func (r *run) room() bool {
	next := r.number + 1
	if r.ahead != nil {
		next = r.aheadAt
	}
	return next-r.saved.Line <= r.options.window && r.aheadBytes < maxAheadBytes
}

// current returns the segment that lines are added to.
func (r *run) current() *segment {
	if n := len(r.segments); n > 0 && !r.segments[n-1].closed {
		return r.segments[n-1]
	}
	made := &segment{}
	r.segments = append(r.segments, made)
	return made
}

// before returns the number of the last line before the open segment.
func (r *run) before() uint64 {
	if n := len(r.segments); n > 1 {
		return r.segments[n-2].lastLine
	}
	return r.saved.Line
}

func (r *run) closeSegment(current *segment) {
	current.closed, current.lastLine, current.prefix = true, r.number, r.prefixHash()
}

// take returns the next line, first the line that was read ahead.
func (r *run) take() ([]byte, uint64, error) {
	if text := r.ahead; text != nil {
		r.ahead = nil
		return text, r.aheadAt, nil
	}
	text, err := r.read()
	return text, r.number, err
}

// build makes a line. It asks the nodes for the decimals of assets that it meets.
func (r *run) build(ctx context.Context, text []byte, number uint64) (*line, error) {
	for asked := 0; ; asked++ {
		l, err := r.builder.line(text, number)
		unknown := (*unknownDecimals)(nil)
		if !errors.As(err, &unknown) || asked > ledger.MaxAssets {
			return l, err
		}
		if r.builder.decimals == nil {
			r.builder.decimals = make(map[ledger.AssetName]int)
		}
		if len(r.builder.decimals) == maxKnownDecimals {
			clear(r.builder.decimals)
		}
		if r.builder.decimals[unknown.asset], err = r.decimals(ctx, unknown.asset); err != nil {
			return nil, err
		}
	}
}

// decimals returns the decimals of an asset: none if it is not registered. It retries while no node
// answers.
func (r *run) decimals(ctx context.Context, name ledger.AssetName) (int, error) {
	for {
		asset, err := r.nodes.Asset(ctx, name)
		switch code := client.CodeOf(err); {
		case err == nil, code == connect.CodeNotFound, code == connect.CodeUnimplemented,
			code == connect.CodeInvalidArgument:
			return int(asset.GetTerms().GetDecimals()), nil
		case ctx.Err() != nil || !r.mayRetry(err) || !r.patient():
			return 0, &decimalsError{err}
		}
		r.nodes.Rotate()
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return 0, &decimalsError{err}
		}
	}
}

// decimalsError ends an import: the nodes do not say how many decimals an asset has.
type decimalsError struct{ error }

func (e *decimalsError) Unwrap() error { return e.error }

// begin makes a line and puts it under way.
func (r *run) begin(ctx context.Context, current *segment, text []byte, number uint64) error {
	l, err := r.build(ctx, text, number)
	if errors.As(err, new(*decimalsError)) {
		return fmt.Errorf("line %d: the decimals of its assets: %w", number, err)
	}
	if err != nil {
		current.bad++
		r.noteFailure(current, LineFailure{Line: number, Code: "malformed_line",
			Reason: err.Error()})
		return nil
	}
	l.segment = current
	current.lines++
	current.bytes += len(text)
	r.aheadBytes += len(text)
	if r.conflicts != nil {
		r.conflicts.add(l)
	}
	for _, its := range l.openings {
		r.open(its)
	}
	if r.packs {
		r.join(l, len(text))
		return nil
	}
	r.proceed(l)
	return nil
}

// open makes sure that the accounts of an opening are open before its line continues.
func (r *run) open(its *opening) {
	if r.openings.need(its) {
		r.lanes.add(laneOfOpenings, r.builder.organisations[its.organisation].home, nil, &its.job)
	}
}

// proceed puts a line that waits for nothing any more into its lane.
func (r *run) proceed(l *line) {
	if l.waits > 0 || l.standing != held {
		return
	}
	if l.group != nil {
		l.group.opened()
		return
	}
	if l.failure != nil || r.isPastStop(l) {
		r.end(l)
		return
	}
	l.standing = queued
	if l.crosses() {
		r.lanes.add(laneOfCrossings, l.entry, l.shards, &l.posting)
	} else {
		r.lanes.add(laneInOrder, l.entry, nil, &l.posting)
	}
	r.release(&l.onQueued)
}

func (r *run) release(waiting *[]*line) {
	lines := *waiting
	*waiting = nil
	for _, each := range lines {
		each.waits--
		r.proceed(each)
	}
}

// end marks a line as over, and lets the lines continue that waited for it.
func (r *run) end(l *line) {
	l.standing = over
	if r.conflicts != nil {
		r.conflicts.remove(l)
	}
	if !r.isPastStop(l) {
		l.segment.over++
		if l.failure != nil {
			r.noteFailure(l.segment, *l.failure)
		}
		if !l.id.IsZero() {
			l.segment.noteLast(l, r.builder.home(l.posting.transaction.Signer))
		}
	}
	r.release(&l.onQueued)
	r.release(&l.onOver)
}

func (s *segment) noteLast(l *line, home ledger.ShardID) {
	if s.last == nil {
		s.last = make(map[ledger.ShardID]lastOf)
	}
	if s.last[home].line < l.number {
		s.last[home] = lastOf{l.number, l.id}
	}
}

// noteFailure records that a line failed. With StopOnError this ends the import: lines before it
// still continue, but later lines that are not submitted yet do not.
func (r *run) noteFailure(current *segment, failure LineFailure) {
	current.failures = append(current.failures, failure)
	if r.options.StopOnError && (r.stopped == nil || failure.Line < r.stopped.Line) {
		r.stopped = &failure
	}
}

// isPastStop reports whether a line comes after the line that ended the import.
func (r *run) isPastStop(l *line) bool { return r.stopped != nil && l.number > r.stopped.Line }

// handle processes an event.
func (r *run) handle(ctx context.Context, happened event) error {
	if happened.err != nil {
		return happened.err
	}
	if l := happened.asked; l != nil {
		r.asking--
		if happened.over {
			r.moved()
			r.end(l)
			return nil
		}
		if !r.patient() {
			return fmt.Errorf("%w: line %d is not over in all of its shards", ErrNoProgress,
				l.number)
		}
		r.ask(ctx, l)
		return nil
	}
	r.moved()
	r.lanes.done(happened.bundle)
	for i, its := range happened.bundle.jobs {
		r.acknowledged(ctx, its, happened.bundle.bundle.ID(i), happened.statuses[i])
	}
	return nil
}

// acknowledged records the outcome of a transaction.
func (r *run) acknowledged(ctx context.Context, its *job, id ledger.Hash,
	status *ledgerdv1.TransactionStatus) {
	failed := status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
		status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED
	l := its.line
	if its.opening != nil {
		r.opened(its.opening, id, status, failed)
		return
	}
	l.id = id
	if failed {
		l.failure = &LineFailure{Line: l.number, Code: status.GetReasonCode(),
			Reason: reasonOf(status), ID: status.GetIdHex()}
	}
	// Free the memory: a line that crosses shards may stay under way for a while.
	l.posting.transaction.Postings, l.posting.transaction.Note = nil, nil
	if l.crosses() {
		r.ask(ctx, l)
		return
	}
	r.end(l)
}

// opened records the outcome of an opening. If it failed, its line fails. Other lines that waited
// for it submit their own openings.
func (r *run) opened(its *opening, id ledger.Hash, status *ledgerdv1.TransactionStatus,
	failed bool) {
	if failed && r.openings.retry(its, status.GetReasonCode()) {
		r.lanes.add(laneOfOpenings, r.builder.organisations[its.organisation].home, nil, &its.job)
		return
	}
	if failed {
		its.line.failure = &LineFailure{Line: its.line.number, Code: status.GetReasonCode(),
			Reason: reasonOf(status), ID: id.String()}
	}
	for _, waiter := range r.openings.end(its, !failed) {
		waiter.waits--
		if failed && waiter != its.line {
			for _, other := range waiter.openings {
				if other.organisation == its.organisation && !other.begun {
					r.open(other)
				}
			}
		}
		r.proceed(waiter)
	}
}

func reasonOf(status *ledgerdv1.TransactionStatus) string {
	if status.GetReasonCode() == "stale_nonce" {
		return status.GetReason() + ": another entry was imported as this line before; has the " +
			"file changed?"
	}
	return status.GetReason()
}

// note adds the segments that are over to the progress.
func (r *run) note() {
	for len(r.segments) > 0 && r.segments[0].closed && r.segments[0].over == r.segments[0].lines {
		done := r.segments[0]
		r.segments = r.segments[1:]
		r.aheadBytes -= done.bytes
		r.saved.Line, r.saved.Prefix = done.lastLine, done.prefix
		r.saved.Failed += uint64(len(done.failures))
		r.saved.Imported += uint64(done.imported())
		var last lastOf
		for shard, its := range done.last {
			if its.line > last.line {
				last = its
			}
			if r.builder.conflicting {
				if r.saved.Last == nil {
					r.saved.Last = make(map[ledger.ShardID]ledger.Hash)
				}
				r.saved.Last[shard] = its.id
			}
		}
		if last.line > 0 {
			r.saved.LastID = last.id
		}
		sort.Slice(done.failures, func(i, j int) bool {
			return done.failures[i].Line < done.failures[j].Line
		})
		for _, failure := range done.failures {
			if len(r.saved.Failures) < maxKeptFailures {
				r.saved.Failures = append(r.saved.Failures, failure)
			}
		}
	}
}

// keep writes the progress file, at most every saveInterval and at the end.
func (r *run) keep(now bool) {
	if r.path == "" || r.saved.LastID.IsZero() || (!now && time.Since(r.savedAt) < saveInterval) {
		return
	}
	r.savedAt = time.Now()
	r.progressError = r.saved.save(r.path)
}

// show reports the progress, at most every progressInterval and at the end.
func (r *run) show(done bool) {
	if r.options.Progress == nil || (!done && time.Since(r.shownAt) < progressInterval) {
		return
	}
	r.shownAt = time.Now()
	elapsed := time.Since(r.begun)
	lines, failed := r.saved.Line, r.saved.Failed
	for _, each := range r.segments {
		lines, failed = lines+uint64(each.over+each.bad), failed+uint64(len(each.failures))
	}
	r.options.Progress(Progress{
		Lines: lines, Skipped: r.skipped, Failed: failed, BytesRead: r.source.read.Load(),
		BytesTotal: r.source.size,
		Elapsed:    elapsed, PerSecond: float64(lines-r.skipped) / max(elapsed.Seconds(), 1e-3),
		Done: done,
	})
}
