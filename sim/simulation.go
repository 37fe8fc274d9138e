package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/sim/trace"
)

// ServersMax is the maximum number of servers of a run.
const ServersMax = 1024

// AsTolerated, as Options.Crashes, plans as many crashes as the group tolerates.
const AsTolerated = -1

// Options describe a run. The same options give the same run, event for event.
type Options struct {
	// Servers is the size of the group, 1 to ServersMax.
	Servers int
	// Seed draws everything else: the network, the workload, the crashes, and the speed of the
	// detector and the drivers.
	Seed uint64
	// New returns the engine of a server.
	New func(self order.ServerID) (order.Broadcaster, error)
	// Reliable is the reliable digraph, which determines the servers that detect a failure. Its
	// order is Servers.
	Reliable *digraph.Digraph
	// NonUniform declares that the engines promise non-uniform broadcast only.
	NonUniform bool
	// LoseTails makes a crash lose the last frames that the server has put on each link, as many as
	// the seed draws, like a killed process or a machine without power. That is outside of the
	// papers' model: the server's last A-deliveries may be lost with it, so only non-uniform
	// broadcast is required.
	LoseTails bool
	// Faults are the kinds of fault that the seed may draw. Without FaultCrash, Crashes is 0.
	// Engines that New returns support crashes only.
	Faults Faults
	// Detector is the class of detector that the engines assume. Under any other than
	// allconcur.DetectorPerfect, the shard lives on past the runs of its engines, with generations,
	// eons, new and returning members; see the package comment. This requires options that a Group
	// returned.
	Detector allconcur.Detector
	// Crashes is the maximum number of planned crashes, up to Servers: AsTolerated, none (0), or
	// more than the group tolerates. In the last case only safety is required.
	Crashes int
	// Rounds is the maximum number of payloads that a server submits. 0 lets the seed choose.
	Rounds int
	// PayloadMax is the maximum size of a payload in bytes. 0 is 4,096, the default of a Group.
	PayloadMax int
	// Trace receives the events, one a line, unless it is nil.
	Trace io.Writer
	// Describe, unless it is nil, describes a frame in the trace.
	Describe func(frame []byte) string

	// script, unless it is nil, replaces the disturbances that a seed draws.
	script    []disturbance
	tolerated int
	group     Group
	engine    engineRow
	// engines are those that the operator may choose, by their places in engineRows.
	engines []int
	// reliable are the reliable digraphs of groups, by engine and size, as many as a run may need.
	reliable map[string][]*digraph.Digraph
}

// Result is the result of a run.
type Result struct {
	Seed uint64
	// Violations are the broken properties that the oracles found, safety first. It is empty if the
	// run passed.
	Violations []*order.Violation
	// Schedule describes the run on a line: the network's weather and the plan of the crashes.
	Schedule string
	// Crashed are the servers that crashed, ascending.
	Crashed []order.ServerID
	// Rounds is how many rounds the most advanced server A-delivered.
	Rounds int
	// Disturbances counts the faults other than crashes. Runs counts the engines' runs that
	// delivered something. Generations is the last generation.
	Disturbances, Runs, Generations int
	// Events counts the events, and Elapsed is the virtual time of the run.
	Events  int
	Elapsed Instant
	// Hash covers all events. Two runs with the same hash went alike.
	Hash uint64
}

// ErrOptions is returned for options that describe no run.
var ErrOptions = errors.New("sim: bad options")

// simulation is one run.
type simulation struct {
	options   Options
	now       Instant
	queue     queue
	events    int
	network   *network
	detector  detector
	adversary *rand.Rand
	plan      []crash
	servers   []server
	// allIDs lists the servers of a run of engines without life.
	allIDs  []order.ServerID
	crashed int
	// current is the server whose event is being handled.
	current order.ServerID
	// lingerFor is how long a driver lingers, and laziness how long it may let inputs gather.
	lingerFor, laziness Instant
	// faultsEnd is the end of the safety phase: no crash begins and nothing is submitted after it.
	// timeUp is the end of the liveness phase.
	faultsEnd, timeUp Instant
	history           *order.RoundHistory
	broken            []*order.Violation
	trace             *trace.Trace[Instant]
	// life is set if the shard lives on. done reports that it has come to rest.
	life *life
	done bool
}

// The streams of random numbers that a seed gives, one for each purpose, so that fewer crashes do
// not change the network.
const (
	networkStream uint64 = iota << 32
	workloadStream
	adversaryStream
	detectorStream
	driverStream
	disturbanceStream
	diskStream
	clockStream
)

// stream returns one of a seed's streams.
func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, number)) }

// traceColumn is the width of the instants in a trace.
const traceColumn = 14

