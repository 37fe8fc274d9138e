package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// life is the additional state of a run in which the shard lives on past the run of an engine:
// processes in place of bare engines, disks, more kinds of fault, and a membership that changes.
type life struct {
	setting      *setting
	disturbances []disturbance
	// quickest and slowest bound how long a detector takes to notice a change in either direction.
	quickest, slowest Instant
	detector          *rand.Rand
	// slander counts the false suspicions in effect, by suspect and observer.
	slander map[[2]order.ServerID]int
	// linkTicks is for how many ticks a link is down before the fabric reports it.
	linkTicks int
	// disks draws how long disks take, what they lose, and their identities. tickets draws the
	// random numbers of processes.
	disks, tickets *rand.Rand
	// olds draws which old disks come back, and which servers meet. recorders draws which processes
	// record complete rounds, and which of their announcements are lost. asides draws how long it
	// takes to set blocks aside.
	olds, recorders, asides    *rand.Rand
	saveFor, syncFor, asideFor func(*rand.Rand) Instant
	blocks                     blocks
	genesis                    *block
	nonce                      uint64
	// asked are the entries that users submitted. asks lists them.
	asked map[string]*ask
	asks  []*ask
	// wishes are the operator's changes.
	wishes []*wish
	// pending counts the planned events that have not happened yet.
	pending int
	// restful counts the consecutive checks that found rest.
	restful int
	// insertedAt is when an old disk was last inserted, 0 for never.
	insertedAt Instant
	// restarts counts the processes that came back.
	restarts int
	// broken are the runs in which a connection broke. Its two ends are suspected for the rest of
	// the run.
	broken []generation.Run
	// pace stretches the workload, which begins at delay.
	pace, delay Instant
	// extra counts the submissions that disturbances added.
	extra int
	// hopeless is the reason why not even rest is required of the run.
	hopeless string
	// memory is nil if no engine of the life works on it.
	memory *memory
	// dawn is the true time of day at the beginning.
	dawn clock.Milliseconds
	judged
	timed
}

// livingServer is the additional state of a server if the shard lives on: a disk, and processes
// that come and go.
type livingServer struct {
	process *process
	disk    *disk
	// number counts the processes, crashes those that crashed.
	number, crashes int
	// proposed is the disk of the server that was proposed last.
	proposed generation.DiskID
	// away reports that the server does not come back, and leaves that the operator asked for its
	// removal.
	away, leaves bool
	// pauses counts the pauses in effect. backlog holds the events that came meanwhile.
	pauses  int
	backlog []event
	// shelf are disks that were taken out and may come back. copied is an older copy of the home.
	shelf  []*disk
	copied *disk
	// usual is the disk that was in the server before an old one took its place for a while, or
	// nil.
	usual *disk
	// acked is the last block that the server claimed its disk holds, and ackedRecord the last
	// record.
	acked       *block
	ackedRecord *diskRecord
	// wall is the server's clock.
	wall wallClock
}

// ask is one entry that a user submitted.
type ask struct {
	server order.ServerID
	number int
	entry  string
}

// wish is a change of the membership that the operator wants. The operator asks for it until it is
// ordered.
type wish struct {
	change change
	// since is the height of the newest chain when the operator asked first.
	since uint64
	tries int
	// done reports that there is no more to ask for.
	done bool
}

const (
	// wishEvery is how long the operator waits before asking again, and wishTries how often the
	// operator asks.
	wishEvery = 1500 * millisecond
	wishTries = 60
	// restEvery is the time between two checks for rest.
	restEvery = 250 * millisecond
	// restWithin bounds the time from the last fault to rest.
	restWithin = 180 * second
)

// drawRecords draws whether a process records complete rounds: an operator may switch that on or
// off at any start.
func (s *simulation) drawRecords() bool {
	return s.options.group.records() && s.life.recorders.IntN(4) > 0
}

