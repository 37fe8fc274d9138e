package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/order"
)

// disturbance is one planned fault other than a crash. It has an end. The detectors react to it by
// themselves.
type disturbance struct {
	kind Faults
	at   Instant
	// until is when it ends: a partition heals, a pause is over, a suspicion is withdrawn, a new
	// server gets its process, or crashed servers come back.
	until Instant
	// server is the server that pauses, is suspected, joins or leaves.
	server order.ServerID
	// links are the links that a partition cuts. For a false suspicion, they lead from the suspect
	// to the observer.
	links [][2]order.ServerID
	// servers are the servers that crash, or lose their power, together.
	servers []order.ServerID
	// disk is what happens to the server's home.
	disk diskFault
	// clock is what happens to the server's clock.
	clock clockFault
	// engine is the place in engineRows of the engine that the operator wants.
	engine int
	// If until is zero, the disturbance begins at the first moment from at to patience at which it
	// can, if there is one, and lasts for while.
	patience, while Instant
	// begun reports that it began. For a stray, again reports that the others lost their power a
	// second time, and met that a member was alone with it. Around a leader, met and again are the
	// second and the third step.
	begun, again, met bool
	// stray is what it does with servers whose blocks are given up. Its links are chosen when it
	// begins.
	stray stray
	// lead is what it does around a leader of package dare.
	lead lead
	// before is the disk that was in the server before.
	before *disk
	// beyond makes it happen even if a majority of the disks has then forgotten.
	beyond bool
	text   string
}

// disturber plans the disturbances of a run. Each kind has a stream of its own, so leaving out one
// kind does not change the others.
type disturber struct {
	options *Options
	random  *rand.Rand
	span    Instant
	plan    []disturbance
}

// planDisturbances plans the disturbances that the options allow.
func planDisturbances(options *Options, span Instant) []disturbance {
	d := &disturber{options: options, span: span}
	for bit, kind := range []struct {
		fault Faults
		plan  func(*disturber)
	}{
		{FaultSuspect, (*disturber).suspicions}, {FaultPartition, (*disturber).partitions},
		{FaultPause, (*disturber).pauses},
		{FaultJoin, (*disturber).joins}, {FaultLeave, (*disturber).leaves},
		{FaultCrash, (*disturber).crashes}, {FaultPower, (*disturber).powerCuts},
		{FaultDisk, (*disturber).disks},
		{FaultBreak, (*disturber).breaks}, {FaultClock, (*disturber).clocks},
	} {
		d.random = stream(options.Seed, disturbanceStream+uint64(bit))
		if options.alone() && kind.fault&(FaultSuspect|FaultPartition|FaultPause) == 0 {
			continue
		}
		if options.Faults.Has(kind.fault) && d.random.IntN(8) > 0 {
			kind.plan(d)
		}
	}
	if options.group.ChangesEngine() {
		d.random = stream(options.Seed, disturbanceStream+engineChangeBit)
		d.engineChanges()
	}
	if options.worksOnMemory() && options.Faults.Has(FaultPartition) {
		d.random = stream(options.Seed, disturbanceStream+leadsBit)
		d.leads()
	}
	slices.SortStableFunc(d.plan, func(a, b disturbance) int { return int(a.at - b.at) })
	return d.plan
}

// engineChangeBit is the number of the stream of changes of the engine, behind those of the faults.
const engineChangeBit = 1 << 8

// leadsBit is the number of the stream of partitions around leaders.
const leadsBit = 1 << 9

// engineChanges plans that the operator changes the engine, sometimes twice within a moment.
func (d *disturber) engineChanges() {
	for range 1 + d.random.IntN(4) {
		at := between(0, d.span)(d.random)
		for range 1 + d.random.IntN(2) {
			engine := d.options.engines[d.random.IntN(len(d.options.engines))]
			d.plan = append(d.plan, disturbance{kind: engineChange, at: at, until: at + 1,
				engine: engine,
				text:   fmt.Sprintf("the engine becomes %s from %v", engineRows[engine].name, at)})
			at += drawDuration(d.random)
		}
	}
}

