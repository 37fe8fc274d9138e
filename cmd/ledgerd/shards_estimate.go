package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan/traffic"
	"github.com/ledgerd/ledgerd/tram"
)

// adviceFlags are the flags of the commands that estimate what shards carry.
type adviceFlags struct {
	measured string
	moves    int
	json     bool
}

func (f *adviceFlags) bind(command *cobra.Command) {
	command.Flags().StringVar(&f.measured, "measured", "",
		"file with what `ledgerd bench ledger --shards S --json` measured on your machines "+
			"(default built-in costs of one machine)")
	command.Flags().IntVar(&f.moves, "moves", traffic.MovesDefault,
		"propose at most so many moves of organisations")
	addJSONFlag(command, &f.json)
}

// read returns the costs, and checks the other flags. Errors are usage errors.
func (f *adviceFlags) read() (traffic.Costs, error) {
	if f.moves < 1 || f.moves > traffic.MovesMax {
		return traffic.Costs{}, usagef("--moves is %d: it has to be 1 to %d", f.moves,
			traffic.MovesMax)
	}
	if f.measured == "" {
		return traffic.MeasuredCosts, nil
	}
	text, err := os.ReadFile(f.measured)
	if err != nil {
		return traffic.Costs{}, asUsage(fmt.Errorf("--measured: %w", err))
	}
	costs, err := costsOf(text)
	if err != nil {
		return traffic.Costs{}, usagef("--measured %s: %w", f.measured, err)
	}
	return costs, nil
}

// costsOf returns the costs in the JSON of `ledgerd bench ledger --shards`.
func costsOf(text []byte) (traffic.Costs, error) {
	var result bench.ShardsResult
	if err := json.Unmarshal(text, &result); err != nil {
		return traffic.Costs{}, fmt.Errorf("%w: name the output of `ledgerd bench ledger "+
			"--shards S --json`", err)
	}
	tree, err := tram.NewTree(groupsOf(result.Tree))
	if err != nil {
		return traffic.Costs{}, fmt.Errorf("%w: name the output of `ledgerd bench ledger "+
			"--shards S --json`", err)
	}
	if result.Pattern != bench.PatternUniform {
		return traffic.Costs{}, fmt.Errorf("its traffic is %q: measure with --pattern %s",
			result.Pattern, bench.PatternUniform)
	}
	var single float64
	var loads []traffic.MeasuredLoad
	for _, load := range result.Loads {
		if load.One == nil || load.Several == nil {
			return traffic.Costs{}, fmt.Errorf("at %d %% one shard or several were not measured: "+
				"measure without --callers", load.Crossing)
		}
		single += mean(load.One.NodeCPUPerRequest) / float64(len(result.Loads))
		measured := traffic.MeasuredLoad{Crossing: load.Several.Crossed / 100}
		if result.Nodes < 1 {
			return traffic.Costs{}, fmt.Errorf("%d nodes a shard", result.Nodes)
		}
		for members := range slices.Chunk(load.Several.NodeCPUPerRequest, result.Nodes) {
			measured.Work = append(measured.Work, mean(members))
		}
		loads = append(loads, measured)
	}
	costs, err := traffic.FitCosts(tree, single, loads)
	if err != nil {
		return costs, fmt.Errorf("%w: measure with --crossing 0,50,100", err)
	}
	return costs, nil
}

// mean returns the mean of numbers, which is not a number if there are none.
func mean(numbers []float64) float64 {
	var sum float64
	for _, number := range numbers {
		sum += number
	}
	return sum / float64(len(numbers))
}

// groupsOf converts the parents of shards.
func groupsOf(parents []ledger.ShardID) []order.GroupID {
	groups := make([]order.GroupID, len(parents))
	for i, parent := range parents {
		groups[i] = order.GroupID(parent)
	}
	return groups
}

// costsReport is the processor time of one node for each step of a transaction, in microseconds.
type costsReport struct {
	Single   float64 `json:"one_shard"`
	Plain    float64 `json:"own"`
	Crossing float64 `json:"entered"`
	Relay    float64 `json:"carried"`
	Verdict  float64 `json:"verdict"`
}

