package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// statementReport is a statement as --format json prints it.
type statementReport struct {
	Account string       `json:"account"`
	Asset   string       `json:"asset,omitempty"` // if it is about one
	Period  periodReport `json:"period"`
	// Height and TimeMS are those of the newest block that the statement knows of. Open is set if
	// the period goes on after it.
	Height  uint64                 `json:"height"`
	TimeMS  uint64                 `json:"time_ms"`
	Open    bool                   `json:"open"`
	Opening []balanceReport        `json:"opening"`
	Closing []balanceReport        `json:"closing"`
	Totals  []totalReport          `json:"totals"`
	Entries []statementEntryReport `json:"entries"`
}

// periodReport is a period. Blocks and moments that are absent are no end.
type periodReport struct {
	FromHeight uint64 `json:"from_height,omitempty"`
	ToHeight   uint64 `json:"to_height,omitempty"`
	FromMS     uint64 `json:"from_ms,omitempty"`
	BeforeMS   uint64 `json:"before_ms,omitempty"`
}

// totalReport is what came in and went out of an asset.
type totalReport struct {
	Asset string `json:"asset"`
	In    string `json:"in"`
	Out   string `json:"out"`
	// Decimals are those of the asset, and the others the sums written with them. They are absent
	// if it has none.
	Decimals   int    `json:"decimals,omitempty"`
	InDecimal  string `json:"in_decimal,omitempty"`
	OutDecimal string `json:"out_decimal,omitempty"`
}

// statementEntryReport is an entry of a statement.
type statementEntryReport struct {
	historyReport
	Shard *uint32 `json:"earlier_home,omitempty"` // the shard, if its block is in an earlier home
	note  string
}

// statementOptions are the flags of ledgerd account statement.
type statementOptions struct {
	remote remoteOptions
	period periodFlags
	asset  string
	shard  uint32
	format string
	asJSON bool // --format json
	out    string
}

// statementFormats are the values of --format.
var statementFormats = []string{"table", "csv", "json", "pdf"}

// newAccountStatementCommand returns the `ledgerd account statement` command.
func newAccountStatementCommand() *cobra.Command {
	var options statementOptions
	command := &cobra.Command{
		Use:   "statement ORGANISATION:NAME",
		Short: "Print an account's statement for a period",
		Long: `Print an account's statement: the balances at the beginning and at the end of a
period, each entry with the balance after it, and what came in and went out.

--from and --to name the period by blocks, by days or by moments, or one end by
each. Without one, the period begins with the account or has not ended yet. Blocks
and days at the ends are in the period, and so is the moment --from; the moment
--to is not. So the statement of one day ends where that of the next one begins.
An entry belongs to the block in which it took effect in the account's shard; a
moment means the times of blocks. Days are those of UTC unless --zone says
otherwise. A statement whose period is not over yet says so.

EFFECTIVE is the date that an entry counts for, if it says one (ledgerd tx transfer
--effective-date). It moves no entry to another period.

Amounts have the decimals of their assets (ledgerd asset). In JSON they are exact
integers of the smallest unit, and fields that end in _decimal have the decimals.

The command checks that the opening balances and the entries make up the closing
balances, and each balance in between.

If the organisation moved between shards, a period of days or moments has the
entries of all of its homes. Blocks are those of the present home, or of the one
that --shard names.`,
		Example: `  ledgerd account statement acme:cash --from 2026-11-01 --to 2026-11-30
  ledgerd account statement acme:cash --from 1000 --to 1999 --asset eur --format csv
  ledgerd account statement acme:cash --from 2026-11-01 --format pdf --out november.pdf`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.run(command, arguments[0])
		},
		ValidArgsFunction: accountCompletion(&options.remote, 1),
	}
	flags := command.Flags()
	options.remote.bind(command, false)
	options.period.bind(flags)
	flags.StringVar(&options.asset, "asset", "", "of this asset only")
	flags.Uint32Var(&options.shard, "shard", 0, "of this home of the organisation only")
	flags.StringVar(&options.format, "format", "table", "what to write: "+
		strings.Join(statementFormats, ", "))
	flags.StringVar(&options.out, "out", "", "write to this file")
	addJSONFlag(command, &options.asJSON)
	command.MarkFlagsMutuallyExclusive("format", "json")
	return command
}

