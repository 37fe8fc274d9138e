package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// running is a process's engine and the state of its run.
type running struct {
	// gate decides, during the process's whole life, whose frames are accepted. turn drives the
	// current run.
	gate     *turn.Gate
	turn     *turn.Machine
	arrivals []turn.Arrival // the last frames taken, emptied for reuse by the gate
	watched  *watched
	// engine is the engine of group, nil before the first one. retired is the reason why it is no
	// longer driven.
	engine  orderer
	group   *shard.Group
	retired string
	// row is the engine's row in the table, and prompt says that the engine delivers promptly.
	row    engineRow
	prompt bool
	// baseEpoch is the chain's epoch before the run. The engine's epochs count on from it.
	baseEpoch order.Epoch
	// remaining are the members of the group that were not removed. marked are the marks in its
	// rounds.
	remaining []order.ServerID
	marked    marks
	// suspects is the output of the detector, by server.
	suspects []bool
	// waits counts the ticks since the engine last advanced.
	waits struct {
		ticks int
		epoch order.Epoch
		round order.Round
	}
}

// orderer is what a process asks its engine, of either kind.
type orderer interface {
	CanBroadcast() bool
	Solicited() bool
	Undelivered() bool
	Status() order.Status
}

// newGate returns the gate of a process. Its lanes never wait, because a run of the simulator is
// short.
func newGate(set *setting) *turn.Gate {
	gate := turn.NewGate(turn.GateConfig{
		Frames: math.MaxInt, Bytes: math.MaxInt, Held: math.MaxInt, Fault: set.turnFault,
	})
	senders := make([]*turn.Sender, set.slots)
	for i := range senders {
		senders[i] = turn.NewSender()
	}
	gate.SetSenders(senders)
	return gate
}

// pool is what is to be ordered.
type pool struct {
	// entries are the entries that no block here holds. Those before next are A-broadcast in this
	// run.
	entries [][]byte
	next    int
	// own are the entries that were submitted here.
	own map[string]bool
	// due are the marks for the next batch.
	due marks
}

// unsaid reports whether there is something to A-broadcast.
func (p *pool) unsaid() bool { return p.next < len(p.entries) || p.due.any() }

// place returns a member's place in its group.
func place(g *shard.Group, server order.ServerID) (order.ServerID, bool) {
	if int(server) < len(g.Members) && g.Members[server] == server {
		return server, true // as in the first group
	}
	at, found := slices.BinarySearch(g.Members, server)
	return order.ServerID(at), found
}

// start starts the engine of a run, and gives it the frames that came too early.
func (p *process) start(g *shard.Group, former []generation.Former) {
	s := p.sim
	setting := s.life.setting
	at, member := place(g, p.self)
	p.row = p.engineOf(g)
	settings := s.options.group.with(p.row)
	p.prompt = settings.promptly()
	s.judgeStart(p, g)
	if s.over() {
		return
	}
	if !member {
		s.breach(p.self, fmt.Sprintf("it starts run %v of %v, in which it is not", run(g.Run),
			g.Members))
		return
	}
	p.leavePolled()
	if p.row.makeMachine != nil {
		p.startPolled(g)
	} else {
		engine, err := p.row.make(settings, seat{
			self: at, servers: len(g.Members), shard: len(g.Shard.Members),
			reliable: setting.reliable[p.row.name][len(g.Members)], run: uint64(g.Run),
			first: g.First, payloadMax: s.options.PayloadMax + overhead, detector: setting.detector,
			changes: changes,
		})
		if err != nil {
			s.breach(p.self, fmt.Sprintf("no engine for run %v of %v in a shard of %d: %v",
				run(g.Run), g.Members, len(g.Shard.Members), err))
			return
		}
		p.engine = engine
		completer, completes := engine.(turn.Completer)
		p.watched = &watched{Broadcaster: engine, Completer: completer}
		p.turn = turn.New(turn.Config{
			Engine: p.watched, Self: at, Servers: len(g.Members), Fault: setting.turnFault,
			Records: p.records && completes,
		})
	}
	s.trace.Note(s.now, 110, uint64(p.self), uint64(g.Run), g.Base)
	s.trace.Say(s.now, "%d starts run %v of %v after block %d, round %d, with %s", p.self,
		run(g.Run), g.Members, g.Base, g.First, p.row.name)
	p.group, p.retired = g, ""
	p.baseEpoch, p.remaining, p.marked = p.chain.head().epoch, slices.Clone(g.Members), marks{}
	p.chain.round = g.First - 1
	p.pool.next, p.pool.due = 0, marks{}
	p.waits.ticks = 0
	clear(p.memory)
	p.disk.clear(p.disk.state.Decided)
	clear(p.suspects)
	p.beginStored(former)
	s.servers[p.self].lingering++
	if p.polled == nil {
		p.gate.Activate(uint64(g.Run), g.Members)
	}
	s.reviewAll(p.self)
	s.reviewBy(p.self)
	s.settleSoon(p.self)
}

