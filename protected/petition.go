package protected

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// PetitionState is the progress of a process with a permission that it needs.
type PetitionState uint8

// The states of a petition.
const (
	PetitionIdle     PetitionState = iota // it has to be asked for, not before Since
	PetitionAsked                         // the request or its answer is on the way
	PetitionAttaches                      // it was granted
	// PetitionReads: attached, and reading what the process must know before it writes.
	PetitionReads
	PetitionWorks
)

// String returns the state in a word.
func (s PetitionState) String() string {
	names := [...]string{"idle", "asked", "attaches", "reads", "works"}
	return names[s]
}

// Petition is the way to a memory that this process may only write under a ticket of its own, which
// the memory's owner grants.
type Petition struct {
	Way
	// Process is the owner.
	Process int
	// State changes to PetitionAttaches by Ask, and to PetitionReads by Answered. The process that
	// asks sets it to PetitionWorks.
	State PetitionState

	request uint64 // the last request under the present timestamp
	until   time.Duration
}

// String describes the petition's state.
func (p *Petition) String() string { return fmt.Sprintf("%v at request %d", p.State, p.request) }

// Lose gives the way up and makes the process ask again after a while, under the next ticket. After
// an error, writes may still be under way, and only a new grant stops them. A process therefore
// gives a way up with its first error, and never uses it again under the ticket that it had.
func (p *Petition) Lose(w *Ways) {
	w.Detach(&p.Way)
	p.State = PetitionIdle
	p.Since = w.Now() + w.Patience(p.Tries)
	p.Tries++
}

// Retire gives the way up for good, or until the process asks under another timestamp.
func (p *Petition) Retire(w *Ways) {
	w.Detach(&p.Way)
	p.State, p.request, p.Tries, p.Since = PetitionIdle, 0, 0, 0
}

// Outcome is what became of a petition in a call of Ask.
type Outcome uint8

// The outcomes of Ask.
const (
	// Waiting: there was nothing to do.
	Waiting Outcome = iota
	// Moving: it asked, it was granted, or it gives up waiting for the answer.
	Moving
	// Refused: the owner has granted a later ticket.
	Refused
	// Exhausted: the timestamp cannot ask any more.
	Exhausted
)

// Ask moves a petition on until it is granted [TRAM, Algorithm 3]. A process asks for all its
// permissions at once, because each has a way of its own. If the outcome is Refused, by is the
// ticket that was granted instead.
func (p *Petition) Ask(w *Ways, boards *Boards, stamp Timestamp) (outcome Outcome, by Ticket) {
	now := w.Now()
	switch p.State {
	case PetitionIdle: // step 3.1
		if now < p.Since {
			return Waiting, 0
		}
		if p.request == RequestsMax {
			return Exhausted, 0
		}
		p.request++
		boards.Put(p.Process, WordTicket, uint64(stamp.Ticket(p.request)))
		p.State, p.until = PetitionAsked, now+w.Patience(p.Tries+2)
		return Moving, 0
	case PetitionAsked: // step 3.2
		answer := Ticket(boards.Load(p.Process, WordAnswer))
		switch mine := stamp.Ticket(p.request); {
		case answer == mine:
			w.Attach(&p.Way)
			p.State = PetitionAttaches
			return Moving, 0
		case answer > mine:
			return Refused, answer
		case now >= p.until:
			p.Lose(w)
			return Moving, 0
		}
	}
	return Waiting, 0
}

// Answered handles the driver's answer to the want for the way of a petition that was granted.
func (p *Petition) Answered(w *Ways, err error) {
	if err != nil {
		p.Lose(w)
		return
	}
	p.State = PetitionReads
}

// Petition appends the state of a petition.
func (f *Facts) Petition(p *Petition) {
	f.Way(&p.Way)
	f.Numbers(uint64(p.State), p.request)
	if p.State == PetitionAsked {
		f.Until(p.until)
	}
}

// Asker is a process that may ask this one for a permission.
type Asker struct {
	Process int
	Peer    rdmanet.Peer
	// Seen is the highest ticket that was handled.
	Seen Ticket
}

// Asked returns the ticket under which a process asks, if it was not handled yet.
func (b *Boards) Asked(a *Asker) (asked Ticket, has bool) {
	asked = Ticket(b.Load(a.Process, WordTicket))
	return asked, asked > a.Seen
}

// Answer answers a request with the highest ticket that was granted.
func (b *Boards) Answer(a *Asker, asked, granted Ticket) {
	a.Seen = asked
	b.Put(a.Process, WordAnswer, uint64(granted))
}

// Held is a region of this process that one other process at a time may write.
type Held struct {
	Region rdmanet.Region
	// Granted is the highest ticket that was granted, and Holder the peer that it was granted to.
	Granted Ticket
	Holder  rdmanet.Peer
	// Fault plants a bug.
	Fault Fault
}

// Pass takes the region from its holder and gives it to a peer, which may be the same one, or to
// none if the peer is zero. No write that was posted before lands after that.
func (h *Held) Pass(peer rdmanet.Peer) error {
	if h.Holder != (rdmanet.Peer{}) && h.Fault != FaultNoPermissionCheck {
		if err := h.Region.Revoke(h.Holder); err != nil {
			return fmt.Errorf("revoke %s from %s: %w", h.Region.Name(), h.Holder, err)
		}
	}
	h.Holder = rdmanet.Peer{}
	if peer == (rdmanet.Peer{}) {
		return nil
	}
	if err := h.Region.Grant(peer, rdmanet.PermissionReadWrite); err != nil &&
		!errors.Is(err, rdmanet.ErrNotMember) {
		return fmt.Errorf("grant %s to %s: %w", h.Region.Name(), peer, err)
	}
	h.Holder = peer
	return nil
}

// Held appends which process may write a region.
func (f *Facts) Held(h *Held) {
	f.Number(uint64(h.Granted))
	f.Peer(h.Holder)
}