func (o *statementOptions) run(command *cobra.Command, account string) error {
	path, err := parseAccount(account)
	if err != nil {
		return err
	}
	if o.asJSON {
		o.format = "json"
	}
	if !slices.Contains(statementFormats, o.format) {
		return usagef("--format %q: it is one of %s", o.format,
			strings.Join(statementFormats, ", "))
	}
	query := &ledgerdv1.ListHistoryRequest{Account: string(path), Asset: o.asset}
	if err := o.period.fill(query); err != nil {
		return err
	}
	if o.format == "pdf" && o.out == "" && isTerminal(command.OutOrStdout()) {
		return usagef("a PDF is no text: name a file with --out FILE")
	}
	if command.Flags().Changed("shard") {
		query.Shard = &o.shard
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	statement, err := nodes.Statement(ctx, query)
	if err != nil {
		return err
	}
	report := reportStatement(statement, query)
	out := &strings.Builder{}
	if err := report.write(out, o.format, &o.period); err != nil {
		return err
	}
	if o.out == "" {
		_, err := io.WriteString(command.OutOrStdout(), out.String())
		return err
	}
	return home.WriteFile(o.out, []byte(out.String()), 0o644)
}

func reportStatement(statement *client.Statement,
	query *ledgerdv1.ListHistoryRequest) *statementReport {
	report := &statementReport{Account: string(statement.Account), Asset: query.GetAsset(),
		Period: periodReport{FromHeight: query.GetFromHeight(), ToHeight: query.GetToHeight(),
			FromMS: query.GetFromTimeMs(), BeforeMS: query.GetToTimeMs()},
		Height: uint64(statement.Height), TimeMS: uint64(statement.Time),
		Opening: reportBalances(statement.Opening), Closing: reportBalances(statement.Closing),
		Totals: []totalReport{}, Entries: []statementEntryReport{}}
	report.Open = !(query.GetToHeight() != 0 && statement.Height >=
		ledger.Height(query.GetToHeight()) || query.GetToTimeMs() != 0 &&
		uint64(statement.Time) >= query.GetToTimeMs())
	for _, total := range statement.Totals {
		count, in, out := total.Decimals, total.In.String(), total.Out.String()
		report.Totals = append(report.Totals, totalReport{string(total.Asset), in, out, count,
			decimalForm(in, count), decimalForm(out, count)})
	}
	entries := statement.Entries
	for _, part := range statement.Homes {
		for _, entry := range entries[:part.Entries] {
			report.Entries = append(report.Entries, statementEntryReport{reportEntry(entry),
				part.Earlier, entry.GetNote()})
		}
		entries = entries[part.Entries:]
	}
	return report
}

// write writes the statement in a format.
func (r *statementReport) write(out io.Writer, format string, period *periodFlags) error {
	switch format {
	case "json":
		return writeJSON(out, r)
	case "csv":
		return r.writeCSV(out, period)
	case "pdf":
		return r.writePDF(out, period)
	}
	return r.writeTable(out, period)
}

// periodText says the period in words.
func (r *statementReport) periodText(period *periodFlags) string {
	var parts []string
	if r.Period.FromHeight != 0 {
		parts = append(parts, fmt.Sprintf("from block %d", r.Period.FromHeight))
	}
	if r.Period.FromMS != 0 {
		parts = append(parts, "from "+period.moment(r.Period.FromMS))
	}
	if r.Period.ToHeight != 0 {
		parts = append(parts, fmt.Sprintf("to block %d", r.Period.ToHeight))
	}
	if r.Period.BeforeMS != 0 {
		parts = append(parts, "to before "+period.moment(r.Period.BeforeMS))
	}
	if len(parts) == 0 {
		return "all of its history"
	}
	return strings.Join(parts, ", ")
}

// asOf says how far the statement knows the chain.
func (r *statementReport) asOf(period *periodFlags) string {
	text := fmt.Sprintf("block %d, %s", r.Height, period.moment(r.TimeMS))
	if r.Open {
		text += "; the period is not over"
	}
	return text
}

// sides returns a change as what came in and what went out: one of them is empty.
func sides(amount string) (in, out string) {
	if out, negative := strings.CutPrefix(amount, "-"); negative {
		return "", out
	}
	return amount, ""
}

// statementLine is a line of a statement: a balance at an end, or a change of an entry. Its amounts
// are as people read them.
type statementLine struct {
	kind                    string
	entry                   *statementEntryReport // nil at an end
	first                   bool                  // of its entry
	in, out, asset, balance string
}

// lines returns the lines of the statement. Assets of which there is nothing have no line at an
// end; if there is none at all, one line says so.
func (r *statementReport) lines() (lines []statementLine) {
	ends := func(kind string, balances []balanceReport) {
		for _, balance := range balances {
			lines = append(lines, statementLine{kind: kind, asset: balance.Asset,
				balance: balance.shown()})
		}
		if len(balances) == 0 {
			lines = append(lines, statementLine{kind: kind, asset: r.Asset, balance: "0"})
		}
	}
	ends("opening", r.Opening)
	for i := range r.Entries {
		entry := &r.Entries[i]
		for k, change := range entry.Changes {
			in, out := sides(change.shown())
			lines = append(lines, statementLine{"entry", entry, k == 0, in, out, change.Asset,
				entry.Balances[k].shown()})
		}
	}
	for _, total := range r.Totals {
		lines = append(lines, statementLine{kind: "total", in: withDecimals(total.In,
			total.Decimals), out: withDecimals(total.Out, total.Decimals), asset: total.Asset})
	}
	ends("closing", r.Closing)
	return lines
}

func (r *statementReport) writeTable(out io.Writer, period *periodFlags) error {
	head := table{}
	head.add("account", r.Account)
	head.add("period", r.periodText(period))
	head.add("as of", r.asOf(period))
	rows := table{header: []string{"TIME", "BLOCK", "IN", "OUT", "BALANCE", "ASSET", "TRANSACTION",
		"EFFECTIVE", "NOTE"}, right: []bool{false, true, true, true, true}}
	for _, line := range r.lines() {
		when, block, id, effective, note := line.kind, "", "", "", ""
		if line.entry != nil {
			when = ""
			if line.first {
				when, block = period.moment(line.entry.TimeMS), fmt.Sprint(line.entry.Height)
				id, note = line.entry.TransactionID, sanitize(line.entry.note, 40)
				effective = line.entry.effective(period)
				if line.entry.Shard != nil {
					block = fmt.Sprintf("%d of shard %d", line.entry.Height, *line.entry.Shard)
				}
			}
		}
		rows.add(when, block, line.in, line.out, line.balance, line.asset, id, effective, note)
	}
	if err := head.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return rows.write(out)
}

func (r *statementReport) writeCSV(out io.Writer, period *periodFlags) error {
	to := csv.NewWriter(out)
	err := to.Write([]string{"kind", "time", "block", "earlier_home", "index", "transaction_id",
		"in", "out", "balance", "asset", "effective", "note"})
	for _, line := range r.lines() {
		var when, block, shard, index, id, note, effective string
		if entry := line.entry; entry != nil {
			when, block = period.moment(entry.TimeMS), fmt.Sprint(entry.Height)
			index, id, note = fmt.Sprint(entry.Index), entry.TransactionID, cellText(entry.note)
			effective = entry.effective(period)
			if entry.Shard != nil {
				shard = fmt.Sprint(*entry.Shard)
			}
		}
		err = errors.Join(err, to.Write([]string{line.kind, when, block, shard, index, id, line.in,
			line.out, line.balance, line.asset, effective, note}))
	}
	to.Flush()
	return errors.Join(err, to.Error())
}

// cellText returns a text that others chose for a cell of a spreadsheet, which would run it as a
// formula if it looked like one. The explorer writes the same.
func cellText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// grouped writes an amount with a space between groups of three digits before the point, which do
// not break.
func grouped(amount string) string {
	digits, fraction, point := strings.Cut(amount, ".")
	digits, negative := strings.CutPrefix(digits, "-")
	sign := ""
	if negative {
		sign = "-"
	}
	if point {
		fraction = "." + fraction
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u00a0" + digits[at:]
	}
	return sign + digits + fraction
}
