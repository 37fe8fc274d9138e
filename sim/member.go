package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// member is one process of a server whose shard lives on past the run of an engine: what the supervisor of a node is, as a pure state machine. It has
//
//	an engine     of the run in which it works; when an eon ends, that of the next one (start)
//	a chain       of the rounds that its engines A-delivered, that others sent, or that a decision's tail holds (take)
//	a synod       that decides the next generation where the group cannot go on (member_generation.go)
//	a follower    that fetches blocks and asks for its entrance while it does not work (member_follow.go)
//
// It takes letters, suspicions, payloads and ticks, and says what to send and which blocks it has taken. Its disk outlives it.
//
// What always holds: a process starts the engine of a run at most once, and only with everything that was sent to it since the run began; an engine that is
// retired is not asked again; a block once in a chain stays there.
type member struct {
	setting *setting
	self    order.ServerID
	// incarnation tells the processes of a server apart, from 1.
	incarnation uint64
	disk        *disk
	chain       *chain
	now         Instant

	// engine is that of group, nil before the first; retired says why it is not driven any more.
	engine  *allconcur.Engine
	group   *group
	retired string
	// starts counts the engines that this process started: if any, whatever was sent to it since is here.
	starts uint64
	// gate has what came for the next turn of machine, which drives the engine, and for runs to
	// come.
	gate    *turn.Gate
	machine *turn.Machine
	// arrivals are those of the last turn, for the gate to fill again.
	arrivals []turn.Arrival
	// suspects is what the detector said, by identity.
	suspects []bool
	// left tells that the membership went on without this server.
	left bool

	// pool is what users submitted and is to be A-broadcast; marks are changes of the group, which go first; doubtful is what was A-broadcast in rounds that have no
	// block here yet.
	pool     [][]byte
	marks    []change
	doubtful []sentPayload
	// lingers tells that the machine asked for a linger.
	lingers bool

	standstill standstill
	follower
	generations

	// started tells that an engine was started since the driver looked last.
	started bool
	// wrong is what the engine did against its contract.
	wrong     string
	out       []outgoing
	delivered []taken
	// receivers has room for the receivers of the frames in out.
	receivers []order.ServerID
}

// setting is what all members of a run of the simulator have in common.
type setting struct {
	engine   string
	detector allconcur.Detector
	fault    allconcur.Fault
	// turnFault is planted in the machines, and in the gates.
	turnFault turn.Fault
	// slots bounds the identities.
	slots int
	// stallAfter is how long an engine may stand still before its server lets the generation be changed.
	stallAfter Instant
	// tick is the time between two ticks.
	tick Instant
	// reliable are the reliable digraphs by their order.
	reliable []*digraph.Digraph
	// synod tells whether generations change; the paper's protocol has none.
	synod bool
	// promiseNotFrozen plants a bug: who promised goes on.
	promiseNotFrozen bool
}

// disk is what outlives a process.
type disk struct {
	blocks []*block
	// synced is how many of the blocks a crash cannot lose.
	synced int
	// run is the last run that an engine was started for.
	run run
	generationDisk
}

// sentPayload is a payload that was A-broadcast in a round.
type sentPayload struct {
	round   order.Round
	payload []byte
}

// taken is a block that a member took, whether its own engine A-delivered it, and how many letters
// went out before.
type taken struct {
	block   *block
	own     bool
	letters int
}

// newMember makes the process of a server from its disk.
func newMember(setting *setting, self order.ServerID, incarnation uint64, d *disk, genesis *chain, now Instant) *member {
	m := &member{setting: setting, self: self, incarnation: incarnation, disk: d, chain: genesis, now: now, suspects: make([]bool, setting.slots), follower: follower{hearing: make([]Instant, setting.slots)}}
	// A lane that waits for room loses nothing, and a link here has room for all.
	m.gate = turn.NewGate(turn.GateConfig{
		Frames: math.MaxInt, Bytes: math.MaxInt, Held: math.MaxInt, Fault: setting.turnFault,
	})
	senders := make([]*turn.Sender, setting.slots)
	for i := range senders {
		senders[i] = turn.NewSender()
	}
	m.gate.SetSenders(senders)
	for _, b := range d.blocks {
		m.chain.apply(b)
	}
	m.beginGenerations()
	return m
}

// works tells whether the process orders.
func (m *member) works() bool { return m.engine != nil && m.retired == "" }

// working is the run in which the process orders, 0 if it does not.
func (m *member) working() run {
	if !m.works() {
		return 0
	}
	return m.group.run
}

