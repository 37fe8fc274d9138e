package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/ledgerd/ledgerd/ledger"
)

// list is a queue of submissions, linked through them. A submission is in at most one list.
type list struct {
	first, last *Submission
	length      int
}

func (l *list) push(t *Submission) {
	t.at, t.before = l, l.last
	if l.last == nil {
		l.first = t
	} else {
		l.last.behind = t
	}
	l.last = t
	l.length++
}

func (l *list) remove(t *Submission) {
	if t.before == nil {
		l.first = t.behind
	} else {
		t.before.behind = t.behind
	}
	if t.behind == nil {
		l.last = t.before
	} else {
		t.behind.before = t.before
	}
	t.at, t.before, t.behind = nil, nil, nil
	l.length--
}

// precede moves all of another list before this one.
func (l *list) precede(other *list) {
	for t := other.last; t != nil; t = other.last {
		other.remove(t)
		t.at, t.behind = l, l.first
		if l.first == nil {
			l.last = t
		} else {
			l.first.before = t
		}
		l.first = t
		l.length++
	}
}

// The methods below need the mutex.

// addQueue adds a queue, with its lanes, for what enters at a shard.
func (s *Sender) addQueue(entry ledger.ShardID) *queue {
	q := &queue{sender: s, entry: entry}
	q.wake.L = &s.mutex
	s.queues = append(s.queues, q)
	for range s.options.InFlight {
		s.working.Go((&lane{sender: s, queue: q}).run)
	}
	return q
}

// choose sets the queue of a submission. Only the shards above the signer's home can be entries, so
// there are few queues. All of a caller's submissions stay in one queue until they are over: the
// transactions of two queues overtake each other.
func (s *Sender) choose(t *Submission, entry ledger.ShardID, known bool) {
	switch {
	case t.caller != nil && t.caller.queued > 0:
		t.queue = t.caller.queue
	case !known:
		t.queue = s.queues[0]
	default:
		for _, q := range s.queues[1:] {
			if q.entry == entry {
				t.queue = q
			}
		}
		if t.queue == nil {
			t.queue = s.addQueue(entry)
		}
	}
	if t.caller != nil {
		t.caller.queue = t.queue
		t.caller.queued++
	}
}

// end notes that a submission is over.
func (t *Submission) end() {
	if t.over = true; t.caller != nil {
		t.caller.queued--
	}
}

// gone wakes the lanes of a closed Sender, which end once nothing is left, after a submission has
// left.
func (s *Sender) gone() {
	if s.closed {
		s.wakeAll()
	}
}

// wakeAll wakes all lanes.
func (s *Sender) wakeAll() {
	for _, q := range s.queues {
		q.wake.Broadcast()
	}
}

// fits reports whether there is room for a submission.
func (s *Sender) fits(t *Submission) bool {
	return s.held+t.bytes+heldBytes <= s.options.MaxBytes
}

// hold lets a submission wait to be sent.
func (s *Sender) hold(t *Submission) {
	s.held += t.bytes + heldBytes
	t.queue.waiting.push(t)
}

// admit lets blocked submissions in, as far as there is room.
func (s *Sender) admit() {
	for t := s.blocked.first; t != nil && s.fits(t); t = s.blocked.first {
		s.blocked.remove(t)
		s.hold(t)
		close(t.room)
	}
	for _, q := range s.queues {
		q.signal()
	}
}

// signal wakes a lane if there is something to do for it.
func (q *queue) signal() {
	if q.ready() {
		q.wake.Signal()
	}
}

// ready reports whether a lane should take a bundle now. If nothing is in flight, it should.
// Otherwise what waits must be a fair share of what is in flight, so that the first callers to come
// back do not use up the lanes one by one. It gets there, at the latest when the flights end.
// Flights that take long do not count.
func (q *queue) ready() bool {
	return q.waiting.length > 0 && !q.gathering &&
		(q.flights == q.slow || q.waiting.length >= q.sender.options.MaxBundle ||
			q.waiting.length*(q.sender.options.InFlight-1) >= q.flying)
}

// yieldsMax bounds how often a lane lets other goroutines run before it takes a bundle.
const yieldsMax = 64

// next waits for transactions and takes a bundle's worth of them. The result is empty once the
// Sender is closed and nothing is left to send.
func (q *queue) next(to []*Submission) []*Submission {
	s := q.sender
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		for !q.ready() {
			if s.closed && q.waiting.length == 0 && s.blocked.length == 0 && q.flights == 0 {
				s.wakeAll() // lanes of other queues may have waited for the last that was blocked
				return nil
			}
			q.wake.Wait()
		}
		q.gather()
		for t := range q.take {
			to = append(to, t)
		}
		if len(to) > 0 {
			q.flights++
			q.flying += len(to)
			for _, t := range to {
				if t.caller != nil {
					t.caller.flying = true
				}
			}
			q.signal()
			return to
		}
	}
}

