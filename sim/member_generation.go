package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// generations is a member's part in deciding the next generation: the synod, and what it wants from its driver.
type generations struct {
	synod *generation.Synod
	// decision is the newest one that this process has yet to take part in; waits counts the ticks since.
	decision *generation.Decision
	waits    int
	// vowed is the newest generation that this very process promised, so that all that is sent in it comes here.
	vowed generation.Generation
	// starved counts the ticks in which only servers that remember their votes were missing.
	starved int
}

// generationDisk is what the synod must not forget.
type generationDisk struct {
	state generation.State
	// contents are rounds that may become a generation's tail, by the hash of what they hold.
	contents map[[32]byte]*block
}

const (
	graceTicks    = 3
	patienceTicks = 16
	forgiveTicks  = 4000
	// activationTicks is how long a decision may wait for what it needs before this server looks for the next one.
	activationTicks = 10 * patienceTicks
)

// newGenerationDisk is the disk of a new server. Where decided, it knows that the first members are the first generation.
func newGenerationDisk(servers int, self order.ServerID, decided bool) generationDisk {
	d := generationDisk{contents: make(map[[32]byte]*block), state: generation.State{Disk: diskOf(self)}}
	if decided {
		first := &generation.Decision{Generation: 1}
		for s := range servers {
			first.Members = append(first.Members, order.ServerID(s))
			first.Disks = append(first.Disks, diskOf(order.ServerID(s)))
		}
		d.state.Decided, d.state.Instance = first, 1
	}
	return d
}

// diskOf is the identity of a server's disk.
func diskOf(server order.ServerID) (disk generation.DiskID) {
	binary.LittleEndian.PutUint64(disk[:], uint64(server)+1)
	return disk
}

// beginGenerations makes the synod of a process.
func (m *member) beginGenerations() {
	fault := generation.FaultNone
	if m.setting.promiseNotFrozen {
		fault = generation.FaultPromiseDoesNotFreeze
	}
	synod, err := generation.NewSynod(generation.Config{
		Self: m.self, State: m.disk.state, Original: true, Report: m.report(), Grace: graceTicks, Patience: patienceTicks,
		Fault: fault,
	})
	if err != nil {
		m.wrong = err.Error()
		return
	}
	m.synod = synod
	for content := range m.disk.contents {
		m.synod.Holds(content)
	}
	decided := m.disk.state.Decided
	if decided == nil {
		return
	}
	if decided.Generation == 1 && m.disk.run == 0 && m.incarnation == 1 {
		m.vowed = 1
	}
	m.adopt(*decided)
}

// report is what this server holds.
func (m *member) report() generation.Report {
	head := generation.Head{Height: uint64(m.chain.height()), Round: m.chain.height()}
	if head.Height > 0 {
		last := m.chain.blocks[head.Height-1]
		head.Generation, head.Hash = last.group.run.generation(), last.hash()
	}
	return generation.Report{Head: head, Membership: m.membership()}
}

// membership is the chain's, as of its last block.
func (m *member) membership() generation.Membership {
	return generation.Membership{Number: m.chain.number, Members: slices.Clone(m.chain.members)}
}

// awaitsDecision tells that this process may start the next block's run as soon as it knows the decision of that generation. Its ticks bring it.
func (m *member) awaitsDecision() bool {
	g := m.chain.group
	if g.first != m.chain.height()+1 || !m.mayStart(g) {
		return false
	}
	d := m.synod.Decided()
	return d == nil || d.Generation < g.run.generation()
}

// frozen tells whether this server may not work in a run any more.
func (m *member) frozen(r run) bool { return m.synod.Frozen(generation.Run(r)) }

// promisedTo tells whether this very process promised the generation that the run begins.
func (m *member) promisedTo(r run) bool { return generation.Run(r) == generation.NewRun(m.vowed, 0) }

// generationWorks tells the synod that an engine is about to start.
func (m *member) generationWorks() {
	m.decision = nil
	m.synod.Working(generation.Run(m.group.run), m.membership())
	m.pump()
}

// generationIdle tells the synod that the engine does not work any more, and what it voted for.
func (m *member) generationIdle() {
	report := m.report()
	for _, v := range m.engine.Votes() {
		report.Votes = append(report.Votes, m.vote(v))
	}
	for _, k := range m.engine.KnownVotes() {
		report.Known = append(report.Known, m.knownVote(k))
	}
	m.tellLinks()
	m.synod.Idle(report, m.chain.ended())
	m.pump()
}

