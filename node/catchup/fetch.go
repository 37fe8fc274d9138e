package catchup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

var (
	errBusy    = errors.New("it is busy")
	errTimeout = errors.New("no answer in time")
	errAnswer  = errors.New("wrong answer")
)

// call is a request that waits for its answer.
type call struct {
	peer rdmanet.PeerID
	// result takes one outcome, from the goroutine that removes the call from the table.
	result chan outcome
}

type outcome struct {
	frame []byte
	err   error
}

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
	a, err := f.exchange.ask(ctx, f.peer, asked)
	if err != nil {
		return fmt.Errorf("blocks after %d: %w", f.after.Height, err)
	}
	switch a.status {
	case statusBlocks:
		if len(f.partial) > 0 || uint64(len(a.blocks)) > uint64(asked.limits.blocks) {
			return f.wrong(fmt.Errorf("%d blocks", len(a.blocks)))
		}
		for _, encoded := range a.blocks {
			if err := f.take(encoded); err != nil {
				return err
			}
		}
		return nil
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
		a, err := x.ask(ctx, to, request{content: true, hash: hash, offset: uint64(len(content)),
			limits: x.piece})
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

// ask sends one request and waits for its answer. Its errors are Fetch's.
func (x *Exchange) ask(ctx context.Context, to *peer, r request) (answer, error) {
	if x.isClosed() {
		return answer{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	select {
	case to.slots <- struct{}{}:
		defer func() { <-to.slots }()
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case <-x.closed:
		return answer{}, ErrClosed
	}
	r.id = x.nextID.Add(1)
	waiting := &call{peer: to.id, result: make(chan outcome, 1)}
	x.mu.Lock()
	x.waiting[r.id] = waiting
	x.mu.Unlock()
	defer x.forget(r.id)

	timer := time.NewTimer(x.timeout)
	defer timer.Stop()
	// A request is small. It must get room on its lane within the same timeout.
	sending, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	if err := x.send(sending, to.id, r.encode()); err != nil {
		if cause := ctx.Err(); cause != nil {
			return answer{}, cause
		}
		return answer{}, unavailable(to.id, err)
	}
	select {
	case result := <-waiting.result:
		if result.err != nil {
			return answer{}, unavailable(to.id, result.err)
		}
		a, err := decodeAnswer(result.frame)
		if err != nil {
			x.logger.Warn("a malformed answer to a request for blocks was dropped", "peer", to.id,
				"error", err)
			return answer{}, unavailable(to.id, fmt.Errorf("%w: %w", errAnswer, err))
		}
		return a, nil
	case <-timer.C:
		return answer{}, unavailable(to.id, fmt.Errorf("%w (%v)", errTimeout, x.timeout))
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case <-x.closed:
		return answer{}, ErrClosed
	}
}

func (x *Exchange) forget(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.waiting, id)
}

// answered passes an answer to the call that waits for it.
func (x *Exchange) answered(from rdmanet.Peer, frame []byte) {
	id, err := answerID(frame)
	if err != nil {
		x.logger.Warn("a malformed answer to a request for blocks was dropped", "peer", from,
			"error", err)
		return
	}
	x.mu.Lock()
	waiting := x.waiting[id]
	if waiting != nil && waiting.peer == from.ID {
		delete(x.waiting, id)
	} else {
		waiting = nil
	}
	x.mu.Unlock()
	if waiting == nil {
		x.logger.Warn("an answer that no call waits for was dropped", "peer", from, "request", id)
		return
	}
	waiting.result <- outcome{frame: frame}
}

// watch ends the calls whose request or answer was lost with its lane, without waiting for their
// timeout.
func (x *Exchange) watch(event rdmanet.PeerEvent) {
	var cause error
	switch {
	case event.Kind == rdmanet.PeerRestarted:
		cause = rdmanet.ErrReset
	case event.Kind == rdmanet.LaneReset && event.Lane == LaneName:
		cause = rdmanet.ErrReset
	case event.Kind == rdmanet.PeerUnreachable && event.Lane == LaneName:
		cause = rdmanet.ErrUnreachable
	default:
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, waiting := range x.waiting {
		if waiting.peer == event.Peer.ID {
			delete(x.waiting, id)
			waiting.result <- outcome{err: cause}
		}
	}
}
