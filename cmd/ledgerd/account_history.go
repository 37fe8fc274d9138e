package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// periodFlags are the flags that choose a period: blocks, moments, or both.
type periodFlags struct {
	from, to string
	zone     string
	location *time.Location // after fill
}

// bind adds the flags to a command.
func (f *periodFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "", "begin with this block, day (2006-01-31) or moment (RFC "+
		"3339)")
	flags.StringVar(&f.to, "to", "", "end with this block or day, or before this moment")
	flags.StringVar(&f.zone, "zone", "UTC", "the time zone of days and of the output, such as "+
		"Europe/Berlin")
}

// fill writes the period into a request.
func (f *periodFlags) fill(request *ledgerdv1.ListHistoryRequest) (err error) {
	if f.location, err = time.LoadLocation(f.zone); err != nil || f.zone == "Local" {
		return usagef("--zone %q: name it like Europe/Berlin, or UTC", f.zone)
	}
	if request.FromHeight, request.FromTimeMs, err = f.bound("from", f.from, 0); err == nil {
		request.ToHeight, request.ToTimeMs, err = f.bound("to", f.to, 1)
	}
	switch {
	case err != nil:
		return err
	case request.GetToHeight() != 0 && request.GetFromHeight() > request.GetToHeight(),
		request.GetToTimeMs() != 0 && request.GetFromTimeMs() >= request.GetToTimeMs():
		return usagef("--to %s is before --from %s", f.to, f.from)
	}
	return nil
}

// bound reads an end of the period. Of a day it returns the beginning, or that of the next day if
// days is 1.
func (f *periodFlags) bound(name, text string, days int) (height, moment uint64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	if height, err = strconv.ParseUint(text, 10, 64); err == nil && height > 0 {
		return height, 0, nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err == nil {
		day = f.beginOf(day.AddDate(0, 0, days))
	} else if day, err = time.Parse(time.RFC3339, text); err != nil {
		return 0, 0, usagef("--%s %q: give a block, from 1 on, a day such as 2006-01-31, or a "+
			"moment such as 2006-01-31T12:00:00Z", name, text)
	}
	if day.UnixMilli() <= 0 {
		return 0, 0, usagef("--%s %q is before 1970", name, text)
	}
	return 0, uint64(day.UnixMilli()), nil
}

// beginOf returns the first moment of a day. In some zones clocks go forward at midnight, so a day
// begins at 1:00 there, once a year.
func (f *periodFlags) beginOf(day time.Time) time.Time {
	begin := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, f.location)
	if begin.Day() != day.Day() { // Date chose the hour before the one that is left out
		_, begin = begin.ZoneBounds()
	}
	return begin
}

// moment formats a time in Unix milliseconds in the chosen zone.
func (f *periodFlags) moment(milliseconds uint64) string {
	if f.location == nil || f.location == time.UTC {
		return moment(milliseconds)
	}
	return time.UnixMilli(int64(milliseconds)).In(f.location).Format("2006-01-02 15:04:05-07:00")
}

// historyReport is an entry of an account's history as --json prints it.
type historyReport struct {
	TransactionID string          `json:"transaction_id"`
	Height        uint64          `json:"height"`
	Index         uint32          `json:"index"`
	TimeMS        uint64          `json:"time_ms"`
	Changes       []balanceReport `json:"changes"`
	Balances      []balanceReport `json:"balances"` // of the changed assets, after the entry
	Note          any             `json:"note,omitempty"`
	// EffectiveMS is the date that the entry counts for, if it says one.
	EffectiveMS uint64 `json:"effective_ms,omitempty"`
}

// effective returns the date that an entry counts for, or "" if it is that of its block. One at the
// beginning of a day of UTC is written as that day, in any zone.
func (r *historyReport) effective(period *periodFlags) string {
	if r.EffectiveMS == 0 || r.EffectiveMS == r.TimeMS {
		return ""
	}
	if at := time.UnixMilli(int64(r.EffectiveMS)).UTC(); at.Equal(at.Truncate(24 * time.Hour)) {
		return at.Format(time.DateOnly)
	}
	return period.moment(r.EffectiveMS)
}

func reportEntry(entry *ledgerdv1.HistoryEntry) historyReport {
	return historyReport{
		TransactionID: entry.GetTransactionIdHex(), Height: entry.GetHeight(),
		Index: entry.GetIndex(), TimeMS: entry.GetTimeMs(),
		Changes: reportBalances(entry.GetChanges()), Note: noteReport(entry.GetNote()),
		Balances: reportBalances(entry.GetBalancesAfter()), EffectiveMS: entry.GetEffectiveMs(),
	}
}

// historyFlags are the flags that choose entries of a history.
type historyFlags struct {
	periodFlags
	asset, least, most, counterparty, note string
	shard                                  uint32
	oldest                                 bool
	metadata                               []string
}

// bind adds the flags to a command.
func (f *historyFlags) bind(flags *pflag.FlagSet) {
	f.periodFlags.bind(flags)
	flags.StringVar(&f.asset, "asset", "", "entries that change this asset")
	flags.StringVar(&f.least, "min", "", "entries that change at least this amount, in or "+
		"out, with the decimals of --asset")
	flags.StringVar(&f.most, "max", "", "entries that change at most this amount, in or out, "+
		"with the decimals of --asset")
	flags.StringVar(&f.counterparty, "with", "", "entries that move this other account too, one "+
		"of this organisation (acme), or one below a path (acme:customers:)")
	flags.StringVar(&f.note, "note", "", "entries whose note has this text")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "entries whose note is a JSON object with "+
		"this member, or member and value: invoice, invoice=4711, order.number=7 (may be given "+
		"again)")
	flags.Uint32Var(&f.shard, "shard", 0, "read an earlier home of the organisation")
	flags.BoolVar(&f.oldest, "oldest-first", false, "begin with the oldest")
}

