package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/sim/multicast"
	"github.com/ledgerd/ledgerd/tram"
)

// multicastOptions are the flags of ledgerd sim multicast.
type multicastOptions struct {
	engine       string
	plant        string
	groups       int
	replicas     int
	tree         string
	messages     int
	seeds        int
	seed         uint64
	faults       string
	limit        time.Duration
	onlyMessages string
	onlyFaults   string
	trace        bool
	json         bool
}

// multicastReport is what ledgerd sim multicast --json prints.
type multicastReport struct {
	Engine    string `json:"engine"`
	Plant     string `json:"plant,omitempty"`
	Faults    string `json:"faults"`
	FirstSeed uint64 `json:"first_seed"`
	Seeds     int    `json:"seeds"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	// These are sums over all seeds, up to Events. Overwhelmed counts the runs in which a group
	// lost more than it tolerates.
	Replicas    int `json:"replicas"`
	Messages    int `json:"messages"`
	Deliveries  int `json:"deliveries"`
	Struck      int `json:"faults_struck"`
	Crashed     int `json:"crashed"`
	Overwhelmed int `json:"overwhelmed"`
	Events      int `json:"events"`
	// Bound is the reason why the sweep ended before the last seed: time or interrupt.
	Bound    string             `json:"bound,omitempty"`
	Seconds  float64            `json:"seconds"`
	Failures []multicastFailure `json:"failures"`
}

// multicastFailure is one failing seed in a report: the run as it was found, and the smallest run
// that fails in the same way.
type multicastFailure struct {
	Seed     uint64   `json:"seed"`
	Property string   `json:"property"`
	Evidence []string `json:"evidence"`
	Plan     string   `json:"plan"`
	Replay   string   `json:"replay"`
	// Whole replays the run as it was found.
	Whole string `json:"whole"`
}

// newSimMulticastCommand returns the `ledgerd sim multicast` command.
func newSimMulticastCommand() *cobra.Command {
	var options multicastOptions
	var stories []string
	for _, engine := range multicast.Engines() {
		stories = append(stories, fmt.Sprintf("  %-16s %s", engine.Name, engine.Story))
	}
	command := &cobra.Command{
		Use:   "multicast --engine E",
		Short: "Look for a schedule that makes groups disagree on messages to several of them",
		Long: `Look for a schedule that makes groups disagree on messages to several of them.

Each seed is one run. It draws 1 to 8 groups of 1 to 7 replicas, the tree that
connects them, clients that send messages to overlapping sets of groups, how
quick everything is, and faults of the kinds that --faults lists. Engine dare
has one group, of 1 to 5. The faults are:

  crash      replicas end, above all leaders, at any step of the protocol;
             never more of a group than it tolerates, a minority
  client     clients end, before, between and after their writes
  suspect    leader oracles err, each replica's by itself: several replicas lead
             at once, and take permissions from each other
  slow       transfers between processes are held for a while
  hang       a program stops, for a while or for good, but its memory is
             still read and written
  partition  processes are cut off from each other for so long that operations
             end with errors, and land afterwards
  overwhelm  a group loses more than it tolerates: nothing needs to be
             delivered any more, but all deliveries have to be right

and, with engine dare, whose group changes:

  restart      a replica ends, and starts again with empty memory: it has to be
               removed and added, and to recover from another
  reconfigure  the group gets smaller: its last replica leaves, for good, or
               until it starts again and the group grows by it

Then the faults end, and everything that is due has to be delivered everywhere.
The run fails if

  integrity         a replica delivers a message that was never sent, or twice, or
                    one that is not for its group, or with another payload
  total order, prefix order
                    two replicas deliver two messages in opposite orders, or
                    one skips a message that the other delivers before
  acyclic order     orders at several replicas form a cycle
  validity          a message of a client that did not crash is not delivered
  agreement, uniform agreement
                    one replica delivers a message and a working one does not,
                    though the first one may have crashed later
  progress          it does not come to rest
  invariant         what an engine promises of its memory does not hold: dare's
                    logs are looked into after each step
  contract          an engine panics

Engines:

` + strings.Join(stories, "\n") + `

For a failing seed, the command prints the property, the shortest evidence and the
command that replays the run. It reduces the run to few small groups, with another
seed if need be, and to few messages and faults, as long as it still fails. The
exit status is then 1. --plant puts a bug into the engine, to see that it is
found.`,
		Example: `  # A thousand deployments, with all that can happen to them
  ledgerd sim multicast --engine tram-leaderless --seeds 1000

  # A leader's log in the memory of its followers, with a bug, until a seed shows it
  ledgerd sim multicast --engine dare --seeds 1000 --plant vote-without-check

  # Four shards of three in a chain, for one minute, as many seeds as that gives
  ledgerd sim multicast --engine tram --groups 4 --replicas 3 --tree chain --seeds 1000000 --for 1m

  # One run, event by event
  ledgerd sim multicast --engine tram --seed 42 --trace

  # What happens to messages 2 and 5 of it alone, when nothing goes wrong
  ledgerd sim multicast --engine tram --seed 42 --only-messages 2,5 --only-faults none --trace`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if (options.trace || options.onlyMessages != "" || options.onlyFaults != "") &&
				!command.Flags().Changed("seeds") {
				options.seeds = 1
			}
			run, err := options.build()
			if err != nil {
				return asUsage(err)
			}
			// From here on the flags are valid, and a failure is the engines'.
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), run)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.engine, "engine", "",
		"engine: "+strings.Join(multicast.EngineNames(), ", ")+" (required)")
	flags.IntVar(&options.groups, "groups", 0, "number of groups (default left to the seed)")
	flags.IntVar(&options.replicas, "replicas", 0,
		"replicas in each group (default left to the seed)")
	flags.StringVar(&options.tree, "tree", "", "tree of the groups: breadth, binary, chain, or "+
		"a file with a line \"group parent\" for each group; goes with --groups (default left "+
		"to the seed)")
	flags.IntVar(&options.messages, "messages", 0,
		fmt.Sprintf("number of messages in a run (default left to the seed, up to %d)",
			multicast.MessagesMax))
	flags.IntVar(&options.seeds, "seeds", 100, "number of seeds to run")
	flags.Uint64Var(&options.seed, "seed", 1, "the first seed")
	flags.StringVar(&options.faults, "faults", "all",
		"kinds of fault, some of "+strings.Join(multicast.FaultNames(), ",")+"; or all, or none")
	flags.DurationVar(&options.limit, "for", 0, "the longest time to go on, 0 for all seeds")
	flags.StringVar(&options.plant, "plant", "",
		"plant a bug; an unknown name lists the bugs of the engine")
	flags.StringVar(&options.onlyMessages, "only-messages", "",
		"leave out all messages but these, by their numbers in the trace; needs a single seed")
	flags.StringVar(&options.onlyFaults, "only-faults",
		"", "leave out all faults but these, by their numbers in the trace; or none; needs a "+
			"single seed")
	flags.BoolVar(&options.trace, "trace", false,
		"show the run event by event; needs a single seed")
	addJSONFlag(command, &options.json)
	for name, values := range map[string][]string{
		"engine": multicast.EngineNames(),
		"faults": append(multicast.FaultNames(), "all", "none"),
	} {
		completeFlag(command, name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	command.AddCommand(newSimMulticastSearchCommand())
	return command
}

// build converts the flags to the options of a run.
func (o *multicastOptions) build() (multicast.Options, error) {
	refuse := func(format string, arguments ...any) (multicast.Options, error) {
		return multicast.Options{}, fmt.Errorf(format, arguments...)
	}
	switch {
	case o.engine == "":
		return refuse("say which engine with --engine: %s",
			strings.Join(multicast.EngineNames(), ", "))
	case o.seeds < 1:
		return refuse("--seeds is %d: run at least one, for example --seeds 100", o.seeds)
	case o.seed > math.MaxUint64-uint64(o.seeds):
		return refuse("--seed %d leaves no room for %d seeds after it: use a smaller --seed",
			o.seed, o.seeds)
	case o.limit < 0:
		return refuse("--for is %v: go on for some time, for example --for 1m", o.limit)
	case (o.trace || o.onlyMessages != "" || o.onlyFaults != "") && o.seeds > 1:
		return refuse("--trace, --only-messages and --only-faults are about one run, not %d: "+
			"use --seeds 1 and say which with --seed", o.seeds)
	case o.trace && o.json:
		return refuse("--trace and --json both want standard output: leave one out")
	case o.tree != "" && o.groups == 0:
		return refuse("--tree %s needs to know how many groups there are: add --groups, for "+
			"example --groups 4", o.tree)
	}
	run := multicast.Options{Engine: o.engine, Plant: o.plant, Seed: o.seed, Groups: o.groups,
		Replicas: o.replicas, Messages: o.messages}
	var err error
	if run.Faults, err = multicast.ParseFaults(o.faults); err != nil {
		return refuse("--faults: %w", err)
	}
	if run.OnlyMessages, err = parseNumbers(o.onlyMessages); err != nil {
		return refuse("--only-messages: %w", err)
	}
	if run.OnlyFaults, err = parseNumbers(o.onlyFaults); err != nil {
		return refuse("--only-faults: %w", err)
	}
	if o.tree != "" {
		if run.Tree, err = readTree(o.tree, o.groups); err != nil {
			return refuse("--tree: %w", err)
		}
	}
	return run, run.Validate()
}

// readTree parses the name of a tree's shape, or reads the tree from a file.
func readTree(tree string, groups int) (*tram.Tree, error) {
	shaped, shapeErr := tram.ParseTree(tree, groups)
	if shapeErr == nil {
		return shaped, nil
	}
	file, err := os.Open(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; and there is no file of that name", shapeErr)
	}
	if err != nil {
		return nil, err
	}
	read, err := tram.ReadTree(file, groups)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tree, err)
	}
	return read, nil
}

// parseNumbers parses numbers separated by commas. It returns nil for "", and an empty list for
// "none".
func parseNumbers(list string) ([]int, error) {
	switch list {
	case "":
		return nil, nil
	case "none":
		return []int{}, nil
	}
	var numbers []int
	for word := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || number < 1 {
			return nil, fmt.Errorf("%q is not a number from 1: give some with commas between "+
				"them, for example 2,5, or none", word)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

// formatNumbers is the inverse of parseNumbers.
func formatNumbers(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), "[]")
}

// run runs the seeds and prints the results.
func (o *multicastOptions) run(ctx context.Context, out, progress io.Writer,
	run multicast.Options) error {
	if ctx == nil {
		ctx = context.Background()
	}
	limited := ctx
	if o.limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.limit)
		defer cancel()
	}
	started := time.Now()
	report := multicastReport{Engine: o.engine, Plant: o.plant, Faults: run.Faults.String(),
		FirstSeed: o.seed, Failures: []multicastFailure{}}
	var failing []multicast.Result
	take := func(r multicast.Result) int {
		report.take(r)
		if len(r.Violations) > 0 && len(failing) < simFailuresShown {
			failing = append(failing, r)
		}
		return report.Failed
	}
	seeds := seedRange{first: o.seed, count: o.seeds, traced: o.trace}
	traced := run
	if o.trace {
		traced.Trace = out
	}
	if err := runSeeds(limited, progress, seeds, traced.RunSeed, take); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		report.Bound = "interrupt"
	case limited.Err() != nil && report.Seeds < o.seeds:
		report.Bound = "time"
	}
	report.Seconds = time.Since(started).Seconds()
	for _, r := range failing {
		report.Failures = append(report.Failures, o.failure(run, r))
	}
	if err := o.print(out, report); err != nil {
		return err
	}
	return seeds.err(report.Seeds, report.Failed, report.Bound == "interrupt")
}

// take adds a result to the report.
func (report *multicastReport) take(r multicast.Result) {
	report.Seeds++
	report.Replicas += r.Replicas
	report.Messages += r.Messages
	report.Deliveries += r.Deliveries
	report.Struck += r.Faults
	report.Crashed += len(r.Crashed)
	report.Events += r.Events
	if r.Overwhelmed {
		report.Overwhelmed++
	}
	if len(r.Violations) == 0 {
		report.Passed++
	} else {
		report.Failed++
	}
}

// failure describes a failing seed by the smallest run found that fails in the same way.
func (o *multicastOptions) failure(run multicast.Options, r multicast.Result) multicastFailure {
	run.Seed = r.Seed
	smaller, found := multicast.Shrink(run, r)
	return multicastFailure{
		Seed: r.Seed, Property: string(found.Violations[0].Property),
		Evidence: found.Violations[0].Evidence, Plan: found.Plan,
		Replay: o.replay(smaller), Whole: o.replay(run),
	}
}

// replay returns the command that repeats one run.
func (o *multicastOptions) replay(run multicast.Options) string {
	text := fmt.Sprintf("ledgerd sim multicast --engine %s --seed %d", run.Engine, run.Seed)
	if run.Groups != 0 {
		text += fmt.Sprintf(" --groups %d", run.Groups)
	}
	if run.Replicas != 0 {
		text += fmt.Sprintf(" --replicas %d", run.Replicas)
	}
	if run.Tree != nil {
		text += " --tree " + o.tree
	}
	if run.Messages != 0 {
		text += fmt.Sprintf(" --messages %d", run.Messages)
	}
	if run.Faults != multicast.FaultsAll {
		text += " --faults " + run.Faults.String()
	}
	if run.Plant != "" {
		text += " --plant " + run.Plant
	}
	if run.OnlyMessages != nil {
		text += " --only-messages " + formatNumbers(run.OnlyMessages)
	}
	if run.OnlyFaults != nil {
		text += " --only-faults " + formatNumbers(run.OnlyFaults)
	}
	return text + " --trace"
}

// print writes a report.
func (o *multicastOptions) print(out io.Writer, report multicastReport) error {
	if o.json {
		return writeJSON(out, report)
	}
	var lines []string
	for _, failure := range report.Failures {
		lines = append(lines, fmt.Sprintf("seed %d: %s is broken", failure.Seed, failure.Property))
		for _, line := range failure.Evidence {
			lines = append(lines, "  "+line)
		}
		lines = append(lines, "  plan:   "+failure.Plan, "  replay: "+failure.Replay)
		if failure.Whole != failure.Replay {
			lines = append(lines, "  whole:  "+failure.Whole)
		}
		lines = append(lines, "")
	}
	if more := report.Failed - len(report.Failures); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more failing seeds", more), "")
	}
	last := report.FirstSeed + uint64(max(report.Seeds, 1)) - 1
	lines = append(lines,
		fmt.Sprintf("%s, seeds %d to %d: %d passed, %d failed", report.Engine, report.FirstSeed,
			last, report.Passed, report.Failed),
		fmt.Sprintf("%d replicas, %d messages, %d deliveries, %d faults, %d processes gone, %d "+
			"groups overwhelmed, %d events in %.1f s, %.0f seeds a second", report.Replicas,
			report.Messages, report.Deliveries, report.Struck, report.Crashed, report.Overwhelmed,
			report.Events, report.Seconds, float64(report.Seeds)/max(report.Seconds, 0.001)))
	if report.Bound == "time" {
		lines = append(lines, fmt.Sprintf("--for ended it after %d of %d seeds", report.Seeds,
			o.seeds))
	}
	return printLines(out, lines)
}
