package sim

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// process is one process of a server: the machine that production runs (shard.Member), and a driver
// around it that does what a node does.
//
//	process.go         the loop: inputs in, effects out
//	process_engine.go  the engine of the current run
//	process_chain.go   changes of the chain: rounds, fetched blocks, replays
//	process_fetch.go   questions to peers, and their answers
//	process_clock.go   what it knows about the time
//	process_disk.go    writes to the disk, and which heights are durable
//	process_record.go  records of complete rounds
//	process_links.go   which servers the fabric reaches
//	process_memory.go  the one-sided memory, and engines that work on it
type process struct {
	sim    *simulation
	self   order.ServerID
	number int // of this server's processes, from 1
	disk   *disk
	chain  *chain
	// member is the machine, nil if engines run alone.
	member *shard.Member
	// dead reports that the process crashed. ended is why it ended by itself.
	dead  bool
	ended error

	// effects are yet to be executed, answers are the answers to earlier effects, and inputs came
	// from outside. busy reports that the disk works on an effect.
	effects  []shard.Effect
	answers  []shard.Input
	inputs   []shard.Input
	stepping bool
	busy     bool
	// settling reports that the driver acts on the engine.
	settling bool
	// setsAside reports that the blocks above keeps are being set aside, which takes time.
	setsAside bool
	keeps     uint64
	// before is the chain as it was before blocks were set aside since the last input. The member's
	// next announcement may still be about it.
	before []*block
	// perhaps reports that the member was told that the disk perhaps had more, and took part in no
	// run since.
	perhaps bool
	// runs are the runs in which the process took part.
	runs []generation.Run

	running
	pool
	executing
	asking
	telling
	remembering
	syncing
	links
	claims
}

// setting is what all processes of a run of the simulator have in common.
type setting struct {
	engine   engineRow
	detector allconcur.Detector
	prompt   bool
	// turnFault is a planted bug in the driver of the engines.
	turnFault turn.Fault
	plant     Plant
	// slots is the maximum number of servers.
	slots int
	// reliable are the reliable digraphs by engine and order.
	reliable map[string][]*digraph.Digraph
	// alone reports that an engine runs without the life around it.
	alone  bool
	timing shard.Timing
}

// tick is the time between two ticks of a member, as in production.
const tick = 100 * millisecond

// newProcess starts a process of a server from its disk.
func newProcess(s *simulation, self order.ServerID, number int, d *disk) (*process, error) {
	d.open()
	p := &process{sim: s, self: self, number: number, disk: d,
		chain: newChain(s.life.blocks, d.blocks)}
	p.chain.stored, p.chain.durable = d.synced, d.durable
	p.perhaps = d.perhaps
	p.gate = newGate(s.life.setting)
	p.suspects = make([]bool, s.life.setting.slots)
	p.links = newLinks(s.life.setting.slots)
	p.memory = make(map[[32]byte]*content)
	p.telling, p.chain.fault = p.newTelling(), s.life.setting.plant.clock()
	p.records = s.drawRecords()
	if err := p.inMemory(); err != nil {
		return nil, err
	}
	if s.life.setting.alone {
		return p, nil
	}
	var err error
	p.member, err = shard.New(shard.Config{
		Self: self, Chain: p.chain, Timing: s.life.setting.timing,
		Ticket: s.life.tickets.Uint64() | 1, Fault: s.life.setting.plant.member(),
		SynodFault: s.life.setting.plant.synod(), Prompt: s.life.setting.prompt,
		Disk: shard.Disk{
			ID: d.id, Original: d.original, New: d.why, Perhaps: d.perhaps, State: d.state,
			Held: d.held, Record: p.lastRecord(),
			Gone: d.removed != nil && d.removed.height < uint64(len(d.blocks)) &&
				d.blocks[d.removed.height] == d.removed,
		},
	})
	return p, err
}

// works reports whether the process has an engine that is driven.
func (p *process) works() bool { return p.engine != nil && p.retired == "" && p.up() }

// up reports whether the process runs.
func (p *process) up() bool { return !p.dead && p.ended == nil }

// step hands the member an input, and executes its effects.
func (p *process) step(input shard.Input) {
	if p.member == nil {
		return
	}
	p.inputs = append(p.inputs, input)
	p.pump()
}

// answer hands the member the answer to an effect.
func (p *process) answer(input shard.Input) {
	p.answers = append(p.answers, input)
	p.pump()
}

// pump is the loop of package shard's comment.
func (p *process) pump() {
	if p.stepping {
		return
	}
	p.stepping = true
	defer func() { p.stepping = false }()
	for p.up() && !p.busy && !p.sim.over() {
		switch {
		case len(p.effects) > 0:
			effect := p.effects[0]
			p.effects = p.effects[1:]
			if p.sim.diesBefore(p, effect) {
				return
			}
			p.carryOut(effect)
		case p.ready():
		case len(p.answers) > 0:
			p.take(&p.answers)
		case len(p.inputs) > 0:
			p.take(&p.inputs)
		default:
			return
		}
	}
}

// ready takes the member's next effects, and reports whether there are any.
func (p *process) ready() bool {
	p.effects = p.member.Ready()
	return len(p.effects) > 0
}

func (p *process) take(from *[]shard.Input) {
	input := (*from)[0]
	*from = (*from)[1:]
	p.before = nil
	p.member.Step(input)
}