func reportCosts(c traffic.Costs) costsReport {
	return costsReport{c.Single, c.Plain, c.Crossing, c.Relay, c.Verdict}
}

// estimateReport is what a book does for its traffic, as --json prints it.
type estimateReport struct {
	Crossing float64 `json:"crossing_percent"`
	Capacity float64 `json:"capacity_per_second"`
	OneShard float64 `json:"one_shard_capacity_per_second"`
	Gain     float64 `json:"gain"`
	Busiest  uint32  `json:"busiest_shard"`
	// Ahead is null if nothing crosses, or everything does.
	Ahead     *float64     `json:"ahead_up_to_percent"`
	MeanSteps float64      `json:"mean_steps"`
	MostSteps int          `json:"most_steps"`
	Loads     []loadReport `json:"loads"`
}

// loadReport is what one shard does, as --json prints it.
type loadReport struct {
	Shard         uint32 `json:"shard"`
	Organisations int    `json:"organisations"`
	Own           uint64 `json:"own"`
	Entered       uint64 `json:"entered"`
	Carried       uint64 `json:"carried"`
	Passed        uint64 `json:"passed_on"`
	Verdicts      uint64 `json:"verdicts"`
	// CPU is of one node for each transaction of the book, in microseconds.
	CPU float64 `json:"node_cpu_us_per_transaction"`
}

func reportEstimate(e *traffic.Estimate) estimateReport {
	report := estimateReport{Crossing: 100 * e.CrossingShare(), Capacity: e.Capacity,
		OneShard: e.SingleCapacity, Gain: e.Gain(), Busiest: uint32(e.Bottleneck),
		MeanSteps: e.MeanSteps, MostSteps: e.MostSteps, Loads: []loadReport{}}
	if e.EvenShare >= 0 {
		percent := 100 * e.EvenShare
		report.Ahead = &percent
	}
	for _, load := range e.Loads {
		report.Loads = append(report.Loads, loadReport{uint32(load.Shard), load.Parties,
			load.Plain, load.Entered, load.Carried, load.Passed, load.Verdicts,
			load.Work / float64(max(e.Transactions, 1))})
	}
	return report
}

// moveReport is an organisation that had better live in another shard.
type moveReport struct {
	Organisation string `json:"organisation"`
	From         uint32 `json:"from"`
	To           uint32 `json:"to"`
	// Crossing and Gain are those of the book after this move and all before it.
	Crossing float64 `json:"crossing_percent"`
	Gain     float64 `json:"gain"`
}

// treeChoice is another tree of the same shards.
type treeChoice struct {
	Tree     []ledger.ShardID `json:"tree"`
	Estimate estimateReport   `json:"estimate"`
}

// adviceReport is what a book carries and how it would carry more.
type adviceReport struct {
	Shards        int              `json:"shards"`
	Tree          []ledger.ShardID `json:"tree"`
	Costs         costsReport      `json:"costs_us"`
	Organisations int              `json:"organisations"` // that the traffic concerns
	Transactions  uint64           `json:"transactions"`
	Crossings     uint64           `json:"crossings"`
	Now           estimateReport   `json:"now"`
	Moves         []moveReport     `json:"moves"`
	// MovesComplete reports whether no further single move is better.
	MovesComplete bool           `json:"moves_complete"`
	Moved         estimateReport `json:"after_moves"`
	// BetterTree is nil if none was found, as the homes are, and BetterTreeMoved after the moves.
	BetterTree      *treeChoice `json:"better_tree"`
	BetterTreeMoved *treeChoice `json:"better_tree_after_moves"`
}