// amounts writes --min and --max into a request, in the smallest unit. They have the decimals of
// --asset. Without it they are whole numbers, since assets differ.
func (f *historyFlags) amounts(ctx context.Context, nodes *client.Client,
	request *ledgerdv1.ListHistoryRequest) error {
	known := newDecimals(nodes)
	for _, bound := range []struct {
		flag, text string
		to         *string
	}{{"min", f.least, &request.MinAmount}, {"max", f.most, &request.MaxAmount}} {
		if bound.text == "" {
			continue
		}
		asset := ledger.AssetName(f.asset)
		if asset == "" && strings.Contains(bound.text, ".") {
			return usagef("--%s %s: name the asset that has the decimals with --asset", bound.flag,
				bound.text)
		}
		if asset == "" {
			asset = ledger.DefaultAsset // which has no decimals
		} else if err := asset.Validate(); err != nil {
			return usagef("--asset: %w", err)
		}
		amount, err := known.parse(ctx, bound.text, asset)
		if err != nil {
			return fmt.Errorf("--%s: %w", bound.flag, err)
		}
		*bound.to = amount.String()
	}
	return nil
}

// newAccountHistoryCommand returns the `ledgerd account history` command.
func newAccountHistoryCommand() *cobra.Command {
	var remote remoteOptions
	var chosen historyFlags
	var asJSON bool
	var limit int
	command := &cobra.Command{
		Use:   "history ORGANISATION:NAME",
		Short: "Show what changed an account",
		Long: `Show the transactions that changed an account's balances, the newest first, with
each change of each asset and the balance after it. EFFECTIVE is the date that a
transaction counts for, if it says one (ledgerd tx transfer --effective-date).

The balance is that in the order in which the transactions took effect in the
account's shard. What transactions that wait for other shards set aside is still
in it.

Amounts have the decimals of their assets (ledgerd asset). With --json they are exact
integers of the smallest unit; amount_decimal has the decimals. --min 12.50 needs
--asset, since assets differ in their decimals.

Entries that match all of the flags are shown. A node looks at a bounded number
of entries for one call, and the command calls as often as needed.`,
		Example: `  ledgerd account history acme:cash --limit 10
  ledgerd account history acme:cash --oldest-first --limit 0 --json
  ledgerd account history acme:cash --from 2026-11-01 --with globex --min 1000
  ledgerd account history acme:cash --metadata invoice=4711`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			path, err := parseAccount(arguments[0])
			if err != nil {
				return err
			}
			query := &ledgerdv1.ListHistoryRequest{Account: string(path), Ascending: chosen.oldest,
				Asset: chosen.asset, Counterparty: chosen.counterparty, Note: chosen.note,
				Metadata: chosen.metadata}
			if command.Flags().Changed("shard") {
				query.Shard = &chosen.shard
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			if err := chosen.fill(query); err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			if err := chosen.amounts(ctx, nodes, query); err != nil {
				return err
			}
			entries, more, err := take(nodes.HistoryOf(ctx, query), limit)
			if err != nil {
				return err
			}
			reports := make([]historyReport, len(entries))
			rows := table{header: []string{"TIME", "BLOCK", "CHANGE", "BALANCE", "ASSET",
				"TRANSACTION", "EFFECTIVE", "NOTE"}, right: []bool{false, true, true, true}}
			for i, entry := range entries {
				reports[i] = reportEntry(entry)
				reports[i].row(&rows, &chosen.periodFlags, entry.GetNote())
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(),
					map[string]any{"account": path, "entries": reports, "more": more})
			}
			empty := "nothing has changed this account yet"
			if query.GetFromHeight()+query.GetToHeight()+query.GetFromTimeMs()+
				query.GetToTimeMs() > 0 || chosen.asset+chosen.least+chosen.most+
				chosen.counterparty+chosen.note != "" || len(chosen.metadata) > 0 {
				empty = "no such entries"
			}
			return writeList(command.OutOrStdout(), &rows, more, empty)
		},
		ValidArgsFunction: accountCompletion(&remote, 1),
	}
	remote.bind(command, false)
	bindLimit(command, &limit, 50)
	chosen.bind(command.Flags())
	addJSONFlag(command, &asJSON)
	return command
}

// row adds an entry to a table, with one line for each asset that the entry changed. A node of an
// earlier version does not say the balances.
func (r *historyReport) row(rows *table, period *periodFlags, note string) {
	for i, change := range r.Changes {
		amount, balance := change.shown(), ""
		if !strings.HasPrefix(amount, "-") {
			amount = "+" + amount
		}
		if i < len(r.Balances) {
			balance = r.Balances[i].shown()
		}
		if i == 0 {
			rows.add(period.moment(r.TimeMS), fmt.Sprint(r.Height), amount, balance, change.Asset,
				r.TransactionID, r.effective(period), sanitize(note, 40))
		} else {
			rows.add("", "", amount, balance, change.Asset)
		}
	}
}
