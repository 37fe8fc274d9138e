package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// copyMax is the largest request in one frame that is copied. The copy keeps a request that waits
// from holding a larger buffer.
const copyMax = 32 << 10

// errUnfinished is the failure of a request whose handler did not end its answer.
var errUnfinished = errors.New("the answer was not finished")

// servedKey identifies a request of a peer.
type servedKey struct {
	peer rdmanet.PeerID
	id   uint64
}

// Served is a request of a peer, at the end that answers it. One goroutine uses it.
type Served struct {
	From rdmanet.Peer
	// Kind, Head and Body are what the peer sent.
	Kind       byte
	Head, Body []byte

	owner *Requests
	ctx   context.Context
	key   servedKey

	arrived chan struct{} // closed when the body is complete
	cancel  context.CancelFunc
	// owner.mu guards signAt, and Body until it is complete.
	total  int
	signAt time.Time

	lane   rdmanet.Lane // nil until a chunk was sent
	number uint32       // of the next chunk
	ended  bool
}

func (s *Served) complete() bool { return len(s.Body) == s.total }

// Send sends a chunk of the answer, the parts joined and not empty. It waits for room on the lane.
// The error is the fabric's, or that of the request's context.
func (s *Served) Send(parts ...[]byte) error { return s.send(frameChunk, parts) }

// End sends the last chunk of the answer, which may be empty.
func (s *Served) End(parts ...[]byte) error {
	s.ended = true
	return s.send(frameLast, parts)
}

// send sends a frame of an answer. The frames of one answer go over one lane object, so that there
// is no gap between them.
func (s *Served) send(kind frameKind, parts [][]byte) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	frame := encodePiece(kind, s.key.id, s.number, parts...)
	s.number++
	if s.lane == nil {
		lane, sent, err := s.owner.trySend(s.key.peer, frame)
		if s.lane = lane; sent || err != nil {
			return err
		}
	}
	return s.lane.Send(s.ctx, frame)
}

// accept starts to serve a request, or answers that this node is too busy.
func (x *Requests) accept(from rdmanet.Peer, r requestFrame) {
	s := &Served{From: from, Kind: r.kind, Head: r.head, Body: r.body, owner: x,
		key: servedKey{from.ID, r.id}, total: r.total, arrived: make(chan struct{}),
		signAt: time.Now().Add(firstSignAfter)}
	timeout := min(time.Duration(r.milliseconds)*time.Millisecond, x.config.TimeoutMax)
	x.mu.Lock()
	switch {
	case x.closed || x.serving[s.key] != nil:
		x.mu.Unlock()
		return
	case len(x.serving) >= x.config.ServingMax || x.ofPeer[from.ID] >= x.config.ServingPerPeer ||
		!x.config.Serving.Take(r.total):
		x.mu.Unlock()
		x.refused.Add(1)
		// If there is no room, the asker detects the silence.
		_, _, _ = x.trySend(from.ID, encodePiece(frameLast, r.id, 0, x.config.Busy))
		return
	}
	switch {
	case !s.complete():
		s.Head, s.Body = slices.Clone(s.Head), append(make([]byte, 0, r.total), s.Body...)
	case r.total+len(r.head) <= copyMax:
		whole := append(append(make([]byte, 0, len(r.head)+r.total), r.head...), r.body...)
		s.Head, s.Body = whole[:len(r.head):len(r.head)], whole[len(r.head):]
		fallthrough
	default:
		close(s.arrived)
	}
	s.ctx, s.cancel = context.WithTimeout(x.life, timeout)
	x.serving[s.key] = s
	x.ofPeer[from.ID]++
	x.served.Add(1)
	x.done.Go(s.serve)
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// acceptPart handles a later piece of a request, which must follow the previous one.
func (x *Requests) acceptPart(from rdmanet.Peer, p piece) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.serving[servedKey{from.ID, p.id}]
	switch {
	case s == nil:
		return nil
	case s.complete():
		return fmt.Errorf("%w: a part behind the end", errFrame)
	case uint64(p.at) != uint64(len(s.Body)) || len(p.bytes) > s.total-len(s.Body):
		s.cancel()
		return fmt.Errorf("%w: a part of %d bytes at %d, %d of %d are here", errFrame, len(p.bytes),
			p.at, len(s.Body), s.total)
	}
	if s.Body = append(s.Body, p.bytes...); s.complete() {
		close(s.arrived)
	}
	return nil
}

// cancelled ends a request that its asker gave up.
func (x *Requests) cancelled(from rdmanet.Peer, id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.serving[servedKey{from.ID, id}]; s != nil {
		s.cancel()
	}
}

// endServing ends the requests of a peer for which ended returns true.
func (x *Requests) endServing(peer rdmanet.PeerID, ended func(*Served) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.serving {
		if s.key.peer == peer && ended(s) {
			s.cancel()
		}
	}
}

// serve waits for a request's body and runs the handler.
func (s *Served) serve() {
	x := s.owner
	defer s.cancel()
	defer func() {
		x.mu.Lock()
		delete(x.serving, s.key)
		if x.ofPeer[s.key.peer]--; x.ofPeer[s.key.peer] == 0 {
			delete(x.ofPeer, s.key.peer)
		}
		x.mu.Unlock()
		x.config.Serving.Give(s.total)
	}()
	select {
	case <-s.arrived:
	case <-s.ctx.Done():
		return
	}
	err := x.config.Serve(s.ctx, s)
	if err == nil && !s.ended {
		err = errUnfinished
	}
	if err == nil || s.ctx.Err() != nil {
		return
	}
	x.logger.Info("a request of a peer was not answered", "peer", s.From, "lane", x.config.Lane,
		"error", err)
	_, _, _ = x.trySend(s.key.peer, encodeFailure(s.key.id, err.Error()))
}

// sign sends signs to askers while any request is served.
func (x *Requests) sign() {
	for {
		select {
		case <-x.wake:
		case <-x.life.Done():
			return
		}
		ticker := time.NewTicker(signTick)
		for more := true; more; {
			select {
			case now := <-ticker.C:
				more = x.signAll(now)
			case <-x.life.Done():
				ticker.Stop()
				return
			}
		}
		ticker.Stop()
	}
}

// signAll sends the signs that are due, and reports whether any request is served.
func (x *Requests) signAll(now time.Time) bool {
	due := make(map[rdmanet.PeerID][]uint64)
	x.mu.Lock()
	more := len(x.serving) > 0
	for _, s := range x.serving {
		if !now.Before(s.signAt) {
			s.signAt = now.Add(signEvery)
			due[s.key.peer] = append(due[s.key.peer], s.key.id)
		}
	}
	x.mu.Unlock()
	for peer, ids := range due {
		for some := range slices.Chunk(ids, workingMax) {
			// A peer that has no room, or is gone, detects the silence.
			_, _, _ = x.trySend(peer, encodeWorking(some))
		}
	}
	return more
}
