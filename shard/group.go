package shard

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// running is the run that the member works in.
type running struct {
	// group is nil if the member works in no run.
	group *Group
	// worked is the generation of the last run in which this process had an engine; 0 for none.
	worked generation.Generation
	// starting is the group whose start waits for the disk.
	starting *Group
	removed  []order.ServerID
	// stalled says that the group makes no progress.
	stalled bool
	// stalledAt is the tick at which stalled changed last.
	stalledAt int
	// endedIn is the generation that the run being settled ended in order; 0 if the run did not end
	// it.
	endedIn generation.Generation
	// absent are the members without which the run does not go on and which this member suspects,
	// since the run is stuck. absentAt is the tick at which that was so last.
	absent   []order.ServerID
	absentAt int
	// full is the reason that the disk holds up execution, "" if it does not. fullAt is the tick
	// since when.
	full   string
	fullAt int
	// low says that the disk has too little space for this member to enter a group. noSpace says
	// that the member halted for lack of space.
	low, noSpace bool
	// onBench says that the previous run ended without this member because the rounds waited for
	// it.
	onBench bool
	// stoppedAt is the tick at which an engine last stopped by itself.
	stoppedAt int
	// lags has an entry for each member that held up the rounds of this run recently.
	lags []lag
	// marked are the wishes that were marked recently.
	marked []marked
}

type marked struct {
	wish Wish
	from order.ServerID
	at   int
}

// begin starts the engine of a group once the disk holds that this member takes part.
func (m *Member) begin(g *Group) {
	if m.synod.Frozen(g.Run) || g.Run <= m.synod.Activated() || m.learner() {
		m.pending = nil // a later generation is being decided, or an earlier process was there
		if m.group != nil {
			m.freeze(0) // or the chain now names another disk for this member
			m.setMode(Starting, because(Between), "the group continues without this node")
		}
		return
	}
	g.Engine = m.engineAt(g.Base)
	m.synod.Report(m.holdings())
	m.synod.Working(g.Run, g.Shard)
	m.settleDoubt() // the chain reaches the base of the run, and the Save puts both on the disk
	m.starting = g
	m.pump(false)
}

// engineAt returns the engine of a run that begins after the block at a height. All members of the
// run have this block, so they run the same engine, whatever their settings say. A change of the
// engine ends its run as any change of the membership does. So the run with the new engine begins
// where that with the old one ended, at every member.
func (m *Member) engineAt(base uint64) string {
	if m.config.Fault == FaultEngineLate && base > 0 {
		base--
	}
	return m.chain.Engine(base)
}

// start starts the engine. The disk holds what the start requires.
func (m *Member) start() {
	g := m.starting
	m.starting, m.pending = nil, nil
	m.group, m.removed, m.stalled, m.marked, m.lags = g, nil, false, nil, nil
	m.follows, m.onBench, m.asideRefused, m.roundRefused = 0, false, false, false
	m.ticket++
	m.worked = g.Run.Generation()
	m.emit(Start{Group: *g, Former: m.withNames(m.holdings().Former, &g.Shard)})
	m.news = true
	m.setMode(Ordering, because(NoReason), "")
	m.changed()
}

// withNames returns memberships in which original disks have the names that a later membership
// gives them. A chain names an original disk if it admitted another disk of the member and then
// this one again. It is the same disk all the time, and what it holds counts.
func (m *Member) withNames(former []generation.Former,
	now *generation.Membership) []generation.Former {
	for i := range former {
		f := &former[i].Membership
		disks := make([]generation.DiskID, len(f.Members))
		for at, member := range f.Members {
			disks[at] = f.Disk(member)
			if name := now.Disk(member); disks[at] == (generation.DiskID{}) &&
				m.isOriginal(member, name) {
				disks[at] = name
			}
		}
		f.Disks = disks
	}
	return former
}

// isOriginal reports whether a member announced a disk as its original one. That never changes: a
// home that is found altered gets another name.
func (m *Member) isOriginal(member order.ServerID, disk generation.DiskID) bool {
	if member == m.config.Self {
		return m.config.Disk.Original && m.config.Disk.ID == disk
	}
	p := m.peer(member)
	return p.Original && p.Disk == disk
}

// settleDoubt records that the blocks that this disk perhaps held are now either on it or can never
// become durable.
func (m *Member) settleDoubt() {
	if m.perhaps {
		m.perhaps = false
		m.emit(SettleDoubt{})
	}
}

// abandonStart leaves a run that was about to start to the others. If this member still has the
// engine of the previous run, that run is over too.
func (m *Member) abandonStart() {
	m.starting, m.pending = nil, nil
	m.ticket++
	if m.group != nil {
		m.freeze(0)
		m.setMode(Starting, because(Between), "the group continues without this node")
		return
	}
	m.synod.Idle(m.holdings(), 0)
}

// freeze stops the engine for good. Ended is the generation if it ended in order, otherwise 0.
func (m *Member) freeze(ended generation.Generation) {
	m.group, m.starting, m.removed, m.stalled, m.lags = nil, nil, nil, false, nil
	m.fullAt = m.now
	m.job, m.endedIn = settling, ended
	m.news = true
	m.emit(Freeze{})
	m.changed()
}

func (m *Member) onSettled(in Settled) {
	if m.job != settling {
		return
	}
	m.job, m.recorded = idle, in.Record
	report := m.holdings()
	report.Bound, report.Votes, report.Last = in.Report.Bound, in.Report.Votes, in.Report.Last
	report.Known, report.Vouched = in.Report.Known, in.Report.Vouched
	m.synod.Idle(report, m.endedIn)
}

