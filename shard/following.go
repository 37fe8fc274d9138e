package shard

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// entryDistance is how many blocks behind the head a member may be when it asks to enter.
const entryDistance = 256

// following is the state of a member that does not order.
type following struct {
	// from are the peers that blocks are being fetched from.
	from []peer
	// began is the height at which fetching began. fetchedTo is the last block that this process
	// has from a peer.
	began, fetchedTo uint64
	// forked says that the group holds other blocks above the height common. This member's blocks
	// above it have to be set aside. A member of the group, forkedBy, answered so at the tick
	// forkedAt.
	forked   bool
	common   uint64
	forkedBy order.ServerID
	forkedAt int
	// strays counts the fetches that did not lead to the base that this member has to reach.
	strays int
	// followed is the generation of the peer that the head came from. fetchedIn is the oldest
	// generation of the peers that the last blocks may have come from.
	followed, fetchedIn generation.Generation
	wishedAt            int
	wishes              int
	// follows is the run of the peer that the head came from, 0 if the chain is not the group's.
	// countsOutside reports whether this disk counts in it.
	follows generation.Run
	// strandedAt is set while a learner's chain ends beyond that of all working members, with
	// blocks that it does not have from them. It is one more than the tick at which that began, 0
	// if it is not so.
	strandedAt int
	// missed are the rounds that could not be fetched since the last tick.
	missed [][32]byte
	// settleAt is the tick to set blocks aside again after the disk refused it. asideRefused says
	// that they still have to be set aside, as far as this member knows. keeps is the last height
	// to keep while they are.
	settleAt     int
	asideRefused bool
	keeps        uint64
}

// called reports whether a peer announced a run that waits for this member.
func (m *Member) called() bool {
	if m.group != nil || m.starting != nil {
		return false
	}
	return slices.ContainsFunc(m.peers, func(p peer) bool { return m.entrance(&p) != nil })
}

// follow fetches blocks from the peers while this member does not order. Once it is close to the
// head, follow asks to enter, and then enters.
func (m *Member) follow() {
	if m.end != nil || m.group != nil || m.starting != nil {
		return
	}
	m.explainSpace()
	if m.job == fetching || m.job == settingAside {
		m.explain(workersOf(m.ahead())) // both take time, and the peers may be gone by now
	}
	if m.job != idle {
		return
	}
	if m.forked {
		if !m.forkConfirmed() {
			return
		}
		m.forked = false
		if m.common < m.chain.Tip().Height { // a decision may have set them aside already
			m.fallBack(m.common)
			return
		}
	}
	target := m.target()
	if target != nil && m.pending == nil && m.leaveBranch(target) {
		return
	}
	ahead := m.ahead()
	workers := workersOf(ahead)
	m.explain(workers)
	tip := m.chain.Tip()
	if len(ahead) == 0 || m.pending != nil && tip.Height >= target.Height {
		return
	}
	if noneHas(ahead, tip.Height+1) {
		reason := Reason{Kind: NoBlock, Height: tip.Height + 1}
		m.setMode(Following, reason, "no running member has block %d, since they all began with "+
			"snapshots: "+
			"start one that has it, or stop this node, move its data folder away, and give "+
			"`ledgerd cluster join --home %s --snapshot` again, so that it begins with one too",
			tip.Height+1, m.config.Home)
		return
	}
	limit := uint64(0)
	if target != nil {
		limit = target.Height
	}
	for i := range workers {
		if g := m.entrance(&workers[i]); g != nil && target == nil {
			if m.enter(workers[i].server, g) {
				return
			}
			limit = g.Base
		}
	}
	best := &ahead[0]
	same, err := m.holdsTip(best)
	if err != nil {
		m.finish(err)
		return
	}
	if same && best.Heights.Ordered == tip.Height && best.orders() {
		m.followed = max(m.followed, best.Group.Run.Generation())
		m.follows, m.asideRefused = best.Group.Run, false
	}
	if target != nil {
		if tip.Height < limit || best.orders() && !same && best.Heights.Ordered <= tip.Height {
			m.fetch(m.towards(ahead, target), limit)
		}
		return
	}
	if m.stranded(workers, best) {
		m.strandedAt = 0
		m.fallBack(best.Heights.Ordered)
		return
	}
	if len(workers) > 0 && (same || best.Heights.Ordered > tip.Height) &&
		best.Heights.Ordered <= tip.Height+entryDistance {
		m.wish(workers)
	}
	if !same && (limit == 0 || tip.Height < limit || best.Heights.Ordered <= tip.Height) {
		m.fetch(ahead, limit)
	}
}

