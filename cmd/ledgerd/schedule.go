package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// scheduleReport is a schedule with occurrences to come, as --json prints it. Amounts are exact
// integers in the smallest unit, as text.
type scheduleReport struct {
	ID          string          `json:"id"`
	Signer      string          `json:"signer"`
	Postings    []postingReport `json:"postings"`
	Note        string          `json:"note,omitempty"`
	FirstMS     uint64          `json:"first_ms"`
	Period      string          `json:"period"`
	Every       uint32          `json:"every,omitempty"`
	Count       uint32          `json:"count,omitempty"`
	UntilMS     uint64          `json:"until_ms,omitempty"`
	Issued      uint32          `json:"issued"`
	Occurrences uint32          `json:"occurrences"`
	NextMS      uint64          `json:"next_ms"`
	// Past are the occurrences that blocks have, of ledgerd schedule show.
	Past []occurrenceReport `json:"past,omitempty"`
}

// occurrenceReport is an occurrence. Its id is known before a block has it.
type occurrenceReport struct {
	Number uint64 `json:"number"`
	TimeMS uint64 `json:"time_ms"`
	ID     string `json:"id"`
}

func reportSchedule(open *ledgerdv1.OpenSchedule) scheduleReport {
	s := open.GetSchedule()
	report := scheduleReport{ID: open.GetScheduleHex(), Signer: open.GetSigner(),
		Note: open.GetNote(), FirstMS: s.GetFirstMs(), Period: s.GetPeriod(), Every: s.GetEvery(),
		Count: s.GetCount(), UntilMS: s.GetUntilMs(), Issued: open.GetIssued(),
		Occurrences: open.GetOccurrences(), NextMS: open.GetNextMs()}
	for _, p := range s.GetPostings() {
		report.Postings = append(report.Postings, postingReport{Account: p.GetAccount(),
			Amount: p.GetAmount(), Asset: p.GetAsset()})
	}
	return report
}

// every says when the occurrences are.
func (r *scheduleReport) every() string {
	return periodWords(uint64(r.Every), r.Period)
}

// periodWords says how often a schedule has an occurrence: once, "every month", "every 2 weeks".
func periodWords(every uint64, period string) string {
	switch every {
	case 0:
		return "once"
	case 1:
		return "every " + strings.TrimSuffix(period, "s")
	}
	return fmt.Sprintf("every %d %s", every, period)
}

// write shows the schedule to people.
func (r *scheduleReport) write(out io.Writer) error {
	rows := table{}
	rows.add("schedule", r.ID)
	rows.add("placed by", r.Signer)
	for _, p := range r.Postings {
		rows.add("posting", p.Account+" "+p.shown()+" "+p.Asset)
	}
	if r.Note != "" {
		rows.add("note", r.Note)
	}
	rows.add("when", r.every()+" from "+moment(r.FirstMS)+" on")
	rows.add("next", moment(r.NextMS))
	rows.add("issued", fmt.Sprintf("%d of %d", r.Issued, r.Occurrences))
	for _, each := range r.Past {
		rows.add(fmt.Sprintf("number %d", each.Number), moment(each.TimeMS)+"  "+each.ID)
	}
	return rows.write(out)
}

// newScheduleCommand returns the `ledgerd schedule` command.
func newScheduleCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "schedule",
		Short: "Have entries executed at agreed times, once or again and again",
		Long: `Have entries executed at agreed times, once or again and again.

An organisation signs a schedule once. From then on the ledger executes its entry by
itself: each occurrence in the first block whose time is that of the occurrence or
later. An occurrence that fails, for example because the account has too little, is
skipped, and its result says why. Times are in UTC. The organisation may cancel the
schedule at any time.

All of this works across shards, from version 12 of the chains on (ledgerd cluster
upgrade).`,
		Example: `  ledgerd schedule place acme:cash landlord:rents 900.00 EUR \
                        --first 2027-01-31T08:00:00Z --every "1 month" --count 12
  ledgerd schedule list --organisation acme
  ledgerd schedule cancel 5d0c6a…`,
	}, newSchedulePlaceCommand(), newScheduleShowCommand(), newScheduleListCommand(),
		newScheduleCancelCommand())
}

