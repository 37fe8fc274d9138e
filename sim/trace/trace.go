// Package trace records what happens in a simulated run, event by event: always as a hash, and as
// text on demand. All simulators use it.
//
//	t := trace.New[time.Duration](to, 12)                   // to is nil if no text is wanted
//	t.Note(now, kind, server)                               // into the hash
//	t.Say(now, "%d receives %d bytes", server, len(frame))  // a line of text
//	hash, err := t.Hash(), t.Close()
//
// Two runs with the same hash went alike. Text does not change the hash, so a run with text is the
// same run.
package trace

import (
	"bufio"
	"fmt"
	"io"
)

// Trace is the trace of one run. T is an instant of virtual time.
type Trace[T ~int64] struct {
	hash  uint64
	text  *bufio.Writer // nil if no text is wanted
	width int
}

// The constants of FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// New returns an empty trace. Unless to is nil, it writes text there: lines that begin with the
// instant, right-aligned in a column of that width.
func New[T ~int64](to io.Writer, width int) *Trace[T] {
	t := &Trace[T]{hash: fnvOffset, width: width}
	if to != nil {
		t.text = bufio.NewWriter(to)
	}
	return t
}

// Note mixes an event into the hash.
func (t *Trace[T]) Note(at T, facts ...uint64) {
	hash := mix(t.hash, uint64(at))
	for _, fact := range facts {
		hash = mix(hash, fact)
	}
	t.hash = hash
}

func mix(hash, word uint64) uint64 {
	hash = (hash ^ word) * fnvPrime
	return hash ^ hash>>29
}

// Hash returns the hash of all events so far.
func (t *Trace[T]) Hash() uint64 { return t.hash }

// HasText reports whether text is wanted. Callers check it before they compute what only the text
// needs.
func (t *Trace[T]) HasText() bool { return t.text != nil }

// Say writes a line of text, if text is wanted.
func (t *Trace[T]) Say(at T, format string, arguments ...any) {
	if t.text == nil {
		return
	}
	fmt.Fprintf(t.text, "%*v  ", t.width, at)
	fmt.Fprintf(t.text, format, arguments...)
	t.text.WriteByte('\n')
}

// Close flushes the text and returns the first error of writing.
func (t *Trace[T]) Close() error {
	if t.text == nil {
		return nil
	}
	return t.text.Flush()
}
