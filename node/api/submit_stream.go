package api

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/report"
)

// Bounds of what a stream has under way: bundles, and bytes of them. Beyond either, the node reads
// nothing more of the stream.
const (
	maxStreamed      = 64
	maxStreamedBytes = 4 << 20
)

// maxResting bounds the goroutines of a stream that wait for its next bundle.
const maxResting = 4

// Stream is a call of SubmitStream.
type Stream = connect.BidiStream[ledgerdv1.SubmitStreamRequest, ledgerdv1.SubmitStreamResponse]

// SubmitStream takes bundle after bundle, each as Submit does.
func (s *Service) SubmitStream(ctx context.Context, stream *Stream) error {
	return s.ServeStream(ctx, stream, func(ctx context.Context, bundle *ledger.Bundle,
		level report.Level) ([]*ledgerdv1.StatusRun, error) {
		if bundle.Packed() {
			return s.submitPacked(ctx, bundle, level)
		}
		statuses, err := s.submit(ctx, bundle, level)
		if err != nil {
			return nil, err
		}
		return s.runs(bundle, statuses), nil
	})
}

// ServeStream serves a call of SubmitStream with a function that submits one bundle and waits for
// the level, or until its context ends.
func (s *Service) ServeStream(ctx context.Context, stream *Stream, submit func(context.Context,
	*ledger.Bundle, report.Level) ([]*ledgerdv1.StatusRun, error)) error {
	body := streamedBodyOf(ctx)
	if body == nil || body.timer == nil {
		return connect.NewError(connect.CodeUnimplemented, errors.New(
			"this transport carries no streams of bundles: use Submit"))
	}
	release, err := s.limits.openStream(stream.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	if err := stream.Send(new(ledgerdv1.SubmitStreamResponse)); err != nil {
		return err
	}
	t := &streamed{Service: s, submit: submit, stream: stream, body: body, ctx: ctx,
		next: make(chan func())}
	t.room.L = &t.mutex
	t.stuck = time.AfterFunc(s.options.MaxStuckTime, body.reset)
	t.stuck.Stop()
	defer t.stuck.Stop()
	defer context.AfterFunc(s.stopping, body.cut)()
	err = t.read()
	close(t.next)
	t.working.Wait()
	return err
}

// streamed is a call of SubmitStream under way. The goroutine of the call reads. Each bundle has a
// goroutine until its answer is ready; if no other goroutine sends then, it sends all that are. A
// few goroutines then wait for the next bundle: a new one would first have to grow its stack, which
// took as long as half a signature's verification.
type streamed struct {
	*Service
	submit func(context.Context, *ledger.Bundle, report.Level) ([]*ledgerdv1.StatusRun, error)
	stream *Stream
	body   *streamedBody
	ctx    context.Context
	stuck  *time.Timer // ends a stream whose client does not read
	// working counts the goroutines of the bundles.
	working sync.WaitGroup
	next    chan func()  // to a goroutine that waits; closed when the stream has ended
	resting atomic.Int32 // how many wait

	mutex   sync.Mutex
	room    sync.Cond
	bundles int // from their arrival until their answers are sent
	bytes   int // of these
	ready   []answered
	sending bool
	failed  error // of sending
}

// answered is a bundle with its answer.
type answered struct {
	answer      *ledgerdv1.BundleAnswer
	bytes       int
	reservation *intake.Reservation // nil: there was no memory for it
}

// read reads bundles until the stream ends, and returns why it ends.
func (t *streamed) read() error {
	for {
		if err := t.awaitRoom(); err != nil {
			return err
		}
		request, err := t.stream.Receive()
		if err != nil {
			number, poor := t.body.refused()
			if !poor {
				return t.end(err)
			}
			t.begin(0)
			t.finish(answered{answer: refusedAnswer(number, overBudget())})
			continue
		}
		bundle := answered{bytes: len(request.GetBundle()), reservation: t.body.accept()}
		t.begin(bundle.bytes)
		if refused := t.limits.count(t.stream.Peer().Addr); refused != nil {
			bundle.answer = refusedAnswer(request.GetNumber(), refused)
			t.finish(bundle)
			continue
		}
		if r := bundle.reservation; r != nil && !r.Grow(packedMemory(request)) {
			bundle.answer = refusedAnswer(request.GetNumber(), overBudget())
			t.finish(bundle)
			continue
		}
		t.give(func() {
			bundle.answer = t.answer(request)
			t.finish(bundle)
		})
	}
}

// give has a goroutine do the work for a bundle: one that waits, if there is one.
func (t *streamed) give(work func()) {
	select {
	case t.next <- work:
	default:
		t.working.Go(func() { t.work(work) })
	}
}

// work does the work for one bundle after the other, until enough other goroutines wait for the
// next, or the stream has ended.
func (t *streamed) work(work func()) {
	for more := true; more; {
		work()
		if t.resting.Add(1) > maxResting {
			t.resting.Add(-1)
			return
		}
		work, more = <-t.next
		t.resting.Add(-1)
	}
}

// end returns the error of a stream whose next bundle could not be read.
func (t *streamed) end(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if failed := ContextError(t.ctx); failed != nil {
		return failed
	}
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case t.stopping.Err() != nil:
		t.body.forgive()
		return errStopping()
	case t.body.between():
		return nil // idle: the client opens another stream when it needs one
	}
	return connect.NewError(connect.CodeDeadlineExceeded,
		errors.New("the rest of a request did not come in time"))
}