// newSchedulePlaceCommand returns the `ledgerd schedule place` command.
func newSchedulePlaceCommand() *cobra.Command {
	var options postOptions
	var first, every, until, note string
	var count uint64
	command := &cobra.Command{
		Use:   "place FROM TO AMOUNT [ASSET]",
		Short: "Have an amount moved at agreed times",
		Long: `Have an amount moved at agreed times. The organisation of the account that gives signs.

--first is the time of the first occurrence, at most 10 years ahead. --every is the time
between two: "1 month", "2 weeks", "10 days" or "30 minutes"; without it there is one
occurrence. A month that has no such day has the occurrence on its last day. --count or
--until bounds them, at most 4,096 within 50 years.

The command prints the id of the transaction: it is that of the schedule.`,
		Example: `  ledgerd schedule place acme:cash landlord:rents 900.00 EUR \
                        --first 2027-01-31T08:00:00Z --every "1 month" --count 12
  ledgerd schedule place acme:cash shop:deposits 50 --first 24h --note "order 7"`,
		Args: cobra.RangeArgs(3, 4),
		RunE: func(command *cobra.Command, arguments []string) error {
			asset := ""
			if len(arguments) > 3 {
				asset = arguments[3]
			}
			moved, name, err := transfer(arguments[0], arguments[1], asset)
			if err != nil {
				return err
			}
			schedule, err := parseSchedule(first, every, until, count, time.Now())
			if err != nil {
				return err
			}
			if err := options.amount(command, &moved, arguments[2], name); err != nil {
				return err
			}
			schedule.Postings = moved.Postings
			if schedule.Shard, err = options.remote.rootShard(command.Context()); err != nil {
				return err
			}
			signer := moved.Postings[0].Account.Organisation()
			if err := schedule.Validate(signer); err != nil {
				return asUsage(err)
			}
			transaction := client.PlaceSchedule(schedule)
			transaction.Note = []byte(note)
			return options.post(command, []ledger.OrganisationName{signer}, transaction)
		},
		ValidArgsFunction: accountCompletion(&options.remote, 2),
	}
	flags := command.Flags()
	flags.StringVar(&first, "first", "", "when it is executed first: a time such as "+
		"2027-01-31T08:00:00Z, or how long from now, such as 72h")
	flags.StringVar(&every, "every", "", `time between two occurrences, such as "1 month"`)
	flags.Uint64Var(&count, "count", 0, "at most so many occurrences")
	flags.StringVar(&until, "until", "", "no occurrence is after this time")
	flags.StringVar(&note, "note", "", "a note, kept in the schedule and in each occurrence")
	options.bind(command)
	bindDryRun(command, &options.dry)
	return command
}

// parseSchedule parses the flags of ledgerd schedule place.
func parseSchedule(first, every, until string, count uint64, now time.Time) (s ledger.Schedule,
	err error) {
	if s.First, err = parseDeadline(first, now); err != nil || s.First == 0 {
		return s, usagef("--first %q: name a time to come, such as 2027-01-31T08:00:00Z, or how "+
			"long from now, such as 72h", first)
	}
	if s.Until, err = parseDeadline(until, now); err != nil {
		return s, usagef("--until %q: name a time to come, such as 2027-12-31T08:00:00Z", until)
	}
	s.Count = count
	if every == "" {
		if s.Until != 0 || count > 1 {
			return s, usagef("--count and --until need --every, such as \"1 month\"")
		}
		s.Count = 1
		return s, nil
	}
	digits := strings.TrimRight(every, "abcdefghijklmnopqrstuvwxyz ")
	number, unit := strings.TrimSpace(digits), strings.TrimSpace(every[len(digits):])
	if !strings.HasSuffix(unit, "s") {
		unit += "s"
	}
	if s.Every, err = strconv.ParseUint(number, 10, 32); err == nil {
		s.Period, err = ledger.ParsePeriod(unit)
	}
	if err != nil || s.Period == ledger.Once || s.Every == 0 {
		return s, usagef("--every %q: write a number and minutes, days, weeks or months, such as "+
			"\"1 month\"", every)
	}
	if count == 0 && s.Until == 0 {
		return s, usagef("--count or --until is missing: say when the schedule ends")
	}
	return s, nil
}

// rootShard returns the root of the book's tree, where schedules are; 0 in a book of one shard.
func (o *remoteOptions) rootShard(ctx context.Context) (ledger.ShardID, error) {
	nodes, ctx, done, err := o.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	return rootOf(ctx, nodes)
}

// parseScheduleID parses the id of a schedule.
func parseScheduleID(text string) (ledger.Hash, error) {
	id, err := ledger.ParseHash(text)
	if err != nil {
		return id, usagef("schedule %.80q: %w: the id of a schedule is that of the transaction "+
			"that placed it (ledgerd schedule list)", text, err)
	}
	return id, nil
}

