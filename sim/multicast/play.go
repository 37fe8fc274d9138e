package multicast

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/trace"
)

// play is a form on a stage that a search directs, with the search's own state about it.
type play struct {
	options  SearchOptions
	world    *World
	stage    *chosen
	form     Form
	messages []order.Multicast
	// submitted counts the messages that each client submitted. delivered has the numbers of the
	// messages that each process A-delivered.
	submitted []int
	delivered [][]byte
	said      []order.ServerID // the leader oracle's output, by process
	// crashes, leads and ticks are the remaining numbers of these choices.
	crashes, leads, ticks int
	// completer is the form if the search leaves out schedules, else nil. turn is the process that
	// has the turn in such a search: see reduction.go.
	completer Completer
	turn      int

	standings []standing // by process
	// the last poll changed what a read under way would see
	disturbed bool
	news      bool             // the current choice A-delivered something
	broken    *order.Violation // by the current choice
	scratch   []byte
}

// choiceKind is the kind of a choice.
type choiceKind uint8

const (
	choiceSubmit choiceKind = iota + 1
	choiceArrive
	choiceLand
	choicePoll
	choiceCrash
	choiceLose
	choiceLoseWay
	choiceLead
	choiceTick
	// choiceRest stands at the end of a path for the fair run.
	choiceRest
	// choiceCut and choiceWritten are parts of a tabulated search's steps.
	choiceCut
	choiceWritten
)

// choice is an event that can happen next, to the process or link with number a; b is a further
// number. turn is the process in whose turn an operation takes place.
type choice struct {
	kind choiceKind
	a, b int
	turn int
	// idle reports that the choice is equivalent to leaving it out, unless the turn's poll disturbs
	// a read.
	idle bool
}

func newPlay(options SearchOptions, text io.Writer) (*play, error) {
	maker, err := options.maker()
	if err != nil {
		return nil, err
	}
	p := &play{options: options, messages: options.messages(), crashes: options.Crashes,
		leads: max(options.Leads, len(options.Hears)), ticks: options.Ticks, turn: nobody}
	p.world = newWorld(options.deployment(), trace.New[time.Duration](text, traceColumn))
	p.world.tabulated = options.Tabulated
	p.stage = newChosen(p.world)
	p.world.stage, p.world.delivered = p.stage, p.delivers
	p.world.broke = func(property order.Property, evidence ...string) {
		p.broken = &order.Violation{Property: property, Evidence: evidence}
	}
	p.submitted = make([]int, p.world.deployment.Clients)
	p.delivered = make([][]byte, len(p.world.processes))
	p.said = make([]order.ServerID, len(p.world.processes))
	p.standings = make([]standing, len(p.world.processes))
	if p.form, err = maker(p.world, options.Plant); err != nil {
		return nil, fmt.Errorf("make %s: %w", options.Engine, err)
	}
	for _, process := range p.world.processes {
		if process.name.Group != order.Clients {
			p.form.Lead(process.name, 0)
		}
	}
	if !options.Unreduced && options.Ticks == 0 {
		p.completer, _ = p.form.(Completer)
	}
	return p, nil
}

// delivers records that a replica A-delivers a message.
func (p *play) delivers(at order.Replica, m order.Multicast) {
	number := slices.IndexFunc(p.messages, func(own order.Multicast) bool { return own.ID == m.ID })
	if number < 0 || !slices.Equal(p.messages[number].To, m.To) ||
		!bytes.Equal(p.messages[number].Payload, m.Payload) {
		p.broken = &order.Violation{Property: order.Integrity,
			Evidence: []string{fmt.Sprintf("%v A-delivers %v to groups %v with the payload %x, "+
				"which no client submits like that", at, m.ID, m.To, m.Payload)}}
		return
	}
	own := &p.delivered[p.world.number(at)]
	*own = append(slices.Clip(*own), byte(number)) // saved states keep theirs
	p.news = true
}

// choices lists everything that can happen next, always in the same order.
func (p *play) choices() []choice {
	if p.completer != nil {
		return p.reduced()
	}
	all := p.appendSubmits(nil, nobody)
	all = p.appendArrivals(all, func(*chosenLink) bool { return true })
	for host, h := range p.stage.hosts {
		if h == nil {
			continue
		}
		for number, a := range h.ways {
			if len(a.pending) > 0 {
				all = append(all, choice{choiceLand, host, number, nobody, false})
			}
		}
	}
	for number, process := range p.world.processes {
		if !process.crashed {
			all = append(all, choice{choicePoll, number, 0, nobody, false})
		}
	}
	all = p.appendLosses(all)
	for number, process := range p.world.processes {
		if !process.crashed {
			all = p.appendBlows(all, number)
		}
	}
	return p.appendTick(all)
}

// appendSubmits appends the submissions that are possible at all clients, or at one of them.
func (p *play) appendSubmits(all []choice, at int) []choice {
	for client, count := range p.submitted {
		next := client + 2*count
		if next >= len(p.messages) {
			continue
		}
		if number := p.world.number(p.messages[next].ID.Sender); !p.world.processes[number].
			crashed && (at == nobody || at == number) {
			all = append(all, choice{choiceSubmit, client, 0, nobody, false})
		}
	}
	return all
}

