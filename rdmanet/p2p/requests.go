package p2p

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// entry is an operation or an attach under way on a link. Entries complete in their order.
type entry struct {
	kind   requestKind // 0: an operation on an attachment that was over, which gets no response
	pieces int         // responses still awaited
	posted time.Time
	err    error
	// Used by operations:
	queue *queue
	to    *attachment
	tag   uint64
	// long is the number of a write's last long piece. The writer has finished with the write's
	// bytes once it has sent that many long pieces.
	long uint64
	into []byte // the part that a read has yet to fill; it is filled from its end
	skew int    // a read's offset modulo the word size
	// Used by attaches:
	asked *attachRequest
}

// entryRing is a queue of entries that grows as needed. The depths of the rdmanet queues bound it.
type entryRing struct {
	ring        []entry // its length is a power of two
	first, next uint64
}

func (r *entryRing) len() int { return int(r.next - r.first) }

// at returns the i-th entry, valid until the next push.
func (r *entryRing) at(i int) *entry { return &r.ring[(r.first+uint64(i))&uint64(len(r.ring)-1)] }

// push adds an entry at the end and returns it, to be filled in.
func (r *entryRing) push() *entry {
	if r.len() == len(r.ring) {
		larger := make([]entry, max(64, 2*len(r.ring)))
		for i := range r.len() {
			larger[(r.first+uint64(i))&uint64(len(larger)-1)] = *r.at(i)
		}
		r.ring = larger
	}
	r.next++
	return r.at(r.len() - 1)
}

func (r *entryRing) pop() {
	*r.at(0) = entry{}
	r.first++
}

// requestBuffer holds requests that are yet to be sent: headers and short writes in sequence, and
// long writes, which are not copied, to be inserted between them.
type requestBuffer struct {
	bytes []byte
	long  []longWrite
}

// longWrite holds the bytes of a long write, to be inserted after the first at bytes of the buffer.
type longWrite struct {
	at    int
	bytes []byte
}

func (b *requestBuffer) empty() bool { return len(b.bytes) == 0 }

func (b *requestBuffer) reset() {
	clear(b.long)
	b.bytes, b.long = b.bytes[:0], b.long[:0]
}

func (b *requestBuffer) add(header request, bytes []byte) {
	b.bytes = header.append(b.bytes)
	if len(bytes) <= rdmanet.InlineMax {
		b.bytes = append(b.bytes, bytes...)
	} else {
		b.long = append(b.long, longWrite{len(b.bytes), bytes})
	}
}

// requestWriter writes requests to a connection.
type requestWriter struct {
	to     pieceWriter
	copied []byte      // bytes between large pieces; reused
	from   int         // copied[from:] is in no piece yet
	size   int         // of the pieces and of copied[from:], in bytes
	pieces net.Buffers // reused
	rest   net.Buffers // the pieces that a write has not written yet
}

// writeTogether bounds the bytes of one write, not counting its last piece.
const writeTogether = 256 << 10

