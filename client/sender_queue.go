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

// fits reports whether there is room for a submission.
func (s *Sender) fits(t *Submission) bool {
	return s.held+t.bytes+heldBytes <= s.options.MaxBytes
}

// hold lets a submission wait to be sent.
func (s *Sender) hold(t *Submission) {
	s.held += t.bytes + heldBytes
	s.waiting.push(t)
}

// admit lets blocked submissions in, as far as there is room.
func (s *Sender) admit() {
	for t := s.blocked.first; t != nil && s.fits(t); t = s.blocked.first {
		s.blocked.remove(t)
		s.hold(t)
		close(t.room)
	}
	s.signal()
}

// signal wakes a lane if there is something to do for it.
func (s *Sender) signal() {
	if s.ready() {
		s.wake.Signal()
	}
}

// ready reports whether a lane should take a bundle now. If nothing is in flight, it should.
// Otherwise what waits must be a fair share of what is in flight, so that the first callers to come
// back do not use up the lanes one by one. It gets there, at the latest when the flights end.
// Flights that take long do not count.
func (s *Sender) ready() bool {
	return s.waiting.length > 0 && !s.gathering &&
		(s.flights == s.slow || s.waiting.length >= s.options.MaxBundle ||
			s.waiting.length*(s.options.InFlight-1) >= s.flying)
}

// yieldsMax bounds how often a lane lets other goroutines run before it takes a bundle.
const yieldsMax = 64

// next waits for transactions and takes a bundle's worth of them. The result is empty once the
// Sender is closed and nothing is left to send.
func (s *Sender) next(to []*Submission) []*Submission {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		for !s.ready() {
			if s.closed && s.waiting.length == 0 && s.blocked.length == 0 && s.flights == 0 {
				s.wake.Broadcast()
				return nil
			}
			s.wake.Wait()
		}
		s.gather()
		for t := range s.take {
			to = append(to, t)
		}
		if len(to) > 0 {
			s.flights++
			s.flying += len(to)
			for _, t := range to {
				if t.caller != nil {
					t.caller.flying = true
				}
			}
			s.signal()
			return to
		}
	}
}

// gather lets callers that can run submit what they have, for as long as more comes.
func (s *Sender) gather() {
	s.gathering = true
	for before, yields := -1, 0; s.waiting.length > before && yields < yieldsMax &&
		s.waiting.length < s.options.MaxBundle; yields++ {
		before = s.waiting.length
		s.mutex.Unlock()
		runtime.Gosched()
		s.mutex.Lock()
	}
	s.gathering = false
}

// take removes a bundle's worth of submissions from those that wait, oldest first. Those of a
// caller with another bundle under way go behind it.
func (s *Sender) take(yield func(*Submission) bool) {
	for count, bytes := 0, 0; count < s.options.MaxBundle; {
		t := s.waiting.first
		if t == nil || count > 0 && bytes+t.bytes > bundleBytes {
			break
		}
		s.waiting.remove(t)
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
	l.sender.slow++
	l.sender.flying -= len(l.flight)
	l.sender.signal()
}

// landed ends a flight: its submissions are over.
func (s *Sender) landed(flight []*Submission, slow bool) {
	s.mutex.Lock()
	var unsent []*Submission
	for _, t := range flight {
		s.held -= t.bytes + heldBytes
		t.over = true
		if t.caller != nil && errors.Is(t.err, ErrOutcomeUnknown) {
			t.caller.unsure = true
		}
	}
	for _, t := range flight {
		if c := t.caller; c != nil && c.flying {
			c.flying = false
			s.waiting.precede(&c.held)
			if c.unsure {
				c.unsure = false
				unsent = append(unsent, s.drop(c, &s.waiting)...)
				unsent = append(unsent, s.drop(c, &s.blocked)...)
			}
		}
	}
	if s.flights--; slow {
		s.slow--
	} else {
		s.flying -= len(flight)
	}
	s.admit()
	if s.closed {
		s.wake.Broadcast()
	}
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
			t.over = true
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
