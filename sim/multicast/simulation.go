package multicast

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/fabric"
	"github.com/ledgerd/ledgerd/sim/trace"
)

const (
	// settleMax is how long after the last fault a run may take until all due messages are
	// A-delivered.
	settleMax = 80 * time.Millisecond
	// quiet is how long after that nothing more may be A-delivered.
	quiet = 2 * time.Millisecond
	// lookEvery is the interval of the checks whether all due messages are A-delivered.
	lookEvery = 100 * time.Microsecond
	// overwhelmedFor is how long a run continues after a group lost too many replicas.
	overwhelmedFor = 8 * time.Millisecond
)

// simulation is one run.
type simulation struct {
	options Options
	plan    plan
	world   *World
	history *order.History
	stage   *randomStage
	form    Form
	pace    *rand.Rand
	oracle  oracle
	result  Result

	messages []message
	byID     map[order.MessageID]int
	sequence map[order.Replica]uint64
	// held are the messages that hanging clients will submit once they go on.
	held map[order.Replica][]order.Multicast
	// armed are the faults that wait for steps of their victim. striking are the faults whose
	// moment has come.
	armed    []*armed
	striking []fault

	// sizes are the numbers of replicas that the groups should have. asleep says which processes
	// are not polled any more until they start again.
	sizes  []int
	asleep []bool

	// wires are the cut wires.
	wires        [][2]order.Replica
	lastDelivery time.Duration
	calm         time.Duration // when everything is whole again, 0 before
	done         bool
	broken       []*order.Violation
}

// message is a submitted message, with the replicas that A-delivered it.
type message struct {
	order.Multicast
	by []order.Replica
}

// armed is a fault that waits for steps.
type armed struct {
	fault
	left int
}

// Run executes the run that options describe. The error wraps ErrOptions or ErrEngine, or is the
// trace's write error.
func Run(options Options) (Result, error) {
	if err := options.Validate(); err != nil {
		return Result{}, err
	}
	maker, err := options.maker()
	if err != nil {
		return Result{}, err
	}
	p := draw(options)
	p.keep(options)
	s := &simulation{
		options: options, plan: p, pace: stream(options.Seed, paceStream),
		byID: map[order.MessageID]int{}, sequence: map[order.Replica]uint64{},
		held: map[order.Replica][]order.Multicast{},
	}
	deployment := &s.plan.deployment
	s.history = order.NewHistory(deployment.Sizes...)
	s.world = newWorld(deployment, trace.New[time.Duration](options.Trace, traceColumn))
	s.stage = &randomStage{
		network: fabric.New(fabric.Options{Seed: options.Seed, Delay: p.weather.delay,
			OperationTimeout: deployment.OperationTimeout}),
		random: stream(options.Seed, stageStream), delay: p.weather.delay,
		links: map[[2]int]*link{}, cuts: map[[2]int]bool{}, arrive: s.world.arrive,
	}
	defer s.stage.network.Close()
	s.world.stage, s.world.delivered, s.world.noted = s.stage, s.delivers, s.steps
	s.world.broke = s.breaks
	s.sizes, s.asleep = slices.Clone(deployment.Sizes), make([]bool, len(s.world.processes))
	s.world.trace.Say(0, "%v", &s.plan)
	if s.form, err = maker(s.world, options.Plant); err != nil {
		return Result{}, fmt.Errorf("make %s: %w", options.Engine, err)
	}
	s.begin()
	s.play()
	return s.end()
}

// RunSeed is Run with another seed: a run of a sweep. Options.Trace must be nil if several seeds
// run at once.
func (o Options) RunSeed(seed uint64) (Result, error) {
	o.Seed = seed
	return Run(o)
}