// forkConfirmed reports whether the peer that holds other blocks has announced itself since then,
// and is to be believed. It may have answered from an old disk, as a new process that this member
// had not heard of. Without that announcement the answer proves nothing, and the blocks here may be
// durable.
func (m *Member) forkConfirmed() bool {
	p := m.peer(m.forkedBy)
	m.forked = m.recent(p) && m.believes(p, m.target())
	return m.forked && p.at > m.forkedAt
}

// noneHas reports whether some peers are past a block and none of them has it.
func noneHas(peers []peer, height uint64) bool {
	past := false
	for i := range peers {
		if peers[i].Heights.Ordered < height {
			continue
		}
		if past = true; peers[i].Absent < height {
			return false
		}
	}
	return past
}

// explainSpace sets the mode when a member without a group waits for disk space, and when it has
// space again. Any change of the chain may have to wait for space.
func (m *Member) explainSpace() {
	refused := m.full != "" || m.unsaved || m.asideWaits() || m.roundRefused
	switch {
	case m.leavingSince != 0 && m.noSpace && !refused:
		m.noSpace = false
		m.setMode(Halted, because(Removed), "%v", ErrRemoved)
	case m.leavingSince != 0:
	case m.full != "":
		m.haltForSpace(m.full)
	case m.noSpace && !refused:
		m.noSpace = false
		m.setMode(Starting, because(Between), "the disk has space again")
	}
}

// asideWaits reports whether blocks could not be set aside a moment ago for lack of space. If they
// still have to go, the next attempt finds out whether there is space.
func (m *Member) asideWaits() bool {
	return m.asideRefused && m.now <= m.settleAt+m.config.Timing.Announce
}

// explain sets the mode and reason of a member without a group.
func (m *Member) explain(workers []peer) {
	number := generation.Generation(0)
	membership, _ := m.chain.Membership()
	if len(workers) > 0 {
		number = workers[0].Group.Run.Generation()
	}
	switch {
	case m.leavingSince != 0, m.unsaved, m.noSpace:
	case m.job == settingAside:
		mode := Starting
		if len(workers) > 0 {
			mode = Following
		}
		m.setMode(mode, Reason{Kind: SettingAside, Height: m.keeps}, "the shard goes on from "+
			"block %d without the later ones that this node has: setting those aside", m.keeps)
	case m.pending != nil && m.chain.Tip().Height >= m.pending.Base.Height && m.job == fetching:
		m.setMode(Starting, because(Between), "the group continues from block %d: this node "+
			"waits for an answer to an earlier request", m.pending.Base.Height)
	case m.pending != nil && m.chain.Tip().Height >= m.pending.Base.Height:
		height := m.pending.Base.Height
		m.setMode(Starting, Reason{Kind: FetchingRounds, Height: height},
			"fetching the rounds after block %d, where the group continues", height)
	case m.pending != nil:
		height := m.pending.Base.Height
		m.setMode(Starting, Reason{Kind: Fetching, Height: height},
			"fetching blocks up to %d, where the group continues", height)
	case len(workers) > 0 && m.low:
		m.setMode(Following, because(NoSpace),
			"generation %d orders without this node, whose disk has too little space to take "+
				"part: free some, and the node enters by itself", number)
	case len(workers) > 0 && m.learner():
		m.setMode(Following, Reason{Kind: Learning, Generation: number},
			"this node has a new disk (%s), which counts in no majority until the chain admits it",
			m.config.Disk.New)
	case len(workers) > 0 && m.onBench:
		m.setMode(Following, Reason{Kind: Benched, Generation: number},
			"the rounds waited for this node: generation %d continues without it, and takes it "+
				"in again once the others hear from it regularly; check whether its machine, "+
				"disk or network is slow", number)
	case len(workers) > 0 && !membership.Includes(m.config.Self):
		m.setMode(Following, because(Joining),
			"generation %d orders without this node, whose chain lacks the block that lets it in",
			number)
	case len(workers) > 0:
		m.setMode(Following, Reason{Kind: Entering, Generation: number},
			"generation %d orders without this node, which enters once it has caught up",
			number)
	case m.view.Mode != Halted,
		m.view.Reason.Kind == EngineStopped && m.now-m.stoppedAt >= m.config.Timing.Hearsay:
		reason, why := m.waitingFor()
		m.setMode(Starting, reason, "%s", why)
	}
}

