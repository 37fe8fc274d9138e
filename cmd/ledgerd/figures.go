package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// figuresReport is what ledgerd figures --json prints.
type figuresReport struct {
	By string `json:"by"` // hour, day or month
	// Book is the whole book; none if one shard is chosen.
	Book   *bookFiguresReport   `json:"book,omitempty"`
	Shards []shardFiguresReport `json:"shards"`
	// Missing are the shards that did not answer. The book's figures lack them.
	Missing []uint32 `json:"missing"`
}

// bookFiguresReport counts each transaction of the book once.
type bookFiguresReport struct {
	Transactions uint64             `json:"transactions"`
	Between      uint64             `json:"between"`
	Periods      []bookPeriodReport `json:"periods"`
}

// bookPeriodReport is the book in an hour, day or month.
type bookPeriodReport struct {
	Start        string `json:"start"`
	StartMS      uint64 `json:"start_ms"`
	Transactions uint64 `json:"transactions"`
	Between      uint64 `json:"between"`
}

// shardFiguresReport counts what is in a shard's chain, from one block to another.
type shardFiguresReport struct {
	Shard         uint32 `json:"shard"`
	FromHeight    uint64 `json:"from_height"` // above 1 at a node that lacks earlier blocks
	CountedHeight uint64 `json:"counted_height"`
	countsReport
	Periods []shardPeriodReport `json:"periods"`
}

// shardPeriodReport is a shard in an hour, day or month.
type shardPeriodReport struct {
	Start   string `json:"start"`
	StartMS uint64 `json:"start_ms"`
	countsReport
}

// countsReport are the counts of the API's Figures.
type countsReport struct {
	Transactions uint64 `json:"transactions"`
	First        uint64 `json:"first"` // those of which the shard is the lowest that they concern
	Failed       uint64 `json:"failed"`
	Between      uint64 `json:"between"`
}

func countsOf(f *ledgerdv1.Figures) countsReport {
	return countsReport{f.GetTransactions(), f.GetFirst(), f.GetFailed(), f.GetBetween()}
}

// figurePeriods are the lengths of periods, with how many are shown and how many nodes keep.
var figurePeriods = map[string]struct {
	standard, most int
	form           string // of a period's beginning, for people
}{
	"hour":  {24, 744, "2006-01-02 15:00"},
	"day":   {30, 3660, time.DateOnly},
	"month": {12, 1200, "2006-01"},
}

// figuresOptions are the flags of ledgerd figures.
type figuresOptions struct {
	remote   remoteOptions
	by       string
	last     int
	shard    int
	format   string
	jsonForm bool
}