// adviseBook estimates what a book carries and searches for homes and trees that carry more. It
// says so on progress, if that is a terminal and the search may take seconds.
func adviseBook(progress io.Writer, book traffic.Book, moves int) (*adviceReport, error) {
	const long = 10_000
	if isTerminal(progress) && len(book.Homes)*book.Tree.Groups() > long {
		// Go on even if it cannot be written.
		_, _ = fmt.Fprintf(progress, "searching for moves of %s and for trees\n",
			plural(len(book.Homes), "organisation"))
	}
	advice, err := traffic.Advise(book, traffic.Limits{Moves: moves})
	if err != nil {
		return nil, err
	}
	costs := book.Costs
	report := &adviceReport{Shards: book.Tree.Groups(), Tree: parentsOf(book.Tree),
		Costs:         reportCosts(costs),
		Organisations: len(book.Traffic.Names), Transactions: advice.Before.Transactions,
		Crossings: advice.Before.Crossings, Now: reportEstimate(&advice.Before),
		Moves: []moveReport{}, MovesComplete: advice.Best, Moved: reportEstimate(&advice.After)}
	transactions := float64(max(report.Transactions, 1))
	for _, move := range advice.Moves {
		report.Moves = append(report.Moves, moveReport{book.Traffic.Names[move.Party],
			uint32(move.From), uint32(move.To),
			100 * float64(move.After.Crossings) / transactions,
			transactions * costs.Single / move.After.Bottleneck})
	}
	if report.BetterTree, err = betterTree(book); err != nil || len(report.Moves) == 0 {
		return report, err
	}
	book.Homes = advice.Homes
	report.BetterTreeMoved, err = betterTree(book)
	return report, err
}

// betterTree returns a tree that carries more, or nil.
func betterTree(book traffic.Book) (*treeChoice, error) {
	advice, err := traffic.AdviseTree(book, traffic.Limits{})
	if err != nil || advice.After.Capacity <= advice.Before.Capacity {
		return nil, err
	}
	return &treeChoice{parentsOf(advice.Tree), reportEstimate(&advice.After)}, nil
}

// adviceWords are what the caller of write adds to advice.
type adviceWords struct {
	// moving and planting say what to do with moves and with a tree.
	moving, planting string
}

