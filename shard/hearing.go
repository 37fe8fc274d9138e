package shard

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// peer is what this member knows of another server.
type peer struct {
	server order.ServerID
	linked bool
	// heard says that Announcement is the server's latest, received at the tick at.
	heard bool
	at    int
	// goal is the height that this member knew to be durable when it last began to wait for disk to
	// hold as much. caughtUp says that disk held an earlier goal, at the tick caughtAt.
	disk     generation.DiskID
	goal     uint64
	caughtUp bool
	caughtAt int
	Announcement
	// dropped is the run of an announcement that was dropped as inconsistent, 0 for none.
	dropped generation.Run
	// steadySince is the tick since when the server has announced itself regularly. troubles are
	// the ticks at which it was benched or removed recently.
	steadySince int
	troubles    []int
}

// peer returns the entry of a server, and creates it if there is none.
func (m *Member) peer(server order.ServerID) *peer {
	at, found := slices.BinarySearchFunc(m.peers, server, func(p peer, server order.ServerID) int {
		return cmp.Compare(p.server, server)
	})
	if !found {
		m.peers = slices.Insert(m.peers, at, peer{server: server})
	}
	return &m.peers[at]
}

// Heard returns the latest announcement of a server, how many ticks ago it arrived, and whether the
// fabric reaches the server now. A negative ago means that there is none.
func (m *Member) Heard(server order.ServerID) (said Announcement, ago int, linked bool) {
	for i := range m.peers {
		if p := &m.peers[i]; p.server == server {
			if !p.heard {
				return Announcement{}, -1, p.linked
			}
			return p.Announcement, m.now - p.at, p.linked
		}
	}
	return Announcement{}, -1, false
}

// recent reports whether a server's latest announcement still counts.
func (m *Member) recent(p *peer) bool {
	return p.heard && p.linked && m.now-p.at < m.config.Timing.Hearsay
}

func (m *Member) onLinked(in Linked) {
	p := m.peer(in.Server)
	switch {
	case in.Restarted:
		p.linked, p.heard, p.troubles = true, false, nil
		m.synod.Restarted(in.Server)
	case in.Up:
		p.linked = true
	default:
		p.linked = false
		p.Group.Run = 0 // its run is of no use to this server now
	}
	m.news = m.news || p.linked
}

func (m *Member) onAnnouncement(in AnnouncementReceived) {
	p, a := m.peer(in.From), in.Announcement
	if g := m.group; g != nil && a.Group.Run == 0 && a.Mode != Leaving && p.Group.Run == g.Run {
		// The server sends nothing more in the run. Suspect it now rather than after its silence.
		m.emit(Suspect{Run: g.Run, Server: in.From})
	}
	if !p.heard || m.now-p.at > m.config.Timing.Gap {
		p.steadySince = m.now
	}
	p.heard, p.linked, p.at, p.Announcement = true, true, m.now, a
	m.believeDurable(&a)
	m.countFollower(in.From, &a)
	m.chase(p)
}

// chase records whether a disk has come to hold what was durable when this member last looked.
// Under traffic, a disk that follows never holds everything that is durable at that very moment.
func (m *Member) chase(p *peer) {
	durable := m.chain.Heights().Durable
	if p.disk != p.Disk {
		p.disk, p.goal, p.caughtUp = p.Disk, durable, false
	}
	if p.Heights.Stored >= p.goal {
		p.goal, p.caughtUp, p.caughtAt = durable, true, m.now
	}
}

// majorityHeard reports whether a majority of the chain's members, including this one, can be
// heard.
func (m *Member) majorityHeard() bool {
	membership, _ := m.chain.Membership()
	count := 0
	for _, server := range membership.Members {
		if server == m.config.Self || m.recent(m.peer(server)) {
			count++
		}
	}
	return count >= membership.Quorum()
}

// othersOrder reports whether a member announces that the last decided generation makes progress. A
// member in an earlier eon than this one's does not count: it did not follow into this eon. Nor
// does a member that hangs, with which a ring stands still, for what it announced before.
func (m *Member) othersOrder() bool {
	d := m.synod.Decided()
	if d == nil {
		return false
	}
	at := generation.Run(0)
	if m.group != nil {
		at = m.group.Run
	}
	return slices.ContainsFunc(m.peers, func(p peer) bool {
		gone := slices.Contains(m.absent, p.server) && p.at <= m.absentAt
		return p.orders() && m.recent(&p) && !gone && p.Group.Run.Generation() == d.Generation &&
			p.Group.Run >= at
	})
}