// carryOut executes an effect of the member.
func (p *process) carryOut(effect shard.Effect) {
	s := p.sim
	switch e := effect.(type) {
	case shard.Save:
		p.save(e.State)
	case shard.SendSynod:
		s.judgeSynod(p, &e.Message)
		s.post(p.self, e.To, &peerMessage{kind: letterSynod, synod: e.Message})
	case shard.Announce:
		p.announce(e)
	case shard.SendWish:
		s.post(p.self, e.To, &peerMessage{kind: letterWish, wish: e.Wish})
	case shard.Start:
		p.start(&e.Group, e.Former)
	case shard.Freeze:
		p.freeze()
	case shard.Fetch:
		p.fetch(e)
	case shard.FetchRound:
		p.fetchRound(e)
	case shard.SetAside:
		p.setsAside, p.keeps = true, e.Keep
		s.queue.push(event{at: s.now + s.life.asideFor(s.life.asides), kind: asiding,
			server: p.self, process: p.number, keep: e.Keep})
	case shard.Replay:
		p.replay(e.Rounds)
	case shard.Mark:
		p.mark(e)
	case shard.Admit:
		p.admit(e)
	case shard.Suspect:
		if p.works() && p.group.Run == e.Run {
			s.lifeSuspects(p, e.Server)
		}
	case shard.Stored:
		p.heardStored(e.Server, e.Run, e.Height)
	case shard.KnowDurable:
		p.knowDurable(e.Height)
	case shard.SettleDoubt:
		p.perhaps = false
		p.disk.settleDoubt()
	case shard.RemovedForGood:
		p.disk.removed = p.chain.blocks[e.Height]
	case shard.Changed:
		s.judgeView(p)
	case shard.Drop:
		s.breach(p.self, fmt.Sprintf("the member drops what server %d says: %s", e.Server,
			e.Reason))
	case shard.End:
		p.end(e.Err)
	default:
		s.breach(p.self, fmt.Sprintf("the member wants %T", effect))
	}
}

// announce sends the member's announcement to all linked servers.
func (p *process) announce(e shard.Announce) {
	p.sim.judgeAnnouncement(p, &e.Announcement)
	if e.Announcement.Follows != 0 {
		p.claim(e.Announcement.Heights.Stored)
	}
	e.Announcement.Clock = uint64(p.sim.timeOfDay(p.self))
	l := &peerMessage{kind: letterAnnounce, announcement: e.Announcement, sent: p.sim.now}
	for to, up := range p.linked {
		if up {
			p.sim.post(p.self, order.ServerID(to), l)
		}
	}
}

// end ends the member's part.
func (p *process) end(err error) {
	p.ended = err
	if err == nil {
		p.ended = errors.New("no reason")
	}
	p.sim.endMemory(p.self)
	p.sim.judgeEnd(p, err)
}

// timePasses handles a tick: the driver's regular reports, and the member's tick.
func (p *process) timePasses() {
	p.checkLinks()
	p.execute()
	p.reportDisk()
	p.askAgain()
	if p.works() && p.polled == nil {
		p.turn.Look() // an engine may halt without an error
	}
	if progress, works := p.progress(); works {
		p.step(progress)
	}
	p.step(shard.Tick{})
	p.sim.judgeClaims(p)
}

// receive handles a letter.
func (p *process) receive(from order.ServerID, l *peerMessage) {
	switch l.kind {
	case letterSynod:
		p.step(shard.SynodReceived{From: from, Message: l.synod})
	case letterAnnounce:
		p.heardAt[from] = p.sim.now
		p.heardClock(from, l)
		p.step(shard.AnnouncementReceived{From: from, Announcement: l.announcement})
		p.heardStored(from, l.announcement.Group.Run, l.announcement.Heights.Stored)
	case letterWish:
		p.step(shard.WishReceived{From: from, Wish: l.wish})
	case letterStored:
		p.heardRecorded(from, l.run, l.recorded)
		p.heardStored(from, l.run, l.height)
	case letterAsk:
		p.answerAsk(from, l)
	case letterBlocks:
		p.receiveBlocks(from, l)
	case letterWant:
		p.answerWant(from, l)
	case letterContent:
		p.receiveContent(from, l)
	}
}

// view returns what people see of the process.
func (p *process) view() shard.View {
	if p.member == nil {
		return shard.View{Mode: shard.Ordering, Group: p.group}
	}
	return p.sim.life.setting.plant.lie(p, p.member.View())
}

// describe describes the state of a process.
func (p *process) describe() string {
	v := p.view()
	text := fmt.Sprintf("process %d, %v (%s), decided %d, heights %+v, learner %v", p.number,
		v.Mode, v.Why, v.Decided, p.chain.Heights(), v.Learner)
	if p.ended != nil {
		text += fmt.Sprintf(", ended: %v", p.ended)
	}
	if p.engine != nil {
		text += fmt.Sprintf(", run %v of %v: %s", run(p.group.Run), p.group.Members,
			describeStatus(p.engine.Status(), len(p.pool.entries)))
	}
	if v.Mode != shard.Ordering && p.member != nil {
		text += fmt.Sprintf(", waiting %+v", p.member.Waiting())
	}
	if p.retired != "" {
		text += ", retired: " + p.retired
	}
	return text
}
