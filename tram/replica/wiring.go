package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Want asks the driver to attach to a peer's region, because rdmanet's Attach may wait and a Poll
// may not. The driver answers each Want with Attached, once, whatever the result.
type Want struct {
	Number uint64
	Peer   rdmanet.PeerID
	Region string
}

// link is the way to one region of another process.
type link struct {
	peer   rdmanet.Peer
	region string
	place  int // place is the link's index among the links of its process
	// attachment is nil while the link is not attached.
	attachment rdmanet.Attachment
	life       uint32 // of the attachment; completions of posts of an earlier life are ignored
	want       uint64 // the number of the unanswered want, or 0
	flying     int    // posted in this life and not completed
	since      time.Duration
	tries      int // tries without success
	reading    bool
	word       *[word]byte // target of reads in this life
	// One of these is the link's owner.
	board    *board
	member   *member
	receiver *receiver
	target   *target
}

// kind is the purpose of a post.
type kind uint8

const (
	postWord    kind = iota // a row's word
	postTaken               // reads headTaken
	postTicket              // reads headTicket
	postTrailer             // reads an entry's trailer
	postMessage             // reads an entry's message
	postErase               // erases an entry's mark
	postEntry               // writes an entry
)

// post is an operation under way.
type post struct {
	link   *link
	life   uint32
	kind   kind
	number uint64
	lent   *int // counts the posts whose bytes lie in memory that is reused once the count is 0
}

// fabricLinks is a process's connection to the fabric: its attachments and its queue.
type fabricLinks struct {
	queue   rdmanet.Queue
	now     time.Duration
	posts   []post
	free    []uint32 // tags, descending: the lowest is taken next
	batch   []rdmanet.Operation
	short   []byte // bytes of writes in the batch that Post copies
	done    []rdmanet.Completion
	lent    int // the sum of the counts in lent of all posts
	wants   []Want
	handed  []Want
	waiting []*link
	number  uint64 // of the last want
}

func newWiring(host rdmanet.RegionHost, depth int) (*fabricLinks, error) {
	depth = min(depth, rdmanet.QueueDepthMax)
	queue, err := host.Queue(depth)
	if err != nil {
		return nil, fmt.Errorf("make a completion queue: %w", err)
	}
	w := &fabricLinks{queue: queue, posts: make([]post, depth),
		done: make([]rdmanet.Completion, 64)}
	for i := range depth {
		w.free = append(w.free, uint32(depth-1-i))
	}
	return w, nil
}

// attach asks the driver to attach a link.
func (w *fabricLinks) attach(l *link) {
	w.number++
	l.want = w.number
	w.waiting = append(w.waiting, l)
	w.wants = append(w.wants, Want{Number: w.number, Peer: l.peer.ID, Region: l.region})
}

// wanted returns the attachments to make, each once.
func (w *fabricLinks) wanted() []Want {
	w.handed, w.wants = w.wants, w.handed[:0]
	return w.handed
}

// attached takes the driver's answer. It returns the link that it is for, or nil if no link waits
// for it any more.
func (w *fabricLinks) attached(number uint64, attachment rdmanet.Attachment) *link {
	at := slices.IndexFunc(w.waiting, func(l *link) bool { return l.want == number })
	if at < 0 {
		if attachment != nil {
			_ = attachment.Close() // it was not used
		}
		return nil
	}
	l := w.waiting[at]
	w.waiting = slices.Delete(w.waiting, at, at+1)
	l.want = 0
	if attachment != nil {
		l.attachment, l.word = attachment, new([word]byte)
	}
	return l
}

// detach ends a link's life: its attachment, and any wait for one.
func (w *fabricLinks) detach(l *link) {
	if l.want != 0 {
		w.waiting = slices.DeleteFunc(w.waiting, func(other *link) bool { return other == l })
		l.want = 0
	}
	if l.attachment != nil {
		_ = l.attachment.Close() // an error here tells nothing new
	}
	l.attachment, l.flying, l.reading = nil, 0, false
	l.life++
}

// room reports whether the given number of operations can be posted.
func (w *fabricLinks) room(operations int) bool { return len(w.free) >= operations }

// post puts an operation into the batch. The caller has checked room.
func (w *fabricLinks) post(l *link, k kind, number uint64, lent *int, operation rdmanet.Operation) {
	tag := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	if lent != nil && len(operation.Bytes) > rdmanet.InlineMax {
		*lent++
		w.lent++
	} else {
		lent = nil
	}
	w.posts[tag] = post{link: l, life: l.life, kind: k, number: number, lent: lent}
	operation.To, operation.Tag = l.attachment, uint64(tag)
	l.flying++
	w.batch = append(w.batch, operation)
}

// read posts a read of a word into the link's own memory.
func (w *fabricLinks) read(l *link, k kind, offset int) {
	l.reading = true
	w.post(l, k, 0, nil, rdmanet.Operation{Kind: rdmanet.OperationRead, Offset: offset,
		Bytes: l.word[:]})
}

// inline returns zeroed bytes for a write of up to rdmanet.InlineMax, valid until flush.
func (w *fabricLinks) inline(size int) []byte {
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

// flush posts the batch, to all targets together [TRAM, section 3].
func (w *fabricLinks) flush() error {
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

// take handles the next completions, for posts of the links' present lives. It reports whether
// there were any.
func (w *fabricLinks) take(handle func(post, error)) bool {
	any := false
	for {
		count := w.queue.Poll(w.done)
		for _, c := range w.done[:count] {
			p := w.posts[c.Tag]
			w.posts[c.Tag] = post{}
			w.release(uint32(c.Tag))
			if p.lent != nil {
				*p.lent--
				w.lent--
			}
			if p.life != p.link.life {
				continue
			}
			p.link.flying--
			handle(p, c.Err)
		}
		any = any || count > 0
		if count < len(w.done) {
			return any
		}
	}
}

// release returns a tag. The tags in use are low, so its place is near the end.
func (w *fabricLinks) release(tag uint32) {
	at := len(w.free)
	for at > 0 && w.free[at-1] < tag {
		at--
	}
	w.free = slices.Insert(w.free, at, tag)
}

// board is the way to another process's board, in which this process has a row.
type board struct {
	link
	row    int // offset of this process's row there
	words  [rowSize / word]uint64
	posted [rowSize / word]uint64
}

// put sets a word of the row to write.
func (b *board) put(offset int, value uint64) { b.words[offset/word] = value }

// again makes the word be written once more.
func (b *board) again(offset int) { b.posted[offset/word] = 0 }

func putWord(b []byte, value uint64) { binary.NativeEndian.PutUint64(b, value) }

func getWord(b *[word]byte) uint64 { return binary.NativeEndian.Uint64(b[:]) }

// drive writes the words that are not written yet. It reports whether there was anything to do.
func (w *fabricLinks) drive(b *board) bool {
	if b.words == b.posted {
		return false
	}
	if b.attachment == nil {
		if b.want == 0 && w.now >= b.since {
			w.attach(&b.link)
		}
		return false
	}
	any := false
	for i, value := range b.words {
		if value != b.posted[i] && w.room(1) {
			bytes := w.inline(word)
			putWord(bytes, value)
			w.post(&b.link, postWord, 0, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
				Offset: b.row + i*word, Bytes: bytes, Ring: true})
			b.posted[i] = value
			any = true
		}
	}
	return any
}

// lost ends a board's link. All words are written again after a while.
func (w *fabricLinks) lost(b *board, patience time.Duration) {
	w.detach(&b.link)
	b.posted = [rowSize / word]uint64{}
	b.since = w.now + patience
	b.tries++
}
