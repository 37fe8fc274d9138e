package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// running is a process's engine and what belongs to its run.
type running struct {
	// engine is that of group, nil before the first; retired says why it is not driven any more.
	engine  *allconcur.Engine
	group   *shard.Group
	retired string
	// baseEpoch is the chain's epoch before the run: those of the engine count on from it.
	baseEpoch order.Epoch
	// remaining are the members of the group that were not removed, and marked what its rounds held.
	remaining []order.ServerID
	marked    marks
	// held are frames of runs to come.
	held []heldFrame
	// suspects is what the detector said, by server.
	suspects []bool
	// waits says since how many ticks the engine has reached nothing new.
	waits struct {
		ticks int
		epoch order.Epoch
		round order.Round
	}
	// lingered says that an empty message is due.
	lingered bool
	// receivers has room for those of the frames that are sent.
	out []outgoing
}

// heldFrame is a frame that came before its run.
type heldFrame struct {
	from  order.ServerID
	run   generation.Run
	frame []byte
}

// heldMax bounds the frames that wait for their run.
const heldMax = 4096

// pool is what is to be ordered.
type pool struct {
	// entries are those that no block here holds; those before next are A-broadcast in this run.
	entries [][]byte
	next    int
	// own are the entries that were submitted here.
	own map[string]bool
	// due are the marks for the next batch.
	due marks
}

// place is a member's place in its group.
func place(g *shard.Group, server order.ServerID) (order.ServerID, bool) {
	if int(server) < len(g.Members) && g.Members[server] == server {
		return server, true // as in the first group
	}
	at, found := slices.BinarySearch(g.Members, server)
	return order.ServerID(at), found
}

// start starts the engine of a run, and gives it the frames that came too early.
func (p *process) start(g *shard.Group) {
	s := p.sim
	setting := s.life.setting
	at, member := place(g, p.self)
	s.judgeStart(p, g)
	if s.over() {
		return
	}
	if !member {
		s.breach(p.self, fmt.Sprintf("it starts run %v of %v, in which it is not", run(g.Run), g.Members))
		return
	}
	engine, err := allconcur.New(allconcur.Config{
		Engine: setting.engine, Self: at, Servers: len(g.Members), Reliable: setting.reliable[len(g.Members)], Generation: uint64(g.Run),
		FirstRound: g.First, Detector: setting.detector, Shard: len(g.Shard.Members), Change: changes,
		MaxPayload: s.options.PayloadMax + overhead, Fault: setting.fault,
	})
	if err != nil {
		s.breach(p.self, fmt.Sprintf("no engine for run %v of %v in a shard of %d: %v", run(g.Run), g.Members, len(g.Shard.Members), err))
		return
	}
	s.trace.note(s.now, 110, uint64(p.self), uint64(g.Run), g.Base)
	s.trace.say(s.now, "%d starts run %v of %v after block %d, round %d", p.self, run(g.Run), g.Members, g.Base, g.First)
	p.engine, p.group, p.retired, p.lingered = engine, g, "", false
	p.baseEpoch, p.remaining, p.marked = p.chain.head().epoch, slices.Clone(g.Members), marks{}
	p.chain.round = g.First - 1
	p.pool.next, p.pool.due = 0, marks{}
	p.waits.ticks = 0
	clear(p.memory)
	p.disk.clear(p.disk.state.Decided)
	clear(p.suspects)
	p.beginStored()
	held := p.held
	p.held = nil
	for _, h := range held {
		p.receiveFrame(h.from, h.run, h.frame)
	}
	s.reviewAll(p.self)
	s.reviewBy(p.self)
	s.settleSoon(p.self)
}

// retire ends the work of the engine for good.
func (p *process) retire(why string) {
	if p.retired == "" && p.engine != nil {
		p.retired = why
		p.sim.trace.say(p.sim.now, "%d retires from run %v: %s", p.self, run(p.group.Run), why)
		p.sim.reviewBy(p.self)
	}
}

// freeze stops the engine; it is answered when all that it A-delivered is executed.
func (p *process) freeze() {
	s := p.sim
	if p.works() {
		if s.flush(p); !p.up() {
			return
		}
		p.retire("frozen")
	}
	p.then(func() {
		report := generation.Report{}
		if p.engine != nil {
			for _, v := range p.engine.Votes() {
				report.Votes = append(report.Votes, p.vote(v))
			}
			for _, k := range p.engine.KnownVotes() {
				report.Known = append(report.Known, p.knownVote(k))
			}
		}
		p.syncNow()
		p.answer(shard.Settled{Report: report})
	})
}

// vote is an engine's vote with the chain's numbers. Its content stays here, for whoever needs it.
func (p *process) vote(v allconcur.Vote) generation.Vote {
	c := p.content(v.Delivery)
	vote := generation.Vote{Confirmed: v.Confirmed, TailRound: generation.TailRound{
		Round: v.Round, Epoch: c.epoch, Reliable: v.Reliable, Removed: c.removed, Content: c.hash(),
	}}
	for _, m := range c.messages {
		vote.Origins = append(vote.Origins, m.Origin)
	}
	for _, at := range v.Members {
		vote.Voters = append(vote.Voters, p.group.Members[at])
	}
	p.memory[vote.Content] = c
	return vote
}

// knownVote is a vote of another server with the chain's numbers.
func (p *process) knownVote(k allconcur.KnownVote) generation.KnownVote {
	known := generation.KnownVote{
		Voter: p.group.Members[k.Voter], Round: k.Round, Epoch: p.baseEpoch + k.Epoch, Reliable: k.Reliable, Confirmed: k.Confirmed,
	}
	for _, at := range k.Origins {
		known.Origins = append(known.Origins, p.group.Members[at])
	}
	return known
}