// passed tells whether the process works in a later run.
func (m *member) passed(g *group) bool { return m.works() && m.group.run > g.run }

// over tells whether the process has nothing more to do with a run: its engine was retired, or it has none and will get none.
func (m *member) over(g *group) bool {
	switch {
	case m.left:
		return true
	case m.works():
		return m.group.run > g.run
	case m.disk.run >= g.run:
		return true
	}
	return !m.mayStart(g)
}

// mayStart tells whether everything that was sent to this server in a run is or will be here, and nothing forbids it to take part.
func (m *member) mayStart(g *group) bool {
	if _, in := g.place(m.self); !in || g.run <= m.disk.run || m.left || m.frozen(g.run) {
		return false
	}
	return m.starts > 0 || slices.Contains(g.entrants, m.entrance()) || m.promisedTo(g.run)
}

// start starts the engine of the next block's run, if this server is in its group.
func (m *member) start() {
	g := m.chain.group
	if m.works() && m.group.run == g.run || g.first != m.chain.height()+1 || !m.mayStart(g) || m.awaitsDecision() {
		return
	}
	place, _ := g.place(m.self)
	engine, err := allconcur.New(allconcur.Config{
		Engine: m.setting.engine, Self: place, Servers: len(g.members), Reliable: m.setting.reliable[len(g.members)], Generation: uint64(g.run),
		FirstRound: g.first, Detector: m.setting.detector, Shard: g.shard, Change: changes, MaxPayload: payloadMaxDefault + changeMax, Fault: m.setting.fault,
	})
	if err != nil {
		m.wrong = fmt.Sprintf("no engine for run %v of %v in a shard of %d: %v", g.run, g.members, g.shard, err)
		return
	}
	m.disk.run = g.run
	m.machine = turn.New(turn.Config{
		Engine: engine, Self: place, Servers: len(g.members), Fault: m.setting.turnFault,
	})
	m.gate.Activate(uint64(g.run), g.members)
	m.engine, m.group, m.retired, m.lingers, m.started = engine, g, "", false, true
	m.starts++
	m.standstill = standstill{since: m.now}
	m.again(func(sent sentPayload) bool { return sent.round >= g.first })
	m.follower.ticks = 0
	clear(m.suspects)
	m.generationWorks()
}

// retire ends the work of the engine for good.
func (m *member) retire(why string) {
	if m.works() {
		m.retired = why
		m.gate.End()
		m.generationIdle()
	}
}

// receive takes a letter, or where that is nil a frame of a run.
func (m *member) receive(from order.ServerID, l *letter, r run, frame []byte) {
	if m.left {
		return
	}
	m.hearing[from] = m.now
	if l == nil {
		m.receiveFrame(from, r, frame)
		return
	}
	switch l.kind {
	case letterSynod:
		m.receiveSynod(from, l)
	case letterStand:
		m.heard(from, l.stand)
	case letterAsk:
		m.answer(from, l.height)
	case letterBlocks:
		m.receiveBlocks(l.blocks)
	case letterEnter:
		m.receiveEnter(l.enter)
	case letterWant:
		m.receiveWant(from, l)
	case letterContent:
		m.receiveContent(l)
	}
}

// receiveFrame keeps a frame for the next turn of its run, now or when that begins.
func (m *member) receiveFrame(from order.ServerID, r run, frame []byte) {
	const incarnation = 1 // the links tell the processes of a sender apart
	m.gate.Admit(m.gate.Sender(from), incarnation, uint64(r), frame)
}

// suspect takes what the detector says about a predecessor.
func (m *member) suspect(server order.ServerID, suspected bool) {
	_, known := m.group.place(server)
	if !m.works() || !known || m.suspects[server] == suspected {
		return
	}
	m.suspects[server] = suspected
	if suspected {
		m.gate.Suspect(uint64(m.group.run), server, nil)
	} else {
		m.gate.Trust(uint64(m.group.run), server)
	}
}

// submit takes what a user submits, or what could not be A-broadcast before.
func (m *member) submit(payload []byte) { m.pool = append(m.pool, payload) }

// propose takes a change of the group that is to be ordered.
func (m *member) propose(c change) {
	if m.works() && !slices.Contains(m.marks, c) && !slices.Contains(m.chain.entrants, c) {
		m.marks = append(m.marks, c)
	}
}