// awaitRoom waits until there is room for another bundle. It returns an error if answers cannot be
// sent.
func (t *streamed) awaitRoom() error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for t.failed == nil && (t.bundles >= maxStreamed || t.bytes >= maxStreamedBytes) {
		t.room.Wait()
	}
	return t.failed
}

func (t *streamed) begin(bytes int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bundles++
	t.bytes += bytes
}

// answer brings a bundle to its answer.
func (t *streamed) answer(request *ledgerdv1.SubmitStreamRequest) (
	answer *ledgerdv1.BundleAnswer) {
	begun := time.Now()
	var err error
	defer func() {
		if panicked := recover(); panicked != nil {
			err = t.recovered(t.ctx, t.stream.Conn().Spec(), nil, panicked)
			answer = refusedAnswer(request.GetNumber(), err)
		}
		t.metrics.submitted(begun, err)
	}()
	runs, err := t.take(request)
	if err != nil {
		return refusedAnswer(request.GetNumber(), err)
	}
	return &ledgerdv1.BundleAnswer{Number: request.GetNumber(), Runs: runs}
}

// take checks a bundle, submits it and waits for its level.
func (t *streamed) take(request *ledgerdv1.SubmitStreamRequest) ([]*ledgerdv1.StatusRun, error) {
	level, err := wantedLevel(request.GetWait())
	if err != nil {
		return nil, err
	}
	bundle, err := ledger.DecodeBundle(request.GetBundle())
	if err != nil {
		return nil, invalid("bundle: %w", err)
	}
	if caller := doors.CallerOf(t.ctx); caller.Role == doors.RoleOrganisation {
		if err := denied(caller, signsAmong(caller.Organisation, bundle)); err != nil {
			return nil, err
		}
	}
	left := time.Duration(math.MaxInt64)
	if wait := request.GetWaitMs(); wait > 0 {
		left = time.Duration(wait) * time.Millisecond
	}
	ctx, cancel := t.waitingFor(Queueing(t.ctx, request.GetQueue()), left)
	defer cancel()
	return t.submit(ctx, bundle, level)
}

// finish sends an answer, with all that are ready by then. If another goroutine sends, that one
// sends this answer too.
func (t *streamed) finish(bundle answered) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.ready = append(t.ready, bundle)
	if t.sending {
		return
	}
	t.sending = true
	for len(t.ready) > 0 {
		batch := t.ready
		t.ready = nil
		failed := t.failed
		t.mutex.Unlock()
		if failed == nil {
			failed = t.send(batch)
		}
		bytes := 0
		for i := range batch {
			if batch[i].reservation != nil {
				batch[i].reservation.Close()
			}
			bytes += batch[i].bytes
		}
		t.mutex.Lock()
		t.failed = failed
		t.bundles -= len(batch)
		t.bytes -= bytes
		t.room.Signal()
	}
	t.sending = false
}

// send sends a message of answers.
func (t *streamed) send(batch []answered) error {
	message := &ledgerdv1.SubmitStreamResponse{
		Answers: make([]*ledgerdv1.BundleAnswer, len(batch))}
	for i := range batch {
		message.Answers[i] = batch[i].answer
	}
	t.stuck.Reset(t.options.MaxStuckTime)
	err := t.stream.Send(message)
	t.stuck.Stop()
	if err != nil {
		t.body.cut() // the reader has nothing more to wait for
	}
	return err
}

// refusedAnswer returns the answer of a bundle that was not admitted, from the error that Submit
// would return.
func refusedAnswer(number uint64, err error) *ledgerdv1.BundleAnswer {
	refusal := &ledgerdv1.BundleRefusal{Code: uint32(connect.CodeOf(err)), Reason: err.Error()}
	if coded := (*connect.Error)(nil); errors.As(err, &coded) {
		refusal.Reason = coded.Message()
		refusal.Retry = coded.Meta().Get(HeaderRetry) == "true"
		refusal.Unsure = coded.Meta().Get(HeaderUnsure) == "true"
		refusal.Writers = writersIn(coded)
		refusal.ReasonCode = coded.Meta().Get(HeaderReason)
	}
	return &ledgerdv1.BundleAnswer{Number: number, Refusal: refusal}
}

