package node

import (
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
)

// timekeeper knows this node's clock and the members' announced clocks. It dates the batches.
type timekeeper struct {
	ofDay   func() time.Time
	started time.Time // with the monotonic clock

	mu     sync.Mutex
	clocks *clock.Clocks
}

func newTimekeeper(self order.ServerID, ofDay func() time.Time,
	members ledger.Membership) *timekeeper {
	if ofDay == nil {
		ofDay = time.Now
	}
	t := &timekeeper{
		ofDay: ofDay, started: time.Now(), clocks: clock.New(ledger.MemberIndex(self),
			clock.FaultNone),
	}
	t.setMembers(members)
	return t
}

// setMembers sets the members.
func (t *timekeeper) setMembers(membership ledger.Membership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clocks.SetMembers(membership.Indexes())
}

// now returns this node's time of day.
func (t *timekeeper) now() ledger.Milliseconds { return ledger.Milliseconds(t.ofDay().UnixMilli()) }

// heard takes a member's announced time of day.
func (t *timekeeper) heard(member ledger.MemberIndex, theirs ledger.Milliseconds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clocks.Heard(member, theirs, time.Since(t.started))
}

// View returns the current state of this node's clock. It implements mempool.Clock.
func (t *timekeeper) View() clock.View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clocks.View(t.now(), time.Since(t.started))
}

// showClock adds the state of this node's clock to its state. If this clock is far from the
// others', that is shown as the reason, unless there is a worse one.
func (n *Node) showClock(state *report.NodeState) {
	view := n.time.View()
	state.ClockOffset, state.ClockKnown = view.Offset, view.Known
	state.ClockWarning = view.Warning()
	if state.ClockWarning == "" {
		state.ClockWarning = view.ChainWarning(n.Store().Head().Time)
	}
	if view.Far() && state.Reason == "" {
		state.Reason = state.ClockWarning
	}
}
