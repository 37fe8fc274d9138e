package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/trains"
)

// simPlants are the engines' bugs that --plant accepts. It also accepts interleave.Faults,
// turn.Faults, sim.Plants and, for rings, simRingPlants.
var simPlants = append([]allconcur.Fault{
	allconcur.FaultDroppedForward, allconcur.FaultEarlyDelivery, allconcur.FaultPrunedTooSoon,
	allconcur.FaultNoForwardBackward,
	allconcur.FaultToleratedNotMajority, allconcur.FaultSetsIgnored, allconcur.FaultStaleEon,
	allconcur.FaultRevokeWrongSequence, allconcur.FaultSkipAfterDecided,
}, allconcur.PromptFaults()...)

// simRingPlants returns the bugs of --engine trains: all but the one that the life of a shard makes
// up for.
func simRingPlants() []trains.Fault {
	return slices.DeleteFunc(trains.Faults(), func(fault trains.Fault) bool {
		return fault == trains.FaultLastRoundShort
	})
}

// simLedPlants returns the bugs of --engine dare that the life of a shard shows, besides those of
// the life around it (isOfLogs). `ledgerd sim multicast` and tests of package dare show the others.
func simLedPlants() []dare.Fault {
	return []dare.Fault{dare.FaultLateNeverGranted, dare.FaultVoteWithoutCheck,
		dare.FaultTailBeforeEntries, dare.FaultZombieVotes, dare.FaultLogKept,
		dare.FaultFreezeKeepsLog}
}

// isOfLogs reports whether a bug shows only where a generation goes on from the logs of DARE.
func isOfLogs(plant sim.Plant) bool {
	return plant == sim.PlantTailByLength || plant == sim.PlantTailOfMinority
}

// takesPerfect reports whether a run of a ring is one under a perfect detector unless --detector is
// given: only servers crash, and the bug, if there is one, shows there.
func takesPerfect(faults string, group *sim.Group) bool {
	switch group.TrainsFault {
	case trains.FaultSuspicionBelieved, trains.FaultSuspicionIgnored, trains.FaultVotesShort:
		return false
	}
	return group.Plant == sim.PlantNone && !group.EngineChanges && faults == sim.FaultCrash.String()
}

// simPlantNames returns the names that --plant accepts.
func simPlantNames() []string {
	var names []string
	for _, fault := range simPlants {
		names = append(names, fault.String())
	}
	for _, fault := range interleave.Faults() {
		names = append(names, fault.String())
	}
	for _, fault := range turn.Faults() {
		names = append(names, fault.String())
	}
	for _, plant := range sim.Plants() {
		names = append(names, plant.String())
	}
	for _, fault := range simRingPlants() {
		names = append(names, fault.String())
	}
	for _, fault := range simLedPlants() {
		names = append(names, fault.String())
	}
	return names
}

// simDetectors are the detectors that --detector accepts.
var simDetectors = []allconcur.Detector{allconcur.DetectorEventual, allconcur.DetectorPerfect,
	allconcur.DetectorEventualPaper}

// simDetectorNames returns their names.
func simDetectorNames() []string {
	var names []string
	for _, detector := range simDetectors {
		names = append(names, detector.String())
	}
	return names
}

// simOptions are the flags of ledgerd sim check.
type simOptions struct {
	engine   string
	servers  int
	seeds    int
	seed     uint64
	crashes  int
	rounds   int
	plant    string
	faults   string
	detector string
	alone    bool
	records  bool
	prompt   bool
	full     bool
	changes  bool
	inFlight int
	trains   int
	tails    bool
	trace    bool
	json     bool
}

// simReport is what ledgerd sim check --json prints.
type simReport struct {
	Engine    string `json:"engine"`
	Servers   int    `json:"servers"`
	Seeds     int    `json:"seeds"`
	FirstSeed uint64 `json:"first_seed"`
	Plant     string `json:"plant,omitempty"`
	LogRounds bool   `json:"log_rounds,omitempty"`
	Prompt    bool   `json:"prompt,omitempty"`
	// FullRounds says that all members that are not missing take part in each round of DARE.
	FullRounds bool `json:"full_rounds,omitempty"`
	// EngineChanges says that the operator changed the engine.
	EngineChanges bool   `json:"engine_changes,omitempty"`
	InFlight      int    `json:"in_flight"`
	Faults        string `json:"faults"`
	Detector      string `json:"detector"`
	Passed        int    `json:"passed"`
	Failed        int    `json:"failed"`
	Rounds        int    `json:"rounds"`
	Crashes       int    `json:"crashes"`
	// Disturbances counts the faults other than crashes. Runs counts the runs of engines that
	// delivered something, Generations the decisions that began them.
	Disturbances int          `json:"disturbances"`
	Runs         int          `json:"runs"`
	Generations  int          `json:"generations"`
	Events       int          `json:"events"`
	Seconds      float64      `json:"seconds"`
	Failures     []simFailure `json:"failures"`
}

