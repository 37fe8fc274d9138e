package protected

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The words of a board's row, by index. A board has a row for each process, which only that process
// writes. The words from WordsShared on are the engine's.
const (
	// WordTicket is the ticket under which the process asks for a permission: the paper's perm.
	WordTicket = iota
	// WordAnswer is the highest ticket that the process had granted when it answered the board's
	// owner: the paper's perm_ack.
	WordAnswer
	// WordsShared counts the words that have the same meaning on all boards.
	WordsShared
)

// Row is the way to another process's board, in which this process has a row of words. A word that
// is put is written there, again and again if the way is lost.
type Row struct {
	Way
	at     int // the offset of the row there
	words  []uint64
	posted []uint64
}

// NewRow returns the row of a process, which is the given number of words long, in a region of a
// peer.
func NewRow(peer rdmanet.Peer, region string, process, words int) *Row {
	r := &Row{at: process * words * Word, words: make([]uint64, words),
		posted: make([]uint64, words)}
	r.Peer, r.Region, r.Owner = peer, region, r
	return r
}

// Put sets a word to write. A word is written once for each value. It is 0 before, so 0 is written
// over another value only, and not once more if the way was lost.
func (r *Row) Put(at int, value uint64) { r.words[at] = value }

// Again makes the word be written once more.
func (r *Row) Again(at int) { r.posted[at] = 0 }

// Written reports whether all words that were put have landed.
func (r *Row) Written() bool { return r.flying == 0 && slices.Equal(r.words, r.posted) }

// Drive posts the words that are not written yet. It reports whether there was anything to do.
func (r *Row) Drive(w *Ways) bool {
	if slices.Equal(r.words, r.posted) {
		return false
	}
	if !r.Attached() {
		if !r.Awaited() && w.Now() >= r.Since {
			w.Attach(&r.Way)
		}
		return false
	}
	busy := false
	for i, value := range r.words {
		if value != r.posted[i] && w.Room(1) {
			w.Post(&r.Way, 0, 0, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
				Offset: r.at + i*Word, Bytes: w.InlineWord(value), Ring: true})
			r.posted[i] = value
			busy = true
		}
	}
	return busy
}

// Answered handles the driver's answer to the want for the row's way.
func (r *Row) Answered(w *Ways, err error) {
	if err != nil {
		r.lost(w)
	}
}

// Completed handles the completion of a post.
func (r *Row) Completed(w *Ways, err error) {
	if err != nil {
		r.lost(w)
	} else {
		r.Tries = 0
	}
}

// lost gives the way up. All words are written again after a while.
func (r *Row) lost(w *Ways) {
	w.Detach(&r.Way)
	clear(r.posted)
	r.Since = w.Now() + w.Patience(r.Tries)
	r.Tries++
}

// Copy returns a row in the same state.
func (r *Row) Copy() *Row {
	own := *r
	own.Way = r.Way.Copy()
	own.Owner = &own
	own.words, own.posted = slices.Clone(r.words), slices.Clone(r.posted)
	return &own
}

// Boards is a process's own board, and its rows on the boards of others.
type Boards struct {
	region rdmanet.Region // the own board
	name   string
	self   int
	words  int
	rows   []*Row // by process, nil if this process has nothing to tell it
}

// NewBoards returns the boards of process self, one of the given number of processes, whose rows
// have the given number of words. All processes name their boards alike.
func NewBoards(name string, self, processes, words int) *Boards {
	return &Boards{name: name, self: self, words: words, rows: make([]*Row, processes)}
}

// Add gives this process a row on another process's board. A zero peer is one that Replace names
// later.
func (b *Boards) Add(process int, peer rdmanet.Peer) {
	b.rows[process] = NewRow(peer, b.name, b.self, b.words)
}

// Expose exposes the own board, and lets the processes write to it on whose boards this process has
// a row.
func (b *Boards) Expose(host rdmanet.RegionHost) (err error) {
	if b.region, err = host.Expose(b.name, len(b.rows)*b.words*Word); err != nil {
		return fmt.Errorf("expose the board: %w", err)
	}
	for process, row := range b.rows {
		if row != nil && row.Peer != (rdmanet.Peer{}) {
			if err := b.Admit(row.Peer); err != nil {
				return fmt.Errorf("process %d: %w", process, err)
			}
		}
	}
	return nil
}

// Replace puts another incarnation in a process's place. What the earlier one wrote into its row on
// the own board is gone, and nothing that it posted lands any more. This process has put nothing
// into its row there yet.
func (b *Boards) Replace(w *Ways, process int, peer rdmanet.Peer) error {
	row := b.rows[process]
	if err := b.Dismiss(process); err != nil {
		return err
	}
	for at := range b.words {
		b.region.Store((process*b.words+at)*Word, 0)
	}
	w.Detach(&row.Way)
	row.Peer, row.Since, row.Tries = peer, 0, 0
	clear(row.words)
	clear(row.posted)
	return b.Admit(peer)
}

// Dismiss takes the own board from a process. This process's row on that one's board stays.
func (b *Boards) Dismiss(process int) error {
	peer := b.rows[process].Peer
	if peer == (rdmanet.Peer{}) {
		return nil
	}
	if err := b.region.Revoke(peer); err != nil {
		return fmt.Errorf("revoke the board from process %d: %w", process, err)
	}
	return nil
}

// Admit lets a peer write to the own board.
func (b *Boards) Admit(peer rdmanet.Peer) error {
	if err := b.region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
		return fmt.Errorf("grant the board: %w", err)
	}
	return nil
}

// Region returns the own board, or nil before Expose.
func (b *Boards) Region() rdmanet.Region { return b.region }

// Rows returns this process's rows, by process, with nil where it has none.
func (b *Boards) Rows() []*Row { return b.rows }

// Load reads a word of a process's row on the own board.
func (b *Boards) Load(process, at int) uint64 {
	return b.region.Load((process*b.words + at) * Word)
}

// Put sets a word of this process's row on a process's board.
func (b *Boards) Put(process, at int, value uint64) { b.rows[process].Put(at, value) }

// Drive drives all rows. It reports whether there was anything to do.
func (b *Boards) Drive(w *Ways) bool {
	busy := false
	for _, row := range b.rows {
		if row != nil {
			busy = row.Drive(w) || busy
		}
	}
	return busy
}

// Detach gives up the ways of all rows.
func (b *Boards) Detach(w *Ways) {
	for _, row := range b.rows {
		if row != nil {
			w.Detach(&row.Way)
		}
	}
}

// Copy returns boards in the same state, with the same own board.
func (b *Boards) Copy() *Boards {
	own := *b
	own.rows = make([]*Row, len(b.rows))
	for process, row := range b.rows {
		if row != nil {
			own.rows[process] = row.Copy()
		}
	}
	return &own
}

// Row appends the state of a row.
func (f *Facts) Row(r *Row) {
	f.Way(&r.Way)
	f.Numbers(r.words...)
	f.Numbers(r.posted...)
}

// Boards appends the state of all rows.
func (f *Facts) Boards(b *Boards) {
	for _, row := range b.rows {
		if row != nil {
			f.Row(row)
		}
	}
}
