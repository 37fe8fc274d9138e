package shard

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// forming is the member's part in deciding the next generation.
type forming struct {
	// pending is a decision that includes this member and is not activated yet.
	pending   *generation.Decision
	pendingAt int
	// promised is the last generation that this very process promised. Everything sent in it
	// arrives here.
	promised generation.Generation
	// promisedBefore is the last generation that an earlier process promised, according to the
	// disk.
	promisedBefore generation.Generation
	// saving says that a Save is under way, and held is what waits for it.
	saving bool
	held   generation.Ready
	// savingStart is the run that may start once the Save under way is answered, nil for none.
	savingStart *Group
	// flushed is a height up to which the disk is known to record the blocks as durable. flushing
	// is the value of flushed once the Save under way is answered. knowledge says that this Save
	// has no other purpose. flushAt is the tick to try again after it failed.
	flushed, flushing uint64
	knowledge         bool
	flushAt           int
	// unsaved says that the synod's state is not on the disk because the disk is full. retryAt is
	// the tick to try again, and undecided is a decision that waits for the disk.
	unsaved   bool
	retryAt   int
	undecided *generation.Decision
	// perhaps says that the disk may have held more than it showed when the process began, and that
	// no run has settled this since. Only settleDoubt clears it, here and on the disk. Knowing some
	// of these blocks to be durable says nothing about the blocks after them.
	perhaps bool
	// recorded is the last record on the disk, nil for none.
	recorded *Record
	// heldBases are the bases that the synod was told to be here, above what is durable.
	heldBases []generation.Head
	// wantedRound is the round being fetched; the zero value for none. roundRefused says that the
	// disk refused to store a round that is still wanted.
	wantedRound  [32]byte
	roundRefused bool
	// contradicting are the servers that stated another decision, the last time that it was looked.
	contradicting []order.ServerID
	waiting
}

// newSynod creates the synod from the state on the disk.
func (m *Member) newSynod() error {
	state := m.config.Disk.State.OnDisk(m.config.Disk.ID, m.config.Disk.Original)
	if state.Promised != (generation.Ballot{}) {
		m.promisedBefore = state.Instance
	}
	var err error
	m.synod, err = generation.NewSynod(generation.Config{
		Self: m.config.Self, Original: m.config.Disk.Original, State: state, Report: m.holdings(),
		Grace: m.config.Timing.Grace, Patience: m.config.Timing.Patience,
		Fault: m.config.SynodFault,
	})
	if err != nil {
		return err
	}
	for _, id := range m.config.Disk.Held {
		m.synod.Holds(id)
	}
	return nil
}

// holdings returns what this member holds, as a report to the synod. It may be called only while no
// block is being executed.
func (m *Member) holdings() generation.Report {
	tip := m.chain.Tip()
	membership, changed := m.chain.Membership()
	report := generation.Report{
		Membership: membership, Durable: m.chain.Heights().Durable, Perhaps: m.perhaps,
		Head: generation.Head{Generation: m.followed, Height: tip.Height, Hash: tip.Hash,
			Round: tip.Block},
	}
	// Empty rounds that were executed before a run that did not start do not belong to that run.
	if m.synod != nil && m.synod.Activated().Generation() == m.worked {
		report.Head.Round, report.Empty = tip.Round, tip.Round-tip.Block
	}
	m.reportRecord(&report)
	report.Former = m.formers(changed, report.Durable)
	return report
}

// formers lists the memberships before the changes up to one that are above a durable height.
func (m *Member) formers(changed, durable uint64) (former []generation.Former) {
	for changed > durable {
		before, earlier := m.chain.MembershipAt(changed - 1)
		former = append(former, generation.Former{Membership: before, Until: changed})
		changed = earlier
	}
	slices.Reverse(former)
	return former
}

// tickSynod passes a tick to the synod while a next generation may be needed: this member does not
// order or makes no progress, a majority can be heard, and no member announces that the present
// generation makes progress. A member that promises a later generation cannot enter the present
// one.
func (m *Member) tickSynod() {
	works := m.group != nil && !m.stalled
	waits := m.pending != nil && m.now-m.pendingAt < m.config.Timing.Base
	if works || waits || m.job == settling || m.starting != nil || m.view.Learner {
		return
	}
	if !m.majorityHeard() || m.othersOrder() {
		return
	}
	m.linkSynod()
	m.synod.Tick()
}

