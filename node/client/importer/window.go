package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/client"
)

// fill reads lines until as many bundles are under way as may be, or the source ends.
func (r *run) fill() error {
	for !r.atEnd && len(r.queue) < bundlesUnderWay {
		next, err := r.nextBundle()
		if err != nil {
			return err
		}
		if next != nil {
			r.queue = append(r.queue, next)
		}
	}
	return nil
}

// nextBundle reads the lines of a bundle and signs it. Nil means that none is left.
func (r *run) nextBundle() (*underWay, error) {
	made := &underWay{}
	var transactions []ledger.Transaction
	before := r.line
	if r.ahead != nil {
		before--
	}
	for size := 0; len(made.lines)+len(made.malformed) < bundleLines && r.line-before < 16*bundleLines && size < enoughBytes; {
		line, number, err := r.take()
		if errors.Is(err, io.EOF) {
			r.atEnd = true
			break
		}
		if err != nil {
			return nil, err
		}
		if line == nil {
			continue
		}
		transaction, bytes, err := r.builder.transaction(line, number)
		if err != nil {
			made.malformed = append(made.malformed, LineFailure{Line: number, Code: "malformed_line", Reason: err.Error()})
			continue
		}
		size += bytes
		transactions = append(transactions, transaction)
		made.lines = append(made.lines, number)
	}
	if r.line == before {
		return nil, nil
	}
	made.lastLine, made.prefix = r.line, r.prefixHash()
	if len(transactions) == 0 {
		return made, nil
	}
	var err error
	made.bundle, err = client.Sign([]client.Key{r.options.Key}, transactions...)
	if err != nil {
		return nil, fmt.Errorf("lines %d to %d: %w", made.lines[0], made.lastLine, err)
	}
	return made, nil
}

// take returns the next line, the one that was read ahead first.
func (r *run) take() ([]byte, uint64, error) {
	if line := r.ahead; line != nil {
		r.ahead = nil
		return line, r.aheadAt, nil
	}
	line, err := r.read()
	return line, r.line, err
}

// lastSent is the id before the first bundle that is not sent.
func (r *run) lastSent() ledger.Hash {
	after := r.after
	for _, each := range r.queue {
		if each.bundle != nil && each.sent {
			after = each.bundle.ID(each.bundle.Len() - 1)
		}
	}
	return after
}

// send gives the bundles that are not with a node yet to one, in their order. What is refused for now stays unsent; while others are under
// way they are waited for, else the pause here is all that helps.
func (r *run) send(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var unsent []*underWay
		var bundles []*ledger.Bundle
		for _, each := range r.queue {
			if each.bundle != nil && !each.sent {
				unsent = append(unsent, each)
				bundles = append(bundles, each.bundle)
			}
		}
		if len(unsent) == 0 {
			return nil
		}
		outcomes, err := r.nodes.SubmitInOrder(ctx, bundles, r.lastSent())
		switch failure := (*client.Failure)(nil); {
		case err == nil:
			if err := r.noteAdmitted(unsent, outcomes); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &failure) && !failure.Retry:
			return fmt.Errorf("lines %d to %d: %w", unsent[0].lines[0], unsent[len(unsent)-1].lastLine, err)
		case !r.patient():
			return fmt.Errorf("%w: %w", ErrNoProgress, err)
		}
		if r.queue[0].bundle == nil || r.queue[0].sent {
			return nil
		}
		if !r.patient() {
			return fmt.Errorf("%w: %w", ErrNoProgress, refusalOf(outcomes))
		}
		r.nodes.Rotate()
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func refusalOf(outcomes []*ledgerdv1.BundleOutcome) error {
	if len(outcomes) == 0 {
		return errors.New("no answer")
	}
	return errors.New(outcomes[0].GetRefused())
}