// eventsMax bounds the events of a run, for each submission and crash and for each link that they
// may have to travel.
const eventsMax = 2_000

// Check runs one schedule and judges it. It returns an error if there was no run (ErrOptions, or an
// engine that cannot be made), or if the trace could not be written. Violations by the engines are
// in the result.
func Check(options Options) (Result, error) {
	s, err := newSimulation(options)
	if err != nil {
		return Result{}, err
	}
	s.run()
	s.life.forgetMemory()
	result := s.result()
	for _, v := range result.Violations {
		s.trace.Say(s.now, "%v", v)
	}
	if err := s.trace.Close(); err != nil {
		return result, fmt.Errorf("sim: write the trace: %w", err)
	}
	return result, nil
}

// RunSeed is Check with another seed: a run of a sweep. Options.Trace must be nil if several seeds
// run at once.
func (o Options) RunSeed(seed uint64) (Result, error) {
	o.Seed = seed
	return Check(o)
}

func newSimulation(options Options) (*simulation, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	s := &simulation{
		options: options, network: newNetwork(options.Seed, options.slots()),
		detector: newPerfect(options.Seed, options.successors),
		servers:  make([]server, options.Servers), history: order.NewRoundHistory(options.Servers),
		trace: trace.New[Instant](options.Trace, traceColumn),
	}
	if options.NonUniform || options.LoseTails {
		s.history.NonUniform()
	}
	if options.lives() {
		s.newLife()
		s.schedule()
		return s, nil
	}
	for id := range s.servers {
		s.allIDs = append(s.allIDs, order.ServerID(id))
		engine, err := options.New(order.ServerID(id))
		if err != nil {
			return nil, fmt.Errorf("sim: make the engine of server %d: %w", id, err)
		}
		s.servers[id].engine = engine
		s.servers[id].turn = turn.New(turn.Config{
			Engine: engine, Self: order.ServerID(id), Servers: options.Servers,
			Fault: options.group.TurnFault,
		})
	}
	s.schedule()
	return s, nil
}

// complete checks the options and fills in the fields that follow from them.
func (o *Options) complete() error {
	switch {
	case o.Servers < 1 || o.Servers > ServersMax:
		return fmt.Errorf("%w: %d servers, want 1 to %d", ErrOptions, o.Servers, ServersMax)
	case o.New == nil || o.Reliable == nil:
		return fmt.Errorf("%w: New or Reliable is missing", ErrOptions)
	case o.Reliable.Order() != o.Servers:
		return fmt.Errorf("%w: a reliable digraph of %d for %d servers", ErrOptions,
			o.Reliable.Order(), o.Servers)
	case o.Crashes < AsTolerated || o.Crashes > o.Servers:
		return fmt.Errorf("%w: %d crashes among %d servers", ErrOptions, o.Crashes, o.Servers)
	case o.Rounds < 0 || o.PayloadMax < 0 || o.PayloadMax > 0 && o.PayloadMax < payloadMin:
		return fmt.Errorf("%w: negative rounds, or payloads under %d bytes", ErrOptions, payloadMin)
	}
	if o.PayloadMax == 0 {
		o.PayloadMax = payloadMaxDefault
	}
	o.tolerated = digraph.Tolerated(o.Reliable)
	if o.engine.toOne {
		o.tolerated = o.Servers - 1
	}
	if o.Crashes == AsTolerated {
		o.Crashes = o.tolerated
		if o.lives() {
			o.Crashes = (o.Servers - 1) / 2
		}
	}
	if o.group.Engine != "" && !o.Faults.Has(FaultCrash) {
		o.Crashes = 0
	}
	return nil
}

// joinersMax is the maximum number of servers that join in a run.
const joinersMax = 2

// lives reports whether the shard lives on past the run of an engine.
func (o *Options) lives() bool {
	return o.group.Engine != "" && o.Detector != allconcur.DetectorPerfect
}

// slots returns the maximum number of servers in a run.
func (o *Options) slots() int {
	if o.Faults.Has(FaultJoin) {
		return o.Servers + joinersMax
	}
	return o.Servers
}

// successors returns a server's successors in the reliable digraph.
func (o *Options) successors(server order.ServerID) []order.ServerID {
	var all []order.ServerID
	for _, successor := range o.Reliable.Successors(int(server)) {
		all = append(all, order.ServerID(successor))
	}
	return all
}