// runs returns the statuses of a bundle's transactions in this chain.
func (s *Service) runs(bundle *ledger.Bundle, statuses []report.Status) []*ledgerdv1.StatusRun {
	runs := make([]*ledgerdv1.StatusRun, 0, 1)
	for first, i := 0, 1; i <= len(statuses); i++ {
		if i < len(statuses) && continues(&statuses[first], &statuses[i], i-first) {
			continue
		}
		runs = append(runs, s.run(bundle, first, i-first, &statuses[first]))
		first = i
	}
	return runs
}

// run returns a run of statuses, given that of the first transaction.
func (s *Service) run(bundle *ledger.Bundle, first, count int,
	status *report.Status) *ledgerdv1.StatusRun {
	shown := new(ledgerdv1.TransactionStatus)
	describe(shown, status, bundle.Transaction(first), s.decimalsOf)
	if status.InBlock() {
		shown.Shard = uint32(s.backend.Store().Shard())
	}
	return &ledgerdv1.StatusRun{Count: uint32(count), Status: shown}
}

// submitPacked is submit for a packed bundle, and returns the statuses as runs. A block has all of
// the bundle's transfers or none, so it waits for the first one only, and finds the results of the
// others in the block.
func (s *Service) submitPacked(ctx context.Context, bundle *ledger.Bundle,
	level report.Level) ([]*ledgerdv1.StatusRun, error) {
	if err := s.admit(ctx, bundle); err != nil {
		return nil, err
	}
	first := bundle.ID(0)
	statuses, err := s.waitAdmitted(ctx, []ledger.Hash{first}, level)
	if err != nil {
		return nil, err
	}
	if !statuses[0].InBlock() {
		return []*ledgerdv1.StatusRun{s.run(bundle, 0, bundle.Len(), &statuses[0])}, nil
	}
	block, err := s.backend.Store().Block(statuses[0].Height)
	index := int(statuses[0].Index)
	if err != nil || index+bundle.Len() > block.Len() || block.ID(index) != first {
		// The block cannot be read, or another chain replaced the one that has it.
		if statuses, err = s.waitAdmitted(ctx, bundle.IDs(), level); err != nil {
			return nil, err
		}
		return s.runs(bundle, statuses), nil
	}
	return s.runsIn(block, bundle, &statuses[0]), nil
}

// runsIn returns the statuses of a packed bundle's transfers, which are in this block, given that
// of the first one.
func (s *Service) runsIn(block *ledger.Block, bundle *ledger.Bundle,
	first *report.Status) []*ledgerdv1.StatusRun {
	entry := block.Entry(int(first.Index))
	seal := &block.Bundles[entry.Bundle]
	runs := make([]*ledgerdv1.StatusRun, 0, 1)
	for begin := 0; begin < seal.Len(); {
		status := *first
		status.Index += uint32(begin)
		status.Result, status.Outcome = seal.Result(begin), report.OutcomeExecuted
		end := begin + 1
		if status.Result.OK() {
			for end < seal.Len() && seal.Result(end).OK() {
				end++
			}
		} else {
			status.Outcome = report.OutcomeFailed
		}
		runs = append(runs, s.run(bundle, begin, end-begin, &status))
		begin = end
	}
	return runs
}

// continues reports whether a status differs from the first of a run only as a later one of the run
// does.
func continues(first, next *report.Status, after int) bool {
	return next.Outcome == first.Outcome && next.Outcome != report.OutcomeFailed &&
		next.Level == first.Level && next.Height == first.Height &&
		(!next.InBlock() || next.Index == first.Index+uint32(after)) &&
		next.Settled == first.Settled && slices.Equal(next.Waits, first.Waits) &&
		slices.Equal(next.Destinations, first.Destinations)
}

// RunsOf returns statuses of a bundle's transactions as runs. It takes the ids from the statuses.
func RunsOf(statuses []*ledgerdv1.TransactionStatus) []*ledgerdv1.StatusRun {
	var runs []*ledgerdv1.StatusRun
	var last *ledgerdv1.StatusRun
	for _, next := range statuses {
		next.Id, next.IdHex = nil, ""
		if last != nil && sameRun(last.GetStatus(), next, last.GetCount()) {
			last.Count++
			continue
		}
		last = &ledgerdv1.StatusRun{Count: 1, Status: next}
		runs = append(runs, last)
	}
	return runs
}

// sameRun is continues for statuses of any shard.
func sameRun(first, next *ledgerdv1.TransactionStatus, after uint32) bool {
	return next.GetState() == first.GetState() && next.GetHeight() == first.GetHeight() &&
		(next.GetHeight() == 0 || next.GetIndex() == first.GetIndex()+after) &&
		next.GetReasonCode() == first.GetReasonCode() && next.GetReason() == first.GetReason() &&
		slices.Equal(next.GetDestinations(), first.GetDestinations()) &&
		slices.Equal(next.GetWaitsFor(), first.GetWaitsFor()) &&
		next.GetShard() == first.GetShard() &&
		next.GetSettledHeight() == first.GetSettledHeight() &&
		next.GetEverywhere() == first.GetEverywhere()
}
