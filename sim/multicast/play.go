package multicast

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// play is a form on a stage that a search directs, with all that the search itself keeps of it.
type play struct {
	options  SearchOptions
	world    *World
	stage    *chosen
	form     Form
	messages []order.Multicast
	// submitted counts the messages that each client submitted, and delivered has what each process A-delivered, by the messages' numbers.
	submitted []int
	delivered [][]byte
	said      []order.ServerID // the leader oracle's output, by process
	// crashes, leads and ticks are left.
	crashes, leads, ticks int

	news    bool             // something was A-delivered by the choice that is taken
	broken  *order.Violation // by it
	scratch []byte
}

// choiceKind says what a choice lets happen.
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
)

// choice is something that can happen next: to a process, link, or attachment, by its number; another number says which.
type choice struct {
	kind choiceKind
	a, b int
}

func newPlay(options SearchOptions, text io.Writer) (*play, error) {
	maker, err := options.maker()
	if err != nil {
		return nil, err
	}
	p := &play{options: options, messages: options.messages(), crashes: options.Crashes, leads: options.Leads, ticks: options.Ticks}
	p.world = newWorld(options.deployment(), newTrace(text))
	p.stage = newChosen(p.world)
	p.world.stage, p.world.delivered = p.stage, p.delivers
	p.submitted = make([]int, p.world.deployment.Clients)
	p.delivered = make([][]byte, len(p.world.processes))
	p.said = make([]order.ServerID, len(p.world.processes))
	if p.form, err = maker(p.world, options.Plant); err != nil {
		return nil, fmt.Errorf("make %s: %w", options.Engine, err)
	}
	for _, process := range p.world.processes {
		if process.name.Group != order.Clients {
			p.form.Lead(process.name, 0)
		}
	}
	return p, nil
}

// delivers hears that a replica A-delivers a message.
func (p *play) delivers(at order.Replica, m order.Multicast) {
	number := slices.IndexFunc(p.messages, func(own order.Multicast) bool { return own.ID == m.ID })
	if number < 0 || !slices.Equal(p.messages[number].To, m.To) || !bytes.Equal(p.messages[number].Payload, m.Payload) {
		p.broken = &order.Violation{Property: order.Integrity, Evidence: []string{fmt.Sprintf("%v A-delivers %v to groups %v with the payload %x, which nobody submits like that", at, m.ID, m.To, m.Payload)}}
		return
	}
	own := &p.delivered[p.world.number(at)]
	*own = append(slices.Clip(*own), byte(number)) // states that were taken down keep theirs
	p.news = true
}

// choices lists what can happen next, always in the same order.
func (p *play) choices() []choice {
	var all []choice
	for client, count := range p.submitted {
		if next := client + 2*count; next < len(p.messages) && !p.world.processes[p.world.number(p.messages[next].ID.Sender)].crashed {
			all = append(all, choice{choiceSubmit, client, 0})
		}
	}
	for number, l := range p.stage.links {
		if len(l.letters) > 0 {
			all = append(all, choice{choiceArrive, number, 0})
		}
	}
	for number, a := range p.stage.ways {
		if len(a.pending) > 0 {
			all = append(all, choice{choiceLand, number, 0})
		}
	}
	for number, process := range p.world.processes {
		if !process.crashed {
			all = append(all, choice{choicePoll, number, 0})
		}
	}
	for number, l := range p.stage.links {
		if len(l.letters) > 0 && l.from < len(p.world.processes) && p.world.processes[l.from].crashed {
			all = append(all, choice{choiceLose, number, 0})
		}
	}
	for number, a := range p.stage.ways {
		if len(a.pending) > 0 && p.stage.crashed(a.host.number) {
			all = append(all, choice{choiceLoseWay, number, 0})
		}
	}
	for number, process := range p.world.processes {
		if process.crashed {
			continue
		}
		if p.crashes > 0 {
			all = append(all, choice{choiceCrash, number, 0})
		}
		if process.name.Group == order.Clients || p.leads == 0 {
			continue
		}
		for server := range p.options.Replicas {
			if order.ServerID(server) != p.said[number] {
				all = append(all, choice{choiceLead, number, server})
			}
		}
	}
	if p.ticks > 0 {
		all = append(all, choice{choiceTick, 0, 0})
	}
	return all
}

// take lets a choice happen, and judges what comes of it.
func (p *play) take(c choice) (broken *order.Violation) {
	p.news, p.broken = false, nil
	at := -1
	defer func() {
		if problem := recover(); problem != nil {
			broken = &order.Violation{Property: Contract, Evidence: []string{fmt.Sprintf("%s: a form panics", p.describe(c)), fmt.Sprint(problem)}}
		}
	}()
	switch c.kind {
	case choiceSubmit:
		m := p.messages[c.a+2*p.submitted[c.a]]
		p.submitted[c.a]++
		p.form.Submit(m.ID.Sender, m)
	case choiceArrive:
		at = p.stage.links[c.a].to
		p.stage.arrive(c.a)
	case choiceLand:
		p.stage.ways[c.a].land()
	case choicePoll:
		at = c.a
	case choiceCrash:
		p.crashes--
		p.crash(c.a)
	case choiceLose:
		p.stage.links[c.a].letters = nil
	case choiceLoseWay:
		p.stage.ways[c.a].pending = nil
	case choiceLead:
		p.leads--
		p.said[c.a] = order.ServerID(c.b)
		p.form.Lead(p.world.processes[c.a].name, order.ServerID(c.b))
	case choiceTick:
		p.ticks--
		p.stage.clock += searchPatience + 1
	}
	if at >= 0 && at < len(p.world.processes) && !p.world.processes[at].crashed {
		p.form.Poll(p.world.processes[at].name)
	}
	if p.news && p.broken == nil {
		p.broken = p.judge(order.UnderWay)
	}
	return p.broken
}