// content is a round of the engine with the chain's numbers.
func (p *process) content(d order.Delivery) *content {
	c := &content{round: d.Round, epoch: p.baseEpoch + d.Epoch, messages: make([]order.Message, len(d.Messages))}
	for i, m := range d.Messages {
		c.messages[i] = order.Message{Origin: p.group.Members[m.Origin], Payload: m.Payload}
	}
	for _, at := range d.Removed {
		c.removed = append(c.removed, p.group.Members[at])
	}
	return c
}

// receiveFrame gives a frame to the engine of its run, now or when that begins.
func (p *process) receiveFrame(from order.ServerID, r generation.Run, frame []byte) {
	if p.group == nil || r > p.group.Run {
		if len(p.held) < heldMax {
			p.held = append(p.held, heldFrame{from, r, frame})
		}
		return
	}
	if !p.works() {
		return
	}
	at, known := place(p.group, from)
	if !known {
		return
	}
	if err := p.engine.Receive(at, frame); err != nil && r == p.group.Run {
		p.refused(fmt.Sprintf("it refuses a frame of server %d", from), err)
	}
}

// refused tells a halted engine from one that breaks its contract.
func (p *process) refused(what string, err error) {
	if !errors.Is(err, order.ErrHalted) {
		p.sim.breach(p.self, what+": "+err.Error())
	}
}

// suspect takes what the detector says about a predecessor.
func (p *process) suspect(server order.ServerID, suspected bool) {
	at, known := place(p.group, server)
	if !p.works() || !known || p.suspects[server] == suspected {
		return
	}
	p.suspects[server] = suspected
	tell := p.engine.Trust
	if suspected {
		tell = p.engine.Suspect
	}
	if err := tell(at); err != nil {
		p.refused(fmt.Sprintf("it refuses a word on predecessor %d", server), err)
	}
}

// submit takes what a user submits.
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

// admit proposes the entry with which a member counts with another disk, unless it is under way.
func (p *process) admit(e shard.Admit) {
	for _, entry := range p.pool.entries {
		if c, is := decodeChange(entry); is && c.kind == entryAdmit && c.server == e.Server && c.disk == e.Disk {
			return
		}
	}
	p.sim.servers[e.Server].proposed = e.Disk
	p.sim.life.nonce++
	p.propose(change{kind: entryAdmit, server: e.Server, disk: e.Disk, by: p.self, nonce: p.sim.life.nonce})
	p.sim.settleSoon(p.self)
}

// broadcast A-broadcasts what is due and reports whether anything was.
func (p *process) broadcast() bool {
	if !p.works() {
		return false
	}
	if !p.engine.CanBroadcast() {
		if p.engine.Solicited() {
			p.sim.breach(p.self, "it is solicited though it cannot A-broadcast")
		}
		return false
	}
	var entry []byte
	switch {
	case p.withheld():
		return false
	case p.pool.next < len(p.pool.entries):
		entry = p.pool.entries[p.pool.next]
		p.pool.next++
	case p.pool.due.any(), p.engine.Solicited(), p.lingered && p.engine.Undelivered():
	default:
		return false
	}
	var payload []byte
	if len(entry) > 0 || p.pool.due.any() {
		payload = encodePayload(entry, p.pool.due)
		p.pool.due = marks{}
	}
	p.lingered = false
	p.sim.trace.note(p.sim.now, 101, uint64(p.self), uint64(len(payload)))
	if err := p.engine.Broadcast(payload); err != nil {
		p.refused("it refuses an A-broadcast though CanBroadcast holds", err)
		return false
	}
	return true
}

// executingMax bounds the rounds that wait for the disk: a server with more says nothing.
const executingMax = 16

// withheld reports whether the disk holds up so much that the server says nothing more.
func (p *process) withheld() bool { return len(p.executing.queue) >= executingMax }

// undelivered reports whether an empty message would help.
func (p *process) undelivered() bool { return p.works() && p.engine.Undelivered() }

// progress is what the driver reports of the engine with each tick.
func (p *process) progress() (shard.Progressed, bool) {
	if !p.works() {
		return shard.Progressed{}, false
	}
	status := p.engine.Status()
	w := &p.waits
	if p.engine.CanBroadcast() || w.epoch != status.Epoch || w.round != status.Round {
		w.ticks, w.epoch, w.round = 0, status.Epoch, status.Round
	} else {
		w.ticks++
	}
	progress := shard.Progressed{Run: p.group.Run, Waiting: w.ticks, Outside: p.engine.OutsideMajority(), Round: status.Round}
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

// eonOver is why an engine retires whose run ended in order.
const eonOver = "its eon is over"

// reportEnd tells the member that its engine halted, or that its eon is over.
func (p *process) reportEnd() {
	status := p.engine.Status()
	switch {
	case status.Ended:
		g := p.group
		p.retire(eonOver)
		p.then(func() {
			p.answer(shard.EonEnded{
				Run: g.Run, Members: slices.Clone(p.remaining), Entrants: p.marked.entrants,
				Benched: p.marked.benched, Regroup: p.marked.regroup,
			})
		})
	case status.Halted != "":
		p.retire("halted: " + status.Halted)
		p.step(shard.EngineHalted{Run: p.group.Run, Reason: status.Halted})
	}
}