// gather lets callers that can run submit what they have, for as long as more comes.
func (q *queue) gather() {
	q.gathering = true
	for before, yields := -1, 0; q.waiting.length > before && yields < yieldsMax &&
		q.waiting.length < q.sender.options.MaxBundle; yields++ {
		before = q.waiting.length
		q.sender.mutex.Unlock()
		runtime.Gosched()
		q.sender.mutex.Lock()
	}
	q.gathering = false
}

// take removes a bundle's worth of submissions from those that wait, oldest first. Those of a
// caller with another bundle under way go behind it.
func (q *queue) take(yield func(*Submission) bool) {
	for count, bytes := 0, 0; count < q.sender.options.MaxBundle; {
		t := q.waiting.first
		if t == nil || count > 0 && bytes+t.bytes > bundleBytes {
			break
		}
		q.waiting.remove(t)
		if t.caller != nil && t.caller.flying {
			t.caller.held.push(t)
			continue
		}
		count++
		bytes += t.bytes
		if !yield(t) {
			break
		}
	}
}

// bundleBytes is how much fits into a bundle besides its signatures.
const bundleBytes = ledger.MaxBundleBytes -
	ledger.MaxBundleSignatures*(ledger.MaxOrganisationName+1+32+64) - 64

// delayed notes that the bundle under way takes longer than a call.
func (l *lane) delayed() {
	if l.slow {
		return
	}
	l.slow = true
	l.sender.mutex.Lock()
	defer l.sender.mutex.Unlock()
	l.queue.slow++
	l.queue.flying -= len(l.flight)
	l.queue.signal()
}

// landed ends a flight: its submissions are over.
func (q *queue) landed(flight []*Submission, slow bool) {
	s := q.sender
	s.mutex.Lock()
	var unsent []*Submission
	for _, t := range flight {
		s.held -= t.bytes + heldBytes
		t.end()
		if t.caller != nil && errors.Is(t.err, ErrOutcomeUnknown) {
			t.caller.unsure = true
		}
	}
	for _, t := range flight {
		if c := t.caller; c != nil && c.flying {
			c.flying = false
			q.waiting.precede(&c.held)
			if c.unsure {
				c.unsure = false
				unsent = append(unsent, s.drop(c, &q.waiting)...)
				unsent = append(unsent, s.drop(c, &s.blocked)...)
			}
		}
	}
	if q.flights--; slow {
		q.slow--
	} else {
		q.flying -= len(flight)
	}
	s.admit()
	s.gone()
	// Nobody reads what was left, so only the others may be handed over.
	for i, t := range flight {
		if t.left {
			flight[i] = nil
		}
	}
	s.mutex.Unlock()
	for _, t := range flight {
		if t != nil {
			t.done <- struct{}{}
		}
	}
	for _, t := range unsent {
		t.err = errBehindUnsure
		t.done <- struct{}{}
	}
}

// errBehindUnsure is the error of what waits behind a transaction whose outcome is not known.
var errBehindUnsure = fmt.Errorf("%w: the outcome of one before it is not known", ErrNotSent)

// drop takes all submissions of a caller out of a list.
func (s *Sender) drop(c *Caller, from *list) (dropped []*Submission) {
	for t := from.first; t != nil; {
		behind := t.behind
		if t.caller == c {
			from.remove(t)
			t.end()
			if from == &s.blocked {
				close(t.room)
			} else {
				s.held -= t.bytes + heldBytes
			}
			dropped = append(dropped, t)
		}
		t = behind
	}
	return dropped
}

// encodedBound returns an upper bound of the length of a transaction's encoding.
func encodedBound(t *ledger.Transaction) int {
	const (
		number = binary.MaxVarintLen64
		length = binary.MaxVarintLen32
		amount = 24
	)
	size := 1 + ledger.HashSize + length + len(t.Signer) + 4*number + 5*length + len(t.Note)
	for i := range t.Registrations {
		size += 2*length + len(t.Registrations[i].Name) + 1 + number +
			len(t.Registrations[i].Keys)*len(ledger.PublicKey{})
	}
	for i := range t.Openings {
		size += 2*length + len(t.Openings[i].Account) + 1 + len(t.Openings[i].Alias)
	}
	for i := range t.Postings {
		size += 2*length + len(t.Postings[i].Account) + len(t.Postings[i].Asset) + amount
	}
	for i := range t.Records {
		size += 2*length + len(t.Records[i].Key) + len(t.Records[i].Value)
	}
	return size
}
