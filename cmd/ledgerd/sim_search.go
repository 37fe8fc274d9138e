package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/search"
	"github.com/ledgerd/ledgerd/trains"
)

// The faults that ledgerd sim search accepts.
const (
	searchFaultCrash   = "crash"
	searchFaultSuspect = "suspect"
)

// searchOptions are the flags of ledgerd sim search.
type searchOptions struct {
	engine     string
	servers    int
	rounds     int
	faults     []string
	crashes    int
	suspicions int
	detector   string
	idle       bool
	prompt     bool
	inFlight   int
	trains     int
	eonEnds    bool
	states     int
	limit      time.Duration
	plant      string
	replay     string
	json       bool
}

// searchReport is what ledgerd sim search --json prints.
type searchReport struct {
	Engine       string            `json:"engine"`
	Servers      int               `json:"servers"`
	Rounds       int               `json:"rounds"`
	Faults       string            `json:"faults"`
	Crashes      int               `json:"crashes"`
	Suspicions   int               `json:"suspicions"`
	Detector     string            `json:"detector"`
	Prompt       bool              `json:"prompt,omitempty"`
	InFlight     int               `json:"in_flight"`
	Trains       int               `json:"trains,omitempty"`
	EonEnds      bool              `json:"eon_ends,omitempty"`
	Plant        string            `json:"plant,omitempty"`
	States       int               `json:"states"`
	Transitions  int               `json:"transitions"`
	Duplicates   int               `json:"duplicates"`
	Depth        int               `json:"depth"`
	Ends         int               `json:"ends"`
	Stalled      int               `json:"stalled"`
	Scenarios    int               `json:"scenarios"`
	ServerStates int               `json:"server_states"`
	EngineSteps  int               `json:"engine_steps"`
	Restarts     int               `json:"restarts"`
	Complete     bool              `json:"complete"`
	Bound        string            `json:"bound,omitempty"`
	Seconds      float64           `json:"seconds"`
	Rate         float64           `json:"rate"`
	Violations   []searchViolation `json:"violations"`
}

// searchViolation is a violation that a search found.
type searchViolation struct {
	Property string   `json:"property"`
	Evidence []string `json:"evidence"`
	Path     []string `json:"path"`
	Replay   string   `json:"replay"`
}