// workersOf returns the peers that work in the newest run that any of the peers works in.
func workersOf(ahead []peer) []peer {
	run := generation.Run(0)
	for i := range ahead {
		if ahead[i].orders() {
			run = max(run, ahead[i].Group.Run)
		}
	}
	var workers []peer
	for i := range ahead {
		if ahead[i].orders() && ahead[i].Group.Run == run {
			workers = append(workers, ahead[i])
		}
	}
	return workers
}

// ahead returns copies of the peers to follow, best first: the peers that order in the latest
// generation, by height. A peer that orders in an older generation than this member knows was cut
// off, and its chain proves nothing.
//
// Two other kinds of peers are included. While a base is wanted, peers that have it serve as well.
// To a member whose chain does not yet have the block that let it in, every peer serves, unless the
// member took part in a generation or followed one. In that case its damaged disk may lack that
// block, or a block that is not known to be durable removed it. What it fetches is then taken for
// blocks of that generation, and a peer that does not work may hold a branch that was given up.
func (m *Member) ahead() []peer {
	latest := max(m.synod.Activated().Generation(), m.followed)
	followed := latest > 0
	if d := m.synod.Decided(); d != nil {
		latest = max(latest, d.Generation)
	}
	target, tip := m.target(), m.chain.Tip()
	membership, _ := m.chain.Membership()
	member := membership.Includes(m.config.Self)
	var ahead []peer
	for i := range m.peers {
		p := &m.peers[i]
		orders := p.orders() && p.Group.Run.Generation() >= latest
		atBase := target != nil && p.Heights.Ordered >= target.Height
		joining := !member && !followed && p.Heights.Ordered > tip.Height
		if m.recent(p) && (orders || atBase || joining) {
			ahead = append(ahead, *p)
		}
	}
	run := func(p *peer) generation.Run {
		if p.orders() {
			return p.Group.Run
		}
		return 0
	}
	// Peers that do not vouch for the base come last.
	others := func(p *peer) int {
		if target == nil || m.vouches(p, target) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ahead, func(a, b peer) int {
		return cmp.Or(cmp.Compare(run(&b), run(&a)), cmp.Compare(others(&a), others(&b)),
			cmp.Compare(b.Heights.Ordered, a.Heights.Ordered))
	})
	return ahead
}

// vouches reports whether a peer's chain is known to contain the wanted base: the peer works in the
// newest generation, or its chain ends with the base. A peer whose chain is merely long enough may
// have followed a branch that was given up.
func (m *Member) vouches(p *peer, target *generation.Head) bool {
	return p.orders() || p.Heights.Ordered == target.Height && p.Tip == target.Hash
}

// believes reports whether a peer's chain is the shard's: the peer works, or it vouches for the
// wanted base.
func (m *Member) believes(p *peer, target *generation.Head) bool {
	return p.orders() || target != nil && m.vouches(p, target)
}