func (m *Member) onHalted(in EngineHalted) {
	if m.group == nil || m.group.Run != in.Run || m.starting != nil {
		return
	}
	members := len(m.group.Shard.Members)
	m.stoppedAt = m.now
	m.freeze(0)
	m.setMode(Halted, because(EngineStopped),
		"%s; it continues once a majority of the %d nodes is reachable", in.Reason, members)
}

// checkGroup leaves a group that went on without this member, or that this member's disk holds up.
func (m *Member) checkGroup() {
	g := m.group
	if g == nil || m.starting != nil {
		return
	}
	switch {
	case m.leftBehind(g):
		m.freeze(0)
		m.setMode(Following, because(Between),
			"the group continues without this node, which enters again once it has caught up")
	case m.full != "" && m.now-m.fullAt > m.config.Timing.Full:
		if len(g.Members) > 2 {
			m.freeze(0)
		}
		// The others of a smaller group cannot go on alone, so the member stays in it.
		m.haltForSpace(m.full)
	case m.full == "" && m.noSpace:
		m.noSpace = false
		m.setMode(Ordering, because(NoReason), "")
	}
}

// leftBehind reports whether a peer announces that the shard went on without this member: in a
// later generation, or in this one after removing it.
func (m *Member) leftBehind(g *Group) bool {
	return slices.ContainsFunc(m.peers, func(p peer) bool {
		if !p.orders() || !m.recent(&p) {
			return false
		}
		run := p.Group.Run
		return run.Generation() > g.Run.Generation() ||
			run.Generation() == g.Run.Generation() && run >= g.Run && !p.includes(m.config.Self)
	})
}

// onProgressed determines whether the group makes progress, and informs the synod and operators.
func (m *Member) onProgressed(in Progressed) {
	g := m.group
	if g == nil || g.Run != in.Run || m.starting != nil {
		return
	}
	if !slices.Equal(m.removed, in.Removed) {
		for _, server := range in.Removed {
			if !slices.Contains(m.removed, server) {
				m.troubled(server)
			}
		}
		m.removed, m.news = in.Removed, true
	}
	m.watchLags(in)
	heard := m.majorityHeard()
	outside := in.Outside || !heard
	stalled := in.Waiting > m.config.Timing.Stall ||
		outside && in.Waiting > m.config.Timing.Outside ||
		in.Stuck && in.Waiting > m.config.Timing.Stuck
	m.synod.Stalled(stalled)
	m.synod.Stuck(stalled && in.Stuck)
	if m.absent = nil; stalled && in.Stuck {
		m.absent, m.absentAt = in.Awaited, m.now
	}
	was := m.stalled
	if m.stalled = stalled; was != stalled {
		m.stalledAt = m.now
		m.news = true
		m.changed()
	}
	switch {
	case stalled && !heard:
		membership, _ := m.chain.Membership() // the run's membership may differ
		m.setMode(Halted, because(Outside), "outside of the majority: fewer than %d of the %d "+
			"nodes can be reached; it continues by itself once a majority can", membership.Quorum(),
			len(membership.Members))
	case stalled:
		reason := Reason{Kind: NoProgress, Round: in.Round, Servers: in.Awaited}
		said := "no progress"
		if outside {
			// A majority is heard all the same.
			said = "outside of the majority, perhaps by wrong suspicions alone"
		} else if in.Stuck {
			said = "no progress without suspected nodes"
		}
		m.setMode(Halted, reason, "%s: round %d waits for nodes %v; a majority of the %d nodes "+
			"will start a new generation",
			said, in.Round, in.Awaited, len(g.Shard.Members))
	case was:
		m.setMode(Ordering, because(NoReason), "")
	}
}

// askForRegroup asks another member of the run to end the generation in order, if this member makes
// no progress and others do. Frames may be lost between two members that do not monitor each other.
// The member that misses the frames cannot go on, no member suspects another, and the others may
// have nothing more to send.
func (m *Member) askForRegroup() {
	g, timing := m.group, &m.config.Timing
	if g == nil || !m.stalled || m.starting != nil || m.now-m.stalledAt < 2*timing.Stall ||
		m.now-m.wishedAt < timing.Mark {
		return
	}
	var ahead []order.ServerID
	for i := range m.peers {
		p := &m.peers[i]
		if m.recent(p) && p.orders() && p.Group.Run == g.Run && p.includes(m.config.Self) {
			ahead = append(ahead, p.server)
		}
	}
	if len(ahead) == 0 {
		return // no member makes progress: a majority starts anew
	}
	m.wishedAt = m.now
	m.wishes++
	wish := Wish{Kind: WishRegroup, Number: uint64(g.Run.Generation()), Disk: m.config.Disk.ID}
	m.emit(SendWish{To: ahead[m.wishes%len(ahead)], Wish: wish})
}

func (m *Member) onDiskFull(in DiskFull) {
	if m.full == "" && in.Reason != "" {
		m.fullAt = m.now
	}
	m.full, m.low = in.Reason, in.Low
}

// haltForSpace halts the member until its disk takes writes again.
func (m *Member) haltForSpace(reason string) {
	m.noSpace = true
	m.setMode(Halted, because(NoSpace), "%s; the node comes back by itself", reason)
}