// newSimSearchCommand returns the `ledgerd sim search` command.
func newSimSearchCommand() *cobra.Command {
	var options searchOptions
	command := &cobra.Command{
		Use:   "search --engine E --servers N --rounds R",
		Short: "Look at every schedule of a small group, and prove that the servers agree",
		Long: `Look at every schedule of a small group, and prove that the servers agree.

The search visits every state that the engines of a group can reach, whatever the
order in which frames arrive and servers broadcast. Each server broadcasts a
message in each of the first --rounds rounds, at any moment, and then whatever
is needed to deliver them. With --faults crash, servers crash at any moment, also
in the middle of sending; with suspect, a server suspects another one falsely,
at any moment, and trusts it again at any later moment. The failing servers and
the false suspicions are varied, too. If the search is complete, it is a proof
for groups of this size, with this many rounds and faults.

In every state it checks

  integrity, set agreement, total order, prefix order, round form
                    as ledgerd sim check does
  contract          no assertion of an engine fails, no right frame is refused
  invariants I1 to I4, both specifications, and the RTD invariant
                    of the tracking digraphs
  invariants of rings
                    with --engine trains: trains and wagons in each server
  votes of rings    with an eventual detector: any server left shows what was
                    A-delivered
  promises          with --prompt: the promises of each majority show what was
                    A-delivered
and where nothing is left to do
  validity, agreement, uniform agreement
                    of the messages that correct servers broadcast and that any
                    server delivered
  accuracy, survival
                    no server is removed or halts without a reason

A violation ends the search: the property, the evidence and the schedule are
printed, with the command that replays it, and the exit status is 1.

Three servers with one round, a crash and a false suspicion are complete within
seconds, and two rounds take several times as long. For four servers and more a
search is rarely complete: four with a crash and a suspicion have more than
6,000,000 states. Then it looks at whole runs from many different states until
--states or --for ends it. That proves nothing, but may find something. The report
says so; with --json, "complete" is then false and "bound" is states or time, and
the exit status is 0 all the same. If interrupted, it prints the results so far.

With --in-flight K, a server has K engines with a round each in flight, and
--rounds counts the rounds of all of them (docs/design/interleaving.md). Two in
flight have far more schedules than one.

With --engine trains, the servers form a ring that --trains T trains go round.
With a perfect detector all servers but one may crash. With an eventual one the
ring stands still with the first crash, and the servers' votes show what a new
generation begins with. --eon-ends makes the first message a change of the group,
with which the ring's eon ends.

--plant puts a bug into every engine, to see that it is found.`,
		Example: `  # Three servers, two rounds, every crash: the default engine
  ledgerd sim search --engine allconcur+ --servers 3 --rounds 2

  # One false suspicion and one crash, for a script
  ledgerd sim search --engine allconcur+ --servers 3 --rounds 1 --faults crash,suspect --json

  # Does it find a bug? (exit status 1: yes)
  ledgerd sim search --engine allconcur --servers 3 --detector perfect --plant dropped-forward

  # A ring of three servers and two trains, of which two servers may crash
  ledgerd sim search --engine trains --trains 2 --servers 3 --detector perfect

  # Four servers, as far as ten seconds go
  ledgerd sim search --engine allconcur+ --servers 4 --for 10s`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			run, err := options.build(command.Flags().Changed)
			if err != nil {
				return asUsage(err)
			}
			if options.replay != "" {
				return options.runReplay(command.OutOrStdout(), run)
			}
			// From here on the flags are valid, and a failure is the engines'.
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout(), run)
		},
	}
	flags := command.Flags()
	addEngineFlag(command, &options.engine, searchEngines())
	flags.IntVar(&options.servers, "servers", 0,
		fmt.Sprintf("number of servers, up to %d (required)", search.ServersMax))
	flags.IntVar(&options.rounds, "rounds", 1, "rounds in which every server broadcasts a message")
	flags.StringSliceVar(&options.faults, "faults", []string{searchFaultCrash},
		"faults: crash, suspect, or none")
	flags.IntVar(&options.crashes, "crashes", 0,
		"the most servers that crash (default as many as the group tolerates)")
	flags.IntVar(&options.suspicions, "suspicions", 0, "the most false suspicions (default 1)")
	flags.StringVar(&options.detector, "detector", allconcur.DetectorEventual.String(),
		"failure detector: "+strings.Join(simDetectorNames(), ", "))
	flags.BoolVar(&options.idle, "idle", false,
		"let servers broadcast empty messages in place of theirs, too")
	flags.BoolVar(&options.prompt, "prompt", false,
		"deliver small rounds promptly; needs allconcur+ and an eventual detector")
	flags.IntVar(&options.inFlight, "in-flight", 1,
		fmt.Sprintf("rounds in flight, up to %d", search.InFlightMax))
	flags.IntVar(&options.trains, "trains", 0,
		fmt.Sprintf("trains of a ring, up to %d; for --engine trains (default %d)",
			trains.TrainsMax, trains.TrainsDefault))
	flags.BoolVar(&options.eonEnds, "eon-ends", false,
		"end the ring's eon with its first message; for --engine trains")
	flags.IntVar(&options.states, "states", 0, fmt.Sprintf("the most states to visit (default %d)",
		search.StatesMaxDefault))
	flags.DurationVar(&options.limit, "for", time.Minute,
		"the longest time to search, 0 for no end")
	flags.StringVar(&options.plant, "plant", "", "plant a bug: "+strings.Join(searchPlantNames(),
		", "))
	flags.StringVar(&options.replay, "replay", "", "replay one schedule, as a violation prints it")
	addJSONFlag(command, &options.json)
	for name, values := range map[string][]string{
		"faults":   {searchFaultCrash, searchFaultSuspect},
		"detector": simDetectorNames(),
		"plant":    searchPlantNames(),
	} {
		completeFlag(command, name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// searchPlantNames returns the names of the engines' bugs.
func searchPlantNames() []string {
	var names []string
	for _, fault := range simPlants {
		names = append(names, fault.String())
	}
	for _, fault := range interleave.Faults() {
		names = append(names, fault.String())
	}
	for _, fault := range trains.Faults() {
		names = append(names, fault.String())
	}
	return names
}

// build converts the flags to the options of a search.
func (o *searchOptions) build(isGiven func(flag string) bool) (search.Options, error) {
	refuse := func(format string, arguments ...any) (search.Options, error) {
		return search.Options{}, fmt.Errorf(format, arguments...)
	}
	crash, suspect := slices.Contains(o.faults, searchFaultCrash),
		slices.Contains(o.faults, searchFaultSuspect)
	for _, fault := range o.faults {
		if fault != searchFaultCrash && fault != searchFaultSuspect &&
			(fault != "none" || len(o.faults) > 1) {
			return refuse("--faults %q is unknown: use crash, suspect, both with a comma "+
				"between, or none", fault)
		}
	}
	detector := slices.Index(simDetectorNames(), o.detector)
	plant := slices.Index(searchPlantNames(), o.plant)
	switch {
	case !searchEngines().Has(o.engine):
		return refuse("--engine %q is unknown: use %v", o.engine, searchEngines())
	case o.servers < 1 || o.servers > search.ServersMax:
		return refuse("--servers is %d: say how many servers the group has, 1 to %d, for "+
			"example --servers 3", o.servers, search.ServersMax)
	case o.rounds < 1 || o.rounds > search.RoundsMax:
		return refuse("--rounds is %d: let the servers broadcast in 1 to %d rounds", o.rounds,
			search.RoundsMax)
	case isGiven("crashes") && (!crash || o.crashes < 1):
		return refuse("--crashes is %d: let at least one server crash, with --faults crash",
			o.crashes)
	case isGiven("suspicions") && (!suspect || o.suspicions < 1):
		return refuse("--suspicions is %d: let at least one suspicion be false, with --faults "+
			"suspect", o.suspicions)
	case (o.trains != 0 || o.eonEnds) && o.engine != trains.EngineName:
		return refuse("--trains and --eon-ends are for rings: use --engine trains, or leave " +
			"them out")
	case o.trains < 0 || o.trains > trains.TrainsMax:
		return refuse("--trains is %d: let 1 to %d go round", o.trains, trains.TrainsMax)
	case detector < 0:
		return refuse("--detector %q is unknown: use one of %s", o.detector,
			strings.Join(simDetectorNames(), ", "))
	case o.plant != "" && plant < 0:
		return refuse("--plant %q is unknown: use one of %s", o.plant,
			strings.Join(searchPlantNames(), ", "))
	case o.inFlight < 1 || o.inFlight > search.InFlightMax:
		return refuse("--in-flight is %d: have 1 to %d rounds in flight", o.inFlight,
			search.InFlightMax)
	case o.states < 0:
		return refuse("--states is %d: visit at least one state, for example --states 1000000",
			o.states)
	case o.limit < 0:
		return refuse("--for is %v: search for some time, for example --for 10s", o.limit)
	}
	run := search.Options{
		Engine: o.engine, Servers: o.servers, Rounds: o.rounds, Idle: o.idle, Prompt: o.prompt,
		Detector: simDetectors[detector], StatesMax: o.states, DepthFirst: o.servers > 3,
		InFlight: o.inFlight, Trains: o.trains, EonEnds: o.eonEnds,
	}
	interleaved := len(simPlants) + len(interleave.Faults())
	switch {
	case o.plant == "":
	case plant < len(simPlants):
		run.Fault = simPlants[plant]
		o.prompt = o.prompt || slices.Contains(allconcur.PromptFaults(), run.Fault)
		run.Prompt = o.prompt
	case plant < interleaved:
		run.InterleaveFault = interleave.Faults()[plant-len(simPlants)]
		o.inFlight = max(o.inFlight, 2)
		run.InFlight = o.inFlight
	default:
		run.TrainsFault = trains.Faults()[plant-interleaved]
		if o.engine != trains.EngineName {
			return refuse("--plant %s is a bug of rings: use --engine trains", o.plant)
		}
	}
	if o.plant != "" && plant < interleaved && o.engine == trains.EngineName {
		return refuse("--plant %s is no bug of rings: use another --engine", o.plant)
	}
	if crash && !isGiven("crashes") {
		crashes, err := o.tolerated(run.Detector)
		if err != nil {
			return search.Options{}, err
		}
		o.crashes = crashes
	}
	if suspect && !isGiven("suspicions") {
		o.suspicions = 1
	}
	run.Crashes, run.Suspicions = o.crashes, o.suspicions
	return run, run.Validate()
}

// tolerated returns how many crashes a group is searched with: as many as it tolerates, and one of
// a ring that tolerates none.
func (o *searchOptions) tolerated(detector allconcur.Detector) (int, error) {
	if o.engine == trains.EngineName {
		if detector == allconcur.DetectorPerfect {
			return o.servers - 1, nil
		}
		return 1, nil
	}
	reliable, err := digraph.Reliable(o.servers, digraph.Target{})
	if err != nil {
		return 0, err
	}
	return digraph.Tolerated(reliable), nil
}

// run searches and prints the result.
func (o *searchOptions) run(ctx context.Context, out io.Writer, options search.Options) error {
	if ctx == nil {
		ctx = context.Background()
	}
	started := time.Now()
	limited := ctx
	if o.limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.limit)
		defer cancel()
	}
	result, err := search.Run(limited, options, nil)
	if err != nil {
		return err
	}
	report := o.report(result, time.Since(started))
	if err := o.print(out, report); err != nil {
		return err
	}
	switch {
	case len(report.Violations) > 0:
		return fmt.Errorf("%s is broken", report.Violations[0].Property)
	case result.Bound == search.BoundInterrupt:
		return &interruptedError{fmt.Errorf("interrupted after %d states", result.States)}
	}
	return nil
}