// write sends the contents of the buffer. It calls sent whenever it has finished with the bytes of
// count further long writes.
func (w *requestWriter) write(b *requestBuffer, sent func(count uint64)) error {
	if len(b.long) == 0 {
		w.pieces = append(w.pieces[:0], b.bytes)
		return w.flush()
	}
	from, count := 0, uint64(0)
	for _, long := range b.long {
		w.copy(b.bytes[from:long.at])
		from = long.at
		if len(long.bytes) < gatherMin {
			w.copy(long.bytes)
		} else {
			w.refer(long.bytes)
		}
		count++
		if w.size < writeTogether {
			continue
		}
		if err := w.flush(); err != nil {
			return err
		}
		sent(count)
		count = 0
	}
	w.copy(b.bytes[from:])
	if w.size == 0 {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	sent(count)
	return nil
}

// copy adds bytes to be sent together with their neighbours.
func (w *requestWriter) copy(b []byte) {
	w.copied = append(w.copied, b...)
	w.size += len(b)
}

// refer adds bytes to be sent without copying.
func (w *requestWriter) refer(b []byte) {
	w.pieces = append(w.pieces, w.copied[w.from:], b)
	w.from = len(w.copied)
	w.size += len(b)
}

// flush sends all pieces.
func (w *requestWriter) flush() error {
	if w.from < len(w.copied) {
		w.pieces = append(w.pieces, w.copied[w.from:])
	}
	w.rest = w.pieces
	err := w.to.writePieces(&w.rest)
	clear(w.pieces)
	w.pieces, w.copied, w.from, w.size = w.pieces[:0], w.copied[:0], 0, 0
	return err
}

// completionBatch gathers completions of one queue, to be delivered together.
type completionBatch struct {
	queue       *queue
	completions []rdmanet.Completion
}

// completionBatchMax is the largest number of completions delivered together.
const completionBatchMax = 64

func (b *completionBatch) add(q *queue, completion rdmanet.Completion) {
	if b.queue != q || len(b.completions) == completionBatchMax {
		b.deliver()
	}
	b.queue = q
	b.completions = append(b.completions, completion)
}

func (b *completionBatch) deliver() {
	if len(b.completions) > 0 {
		b.queue.completions.Complete(b.completions...)
		clear(b.completions)
		b.completions = b.completions[:0]
	}
	b.queue = nil
}

// post adds those of the operations that go over this link.
func (l *link) post(q *queue, operations []rdmanet.Operation, now time.Time) {
	l.mu.Lock()
	for i := range operations {
		if linkOf(&operations[i]) == l {
			l.add(q, &operations[i], now)
		}
	}
	l.batch.deliver()
	up := l.up
	l.mu.Unlock()
	if up {
		notify(l.work)
	} else {
		notify(l.rush)
	}
}

// add adds an operation.
func (l *link) add(q *queue, operation *rdmanet.Operation, now time.Time) {
	to := operation.To.(*attachment)
	if err := to.errLocked(); err != nil {
		if l.entries.len() == 0 {
			l.batch.add(q, rdmanet.Completion{Tag: operation.Tag, Peer: l.name, Err: err})
		} else {
			*l.entries.push() = entry{posted: now, err: err, queue: q, to: to, tag: operation.Tag}
		}
		return
	}
	e := l.entries.push()
	*e = entry{kind: requestWrite, posted: now, queue: q, to: to, tag: operation.Tag,
		pieces: pieces(operation)}
	if operation.Kind == rdmanet.OperationRead {
		e.kind, e.into, e.skew = requestRead, operation.Bytes, operation.Offset%rdmanet.WordSize
	}
	if !l.up {
		return // the attachment is about to end
	}
	header := request{kind: e.kind, attachment: to.number}
	for i := range e.pieces {
		if e.kind == requestWrite {
			from, until := pieceOf(operation, i)
			header.offset, header.length = uint32(operation.Offset+from), uint32(until-from)
			header.ring = operation.Ring && i == e.pieces-1
			l.requests.add(header, operation.Bytes[from:until])
			if until-from > rdmanet.InlineMax {
				l.longs++
				e.long = l.longs
			}
		} else {
			from, until := pieceOf(operation, e.pieces-1-i) // the last piece is read first
			header.offset, header.length = uint32(operation.Offset+from), uint32(until-from)
			l.requests.add(header, nil)
		}
	}
}

// pieces returns how many requests an operation takes.
func pieces(operation *rdmanet.Operation) int {
	return max(1, (operation.Offset%rdmanet.WordSize+len(operation.Bytes)+pieceMax-1)/pieceMax)
}

// pieceOf returns the range of an operation's bytes that request i covers. No word of the region is
// in two requests.
func pieceOf(operation *rdmanet.Operation, i int) (from, until int) {
	skew := operation.Offset % rdmanet.WordSize
	return max(0, i*pieceMax-skew), min(len(operation.Bytes), (i+1)*pieceMax-skew)
}

// ask sends an attach. The caller holds the lock, and the link is up.
func (l *link) ask(asked *attachRequest) {
	l.numbers++
	asked.number = l.numbers
	*l.entries.push() = entry{kind: requestAttach, pieces: 1, posted: time.Now(), asked: asked}
	l.requests.add(request{kind: requestAttach, attachment: asked.number,
		length: uint32(len(asked.name))}, []byte(asked.name))
	notify(l.work)
}

// detach removes an attachment, here and at the owner. A second call does nothing. The caller holds
// the lock.
func (l *link) detach(a *attachment) {
	if l.attachments[a.number] != a {
		return
	}
	delete(l.attachments, a.number)
	if l.up {
		l.requests.add(request{kind: requestDetach, attachment: a.number}, nil)
		notify(l.work)
	}
}

// writeRequests sends requests until the stream breaks.
func (l *link) writeRequests(stream io.Writer, ended <-chan struct{}) {
	writer := requestWriter{to: pieceWriterTo(stream)}
	sent := func(count uint64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent += count
		l.conclude()
		l.batch.deliver()
	}
	var sending requestBuffer
	for {
		l.mu.Lock()
		sending, l.requests = l.requests, sending
		l.mu.Unlock()
		if sending.empty() {
			select {
			case <-l.work:
				continue
			case <-ended:
				return
			}
		}
		if writer.write(&sending, sent) != nil {
			return // the reader of responses also fails, with a better reason
		}
		sending.reset()
	}
}

// responsesBytes is the size of the buffer for responses. The data of reads is longer and mostly
// bypasses it.
const responsesBytes = 8 << 10

// readResponses handles responses until the stream breaks.
func (l *link) readResponses(stream io.Reader) error {
	reader := bufio.NewReaderSize(stream, responsesBytes)
	for {
		if _, err := reader.Peek(responseSize); err != nil {
			return err
		}
		if err := l.takeResponses(reader); err != nil {
			return err
		}
	}
}

// takeResponses applies the buffered responses, at least one, and delivers the completions
// together.
func (l *link) takeResponses(reader *bufio.Reader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.batch.deliver()
	l.progress = time.Now()
	for reader.Buffered() >= responseSize {
		header, err := reader.Peek(responseSize)
		if err != nil {
			return err
		}
		r, err := parseResponse(header)
		if err != nil {
			return err
		}
		if _, err := reader.Discard(responseSize); err != nil {
			return err
		}
		if r.length > 0 {
			err = l.takeBytes(reader, int(r.length))
		} else {
			err = l.takeOutcomes(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaited returns the entry that the next response is for, or nil if there is none. It is valid
// until the lock is released.
func (l *link) awaited() *entry {
	for l.answered < l.entries.len() && l.entries.at(l.answered).pieces == 0 {
		l.answered++
	}
	if l.answered == l.entries.len() {
		return nil
	}
	return l.entries.at(l.answered)
}

// takeOutcomes applies a response without bytes.
func (l *link) takeOutcomes(r response) error {
	for range r.count {
		e := l.awaited()
		if e == nil {
			return fmt.Errorf("%w: a response to nothing", errRegionProtocol)
		}
		ofAttach := (r.outcome == outcomeNoRegion || r.outcome == outcomeTooMany) &&
			e.kind != requestAttach
		noBytes := r.outcome == outcomeDone && (e.kind == requestAttach || len(e.into) > 0)
		if ofAttach || noBytes {
			return fmt.Errorf("%w: a response of outcome %d", errRegionProtocol, r.outcome)
		}
		if err := r.outcome.err(); err != nil && e.err == nil {
			e.err = err
		}
		l.answer(e)
	}
	return nil
}

// takeBytes applies a response with bytes. It releases the lock while it waits for them.
func (l *link) takeBytes(reader *bufio.Reader, length int) error {
	e := l.awaited()
	if e == nil {
		return fmt.Errorf("%w: a response to nothing", errRegionProtocol)
	}
	if e.kind == requestAttach && length == attachedSize {
		return l.takeAttached(reader)
	}
	from := 0
	if e.kind == requestRead {
		from = max(0, (e.pieces-1)*pieceMax-e.skew)
	}
	if e.kind != requestRead || length != len(e.into)-from {
		return fmt.Errorf("%w: a response with %d bytes", errRegionProtocol, length)
	}
	into := e.into[from:]
	e.into = e.into[:from]
	if err := l.fill(reader, into); err != nil {
		return err
	}
	l.answer(l.awaited())
	return nil
}

func (l *link) fill(reader *bufio.Reader, into []byte) error {
	wait := reader.Buffered() < len(into)
	if wait {
		l.batch.deliver()
		l.mu.Unlock()
		defer l.mu.Lock()
	}
	_, err := io.ReadFull(reader, into)
	return unexpected(err)
}

func (l *link) takeAttached(reader *bufio.Reader) error {
	var b [attachedSize]byte
	if err := l.fill(reader, b[:]); err != nil {
		return err
	}
	reply, err := parseAttached(b[:])
	if err != nil {
		return err
	}
	e := l.awaited()
	asked := e.asked
	a := &attachment{
		link: l, name: asked.name, number: asked.number,
		peer: rdmanet.Peer{ID: l.name, Incarnation: l.bound},
		size: int(reply.size), permission: reply.permission,
	}
	l.attachments[a.number] = a
	if asked.abandoned {
		l.detach(a)
	}
	e.to = a
	l.answer(e)
	return nil
}

// answer records a response to an entry.
func (l *link) answer(e *entry) {
	e.pieces--
	l.conclude()
}

// conclude finishes the leading entries that wait neither for a response nor for the writer to
// finish with their bytes. If an owner answers a write early, its answer is recorded, and reading
// continues. The reader must not wait for the writer: the writer may be in a call that returns only
// once the owner can send more answers.
func (l *link) conclude() {
	for l.entries.len() > 0 && l.entries.at(0).pieces == 0 && l.entries.at(0).long <= l.sent {
		l.finish()
		l.answered = max(0, l.answered-1)
	}
}

// finish completes the first entry.
func (l *link) finish() {
	e := l.entries.at(0)
	switch {
	case e.kind == requestAttach:
		e.asked.reply <- attachReply{e.to, e.err}
	case e.kind == 0:
		l.batch.add(e.queue, rdmanet.Completion{Tag: e.tag, Peer: l.name, Err: e.err})
	default:
		if e.err != nil {
			e.to.fail(e.err)
		}
		l.batch.add(e.queue, rdmanet.Completion{Tag: e.tag, Peer: l.name, Err: e.to.failure})
	}
	l.entries.pop()
}

// interrupt ends an entry whose stream broke.
func (e *entry) interrupt(err error) {
	switch {
	case e.kind == requestAttach:
		e.err = errors.Join(errBroken, err)
	case e.kind != 0 && e.err == nil:
		e.err = err
	}
}