// crash ends a process. What is on the way to it is nobody's any more.
func (p *play) crash(number int) {
	p.world.processes[number].crashed = true
	p.world.processes[number].letters = nil
	for i := range p.stage.links {
		if p.stage.links[i].to == number {
			p.stage.links[i].letters = nil
		}
	}
}

// judge asks package order.
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

// rest lets a fair run follow: everything arrives, everybody works, time passes, oracles agree; and judges what it comes to.
func (p *play) rest() (broken *order.Violation) {
	defer func() {
		if problem := recover(); problem != nil {
			broken = &order.Violation{Property: Contract, Evidence: []string{"a form panics as time passes", fmt.Sprint(problem)}}
		}
	}()
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

// agree has the oracles of each group name the first that lives.
func (p *play) agree() {
	for number, process := range p.world.processes {
		if process.name.Group == order.Clients || process.crashed {
			continue
		}
		leader := slices.IndexFunc(p.world.deployment.Members(process.name.Group), func(r order.Replica) bool { return !p.world.processes[p.world.number(r)].crashed })
		if p.said[number] != order.ServerID(leader) {
			p.said[number] = order.ServerID(leader)
			p.form.Lead(process.name, order.ServerID(leader))
		}
	}
}

// round has everything on its way arrive, everybody work, and some time pass.
func (p *play) round() {
	for i := range p.stage.links {
		for len(p.stage.links[i].letters) > 0 {
			p.stage.arrive(i)
		}
	}
	for i := range p.stage.ways {
		for len(p.stage.ways[i].pending) > 0 {
			p.stage.ways[i].land()
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

// describe says what a choice lets happen.
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
		return fmt.Sprintf("what %s sent first arrives at %s", name(p.stage.links[c.a].from), name(p.stage.links[c.a].to))
	case choiceLand:
		if len(p.stage.ways[c.a].pending) == 0 {
			return "an operation takes place"
		}
		return p.stage.ways[c.a].described()
	case choicePoll:
		return name(c.a) + " works"
	case choiceCrash:
		return name(c.a) + " crashes"
	case choiceLose:
		return fmt.Sprintf("what %s sent to %s is lost", name(p.stage.links[c.a].from), name(p.stage.links[c.a].to))
	case choiceLoseWay:
		a := p.stage.ways[c.a]
		return fmt.Sprintf("what %s posted to %s is lost", a.host.id, a.region.host.id)
	case choiceLead:
		return fmt.Sprintf("%s hears that %d leads", name(c.a), c.b)
	case choiceTick:
		return "time passes"
	}
	return "the rest"
}

// appendState appends all that the play's further course depends on.
func (p *play) appendState(state []byte) []byte {
	for number, process := range p.world.processes {
		if process.crashed {
			state = append(state, 'x')
		} else {
			before := len(state)
			state = append(state, 0, 0, 0, 0)
			state = p.form.AppendState(state, process.name)
			binary.BigEndian.PutUint32(state[before:], uint32(len(state)-before))
			for _, letter := range process.letters {
				state = appendBytes(state, letter.Bytes)
			}
		}
		state = appendBytes(state, p.delivered[number])
		state = append(state, byte(p.said[number]))
	}
	for _, l := range p.world.logs {
		for _, entries := range l.ordered {
			state = append(state, byte(len(entries)))
			for _, entry := range entries {
				state = appendBytes(state, entry)
			}
		}
	}
	for _, count := range p.submitted {
		state = append(state, byte(count))
	}
	state = append(state, byte(p.crashes), byte(p.leads), byte(p.ticks))
	return p.stage.appendState(state)
}

// moment is a play as it was, to come back to.
type moment struct {
	form                  Copier
	contents              *contents
	submitted             []int
	delivered             [][]byte
	said                  []order.ServerID
	crashes, leads, ticks int
}

// takeDown copies what is there. The form must be a Copier.
func (p *play) takeDown() *moment {
	return &moment{
		form: p.form.(Copier).Copy().(Copier), contents: p.stage.takeDown(), submitted: slices.Clone(p.submitted), delivered: slices.Clone(p.delivered), said: slices.Clone(p.said),
		crashes: p.crashes, leads: p.leads, ticks: p.ticks,
	}
}

// putBack makes everything what it was.
func (p *play) putBack(m *moment) {
	p.form = m.form.Copy()
	p.stage.putBack(m.contents)
	copy(p.submitted, m.submitted)
	copy(p.delivered, m.delivered)
	copy(p.said, m.said)
	p.crashes, p.leads, p.ticks = m.crashes, m.leads, m.ticks
}