// tellLinks tells the synod which servers can be reached. For forgiveTicks it takes those for
// reachable that cannot be: a proposer that needs servers which restarted waits for them.
func (m *member) tellLinks() {
	for server, heard := range m.hearing {
		recent := m.now-heard <= m.setting.stallAfter
		m.synod.Linked(order.ServerID(server), recent || m.starved < forgiveTicks)
	}
}

// generationMoved tells the synod that this server holds more.
func (m *member) generationMoved() {
	if m.works() {
		return
	}
	m.synod.Report(m.report())
	m.fetch(m.synod.Wanted())
	m.activate()
	m.pump()
}

// vote is an engine's vote with identities for places. What it is for stays here, for whoever will need it.
func (m *member) vote(v allconcur.Vote) generation.Vote {
	b := newBlock(m.group, v.Delivery)
	vote := generation.Vote{Confirmed: v.Confirmed, TailRound: generation.TailRound{
		Round: v.Round, Epoch: v.Epoch, Reliable: v.Reliable, Removed: b.removed, Content: b.hash(),
	}}
	for _, message := range b.messages {
		vote.Origins = append(vote.Origins, message.Origin)
	}
	for _, place := range v.Members {
		vote.Voters = append(vote.Voters, m.group.members[place])
	}
	m.disk.contents[vote.Content] = b
	return vote
}

// knownVote is a vote of another server with identities for places.
func (m *member) knownVote(k allconcur.KnownVote) generation.KnownVote {
	known := generation.KnownVote{Voter: m.group.members[k.Voter], Round: k.Round, Epoch: k.Epoch,
		Reliable: k.Reliable, Confirmed: k.Confirmed}
	for _, place := range k.Origins {
		known.Origins = append(known.Origins, m.group.members[place])
	}
	return known
}

// receiveSynod takes a message of the synod, or content that it wants.
func (m *member) receiveSynod(from order.ServerID, l *letter) {
	m.synod.Receive(from, l.synod)
	m.pump()
}

// receiveWant answers whoever needs the content of a round.
func (m *member) receiveWant(from order.ServerID, l *letter) {
	if b := m.content(l.content, l.height); b != nil {
		m.post(from, &letter{kind: letterContent, content: l.content, blocks: []*block{b}})
	}
}

// content finds the content of a round: among what was voted for, or in the chain.
func (m *member) content(content [32]byte, round order.Round) *block {
	if b := m.disk.contents[content]; b != nil {
		return b
	}
	if round >= 1 && round <= m.chain.height() && m.chain.blocks[round-1].hash() == content {
		return m.chain.blocks[round-1]
	}
	return nil
}

// receiveContent keeps the content of a round.
func (m *member) receiveContent(l *letter) {
	m.disk.contents[l.content] = l.blocks[0]
	m.synod.Holds(l.content)
	m.activate()
	m.pump()
}

// tickSynod passes time in the synod, unless a decision waits to be activated: then what it needs is asked for again.
func (m *member) tickSynod() {
	if !m.setting.synod {
		return
	}
	if m.decision != nil {
		if m.waits++; m.waits%askEvery == 0 {
			m.fetch(m.synod.Wanted())
			m.activate()
			m.pump()
		}
		if m.waits < activationTicks {
			return
		}
	}
	if m.synod.Waiting().Memory {
		m.starved++
	} else {
		m.starved = 0
	}
	m.tellLinks()
	m.synod.Tick()
	m.pump()
}

// pump does what the synod wants done: end the engine, save, send, fetch, adopt.
func (m *member) pump() {
	for {
		if err := m.synod.Err(); err != nil {
			m.wrong = err.Error()
			return
		}
		if m.synod.MustEnd() && m.works() {
			m.retired = "its generation ends"
			m.generationIdle()
			return // which pumped
		}
		ready := m.synod.Ready()
		if ready.MustSave {
			if before := m.disk.state; ready.State.Promised != (generation.Ballot{}) && (ready.State.Promised != before.Promised || ready.State.Instance != before.Instance) {
				m.vowed = max(m.vowed, ready.State.Instance)
			}
			m.disk.state, m.disk.synced = ready.State, len(m.disk.blocks)
		}
		for _, envelope := range ready.Messages {
			m.post(envelope.To, &letter{kind: letterSynod, synod: envelope.Message})
		}
		m.fetch(ready.Fetch)
		if ready.Decided == nil {
			return
		}
		m.adopt(*ready.Decided)
		if !m.works() {
			m.start()
		}
	}
}