// stranded reports whether a member whose disk counts for nothing holds blocks beyond the end of
// the chain that the others work on. It did not fetch them from the others' generation, and has had
// them for longer than the others' announcements take to arrive. It may have them from a peer that
// no longer works.
//
// Whether the member is on another branch cannot be known until the others' chain is as long.
// Without traffic, a learner would never be admitted, and a member that was removed by a given-up
// block would wait for that block to become durable. An old disk counts for the blocks before the
// one that names another disk, so its member waits.
//
// What a member did not fetch, it may have A-delivered itself. If it took part in the generation in
// which the others work, they will A-deliver the same. The member must not give that up meanwhile:
// its next promise would not tell of these blocks, and its votes and its log do not either.
//
// The member has to hear from a working majority, because a member that lags in an earlier eon may
// lack a block that is durable. The majority is taken of the membership at the end of the others'
// chain: changes beyond that end may never have taken effect.
func (m *Member) stranded(workers []peer, best *peer) bool {
	tip := m.chain.Tip()
	counts := func(now generation.Membership) bool {
		return now.Counts(m.config.Self, m.config.Disk.ID, m.config.Disk.Original)
	}
	from := m.fetchedIn
	if m.fetchedTo < tip.Height {
		from = m.synod.Activated().Generation()
	}
	elsewhere := from < best.Group.Run.Generation()
	beyond := best.orders() && elsewhere && tip.Height > best.Heights.Ordered &&
		m.durable() <= best.Heights.Ordered
	if beyond {
		now, _ := m.chain.Membership()
		// First is as of the first block to give up.
		first, _ := m.chain.MembershipAt(best.Heights.Ordered + 1)
		shared, _ := m.chain.MembershipAt(best.Heights.Ordered)
		heard := 0
		for i := range workers {
			if shared.Includes(workers[i].server) {
				heard++
			}
		}
		beyond = !counts(now) && !counts(first) && heard >= shared.Quorum()
	}
	switch {
	case !beyond:
		m.strandedAt = 0
	case m.strandedAt == 0:
		m.strandedAt = m.now + 1
	}
	return beyond && m.now-m.strandedAt >= 2*m.config.Timing.Announce
}

// towards chooses the peers to fetch a base from: those that vouch for it. If none does, any of the
// others may be on another branch, so they take turns.
func (m *Member) towards(ahead []peer, target *generation.Head) []peer {
	at := slices.IndexFunc(ahead, func(p peer) bool { return !m.vouches(&p, target) })
	switch {
	case at < 0:
		return ahead
	case at > 0:
		return ahead[:at]
	}
	turn := m.strays % len(ahead)
	return ahead[turn : turn+1]
}

// leaveBranch sets aside the blocks that keep this member from a base that it is to accept or that
// was decided: its chain has another block at that height. It reports whether that is under way.
// The peers that it fetches from next show where the chains part. A base that would give up a
// durable block is not accepted; such a base ends the member only once it is decided.
func (m *Member) leaveBranch(base *generation.Head) bool {
	if m.chain.Tip().Height < base.Height || m.durable() >= base.Height {
		return false
	}
	hash, err := m.chain.Hash(base.Height)
	if err != nil {
		m.finish(err)
		return true
	}
	if hash == base.Hash {
		return false
	}
	m.strays++
	m.fallBack(base.Height - 1)
	return true
}

// holdsTip reports whether this chain has the block that a peer announced as its last.
func (m *Member) holdsTip(p *peer) (bool, error) {
	if p.Heights.Ordered > m.chain.Tip().Height {
		return false, nil
	}
	hash, err := m.chain.Hash(p.Heights.Ordered)
	return hash == p.Tip, err
}

func (m *Member) fetch(ahead []peer, limit uint64) {
	m.job, m.from, m.began = fetching, ahead, m.chain.Tip().Height
	fetch := Fetch{Limit: limit}
	if target := m.target(); target != nil && target.Height == limit {
		fetch.Base = target.Hash
	}
	for i := range ahead {
		p := &ahead[i]
		fetch.From = append(fetch.From, Source{Server: p.server, Height: p.Heights.Ordered,
			Hash: p.Tip})
	}
	m.emit(fetch)
}

func (m *Member) onFetched(in Fetched) {
	if m.job != fetching {
		return
	}
	m.job = idle
	if tip := m.chain.Tip(); tip.Height > m.began {
		m.fetchedTo, m.fetchedIn = tip.Height, oldestOf(m.from)
	}
	target := m.target()
	switch stray := target != nil && len(m.from) > 0 && !m.vouches(&m.from[0], target); {
	case !stray:
		// If a peer does not work, the point where its chain parts from this one proves nothing,
		// since the peer may be on a branch that was given up. A member that is joining or was
		// removed asks such peers too.
		parted := in.Forked && in.Parted < len(m.from) && m.believes(&m.from[in.Parted], target)
		m.forked, m.common, m.forkedAt = parted, in.Common, m.now
		if parted {
			m.forkedBy = m.from[in.Parted].server
		}
	case in.Forked || m.chain.Tip().Height == m.began:
		m.strays++
	}
	if in.Reached >= 0 && in.Reached < len(m.from) {
		reached := &m.from[in.Reached]
		if reached.orders() {
			if reached.Group.Run.Generation() > m.synod.Activated().Generation() {
				// The decision for that generation asked a majority, which settled what this disk
				// may have held. A member that lags in the previous run has settled nothing.
				m.settleDoubt()
			}
			m.followed = max(m.followed, reached.Group.Run.Generation())
			m.follows, m.news = reached.Group.Run, true
		}
		// This member was behind when the announcement arrived.
		m.believeDurable(&reached.Announcement)
	}
	m.from = nil
}

