package replica

import (
	"fmt"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file handles permissions: which process asks, with which ticket, and which process grants.

// ask moves a petition on until it is granted. It reports whether there was anything to do.
func (r *Replica) ask(p *protected.Petition) bool {
	outcome, by := p.Ask(r.ways, r.boards, r.stamp)
	switch outcome {
	case protected.Refused: // that process has seen a later leader
		r.options.note("is refused by process %d", p.Process)
		r.superseded(by)
	case protected.Exhausted:
		r.stepDown("asked too often under one timestamp")
	}
	return outcome != protected.Waiting
}

// superseded makes a replica step down when it learns of a later leader of its group.
func (r *Replica) superseded(by protected.Ticket) {
	r.counter = max(r.counter, by.Timestamp().Counter())
	r.stepDown("a later leader was granted permissions")
}

// answer answers the requests on the board [TRAM, Algorithm 2, step 2.7]. It reports whether there
// were any.
func (r *Replica) answer() bool {
	busy := false
	for i := range r.askers {
		a := &r.askers[i]
		if asked, has := r.boards.Asked(&a.Asker); has {
			busy = true
			r.answerOne(a, asked)
			if r.halted != "" {
				return true
			}
		}
		if a.kind == askerMember && r.boards.Load(a.Process, wordHalt) != 0 {
			r.halt(fmt.Sprintf("server %d, which leads, excluded this replica", a.place))
			return true
		}
	}
	return busy
}

func (r *Replica) answerOne(a *asker, asked protected.Ticket) {
	switch a.kind {
	case askerMember:
		r.counter = max(r.counter, asked.Timestamp().Counter())
		if asked > r.log.Granted || r.options.Fault == FaultNoPermissionCheck {
			r.stepDown("another asks for the log")
			if !r.pass(&r.log, a.Peer) {
				return
			}
			r.options.note("grants its log to server %d", a.place)
			r.log.Granted, r.scanned = asked, r.applied
		}
		r.boards.Answer(&a.Asker, asked, r.log.Granted)
	case askerParent:
		held := &r.buffers[sourceParent].Held
		if asked > held.Granted {
			if !r.pass(held, a.Peer) {
				return
			}
			r.options.note("grants the parent's buffer to process %d", a.Process)
			held.Granted = asked
		}
		r.boards.Answer(&a.Asker, asked, held.Granted)
	case askerClient:
		held := &r.buffers[int(sourceClients)+a.place].Held
		if !r.pass(held, a.Peer) {
			return
		}
		a.Seen = asked
		held.Region.Store(protected.HeadTicket, uint64(asked)) // the client reads it there
	}
}

// pass gives a region to a peer, or to none. It reports whether it succeeded.
func (r *Replica) pass(held *protected.Held, peer rdmanet.Peer) bool {
	err := held.Pass(peer)
	if err != nil {
		r.halt(err.Error())
	}
	return err == nil
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
		m.Retire(r.ways)
	}
	for _, c := range r.children {
		for _, v := range c.receivers {
			v.Retire(r.ways)
		}
	}
	r.notLead = r.ways.Now() + r.ways.Patience(r.failures)
	r.failures++
}
