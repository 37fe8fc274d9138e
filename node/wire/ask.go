package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Request is what a peer is asked.
type Request struct {
	// Kind, Head and Body are the service's. Head has at most HeadMax bytes, Body at most the
	// peer's BodyMax.
	Kind       byte
	Head, Body []byte
	// Deadline is when the peer stops to work on the request. The asker must watch it, too.
	Deadline time.Time
	// AnswerMax bounds the answer, in bytes.
	AnswerMax int
	// Wake gets a token when something happened: a chunk, the end, a sign, or a reason to doubt. It
	// has room for one token. Several requests may share it.
	Wake chan<- struct{}
}

// Asked is a request under way, at the end that asked. It must be closed.
type Asked struct {
	owner     *Requests
	id        uint64
	peer      rdmanet.PeerID
	wake      chan<- struct{}
	answerMax int
	// stop ends the goroutine that sends a large request; nil if there is none.
	stop context.CancelFunc

	// owner.mu guards what follows.
	lane     rdmanet.Lane // nil until something was sent
	progress Progress
	number   uint32 // of the next chunk
	size     int    // of all chunks
	reserved int    // of owner.config.Arriving
	// unread are the chunks that were not taken, after first.
	first  []byte
	unread [][]byte
}

// Progress is how far a request has come.
type Progress struct {
	// Heard is when the peer last showed that it works on the request, or when it was asked.
	Heard time.Time
	// Doubted means that the fabric reported an event after which the request may be lost. A sign
	// of work clears it.
	Doubted bool
	// Gap means that the fabric lost frames of the peer, and the answer may be among them. A sign
	// of work clears it, too.
	Gap bool
	// Whole means that the answer has ended; its chunks may be unread. Err is why it will never be
	// whole: ErrRefused, ErrAnswer, ErrMemory, ErrClosed, or the fabric's.
	Whole bool
	Err   error
}

func (p Progress) over() bool { return p.Whole || p.Err != nil }

// Ask sends a request to a peer. It waits neither for room on the lane nor for the answer.
func (x *Requests) Ask(peer rdmanet.PeerID, r Request) *Asked {
	now := time.Now()
	a := &Asked{owner: x, id: x.nextID.Add(1), peer: peer, wake: r.Wake, answerMax: r.AnswerMax,
		progress: Progress{Heard: now}}
	if len(r.Head) > HeadMax {
		a.progress.Err = fmt.Errorf("wire: a head of %d bytes, at most %d are carried", len(r.Head),
			HeadMax)
		return a
	}
	left := min(r.Deadline.Sub(now), 24*time.Hour)
	frames := encodeRequest(a.id, uint32(max(1, left.Milliseconds())), r.Kind, r.Head, r.Body,
		x.config.PieceBytes)
	x.mu.Lock()
	if x.closed {
		a.progress.Err = ErrClosed
		x.mu.Unlock()
		return a
	}
	x.asked[a.id] = a
	x.mu.Unlock()
	if len(frames) == 1 {
		lane, sent, err := x.trySend(peer, frames[0])
		switch {
		case err != nil:
			x.lost(peer, a.id, err)
			return a
		case sent:
			a.sentOn(lane)
			return a
		}
	}
	a.sendLater(frames)
	return a
}

// sendLater sends a request that may have to wait for room. Its goroutine also tells the peer to
// stop if the request is closed before its answer is whole.
func (a *Asked) sendLater(frames [][]byte) {
	x := a.owner
	var ctx context.Context
	ctx, a.stop = context.WithCancel(x.life)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return // Close ended the request
	}
	x.done.Go(func() {
		defer a.stop()
		if err := a.send(ctx, frames); err != nil && ctx.Err() == nil {
			x.lost(a.peer, a.id, err)
		}
		<-ctx.Done()
		if !a.Progress().Whole {
			_, _, _ = x.trySend(a.peer, encodeCancel(a.id)) // otherwise its deadline ends it
		}
	})
}

