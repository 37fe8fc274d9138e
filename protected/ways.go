package protected

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Way is the way to one region of another process. The process that uses it sets the exported
// fields, and embeds it in what it belongs to.
type Way struct {
	// Peer and Region are where the way leads.
	Peer   rdmanet.Peer
	Region string
	// Place numbers the ways of a process.
	Place int
	// Owner is what the way belongs to, for the process that handles completions. After a copy it
	// is the copied owner.
	Owner any
	// Since is the instant before which the owner does not ask for the way again. Tries counts the
	// attempts without success.
	Since time.Duration
	Tries int

	attachment rdmanet.Attachment // nil while the way is not attached
	life       uint32             // completions of posts of an earlier life are ignored
	want       uint64             // the number of the unanswered want, or 0
	flying     int                // posted in this life and not completed
	reading    bool
	word       *[Word]byte // target of ReadWord in this life
}

// Attached reports whether operations can be posted.
func (w *Way) Attached() bool { return w.attachment != nil }

// Awaited reports whether the driver has been asked to attach the way, and has not answered.
func (w *Way) Awaited() bool { return w.want != 0 }

// Flying returns how many operations of the way's present life are under way.
func (w *Way) Flying() int { return w.flying }

// Reading reports whether a ReadWord is under way.
func (w *Way) Reading() bool { return w.reading }

// Word returns the word that the last ReadWord has read.
func (w *Way) Word() uint64 { return binary.NativeEndian.Uint64(w.word[:]) }

// Kind is the purpose of a post. The owner of each way has its own kinds.
type Kind uint8

// Post is an operation under way.
type Post struct {
	Way    *Way
	Kind   Kind
	Number uint64 // as the owner numbers its posts

	word bool // a ReadWord
	life uint32
	lent *int // counts the posts whose bytes lie in memory that is reused once the count is 0
}

// Lent reports whether the post's bytes lie in memory that must not change before it completes.
func (p Post) Lent() bool { return p.lent != nil }

// Ways is a process's connection to the fabric: its attachments and its queue. It collects
// operations in a batch, and Flush posts them to all targets together [TRAM, section 3].
type Ways struct {
	queue    rdmanet.Queue
	patience time.Duration
	now      time.Duration
	depth    int
	posts    []Post   // by tag, up to the highest that was used
	free     []uint32 // the other tags among these, descending: the lowest is taken next
	batch    []rdmanet.Operation
	short    []byte // bytes of writes in the batch that the queue copies
	done     []rdmanet.Completion
	lent     int // the sum of the counts in lent of all posts
	wants    []Want
	handed   []Want
	waiting  []*Way
	number   uint64 // of the last want
}

// completionsAtOnce is how many completions are taken from the queue at once.
const completionsAtOnce = 64

// NewWays makes a queue on the host for up to depth operations, or rdmanet.QueueDepthMax if that is
// less. patience is how long an owner waits for an answer before it tries again, at first.
func NewWays(host rdmanet.RegionHost, depth int, patience time.Duration) (*Ways, error) {
	depth = min(depth, rdmanet.QueueDepthMax)
	queue, err := host.Queue(depth)
	if err != nil {
		return nil, fmt.Errorf("make a completion queue: %w", err)
	}
	return &Ways{queue: queue, patience: patience, depth: depth, posts: make([]Post, 0, depth),
		free: make([]uint32, 0, depth), done: make([]rdmanet.Completion, completionsAtOnce)}, nil
}

// Now returns the time of the present Poll, as Complete was told.
func (w *Ways) Now() time.Duration { return w.now }

// Patience returns how long to wait at the given try, counted from 0. It grows with the tries.
func (w *Ways) Patience(try int) time.Duration {
	return min(w.patience<<min(try, 6), math.MaxInt64/2)
}

// Attach asks the driver to attach a way.
func (w *Ways) Attach(way *Way) {
	w.number++
	way.want = w.number
	w.waiting = append(w.waiting, way)
	w.wants = append(w.wants, Want{Number: w.number, Peer: way.Peer.ID, Region: way.Region})
}

// Wanted returns the attachments to make, each once. The slice is valid until the next call.
func (w *Ways) Wanted() []Want {
	w.handed, w.wants = w.wants, w.handed[:0]
	return w.handed
}

// Attached takes the driver's answer. It returns the way that the answer is for, or nil if no way
// waits for it any more, and the error for which the owner has to give the way up. An attachment to
// another incarnation than the way's peer is such an error.
func (w *Ways) Attached(number uint64, attachment rdmanet.Attachment, err error) (*Way, error) {
	at := slices.IndexFunc(w.waiting, func(way *Way) bool { return way.want == number })
	if at < 0 {
		if attachment != nil {
			_ = attachment.Close() // it was not used
		}
		return nil, nil
	}
	way := w.waiting[at]
	w.waiting = slices.Delete(w.waiting, at, at+1)
	way.want = 0
	if attachment != nil {
		way.attachment, way.word = attachment, new([Word]byte)
	}
	if err == nil && attachment.Peer() != way.Peer {
		err = fmt.Errorf("%w: %s, not %s", rdmanet.ErrReset, attachment.Peer(), way.Peer)
	}
	return way, err
}

