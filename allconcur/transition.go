package allconcur

// The transitions between states [Poke19, section 6.2.2], and where they are:
//
//	T_UU   [e,r]    -> [e,r+1]       completeUnreliable
//	T_R▷   [[e,r]]  -> [e,r+1]▷      completeReliable
//	T_RR   [[e,r]]  -> [[e+1,r+1]]   completeReliable
//	T_UR   [e,r]    -> [[e+1,r-1]]   failFromUnreliable
//	T_▷R   [e,r]▷   -> [[e+1,r]]     failFromUnreliable
//	T_Sk   [[e,r]]  -> [[e,r+1]]     skip
//
// AllConcur has T_RR only.

// tryToComplete A-delivers and moves on as long as the current round is complete [Poke19, Algorithm
// 6.5].
func (e *Engine) tryToComplete() {
	for e.halted == "" && !e.ended {
		e.deliverStable()
		e.deliverPromptly()
		switch {
		case e.reliable && e.tracking.awaitedCount == 0 && e.agreed():
			e.completeReliable()
		case e.held > 0 && e.revoking > 0 && e.undecidable():
			e.releaseForMajority()
			return
		case !e.reliable && e.current.count == len(e.overlay.members):
			e.completeUnreliable()
		default:
			return
		}
	}
}

// failFromUnreliable ends an unreliable round because of a failure notification, or because the
// round is past the eon's last. It goes back to the first round that may not be A-delivered
// anywhere: the previous one if that is unreliable too [Poke19, Algorithm 6.4, lines 49-52]. The
// previous round is kept, since a skip may still A-deliver it.
func (e *Engine) failFromUnreliable() {
	e.vouchForComplete()
	e.current.reset()
	e.next.reset()
	e.epoch++
	if e.newer.filled {
		e.round-- // T_UR
	} else {
		assert(!e.older.filled, "rounds before the last reliable one are A-delivered")
	}
	e.startReliable()
}

// skip leaves the rerun of a round that another server has A-delivered as an unreliable one, or
// will. That server completed the round after it, so every working server has completed this one
// [Poke19, Algorithm 6.3, lines 35-42]. With uniform delivery it is A-delivered when a majority
// runs the next round.
func (e *Engine) skip() {
	e.leaveRerun()
	e.round++
	e.solicit = min(e.solicit, 1)
	e.recallRevocations()
	e.startReliable()
}

// leaveRerun takes the round before the current one for complete everywhere, since a server is
// ahead. With uniform delivery that round is A-delivered when enough servers run the next one.
func (e *Engine) leaveRerun() {
	if e.older.filled {
		// The server that is ahead by one round completed the round that the failure ended here. So
		// all servers had reached the state that older waits for.
		e.deliver(e.older, nil)
		e.older.reset()
	}
	if e.uniform {
		e.older, e.newer = e.newer, e.older
	} else {
		e.deliver(e.newer, nil)
		e.newer.reset()
	}
	e.current.reset()
	e.next.reset()
}

// adopt makes next the current set if it stands for the state that begins, and leaves next empty.
// It drops the messages of servers that are no longer members.
func (e *Engine) adopt() {
	assert(!e.current.filled || e.current.count == 0, "a round begins without messages")
	if e.next.is(e.epoch, e.round, e.reliable) {
		e.current, e.next = e.next, e.current
		for p, more := e.current.present.next(0); more; p, more = e.current.present.next(p + 1) {
			if !e.members.has(p) {
				e.current.drop(p)
			}
		}
	} else {
		e.current.begin(e.epoch, e.round, e.reliable)
	}
	e.next.reset()
}
