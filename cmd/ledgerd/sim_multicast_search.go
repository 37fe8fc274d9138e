package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/sim/multicast"
)

// multicastSearchOptions are the flags of ledgerd sim multicast search.
type multicastSearchOptions struct {
	search multicast.SearchOptions
	hears  string
	limit  time.Duration
	json   bool
}

// multicastSearchReport is what ledgerd sim multicast search --json prints.
type multicastSearchReport struct {
	Engine      string   `json:"engine"`
	Plant       string   `json:"plant,omitempty"`
	Groups      int      `json:"groups"`
	Replicas    int      `json:"replicas"`
	Messages    int      `json:"messages"`
	Crashes     int      `json:"crashes"`
	Leads       int      `json:"leads"`
	Ticks       int      `json:"ticks"`
	Unreduced   bool     `json:"unreduced,omitempty"`
	Tabulated   bool     `json:"tabulated,omitempty"`
	Begin       string   `json:"begin,omitempty"`
	Hears       string   `json:"hears,omitempty"`
	Shuffle     uint64   `json:"shuffle,omitempty"`
	States      int      `json:"states"`
	Transitions int      `json:"transitions"`
	Ends        int      `json:"ends"`
	Depth       int      `json:"depth"`
	Complete    bool     `json:"complete"`
	Bound       string   `json:"bound,omitempty"`
	Seconds     float64  `json:"seconds"`
	Rate        float64  `json:"rate"`
	Property    string   `json:"property,omitempty"`
	Evidence    []string `json:"evidence,omitempty"`
	Path        []string `json:"path,omitempty"`
}

// newSimMulticastSearchCommand returns the `ledgerd sim multicast search` command.
func newSimMulticastSearchCommand() *cobra.Command {
	var options multicastSearchOptions
	command := &cobra.Command{
		Use:   "search --engine E",
		Short: "Look at every schedule of messages to several small groups",
		Long: `Look at every schedule of messages to several small groups.

Nothing is left to chance: the search visits each state that the groups, in a
chain, can reach, whatever happens next: a client submits, a message or an
operation on memory arrives, a process works; and, as often as the flags allow,
a process crashes, its last frames get lost, a leader oracle changes its choice,
or the clock advances until processes run out of patience. Each state is judged.
Wherever nothing is under way, a fair run follows in which everything that is due
has to be delivered.

It prints "complete" if it looked at every schedule: then it is a proof for groups
of that size, those messages and those faults. Otherwise it names the limit that
ended it. A violation is shown by the schedule that leads to it, reduced to the
necessary steps; the exit status is then 1.

Schedules with the same outcome as others are left out, if the engine allows that
and the clock stands still (tram without --ticks). That makes the search many
times as short; --unreduced looks at them too, with the same result.

With --tabulated the search computes each effect of an event once and looks it
up from then on, and leaves out more schedules with the same outcome (dare). It
needs far fewer states. --unreduced looks at all of them by tables. Two more flags
make such a search smaller. It then looks at less: --begin elected begins it when
the first leader works, --begin offered when besides all replicas have the first
message and the leader has ordered it, --begin divided when two leaders have each
ordered a message that only their own logs have; --hears names the changes of
leaders and their order. With --shuffle, a search that has a bound sees others.

Writes take place as a whole here; ledgerd sim multicast tears them.`,
		Example: `  # Two groups of two, one message to both
  ledgerd sim multicast search --engine tram --messages 1

  # Two groups of one, two messages, and one crash
  ledgerd sim multicast search --engine tram --replicas 1 --crashes 1 --for 5m

  # Two servers of DARE, a change of leaders and a crash
  ledgerd sim multicast search --engine dare --groups 1 --messages 1 --leads 1 \
    --crashes 1 --tabulated

  # Three servers of DARE with two changes of leaders and a crash, once the first
  # leader has ordered a message and before the others' logs have it
  ledgerd sim multicast search --engine dare --groups 1 --replicas 3 --messages 1 \
    --tabulated --begin offered --leads 2 --crashes 1 --for 0

  # What goes wrong if a leader commits entries of earlier terms by counting them
  ledgerd sim multicast search --engine dare --groups 1 --replicas 3 --tabulated \
    --begin divided --hears 0:0,1:1 --shuffle 56 --plant commits-old-terms`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			switch {
			case options.search.Engine == "":
				return asUsage(fmt.Errorf("say which engine with --engine: %s",
					strings.Join(multicast.EngineNames(), ", ")))
			case options.limit < 0:
				return asUsage(fmt.Errorf(
					"--for is %v: search for some time, for example --for 10s", options.limit))
			}
			if options.hears != "" {
				var err error
				if options.search.Hears, err = multicast.ParseHearings(options.hears); err != nil {
					return asUsage(err)
				}
			}
			if err := options.search.Validate(); err != nil {
				return asUsage(err)
			}
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.search.Engine, "engine",
		"", "engine: "+strings.Join(multicast.EngineNames(), ", ")+" (required)")
	flags.IntVar(&options.search.Groups, "groups", 2, "number of groups, 1 to 3")
	flags.IntVar(&options.search.Replicas, "replicas", 2, "replicas in each group, 1 to 3")
	flags.IntVar(&options.search.Messages, "messages",
		2, "number of messages, 1 to 4; the first two go to all groups")
	flags.IntVar(&options.search.Crashes, "crashes", 0, "the most processes that crash")
	flags.IntVar(&options.search.Leads, "leads", 0, "how often a leader oracle changes its choice")
	flags.IntVar(&options.search.Ticks, "ticks", 0,
		"how often the clock advances by the time that processes wait before they take over")
	flags.BoolVar(&options.search.Unreduced, "unreduced", false,
		"look at schedules too that have the same outcome as others")
	flags.BoolVar(&options.search.Tabulated, "tabulated", false,
		"compute each effect of an event once, and leave out more schedules (dare)")
	flags.StringVar(&options.search.Begin, "begin", "",
		"begin later: "+strings.Join(multicast.Beginnings(), ", ")+" (with --tabulated)")
	flags.StringVar(&options.hears, "hears", "", "the changes of leaders that may happen, in this "+
		"order, instead of --leads: 1:2 tells replica 1 that 2 leads (with --tabulated)")
	flags.Uint64Var(&options.search.Shuffle, "shuffle", 0,
		"search in another order for each number: a search with a bound then sees other schedules "+
			"(with --tabulated)")
	flags.IntVar(&options.search.StatesMax, "states",
		0, fmt.Sprintf("the most states to visit (default %d)", multicast.StatesMaxDefault))
	flags.DurationVar(&options.limit, "for", time.Minute,
		"the longest time to search, 0 for no end")
	flags.StringVar(&options.search.Plant, "plant", "",
		"plant a bug; an unknown name lists the bugs of the engine")
	addJSONFlag(command, &options.json)
	completeFlag(command, "begin", cobra.FixedCompletions(multicast.Beginnings(),
		cobra.ShellCompDirectiveNoFileComp))
	completeFlag(command, "engine",
		cobra.FixedCompletions(multicast.EngineNames(),
			cobra.ShellCompDirectiveNoFileComp))
	return command
}

