package replica

import (
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The purposes of posts.
const (
	postWord    protected.Kind = iota // a row's word
	postTaken                         // reads headTaken
	postTicket                        // reads headTicket
	postTrailer                       // reads an entry's trailer
	postMessage                       // reads an entry's message
	postErase                         // erases an entry's mark
	postEntry                         // writes an entry
)

// board is the way to another process's board, in which this process has a row.
type board struct {
	protected.Way
	row    int // offset of this process's row there
	words  [rowSize / word]uint64
	posted [rowSize / word]uint64
}

// put sets a word of the row to write.
func (b *board) put(offset int, value uint64) { b.words[offset/word] = value }

// again makes the word be written once more.
func (b *board) again(offset int) { b.posted[offset/word] = 0 }

// drive writes the words that are not written yet. It reports whether there was anything to do.
func (b *board) drive(w *protected.Ways) bool {
	if b.words == b.posted {
		return false
	}
	if !b.Attached() {
		if !b.Awaited() && w.Now() >= b.Since {
			w.Attach(&b.Way)
		}
		return false
	}
	busy := false
	for i, value := range b.words {
		if value != b.posted[i] && w.Room(1) {
			w.Post(&b.Way, postWord, 0, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
				Offset: b.row + i*word, Bytes: w.InlineWord(value), Ring: true})
			b.posted[i] = value
			busy = true
		}
	}
	return busy
}

// completed handles the completion of a post.
func (b *board) completed(w *protected.Ways, err error) {
	if err != nil {
		b.lost(w)
	} else {
		b.Tries = 0
	}
}

// attached handles the driver's answer.
func (b *board) attached(w *protected.Ways, err error) {
	if err != nil {
		b.lost(w)
	}
}

// lost ends a board's way. All words are written again after a while.
func (b *board) lost(w *protected.Ways) {
	w.Detach(&b.Way)
	b.posted = [rowSize / word]uint64{}
	b.Since = w.Now() + w.Patience(b.Tries)
	b.Tries++
}