// believeDurable accepts a member's claim of what is durable, as far as its chain is known to be
// this one's.
func (m *Member) believeDurable(a *Announcement) {
	tip, heights := m.chain.Tip(), m.chain.Heights()
	height := min(a.Heights.Durable, tip.Height)
	if height <= heights.Durable || height > a.Heights.Ordered {
		return
	}
	if a.Heights.Ordered <= tip.Height {
		if hash, err := m.chain.Hash(a.Heights.Ordered); err != nil || hash != a.Tip {
			return
		}
	} else if g := m.group; g == nil || a.Group.Run.Generation() != g.Run.Generation() {
		// The member is ahead, perhaps in another group. Its claim counts once this chain is as
		// long.
		return
	}
	m.emit(KnowDurable{height})
}

// durable returns the height up to which this chain is known to be durable. The driver may not have
// recorded the newest knowledge yet: it is among the effects of this step.
func (m *Member) durable() uint64 {
	height := m.chain.Heights().Durable
	for _, e := range m.effects {
		if know, is := e.(KnowDurable); is {
			height = max(height, know.Height)
		}
	}
	return height
}

// countFollower counts the disk of a member outside of the group, as far as its chain is this
// one's. A disk that the chain has replaced since the run began does not count: a decision may need
// only a majority of the disks that came later (survey.go of package generation).
func (m *Member) countFollower(server order.ServerID, a *Announcement) {
	g := m.group
	if g == nil || a.Follows != g.Run || a.Learner || !g.Shard.Counts(server, a.Disk, true) {
		return
	}
	if now, _ := m.chain.Membership(); !now.Counts(server, a.Disk, true) {
		return
	}
	height := min(a.Heights.Stored, a.Heights.Ordered)
	if a.Heights.Ordered > m.chain.Tip().Height {
		return
	}
	if hash, err := m.chain.Hash(a.Heights.Ordered); err == nil && hash == a.Tip {
		m.emit(Stored{Run: g.Run, Server: server, Height: height})
	}
}

// announce announces this member's state: to all members from time to time, and to the linked ones
// whenever something changed. While it rests it does the former less often.
func (m *Member) announce() {
	since, timing := m.now-m.announced, &m.config.Timing
	all := since >= timing.Announce && (since > timing.Rest-timing.Announce || !m.rests())
	if !all && !m.news {
		return
	}
	m.news = false
	if all {
		m.announced = m.now
	}
	membership, _ := m.chain.Membership()
	tip, heights := m.chain.Tip(), m.chain.Heights()
	heights.Ordered = tip.Height
	if changed := m.unflushed(); changed != 0 {
		// A member removed by the change ends when another member knows that the change is
		// effective. This knowledge must then survive a crash, so the disk has to hold it before it
		// is announced.
		heights.Durable = min(heights.Durable, changed-1)
	}
	a := Announcement{
		Mode: m.view.Mode, Changes: membership.Number, Heights: heights, Tip: tip.Hash,
		Disk: m.config.Disk.ID, Original: m.config.Disk.Original, Learner: m.view.Learner,
		Stalled: m.stalled, Full: m.unsaved || m.full != "",
		APIAddress: m.config.APIAddress, Settings: m.config.Settings,
	}
	if m.stopping {
		a.Mode = Leaving
	}
	if d := m.synod.Decided(); d != nil {
		a.Decided = d.Generation
	}
	if m.group != nil {
		a.Group, a.Removed = *m.group, m.removed
	} else if m.countsOutside() {
		a.Follows = m.follows
	}
	m.emit(Announce{Announcement: a, All: all})
}

// countsOutside reports whether this disk counts in the run of other members that the chain came
// from. A promise for a later generation must report everything that counted. Heads are compared by
// generation. After a restart, this member's head belongs to the last generation that the disk says
// it took part in. So the disk counts in that generation only. If it counted in a later one, its
// head of an older generation would yield to a shorter head of a member of the group, and a block
// that is durable because of this disk would be lost with it.
func (m *Member) countsOutside() bool {
	saved := m.starting == nil && !m.unsaved // the synod knows of a run before the disk does
	return saved && m.job == idle && !m.synod.Frozen(m.follows) &&
		m.synod.Activated().Generation() == m.follows.Generation()
}