func (o *searchOptions) report(r search.Result, took time.Duration) searchReport {
	seconds := took.Seconds()
	report := searchReport{
		Engine: o.engine, Servers: o.servers, Rounds: o.rounds, Faults: strings.Join(o.faults, ","),
		Crashes: o.crashes, Suspicions: o.suspicions,
		Detector: o.detector, Prompt: o.prompt, InFlight: o.inFlight, Trains: o.trains,
		EonEnds: o.eonEnds, Plant: o.plant,
		States:      r.States,
		Transitions: r.Transitions,
		Duplicates:  r.Duplicates, Depth: r.Depth, Ends: r.Ends, Stalled: r.Stalled,
		Scenarios: r.Scenarios, ServerStates: r.ServerStates, EngineSteps: r.EngineSteps,
		Restarts: r.Restarts, Complete: r.Complete, Bound: r.Bound,
		Seconds: seconds, Rate: float64(r.States) / max(seconds, 1e-9),
		Violations: []searchViolation{},
	}
	for _, v := range r.Violations {
		report.Violations = append(report.Violations,
			searchViolation{string(v.Property), v.Evidence, v.Path, o.replayCommand(v.Schedule)})
	}
	return report
}

// replayCommand returns the command that replays a schedule.
func (o *searchOptions) replayCommand(schedule string) string {
	text := fmt.Sprintf("ledgerd sim search --engine %s --servers %d --rounds %d --detector %s",
		o.engine, o.servers, o.rounds, o.detector)
	if o.idle {
		text += " --idle"
	}
	if o.prompt {
		text += " --prompt"
	}
	if o.inFlight > 1 {
		text += fmt.Sprintf(" --in-flight %d", o.inFlight)
	}
	if o.trains != 0 {
		text += fmt.Sprintf(" --trains %d", o.trains)
	}
	if o.eonEnds {
		text += " --eon-ends"
	}
	if o.plant != "" {
		text += " --plant " + o.plant
	}
	return text + " --replay " + schedule
}

