package catchup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// lookEvery is the interval of looking at a request that may be lost.
const lookEvery = 100 * time.Millisecond

var (
	errBusy    = errors.New("it is busy")
	errTimeout = errors.New("no answer in time")
	errAnswer  = errors.New("wrong answer")
)

// Fetch asks one peer for the blocks that follow `after`, a block that this node holds (height 0
// with the genesis hash for all), up to the height `to`. It calls add for each block, in order,
// from the caller's goroutine. Each block's roots were checked, and that it follows the one before.
// A block may share memory with those fetched with it.
//
// Fetch returns nil once block `to` was added. Otherwise some blocks may have been added. The error
// is ErrBehind if the peer has no more blocks, ErrFork if it has another block at the last height
// that this node has now, ErrAbsent if it lacks the next block because it began with a snapshot,
// ErrUnavailable if it did not serve, ErrClosed, ctx's error, or add's error, wrapped.
func (x *Exchange) Fetch(ctx context.Context, peer rdmanet.PeerID, after Point, to ledger.Height,
	add func(*ledger.Block) error) error {
	f := fetch{exchange: x, peer: x.peer(peer), after: after, to: to, add: add}
	if f.peer == nil {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, peer, rdmanet.ErrNotMember)
	}
	for f.after.Height < f.to {
		if err := f.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fetch is the state of one call of Fetch.
type fetch struct {
	exchange *Exchange
	peer     *peer
	after    Point
	to       ledger.Height
	add      func(*ledger.Block) error
	// partial holds the received parts of the block after the point, if the block comes in parts.
	// The whole block has total bytes.
	partial []byte
	total   uint64
}

// step fetches one piece.
func (f *fetch) step(ctx context.Context) error {
	asked := request{after: f.after, to: f.to, offset: uint64(len(f.partial)),
		limits: f.exchange.piece}
	q, err := f.exchange.ask(ctx, f.peer, kindBlocks, asked.encode())
	if err != nil {
		return fmt.Errorf("blocks after %d: %w", f.after.Height, err)
	}
	defer q.close()
	a, err := q.first(ctx)
	if err != nil {
		return fmt.Errorf("blocks after %d: %w", f.after.Height, err)
	}
	switch a.status {
	case statusBlocks:
		return f.takeBlocks(ctx, q, a)
	case statusPart:
		return f.takePart(a)
	case statusFork:
		if a.theirs.Height != f.after.Height || a.theirs.Hash == f.after.Hash ||
			a.head < f.after.Height {
			return f.wrong(fmt.Errorf("a fork at %s, height %d", a.theirs, a.head))
		}
		return &ForkError{Peer: f.peer.id, Ours: f.after, Theirs: a.theirs, Head: a.head}
	case statusBehind:
		if a.head > f.after.Height {
			return f.wrong(fmt.Errorf("no more blocks, at height %d", a.head))
		}
		return &BehindError{Peer: f.peer.id, After: f.after, Head: a.head}
	case statusAbsent:
		if a.absent <= f.after.Height || a.absent > a.head {
			return f.wrong(fmt.Errorf("no blocks up to %d, at height %d", a.absent, a.head))
		}
		return &AbsentError{Peer: f.peer.id, After: f.after, Absent: a.absent}
	case statusBusy:
		return f.unavailable(errBusy)
	default:
		return f.unavailable(fmt.Errorf("it says %q", a.reason))
	}
}

// takeBlocks takes the blocks of an answer as they arrive.
func (f *fetch) takeBlocks(ctx context.Context, q *query, a answer) error {
	if len(f.partial) > 0 {
		return f.wrong(fmt.Errorf("%d blocks", len(a.blocks)))
	}
	for left, more := int(f.exchange.piece.blocks), true; more; {
		if left -= len(a.blocks); a.status != statusBlocks || left < 0 {
			return f.wrong(fmt.Errorf("%d more blocks, status %d", len(a.blocks), a.status))
		}
		for _, encoded := range a.blocks {
			if err := f.take(encoded); err != nil {
				return err
			}
		}
		var err error
		if a, more, err = q.next(ctx); err != nil {
			return fmt.Errorf("blocks after %d: %w", f.after.Height, err)
		}
	}
	return nil
}

// takePart adds a part to the block that comes in parts, and takes the block when it is complete.
func (f *fetch) takePart(a answer) error {
	switch {
	case a.offset != uint64(len(f.partial)) || f.partial != nil && a.total != f.total:
		return f.wrong(fmt.Errorf("a part at %d of %d", a.offset, a.total))
	case a.total > f.exchange.blockBytesMax.Load():
		return f.wrong(fmt.Errorf("a block of %d bytes", a.total))
	}
	f.partial, f.total = append(f.partial, a.part...), a.total
	if uint64(len(f.partial)) < f.total {
		return nil
	}
	encoded := f.partial
	f.partial, f.total = nil, 0
	return f.take(encoded)
}

// take checks one block and passes it to the caller.
func (f *fetch) take(encoded []byte) error {
	block, err := ledger.DecodeBlock(encoded)
	if err != nil {
		return f.wrong(err)
	}
	if block.Header.Height != f.after.Height+1 || block.Header.Previous != f.after.Hash ||
		block.Header.Height > f.to {
		return f.wrong(fmt.Errorf("block %d, which follows %s, up to %d", block.Header.Height,
			block.Header.Previous, f.to))
	}
	if err := f.add(block); err != nil {
		return fmt.Errorf("catchup: add block %d: %w", block.Header.Height, err)
	}
	f.after = Point{Height: block.Header.Height, Hash: block.Hash}
	return nil
}

// wrong rejects an answer of the peer.
func (f *fetch) wrong(err error) error {
	f.exchange.logger.Warn("a wrong answer to a request for blocks was dropped", "peer", f.peer.id,
		"after", f.after.Height, "error", err)
	return f.unavailable(fmt.Errorf("%w: %w", errAnswer, err))
}

func (f *fetch) unavailable(err error) error {
	return fmt.Errorf("blocks after %d: %w", f.after.Height, unavailable(f.peer.id, err))
}

func unavailable(peer rdmanet.PeerID, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, peer, err)
}