// schedule draws the run.
func (s *simulation) schedule() {
	driver := stream(s.options.Seed, driverStream)
	s.lingerFor = between(100*microsecond, 10*millisecond)(driver)
	if driver.IntN(2) == 0 {
		s.laziness = between(10*microsecond, 1*millisecond)(driver)
	}
	submissions := workload(s.options.Seed, s.options.Servers, s.options.Rounds,
		s.options.PayloadMax)
	span := Instant(0)
	for _, submitted := range submissions {
		if s.life != nil {
			submitted.at = s.life.delay + submitted.at*s.life.pace
		}
		span = max(span, submitted.at)
		s.queue.push(event{at: submitted.at, kind: submission, server: submitted.server,
			frame: submitted.payload})
	}
	// Crashes are planned from a stream of their own. This stream draws what they need while they
	// happen.
	s.adversary = stream(s.options.Seed, adversaryStream+1)
	var strategy string
	s.plan, strategy = planCrashes(s.options.Seed, &s.options, span, s.options.Crashes)
	for number, c := range s.plan {
		if c.after < 0 {
			s.queue.push(event{at: c.wait, kind: arming, server: c.server, number: number})
		}
	}
	s.faultsEnd = span + 300*millisecond
	// A round takes a few broadcasts, and a broadcast at most as many hops as there are servers.
	// Slow hops are few, so this is far more than necessary.
	s.timeUp = s.faultsEnd + 10*second + Instant(len(submissions)+10)*20*s.network.slowest()
	if s.life != nil {
		s.begin(span)
		s.timeUp += s.faultsEnd + restWithin
	}
	s.trace.Say(0, "%d servers, seed %d, %s network, %s: %s", s.options.Servers, s.options.Seed,
		s.network.climate.name, strategy, s.describePlans())
}

// over reports whether a property is broken, so that the run need not go on.
func (s *simulation) over() bool { return len(s.broken) > 0 }

// run handles all events: the safety phase with submissions and crashes, and then the liveness
// phase without them, until there is rest.
func (s *simulation) run() {
	defer s.recoverPanic()
	submitted := s.queue.size()
	limit := eventsMax * (submitted + 10) * (s.options.Servers + 10)
	if s.life != nil {
		limit *= 10
	}
	for s.queue.size() > 0 && !s.over() && !s.done {
		s.moveMemory()
		e := s.queue.pop()
		s.now, s.current = e.at, e.server
		s.events++
		if s.now > s.timeUp || s.events > limit {
			s.judgeTimeUp()
			return
		}
		if s.life != nil {
			s.live(e)
			continue
		}
		s.handle(e)
	}
	if s.over() || s.done {
		return
	}
	if s.crashed > s.options.tolerated {
		s.broken = s.history.Judge(order.UnderWay)
		return
	}
	s.broken = s.history.Judge(order.AtRest)
	s.judgeProgress(false)
}

// judgeTimeUp judges a run that has not come to rest in time.
func (s *simulation) judgeTimeUp() {
	switch {
	case s.life == nil:
		s.judgeProgress(true)
	case s.life.hopeless == "" && !s.beyond() &&
		s.options.Detector != allconcur.DetectorEventualPaper:
		s.judgeRestless()
	}
}

// describePlans describes all plans on a line.
func (s *simulation) describePlans() string {
	text := describePlan(s.plan)
	if s.life != nil && len(s.life.disturbances) > 0 {
		text += "; " + describeDisturbances(s.life.disturbances)
	}
	return text
}

// handle handles one event.
func (s *simulation) handle(e event) {
	switch e.kind {
	case arrival:
		s.arrive(e)
	case suspicion:
		s.suspect(e)
	case submission:
		if v := &s.servers[e.server]; !v.crashed {
			s.trace.Note(s.now, uint64(submission), uint64(e.server))
			v.pool = append(v.pool, e.frame)
			s.actSoon(e.server)
		}
	case lingering:
		s.lingerOver(e)
	case acting:
		if v := &s.servers[e.server]; !v.crashed {
			v.acts = false
			s.act(e.server)
		}
	case arming:
		s.armCrash(e.number)
	}
}

// result summarises a run.
func (s *simulation) result() Result {
	result := Result{
		Seed: s.options.Seed, Violations: s.broken, Events: s.events, Elapsed: s.now,
		Hash:     s.trace.Hash(),
		Schedule: fmt.Sprintf("%s network; %s", s.network.climate.name, s.describePlans()),
	}
	for id := range s.servers {
		if s.life == nil {
			result.Rounds = max(result.Rounds, s.history.Rounds(order.ServerID(id)))
		}
		if s.servers[id].crashed || s.servers[id].crashes > 0 {
			result.Crashed = append(result.Crashed, order.ServerID(id))
		}
	}
	if s.life != nil {
		for _, l := range s.life.all {
			result.Rounds += len(l.rounds)
			result.Generations = max(result.Generations, int(l.generation))
		}
		result.Runs = s.life.runs
		result.Disturbances = len(s.life.disturbances)
	}
	return result
}
