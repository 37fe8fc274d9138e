package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client/template"
	"github.com/ledgerd/ledgerd/ledger"
)

// newTxTemplateCommand returns the `ledgerd tx template` command.
func newTxTemplateCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "template",
		Short: "Post entries that are the same again and again, from a small file",
		Long: `Post entries that are the same again and again, from a small file.

A template is a TOML file with parameters, and an entry that has their names in
braces:

  title = "The rent of a flat"

  [parameters.tenant]
  kind = "organisation"
  help = "who pays"

  [parameters.rent]
  kind = "amount"
  default = "850.00"

  [entry]
  note = "rent of {tenant}"

  [[entry.postings]]
  account = "{tenant}:cash"
  amount = "-{rent}"
  asset = "EUR"

  [[entry.postings]]
  account = "house:rents"
  amount = "{rent}"
  asset = "EUR"

The kinds are text, organisation, account, asset, amount, integer and date. A
parameter may have a default, a pattern (a regular expression for the whole value)
and a help. An entry has postings, records (key and value), a note, a signer, a
deadline, and as ledgerd tx post an effective_date, an idempotency_key and
refundable. With idempotency_key = "rent {tenant} {month}" the rent of a month is
posted once in seven days, however often somebody runs the command. Amounts are numbers with all decimals of their asset; a minus sign before
one says that the account gives. There is no language beyond that: nothing is
computed.`,
		Example: `  ledgerd tx template check rent.toml
  ledgerd tx template show rent.toml
  ledgerd tx template post rent.toml --set tenant=acme --dry-run
  ledgerd tx template post rent.toml --set tenant=acme`,
	}, newTxTemplateCheckCommand(), newTxTemplateShowCommand(), newTxTemplatePostCommand())
}

// readTemplate reads a template; - is the standard input.
func readTemplate(command *cobra.Command, path string) (*template.Template, error) {
	if path != "-" {
		return template.Read(path)
	}
	content, err := readFile(command, path)
	if err != nil {
		return nil, err
	}
	return template.Parse("standard input", content)
}

// newTxTemplateCheckCommand returns the `ledgerd tx template check` command.
func newTxTemplateCheckCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a template, without a node",
		Long: `Check a template, without a node.

The check covers the form, the parameters, their defaults, and that the entry uses
all of them and no others. If all parameters have defaults, it covers the filled
entry, too. The first fault is reported with its line. Whether the accounts exist,
and how many decimals an asset has, only a node knows: see ledgerd tx template post
--dry-run.`,
		Example: `  ledgerd tx template check rent.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			made, err := readTemplate(command, arguments[0])
			if err != nil {
				return err
			}
			if len(made.Missing(nil)) == 0 {
				if _, err := made.Fill(nil); err != nil {
					return err
				}
			}
			out := command.OutOrStdout()
			if asJSON {
				return writeJSON(out, map[string]any{"file": made.File, "valid": true})
			}
			_, err = fmt.Fprintf(out, "%s is a template with %s and %s\n", made.File,
				plural(len(made.Parameters), "parameter"), plural(len(made.Postings), "posting"))
			return err
		},
	}
	addJSONFlag(command, &asJSON)
	return command
}

// templateReport is a template as --json prints it.
type templateReport struct {
	File       string            `json:"file"`
	Title      string            `json:"title,omitempty"`
	Parameters []parameterReport `json:"parameters"`
	Entry      entryReport       `json:"entry"`
}

type parameterReport struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
	Default *string `json:"default,omitempty"`
	Pattern string  `json:"pattern,omitempty"`
	Help    string  `json:"help,omitempty"`
	Line    int     `json:"line"`
}

// entryReport is an entry in the form that ledgerd tx post takes. In templateReport it has the
// names of the parameters.
type entryReport struct {
	Signer   string         `json:"signer,omitempty"`
	Deadline string         `json:"deadline,omitempty"`
	Postings []shownPosting `json:"postings,omitempty"`
	Records  []shownRecord  `json:"records,omitempty"`
	Note     string         `json:"note,omitempty"`

	EffectiveDate  string `json:"effective_date,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Refundable     string `json:"refundable,omitempty"`
}

type shownPosting struct {
	Account string `json:"account"`
	Amount  string `json:"amount"`
	Asset   string `json:"asset"`
}