// engineOf returns the engine of a run: the one that the chain names, as the machine says, or that
// of the settings.
func (p *process) engineOf(g *shard.Group) engineRow {
	name := g.Engine
	if name == "" || p.sim.life.setting.plant == PlantEngineOfSetting {
		return p.sim.life.setting.engine
	}
	return engineRows[slices.IndexFunc(engineRows,
		func(r engineRow) bool { return r.name == name })]
}

// retire ends the work of the engine for good.
func (p *process) retire(why string) {
	if p.retired == "" && p.engine != nil {
		p.retired = why
		if p.polled == nil {
			p.gate.End()
		}
		p.sim.trace.Say(p.sim.now, "%d retires from run %v: %s", p.self, run(p.group.Run), why)
		p.sim.reviewBy(p.self)
	}
}

// freeze stops the engine between two turns. The answer comes when everything that it A-delivered
// is executed.
func (p *process) freeze() {
	p.retire("frozen")
	report := generation.Report{}
	if p.polled != nil {
		report = p.reportPolled(p.polled)
		p.sim.freezes(p)
	}
	p.then(func() {
		if p.engine != nil {
			p.report(&report)
		}
		p.recorder.Drop()
		p.syncNow()
		p.answer(shard.Settled{Report: report, Record: p.lastRecord()})
	})
}

// report adds what the engine voted for, saw and holds.
func (p *process) report(report *generation.Report) {
	if voter, votes := p.engine.(order.Voter); votes {
		report.Bound = generation.BoundOf(voter.VotesMax())
		for _, v := range voter.Votes() {
			report.Votes = append(report.Votes, p.vote(v))
		}
	}
	if witness, sees := p.engine.(order.Witness); sees {
		for _, k := range witness.KnownVotes() {
			report.Known = append(report.Known, p.knownVote(k))
		}
	}
	if holder, holds := p.engine.(order.Holder); holds {
		for _, h := range holder.Held() {
			report.Vouched = append(report.Vouched, p.vouched(h))
		}
	}
}

// outside reports whether the engine knows that it can hear fewer servers than a majority.
func (p *process) outside() bool {
	judge, can := p.engine.(interface{ OutsideMajority() bool })
	return can && judge.OutsideMajority()
}

// vote converts an engine's vote to the chain's numbers. It keeps the content here for servers that
// need it.
func (p *process) vote(v order.Vote) generation.Vote {
	c := p.content(v.Delivery)
	vote := generation.Vote{Confirmed: v.Confirmed, TailRound: generation.TailRound{
		Round: v.Round, Epoch: p.baseEpoch + v.Epoch, Reliable: v.Reliable, Removed: c.removed,
		Content: c.hash(),
	}}
	for _, at := range v.Origins {
		vote.Origins = append(vote.Origins, p.memberAt(at))
	}
	for _, at := range v.Members {
		vote.Voters = append(vote.Voters, p.group.Members[at])
	}
	p.memory[vote.Content] = c
	return vote
}