// send sends frames one by one, waiting for room. If the lane broke since its last use, it sends
// the first frame over a fresh lane.
func (a *Asked) send(ctx context.Context, frames [][]byte) error {
	x := a.owner
	lane, err := x.host.Lane(a.peer, x.config.Lane)
	if err != nil {
		return err
	}
	a.sentOn(lane)
	for i, frame := range frames {
		err := lane.Send(ctx, frame)
		if i == 0 && broken(err) {
			if lane, err = x.host.Lane(a.peer, x.config.Lane); err != nil {
				return err
			}
			a.sentOn(lane)
			err = lane.Send(ctx, frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Asked) sentOn(lane rdmanet.Lane) {
	a.owner.mu.Lock()
	a.lane = lane
	a.owner.mu.Unlock()
}

// Progress returns how far the request has come.
func (a *Asked) Progress() Progress {
	a.owner.mu.Lock()
	defer a.owner.mu.Unlock()
	return a.progress
}

// Sent reports whether something of the request may have reached the peer. It is true for good once
// it is, and final once the request is over.
func (a *Asked) Sent() bool {
	a.owner.mu.Lock()
	defer a.owner.mu.Unlock()
	return a.lane != nil
}

// Next returns the next chunk of the answer, if one is here. The caller may keep it.
func (a *Asked) Next() (chunk []byte, ok bool) {
	x := a.owner
	x.mu.Lock()
	defer x.mu.Unlock()
	if chunk = a.first; chunk == nil {
		return nil, false
	}
	a.first = nil
	if len(a.unread) > 0 {
		a.first, a.unread = a.unread[0], a.unread[1:]
	}
	return chunk, true
}

// Check finds whether the lane on which the request was sent broke. The request then ends with the
// lane's error. An asker calls it from time to time while the request is doubted, since a lane may
// break a moment after the event that is the reason.
func (a *Asked) Check() {
	x := a.owner
	x.mu.Lock()
	lane, open := a.lane, !a.progress.over()
	x.mu.Unlock()
	if !open || lane == nil {
		return
	}
	if _, err := lane.TrySend(); err != nil {
		x.lost(a.peer, a.id, err)
	}
}

// Close releases the answer's memory. The peer is told to stop if it still works on the request.
func (a *Asked) Close() {
	x := a.owner
	x.mu.Lock()
	open := x.asked[a.id] == a
	delete(x.asked, a.id)
	if !a.progress.over() {
		a.progress.Err = context.Canceled
	}
	x.config.Arriving.Give(a.reserved)
	a.reserved, a.first, a.unread = 0, nil, nil
	x.mu.Unlock()
	switch {
	case a.stop != nil:
		a.stop()
	case open:
		_, _, _ = x.trySend(a.peer, encodeCancel(a.id)) // otherwise its deadline ends it
	}
}

// find returns the request that a frame of a peer is about, or nil if it is over. The caller holds
// the lock.
func (x *Requests) find(peer rdmanet.PeerID, id uint64) *Asked {
	if a := x.asked[id]; a != nil && a.peer == peer {
		return a
	}
	return nil
}

// heard records that the peer works on a request. The caller holds the lock.
func (a *Asked) heard() {
	a.progress.Heard, a.progress.Doubted, a.progress.Gap = time.Now(), false, false
}

// lose ends a request that will not be answered. The caller holds the lock.
func (a *Asked) lose(err error) {
	a.progress.Err = err
	delete(a.owner.asked, a.id)
	a.tell()
}

func (a *Asked) tell() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// answered handles a chunk of an answer.
func (x *Requests) answered(from rdmanet.Peer, p piece, last bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.find(from.ID, p.id)
	if a == nil {
		return nil
	}
	if err := a.add(p, last); err != nil {
		a.lose(err)
		return err
	}
	a.heard()
	if last {
		a.progress.Whole = true
		delete(x.asked, a.id)
	}
	a.tell()
	return nil
}

// add keeps a chunk, which must follow the previous one. An answer of one chunk is in a frame that
// is here already, and is not counted. The caller holds the lock.
func (a *Asked) add(p piece, last bool) error {
	switch {
	case p.at != a.number:
		return fmt.Errorf("%w: %w: chunk %d instead of %d", ErrAnswer, errFrame, p.at, a.number)
	case len(p.bytes) > a.answerMax-a.size:
		return fmt.Errorf("%w: %w: over %d bytes", ErrAnswer, errFrame, a.answerMax)
	case !last || a.number > 0:
		if !a.owner.config.Arriving.Take(len(p.bytes)) {
			return ErrMemory
		}
		a.reserved += len(p.bytes)
	}
	a.number++
	a.size += len(p.bytes)
	switch {
	case len(p.bytes) == 0:
	case a.first == nil:
		a.first = p.bytes
	default:
		a.unread = append(a.unread, p.bytes)
	}
	return nil
}

// working handles a sign.
func (x *Requests) working(from rdmanet.Peer, ids []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if a := x.find(from.ID, id); a != nil {
			a.heard()
			a.tell()
		}
	}
}

// lost ends a request that cannot be answered any more.
func (x *Requests) lost(peer rdmanet.PeerID, id uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.find(peer, id); a != nil {
		a.lose(err)
	}
}

// doubt marks the requests that a peer was asked. A gap ends those of which a part has arrived.
func (x *Requests) doubt(peer rdmanet.PeerID, gap bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.asked {
		switch {
		case a.peer != peer:
		case gap && a.number > 0:
			a.lose(rdmanet.ErrReset)
		default:
			a.progress.Doubted, a.progress.Gap = true, a.progress.Gap || gap
			a.tell()
		}
	}
}

// checkLanes ends the requests to a peer whose lane broke.
func (x *Requests) checkLanes(peer rdmanet.PeerID) {
	var open []*Asked
	x.mu.Lock()
	for _, a := range x.asked {
		if a.peer == peer {
			open = append(open, a)
		}
	}
	x.mu.Unlock()
	for _, a := range open {
		a.Check()
	}
}