// appendArrivals appends the links from which a letter can arrive.
func (p *play) appendArrivals(all []choice, where func(*chosenLink) bool) []choice {
	for number := range p.stage.links {
		if l := &p.stage.links[number]; len(l.letters) > 0 && where(l) {
			all = append(all, choice{choiceArrive, number, 0, nobody, false})
		}
	}
	return all
}

// appendLosses appends the possible losses of what crashed processes sent.
func (p *play) appendLosses(all []choice) []choice {
	for number, l := range p.stage.links {
		if len(l.letters) > 0 && l.from < len(p.world.processes) &&
			p.world.processes[l.from].crashed {
			all = append(all, choice{choiceLose, number, 0, nobody, false})
		}
	}
	for host, h := range p.stage.hosts {
		if h == nil || !p.stage.crashed(host) {
			continue
		}
		for number, a := range h.ways {
			if len(a.pending) > 0 {
				all = append(all, choice{choiceLoseWay, host, number, nobody, false})
			}
		}
	}
	return all
}

// appendBlows appends the faults that a live process can suffer.
func (p *play) appendBlows(all []choice, number int) []choice {
	if p.crashes > 0 {
		all = append(all, choice{choiceCrash, number, 0, nobody, false})
	}
	if p.world.processes[number].name.Group == order.Clients || p.leads == 0 {
		return all
	}
	for server := range p.options.Replicas {
		if order.ServerID(server) != p.said[number] {
			all = append(all, choice{choiceLead, number, server, nobody, false})
		}
	}
	return all
}

// appendTick appends the passing of time.
func (p *play) appendTick(all []choice) []choice {
	if p.ticks > 0 {
		all = append(all, choice{choiceTick, 0, 0, nobody, false})
	}
	return all
}

// take executes a choice, and judges the result.
func (p *play) take(c choice) (broken *order.Violation) {
	p.news, p.broken, p.turn = false, nil, nobody
	at, regranted := nobody, p.stage.regranted
	p.stage.cuts, p.stage.attached = p.stage.cuts[:0], p.stage.attached[:0]
	defer func() {
		if problem := recover(); problem != nil {
			broken = &order.Violation{Property: Contract,
				Evidence: []string{fmt.Sprintf("%s: a form panics", p.describe(c)),
					fmt.Sprint(problem)}}
		}
	}()
	switch c.kind {
	case choiceSubmit:
		m := p.messages[c.a+2*p.submitted[c.a]]
		p.submitted[c.a]++
		p.changes(p.world.number(m.ID.Sender))
		p.form.Submit(m.ID.Sender, m)
	case choiceArrive:
		at = p.stage.links[c.a].to
		p.stage.arrive(c.a)
	case choiceLand:
		p.turn = c.turn
		p.lands(p.stage.hosts[c.a].ways[c.b])
	case choicePoll:
		at = c.a
	case choiceCrash:
		p.crashes--
		p.crash(c.a)
	case choiceLose:
		p.stage.links[c.a].letters = nil
	case choiceLoseWay:
		p.changes(c.a)
		p.stage.hosts[c.a].ways[c.b].pending = nil
	case choiceLead:
		p.leads--
		p.changes(c.a)
		p.said[c.a] = order.ServerID(c.b)
		p.form.Lead(p.world.processes[c.a].name, order.ServerID(c.b))
	case choiceTick:
		p.ticks--
		p.stage.clock += searchPatience + 1
		p.changesAll()
	}
	if at >= 0 && at < len(p.world.processes) && !p.world.processes[at].crashed {
		p.changes(at)
		reads := p.readsOf(at)
		p.form.Poll(p.world.processes[at].name)
		p.disturbed = disturbed(reads)
		p.complete(at)
	}
	if p.stage.regranted != regranted {
		p.looksDifferent()
	}
	for _, c := range p.stage.cuts {
		p.changes(c.holder)
	}
	if p.news && p.broken == nil {
		p.broken = p.judge(order.UnderWay)
	}
	return p.broken
}

// mayHear reports whether a replica may hear of a leader now. It heard of another one last, and a
// number of changes are left.
func (o *SearchOptions) mayHear(left, replica, leader int, heard order.ServerID) bool {
	if left == 0 || len(o.Hears) == 0 {
		return left > 0 && int(heard) != leader
	}
	return o.Hears[len(o.Hears)-left] == Hearing{replica, leader}
}

// complete makes a process handle its completions, if the search does that as they come.
func (p *play) complete(number int) {
	if p.completer == nil || p.stage.crashed(number) || p.stage.hosts[number] == nil {
		return
	}
	for _, q := range p.stage.hosts[number].queues {
		if len(q.ready) > 0 {
			p.completer.Complete(p.world.processes[number].name)
		}
	}
}