// vouched converts a round that the engine holds to the chain's numbers, and keeps its content.
func (p *process) vouched(h order.Held) generation.TailRound {
	c := p.content(h.Delivery)
	r := generation.TailRound{Round: h.Round, Epoch: p.baseEpoch + h.Epoch, Reliable: h.Reliable,
		Content: c.hash()}
	for _, m := range c.messages {
		r.Origins = append(r.Origins, m.Origin)
	}
	p.memory[r.Content] = c
	return r
}

// knownVote converts a known vote of another server to the chain's numbers.
func (p *process) knownVote(k order.KnownVote) generation.KnownVote {
	known := generation.KnownVote{
		Voter: p.group.Members[k.Voter], Round: k.Round, Epoch: p.baseEpoch + k.Epoch,
		Reliable: k.Reliable, Confirmed: k.Confirmed,
	}
	for _, at := range k.Origins {
		known.Origins = append(known.Origins, p.group.Members[at])
	}
	return known
}

// memberAt returns the member at a place of the group. Runs that are polled name members
// themselves.
func (p *process) memberAt(place order.ServerID) order.ServerID {
	if p.polled != nil {
		return place
	}
	return p.group.Members[place]
}

// content converts a round of the engine to the chain's numbers.
func (p *process) content(d order.Delivery) *content {
	c := &content{round: d.Round, epoch: p.baseEpoch + d.Epoch,
		messages: make([]order.Message, len(d.Messages))}
	for i, m := range d.Messages {
		c.messages[i] = order.Message{Origin: p.memberAt(m.Origin), Payload: m.Payload}
	}
	for _, at := range d.Removed {
		c.removed = append(c.removed, p.memberAt(at))
	}
	return c
}

// receiveFrame passes a frame to the gate.
func (p *process) receiveFrame(e *event) {
	sender := p.gate.Sender(e.from)
	p.gate.Admit(sender, turn.Incarnation(e.incarnation), uint64(e.run), e.frame)
}

// suspect takes the detector's output about a member.
func (p *process) suspect(server order.ServerID, suspected bool) {
	if !p.works() || p.suspects[server] == suspected {
		return
	}
	p.suspects[server] = suspected
	if p.polled != nil {
		p.polled.opinions = true
		p.lookSoon()
	} else if suspected {
		p.gate.Suspect(uint64(p.group.Run), server, nil)
	} else {
		p.gate.Trust(uint64(p.group.Run), server)
	}
}

// breaks handles a broken connection. Frames that were sent in a run are lost with it.
func (p *process) breaks(server order.ServerID, r generation.Run) {
	if at, known := place(p.group, server); known && p.works() && p.group.Run == r &&
		p.polled == nil {
		p.turn.Break(at, errBroken)
		p.sim.life.broken = append(p.sim.life.broken, r)
	}
}

var errBroken = errors.New("the connection broke")

// submit takes a user's submission.
func (p *process) submit(entry []byte) {
	if p.pool.own == nil {
		p.pool.own = make(map[string]bool)
	}
	p.pool.own[string(entry)] = true
	p.pool.entries = append(p.pool.entries, entry)
}

// propose takes a change that is to be ordered.
func (p *process) propose(c change) { p.pool.entries = append(p.pool.entries, c.encode()) }

// mark puts a mark into the next batch.
func (p *process) mark(e shard.Mark) {
	due := &p.pool.due
	if e.Regroup {
		due.regroup = true
	} else if e.Bench {
		due.benched = []order.ServerID{e.Entrant.Server}
	} else if !slices.Contains(due.entrants, e.Entrant) && len(due.entrants) < marksMax {
		due.entrants = append(due.entrants, e.Entrant)
	}
	p.sim.settleSoon(p.self)
}

// admit proposes the entry by which a member counts with another disk, unless it is under way.
func (p *process) admit(e shard.Admit) {
	for _, entry := range p.pool.entries {
		if c, is := decodeChange(entry); is && c.kind == entryAdmit && c.server == e.Server &&
			c.disk == e.Disk {
			return
		}
	}
	p.sim.servers[e.Server].proposed = e.Disk
	p.sim.life.nonce++
	p.propose(change{kind: entryAdmit, server: e.Server, disk: e.Disk, by: p.self,
		nonce: p.sim.life.nonce})
	p.sim.settleSoon(p.self)
}