// run searches and prints the result.
func (o *multicastSearchOptions) run(ctx context.Context, out io.Writer) error {
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
	result, err := multicast.Search(limited, o.search)
	if err != nil {
		return err
	}
	report := o.report(result, time.Since(started))
	if err := o.print(out, report); err != nil {
		return err
	}
	switch {
	case result.Violation != nil:
		return fmt.Errorf("%s is broken", result.Violation.Property)
	case result.Bound == multicast.BoundInterrupt:
		return &interruptedError{fmt.Errorf("interrupted after %d states", result.States)}
	}
	return nil
}

func (o *multicastSearchOptions) report(r multicast.SearchResult,
	took time.Duration) multicastSearchReport {
	s := o.search
	report := multicastSearchReport{
		Engine: s.Engine, Plant: s.Plant, Groups: s.Groups, Replicas: s.Replicas,
		Messages: s.Messages, Crashes: s.Crashes, Leads: s.Leads, Ticks: s.Ticks,
		Unreduced: s.Unreduced, Tabulated: s.Tabulated, Begin: s.Begin,
		Hears: o.hears, Shuffle: s.Shuffle,
		States: r.States, Transitions: r.Transitions, Ends: r.Ends, Depth: r.Depth,
		Complete: r.Complete, Bound: r.Bound,
		Seconds: took.Seconds(), Rate: float64(r.States) / max(took.Seconds(), 1e-9), Path: r.Path,
	}
	if r.Violation != nil {
		report.Property, report.Evidence = string(r.Violation.Property), r.Violation.Evidence
	}
	return report
}

// within says which part of all schedules the flags leave.
func (o *multicastSearchOptions) within() string {
	var parts []string
	if o.search.Begin != "" {
		parts = append(parts, "from where --begin "+o.search.Begin+" begins")
	}
	if o.hears != "" {
		parts = append(parts, "with no other changes of leaders than "+o.hears)
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, ", ")
}

// print writes a report.
func (o *multicastSearchOptions) print(out io.Writer, report multicastSearchReport) error {
	if o.json {
		return writeJSON(out, report)
	}
	var lines []string
	if report.Property != "" {
		lines = append(lines, "the schedule:")
		for _, line := range report.Path {
			lines = append(lines, "  "+line)
		}
		lines = append(lines, report.Property+" is broken")
		for _, line := range report.Evidence {
			lines = append(lines, "  "+line)
		}
		lines = append(lines, "")
	}
	lines = append(lines,
		fmt.Sprintf("%s, %d groups of %d, %d messages, up to %d crashes, %d changes of leaders "+
			"and %d ticks", report.Engine, report.Groups, report.Replicas, report.Messages,
			report.Crashes, report.Leads+len(o.search.Hears), report.Ticks),
		fmt.Sprintf("%d states, %d transitions, depth %d, fair runs from %d states; %.1f s, "+
			"%.0f states/s", report.States, report.Transitions, report.Depth, report.Ends,
			report.Seconds, report.Rate))
	switch report.Bound {
	case "":
		lines = append(lines, "complete: every schedule was looked at"+o.within())
	case multicast.BoundStates:
		lines = append(lines, "not complete: --states ended it")
	case multicast.BoundTime:
		lines = append(lines, "not complete: --for ended it")
	case multicast.BoundDepth:
		lines = append(lines, "not complete: schedules are longer than it looks")
	case multicast.BoundInterrupt:
		lines = append(lines, "not complete: interrupted")
	default:
		lines = append(lines, "not complete: it ended with the violation")
	}
	return printLines(out, lines)
}