// linkSynod tells the synod which members it can wait for. A member that cannot save cannot
// promise.
func (m *Member) linkSynod() {
	for i := range m.peers {
		p := &m.peers[i]
		m.synod.Linked(p.server, m.recent(p) && !p.Full)
	}
}

// pump carries out what the synod wants: save, send, fetch, adopt. Whatever depends on the disk
// waits for Saved.
func (m *Member) pump(tick bool) {
	for !m.saving && m.end == nil {
		if err := m.synod.Err(); err != nil {
			m.finish(err)
			return
		}
		m.nameContradicting()
		m.report()
		m.fetchWanted(tick)
		ready := m.synod.Ready()
		if m.unsaved && m.now < m.retryAt {
			m.undecided = cmp.Or(ready.Decided, m.undecided) // the messages count as lost
			return
		}
		if ready.Decided == nil {
			ready.Decided = m.undecided
		}
		// A promise reports blocks, which must be on the disk as well.
		unsynced := len(ready.Messages) > 0 && m.group == nil && m.behindOnDisk()
		must := ready.MustSave || m.unsaved || unsynced
		if must || m.mustFlush() {
			m.saving, m.held, m.savingStart = true, ready, m.starting
			m.flushing, m.knowledge = m.chain.Heights().Durable, !must
			m.emit(Save{State: ready.State})
			return
		}
		if len(ready.Messages) == 0 && ready.Decided == nil {
			return
		}
		m.release(ready)
	}
}

// nameContradicting names the members that state another decision than this one knows.
func (m *Member) nameContradicting() {
	contradicting := m.synod.Contradicting()
	for _, server := range contradicting {
		if !slices.Contains(m.contradicting, server) {
			m.emit(Drop{Server: server, Reason: fmt.Sprintf("it states another decision for "+
				"generation %d than this member knows: it lies, or its disk is another's",
				m.synod.Decided().Generation)})
		}
	}
	m.contradicting = contradicting
}

// mustFlush reports whether a change of the membership is effective and the disk does not record
// that yet. Other knowledge of what is durable is written with the next blocks. This does not wait
// for them: without it, forming a group after a power loss would also need a majority of the
// membership before the change.
func (m *Member) mustFlush() bool {
	changed := m.unflushed()
	return changed != 0 && changed <= m.chain.Heights().Durable && m.now >= m.flushAt
}

// unflushed returns the height of the first change of the membership that the disk does not record
// as effective; 0 for none. A later change may be in the chain already, and take long to become
// effective.
func (m *Member) unflushed() (first uint64) {
	for _, changed := m.chain.Membership(); changed > m.flushed; _, changed = m.chain.MembershipAt(
		changed - 1) {
		first = changed
	}
	return first
}

func (m *Member) behindOnDisk() bool {
	heights := m.chain.Heights()
	return heights.Stored < heights.Ordered
}

// report tells the synod what this member holds, while its chain does not change.
func (m *Member) report() {
	if m.group == nil && m.starting == nil && m.job == idle {
		m.synod.Report(m.holdings())
	}
}

// release sends and adopts what waited for the disk.
func (m *Member) release(ready generation.Ready) {
	m.undecided = nil
	for _, envelope := range ready.Messages {
		m.emit(SendSynod{To: envelope.To, Message: envelope.Message})
	}
	if ready.Decided != nil {
		m.adopt(*ready.Decided)
	}
}

func (m *Member) onSaved() {
	if !m.saving {
		return
	}
	ready := m.held
	m.saving, m.unsaved, m.held = false, false, generation.Ready{}
	changed := m.unflushed()
	m.news = m.news || changed != 0 && changed <= m.flushing // others may wait for that
	m.flushed = m.flushing
	if ready.State.Promised != (generation.Ballot{}) {
		m.promised = max(m.promised, ready.State.Instance)
	}
	m.release(ready)
	if m.starting != nil && m.starting == m.savingStart {
		m.start()
	}
	m.savingStart = nil
}

// onSaveFailed waits for space. The held messages count as lost: the synod repeats what is needed.
// A run that was about to start goes on without this member, which enters a later one.
func (m *Member) onSaveFailed(in SaveFailed) {
	if !m.saving {
		return
	}
	if m.knowledge {
		ready := m.held
		m.saving, m.held, m.savingStart = false, generation.Ready{}, nil
		m.flushAt = m.now + m.config.Timing.Announce
		m.release(ready) // this does not depend on the Save
		return
	}
	m.undecided = m.held.Decided
	m.saving, m.unsaved, m.held, m.savingStart = false, true, generation.Ready{}, nil
	m.retryAt = m.now + m.config.Timing.Announce
	if m.starting != nil {
		m.abandonStart()
	}
	m.haltForSpace(in.Reason)
}

