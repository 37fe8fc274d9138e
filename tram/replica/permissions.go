package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file handles permissions: which process asks, with which ticket, and which process grants.

// petitionState is the progress of a replica with a permission that it needs.
type petitionState uint8

const (
	petitionIdle     petitionState = iota // it has to be asked for, not before since
	petitionAsked                         // the request or its answer is on the way
	petitionAttaches                      // it was granted
	// attached, and reading what it must know before it writes
	petitionReads
	petitionWorks
)

// permissionRequest is this replica's way to another member's log, or to its buffer at a child's
// replica.
type permissionRequest struct {
	protected.Way
	process int
	state   petitionState
	request uint64 // the last request under this timestamp
	until   time.Duration
}

func (p *permissionRequest) String() string {
	names := [...]string{"idle", "asked", "attaches", "reads", "works"}
	return fmt.Sprintf("%s at request %d", names[p.state], p.request)
}

// lose ends a petition's link and makes it ask again after a while. After an error, writes may
// still be under way, and only a new grant stops them.
func (r *Replica) lose(p *permissionRequest) {
	r.ways.Detach(&p.Way)
	p.state = petitionIdle
	p.Since = r.ways.Now() + r.options.longer(p.Tries)
	p.Tries++
}

// retire ends a petition's link for good, or until this replica leads again.
func (r *Replica) retire(p *permissionRequest) {
	r.ways.Detach(&p.Way)
	p.state, p.request, p.Tries, p.Since = petitionIdle, 0, 0, 0
}

// ask moves a petition on until it is granted [TRAM, Algorithm 3]. It reports whether there was
// anything to do. All petitions are asked at once, because each has a link of its own.
func (r *Replica) ask(p *permissionRequest) bool {
	now := r.ways.Now()
	b := r.boards[p.process]
	switch p.state {
	case petitionIdle: // step 3.1
		if now < p.Since {
			return false
		}
		if p.request == requestsMax {
			r.stepDown("asked too often under one timestamp")
			return true
		}
		p.request++
		b.put(rowTicket, uint64(r.stamp.ticket(p.request)))
		p.state, p.until = petitionAsked, now+r.options.longer(p.Tries+2)
		return true
	case petitionAsked: // step 3.2
		answer := ticket(r.board.Load(p.process*rowSize + rowAnswer))
		switch mine := r.stamp.ticket(p.request); {
		case answer == mine:
			r.ways.Attach(&p.Way)
			p.state = petitionAttaches
			return true
		case answer > mine: // not granted: that process has seen a later leader
			r.options.note("is refused by process %d", p.process)
			r.superseded(answer)
			return true
		case now >= p.until:
			r.lose(p)
			return true
		}
	}
	return false
}

// superseded makes a replica step down when it learns of a later leader of its group.
func (r *Replica) superseded(by ticket) {
	r.counter = max(r.counter, by.timestamp().counter())
	r.stepDown("a later leader was granted permissions")
}

// answer answers the requests on the board [TRAM, Algorithm 2, step 2.7]. It reports whether there
// were any.
func (r *Replica) answer() bool {
	busy := false
	for i := range r.askers {
		a := &r.askers[i]
		row := a.process * rowSize
		if asked := ticket(r.board.Load(row + rowTicket)); asked > a.seen {
			busy = true
			r.answerOne(a, asked)
			if r.halted != "" {
				return true
			}
		}
		if a.kind == askerMember && r.board.Load(row+rowHalt) != 0 {
			r.halt(fmt.Sprintf("server %d, which leads, excluded this replica", a.place))
			return true
		}
	}
	return busy
}

func (r *Replica) answerOne(a *asker, asked ticket) {
	switch a.kind {
	case askerMember:
		r.counter = max(r.counter, asked.timestamp().counter())
		if asked > r.granted || r.options.Fault == FaultNoPermissionCheck {
			r.stepDown("another asks for the log")
			if !r.regrant(r.log, &r.holder, a.peer) {
				return
			}
			r.options.note("grants its log to server %d", a.place)
			r.granted, r.scanned = asked, r.applied
		}
		r.reply(a, asked, r.granted)
	case askerParent:
		if asked > r.parent.granted {
			if !r.regrant(r.buffers[sourceParent].region, &r.parent.holder, a.peer) {
				return
			}
			r.options.note("grants the parent's buffer to process %d", a.process)
			r.parent.granted = asked
		}
		r.reply(a, asked, r.parent.granted)
	case askerClient:
		b := r.buffers[int(sourceClients)+a.place]
		holder := a.peer
		if !r.regrant(b.region, &holder, a.peer) {
			return
		}
		a.seen = asked
		b.region.Store(headTicket, uint64(asked)) // the client reads it there
	}
}

// reply answers a request with the highest ticket that was granted.
func (r *Replica) reply(a *asker, asked, granted ticket) {
	a.seen = asked
	r.boards[a.process].put(rowAnswer, uint64(granted))
}

// regrant takes a region from its holder and gives it to a peer, which may be the same one. No
// write that was posted before lands after that. It reports whether it succeeded.
func (r *Replica) regrant(region rdmanet.Region, holder *rdmanet.Peer, peer rdmanet.Peer) bool {
	if *holder != (rdmanet.Peer{}) && r.options.Fault != FaultNoPermissionCheck {
		if err := region.Revoke(*holder); err != nil {
			r.halt(fmt.Sprintf("revoke %s from %s: %v", region.Name(), *holder, err))
			return false
		}
	}
	*holder = rdmanet.Peer{}
	if peer == (rdmanet.Peer{}) {
		return true
	}
	if err := region.Grant(peer, rdmanet.PermissionReadWrite); err != nil &&
		!errors.Is(err, rdmanet.ErrNotMember) {
		r.halt(fmt.Sprintf("grant %s to %s: %v", region.Name(), peer, err))
		return false
	}
	*holder = peer
	return true
}

// stepDown makes the replica follow, if it does not already. It recalls its operations under way as
// far as possible.
func (r *Replica) stepDown(why string) {
	if r.role == following {
		return
	}
	r.options.note("steps down: %s", why)
	r.role = following
	r.scanned = r.applied
	r.fetches, r.missing = nil, 0
	for _, m := range r.members {
		r.retire(&m.permissionRequest)
	}
	for _, c := range r.children {
		for _, v := range c.receivers {
			r.retire(&v.permissionRequest)
		}
	}
	r.notLead = r.ways.Now() + r.options.longer(r.failures)
	r.failures++
}