// fetch asks for what the synod wants on this disk: blocks by following, contents of rounds from those who may have them.
func (m *member) fetch(wanted []generation.Fetch) {
	for _, f := range wanted {
		switch {
		case f.Base != nil && m.chain.height() >= f.Base.Round:
			m.synod.Holds(f.ID())
		case f.Base != nil:
			m.heard(f.From[0], stand{height: f.Base.Round})
			m.ask(f.From, &letter{kind: letterAsk, height: m.chain.height()})
		case m.content(f.Tail.Content, f.Tail.Round) != nil:
			m.disk.contents[f.Tail.Content] = m.content(f.Tail.Content, f.Tail.Round)
			m.synod.Holds(f.ID())
		default:
			m.ask(f.From, &letter{kind: letterWant, content: f.Tail.Content, height: f.Tail.Round})
		}
	}
}

// ask asks everybody who may have it: that is rare, and any of them may be gone.
func (m *member) ask(from []order.ServerID, l *letter) {
	for _, server := range from {
		m.post(server, l)
	}
}

// turn counts up, so that not always the same server is asked.
func (m *member) turn() int {
	m.asked++
	return m.asked
}

// adopt takes a decision: whatever this server worked in is over.
func (m *member) adopt(d generation.Decision) {
	if generation.Run(m.disk.run).Generation() >= d.Generation {
		return
	}
	m.decision, m.waits = &d, 0
	m.heardWorking = m.now // they are about to
	m.retire(fmt.Sprintf("generation %d is decided", d.Generation))
	m.activate()
}

// activate takes the rounds of a decision's tail and starts the engine of its generation, as soon as all is here.
func (m *member) activate() {
	d := m.decision
	if d == nil || m.works() {
		return
	}
	if m.chain.height() >= d.First() || generation.Run(m.disk.run).Generation() >= d.Generation || !d.Includes(m.self) {
		m.decision = nil // this server follows
		return
	}
	for m.chain.height() >= d.Base.Round && m.chain.height()+1 < d.First() {
		next := d.Tail[m.chain.height()-d.Base.Round]
		b := m.content(next.Content, next.Round)
		if b == nil {
			return
		}
		m.take(b, false)
	}
	if m.chain.height()+1 != d.First() || m.chain.group.run >= run(generation.NewRun(d.Generation, 0)) {
		return
	}
	g := &group{run: run(generation.NewRun(d.Generation, 0)), first: d.First(), shard: len(m.chain.members)}
	for _, server := range d.Members {
		if m.chain.has(server) {
			g.members = append(g.members, server)
		}
	}
	if len(g.members) < m.chain.majority() {
		g.members = nil // the tail changed the membership: too few promised, so that only the next generation goes on
	}
	m.chain.begin(g)
	m.start()
	if len(g.members) == 0 {
		m.decision = nil
	}
}

// hash is over all that a block says.
func (b *block) hash() [32]byte {
	bytes := binary.LittleEndian.AppendUint64(nil, uint64(b.group.run))
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(b.epoch))
	bytes = binary.LittleEndian.AppendUint64(bytes, uint64(b.round))
	for _, message := range b.messages {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(message.Origin))
		bytes = binary.AppendUvarint(bytes, uint64(len(message.Payload)))
		bytes = append(bytes, message.Payload...)
	}
	for _, server := range b.removed {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(server))
	}
	return sha256.Sum256(bytes)
}

// promised is the generation that a message promises, 0 if it is no promise.
func promised(m *generation.Message) generation.Generation {
	if m.Kind != generation.KindPromise {
		return 0
	}
	return m.Generation
}

// describeSynod shows a message of the synod in a trace.
func describeSynod(m *generation.Message) string {
	kind := [...]string{"?", "prepare", "promise", "accept", "accepted", "decided", "refuse"}[min(int(m.Kind), 6)]
	text := fmt.Sprintf("%s for generation %d, ballot %d by %d", kind, m.Generation, m.Ballot.Number, m.Ballot.Proposer)
	if m.Kind == generation.KindPromise {
		text += fmt.Sprintf(" (head %d of %d, run %v, restarted %v, %d votes)", m.Report.Head.Round, m.Report.Head.Generation, run(m.Report.Run), m.Report.Restarted, len(m.Report.Votes))
	}
	if d := m.Value; d != nil {
		text += fmt.Sprintf(" (base %d, tail of %d, members %v)", d.Base.Round, len(d.Tail), d.Members)
	}
	return text
}

// describeGenerations shows where the synod stands.
func (m *member) describeGenerations() string {
	if m.decision == nil {
		return ""
	}
	return fmt.Sprintf(", generation %d is decided: base %d, tail of %d, members %v", m.decision.Generation, m.decision.Base.Round, len(m.decision.Tail), m.decision.Members)
}