// fetchWanted gets what the synod wants onto this disk. Blocks come by following (target).
func (m *Member) fetchWanted(tick bool) {
	all := m.synod.Wanted()
	m.missed = slices.DeleteFunc(m.missed, func(id [32]byte) bool {
		return tick || !slices.ContainsFunc(all, func(f generation.Fetch) bool {
			return f.ID() == id
		})
	})
	m.roundRefused = m.roundRefused && slices.ContainsFunc(all, func(f generation.Fetch) bool {
		return f.Tail != nil
	})
	for _, wanted := range all {
		if wanted.Base != nil {
			if m.holdsBase(wanted.Base) {
				m.synod.Holds(wanted.ID())
				m.keepBase(*wanted.Base)
			}
			continue
		}
		if m.wantedRound != ([32]byte{}) {
			continue
		}
		if slices.Contains(m.missed, wanted.ID()) {
			continue // it was missing a moment ago
		}
		m.wantedRound = wanted.ID()
		from := slices.DeleteFunc(slices.Clone(wanted.From), func(server order.ServerID) bool {
			return server == m.config.Self
		})
		m.emit(FetchRound{ID: wanted.ID(), From: from})
	}
}

// keepBase remembers that the synod was told of a base, until the base is durable.
func (m *Member) keepBase(base generation.Head) {
	durable := m.durable()
	m.heldBases = append(slices.DeleteFunc(m.heldBases, func(held generation.Head) bool {
		return held.Height <= durable
	}), base)
}

func (m *Member) onRoundHeld(in RoundHeld) {
	if m.wantedRound == in.ID {
		m.wantedRound, m.roundRefused = [32]byte{}, false
	}
	m.synod.Holds(in.ID)
}

func (m *Member) onRoundMissing(in RoundMissing) {
	if m.wantedRound == in.ID {
		m.wantedRound, m.missed = [32]byte{}, append(m.missed, in.ID)
		if m.roundRefused = in.Reason != ""; m.roundRefused {
			m.haltForSpace(in.Reason)
		}
	}
}

// holdsBase reports whether this chain contains the blocks up to a base. Whatever depends on the
// answer is saved first, and Save syncs the chain.
func (m *Member) holdsBase(base *generation.Head) bool {
	if m.job != idle || m.group != nil || m.chain.Tip().Height < base.Height {
		return false
	}
	hash, err := m.chain.Hash(base.Height)
	if err != nil {
		m.finish(err)
		return false
	}
	return hash == base.Hash
}

// target returns the base that this member has to reach, nil for none.
func (m *Member) target() *generation.Head {
	if m.pending != nil {
		return &m.pending.Base
	}
	for _, wanted := range m.synod.Wanted() {
		if wanted.Base != nil {
			return wanted.Base
		}
	}
	return nil
}

// adopt takes a decision. The other members activate a decision that does not include this member
// with this very disk, or whose first frames went to an earlier process of it. This member then
// enters a later eon.
func (m *Member) adopt(d generation.Decision) {
	m.news = true
	m.changed()
	if m.starting != nil && m.starting.Run.Generation() < d.Generation {
		m.abandonStart()
	}
	if g := m.group; g != nil && g.Run.Generation() < d.Generation {
		m.freeze(0) // this member was cut off, and the shard went on without it
		m.setMode(Starting, because(Between), "the group restarted")
	}
	m.pending = nil
	if m.received(&d) && m.synod.Activated().Generation() < d.Generation {
		m.pending, m.pendingAt = &d, m.now
	}
}

// received reports whether everything sent in a decided generation arrives at this very process. It
// does if the decision includes this member because of a promise of this process, made before any
// server knew the decision. The disk says that no earlier process promised this generation, and the
// decision names the disk. Otherwise the first frames may have gone to an earlier process.
func (m *Member) received(d *generation.Decision) bool {
	if !d.Seats(m.config.Self, m.config.Disk.ID) {
		return false
	}
	alone := len(d.Members) == 1 // no other member sends frames that could be missed
	return alone || m.promised == d.Generation && m.promisedBefore < d.Generation
}