// begin schedules everything.
func (s *simulation) begin() {
	s.oracle.begin(s)
	for i := range s.world.processes {
		s.stage.network.After(time.Duration(1+s.pace.Int64N(int64(s.plan.weather.paces[i]))),
			func() {
				s.poll(i)
			})
	}
	for _, planned := range s.plan.submissions {
		s.stage.network.After(planned.at, func() { s.submit(planned) })
	}
	for _, planned := range s.plan.faults {
		s.stage.network.After(planned.at, func() {
			if planned.after > 0 {
				s.armed = append(s.armed, &armed{planned, planned.after})
				return
			}
			s.strike(planned)
		})
	}
	s.stage.network.After(s.plan.end+1, s.settle)
}

// play runs all events.
func (s *simulation) play() {
	for !s.done && s.broken == nil && s.stage.network.Step() {
		s.result.Events++
		for len(s.striking) > 0 {
			f := s.striking[0]
			s.striking = s.striking[1:]
			s.strike(f)
		}
	}
}

// poll makes a process work if it can, and schedules its next poll.
func (s *simulation) poll(number int) {
	p := &s.world.processes[number]
	if p.crashed {
		s.asleep[number] = true
		return
	}
	if !p.hangs {
		s.guard(p.name, "panics", func() { s.form.Poll(p.name) })
	}
	pace := int64(s.plan.weather.paces[number])
	next := pace/2 + s.pace.Int64N(pace)
	if s.pace.IntN(64) == 0 {
		next *= 8 // it was busy with other things
	}
	s.stage.network.After(time.Duration(1+next), func() { s.poll(number) })
}

// guard calls a form, and records a violation if it panics.
func (s *simulation) guard(at order.Replica, what string, call func()) {
	defer func() {
		if problem := recover(); problem != nil {
			s.breaks(Contract, fmt.Sprintf("%v %s", at, what), fmt.Sprint(problem))
		}
	}()
	call()
}

// breaks ends the run with a broken property.
func (s *simulation) breaks(property order.Property, evidence ...string) {
	s.broken = append(s.broken, &order.Violation{Property: property, Evidence: evidence})
}

// submit makes a client submit a planned message.
func (s *simulation) submit(planned submission) {
	p := &s.world.processes[s.world.number(planned.client)]
	if p.crashed {
		return
	}
	s.sequence[planned.client]++
	m := message{Multicast: order.Multicast{ID: order.MessageID{Sender: planned.client,
		Sequence: s.sequence[planned.client]}, To: planned.to, Payload: planned.payload}}
	s.byID[m.ID] = len(s.messages)
	s.messages = append(s.messages, m)
	s.result.submitted = append(s.result.submitted, planned.number)
	s.history.Submit(m.ID, m.To...)
	s.world.trace.Note(s.world.Now(), 2, uint64(planned.number))
	s.world.trace.Say(s.world.Now(), "message %d: %v submits %v to groups %v, %d bytes",
		planned.number, planned.client, m.ID, planned.to, len(planned.payload))
	if p.hangs {
		s.held[planned.client] = append(s.held[planned.client], m.Multicast)
		return
	}
	s.guard(planned.client, "panics", func() { s.form.Submit(planned.client, m.Multicast) })
}

// delivers records that a replica A-delivers a message.
func (s *simulation) delivers(at order.Replica, m order.Multicast) {
	s.result.Deliveries++
	s.history.Deliver(at, m.ID)
	s.lastDelivery = s.world.Now()
	if number, known := s.byID[m.ID]; known {
		own := &s.messages[number]
		own.by = append(own.by, at)
		if !slices.Equal(own.To, m.To) || !bytes.Equal(own.Payload, m.Payload) {
			s.breaks(order.Integrity,
				fmt.Sprintf("%v submits %v to groups %v with a payload of %d bytes", m.ID.Sender,
					m.ID, own.To, len(own.Payload)),
				fmt.Sprintf("%v A-delivers it as one to groups %v with %d bytes, and they differ",
					at, m.To, len(m.Payload)))
		}
	}
	s.count(at, true)
}

// steps records that a process takes a step.
func (s *simulation) steps(at order.Replica) { s.count(at, false) }