// simFailure is one failing seed in a report.
type simFailure struct {
	Seed     uint64   `json:"seed"`
	Property string   `json:"property"`
	Evidence []string `json:"evidence"`
	Schedule string   `json:"schedule"`
	Replay   string   `json:"replay"`
}

// newSimCommand returns the `ledgerd sim` command.
func newSimCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "sim",
		Short: "Run the engines in a simulator with faults, and judge what they deliver",
		Long: `Run the engines in a simulator with faults, and judge what they deliver.

The simulator runs a whole shard in one process and in virtual time. It runs the
same engines as nodes do, over a simulated network, with delays and crashes that
follow from a number, the seed. The same seed gives the same run, event for event,
on every machine.`,
		Example: `  ledgerd sim check --engine allconcur+ --servers 8 --seeds 1000`,
	}
	return newGroupCommand(command, newSimBookCommand(), newSimCheckCommand(),
		newSimConformanceCommand(),
		newSimFigureCommand(), newSimMulticastCommand(), newSimSearchCommand())
}

// newSimCheckCommand returns the `ledgerd sim check` command.
func newSimCheckCommand() *cobra.Command {
	var options simOptions
	command := &cobra.Command{
		Use:   "check --engine E --servers N --seeds K",
		Short: "Look for a schedule that makes the servers disagree",
		Long: `Look for a schedule that makes the servers disagree.

Each seed is one run. Users submit messages in bursts. The run's network decides
how long frames take, and links overtake each other. The seed draws faults of the
kinds that --faults lists:

  crash      processes end at the worst of moments, in the middle of sending to
             several others, say, or all at once, and again and again; most come
             back with nothing but their disk
  suspect    working servers are suspected for a while, by one, many or all
  partition  links are cut, of one server or between parts, in both directions or
             in one; frames wait, and arrive in order when the cut heals
  pause      servers stand still, and then process everything that came meanwhile
  join       new servers become members
  leave      members leave for good
  power      servers lose their power, also all at once: unsynced writes are
             gone, and the end of the log may be torn or damaged
  disk       disks are full for a while, and lose the data, the promises or
             both; old disks and older copies come back; the disks of a
             majority remember
  break      connections of working servers break, and lose what is under way
  clock      clocks are moved by up to decades, gain or lose, or jump back and
             forth, while their server runs or is down; mostly those of fewer
             than a majority

Then the faults end. Every server that has not crashed for good or left has to
be back in the group, with a disk that counts. Everything that its users
submitted has to be delivered, and be durable at all servers, and rounds have to
be unreliable again. The run fails if

  integrity         a server delivers a message that was never sent, or twice
  set agreement     two servers deliver different contents for one round, ever,
                    in whatever group
  total order       two servers deliver two messages in opposite orders
  prefix order, acyclic order
                    the orders at the servers do not fit together
  validity          a message of a working server is not delivered
  agreement         one server delivers a message and a working one does not
  uniform agreement the same, even if the first one crashed later
  accuracy          a perfect detector's group removes a working server
  tolerance         less than a majority goes on, or the members change twice in
                    a run
  freeze            a server that promised the next generation delivers in an
                    older one
  durable           a block that was known to be durable is set aside, or missing
                    from a later generation
  ordered           a delivered block is given up though a majority remembers it
  stored            a block that was stored is gone after a restart
  persistence       a server announces something that its disk does not hold
  time              a block is older than its parent, or more than 10 s younger
                    without the clocks of a majority; servers differ about its
                    time; while most clocks are right, it is dated more than 12 s
                    ahead (a right clock is off by 2 s at most), or not dated
                    right again at rest
  reason            a server that does not order gives no reason
  progress          it does not come to rest, or not all are back
  contract, round form
                    an engine panics or breaks its interface's rules, or a
                    round is not one that its group can deliver

The default detector is the one of production, eventually perfect: it makes
mistakes and corrects them. Groups change in order, by eons, and by generations
when they cannot go on. With --detector perfect, which needs --faults crash, a
run is a single run of the engines. --detector eventual-paper selects the
published protocol, without generations: only safety is checked, and it can fork.

For a failing seed, the command prints the property, the shortest evidence and the
command that replays the run. It reduces the run to few kinds of fault, crashes
and messages, as long as it still fails. The exit status is then 1.

With more --crashes than a minority (than the group tolerates, with a perfect
detector), the servers may stop, but they may not disagree. With --lose-tails, a
crash also loses frames that the server had already handed to the network, as a
power failure does; with a perfect detector, the last deliveries of the crashed
server then do not count.

With --log-rounds, servers may sync rounds before they are ordered, as nodes with
[ordering] log_rounds do; the seed draws which servers.

With --prompt, servers A-deliver the messages of a small complete round as soon as
every member is known to hold them (docs/design/prompt.md).

With --full-rounds, rounds of dare have a message of each member that is not
missing, as in a book of several shards.

With --engine-changes, the operator changes the engine while the shard lives, as
ledgerd cluster engine does, when and to which one the seed draws.

With --in-flight K, servers have K rounds in flight: K engines side by side, whose
rounds are delivered in turns (docs/design/interleaving.md). It uses a perfect
detector.

With --engine trains, the servers form a ring that --trains T trains go round
(TRAINS). With crashes only, it uses a perfect detector unless --detector is
given: all servers but one may crash. With other --faults or --detector eventual,
a ring stands still with each crash, and the next generation begins with the
servers' votes.

With --engine dare, a leader writes its log into the memory of the others, which
is simulated too. Cut links hold its writes back, and servers that pause have
memory that others still write. It needs the default detector. Other leaders are
elected within a run, and the next generation goes on from the frozen logs.

--plant puts a bug into every server, to see that it is found. dropped-forward,
early-delivery and pruned-too-soon use a perfect detector unless --detector is
given, because votes make up for some of them. revoke-wrong-sequence uses
--engine-alone, because generations make up for it (the standstill takes several
hundred seeds). tail-by-length and tail-of-minority need --faults partition, and
freeze-keeps-log needs --faults partition,suspect and an odd number of servers,
5 or more (all three with --engine dare).`,
		Example: `  # A thousand schedules for a shard of 8 nodes
  ledgerd sim check --engine allconcur+ --servers 8 --seeds 1000

  # Everything that can happen to a shard of 5
  ledgerd sim check --engine allconcur+ --servers 5 --seeds 1000 \
                    --faults crash,suspect,partition,join,leave,pause

  # One run, event by event
  ledgerd sim check --engine allconcur --servers 3 --seeds 1 --seed 42 --trace

  # Does it find a bug? (exit status 1: yes)
  ledgerd sim check --engine allconcur --servers 6 --seeds 100 --plant pruned-too-soon

  # A ring of 5 servers and 8 trains, of which 4 servers may crash
  ledgerd sim check --engine trains --servers 5 --trains 8 --seeds 1000

  # Everything that can happen to a ring of 5
  ledgerd sim check --engine trains --servers 5 --seeds 1000 --faults all

  # Everything that can happen to a leader and its 4 followers
  ledgerd sim check --engine dare --servers 5 --seeds 1000 --faults all

  # More crashes than 5 servers tolerate, for a script
  ledgerd sim check --engine allconcur+ --servers 5 --seeds 500 --crashes 4 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if options.trace && !command.Flags().Changed("seeds") {
				options.seeds = 1
			}
			group, run, err := options.build(command.Flags().Changed("crashes"),
				command.Flags().Changed("detector"))
			if err != nil {
				return asUsage(err)
			}
			// From here on the flags are valid, and a failure is the engines'.
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr(),
				group, run)
		},
	}
	flags := command.Flags()
	addEngineFlag(command, &options.engine, simEngines())
	flags.IntVar(&options.servers, "servers", 0, "number of servers (required)")
	flags.IntVar(&options.seeds, "seeds", 100, "number of seeds to run")
	flags.Uint64Var(&options.seed, "seed", 1, "the first seed")
	flags.StringVar(&options.faults, "faults", "crash",
		"kinds of fault, some of "+strings.Join(sim.FaultNames(), ",")+"; or all, or none")
	flags.StringVar(&options.detector, "detector", allconcur.DetectorEventual.String(),
		"failure detector: "+strings.Join(simDetectorNames(), ", "))
	flags.BoolVar(&options.alone, "engine-alone", false,
		"one run of the engines without generations, single links suspected again and again; "+
			"needs --faults suspect")
	flags.BoolVar(&options.records, "log-rounds", false,
		"let the seed draw servers that sync complete rounds before they are ordered")
	flags.BoolVar(&options.prompt, "prompt", false,
		"deliver small rounds promptly; needs allconcur+ and an eventual detector")
	flags.BoolVar(&options.full, "full-rounds", false,
		"let all members that are not missing take part in each round, as in a book of several "+
			"shards; for --engine dare")
	flags.BoolVar(&options.changes, "engine-changes", false,
		"let the operator change the engine; needs an eventual detector")
	flags.IntVar(&options.inFlight, "in-flight", 1,
		fmt.Sprintf("rounds in flight, up to %d; more than 1 need a perfect detector",
			interleave.InFlightMax))
	flags.IntVar(&options.trains, "trains", 0,
		fmt.Sprintf("trains of a ring, up to %d; for --engine trains (default %d)",
			trains.TrainsMax, trains.TrainsDefault))
	flags.IntVar(&options.crashes, "crashes", 0,
		"the most servers that crash in a run (default a minority, or as many as the group "+
			"tolerates with a perfect detector)")
	flags.IntVar(&options.rounds, "rounds", 0,
		"the most messages that a server submits in a run (default left to the seed, up to 12)")
	flags.BoolVar(&options.tails, "lose-tails", false, "let a crash lose frames that are under way")
	flags.StringVar(&options.plant, "plant", "", "plant a bug: "+strings.Join(simPlantNames(),
		", "))
	flags.BoolVar(&options.trace, "trace", false,
		"show the run event by event; needs a single seed")
	addJSONFlag(command, &options.json)
	for name, values := range map[string][]string{
		"plant":    simPlantNames(),
		"faults":   append(sim.FaultNames(), "all", "none"),
		"detector": simDetectorNames(),
	} {
		completeFlag(command, name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// build converts the flags to the options of a run.
func (o *simOptions) build(crashesGiven, detectorGiven bool) (sim.Group, sim.Options, error) {
	group := sim.Group{Engine: o.engine, Servers: o.servers}
	refuse := func(format string, arguments ...any) (sim.Group, sim.Options, error) {
		return sim.Group{}, sim.Options{}, fmt.Errorf(format, arguments...)
	}
	switch {
	case !simEngines().Has(o.engine):
		return refuse("--engine %q is unknown: use %v", o.engine, simEngines())
	case o.trains != 0 && o.engine != trains.EngineName:
		return refuse("--trains is for rings: use --engine trains, or leave it out")
	case o.trains < 0 || o.trains > trains.TrainsMax:
		return refuse("--trains is %d: let 1 to %d go round", o.trains, trains.TrainsMax)
	case o.servers < 1:
		return refuse(
			"--servers is %d: say how many servers the group has, for example --servers 8",
			o.servers)
	case o.servers > sim.ServersMax:
		return refuse("--servers is %d: the simulator takes up to %d, use fewer --servers",
			o.servers, sim.ServersMax)
	case o.seeds < 1:
		return refuse("--seeds is %d: run at least one, for example --seeds 100", o.seeds)
	case o.seed > math.MaxUint64-uint64(o.seeds):
		return refuse("--seed %d leaves no room for %d seeds after it: use a smaller --seed",
			o.seed, o.seeds)
	case crashesGiven && (o.crashes < 0 || o.crashes > o.servers):
		return refuse("--crashes is %d: of %d servers, let 0 to %d crash", o.crashes, o.servers,
			o.servers)
	case o.rounds < 0:
		return refuse("--rounds is %d: let a server submit at least one message, for example "+
			"--rounds 10", o.rounds)
	case o.inFlight < 1 || o.inFlight > interleave.InFlightMax:
		return refuse("--in-flight is %d: have 1 to %d rounds in flight", o.inFlight,
			interleave.InFlightMax)
	case o.trace && o.seeds > 1:
		return refuse("--trace shows one run, not %d: use --seeds 1 and say which with --seed",
			o.seeds)
	case o.trace && o.json:
		return refuse("--trace and --json both want standard output: leave one out")
	}
	for _, fault := range simPlants {
		if fault.String() == o.plant {
			group.Fault = fault
		}
	}
	for _, fault := range interleave.Faults() {
		if fault.String() == o.plant {
			group.InterleaveFault = fault
		}
	}
	for _, fault := range turn.Faults() {
		if fault.String() == o.plant {
			group.TurnFault = fault
		}
	}
	for _, plant := range sim.Plants() {
		if plant.String() == o.plant {
			group.Plant = plant
		}
	}
	for _, fault := range simRingPlants() {
		if fault.String() == o.plant {
			group.TrainsFault = fault
		}
	}
	for _, fault := range simLedPlants() {
		if fault.String() == o.plant {
			group.LedFault = fault
		}
	}
	ofLed := group.LedFault != dare.FaultNone || isOfLogs(group.Plant)
	led := o.engine == dare.EngineName
	switch ofRing, ring := group.TrainsFault != trains.FaultNone, o.engine == trains.EngineName; {
	case o.plant != "" && group.Fault == allconcur.FaultNone && group.TurnFault == turn.FaultNone &&
		group.Plant == sim.PlantNone && group.InterleaveFault == interleave.FaultNone && !ofRing &&
		!ofLed:
		return refuse("--plant %q is unknown: use one of %s", o.plant,
			strings.Join(simPlantNames(), ", "))
	case ofRing && !ring:
		return refuse("--plant %s is a bug of rings: use --engine trains", o.plant)
	case ofLed && !led && !o.changes:
		return refuse("--plant %s is a bug of engines with a leader: use --engine dare", o.plant)
	case led && o.plant != "" && !ofLed && group.Plant == sim.PlantNone:
		return refuse("--plant %s is no bug of engines with a leader: use another --engine",
			o.plant)
	case ring && o.plant != "" && !ofRing && group.TurnFault == turn.FaultNone &&
		group.Plant == sim.PlantNone:
		return refuse("--plant %s is no bug of rings: use another --engine", o.plant)
	}
	group.Trains = o.trains
	if group.Fault == allconcur.FaultRevokeWrongSequence && o.faults == sim.FaultCrash.String() &&
		!detectorGiven {
		o.alone, o.faults = true, sim.FaultSuspect.String() // generations make up for the bug
	}
	group.EngineAlone, group.Records, group.Prompt = o.alone, o.records, o.prompt
	group.EngineChanges, group.FullRounds = o.changes, o.full
	if group.InterleaveFault != interleave.FaultNone {
		o.inFlight = max(o.inFlight, interleave.FaultsInFlight)
	}
	group.InFlight = o.inFlight
	if (o.inFlight > 1 || o.engine == trains.EngineName && takesPerfect(o.faults, &group) ||
		group.Fault != allconcur.FaultNone && group.Fault <= allconcur.FaultPrunedTooSoon) &&
		!detectorGiven {
		o.detector = allconcur.DetectorPerfect.String()
	}
	at := slices.Index(simDetectorNames(), o.detector)
	if at < 0 {
		return refuse("--detector %q is unknown: use one of %s", o.detector,
			strings.Join(simDetectorNames(), ", "))
	}
	group.Detector = simDetectors[at]
	faults, err := sim.ParseFaults(o.faults)
	if err != nil {
		return refuse("--faults: %w", err)
	}
	group.Faults = faults
	run, err := group.Options()
	if err != nil {
		return refuse("--faults and --detector: %w", err)
	}
	run.Rounds, run.LoseTails = o.rounds, o.tails
	if crashesGiven {
		run.Crashes = o.crashes
	}
	return group, run, nil
}

// run runs the seeds and prints the results.
func (o simOptions) run(ctx context.Context, out, progress io.Writer, group sim.Group,
	run sim.Options) error {
	started := time.Now()
	report := simReport{Engine: o.engine, Servers: o.servers, FirstSeed: o.seed, Plant: o.plant,
		LogRounds: o.records, Prompt: o.prompt, FullRounds: o.full,
		EngineChanges: group.ChangesEngine(),
		InFlight:      o.inFlight, Faults: run.Faults.String(), Detector: o.detector,
		Failures: []simFailure{}}
	take := func(r sim.Result) int {
		report.Seeds++
		report.Rounds += r.Rounds
		report.Crashes += len(r.Crashed)
		report.Events += r.Events
		report.Disturbances += r.Disturbances
		report.Runs += r.Runs
		report.Generations += r.Generations
		if len(r.Violations) == 0 {
			report.Passed++
			return report.Failed
		}
		report.Failed++
		if len(report.Failures) < simFailuresShown {
			report.Failures = append(report.Failures, o.failure(run, r))
		}
		return report.Failed
	}
	seeds := seedRange{first: o.seed, count: o.seeds, traced: o.trace}
	traced := run
	if o.trace {
		traced.Trace = out
	}
	if err := runSeeds(ctx, progress, seeds, traced.RunSeed, take); err != nil {
		return err
	}
	interrupted := ctx.Err() != nil
	report.Seconds = time.Since(started).Seconds()
	if err := o.print(out, group, report); err != nil {
		return err
	}
	return seeds.err(report.Seeds, report.Failed, interrupted)
}

// failure describes a failing seed by the smallest run found that fails in the same way.
func (o simOptions) failure(run sim.Options, r sim.Result) simFailure {
	run.Seed = r.Seed
	smaller, r := sim.Shrink(run, r)
	replay := fmt.Sprintf("ledgerd sim check --engine %s --servers %d --seeds 1 --seed %d",
		o.engine, o.servers, r.Seed)
	if smaller.Faults != sim.FaultCrash {
		replay += " --faults " + smaller.Faults.String()
	}
	if o.detector != allconcur.DetectorEventual.String() || o.engine == trains.EngineName {
		replay += " --detector " + o.detector
	}
	if o.alone {
		replay += " --engine-alone"
	}
	if smaller.Crashes != sim.AsTolerated && smaller.Faults.Has(sim.FaultCrash) {
		replay += fmt.Sprintf(" --crashes %d", smaller.Crashes)
	}
	if smaller.Rounds != 0 {
		replay += fmt.Sprintf(" --rounds %d", smaller.Rounds)
	}
	if o.records {
		replay += " --log-rounds"
	}
	if o.prompt {
		replay += " --prompt"
	}
	if o.full {
		replay += " --full-rounds"
	}
	if o.changes {
		replay += " --engine-changes"
	}
	if o.inFlight > 1 {
		replay += fmt.Sprintf(" --in-flight %d", o.inFlight)
	}
	if o.trains != 0 {
		replay += fmt.Sprintf(" --trains %d", o.trains)
	}
	if o.tails {
		replay += " --lose-tails"
	}
	if o.plant != "" {
		replay += " --plant " + o.plant
	}
	return simFailure{
		Seed: r.Seed, Property: string(r.Violations[0].Property),
		Evidence: r.Violations[0].Evidence, Schedule: r.Schedule, Replay: replay + " --trace",
	}
}

// print writes a report.
func (o simOptions) print(out io.Writer, group sim.Group, report simReport) error {
	if o.json {
		return json.NewEncoder(out).Encode(report)
	}
	var failed error
	say := func(format string, arguments ...any) {
		if _, err := fmt.Fprintf(out, format, arguments...); err != nil && failed == nil {
			failed = err
		}
	}
	for _, failure := range report.Failures {
		say("seed %d: %s is broken\n", failure.Seed, failure.Property)
		for _, line := range failure.Evidence {
			say("  %s\n", line)
		}
		say("  schedule: %s\n  replay:   %s\n\n", failure.Schedule, failure.Replay)
	}
	if more := report.Failed - len(report.Failures); more > 0 {
		say("and %d more failing seeds\n\n", more)
	}
	last := report.FirstSeed + uint64(max(report.Seeds, 1)) - 1
	say("%s, %d servers, seeds %d to %d: %d passed, %d failed\n", group.Engine, report.Servers,
		report.FirstSeed, last, report.Passed, report.Failed)
	say("%d rounds, %d crashes, %d other faults and %d events", report.Rounds, report.Crashes,
		report.Disturbances, report.Events)
	if report.Runs > 0 {
		say(", %d runs of engines in %d generations", report.Runs, report.Generations)
	}
	say(" in %.1f s, %.0f seeds a second\n", report.Seconds,
		float64(report.Seeds)/max(report.Seconds, 0.001))
	return failed
}
