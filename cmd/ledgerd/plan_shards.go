package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan/traffic"
	"github.com/ledgerd/ledgerd/tram"
)

// planShardsFlags are the flags of ledgerd plan for a tree of shards.
type planShardsFlags struct {
	shards         int
	tree           string
	crossing       []int
	traffic, homes string
}

// planShardsLong explains them.
const planShardsLong = `With --shards, the command says what a tree of shards carries. A transaction that
concerns several shards costs far more than one that stays in one shard, so it
depends on who deals with whom:

  --crossing PERCENT,...  all organisations deal with each other equally often, and
                          so many transactions concern two shards
  --traffic FILE          a line for each group of organisations that deal with each
                          other, and the number of their transactions, as in
                          acme,globex,120. A line with one organisation has what
                          concerns it alone.
  --homes FILE            their shards, one a line, as in acme,2. All others live
                          where ` + "`ledgerd org add`" + ` puts them without --shard.

With --traffic the command also says which organisations had better live in other
shards, and which tree would carry more. ` + "`ledgerd shards advise`" + ` does so for a
running book, from its own traffic.

The measure is processor time, as of ` + "`ledgerd bench ledger --shards`" + `: the book
carries what the busiest shard carries, once each of its nodes has used one
processor up. Memory, disks and networks are not counted. The built-in costs are of
bundles of 100 transactions on one machine; --measured takes yours.`

func (f *planShardsFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.IntVar(&f.shards, "shards", 0, "plan this number of shards instead of one shard")
	flags.StringVar(&f.tree, "tree", "breadth",
		"tree of the shards: breadth, binary, chain, or a file with a line \"shard parent\" for "+
			"each")
	bindTreeCompletion(command)
	flags.IntSliceVar(&f.crossing, "crossing", []int{0, 10, 25, 50, 75, 100},
		"percentages of the transactions that concern two shards")
	flags.StringVar(&f.traffic, "traffic", "", "file with who deals with whom")
	flags.StringVar(&f.homes, "homes", "", "with --traffic: file with the organisations' shards")
}

// The flags of ledgerd plan that are for one shard, and those that are for several.
var (
	planOneShard = []string{"servers", "nines", "mttf", "period", "deployment", "batch",
		"transaction", "accuracy", "tail", "distance", "load", "engine"}
	planManyShards = []string{"tree", "crossing", "traffic", "homes", "measured", "moves"}
)

// check reports flags that do not belong together, as a usage error.
func (f *planShardsFlags) check(changed func(name string) bool) error {
	if !changed("shards") {
		if stray := slices.IndexFunc(planManyShards, changed); stray >= 0 {
			return usagef("--%s is for --shards: name both, or neither", planManyShards[stray])
		}
		return nil
	}
	stray := slices.IndexFunc(planOneShard, changed)
	switch {
	case stray >= 0:
		return usagef("--%s is for one shard, and --shards for several: plan one after the other",
			planOneShard[stray])
	case f.traffic != "" && changed("crossing"):
		return usagef("--crossing and --traffic exclude each other: the traffic says what crosses")
	case f.traffic == "" && f.homes != "":
		return usagef("--homes is for --traffic: name both")
	case f.traffic == "" && changed("moves"):
		return usagef("--moves is for --traffic: name both")
	}
	return nil
}

// run makes the plan and prints it.
func (f *planShardsFlags) run(out, progress io.Writer, advice *adviceFlags) error {
	parents, err := readShardTree(f.tree, f.shards)
	if err != nil {
		return err
	}
	tree, err := tram.NewTree(groupsOf(parents))
	if err != nil {
		return err
	}
	costs, err := advice.read()
	if err != nil {
		return err
	}
	if f.traffic != "" {
		return f.fromTraffic(out, progress, tree, costs, advice)
	}
	report, err := planEvenly(tree, costs, f.crossing)
	switch {
	case errors.Is(err, traffic.ErrBook):
		return usagef("--crossing: %w", err)
	case err != nil:
		return err
	case advice.json:
		return writeJSON(out, report)
	}
	return report.write(out)
}