// newLife begins the life of the shard: all servers are members of a chain without blocks.
func (s *simulation) newLife() {
	o := &s.options
	driver := stream(o.Seed, driverStream+1)
	l := &life{
		detector: stream(o.Seed, detectorStream+1), disks: stream(o.Seed, diskStream),
		tickets: stream(o.Seed, driverStream+2),
		olds:    stream(o.Seed, driverStream+3), recorders: stream(o.Seed, driverStream+4),
		asides:  stream(o.Seed, driverStream+5),
		slander: make(map[[2]order.ServerID]int), asked: make(map[string]*ask),
		blocks: make(blocks), genesis: newGenesis(o.Servers, o.spacing()),
		judged: newJudged(),
	}
	s.life, s.network.extraLast = l, true
	s.servers = make([]server, o.slots())
	l.setting = &setting{
		engine: o.engine, detector: o.Detector, prompt: o.group.promptly(),
		turnFault: o.group.turnFault(), plant: o.group.Plant, slots: o.slots(),
		reliable: o.reliable,
		alone:    o.alone(), timing: shard.DefaultTiming(),
	}
	l.pace, l.delay = between(1, 8)(driver), 0
	l.saveFor, l.syncFor = between(0, 0), between(50*microsecond, 5*millisecond)
	if driver.IntN(3) == 0 {
		l.saveFor = between(0, 20*millisecond)
	}
	if driver.IntN(4) == 0 {
		l.syncFor = between(1*millisecond, 700*millisecond)
	}
	// A node copies the chain that it keeps.
	l.asideFor = between(0, 20*millisecond)
	if l.asides.IntN(3) == 0 {
		l.asideFor = between(0, 3*second)
	}
	l.linkTicks = 1 + driver.IntN(linkTicksMax)
	switch driver.IntN(4) {
	case 0:
		l.quickest, l.slowest = 1*millisecond, 20*millisecond
	case 1, 2:
		l.quickest, l.slowest = 50*millisecond, 400*millisecond
	case 3:
		l.quickest, l.slowest = 500*millisecond, 2500*millisecond
	}
	switch {
	case o.group.EngineAlone:
		l.quickest, l.slowest = 0, 50*microsecond
	case l.setting.alone:
		l.quickest, l.slowest = 100*microsecond, 1*millisecond
	default:
		l.pace = []Instant{10, 50, 300}[driver.IntN(3)]
		l.delay = between(0, 4*second)(driver)
		if o.script != nil {
			l.pace, l.delay = 50, 6*second
		}
	}
	clocks := stream(o.Seed, clockStream)
	if o.worksOnMemory() {
		l.memory = s.newMemory()
	}
	l.timed, l.dawn = s.newTimed(), drawDawn(clocks)
	for id := range s.servers {
		s.servers[id].disk = newDisk(newDiskID(l.disks), l.genesis)
		s.servers[id].wall.skew = drawSkew(clocks)
	}
}

// spacing returns the number of rounds, from that of a change on, in which no further change takes
// effect, whatever engines the shard has.
func (o *Options) spacing() order.Round {
	rounds := o.group.spacing(&o.engine)
	for _, at := range o.engines {
		rounds = max(rounds, o.group.spacing(&engineRows[at]))
	}
	return rounds
}

// begin plans the disturbances and starts the first processes.
func (s *simulation) begin(span Instant) {
	l := s.life
	// A run changes those that wait for their moment.
	if l.disturbances = slices.Clone(s.options.script); l.disturbances == nil {
		l.disturbances = planDisturbances(&s.options, span)
	}
	for number, d := range l.disturbances {
		l.pending++
		s.faultsEnd = max(s.faultsEnd, d.until, d.patience+d.while)
		s.queue.push(event{at: d.at, kind: beginning, number: number})
		if d.until > 0 {
			s.queue.push(event{at: d.until, kind: ending, number: number})
		}
	}
	s.markWrong()
	for id := range s.options.Servers {
		s.bear(order.ServerID(id))
	}
	s.queue.push(event{at: s.faultsEnd, kind: settling})
}

// alone reports whether the run is one run of the engines, without the life around them.
func (o *Options) alone() bool {
	return o.group.EngineAlone || o.Detector == allconcur.DetectorEventualPaper
}