// server draws one of the first members.
func (d *disturber) server() order.ServerID {
	return order.ServerID(d.random.IntN(d.options.Servers))
}

// add plans a disturbance from a drawn moment on, for a short, medium or long while.
func (d *disturber) add(kind Faults, server order.ServerID, links [][2]order.ServerID,
	text string) {
	at := between(0, d.span)(d.random)
	while := drawDuration(d.random)
	if d.options.alone() {
		while = []func(*rand.Rand) Instant{
			between(100*microsecond, 3*millisecond), between(3*millisecond, 60*millisecond),
			between(60*millisecond, 800*millisecond),
		}[d.random.IntN(3)](d.random)
	}
	d.plan = append(d.plan, disturbance{kind: kind, at: at, until: at + while, server: server,
		links: links,
		text:  fmt.Sprintf("%s from %v for %v", text, at, while)})
}

// suspicions plans that a working server is suspected: by one other server, by all, or as one of
// many pairs.
func (d *disturber) suspicions() {
	if d.options.group.EngineAlone {
		d.flickers()
		return
	}
	for range 1 + d.random.IntN(5) {
		server := d.server()
		switch d.random.IntN(4) {
		case 0:
			observer := d.server()
			d.add(FaultSuspect, server, [][2]order.ServerID{{server, observer}},
				fmt.Sprintf("%d suspected by %d", server, observer))
		case 1, 2:
			d.add(FaultSuspect, server, d.between([]order.ServerID{server}, d.all(), false),
				fmt.Sprintf("%d suspected by all", server))
		case 3:
			var links [][2]order.ServerID
			for _, link := range d.between(d.all(), d.all(), false) {
				if d.random.IntN(3) == 0 {
					links = append(links, link)
				}
			}
			d.add(FaultSuspect, server, links, "a third of all pairs suspected")
		}
	}
}

// flickers plans that an observer suspects one server again and again, each time briefly, and that
// a third server suspects the observer. Notifications of the observer then overtake what the third
// server holds back from it.
func (d *disturber) flickers() {
	begins := between(0, d.span)(d.random)
	server, observer, third := d.server(), d.server(), d.server()
	for _, link := range [][2]order.ServerID{{server, observer}, {observer, third}} {
		at := begins
		for range 2 + d.random.IntN(20) {
			while := between(10*microsecond, 1*millisecond)(d.random)
			d.plan = append(d.plan, disturbance{kind: FaultSuspect, at: at, until: at + while,
				server: link[0], links: [][2]order.ServerID{link},
				text: fmt.Sprintf("%d suspected by %d from %v for %v", link[0], link[1], at,
					while)})
			at += while + between(10*microsecond, 1*millisecond)(d.random)
		}
	}
}

// partitions plans cuts: a server is isolated, or cannot be heard, or hears nothing; one link
// breaks; or the servers fall into two or three parts.
func (d *disturber) partitions() {
	if !d.options.alone() && d.random.IntN(2) == 0 {
		d.strays()
	}
	for range 1 + d.random.IntN(3) {
		server := d.server()
		alone := []order.ServerID{server}
		switch d.random.IntN(7) {
		case 0, 1:
			d.add(FaultPartition, server, d.between(alone, d.all(), true),
				fmt.Sprintf("%d isolated", server))
		case 2:
			d.add(FaultPartition, server, d.between(alone, d.all(), false),
				fmt.Sprintf("%d unheard", server))
		case 3:
			d.add(FaultPartition, server, d.between(d.all(), alone, false),
				fmt.Sprintf("%d deaf", server))
		case 4:
			other := d.server()
			d.add(FaultPartition, server, d.between(alone, []order.ServerID{other},
				d.random.IntN(2) == 0), fmt.Sprintf("%d cut from %d", server, other))
		default:
			parts := d.parts(2 + d.random.IntN(2))
			var links [][2]order.ServerID
			for i := range parts {
				for j := range parts[:i] {
					links = append(links, d.between(parts[i], parts[j], true)...)
				}
			}
			d.add(FaultPartition, server, links, fmt.Sprintf("partition %v", parts))
		}
	}
}

