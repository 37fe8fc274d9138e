package protected

import (
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Facts encodes the state of a machine for exhaustive search: everything that the machine's further
// behaviour depends on, except memory and operations under way. Instants are relative to Now, and
// all instants in the past are equal.
type Facts struct {
	B   []byte // what was appended
	Now time.Duration
}

// Number appends a number.
func (f *Facts) Number(n uint64) { f.B = binary.AppendUvarint(f.B, n) }

// Numbers appends numbers.
func (f *Facts) Numbers(all ...uint64) {
	for _, n := range all {
		f.Number(n)
	}
}

// Truth appends a truth value.
func (f *Facts) Truth(t bool) {
	if t {
		f.B = append(f.B, 1)
	} else {
		f.B = append(f.B, 0)
	}
}

// Bytes appends bytes, with their number.
func (f *Facts) Bytes(b []byte) {
	f.Number(uint64(len(b)))
	f.B = append(f.B, b...)
}

// Until appends an instant that matters until it has passed.
func (f *Facts) Until(at time.Duration) { f.Number(uint64(max(at-f.Now, 0))) }

// Since appends an instant that matters until some span after it.
func (f *Facts) Since(at, span time.Duration) { f.Until(at + span) }

// Peer appends an incarnation.
func (f *Facts) Peer(p rdmanet.Peer) {
	f.Bytes([]byte(p.ID))
	f.Number(uint64(p.Incarnation))
}

// Way appends the state of a way. It leaves out how many of its posts are under way: these are
// described themselves.
func (f *Facts) Way(w *Way) {
	f.Truth(w.attachment != nil)
	f.Truth(w.want != 0)
	f.Truth(w.reading)
	f.Number(uint64(w.Tries))
	f.Until(w.Since)
	if w.word != nil && w.reading {
		f.Number(w.Word())
	}
}

// Lent appends counts of posts whose bytes lie in memory that is reused.
func (f *Facts) Lent(lent []int) {
	for place, count := range lent {
		if count > 0 {
			f.Numbers(uint64(place), uint64(count))
		}
	}
	f.Number(^uint64(0))
}

// Batch appends the operations that the next Flush posts.
func (f *Facts) Batch(w *Ways) {
	f.Number(uint64(len(w.batch)))
	for _, o := range w.batch {
		f.post(w.posts[o.Tag])
		f.Number(uint64(o.Offset))
		if o.Kind == rdmanet.OperationWrite {
			f.Bytes(o.Bytes)
		}
	}
}

// post appends a description of an operation under way. It leaves out the tag: tags are names, and
// behaviour does not depend on them.
func (f *Facts) post(p Post) {
	if p.Way == nil || p.life != p.Way.life {
		f.Truth(false) // its completion only frees the tag
		return
	}
	f.Truth(true)
	f.Numbers(uint64(p.Way.Place), uint64(p.Kind), p.Number)
	f.Truth(p.lent != nil)
}