// broadcast A-broadcasts a message if one is due.
func (p *process) broadcast() {
	if !p.turn.MayBroadcast() {
		if p.engine.Solicited() && !p.engine.CanBroadcast() {
			p.sim.breach(p.self, "it is solicited though it cannot A-broadcast")
		}
		return
	}
	if p.withheld() {
		return
	}
	payload := p.batch()
	if !p.turn.Broadcast(payload) {
		if payload != nil && p.engine.Status().Halted == "" {
			p.sim.breach(p.self, "it refuses an A-broadcast though CanBroadcast holds: "+
				p.turn.Halted())
		}
		return
	}
	p.broadcasts(payload)
}

// batch returns the next message to A-broadcast, nil for none.
func (p *process) batch() []byte {
	var entry []byte
	if p.pool.next < len(p.pool.entries) {
		entry = p.pool.entries[p.pool.next]
	}
	if len(entry) == 0 && !p.pool.due.any() {
		return nil
	}
	var said stamp
	if len(entry) > 0 {
		said = p.stamp()
	}
	return encodePayload(said, entry, p.pool.due)
}

// broadcasts notes that the last batch was A-broadcast.
func (p *process) broadcasts(payload []byte) {
	if p.pool.next < len(p.pool.entries) {
		p.pool.next++
	}
	if payload != nil {
		p.pool.due = marks{}
	}
	p.sim.trace.Note(p.sim.now, 101, uint64(p.self), uint64(len(payload)))
	clear(payload) // the caller may: the engine has copied it
}

// executingMax is the number of rounds waiting for the disk at which a server takes on no more.
const executingMax = 16

// withheld reports whether so much work waits for the disk that the server does not A-broadcast. If
// its engine works on memory, the server takes no rounds from it then.
func (p *process) withheld() bool { return len(p.executing.queue) >= executingMax }

// progress returns the driver's report about the engine for a tick.
func (p *process) progress() (shard.Progressed, bool) {
	if !p.works() {
		return shard.Progressed{}, false
	}
	status := p.engine.Status()
	w := &p.waits
	rests := p.engine.CanBroadcast()
	if p.polled != nil { // an election is no progress
		rests, w.epoch = !p.engine.Undelivered() && !p.outside(), status.Epoch
	}
	if rests || w.epoch != status.Epoch || w.round != status.Round {
		w.ticks, w.epoch, w.round = 0, status.Epoch, status.Round
	} else {
		w.ticks++
	}
	progress := shard.Progressed{Run: p.group.Run, Waiting: w.ticks,
		Outside: p.outside(), Round: status.Round}
	if relay, is := p.engine.(order.Relay); is {
		progress.Relayed, progress.Stuck = true, relay.Stuck()
	}
	for _, at := range status.Awaited {
		progress.Awaited = append(progress.Awaited, p.group.Members[at])
	}
	for _, server := range p.group.Members {
		if !slices.Contains(p.remaining, server) {
			progress.Removed = append(progress.Removed, server)
		}
	}
	return progress, true
}

// eonOver is why an engine retires after a regular end of its run.
const eonOver = "its eon is over"

// reportEnd tells the member that its engine halted, or that its eon is over.
func (p *process) reportEnd() {
	g := p.group
	places, ended := p.turn.Ended()
	if !ended {
		reason := p.turn.Halted()
		if p.row.neverHalts {
			p.sim.breach(p.self, "its engine halts: "+reason)
		}
		p.retire("halted: " + reason)
		p.step(shard.EngineHalted{Run: g.Run, Reason: reason})
		return
	}
	members := make([]order.ServerID, len(places))
	for i, at := range places {
		members[i] = g.Members[at]
	}
	p.endEon(members)
}

// endEon ends the run in order, with the members that are left.
func (p *process) endEon(members []order.ServerID) {
	g := p.group
	p.retire(eonOver)
	p.then(func() {
		p.answer(shard.EonEnded{
			Run: g.Run, Members: members, Entrants: p.marked.entrants,
			Benched: p.marked.benched, Regroup: p.marked.regroup,
		})
	})
}