// newScheduleShowCommand returns the `ledgerd schedule show` command.
func newScheduleShowCommand() *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "show SCHEDULE",
		Short: "Show a schedule with occurrences to come",
		Long: `Show a schedule with occurrences to come, and the ids of those that blocks have.
ledgerd tx status shows the result of each.

With --json, amounts are exact integers in the smallest unit, as text. Fields: id,
signer, postings, note, first_ms, period, every, count, until_ms, issued, occurrences,
next_ms, past.`,
		Example: `  ledgerd schedule show 5d0c6a…
  ledgerd schedule show 5d0c6a… --json | jq -r '.past[].id'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			id, err := parseScheduleID(arguments[0])
			if err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			open, err := nodes.Schedule(ctx, id)
			if err != nil {
				return err
			}
			report := reportSchedule(open)
			decimalPostings(ctx, newDecimals(nodes), report.Postings)
			placed, err := nodes.Transaction(ctx, id)
			if err != nil {
				return err
			}
			if t, err := ledger.DecodeBody(placed.GetCanonical()); err == nil &&
				t.Schedule != nil && ledger.TransactionID(placed.GetCanonical()) == id {
				for number := uint64(1); number <= uint64(report.Issued); number++ {
					occurrence := ledger.OccurrenceOf(t, id, number)
					entry, _ := ledger.OccurrenceEntry(&occurrence, 0)
					report.Past = append(report.Past, occurrenceReport{Number: number,
						TimeMS: uint64(occurrence.Occurrence.Time), ID: entry.ID.String()})
				}
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			return report.write(command.OutOrStdout())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	addJSONFlag(command, &asJSON)
	return command
}

// newScheduleListCommand returns the `ledgerd schedule list` command.
func newScheduleListCommand() *cobra.Command {
	var remote remoteOptions
	var organisation string
	var limit int
	var asJSON bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List the schedules with occurrences to come",
		Long: `List the schedules with occurrences to come, in the order of their ids.

With --json, schedules are as ledgerd schedule show prints them, without past, and more
says that the limit left some out.`,
		Example: `  ledgerd schedule list --organisation acme
  ledgerd schedule list --limit 0 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if _, err := parseOrganisation(organisation); organisation != "" && err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			found, more, err := take(nodes.Schedules(ctx, ledger.OrganisationName(organisation)),
				limit)
			if err != nil {
				return err
			}
			reports := make([]scheduleReport, len(found))
			rows := table{header: []string{"SCHEDULE", "BY", "WHEN", "NEXT", "ISSUED"}}
			known := newDecimals(nodes)
			for i, open := range found {
				reports[i] = reportSchedule(open)
				decimalPostings(ctx, known, reports[i].Postings)
				r := &reports[i]
				rows.add(r.ID, r.Signer, r.every(), moment(r.NextMS),
					fmt.Sprintf("%d of %d", r.Issued, r.Occurrences))
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), map[string]any{"schedules": reports,
					"more": more})
			}
			return writeList(command.OutOrStdout(), &rows, more, "no schedules are open")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&organisation, "organisation", "", "those that it placed")
	remote.bind(command, false)
	bindLimit(command, &limit, 100)
	addJSONFlag(command, &asJSON)
	return command
}

// newScheduleCancelCommand returns the `ledgerd schedule cancel` command.
func newScheduleCancelCommand() *cobra.Command {
	var options postOptions
	var note string
	command := &cobra.Command{
		Use:   "cancel SCHEDULE",
		Short: "End a schedule: it has no further occurrences",
		Long: `End a schedule: it has no further occurrences. The organisation that placed it signs.
Occurrences that blocks have already stay as they are.`,
		Example: `  ledgerd schedule cancel 5d0c6a… --note "moved out"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			id, err := parseScheduleID(arguments[0])
			if err != nil {
				return err
			}
			level, err := parseLevel(options.wait)
			if err != nil {
				return err
			}
			nodes, ctx, done, err := options.remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			open, err := nodes.Schedule(ctx, id)
			if err != nil {
				return err
			}
			signer := ledger.OrganisationName(open.GetSigner())
			keys, err := options.load([]ledger.OrganisationName{signer})
			if err != nil {
				return fmt.Errorf("%s, which placed the schedule, signs: %w", signer, err)
			}
			ends := client.EndSchedule(id, ledger.ShardID(open.GetSchedule().GetShard()))
			ends.Note = []byte(note)
			return options.postWith(ctx, command, nodes, keys, ends, level)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&note, "note", "", "a note, kept in the transaction")
	options.bind(command)
	bindDryRun(command, &options.dry)
	return command
}

// scheduleRows adds what a transaction has to do with schedules.
func (r *transactionReport) scheduleRows(rows *table) {
	if s := r.Schedule; s != nil {
		when := periodWords(s.Every, s.Period.String())
		rows.add("schedules", when+" from "+moment(uint64(s.First))+" on")
		for i := range s.Postings {
			p := &s.Postings[i]
			rows.add("scheduled", fmt.Sprintf("%s %s %s", p.Account, p.Amount, p.Asset))
		}
	}
	if r.ScheduleEnd != nil {
		rows.add("ends", "schedule "+r.ScheduleEnd.Schedule.String())
	}
	if o := r.Occurrence; o != nil {
		rows.add("occurrence", fmt.Sprintf("%d of schedule %s, for %s", o.Number, o.Schedule,
			moment(uint64(o.Time))))
	}
}

// rootOf returns the root of the book's tree; 0 in a book of one shard.
func rootOf(ctx context.Context, nodes *client.Client) (ledger.ShardID, error) {
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return 0, err
	}
	for _, shard := range tree.GetShards() {
		if shard.GetRoot() {
			return ledger.ShardID(shard.GetShard()), nil
		}
	}
	return 0, nil
}