type shownRecord struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// newTxTemplateShowCommand returns the `ledgerd tx template show` command.
func newTxTemplateShowCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:     "show FILE",
		Short:   "Show what a template asks for, and its entry",
		Long:    `Show what a template asks for, and its entry with the names of the parameters.`,
		Example: `  ledgerd tx template show rent.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			made, err := readTemplate(command, arguments[0])
			if err != nil {
				return err
			}
			report := reportTemplate(made)
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			return report.write(command)
		},
	}
	addJSONFlag(command, &asJSON)
	return command
}

func reportTemplate(made *template.Template) *templateReport {
	report := &templateReport{File: made.File, Title: made.Title, Parameters: []parameterReport{},
		Entry: entryReport{Signer: made.Signer.Source, Deadline: made.Deadline.Source,
			Note: made.Note.Source, EffectiveDate: made.EffectiveDate.Source,
			IdempotencyKey: made.IdempotencyKey.Source, Refundable: made.Refundable.Source}}
	for _, parameter := range made.Parameters {
		shown := parameterReport{Name: parameter.Name, Kind: string(parameter.Kind),
			Pattern: parameter.Pattern, Help: parameter.Help, Line: parameter.Line}
		if parameter.Optional {
			shown.Default = &parameter.Default
		}
		report.Parameters = append(report.Parameters, shown)
	}
	for _, posting := range made.Postings {
		asset := posting.Asset.Source
		if asset == "" {
			asset = string(ledger.DefaultAsset)
		}
		report.Entry.Postings = append(report.Entry.Postings, shownPosting{
			posting.Account.Source, posting.Amount.Source, asset})
	}
	for _, record := range made.Records {
		report.Entry.Records = append(report.Entry.Records, shownRecord{record.Key.Source,
			record.Value.Source})
	}
	return report
}

func (r *templateReport) write(command *cobra.Command) error {
	out := command.OutOrStdout()
	if r.Title != "" {
		if _, err := fmt.Fprintf(out, "%s\n\n", sanitize(r.Title, 200)); err != nil {
			return err
		}
	}
	rows := table{header: []string{"PARAMETER", "KIND", "DEFAULT", "PATTERN", "HELP"}}
	for _, parameter := range r.Parameters {
		standard := "-"
		if parameter.Default != nil {
			standard = sanitize(*parameter.Default, 60)
		}
		rows.add(parameter.Name, parameter.Kind, standard, sanitize(parameter.Pattern, 60),
			sanitize(parameter.Help, 100))
	}
	if err := rows.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return r.Entry.write(command)
}

// write prints an entry as a table.
func (r *entryReport) write(command *cobra.Command) error {
	rows := table{}
	line := func(name, value string) {
		if value != "" {
			rows.add(name, sanitize(value, 200))
		}
	}
	line("signer", r.Signer)
	line("deadline", r.Deadline)
	line("note", r.Note)
	line("effective date", r.EffectiveDate)
	line("idempotency key", r.IdempotencyKey)
	line("refundable", r.Refundable)
	for _, posting := range r.Postings {
		line("posting", fmt.Sprintf("%s %s  %s", posting.Amount, posting.Asset, posting.Account))
	}
	for _, record := range r.Records {
		line("record", record.Key+" = "+record.Value)
	}
	return rows.write(command.OutOrStdout())
}

// templatePostOptions are the flags of ledgerd tx template post.
type templatePostOptions struct {
	post   txPostOptions
	values []string
	dry    bool
}

// newTxTemplatePostCommand returns the `ledgerd tx template post` command.
func newTxTemplatePostCommand() *cobra.Command {
	var options templatePostOptions
	command := &cobra.Command{
		Use:   "post FILE",
		Short: "Fill in a template, and post the entry",
		Long: `Fill in a template, and post the entry.

Each parameter without a default needs a value, with --set NAME=VALUE. A value is
checked against the parameter's kind and pattern, and put in as it is. Amounts of a
registered asset have all of its decimals, as everywhere; a node is asked for them.

With --dry-run the command shows the transaction and sends nothing. With --json that
is the form that ledgerd tx post takes, with amounts in the smallest unit.