// count counts down the armed faults that a step or an A-delivery of a process concerns.
func (s *simulation) count(at order.Replica, delivers bool) {
	for i := 0; i < len(s.armed); i++ {
		a := s.armed[i]
		if a.delivers != delivers || (a.leads && (at.Group != a.victim.Group ||
			s.oracle.leader(at.Group) != at.Server)) || (!a.leads && at != a.victim) {
			continue
		}
		if a.left--; a.left <= 0 {
			s.striking = append(s.striking, a.fault)
			s.armed = slices.Delete(s.armed, i, i+1)
			i--
		}
	}
}

// settle makes everything whole: it resumes processes that hang for a while, mends wires, and makes
// oracles agree on a live leader. Faults that still wait for steps do not strike any more.
func (s *simulation) settle() {
	s.armed = nil
	s.mend()
	for number := range s.world.processes {
		if p := &s.world.processes[number]; p.hangs && !s.gone(p.name) {
			s.resume(p.name)
		}
	}
	s.oracle.settle(s)
	s.calm = s.world.Now()
	s.world.trace.Say(s.calm, "from here on nothing goes wrong")
	s.look()
}

// look ends the run when all due messages are A-delivered and nothing happens any more, or when too
// much time has passed.
func (s *simulation) look() {
	now := s.world.Now()
	switch {
	case s.result.Overwhelmed:
		s.done = now > s.calm+overwhelmedFor
	case now > s.calm+settleMax:
		s.done = true
	default:
		s.done = now > max(s.calm, s.lastDelivery)+quiet && s.missing() == nil
	}
	if !s.done {
		s.stage.network.After(lookEvery, s.look)
	}
}

// missing returns a due message that some replica lacks, or nil.
func (s *simulation) missing() *message {
	for i := range s.messages {
		m := &s.messages[i]
		if len(m.by) == 0 && s.gone(m.ID.Sender) {
			continue
		}
		for _, group := range m.To {
			for _, member := range s.plan.deployment.Members(group) {
				if !s.gone(member) && !slices.Contains(m.by, member) {
					return m
				}
			}
		}
	}
	return nil
}

// gone reports whether a process crashed, or hangs for good.
func (s *simulation) gone(process order.Replica) bool {
	return slices.Contains(s.result.Crashed, process)
}

// end judges the run.
func (s *simulation) end() (Result, error) {
	r := &s.result
	r.Seed, r.Plan, r.Messages, r.Elapsed = s.options.Seed, s.plan.String(), len(s.messages),
		s.world.Now()
	r.Groups = s.plan.deployment.Groups()
	r.Replicas = len(s.world.processes) - s.plan.deployment.Clients
	moment := order.AtRest
	if r.Overwhelmed || s.broken != nil {
		moment = order.UnderWay
	}
	r.Violations = append(s.broken, s.history.Judge(moment)...)
	if m := s.missing(); m != nil && moment == order.AtRest {
		r.Violations = append(r.Violations, s.standstill(m))
	}
	for _, v := range r.Violations {
		s.world.trace.Say(r.Elapsed, "%v", v)
	}
	s.world.trace.Note(r.Elapsed, uint64(r.Events))
	r.Hash = s.world.trace.Hash()
	return *r, s.world.trace.Close()
}

// standstill describes the state of the processes when a message is missing.
func (s *simulation) standstill(m *message) *order.Violation {
	evidence := []string{fmt.Sprintf("%v after the last fault %v to groups %v is not everywhere",
		s.world.Now()-s.calm, m.ID, m.To)}
	const shown = 12
	for _, process := range s.plan.deployment.Processes() {
		concerned := process == m.ID.Sender || process.Group != order.Clients
		if !concerned || s.gone(process) || len(evidence) > shown {
			continue
		}
		s.guard(process, "panics as it describes itself", func() {
			evidence = append(evidence, fmt.Sprintf("%v: %s", process, s.form.Describe(process)))
		})
	}
	return &order.Violation{Property: Progress, Evidence: evidence}
}