// fromTraffic prints what the tree carries of the traffic in a file.
func (f *planShardsFlags) fromTraffic(out, progress io.Writer, tree *tram.Tree,
	costs traffic.Costs, flags *adviceFlags) error {
	book := traffic.Book{Tree: tree, Costs: costs}
	err := readInput("traffic", f.traffic, func(from io.Reader) (err error) {
		book.Traffic, err = traffic.Read(from)
		return err
	})
	if err != nil {
		return err
	}
	homes := map[string]uint32{}
	if f.homes != "" {
		err = readInput("homes", f.homes, func(from io.Reader) (err error) {
			homes, err = traffic.ReadHomes(from, f.shards)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, text := range book.Traffic.Names {
		name, err := parseOrganisation(text)
		if err != nil {
			return usagef("--traffic %s: %w", f.traffic, err)
		}
		home, named := homes[text]
		if !named {
			home = uint32(ledger.Rendezvous(name, f.shards))
		}
		book.Homes = append(book.Homes, order.GroupID(home))
	}
	report, err := adviseBook(progress, book, flags.moves)
	if err != nil {
		return err
	}
	if flags.json {
		return writeJSON(out, report)
	}
	if _, err := fmt.Fprintf(out, "%s (%s), %s, %s, %.1f %% cross\n\n",
		plural(report.Shards, "shard"), treeText(report.Tree),
		plural(report.Organisations, "organisation"),
		plural(int(report.Transactions), "transaction"), report.Now.Crossing); err != nil {
		return err
	}
	if err := report.write(out, adviceWords{
		moving:   "Choose homes with --shard of `ledgerd org add`.",
		planting: "Make the book with this tree: --tree of `ledgerd testnet` takes a file.",
	}); err != nil {
		return err
	}
	_, err = io.WriteString(out, "\n"+loadsLegend)
	return err
}

// loadsLegend explains the table of adviceReport.write.
const loadsLegend = `OWN are transactions of this shard alone. Those that cross ENTER at the lowest shard
above all that they concern, and come FROM ABOVE below it; PASSED ON are those of
both that do not concern the shard. NODE US is the processor time of each of its
nodes for a transaction of the book. GAIN is how many times what one shard carries.
`

// readInput reads the file that a flag names. Errors are usage errors.
func readInput(flag, name string, read func(io.Reader) error) error {
	file, err := os.Open(name)
	if err != nil {
		return asUsage(fmt.Errorf("--%s: %w", flag, err))
	}
	defer file.Close()
	if err := read(file); err != nil {
		return usagef("--%s %s: %w", flag, name, err)
	}
	return nil
}

// evenReport is what a tree carries if all organisations deal with each other equally often.
type evenReport struct {
	Shards int              `json:"shards"`
	Tree   []ledger.ShardID `json:"tree"`
	Costs  costsReport      `json:"costs_us"`
	Plans  []evenPlan       `json:"plans"`
	// Ahead is null if nothing crosses in all plans, or everything.
	Ahead *float64 `json:"ahead_up_to_percent"`
}

// evenPlan is what a tree carries for one percentage of crossings.
type evenPlan struct {
	estimateReport
	// Shapes has the gain of the same traffic in the trees with names.
	Shapes map[string]float64 `json:"gain_of_shapes"`
}

// planEvenly estimates a tree for each percentage. It returns traffic.ErrBook for an impossible
// one.
func planEvenly(tree *tram.Tree, costs traffic.Costs, crossing []int) (*evenReport, error) {
	report := &evenReport{Shards: tree.Groups(), Tree: parentsOf(tree),
		Costs: reportCosts(costs), Plans: []evenPlan{}}
	for _, percent := range crossing {
		even, homes, err := traffic.Uniform(tree.Groups(), percent)
		if err != nil {
			return nil, err
		}
		book := traffic.Book{Tree: tree, Traffic: even, Homes: homes, Costs: costs}
		estimate, err := traffic.EstimateOf(book)
		if err != nil {
			return nil, err
		}
		plan := evenPlan{reportEstimate(&estimate), make(map[string]float64)}
		if report.Ahead == nil {
			report.Ahead = plan.Ahead
		}
		for _, name := range treeShapes {
			if book.Tree, err = tram.ParseTree(name, tree.Groups()); err != nil {
				return nil, err
			}
			if estimate, err = traffic.EstimateOf(book); err != nil {
				return nil, err
			}
			plan.Shapes[name] = estimate.Gain()
		}
		report.Plans = append(report.Plans, plan)
	}
	return report, nil
}

// write writes the report as text.
func (r *evenReport) write(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%s (%s); all deal with each other equally often\n\n",
		plural(r.Shards, "shard"), treeText(r.Tree)); err != nil {
		return err
	}
	rows := table{header: []string{"CROSS", "CAPACITY/S", "GAIN", "BUSIEST", "STEPS", "BREADTH",
		"BINARY", "CHAIN"}, right: []bool{true, true, true, true, true, true, true, true}}
	for _, plan := range r.Plans {
		steps := "-"
		if plan.MostSteps > 0 {
			steps = fmt.Sprintf("%.1f", plan.MeanSteps)
		}
		cells := []string{fmt.Sprintf("%.0f %%", plan.Crossing),
			fmt.Sprintf("%.0f", plan.Capacity), fmt.Sprintf("%.2f", plan.Gain),
			fmt.Sprintf("shard %d", plan.Busiest), steps}
		for _, name := range treeShapes {
			cells = append(cells, fmt.Sprintf("%.2f", plan.Shapes[name]))
		}
		rows.add(cells...)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	ahead := ""
	if r.Ahead != nil {
		ahead = aheadText(r.Shards, *r.Ahead) + ".\n\n"
	}
	_, err := fmt.Fprintf(out, `
%sCAPACITY is what the book carries once each node of the busiest shard has used one
processor up, and GAIN how many times the capacity of one shard that is. STEPS is how
many steps down the tree a crossing takes from where it enters to its last
destination. BREADTH, BINARY and CHAIN have the gain of the same traffic in these trees.
`, ahead)
	return err
}