// write writes the report as text.
func (r *adviceReport) write(out io.Writer, words adviceWords) error {
	rows := table{header: []string{"SHARD", "ORGANISATIONS", "OWN", "ENTER", "FROM ABOVE",
		"PASSED ON", "VERDICTS", "NODE US"},
		right: []bool{true, true, true, true, true, true, true, true}}
	for _, load := range r.Now.Loads {
		rows.add(fmt.Sprint(load.Shard), fmt.Sprint(load.Organisations), fmt.Sprint(load.Own),
			fmt.Sprint(load.Entered), fmt.Sprint(load.Carried), fmt.Sprint(load.Passed),
			fmt.Sprint(load.Verdicts), fmt.Sprintf("%.2f", load.CPU))
	}
	if err := rows.write(out); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nThe busiest is shard %d. The book carries %.2f times what one shard "+
		"carries.\n", r.Now.Busiest, r.Now.Gain)
	if ahead := r.Now.Ahead; ahead != nil {
		fmt.Fprintf(&text, "Spread as now, %s.\n", aheadText(r.Shards, *ahead))
	}
	switch {
	case len(r.Moves) == 0 && r.MovesComplete:
		text.WriteString("\nNo move of one organisation would make it carry more.\n")
	case len(r.Moves) == 0:
		text.WriteString("\nThere are too many organisations and shards to search for moves: " +
			"give the traffic\nof the largest ones to `ledgerd plan --shards S --traffic FILE`.\n")
	default:
		text.WriteString("\nIt would carry more if these organisations moved, one after the " +
			"other:\n\n")
		moves := table{header: []string{"ORGANISATION", "FROM", "TO", "CROSS", "GAIN"},
			right: []bool{false, true, true, true, true}}
		for _, move := range r.Moves {
			moves.add(move.Organisation, fmt.Sprint(move.From), fmt.Sprint(move.To),
				fmt.Sprintf("%.1f %%", move.Crossing), fmt.Sprintf("%.2f", move.Gain))
		}
		if err := moves.write(&text); err != nil {
			return err
		}
		if !r.MovesComplete {
			text.WriteString("\nThese are not all: --moves shows more, unless there is too much " +
				"to search.\n")
		}
		fmt.Fprintf(&text, "\n%s\n", words.moving)
	}
	r.writeTrees(&text)
	best := max(r.Now.Gain, r.Moved.Gain)
	for _, choice := range []*treeChoice{r.BetterTree, r.BetterTreeMoved} {
		if choice != nil {
			best = max(best, choice.Estimate.Gain)
		}
	}
	if best < 1 && r.Transactions > 0 {
		fmt.Fprintf(&text, "%s\n", oneShardText)
	}
	if r.BetterTree != nil || r.BetterTreeMoved != nil {
		fmt.Fprintf(&text, "%s\n", words.planting)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// oneShardText is for traffic that one shard carries best.
const oneShardText = "One shard would carry more than any of these: too much crosses."

// aheadText says up to which percentage of crossings shards carry more than one.
func aheadText(shards int, percent float64) string {
	if percent == 0 {
		return plural(shards, "shard") + " carry less than one even if nothing crosses"
	}
	return fmt.Sprintf("%s are ahead of one up to %.1f %% that cross", plural(shards, "shard"),
		percent)
}

// writeTrees writes the trees that would carry more.
func (r *adviceReport) writeTrees(text *strings.Builder) {
	if choice := r.BetterTree; choice != nil {
		fmt.Fprintf(text, "\nWith the homes as they are, another tree would carry %.2f times what "+
			"one shard carries:\n  %s\n", choice.Estimate.Gain, shownTree(choice.Tree))
	}
	if choice := r.BetterTreeMoved; choice != nil {
		fmt.Fprintf(text, "\nAfter these moves, another tree would carry %.2f times what one "+
			"shard carries:\n  %s\n", choice.Estimate.Gain, shownTree(choice.Tree))
	}
	if r.BetterTree == nil && r.BetterTreeMoved == nil {
		fmt.Fprintf(text, "\nNo other tree that was tried would carry more.\n")
	}
}

// shownTree returns a tree as text. Without a named shape, each shard has its parent behind it.
func shownTree(tree []ledger.ShardID) string {
	text := treeText(tree)
	if slices.Contains(treeShapes, text) {
		return text
	}
	return text + " (each shard and its parent)"
}

// adviceFields explain the JSON fields of an estimate and of advice.
const adviceFields = `  shards, tree                  the tree, by the parent of each shard
  costs_us                      processor time of one node for a transaction: in a
                                book of one shard (one_shard); of several shards, if
                                it stays in one (own); if it crosses, where it
                                enters (entered), in each shard that takes it from
                                its parent (carried), and for each verdict (verdict)
  organisations, transactions, crossings
                                the traffic
  now                           what the book does for it:
    crossing_percent            how many of the transactions cross
    capacity_per_second         transactions a second with which each node of the
                                busiest shard uses one processor up
    one_shard_capacity_per_second, gain
                                the same for a book of one shard, and how many times
                                that the shards carry
    busiest_shard               the shard with the most work
    ahead_up_to_percent         up to which percentage the shards carry more than
                                one, if crossings stay spread as they are; null if
                                none or all cross
    mean_steps, most_steps      steps down the tree to the last destination
    loads                       for each shard:
      shard, organisations      those that live there
      own, entered, carried, passed_on, verdicts
                                transactions of this shard alone, those that cross
                                and enter here, those from the parent's stream,
                                those of both that do not concern it, and verdicts
                                that it takes from other shards
      node_cpu_us_per_transaction
                                time of one node for each transaction of the book
  moves, moves_complete         organisation, from, to; crossing_percent and gain
                                after this move and all before it; and whether no
                                further move is better
  after_moves                   as now, after all moves
  better_tree, better_tree_after_moves
                                tree and estimate (as now) of a tree that carries
                                more; null if none was found`