// Detach ends a way's life: its attachment, and any wait for one.
func (w *Ways) Detach(way *Way) {
	if way.want != 0 {
		w.waiting = slices.DeleteFunc(w.waiting, func(other *Way) bool { return other == way })
		way.want = 0
	}
	if way.attachment != nil {
		_ = way.attachment.Close() // an error here tells nothing new
	}
	way.attachment, way.flying, way.reading = nil, 0, false
	way.life++
}

// Room reports whether the given number of operations can be posted.
func (w *Ways) Room(operations int) bool {
	return len(w.free)+w.depth-len(w.posts) >= operations
}

// Post puts an operation into the batch, with the kind and number that Complete returns. The caller
// has checked Room. lent counts the operations that take their bytes from the same memory as this
// one, until they complete; it may be nil if the memory does not change. An operation of up to
// rdmanet.InlineMax bytes is not counted, because the queue copies it.
func (w *Ways) Post(way *Way, kind Kind, number uint64, lent *int, operation rdmanet.Operation) {
	w.post(way, Post{Way: way, Kind: kind, Number: number, life: way.life, lent: lent}, operation)
}

func (w *Ways) post(way *Way, post Post, operation rdmanet.Operation) {
	tag := uint32(len(w.posts))
	if last := len(w.free) - 1; last >= 0 {
		tag, w.free = w.free[last], w.free[:last]
	} else {
		w.posts = append(w.posts, Post{})
	}
	if post.lent != nil && len(operation.Bytes) > rdmanet.InlineMax {
		*post.lent++
		w.lent++
	} else {
		post.lent = nil
	}
	w.posts[tag] = post
	operation.To, operation.Tag = way.attachment, uint64(tag)
	way.flying++
	w.batch = append(w.batch, operation)
}

// ReadWord posts a read of a word into the way's own memory. The caller has checked Room, and that
// no other such read is under way. Word returns the word once the post has completed.
func (w *Ways) ReadWord(way *Way, kind Kind, offset int) {
	way.reading = true
	w.post(way, Post{Way: way, Kind: kind, word: true, life: way.life}, rdmanet.Operation{
		Kind: rdmanet.OperationRead, Offset: offset, Bytes: way.word[:]})
}

// Inline returns zeroed bytes for a write of up to rdmanet.InlineMax, valid until Flush.
func (w *Ways) Inline(size int) []byte {
	if len(w.short)+size > cap(w.short) {
		// the batch keeps the old memory
		w.short = make([]byte, 0, 2*cap(w.short)+8*rdmanet.InlineMax)
	}
	at := len(w.short)
	w.short = w.short[:at+size]
	b := w.short[at : at+size : at+size]
	clear(b)
	return b
}

// InlineWord returns the bytes of a word, valid until Flush.
func (w *Ways) InlineWord(value uint64) []byte {
	b := w.Inline(Word)
	binary.NativeEndian.PutUint64(b, value)
	return b
}

// Flush posts the batch, to all targets together.
func (w *Ways) Flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	err := w.queue.Post(w.batch...)
	clear(w.batch)
	w.batch, w.short = w.batch[:0], w.short[:0]
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	return nil
}

// Complete sets the time, and calls handle for the next completions of posts of the ways' present
// lives. It reports whether there were any completions at all.
func (w *Ways) Complete(now time.Duration, handle func(Post, error)) bool {
	w.now = now
	some := false
	for {
		count := w.queue.Poll(w.done)
		for _, c := range w.done[:count] {
			p := w.posts[c.Tag]
			w.posts[c.Tag] = Post{}
			w.release(uint32(c.Tag))
			if p.lent != nil {
				*p.lent--
				w.lent--
			}
			if p.life != p.Way.life {
				continue
			}
			p.Way.flying--
			if p.word {
				p.Way.reading = false
			}
			handle(p, c.Err)
		}
		some = some || count > 0
		if count < len(w.done) {
			return some
		}
	}
}

// release returns a tag. The tags in use are low, so its place is near the end.
func (w *Ways) release(tag uint32) {
	at := len(w.free)
	for at > 0 && w.free[at-1] < tag {
		at--
	}
	w.free = slices.Insert(w.free, at, tag)
}

// Lent returns how many operations under way take their bytes from memory that must not change.
func (w *Ways) Lent() int { return w.lent }

// Outstanding returns the number of operations under way.
func (w *Ways) Outstanding() int { return w.queue.Outstanding() }

// Close ends the queue. Operations under way continue until the host is closed.
func (w *Ways) Close() error { return w.queue.Close() }