// runReplay replays one schedule and prints it.
func (o *searchOptions) runReplay(out io.Writer, options search.Options) error {
	v, err := search.Replay(options, o.replay)
	if err != nil {
		return asUsage(fmt.Errorf("--replay: %w", err))
	}
	if o.json {
		if err := writeJSON(out, searchViolation{string(v.Property), v.Evidence, v.Path,
			o.replayCommand(v.Schedule)}); err != nil {
			return err
		}
	} else if err := printLines(out, describeViolation(v.Property, v.Evidence,
		v.Path)); err != nil {
		return err
	}
	if v.Property != "" {
		return fmt.Errorf("%s is broken", v.Property)
	}
	return nil
}

// describeViolation returns the lines that describe a schedule and the property it broke, if any.
func describeViolation(property order.Property, evidence, path []string) []string {
	lines := []string{"the schedule:"}
	for _, line := range path {
		lines = append(lines, "  "+line)
	}
	if property != "" {
		lines = append(lines, string(property)+" is broken")
		for _, line := range evidence {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

func printLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// print writes a report.
func (o *searchOptions) print(out io.Writer, report searchReport) error {
	if o.json {
		return writeJSON(out, report)
	}
	var lines []string
	for _, v := range report.Violations {
		lines = append(lines, describeViolation(order.Property(v.Property), v.Evidence, v.Path)...)
		lines = append(lines, "  replay: "+v.Replay, "")
	}
	lines = append(lines,
		fmt.Sprintf("%s, %d servers, %d rounds with messages, %s detector, up to %d crashes and "+
			"%d false suspicions", report.Engine, report.Servers, report.Rounds,
			report.Detector, report.Crashes, report.Suspicions),
		fmt.Sprintf("%d states, %d transitions (%d to states visited before), depth %d, %d "+
			"ends, from %d first states", report.States, report.Transitions,
			report.Duplicates, report.Depth, report.Ends, report.Scenarios),
		fmt.Sprintf("%d states of single servers, %d engine steps; %.1f s, %.0f states/s",
			report.ServerStates, report.EngineSteps, report.Seconds, report.Rate))
	if report.Stalled > 0 {
		lines = append(lines, fmt.Sprintf("in %d ends more had failed than the group tolerates, "+
			"and it needs a new generation to go on", report.Stalled))
	}
	switch {
	case report.Complete:
		lines = append(lines, "complete: every schedule was looked at")
	case report.Bound == search.BoundStates:
		lines = append(lines, "not complete: --states ended it")
	case report.Bound == search.BoundTime:
		lines = append(lines, "not complete: --for ended it")
	case report.Bound == search.BoundInterrupt:
		lines = append(lines, "not complete: interrupted")
	default:
		lines = append(lines, "not complete: it ended with the violation")
	}
	return printLines(out, lines)
}
