package protected

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is for exhaustive search, which copies machines and compares their states. A copy
// behaves independently from then on, in the same memory. The copies share what the fabric handed
// out (regions, attachments, the queue). The caller takes care of the contents of the memory.

// Copy returns a way with memory of its own. The caller sets its owner.
func (w *Way) Copy() Way {
	own := *w
	if w.word != nil {
		word := *w.word
		own.word = &word
	}
	return own
}

// Copy returns a copy for a copied process. at returns the process's way with a place, and lent the
// counter that corresponds to one of a post.
func (w *Ways) Copy(at func(place int) *Way, lent func(*int) *int) *Ways {
	own := &Ways{queue: w.queue, patience: w.patience, now: w.now, depth: w.depth,
		posts: make([]Post, len(w.posts)), free: slices.Clone(w.free), done: w.done, lent: w.lent,
		wants: slices.Clone(w.wants), number: w.number}
	for tag, p := range w.posts {
		if p.Way == nil {
			continue
		}
		p.Way = at(p.Way.Place)
		if p.lent != nil {
			p.lent = lent(p.lent)
		}
		own.posts[tag] = p
	}
	for _, o := range w.batch {
		if o.Kind == rdmanet.OperationWrite {
			o.Bytes = bytes.Clone(o.Bytes)
		}
		own.batch = append(own.batch, o)
	}
	for _, way := range w.waiting {
		own.waiting = append(own.waiting, at(way.Place))
	}
	return own
}

// SameCount returns the counter in a copy of a slice that corresponds to one in the slice, or nil
// if the slice does not hold it.
func SameCount(count *int, in, other []int) *int {
	for i := range in {
		if count == &in[i] {
			return &other[i]
		}
	}
	return nil
}

// Redirect makes the reads that are not posted yet lead into a copied process's memory. into
// returns the memory that a post reads into, nil for a write. It is not asked about ReadWord.
func (w *Ways) Redirect(into func(Post) []byte) {
	for i := range w.batch {
		o := &w.batch[i]
		if p := w.posts[o.Tag]; o.Kind == rdmanet.OperationRead && p.life == p.Way.life {
			o.Bytes = p.into(into)
		}
	}
}

// Reads calls each for every read under way, with its tag and the memory that its result should go
// to. into is as for Redirect.
func (w *Ways) Reads(into func(Post) []byte, each func(tag uint64, into []byte)) {
	for tag, p := range w.posts {
		if p.Way == nil || p.life != p.Way.life {
			continue
		}
		if b := p.into(into); b != nil {
			each(uint64(tag), b)
		}
	}
}

func (p Post) into(into func(Post) []byte) []byte {
	if p.word {
		return p.Way.word[:]
	}
	return into(p)
}

// Awaits reports whether the process's behaviour depends on having handled the successful
// completion with the given tag. depends reports this for a post of a way's present life.
func (w *Ways) Awaits(tag uint64, depends func(Post) bool) bool {
	if tag >= uint64(len(w.posts)) {
		return true
	}
	p := w.posts[tag]
	return p.Way == nil || p.life == p.Way.life && depends(p)
}

// Idle reports whether handling the successful completion with the given tag changes nothing in the
// state of a way or of memory that is reused.
func (w *Ways) Idle(tag uint64) bool {
	if tag >= uint64(len(w.posts)) {
		return false
	}
	p := w.posts[tag]
	return p.Way != nil && p.lent == nil && (p.life != p.Way.life || p.Way.Tries == 0)
}

// AppendOperation appends a description of the operation with the given tag, which is under way, or
// completed and not handled. It does not depend on the tag itself.
func (w *Ways) AppendOperation(state []byte, tag uint64) []byte {
	f := Facts{B: state}
	f.post(w.posts[tag])
	return f.B
}
