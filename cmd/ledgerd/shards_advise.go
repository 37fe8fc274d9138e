package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan/traffic"
	"github.com/ledgerd/ledgerd/tram"
)

// shardsAdviseOptions are the flags of ledgerd shards advise.
type shardsAdviseOptions struct {
	remote remoteOptions
	advice adviceFlags
	limit  uint64
	period time.Duration
	save   string
}

// shardsAdviceReport is what ledgerd shards advise --json prints.
type shardsAdviceReport struct {
	AskedNode string `json:"asked_node"`
	// Begin and End are the times of the first and the last block that was read.
	Begin  uint64 `json:"begin_ms"`
	End    uint64 `json:"end_ms"`
	Ended  string `json:"ended"`
	Blocks uint64 `json:"blocks"`
	// Rate is the number of transactions in one second of that time; 0 if it is too short.
	Rate    float64  `json:"transactions_per_second"`
	Failed  uint64   `json:"failed"`
	Others  uint64   `json:"other_entries"`
	Hidden  uint64   `json:"hidden_entries"`
	Partial uint64   `json:"partial_transactions"`
	Silent  []uint32 `json:"silent_shards"`
	// Registered is the number of organisations of the book.
	Registered int `json:"registered_organisations"`
	adviceReport
}

// newShardsAdviseCommand returns the `ledgerd shards advise` command.
func newShardsAdviseCommand() *cobra.Command {
	options := shardsAdviseOptions{limit: 100_000}
	command := &cobra.Command{
		Use:   "advise",
		Short: "Say which organisations had better live in other shards",
		Long: `Say which organisations had better live in other shards, and which tree of shards
would carry more, from the book's own traffic.

The command reads the newest blocks of all shards, back to one moment, and counts
which organisations deal with each other. It asks one node, which asks those of
other shards. A transaction of several shards counts once. Registrations, verdicts
and changes of members, policies and operators are left out.

Then it estimates what each shard does for this traffic, as ` + "`ledgerd plan --shards`" + `
does, and searches for moves of single organisations, each time the one that
relieves the busiest shard most, and for another tree.

What it does not know: traffic before --period or beyond --transactions, and that of
a shard of which no node answers; traffic to come; memory, disks and networks; what
small blocks cost, of which a book has many while it is far from what it carries; and
gains that need several moves at once. With the rights of an organisation, a node
shows only what concerns that organisation, so advice needs those of a reader.

It only advises. An organisation that is registered stays where it is, and so does
the tree: use the advice for new organisations and for a new book. --save writes the
traffic as ` + "`ledgerd plan --shards S --traffic FILE`" + ` reads it, to try other numbers of
shards. Nothing else is written.

JSON fields:

  asked_node                    the node that answered last
  begin_ms, end_ms, blocks      the time that was read, and its blocks
  ended                         why nothing before is counted
  transactions_per_second       in that time
  failed                        transactions that failed; they count all the same
  other_entries                 entries that are left out, and hidden_entries those
                                that the node did not show
  partial_transactions          those with more organisations than the node names;
                                the others do not count
  silent_shards                 shards of which no node answers
  registered_organisations      all of the book
` + adviceFields,
		Example: `  ledgerd shards advise
  ledgerd shards advise --period 24h --transactions 1000000 --timeout 0

  # How much the first three moves would win
  ledgerd shards advise --moves 3 --json | jq '.now.gain, .after_moves.gain'

  # Whether seven shards would carry this traffic better
  ledgerd shards advise --save deals.csv
  ledgerd plan --shards 7 --tree binary --traffic deals.csv`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.remote.bind(command, false)
	flags := command.Flags()
	flags.Uint64Var(&options.limit, "transactions", options.limit,
		"read at most about so many transactions")
	flags.DurationVar(&options.period, "period", 0,
		"read only this time before the newest block (default all)")
	flags.StringVar(&options.save, "save", "", "write the traffic to this file")
	options.advice.bind(command)
	return command
}

func (o *shardsAdviseOptions) run(command *cobra.Command) error {
	switch {
	case o.limit < 1 || o.limit > trafficMax:
		return usagef("--transactions is %d: it has to be 1 to %d", o.limit, trafficMax)
	case o.period < 0:
		return usagef("--period is %s: it has to be above zero, or 0 for all", o.period)
	}
	costs, err := o.advice.read()
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	known, err := nodes.Tree(ctx)
	if err != nil {
		return err
	}
	parents := make([]order.GroupID, len(known.GetShards()))
	for i, shard := range known.GetShards() { // they are by number
		parents[i] = order.GroupID(i)
		if !shard.GetRoot() {
			parents[i] = order.GroupID(shard.GetParent())
		}
	}
	tree, err := tram.NewTree(parents)
	if err != nil {
		return fmt.Errorf("the tree of the node: %w", err)
	}
	if tree.Groups() == 1 && o.save == "" {
		return errors.New("the book has one shard, so there is no advice: save its traffic with " +
			"--save FILE, and try several with `ledgerd plan --shards S --traffic FILE`")
	}
	homes, err := homesOf(ctx, nodes)
	if err != nil {
		return err
	}
	progress, end := trafficProgress(command.ErrOrStderr(), o.limit)
	reader := trafficReader{nodes: nodes, homes: homes, limit: o.limit, period: o.period,
		progress: progress}
	readable, silent := readableShards(known)
	found, err := reader.read(ctx, readable)
	end()
	if err != nil {
		return err
	}
	found.Silent = append(found.Silent, silent...)
	slices.Sort(found.Silent)
	return o.advise(command.OutOrStdout(), command.ErrOrStderr(), found, homes,
		traffic.Book{Tree: tree, Traffic: found.Traffic(), Costs: costs}, nodes.Current())
}

// homesOf returns the shard of each registered organisation.
func homesOf(ctx context.Context, nodes *client.Client) (map[string]uint32, error) {
	homes := make(map[string]uint32)
	for organisation, err := range nodes.Organisations(ctx) {
		if err != nil {
			return nil, err
		}
		homes[organisation.GetName()] = organisation.GetShard()
	}
	return homes, nil
}

// advise saves the traffic and prints the advice for a book, whose homes it sets.
func (o *shardsAdviseOptions) advise(out, progress io.Writer, found *bookTraffic,
	homes map[string]uint32, book traffic.Book, asked string) error {
	if o.save != "" {
		if err := saveTraffic(o.save, &book.Traffic); err != nil {
			return err
		}
	}
	for _, name := range book.Traffic.Names {
		book.Homes = append(book.Homes, order.GroupID(homes[name]))
	}
	advice, err := adviseBook(progress, book, o.advice.moves)
	if err != nil {
		return err
	}
	report := shardsAdviceReport{AskedNode: asked, Begin: found.Begin, End: found.End,
		Ended: found.Ended, Blocks: found.Blocks, Failed: found.Failed, Others: found.Others,
		Hidden: found.Hidden, Partial: found.Partial, Silent: append([]uint32{}, found.Silent...),
		Registered: len(homes), adviceReport: *advice}
	if time := found.End - found.Begin; time >= 1000 {
		report.Rate = 1000 * float64(found.Transactions) / float64(time)
	}
	if o.advice.json {
		return writeJSON(out, report)
	}
	return report.write(out)
}

// saveTraffic writes traffic to a new file, or over an old one.
func saveTraffic(name string, of *traffic.Traffic) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return of.Write(file)
}