// act takes a turn with all that came, and reports whether another one may find more to do.
func (m *member) act() bool {
	if !m.works() {
		return false
	}
	machine, g, height := m.machine, m.group, m.chain.height()
	frames, opinions := m.gate.Take(m.arrivals[:0])
	machine.Step(frames, opinions)
	clear(frames)
	m.arrivals = frames
	m.broadcast()
	for do := machine.Next(); do.Kind != turn.Done; do = machine.Next() {
		m.carryOut(g, do)
	}
	_, ended := machine.Ended()
	switch {
	case m.chain.group.run != g.run:
		if !ended {
			m.wrong = fmt.Sprintf("it goes on after round %d, the last of its eon",
				m.chain.height())
		}
		m.retired = "its eon is over"
		if m.start(); !m.works() {
			m.generationIdle()
		}
	case m.chain.height() > height && !slices.Contains(m.chain.remaining, m.self):
		m.retire("it was removed")
	case machine.Halted() != "":
		m.retire("halted: " + machine.Halted())
	}
	return machine.Again() || m.started
}

// broadcast A-broadcasts what is due.
func (m *member) broadcast() {
	if !m.machine.MayBroadcast() {
		if m.engine.Solicited() {
			m.wrong = "it is solicited though it cannot A-broadcast"
		}
		return
	}
	var payload []byte
	switch {
	case len(m.marks) > 0:
		payload = m.marks[0].encode()
		m.marks = m.marks[1:]
	case len(m.pool) > 0:
		payload = m.pool[0]
		m.pool = m.pool[1:]
		m.doubtful = append(m.doubtful, sentPayload{m.engine.Status().Round, payload})
	}
	if !m.machine.Broadcast(payload) && payload != nil {
		m.wrong = "it refuses an A-broadcast though CanBroadcast holds: " + m.machine.Halted()
	}
}

// carryOut does one thing that the machine of a group's run wants done. When the eon ends with a
// block, the next one begins after the turn.
func (m *member) carryOut(g *group, do *turn.Action) {
	switch do.Kind {
	case turn.Send:
		for _, send := range do.Sends {
			start := len(m.receivers)
			for _, place := range send.To {
				m.receivers = append(m.receivers, g.members[place])
			}
			to := m.receivers[start:len(m.receivers):len(m.receivers)]
			m.out = append(m.out, outgoing{to: to, run: g.run, frame: send.Frame})
		}
	case turn.Deliver:
		for _, d := range do.Deliveries {
			m.take(newBlock(g, d), true)
		}
	case turn.Linger:
		m.lingers = true
	case turn.Silenced:
		m.wrong = fmt.Sprintf("it refuses a frame of server %d: %v", g.members[do.Server], do.Cause)
	case turn.Suspected, turn.Trusted:
		if do.Refused != nil && !errors.Is(do.Refused, order.ErrHalted) {
			m.wrong = fmt.Sprintf("it refuses a word on predecessor %d: %v",
				g.members[do.Server], do.Refused)
		}
	}
}

// take takes the next block. A payload whose round it is has either come through with it or is to be A-broadcast anew, as no other block can hold it.
func (m *member) take(b *block, own bool) {
	m.chain.apply(b)
	m.disk.blocks = m.chain.blocks
	m.delivered = append(m.delivered, taken{b, own, len(m.out)})
	m.doubtful = slices.DeleteFunc(m.doubtful, func(sent sentPayload) bool {
		return sent.round == b.round && string(b.message(m.self)) == string(sent.payload)
	})
	m.again(func(sent sentPayload) bool { return sent.round <= b.round })
	if m.chain.was(m.self) && !m.chain.has(m.self) && m.chain.last == 0 {
		m.left = true
	}
}

// again puts payloads that no block will hold back into the pool: their round has another content, or is another run's.
func (m *member) again(lost func(sentPayload) bool) {
	var back [][]byte
	m.doubtful = slices.DeleteFunc(m.doubtful, func(sent sentPayload) bool {
		if lost(sent) {
			back = append(back, sent.payload)
			return true
		}
		return false
	})
	if back != nil {
		m.pool = append(back, m.pool...)
	}
}

// post sends a letter to one server, or to all members where it is none.
func (m *member) post(to order.ServerID, l *letter) {
	if to != m.self {
		start := len(m.receivers)
		m.receivers = append(m.receivers, to)
		m.out = append(m.out, outgoing{to: m.receivers[start : start+1 : start+1], letter: l})
	}
}

// hand returns what is to be sent and which blocks were taken since the last call. Both are gone with the next input.
func (m *member) hand() ([]outgoing, []taken) {
	out, delivered := m.out, m.delivered
	m.out, m.delivered, m.receivers = m.out[:0], m.delivered[:0], m.receivers[:0]
	return out, delivered
}