The rest is as with ledgerd tx post: every organisation that gives something signs,
with its key in the keyring.`,
		Example: `  ledgerd tx template post rent.toml --set tenant=acme --set rent=900.00

  # Look at it first
  ledgerd tx template post rent.toml --set tenant=acme --dry-run

  # Sign it now, and send it later
  ledgerd tx template post rent.toml --set tenant=acme --out rent.tx`,
		Args: cobra.ExactArgs(1),
		RunE: options.run,
	}
	options.post.post.bind(command)
	options.post.post.remote.bindQueue(command)
	flags := command.Flags()
	flags.StringArrayVar(&options.values, "set", nil, "the value of a parameter, NAME=VALUE; "+
		"repeat it")
	flags.BoolVar(&options.dry, "dry-run", false, "show the transaction and send nothing")
	flags.StringVar(&options.post.out, "out", "",
		"write the signed transaction to this file instead of submitting it")
	command.MarkFlagsMutuallyExclusive("dry-run", "out")
	return command
}

func (o *templatePostOptions) run(command *cobra.Command, arguments []string) error {
	values := make(map[string]string, len(o.values))
	for _, text := range o.values {
		name, value, given := strings.Cut(text, "=")
		if !given {
			return usagef("--set %q: write NAME=VALUE, for example --set tenant=acme", text)
		}
		if _, twice := values[name]; twice {
			return usagef("--set: parameter %s has two values", name)
		}
		values[name] = value
	}
	made, err := readTemplate(command, arguments[0])
	if err != nil {
		return err
	}
	entry, err := made.Fill(values)
	if err != nil {
		if missing := made.Missing(values); len(missing) > 0 {
			return &hintedError{err, "give a value with --set " + missing[0] + "=VALUE"}
		}
		return err
	}
	parts, err := o.draft(command, made, entry)
	if err != nil {
		return err
	}
	if o.dry {
		return o.show(command, parts)
	}
	return o.post.submit(command, parts)
}

// draft makes the parts of a transaction of a filled entry.
func (o *templatePostOptions) draft(command *cobra.Command, made *template.Template,
	entry *template.Entry) (draft, error) {
	parts := draft{Signer: entry.Signer, Deadline: entry.Deadline,
		EffectiveDate: entry.EffectiveDate, IdempotencyKey: entry.IdempotencyKey,
		Refundable: entry.Refundable}
	for _, each := range []struct {
		text template.Text
		said detailOptions
	}{
		{made.EffectiveDate, detailOptions{effective: entry.EffectiveDate}},
		{made.Refundable, detailOptions{refundable: entry.Refundable}},
	} {
		if err := each.said.details(new(ledger.Transaction), time.Now()); err != nil {
			return parts, &template.Error{File: made.File, Line: each.text.Line, Err: inFile(err)}
		}
	}
	for _, posting := range entry.Postings {
		amount, err := o.post.amount(command, posting.Amount, string(posting.Asset))
		if err != nil {
			return parts, &template.Error{File: made.File, Line: posting.Line,
				Err: fmt.Errorf("the posting of %s: %w", posting.Account, inFile(err))}
		}
		parts.Postings = append(parts.Postings, draftPosting{Account: string(posting.Account),
			Amount: draftAmount{Amount: amount}, Asset: string(posting.Asset)})
	}
	for _, record := range entry.Records {
		parts.Records = append(parts.Records, draftRecord{Key: string(record.Key),
			Value: record.Value})
	}
	if entry.Note != "" {
		note, err := json.Marshal(entry.Note)
		if err != nil {
			return parts, err
		}
		parts.Note = note
	}
	return parts, nil
}

// show prints the transaction of the parts, once it is checked as far as that needs no node.
func (o *templatePostOptions) show(command *cobra.Command, parts draft) error {
	made, err := parts.transaction()
	if err != nil {
		return err
	}
	signers := signersOf(&made)
	if len(signers) == 0 {
		return errors.New("no organisation gives anything, so there is no signer: name one " +
			"in the entry")
	}
	made.Signer = signers[0]
	if made.Deadline, err = parseDeadline(parts.Deadline, time.Now()); err != nil {
		return err
	}
	details := parts.details()
	if err := details.details(&made, time.Now()); err != nil {
		return err
	}
	if err := made.Validate(); err != nil {
		return err
	}
	report := entryReport{Signer: parts.Signer, Deadline: parts.Deadline, Note: string(made.Note),
		EffectiveDate: parts.EffectiveDate, IdempotencyKey: parts.IdempotencyKey,
		Refundable: parts.Refundable}
	for _, record := range parts.Records {
		report.Records = append(report.Records, shownRecord{record.Key, record.Value})
	}
	for _, posting := range made.Postings {
		shown := shownPosting{string(posting.Account), posting.Amount.String(),
			string(posting.Asset)}
		if count, known := o.post.asked.count(posting.Asset); known && !o.post.post.json {
			shown.Amount = posting.Amount.Decimal(count)
		}
		report.Postings = append(report.Postings, shown)
	}
	if o.post.post.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	names := make([]string, len(signers))
	for i, signer := range signers {
		names[i] = string(signer)
	}
	slices.Sort(names)
	if err := report.write(command); err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "signed by  %s\nnothing was sent\n",
		strings.Join(names, ", "))
	return err
}