// strays plans that a member is alone with a server that holds blocks of a branch that was given
// up, if there is ever one.
func (d *disturber) strays() {
	for range 1 + d.random.IntN(3) {
		d.wait(FaultPartition, "a member alone with a stray").stray = strayMet
	}
	if d.options.Faults.Has(FaultPower) {
		for range 1 + d.random.IntN(2) {
			w := d.wait(FaultPartition, "a server stores a block first")
			w.stray, w.while = strayMade, between(2*second, 12*second)(d.random)
			w.at /= 2
		}
	}
}

// wait plans a disturbance that begins as soon as it can.
func (d *disturber) wait(kind Faults, text string) *disturbance {
	at := between(0, d.span)(d.random)
	d.plan = append(d.plan, disturbance{kind: kind, at: at,
		patience: at + between(0, 15*second)(d.random),
		while:    drawDuration(d.random), text: text})
	return &d.plan[len(d.plan)-1]
}

// breaks plans that connections break.
func (d *disturber) breaks() {
	for range 1 + d.random.IntN(4) {
		link := [2]order.ServerID{d.server(), d.server()}
		if link[0] != link[1] {
			d.add(FaultBreak, link[0], [][2]order.ServerID{link},
				fmt.Sprintf("%d and %d lose frames", link[0], link[1]))
		}
	}
}

// pauses plans that servers pause.
func (d *disturber) pauses() {
	for range 1 + d.random.IntN(3) {
		server := d.server()
		d.add(FaultPause, server, nil, fmt.Sprintf("%d pauses", server))
	}
}

// joins plans that new servers join the membership. Each gets its process a while later.
func (d *disturber) joins() {
	for number := range 1 + d.random.IntN(joinersMax) {
		server := order.ServerID(d.options.Servers + number)
		d.add(FaultJoin, server, nil, fmt.Sprintf("%d joins", server))
	}
}

// leaves plans that members leave for good. Two remain.
func (d *disturber) leaves() {
	if d.options.Servers < 3 {
		return
	}
	leaving := make(map[order.ServerID]bool)
	for range 1 + d.random.IntN(min(2, d.options.Servers-2)) {
		if server := d.server(); !leaving[server] {
			leaving[server] = true
			d.add(FaultLeave, server, nil, fmt.Sprintf("%d leaves", server))
		}
	}
}

// all lists all servers, including those that may join.
func (d *disturber) all() []order.ServerID {
	var all []order.ServerID
	for s := range d.options.slots() {
		all = append(all, order.ServerID(s))
	}
	return all
}

// parts assigns each server to one of several parts.
func (d *disturber) parts(number int) [][]order.ServerID {
	parts := make([][]order.ServerID, number)
	for _, s := range d.all() {
		part := d.random.IntN(number)
		parts[part] = append(parts[part], s)
	}
	return parts
}

// between lists the links from some servers to others, and back if both is set.
func (d *disturber) between(from, to []order.ServerID, both bool) [][2]order.ServerID {
	var links [][2]order.ServerID
	for _, f := range from {
		for _, t := range to {
			if f == t {
				continue
			}
			links = append(links, [2]order.ServerID{f, t})
			if both {
				links = append(links, [2]order.ServerID{t, f})
			}
		}
	}
	return links
}

// describeDisturbances describes a plan on a line.
func describeDisturbances(plan []disturbance) string {
	lines := make([]string, len(plan))
	for i := range plan {
		lines[i] = plan[i].text
	}
	return strings.Join(lines, "; ")
}