// oldestOf returns the oldest generation that peers work in, or 0 if one of them does not work.
func oldestOf(peers []peer) generation.Generation {
	oldest := ^generation.Generation(0)
	for i := range peers {
		if !peers[i].orders() {
			return 0
		}
		oldest = min(oldest, peers[i].Group.Run.Generation())
	}
	return oldest
}

// enter starts the engine of a run that a server announced, if the run takes this process in and
// the chain ends right before it. It reports whether there is nothing more to do for now.
func (m *Member) enter(from order.ServerID, g *Group) bool {
	tip := m.chain.Tip()
	switch {
	case tip.Height < g.Base:
		return false
	case tip.Height > g.Base && (m.fetchedTo <= g.Base || m.fetchedElsewhere(g)):
		// The group did not have these blocks when the run began, and they did not come from the
		// group. So they are in no chain of the group.
		m.fallBack(g.Base)
		return true
	case tip.Height > g.Base || tip.Hash != g.BaseHash:
		m.ticket++ // too late: wait for the next eon
		return false
	}
	g.Shard, _ = m.chain.Membership()
	if !g.Shard.Includes(m.config.Self) || m.learner() {
		return false
	}
	if reason := g.fits(g.Shard); reason != "" {
		if p := m.peer(from); p.dropped != g.Run {
			p.dropped = g.Run
			m.emit(Drop{Server: from, Reason: reason})
		}
		return false
	}
	m.followed = max(m.followed, g.Run.Generation())
	m.begin(g)
	return true
}

// fetchedElsewhere reports whether the blocks that this member fetched last did not come from a
// group's generation. They came from peers of an older generation or, if the member took part in
// none, from a peer that does not work. A member that did take part may have asked such peers for a
// base, and its disk may count.
func (m *Member) fetchedElsewhere(g *Group) bool {
	if m.fetchedIn == 0 {
		return m.synod.Activated() == 0
	}
	return m.fetchedIn < g.Run.Generation()
}

// wish asks a working member to take this one in, or to have its disk admitted.
func (m *Member) wish(workers []peer) {
	membership, _ := m.chain.Membership()
	// A member enters a generation only if it knows the generation's decision. A learner may not
	// know it yet.
	known := m.othersOrder() || m.learner()
	if !membership.Includes(m.config.Self) || !known || m.stopping || m.full != "" || m.low ||
		m.unsaved {
		return
	}
	if m.now-m.wishedAt < m.config.Timing.Enter {
		return
	}
	wish := Wish{Kind: WishEnter, Number: m.ticket, Disk: m.config.Disk.ID}
	run := workers[0].Group.Run
	to := &workers[(m.wishes+1)%len(workers)]
	switch {
	case m.learner():
		if m.chain.Heights().Stored < to.Heights.Durable {
			return
		}
		wish = Wish{Kind: WishAdmit, Disk: m.config.Disk.ID}
	case m.synod.Frozen(run):
		// This member's promise keeps it out of this generation for good.
		wish.Kind, wish.Number = WishRegroup, uint64(run.Generation())
	}
	for i := range workers {
		own := Entrant{Server: m.config.Self, Ticket: m.ticket, Disk: m.config.Disk.ID}
		if slices.Contains(workers[i].Group.Entrants, own) && !workers[i].includes(m.config.Self) {
			m.ticket++ // the run took this process in and removed it again
			wish.Number = m.ticket
			break
		}
	}
	m.wishedAt = m.now
	m.wishes++
	m.emit(SendWish{To: to.server, Wish: wish})
}