// write writes the report as text.
func (r *shardsAdviceReport) write(out io.Writer) error {
	overview := table{}
	overview.add("shards", fmt.Sprintf("%d, in the tree %s", r.Shards, shownTree(r.Tree)))
	overview.add("read", fmt.Sprintf("%s in %s, %d failed",
		plural(int(r.Transactions), "transaction"), plural(int(r.Blocks), "block"), r.Failed))
	if r.Blocks > 0 {
		overview.add("from", fmt.Sprintf("%s to %s: %s", moment(r.Begin), moment(r.End), r.Ended))
	}
	overview.add("concern", fmt.Sprintf("%d of %s", r.Organisations,
		plural(r.Registered, "organisation")))
	overview.add("cross", fmt.Sprintf("%.1f %%", r.Now.Crossing))
	if r.Rate > 0 {
		overview.add("rate", fmt.Sprintf("%.1f transactions a second", r.Rate))
	}
	if len(r.Silent) > 0 {
		overview.add("missing", fmt.Sprintf("%s: no node answers", client.ShardNames(r.Silent)))
	}
	if r.Hidden > 0 {
		overview.add("hidden", fmt.Sprintf("%d entries: the node shows you only what concerns you",
			r.Hidden))
	}
	if r.Partial > 0 {
		overview.add("partial", fmt.Sprintf("%s with more organisations than the node names",
			plural(int(r.Partial), "transaction")))
	}
	if err := overview.write(out); err != nil {
		return err
	}
	if r.Transactions == 0 {
		_, err := fmt.Fprintln(out, "\nThere is no traffic to advise on.")
		return err
	}
	if r.Shards == 1 {
		_, err := fmt.Fprintln(out, "\nTry several shards with `ledgerd plan --shards S --traffic "+
			"FILE`.")
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	words := adviceWords{
		moving: "An organisation that is registered stays where it is: choose homes with --shard " +
			"of\n`ledgerd org add`, for new organisations or in a new book.",
		planting: "The tree of a book does not change: make a new book with it, with --tree of\n" +
			"`ledgerd testnet`.",
	}
	if err := r.adviceReport.write(out, words); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n"+loadsLegend)
	return err
}