// noteAdmitted marks what was admitted, which is a prefix.
func (r *run) noteAdmitted(unsent []*underWay, outcomes []*ledgerdv1.BundleOutcome) error {
	for i, outcome := range outcomes {
		if outcome.GetRefused() == "" {
			unsent[i].sent = true
			continue
		}
		if outcome.GetRetry() {
			return nil
		}
		return fmt.Errorf("importer: lines %d to %d were refused: %s", unsent[i].lines[0], unsent[i].lastLine, outcome.GetRefused())
	}
	return nil
}

// patient tells whether there was progress lately.
func (r *run) patient() bool { return time.Since(r.movedAt) < r.options.Patience }

func sleep(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleFirst waits until the first bundle under way is acknowledged, and notes what became of its lines. It asks by submitting the same bytes
// again, so that a node which lost them, or another one, has them then; all before it is acknowledged, so that its order is kept.
func (r *run) settleFirst(ctx context.Context) error {
	first := r.queue[0]
	var statuses []*ledgerdv1.TransactionStatus
	for first.bundle != nil {
		var err error
		statuses, err = r.nodes.Submit(ctx, first.bundle, r.options.Wait)
		if err == nil {
			break
		}
		failure := (*client.Failure)(nil)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &failure) && !failure.Retry && !errors.Is(err, client.ErrOutcomeUnknown):
			return fmt.Errorf("lines %d to %d: %w", first.lines[0], first.lastLine, err)
		case !r.patient():
			return fmt.Errorf("%w: %w", ErrNoProgress, err)
		}
		r.nodes.Rotate()
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	r.queue = r.queue[1:]
	failures := first.malformed
	for i, status := range statuses {
		if status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED || status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED {
			failures = append(failures, LineFailure{
				Line: first.lines[i], Code: status.GetReasonCode(), Reason: r.reason(status), ID: status.GetIdHex(),
			})
		}
	}
	sort.Slice(failures, func(i, j int) bool { return failures[i].Line < failures[j].Line })
	r.note(first, failures)
	if len(failures) > 0 && r.options.StopOnError && r.stopped == nil {
		r.stopped = &failures[0]
	}
	return nil
}

func (r *run) reason(status *ledgerdv1.TransactionStatus) string {
	if status.GetReasonCode() == "stale_nonce" {
		return status.GetReason() + ": another entry was imported as this line before; has the file changed?"
	}
	return status.GetReason()
}

// note adds an acknowledged bundle to the progress.
func (r *run) note(settled *underWay, failures []LineFailure) {
	r.movedAt = time.Now()
	r.saved.Line, r.saved.Prefix = settled.lastLine, settled.prefix
	r.saved.Failed += uint64(len(failures))
	r.saved.Imported += uint64(len(settled.lines) + len(settled.malformed) - len(failures))
	if settled.bundle != nil {
		r.after = settled.bundle.ID(settled.bundle.Len() - 1)
		r.saved.LastID = r.after
	}
	for _, failure := range failures {
		if len(r.saved.Failures) < maxKeptFailures {
			r.saved.Failures = append(r.saved.Failures, failure)
		}
	}
}

// keep writes the progress file, now and then and at the end.
func (r *run) keep(now bool) {
	if r.path == "" || r.saved.LastID.IsZero() || (!now && time.Since(r.savedAt) < saveInterval) {
		return
	}
	r.savedAt = time.Now()
	r.progressError = r.saved.save(r.path)
}

// show tells the progress now and then.
func (r *run) show(done bool) {
	if r.options.Progress == nil || (!done && time.Since(r.shownAt) < progressInterval) {
		return
	}
	r.shownAt = time.Now()
	elapsed := time.Since(r.begun)
	r.options.Progress(Progress{
		Lines: r.saved.Line, Skipped: r.skipped, Failed: r.saved.Failed, BytesRead: r.source.read.Load(), BytesTotal: r.source.size,
		Elapsed: elapsed, PerSecond: float64(r.saved.Line-r.skipped) / max(elapsed.Seconds(), 1e-3), Done: done,
	})
}