// FetchContent asks one peer for the contents with a sha256, and returns them whole and checked. It
// returns ErrUnavailable if the peer does not serve them, ErrClosed, or ctx's error.
func (x *Exchange) FetchContent(ctx context.Context, from rdmanet.PeerID, hash [32]byte) ([]byte,
	error) {
	to := x.peer(from)
	if to == nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, from, rdmanet.ErrNotMember)
	}
	content := []byte{}
	for {
		a, err := x.askContent(ctx, to, contentRequest{hash: hash, offset: uint64(len(content)),
			bytes: x.piece.bytes})
		switch {
		case err != nil:
			return nil, err
		case a.status == statusBusy:
			return nil, unavailable(from, errBusy)
		case a.status == statusUnavailable:
			return nil, unavailable(from, fmt.Errorf("it says %q", a.reason))
		case a.status != statusPart || a.offset != uint64(len(content)) ||
			a.total > x.blockBytesMax.Load():
			return nil, unavailable(from, fmt.Errorf("%w: part at %d of %d", errAnswer, a.offset,
				a.total))
		}
		if content = append(content, a.part...); uint64(len(content)) < a.total {
			continue
		}
		if sha256.Sum256(content) != hash {
			return nil, unavailable(from, fmt.Errorf("%w: other contents than asked for",
				errAnswer))
		}
		return content, nil
	}
}

// askContent asks for one part of some contents.
func (x *Exchange) askContent(ctx context.Context, to *peer, r contentRequest) (answer, error) {
	q, err := x.ask(ctx, to, kindContents, r.encode())
	if err != nil {
		return answer{}, err
	}
	defer q.close()
	return q.first(ctx)
}

// query is a request under way.
type query struct {
	exchange *Exchange
	to       *peer
	asked    *wire.Asked
	wake     chan struct{}
	timer    *time.Timer
}

// ask sends one request. Its errors, and those of the query, are Fetch's. The query must be closed.
func (x *Exchange) ask(ctx context.Context, to *peer, kind byte, head []byte) (*query, error) {
	if x.isClosed() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case to.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-x.closed:
		return nil, ErrClosed
	}
	q := &query{exchange: x, to: to, wake: make(chan struct{}, 1), timer: time.NewTimer(x.timeout)}
	q.asked = x.requests.Ask(to.id, wire.Request{Kind: kind, Head: head, Wake: q.wake,
		Deadline: time.Now().Add(x.timeout), AnswerMax: x.piece.answerMax()})
	return q, nil
}

func (q *query) close() {
	q.timer.Stop()
	q.asked.Close()
	<-q.to.slots
}

// first returns the first answer.
func (q *query) first(ctx context.Context) (answer, error) {
	a, ok, err := q.next(ctx)
	if err == nil && !ok {
		err = q.wrong(errors.New("an empty one"))
	}
	return a, err
}

// next returns the next answer, once it is here, or false at the end.
func (q *query) next(ctx context.Context) (answer, bool, error) {
	x := q.exchange
	for {
		now := q.asked.Progress()
		if chunk, ok := q.asked.Next(); ok {
			a, err := decodeAnswer(chunk)
			if err != nil {
				return answer{}, false, q.wrong(err)
			}
			return a, true, nil
		}
		switch {
		case now.Whole:
			return answer{}, false, nil
		case errors.Is(now.Err, wire.ErrClosed):
			return answer{}, false, ErrClosed
		case errors.Is(now.Err, wire.ErrAnswer):
			return answer{}, false, q.wrong(now.Err)
		case now.Err != nil:
			return answer{}, false, unavailable(q.to.id, now.Err)
		case now.Gap:
			return answer{}, false, unavailable(q.to.id, rdmanet.ErrReset)
		}
		var look <-chan time.Time
		if now.Doubted {
			q.asked.Check()
			look = time.After(lookEvery)
		}
		select {
		case <-q.wake:
		case <-look:
		case <-q.timer.C:
			return answer{}, false, unavailable(q.to.id, fmt.Errorf("%w (%v)", errTimeout,
				x.timeout))
		case <-ctx.Done():
			return answer{}, false, ctx.Err()
		case <-x.closed:
			return answer{}, false, ErrClosed
		}
	}
}

// wrong rejects an answer that is malformed.
func (q *query) wrong(err error) error {
	q.exchange.logger.Warn("a malformed answer to a request for blocks was dropped", "peer",
		q.to.id, "error", err)
	return unavailable(q.to.id, fmt.Errorf("%w: %w", errAnswer, err))
}
