package multicast

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

// trace records the events: always as a hash, and as text on demand.
type trace struct {
	hash uint64
	text *bufio.Writer
}

// The constants of FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func newTrace(to io.Writer) *trace {
	t := &trace{hash: fnvOffset}
	if to != nil {
		t.text = bufio.NewWriter(to)
	}
	return t
}

// note mixes an event into the hash.
func (t *trace) note(at time.Duration, facts ...uint64) {
	t.mix(uint64(at))
	for _, fact := range facts {
		t.mix(fact)
	}
}

func (t *trace) mix(word uint64) {
	t.hash = (t.hash ^ word) * fnvPrime
	t.hash ^= t.hash >> 29
}

// say writes a line of text, if text is wanted.
func (t *trace) say(at time.Duration, format string, arguments ...any) {
	if t.text == nil {
		return
	}
	fmt.Fprintf(t.text, "%12v  ", at)
	fmt.Fprintf(t.text, format, arguments...)
	t.text.WriteByte('\n')
}

// close flushes the text and returns the first error of writing.
func (t *trace) close() error {
	if t.text == nil {
		return nil
	}
	return t.text.Flush()
}