// activate starts the engine of a decided generation once this member holds its base and has
// executed its tail.
func (m *Member) activate() {
	d := m.pending
	if d == nil || m.end != nil || m.job != idle || m.group != nil || m.starting != nil ||
		m.saving {
		return
	}
	late := m.now-m.pendingAt > m.config.Timing.Base && m.othersOrder()
	if late || m.synod.Frozen(generation.NewRun(d.Generation, 0)) || m.learner() {
		m.pending = nil // the others began, or a later generation is being decided
		return
	}
	tip := m.chain.Tip()
	if tip.Height < d.Base.Height {
		return // follow fetches it
	}
	if tip.Height > d.Base.Height && max(m.followed, m.fetchedIn) >= d.Generation {
		m.pending = nil // the group began without this member, which holds blocks of the group
		return
	}
	hash, err := m.chain.Hash(d.Base.Height)
	durable := m.durable()
	switch {
	case err != nil:
		m.finish(err)
		return
	case hash != d.Base.Hash && d.Base.Height == 0:
		m.pending = nil // not a decision of this chain
		return
	case hash != d.Base.Hash:
		m.strays++
		m.fallBack(d.Base.Height - 1) // the next fetch shows where the chains part
		return
	case durable > d.Base.Height && (m.othersOrder() || len(d.Tail) == 0),
		m.fetchedTo > d.Base.Height && m.othersOrder():
		// The blocks that this member fetched meanwhile may be the group's, so it follows. Blocks
		// that it did not fetch are older than the group, which cannot have sent them.
		m.pending = nil
		return
	case durable > d.Base.Height:
		// A majority had recorded rounds of the tail, and a member had executed them before.
		m.replayRest(d)
		return
	case tip.Height > d.Base.Height:
		m.fallBack(d.Base.Height)
		return
	}
	m.replay(d.Tail)
}

// replayRest executes the rounds of a tail whose blocks this chain does not have yet. Some of the
// others are known to be durable, so none may be set aside. A chain with blocks of other rounds is
// that of a group that began without this member.
func (m *Member) replayRest(d *generation.Decision) {
	rest := d.Tail
	for height := d.Base.Height + 1; height <= m.chain.Tip().Height; height++ {
		round, epoch, err := m.chain.RoundOf(height)
		if err != nil {
			m.finish(err)
			return
		}
		for len(rest) > 0 && rest[0].Round < round {
			rest = rest[1:] // a round that made no block
		}
		if len(rest) == 0 || rest[0].Round != round || !m.canBeOf(rest[0].Epoch, epoch) {
			m.pending = nil
			return
		}
		rest = rest[1:]
	}
	m.replay(rest)
}

// canBeOf reports whether the block of a round of a tail can have an epoch. It is that of the
// round's state. With prompt delivery, it is the last in which one of the messages was A-broadcast
// first, which may be earlier.
func (m *Member) canBeOf(state, block order.Epoch) bool {
	return block <= state && (m.config.Prompt || block == state)
}

// replay executes rounds of the pending decision's tail, and begins its first run.
func (m *Member) replay(rounds []generation.TailRound) {
	if len(rounds) == 0 {
		m.activated()
		return
	}
	for _, wanted := range m.synod.Wanted() {
		if wanted.Tail != nil {
			return // fetchWanted fetches it
		}
	}
	m.job = replaying
	m.emit(Replay{Rounds: rounds, Bound: m.pending.Bound})
}

func (m *Member) onReplayed(in Replayed) {
	if m.job != replaying {
		return
	}
	m.job = idle
	if m.pending == nil || in.Failed {
		return
	}
	m.activated()
}

// activated begins the first run of the decided generation. The tail has been executed.
func (m *Member) activated() {
	d := m.pending
	tip := m.chain.Tip()
	membership, _ := m.chain.Membership()
	next := &Group{
		Run: generation.NewRun(d.Generation, 0), First: d.First(), Base: tip.Height,
		BaseHash: tip.Hash,
		// The tail may have changed the membership, or a member's disk.
		Members: d.Group(membership), Shard: membership,
	}
	if len(next.Members) < membership.Quorum() || !next.Includes(m.config.Self) {
		m.pending = nil // a later generation will be decided
		return
	}
	m.followed = max(m.followed, d.Generation)
	m.begin(next)
}

// Waiting returns what this member's latest attempt to form a generation lacked.
func (m *Member) Waiting() generation.Waiting { return m.synod.Waiting() }
