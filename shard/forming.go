package shard

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// forming is the member's part in deciding the next generation.
type forming struct {
	pending   *generation.Decision // decided with this member, not activated yet
	pendingAt int
	// promised is the last generation that this very process promised: all that is sent in it comes
	// here.
	promised generation.Generation
	// promisedBefore is the last generation that an earlier process promised, as the disk says.
	promisedBefore generation.Generation
	// saving says that Save is under way, and held is what waits for it.
	saving bool
	held   generation.Ready
	// savingStart is the run whose start the Save under way allows, nil for none.
	savingStart *Group
	// flushed is the height up to which the disk holds that blocks are durable, at least; flushing what
	// it will be once the Save under way is answered, and knowledge that this Save is for nothing else.
	// flushAt is when to try again where that failed.
	flushed, flushing uint64
	knowledge         bool
	flushAt           int
	// unsaved says that what the synod wants on the disk is not there, since that is full; retryAt
	// is when to try again, and undecided a decision that waits for it.
	unsaved   bool
	retryAt   int
	undecided *generation.Decision
	// perhaps says that the disk may have held more than it showed as the process began, and that no
	// run has settled it since. Only settleDoubt clears it, here and on the disk: that some of these
	// blocks are known to be durable says nothing about those behind them.
	perhaps bool
	// wantedRound is the one that is being fetched; the zero value for none. roundRefused says that
	// the disk did not take one that is still wanted.
	wantedRound  [32]byte
	roundRefused bool
	waiting
}

// newSynod makes the synod from what the disk holds.
func (m *Member) newSynod() error {
	state := m.config.Disk.State.OnDisk(m.config.Disk.ID, m.config.Disk.Original)
	if state.Promised != (generation.Ballot{}) {
		m.promisedBefore = state.Instance
	}
	var err error
	m.synod, err = generation.NewSynod(generation.Config{
		Self: m.config.Self, Original: m.config.Disk.Original, State: state, Report: m.holdings(),
		Grace: m.config.Timing.Grace, Patience: m.config.Timing.Patience, Fault: m.config.SynodFault,
	})
	if err != nil {
		return err
	}
	for _, id := range m.config.Disk.Held {
		m.synod.Holds(id)
	}
	return nil
}

// holdings is what this member holds, as the synod wants it, while nothing is being executed.
func (m *Member) holdings() generation.Report {
	tip := m.chain.Tip()
	membership, changed := m.chain.Membership()
	report := generation.Report{
		Membership: membership, Durable: m.chain.Heights().Durable, Perhaps: m.perhaps,
		Head: generation.Head{Generation: m.followed, Height: tip.Height, Hash: tip.Hash, Round: tip.Block},
	}
	// Empty rounds that were executed before a run that did not start are not of that run.
	if m.synod != nil && m.synod.Activated().Generation() == m.worked {
		report.Head.Round, report.Empty = tip.Round, tip.Round-tip.Block
	}
	for changed > report.Durable {
		before, earlier := m.chain.MembershipAt(changed - 1)
		report.Former = append(report.Former, generation.Former{Membership: before, Until: changed})
		changed = earlier
	}
	slices.Reverse(report.Former)
	return report
}

// tickSynod passes time in the synod where a next generation may be called for: this member does
// not order or gets nowhere, a majority can be heard, and nobody says that the present one makes
// progress. A member that promises a later generation cannot enter the present one.
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

// linkSynod tells the synod who can be waited for. One that cannot save cannot promise.
func (m *Member) linkSynod() {
	for i := range m.peers {
		p := &m.peers[i]
		m.synod.Linked(p.server, m.recent(p) && !p.Full)
	}
}