// crash crashes a process. Letters and operations on their way to it are dropped, unless a live
// sender will see the error.
func (p *play) crash(number int) {
	p.changesAll()
	p.world.processes[number].crashed = true
	p.world.processes[number].letters = nil
	for i := range p.stage.links {
		if p.stage.links[i].to == number {
			p.stage.links[i].letters = nil
		}
	}
	for host, h := range p.stage.hosts {
		if h == nil || !p.stage.crashed(host) {
			continue
		}
		for _, a := range h.ways {
			if p.stage.crashed(a.region.host.number) {
				a.pending = nil
			}
		}
	}
}

// judge judges the play with package order.
func (p *play) judge(moment order.Moment) *order.Violation {
	h := order.NewHistory(p.world.deployment.Sizes...)
	for client, count := range p.submitted {
		for i := range count {
			m := p.messages[client+2*i]
			h.Submit(m.ID, m.To...)
		}
	}
	for number, process := range p.world.processes {
		for _, message := range p.delivered[number] {
			h.Deliver(process.name, p.messages[message].ID)
		}
		if process.crashed {
			h.Fail(process.name)
		}
	}
	if broken := h.Judge(moment); broken != nil {
		return broken[0]
	}
	return nil
}

// rest executes a fair run: everything arrives, all processes work, time passes and oracles agree.
// It judges the result.
func (p *play) rest() (broken *order.Violation) {
	defer func() {
		if problem := recover(); problem != nil {
			broken = &order.Violation{Property: Contract,
				Evidence: []string{"a form panics as time passes", fmt.Sprint(problem)}}
		}
	}()
	p.changesAll()
	p.agree()
	p.broken = nil
	for rounds, more := 0, 0; rounds < restRounds && more < restMore; rounds++ {
		p.news = false
		p.round()
		if p.broken != nil {
			return p.broken
		}
		if p.news {
			more = 0
		}
		if p.judge(order.AtRest) == nil {
			more++
		}
	}
	moment := order.AtRest
	for group := range p.world.deployment.Sizes {
		if p.lost(order.GroupID(group)) > p.world.deployment.Tolerated(order.GroupID(group)) {
			moment = order.UnderWay
		}
	}
	return p.judge(moment)
}

// agree makes the oracles of each group name its first live replica.
func (p *play) agree() {
	for number, process := range p.world.processes {
		if process.name.Group == order.Clients || process.crashed {
			continue
		}
		leader := slices.IndexFunc(p.world.deployment.Members(process.name.Group),
			func(r order.Replica) bool {
				return !p.world.processes[p.world.number(r)].crashed
			})
		if p.said[number] != order.ServerID(leader) {
			p.said[number] = order.ServerID(leader)
			p.form.Lead(process.name, order.ServerID(leader))
		}
	}
}

// round makes everything under way arrive, all processes work, and some time pass.
func (p *play) round() {
	for i := range p.stage.links {
		for len(p.stage.links[i].letters) > 0 {
			p.stage.arrive(i)
		}
	}
	for _, h := range p.stage.hosts {
		if h == nil {
			continue
		}
		for _, a := range h.ways {
			for len(a.pending) > 0 {
				a.land()
			}
		}
	}
	for _, process := range p.world.processes {
		if !process.crashed {
			p.form.Poll(process.name)
		}
	}
	p.stage.clock += searchPatience / 4
}

// lost counts the replicas of a group that crashed.
func (p *play) lost(group order.GroupID) int {
	lost := 0
	for _, member := range p.world.deployment.Members(group) {
		if p.world.processes[p.world.number(member)].crashed {
			lost++
		}
	}
	return lost
}

// describe describes a choice.
func (p *play) describe(c choice) string {
	name := func(number int) string {
		if number >= len(p.world.processes) {
			return fmt.Sprintf("log %d", number-len(p.world.processes))
		}
		return p.world.processes[number].name.String()
	}
	switch c.kind {
	case choiceSubmit:
		m := p.messages[min(c.a+2*p.submitted[c.a], len(p.messages)-1)]
		return fmt.Sprintf("%v submits %v to groups %v", m.ID.Sender, m.ID, m.To)
	case choiceArrive:
		return fmt.Sprintf("what %s sent first arrives at %s", name(p.stage.links[c.a].from),
			name(p.stage.links[c.a].to))
	case choiceLand:
		if a := p.stage.hosts[c.a].ways[c.b]; len(a.pending) > 0 {
			return a.described()
		}
		return "an operation takes place"
	case choicePoll:
		return name(c.a) + " works"
	case choiceCrash:
		return name(c.a) + " crashes"
	case choiceLose:
		return fmt.Sprintf("what %s sent to %s is lost", name(p.stage.links[c.a].from),
			name(p.stage.links[c.a].to))
	case choiceLoseWay:
		a := p.stage.hosts[c.a].ways[c.b]
		return fmt.Sprintf("what %s posted to %s is lost", a.host.id, a.region.host.id)
	case choiceLead:
		return fmt.Sprintf("%s hears that %d leads", name(c.a), c.b)
	case choiceTick:
		return "time passes"
	}
	return "the rest"
}
