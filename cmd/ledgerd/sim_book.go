package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/sim/book"
)

// bookOptions are the flags of ledgerd sim book.
type bookOptions struct {
	plant           string
	shards          int
	members         int
	submissions     int
	seeds           int
	seed            uint64
	faults          string
	limit           time.Duration
	onlySubmissions string
	onlyFaults      string
	trace           bool
	json            bool
}

// bookSweepReport is what ledgerd sim book --json prints.
type bookSweepReport struct {
	Plant     string `json:"plant,omitempty"`
	Faults    string `json:"faults"`
	FirstSeed uint64 `json:"first_seed"`
	Seeds     int    `json:"seeds"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	// These are sums over all seeds, up to Lost. Applied and Refused count decisions of shards on
	// transactions that cross, by how these ended. Late counts those of Refused that had agreed,
	// and another shard executed the transaction after its deadline, and Withdrawn those for which
	// a signer had cancelled it there. Moved counts the organisations that arrived in another
	// shard, and Lost the blocks that were executed and lost. Held counts the holds, and Posted,
	// Voided and Lapsed how they ended. Keys counts the entries that took effect with an
	// idempotency key, Refundable those that could be refunded, and Refunds those that refunded
	// one.
	Members     int `json:"members"`
	Submissions int `json:"submissions"`
	Blocks      int `json:"blocks"`
	Applied     int `json:"applied"`
	Refused     int `json:"refused"`
	Late        int `json:"late"`
	Withdrawn   int `json:"withdrawn"`
	Moved       int `json:"moved"`
	Held        int `json:"held"`
	Posted      int `json:"posted"`
	Voided      int `json:"voided"`
	Lapsed      int `json:"lapsed"`
	Keys        int `json:"keys"`
	Refundable  int `json:"refundable"`
	Refunds     int `json:"refunds"`
	Struck      int `json:"faults_struck"`
	Generations int `json:"generations"`
	Lost        int `json:"blocks_lost"`
	// Bound is the reason why the sweep ended before the last seed: time or interrupt.
	Bound    string             `json:"bound,omitempty"`
	Seconds  float64            `json:"seconds"`
	Failures []bookSweepFailure `json:"failures"`
}

// bookSweepFailure is one failing seed in a report, as the smallest run that fails in the same way.
type bookSweepFailure struct {
	Seed     uint64   `json:"seed"`
	Property string   `json:"property"`
	Evidence []string `json:"evidence"`
	Plan     string   `json:"plan"`
	Replay   string   `json:"replay"`
	// Whole replays the run as it was found.
	Whole string `json:"whole"`
}

// newSimBookCommand returns the `ledgerd sim book` command.
func newSimBookCommand() *cobra.Command {
	var options bookOptions
	command := &cobra.Command{
		Use:   "book",
		Short: "Look for a run in which the shards of a book disagree, or money appears or is lost",
		Long: `Look for a run in which the shards of a book disagree, or money appears or is lost.

Each seed is one run of a whole book: 2 to 5 shards in a tree, each with 1 to 5
members that execute the ledger as nodes do. Clients register organisations and
submit transfers, records and policies, within and across shards, some of them
twice or at the wrong shard. Many deadlines end while a transaction is on its way,
and clients cancel transactions, their own and others'. In some books organisations
move to other shards, and clients place holds, which others post, void or let expire,
use idempotency keys, and refund entries.
In some books the operators raise the version of the chains. --faults lists what happens meanwhile:

  crash      a member loses power, and all that it has not flushed
  stop       all members of a shard lose power at once
  replace    members lose their disks, one after the other, and begin again with
             a snapshot
  slow       a disk flushes nothing for a while
  network    messages between shards are lost, repeated and held up
  lie        a minority of a shard's members tell false verdicts and entries, and
             propose false copies, in a book with vouched crossings
  lose       shards are gone for good, or not heard by some others, and the operators
             settle with them: the others are judged without them
  members    new members replace those of a shard, in some books all of them

Then the faults end, and the book has to come to rest. The run fails if

  same chain    two members of a shard have different blocks, after a restart too
  durability    a durable block is lost
  integrity     a chain has a transaction twice, or something out of place
  atomicity     a transaction takes effect in one shard and not in another
  conservation  the amounts of an asset do not add up to zero at a cut
  supply        more of an asset is issued than its cap, or not what accounts are below zero
  holds         what is held is spent, a hold ends twice, posts more than it has, or expires early
  keys          two entries of an organisation with one idempotency key take effect
  refunds       more is given back of an entry than it posted
  terms         an account goes beyond its terms, or loses them in a move
  verdicts      a shard gives two verdicts on a transaction
  deadline      a shard agrees to a transaction after its deadline
  cancelling    a shard agrees to a transaction that a signer cancelled there before,
                goes back on one that it agreed to, or listens to a stranger
  outcome       a balance or record is not that of what took effect
  total order   two shards have two transactions in opposite orders
  relay         a chain hands on something else than TRAM's relay
  bounds        others make a member or a block take more than there is room for
  progress      something waits for ever
  contract      the ledger panics

For a failing seed, the command prints the property, the evidence and the command
that replays the run. It reduces the run to few small shards, with another seed if
need be, and to few bundles and faults, as long as it still fails. The exit status
is then 1. --plant puts a bug into the run, to see that it is found.`,
		Example: `  # A thousand books, with all that can happen to them
  ledgerd sim book --seeds 1000

  # Two shards of three, for one minute, as many seeds as that gives
  ledgerd sim book --shards 2 --members 3 --seeds 1000000 --for 1m

  # The smallest run that shows why verdicts wait until they are durable
  ledgerd sim book --plant verdict-before-durable

  # One run, event by event
  ledgerd sim book --seed 42 --trace

  # What bundles 1 to 4 of it do alone, when nothing goes wrong
  ledgerd sim book --seed 42 --only-submissions 1,2,3,4 --only-faults none --trace`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if options.single() && !command.Flags().Changed("seeds") {
				options.seeds = 1
			}
			run, err := options.build()
			if err != nil {
				return asUsage(err)
			}
			// From here on the flags are valid, and a failure is the ledger's.
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), run)
		},
	}
	flags := command.Flags()
	flags.IntVar(&options.shards, "shards", 0, fmt.Sprintf("number of shards, 2 to %d (default "+
		"left to the seed)", book.ShardsMax))
	flags.IntVar(&options.members, "members", 0, fmt.Sprintf("members of each shard, up to %d "+
		"(default left to the seed)", book.MembersMax))
	flags.IntVar(&options.submissions, "submissions", 0, fmt.Sprintf("number of bundles beside "+
		"those that set the book up (default left to the seed, up to %d)", book.SubmissionsMax))
	flags.IntVar(&options.seeds, "seeds", 100, "number of seeds to run")
	flags.Uint64Var(&options.seed, "seed", 1, "the first seed")
	flags.StringVar(&options.faults, "faults", "all",
		"kinds of fault, some of "+strings.Join(book.FaultNames(), ",")+"; or all, or none")
	flags.DurationVar(&options.limit, "for", 0, "the longest time to go on, 0 for all seeds")
	flags.StringVar(&options.plant, "plant", "", "plant a bug: "+strings.Join(book.Plants(), ", "))
	flags.StringVar(&options.onlySubmissions, "only-submissions", "",
		"leave out all bundles but these, by their numbers in the trace; needs a single seed")
	flags.StringVar(&options.onlyFaults, "only-faults", "", "leave out all faults but these, by "+
		"their numbers in the trace; or none; needs a single seed")
	flags.BoolVar(&options.trace, "trace", false,
		"show the run event by event; needs a single seed")
	addJSONFlag(command, &options.json)
	for name, values := range map[string][]string{"plant": book.Plants(),
		"faults": append(book.FaultNames(), "all", "none")} {
		completeFlag(command, name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// single reports whether the flags are about one run.
func (o *bookOptions) single() bool {
	return o.trace || o.onlySubmissions != "" || o.onlyFaults != ""
}

// build converts the flags to the options of a run.
func (o *bookOptions) build() (book.Options, error) {
	refuse := func(format string, arguments ...any) (book.Options, error) {
		return book.Options{}, fmt.Errorf(format, arguments...)
	}
	switch {
	case o.seeds < 1:
		return refuse("--seeds is %d: run at least one, for example --seeds 100", o.seeds)
	case o.seed > math.MaxUint64-uint64(o.seeds):
		return refuse("--seed %d leaves no room for %d seeds after it: use a smaller --seed",
			o.seed, o.seeds)
	case o.limit < 0:
		return refuse("--for is %v: go on for some time, for example --for 1m", o.limit)
	case o.single() && o.seeds > 1:
		return refuse("--trace, --only-submissions and --only-faults are about one run, not %d: "+
			"use --seeds 1 and say which with --seed", o.seeds)
	case o.trace && o.json:
		return refuse("--trace and --json both want standard output: leave one out")
	}
	run := book.Options{Plant: o.plant, Seed: o.seed, Shards: o.shards, Members: o.members,
		Submissions: o.submissions}
	var err error
	if run.Faults, err = book.ParseFaults(o.faults); err != nil {
		return refuse("--faults: %w", err)
	}
	if run.OnlySubmissions, err = parseNumbers(o.onlySubmissions); err != nil {
		return refuse("--only-submissions: %w", err)
	}
	if run.OnlyFaults, err = parseNumbers(o.onlyFaults); err != nil {
		return refuse("--only-faults: %w", err)
	}
	return run, run.Validate()
}

// run runs the seeds and prints the results.
func (o *bookOptions) run(ctx context.Context, out, progress io.Writer, run book.Options) error {
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
	report := bookSweepReport{Plant: o.plant, Faults: run.Faults.String(), FirstSeed: o.seed,
		Failures: []bookSweepFailure{}}
	var failing []book.Result
	take := func(r book.Result) int {
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
func (report *bookSweepReport) take(r book.Result) {
	report.Seeds++
	report.Members += r.Members
	report.Submissions += r.Submissions
	report.Blocks += r.Blocks
	report.Applied += r.Applied
	report.Refused += r.Refused
	report.Late += r.Late
	report.Withdrawn += r.Withdrawn
	report.Moved += r.Moved
	report.Held += r.Held
	report.Posted += r.Posted
	report.Voided += r.Voided
	report.Lapsed += r.Lapsed
	report.Keys += r.Keys
	report.Refundable += r.Refundable
	report.Refunds += r.Refunds
	report.Struck += r.Faults
	report.Generations += r.Generations
	report.Lost += r.Lost
	if len(r.Violations) == 0 {
		report.Passed++
	} else {
		report.Failed++
	}
}

// failure describes a failing seed by the smallest run found that fails in the same way.
func (o *bookOptions) failure(run book.Options, r book.Result) bookSweepFailure {
	run.Seed = r.Seed
	smaller, found := book.Shrink(run, r)
	return bookSweepFailure{
		Seed: r.Seed, Property: string(found.Violations[0].Property),
		Evidence: found.Violations[0].Evidence, Plan: found.Plan,
		Replay: replayBook(smaller), Whole: replayBook(run),
	}
}

// replayBook returns the command that repeats one run.
func replayBook(run book.Options) string {
	text := fmt.Sprintf("ledgerd sim book --seed %d", run.Seed)
	if run.Shards != 0 {
		text += fmt.Sprintf(" --shards %d", run.Shards)
	}
	if run.Members != 0 {
		text += fmt.Sprintf(" --members %d", run.Members)
	}
	if run.Submissions != 0 {
		text += fmt.Sprintf(" --submissions %d", run.Submissions)
	}
	if run.Faults != book.FaultsAll {
		text += " --faults " + run.Faults.String()
	}
	if run.Plant != "" {
		text += " --plant " + run.Plant
	}
	if run.OnlySubmissions != nil {
		text += " --only-submissions " + formatNumbers(run.OnlySubmissions)
	}
	if run.OnlyFaults != nil {
		text += " --only-faults " + formatNumbers(run.OnlyFaults)
	}
	return text + " --trace"
}

// print writes a report.
func (o *bookOptions) print(out io.Writer, report bookSweepReport) error {
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
		fmt.Sprintf("seeds %d to %d: %d passed, %d failed", report.FirstSeed, last, report.Passed,
			report.Failed),
		fmt.Sprintf("%d members, %d bundles, %d blocks, %d decisions on crossings that took "+
			"effect, %d on others (%d agreed and another shard was late, %d agreed and it was "+
			"cancelled in another one), %d organisations that moved, %d holds (%d posted, "+
			"%d voided, %d expired), %d keys, %d entries that can be refunded with %d refunds, "+
			"%d faults, %d new generations, %d blocks lost in %.1f s, "+
			"%.0f seeds a second", report.Members, report.Submissions, report.Blocks,
			report.Applied, report.Refused, report.Late, report.Withdrawn, report.Moved,
			report.Held, report.Posted, report.Voided, report.Lapsed,
			report.Keys, report.Refundable, report.Refunds, report.Struck,
			report.Generations, report.Lost, report.Seconds,
			float64(report.Seeds)/max(report.Seconds, 0.001)))
	if report.Bound == "time" {
		lines = append(lines, fmt.Sprintf("--for ended it after %d of %d seeds", report.Seeds,
			o.seeds))
	}
	return printLines(out, lines)
}