// bear starts a process of a server, if it has none.
func (s *simulation) bear(id order.ServerID) {
	v := &s.servers[id]
	if v.away || v.process != nil && v.process.up() {
		return
	}
	if v.process != nil && v.process.ended != nil {
		return // it was removed
	}
	v.number++
	v.crashed, v.pauses, v.backlog, v.acts, v.doom = false, 0, nil, false, nil
	s.judgeRestart(id)
	p, err := newProcess(s, id, v.number, v.disk)
	if err != nil {
		s.breach(id, fmt.Sprintf("no process: %v", err))
		return
	}
	v.process = p
	s.trace.Note(s.now, 103, uint64(id), uint64(v.number))
	s.trace.Say(s.now, "%d begins as process %d, with %d blocks", id, v.number,
		len(v.disk.blocks)-1)
	if s.life.setting.alone {
		p.start(s.life.only(s.options.Servers), nil)
		return
	}
	s.queue.push(event{at: s.now + between(0, tick)(s.life.disks), kind: ticking, server: id,
		process: v.number})
	p.pump()
}

// only returns the group of a run of engines alone.
func (l *life) only(servers int) *shard.Group {
	m := l.genesis.members
	return &shard.Group{Run: generation.NewRun(1, 0), First: 1, Members: m.members,
		Shard: m.generation()}
}

// live handles one event.
func (s *simulation) live(e event) {
	switch e.kind {
	case beginning, ending:
		s.disturb(e)
		return
	case settling:
		s.look()
		return
	case arming:
		s.armCrash(e.number)
		return
	case restarting:
		s.life.pending--
		s.trace.Note(s.now, uint64(restarting), uint64(e.server))
		s.life.restarts++
		s.bear(e.server)
		return
	case wishing:
		s.wish(s.life.wishes[e.number], e.number)
		return
	case loss:
		return
	}
	v := &s.servers[e.server]
	if e.kind == arrival {
		if l := s.network.link(e.from, e.server); l.cuts > 0 || len(l.held) > 0 {
			if e.letter == nil {
				l.held = append(l.held, e)
			}
			return
		}
	}
	switch {
	case v.process == nil || !v.process.up() || e.process != 0 && e.process != v.number:
	case v.pauses > 0:
		v.backlog = append(v.backlog, e)
	default:
		s.liveNow(e)
	}
}

// liveNow makes a server's process take an input.
func (s *simulation) liveNow(e event) {
	p := s.servers[e.server].process
	v := &s.servers[e.server]
	switch e.kind {
	case arrival:
		s.arriveLetter(e)
	case submission:
		s.trace.Note(s.now, uint64(submission), uint64(e.server))
		entry := append([]byte{entryUser}, e.frame...)
		a := &ask{server: e.server, number: v.number, entry: string(entry)}
		s.life.asked[a.entry] = a
		s.life.asks = append(s.life.asks, a)
		p.submit(entry)
	case ticking:
		s.queue.push(event{at: s.now + tick, kind: ticking, server: e.server, process: e.process})
		p.timePasses()
	case lingering:
		if v.lingering == e.number && p.works() {
			p.turn.LingerOver()
		}
	case acting:
		v.acts = false
		s.settle(e.server)
		return
	case polling:
		if p.look.number == e.number {
			p.polls()
		}
		return
	case reviewing:
		s.review(e.server, e.from)
	case saving:
		p.busy = false
		if p.disk.full {
			p.answer(shard.SaveFailed{Reason: fullDisk})
		} else {
			p.saved(*e.state)
		}
		p.pump()
	case savingLate:
		p.disk.state = *e.state
	case synced:
		p.syncEnds()
	case syncingLate:
		p.syncing.late = false
		p.written()
	case asiding:
		p.setAside(e.keep)
	}
	s.settleSoon(e.server)
}

// arriveLetter hands a letter or a frame to its receiver's process.
func (s *simulation) arriveLetter(e event) {
	l := s.network.link(e.from, e.server)
	l.received++
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d receives %s from %d", e.server,
			s.describeLetter(e.letter, e.run, e.frame), e.from)
	}
	p := s.servers[e.server].process
	p.meets(e.from, e.incarnation)
	if e.letter != nil {
		p.receive(e.from, e.letter)
	} else if !s.intact(e) {
		return
	} else {
		p.receiveFrame(&e)
	}
	if s.servers[e.from].crashed && l.received == l.sent {
		s.heardLast(e.from, e.server)
	}
}