// pump does what the synod wants: save, send, fetch, adopt. What rests on the disk waits for Saved.
func (m *Member) pump(tick bool) {
	for !m.saving && m.end == nil {
		if err := m.synod.Err(); err != nil {
			m.finish(err)
			return
		}
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
		// A promise tells of blocks, which have to be on the disk as well.
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

// mustFlush reports whether a change of the membership is effective, and the disk does not hold that yet.
// Other knowledge of what is durable goes with the next blocks. This does not wait for them: without it,
// after a loss of power a majority of the membership before the change is needed as well.
func (m *Member) mustFlush() bool {
	changed := m.unflushed()
	return changed != 0 && changed <= m.chain.Heights().Durable && m.now >= m.flushAt
}

// unflushed is the height of the first change of the membership that the disk does not hold to be
// effective; 0 for none. A later change may be in the chain already, and not be effective for long.
func (m *Member) unflushed() (first uint64) {
	for _, changed := m.chain.Membership(); changed > m.flushed; _, changed = m.chain.MembershipAt(changed - 1) {
		first = changed
	}
	return first
}

func (m *Member) behindOnDisk() bool {
	heights := m.chain.Heights()
	return heights.Stored < heights.Ordered
}

// report tells the synod what this member holds, while its chain is at rest.
func (m *Member) report() {
	if m.group == nil && m.starting == nil && m.job == idle {
		m.synod.Report(m.holdings())
	}
}

// release does what waited for the disk.
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

// onSaveFailed waits for space. The messages count as lost: the synod says again what is needed. A
// run that was to start goes on without this member, which enters a later one.
func (m *Member) onSaveFailed(in SaveFailed) {
	if !m.saving {
		return
	}
	if m.knowledge {
		ready := m.held
		m.saving, m.held, m.savingStart = false, generation.Ready{}, nil
		m.flushAt = m.now + m.config.Timing.Announce
		m.release(ready) // it does not rest on this Save
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

// fetchWanted sees to what the synod wants on this disk. Blocks come by following (target).
func (m *Member) fetchWanted(tick bool) {
	all := m.synod.Wanted()
	m.missed = slices.DeleteFunc(m.missed, func(id [32]byte) bool {
		return tick || !slices.ContainsFunc(all, func(f generation.Fetch) bool { return f.ID() == id })
	})
	m.roundRefused = m.roundRefused && slices.ContainsFunc(all, func(f generation.Fetch) bool {
		return f.Tail != nil
	})
	for _, wanted := range all {
		if wanted.Base != nil {
			if m.holdsBase(wanted.Base) {
				m.synod.Holds(wanted.ID())
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

// holdsBase reports whether the blocks up to a base are in this chain. What rests on that is saved
// first, and Save syncs the chain.
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

// target is the base that this member has to get to, nil for none.
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

// adopt takes a decision. One that this member is not in with this very disk, or whose first frames
// went to an earlier process of it, is for others to activate; this member enters a later eon.
func (m *Member) adopt(d generation.Decision) {
	m.news = true
	m.changed()
	if m.starting != nil && m.starting.Run.Generation() < d.Generation {
		m.abandonStart()
	}
	if g := m.group; g != nil && g.Run.Generation() < d.Generation {
		m.freeze(0) // the shard went on without this member, which was cut off
		m.setMode(Starting, because(Between), "the group started anew")
	}
	m.pending = nil
	if m.received(&d) && m.synod.Activated().Generation() < d.Generation {
		m.pending, m.pendingAt = &d, m.now
	}
}

// received reports whether everything that is sent in a decided generation comes to this very
// process: it is in the decision because of what this process promised, before anybody knew the
// decision. The disk says that no earlier process promised this generation, and the decision names
// the disk. An earlier process may have been the one that the first frames went to.
func (m *Member) received(d *generation.Decision) bool {
	if !d.Seats(m.config.Self, m.config.Disk.ID) {
		return false
	}
	alone := len(d.Members) == 1 // frames that nobody sends are not missed
	return alone || m.promised == d.Generation && m.promisedBefore < d.Generation
}

// activate starts the engine of a decided generation as soon as this member holds its base, and has
// executed its tail.
func (m *Member) activate() {
	d := m.pending
	if d == nil || m.end != nil || m.job != idle || m.group != nil || m.starting != nil || m.saving {
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
		m.pending = nil // the group began without this member, which holds blocks of it
		return
	}
	hash, err := m.chain.Hash(d.Base.Height)
	switch {
	case err != nil:
		m.finish(err)
		return
	case hash != d.Base.Hash && d.Base.Height == 0:
		m.pending = nil // it is no decision of this chain
		return
	case hash != d.Base.Hash:
		m.strays++
		m.fallBack(d.Base.Height - 1) // the peers that it fetches from tell where the chains part
		return
	case tip.Height > d.Base.Height && (m.othersOrder() || m.chain.Heights().Durable > d.Base.Height):
		m.pending = nil // the blocks that this member fetched meanwhile may be the group's: it follows
		return
	case tip.Height > d.Base.Height:
		m.fallBack(d.Base.Height)
		return
	}
	if len(d.Tail) == 0 {
		m.activated()
		return
	}
	for _, wanted := range m.synod.Wanted() {
		if wanted.Tail != nil {
			return // fetchWanted has it fetched
		}
	}
	m.job = replaying
	m.emit(Replay{Rounds: d.Tail})
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

// activated begins the first run of the decided generation: the tail is executed.
func (m *Member) activated() {
	d := m.pending
	tip := m.chain.Tip()
	membership, _ := m.chain.Membership()
	next := &Group{
		Run: generation.NewRun(d.Generation, 0), First: d.First(), Base: tip.Height, BaseHash: tip.Hash,
		// The tail may have changed the membership, or a member's disk.
		Members: d.Group(membership), Shard: membership,
	}
	if len(next.Members) < membership.Quorum() || !next.Includes(m.config.Self) {
		m.pending = nil // the next generation goes on
		return
	}
	m.followed = max(m.followed, d.Generation)
	m.begin(next)
}

// Waiting says what this member's latest attempt to form a generation was missing.
func (m *Member) Waiting() generation.Waiting { return m.synod.Waiting() }