// newFiguresCommand returns the `ledgerd figures` command.
func newFiguresCommand() *cobra.Command {
	options := figuresOptions{by: "day", shard: -1, format: "table"}
	command := &cobra.Command{
		Use:   "figures",
		Short: "Show how many transactions the book has, by hour, day or month",
		Long: `Show how many transactions the book has: since the beginning, and in the last
hours, days or months (--by), which are those of UTC and of the calendar. Periods
without blocks are left out.

Each transaction of users or operators counts once, also if it crosses shards, and
also if it failed. Entries between shards are counted apart: verdicts, what an
organisation brings to a new home, and transactions that are only passed on.
With --shard, a shard's own chain is counted, where a transaction that crosses
counts in each shard that it concerns, and those that failed are shown.

Nodes keep 744 hours, 3660 days and 1200 months. They count when they are asked,
so the first answer of a node with a long chain takes a while (--timeout). If a
shard does not answer, or a node lacks the first blocks, that is told, and the
exit status is 1.

The command believes the nodes; ledgerd verify --book executes all chains again.`,
		Example: `  ledgerd figures
  ledgerd figures --by month --last 24 --format csv
  ledgerd figures --by hour --shard 2 --json`,
		Args:              cobra.NoArgs,
		RunE:              options.run,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.remote.bind(command, false)
	command.Flags().StringVar(&options.by, "by", options.by, "the periods: hour, day or month")
	command.Flags().IntVar(&options.last, "last", 0,
		"how many of the newest periods (24 hours, 30 days or 12 months if it is 0)")
	command.Flags().IntVar(&options.shard, "shard", options.shard,
		"count the chain of this shard only; -1 is the whole book")
	command.Flags().StringVar(&options.format, "format", options.format,
		"what to write: table, csv or json")
	addJSONFlag(command, &options.jsonForm)
	return command
}

func (o *figuresOptions) run(command *cobra.Command, _ []string) error {
	period, known := figurePeriods[o.by]
	if o.jsonForm {
		o.format = "json"
	}
	switch {
	case !known:
		return usagef("--by %q: it is hour, day or month", o.by)
	case o.last < 0 || o.last > period.most:
		return usagef("--last %d: nodes keep %d of them", o.last, period.most)
	case o.shard < -1 || o.shard > 1<<16:
		return usagef("--shard %d: there is no such shard", o.shard)
	case o.format != "table" && o.format != "csv" && o.format != "json":
		return usagef("--format %q: it is table, csv or json", o.format)
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	report, err := o.ask(ctx, nodes, cmp.Or(o.last, period.standard))
	if err != nil {
		return err
	}
	return errors.Join(report.write(command.OutOrStdout(), o.format), report.lacking())
}

// ask asks each shard for its figures.
func (o *figuresOptions) ask(ctx context.Context, nodes *client.Client,
	last int) (*figuresReport, error) {
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return nil, err
	}
	report := &figuresReport{By: o.by, Shards: []shardFiguresReport{}, Missing: []uint32{}}
	shards := tree.GetShards()
	if len(shards) == 0 {
		shards = []*ledgerdv1.Shard{{}}
	}
	var failures []error
	for _, shard := range shards {
		number := shard.GetShard()
		if o.shard >= 0 && number != uint32(o.shard) {
			continue
		}
		if shard.GetMode() == nodereport.ShardLost.String() {
			report.Missing = append(report.Missing, number)
			continue
		}
		request := &ledgerdv1.GetFiguresRequest{}
		if len(tree.GetShards()) > 0 {
			request.Shard = &number
		}
		switch o.by {
		case "hour":
			request.Hours = uint32(last)
		case "day":
			request.Days = uint32(last)
		case "month":
			request.Months = uint32(last)
		}
		answer, err := nodes.Figures(ctx, request)
		if err != nil {
			failures = append(failures, fmt.Errorf("shard %d: %w", number, err))
			report.Missing = append(report.Missing, number)
			continue
		}
		report.add(number, answer)
	}
	switch {
	case len(report.Shards) == 0 && len(failures) > 0:
		return nil, errors.Join(failures...)
	case len(report.Shards) == 0 && len(report.Missing) == 0:
		return nil, usagef("--shard %d: the book has no such shard", o.shard)
	case o.shard < 0:
		report.sum(last)
	}
	return report, nil
}

// add takes a shard's answer.
func (r *figuresReport) add(shard uint32, answer *ledgerdv1.GetFiguresResponse) {
	figures := shardFiguresReport{Shard: shard, FromHeight: answer.GetFromHeight(),
		CountedHeight: answer.GetCountedHeight(), countsReport: countsOf(answer.GetTotal()),
		Periods: []shardPeriodReport{}}
	for _, each := range slices.Concat(answer.GetHours(), answer.GetDays(), answer.GetMonths()) {
		figures.Periods = append(figures.Periods, shardPeriodReport{moment(each.GetStartMs()),
			each.GetStartMs(), countsOf(each)})
	}
	r.Shards = append(r.Shards, figures)
}

// sum adds the shards up to the book. Of the newest periods that any shard has, every shard has
// answered with all that it has, so each sum is complete.
func (r *figuresReport) sum(last int) {
	r.Book = &bookFiguresReport{Periods: []bookPeriodReport{}}
	periods := make(map[uint64]*bookPeriodReport)
	for i := range r.Shards {
		shard := &r.Shards[i]
		r.Book.Transactions += shard.First
		r.Book.Between += shard.Between
		for _, each := range shard.Periods {
			period := periods[each.StartMS]
			if period == nil {
				period = &bookPeriodReport{Start: each.Start, StartMS: each.StartMS}
				periods[each.StartMS] = period
			}
			period.Transactions += each.First
			period.Between += each.Between
		}
	}
	for _, period := range periods {
		r.Book.Periods = append(r.Book.Periods, *period)
	}
	slices.SortFunc(r.Book.Periods, func(a, b bookPeriodReport) int {
		return cmp.Compare(a.StartMS, b.StartMS)
	})
	r.Book.Periods = r.Book.Periods[max(0, len(r.Book.Periods)-last):]
}

// lacking returns an error if the figures are not those of all blocks.
func (r *figuresReport) lacking() error {
	var lacks []string
	for _, shard := range r.Missing {
		lacks = append(lacks, fmt.Sprintf("shard %d does not answer, or is lost", shard))
	}
	for i := range r.Shards {
		if from := r.Shards[i].FromHeight; from > 1 {
			lacks = append(lacks, fmt.Sprintf("the node of shard %d has no blocks before %d",
				r.Shards[i].Shard, from))
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("the figures are not complete: %s", strings.Join(lacks, "; "))
}

// write writes the report in a format.
func (r *figuresReport) write(out io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(out, r)
	case "csv":
		return r.writeCSV(out)
	}
	if r.Book != nil {
		rows := table{header: []string{strings.ToUpper(r.By), "TRANSACTIONS", "BETWEEN SHARDS"},
			right: []bool{false, true, true}}
		for _, each := range r.Book.Periods {
			rows.add(r.label(each.StartMS), fmt.Sprint(each.Transactions), fmt.Sprint(each.Between))
		}
		rows.add("in all", fmt.Sprint(r.Book.Transactions), fmt.Sprint(r.Book.Between))
		return rows.write(out)
	}
	rows := table{header: []string{strings.ToUpper(r.By), "TRANSACTIONS", "FAILED",
		"BETWEEN SHARDS"}, right: []bool{false, true, true, true}}
	for i := range r.Shards {
		shard := &r.Shards[i]
		add := func(label string, counts countsReport) {
			rows.add(label, fmt.Sprint(counts.Transactions), fmt.Sprint(counts.Failed),
				fmt.Sprint(counts.Between))
		}
		for _, each := range shard.Periods {
			add(r.label(each.StartMS), each.countsReport)
		}
		add("in all", shard.countsReport)
	}
	return rows.write(out)
}

// writeCSV writes a row for each period of the book and of each shard. A transaction that failed in
// two shards is one of the book, so the book's rows have no number of them.
func (r *figuresReport) writeCSV(out io.Writer) error {
	to := csv.NewWriter(out)
	err := to.Write([]string{"shard", r.By, "transactions", "first", "failed", "between"})
	if r.Book != nil {
		for _, each := range r.Book.Periods {
			err = errors.Join(err, to.Write([]string{"book", r.label(each.StartMS),
				fmt.Sprint(each.Transactions), fmt.Sprint(each.Transactions), "",
				fmt.Sprint(each.Between)}))
		}
	}
	for i := range r.Shards {
		for _, each := range r.Shards[i].Periods {
			err = errors.Join(err, to.Write([]string{fmt.Sprint(r.Shards[i].Shard),
				r.label(each.StartMS), fmt.Sprint(each.Transactions), fmt.Sprint(each.First),
				fmt.Sprint(each.Failed), fmt.Sprint(each.Between)}))
		}
	}
	to.Flush()
	return errors.Join(err, to.Error())
}

// label names a period by its beginning, in UTC.
func (r *figuresReport) label(startMS uint64) string {
	return time.UnixMilli(int64(startMS)).UTC().Format(figurePeriods[r.By].form)
}
