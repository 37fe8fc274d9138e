package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/importer"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	// importFailuresShown limits the failed lines that are printed one by one.
	importFailuresShown = 10
	// importLineInterval is the time between two lines of progress if the output is no terminal.
	importLineInterval = 5 * time.Second
)

// importOptions are the flags of ledgerd tx import.
type importOptions struct {
	remote       remoteOptions
	keys         keyringOptions
	wait         string
	organisation string
	spread       int
	issuers      []string
	stop         bool
	state        string
	patience     time.Duration
	quiet        bool
	json         bool
}

// importReport is what ledgerd tx import --json prints.
type importReport struct {
	Lines          uint64                 `json:"lines"`
	Imported       uint64                 `json:"imported"`
	Failed         uint64                 `json:"failed"`
	Skipped        uint64                 `json:"skipped"`
	Seconds        float64                `json:"seconds"`
	LinesPerSecond float64                `json:"lines_per_second"`
	Complete       bool                   `json:"complete"`
	Failures       []importer.LineFailure `json:"failures"`
}

// newTxImportCommand returns the `ledgerd tx import` command.
func newTxImportCommand() *cobra.Command {
	var options importOptions
	command := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import a file of entries or journals, each line exactly once",
		Long: `Import a file of entries, each line exactly once, or the journals of a ledger.

FILE has one entry a line in JSON, and may be compressed with gzip; - is the
standard input:

  {"postings":[{"account":"alice","amount":-5},{"account":"bob","amount":5}]}

The postings of a line add up to zero for each asset ("asset"; without it
"unit"). Amounts are integers of the smallest unit, as number or as text, or text
with a point and all decimals of a registered asset: "-12.50". Everything else on a
line becomes the entry's note. A name in the file becomes the account
ORGANISATION:NAME, which is opened as needed; exports show it under the file's name
again. A balance may not fall below zero unless --issuer names its account.

Nothing has to be prepared: the command makes the organisation, "import" without
--org, and its key, if they are missing.

With --orgs K the accounts are spread over K organisations with one key,
ORGANISATION-0 and so on, by a hash of the name; in a book of several shards
these live in the shards in turn. Lines that touch several shards take effect
in all of them or in none. Each line has the same outcome as if the lines were
executed one after the other. K stays what it was in an organisation's first
import.

Lines with two postings of one asset and nothing else take the nodes least work:
they go in packed bundles, where the chain takes these.

After an interruption of any kind, run the same command again to go on. No line
is imported twice, even from another machine with the same key. Lines may not
change meanwhile. If a node fails, the next one is asked; the nodes that the first
one knows count as well. A line that the ledger refuses is reported with its
reason, and the others go on: the exit status is 1 then.

FILE may also be a journal that ledgerd export --journal wrote in the format jsonl;
of a book of several shards, name the journals of all shards. Each entry that took
effect there becomes a line: failed ones do not, and one that crossed shards does
once. Signatures bind a ledger, so those of the journal are good in no other one:
the lines are signed anew, by --org's key, and their accounts become ORGANISATION:NAME
of the name that they had. Issuers stay issuers. All balances end up the same, and
ledgerd export --balances shows them under the accounts' former names. The note of
a line is the entry's former id and note. Records, policies and the organisations'
keys stay behind. The command checks the blocks' hashes, and not who signed them:
run ledgerd verify --journal before. Keep the --state file: without it, journals that
have grown since may be imported twice.

If a shard is down or full, lines that cross to it hold the import up, and
--patience bounds for how long. With --queue they wait in the other shards.`,
		Example: `  ledgerd tx import entries.jsonl.gz --issuer coinbase

  # Quicker, and still safe to run again: wait for the order only
  ledgerd tx import entries.jsonl --wait ordered --node http://127.0.0.1:8080,http://127.0.0.1:8082

  # Into a book of several shards, over all of them
  ledgerd tx import entries.jsonl.gz --issuer coinbase --org chain --orgs 8

  # From one ledger into another one
  ledgerd export --home net/node-0 --journal --out book.jsonl
  ledgerd tx import book.jsonl --node http://127.0.0.1:8080

  # For a script
  zcat entries.gz | ledgerd tx import - --org shop --stop-on-error --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: options.run,
	}
	options.remote.bind(command, true)
	options.remote.bindQueue(command)
	options.keys.bind(command)
	options.keys.passphrases.bindNew()
	flags := command.Flags()
	flags.StringVar(&options.wait, "wait", "durable",
		"count a line as imported when it is ordered, stored or durable")
	flags.StringVar(&options.organisation, "org", "import",
		"organisation whose accounts the file's names become")
	flags.IntVar(&options.spread, "orgs", 1, fmt.Sprintf("spread the accounts over so many "+
		"organisations, named after --org; up to %d", importer.MaxOrganisations))
	flags.StringSliceVar(&options.issuers, "issuer",
		nil, "name in the file whose account may go below zero; repeat it or separate by commas")
	flags.BoolVar(&options.stop, "stop-on-error", false, "end at the first line that fails")
	flags.StringVar(&options.state, "state", "",
		"folder for the progress of imports (default ledgerd/imports in your cache folder)")
	flags.DurationVar(&options.patience, "patience", 2*time.Minute,
		"give up when the nodes take nothing for this long")
	flags.BoolVar(&options.quiet, "quiet", false, "show no progress")
	addJSONFlag(command, &options.json)
	completeFlag(command, "wait", cobra.FixedCompletions(waitLevels[1:4],
		cobra.ShellCompDirectiveNoFileComp))
	completeFlag(command, "org", keyCompletion(&options.keys))
	return command
}

func (o *importOptions) run(command *cobra.Command, arguments []string) error {
	level, err := parseLevel(o.wait)
	if err != nil || level == ledgerdv1.Level_LEVEL_ADMITTED ||
		level > ledgerdv1.Level_LEVEL_DURABLE {
		return usagef("--wait %q: an import waits until its lines are ordered, stored or durable",
			o.wait)
	}
	organisation, err := parseOrganisation(o.organisation)
	if err != nil {
		return err
	}
	if o.spread < 1 || o.spread > importer.MaxOrganisations {
		return usagef("--orgs %d: accounts are spread over 1 to %d organisations", o.spread,
			importer.MaxOrganisations)
	}
	if o.patience <= 0 {
		return usagef("--patience is %s: it has to be above zero", o.patience)
	}
	source, err := openSource(command, arguments)
	if err != nil {
		return err
	}
	defer source.Close()
	ctx := command.Context()
	nodes, err := connectToAll(ctx, &o.remote)
	if err != nil {
		return err
	}
	defer nodes.Close()
	ring, err := o.keys.open()
	if err != nil {
		return err
	}
	key, created, err := ring.LoadOrCreate(organisation)
	if err != nil {
		return err
	}
	errs := command.ErrOrStderr()
	if created {
		fmt.Fprintf(errs, "made a key for organisation %s in %s\n", organisation, ring.Folder())
	}
	progress := newImportProgress(errs, o.quiet)
	result, err := importer.Run(ctx, nodes, source, importer.Options{
		Key: key, Organisations: o.spread, Issuers: o.issuers, Wait: level, StopOnError: o.stop,
		StateFolder: o.stateFolder(), Progress: progress.show, Patience: o.patience,
		Connect: func(addresses []string) (importer.Nodes, error) {
			return nodes.Beside(addresses, client.Options{Queue: o.remote.queue})
		},
	})
	progress.end()
	if result.ProgressError != nil {
		fmt.Fprintf(errs, "the progress of the import was not saved: %v: running it again "+
			"begins with the first line, which takes longer and changes nothing\n",
			result.ProgressError)
	}
	return o.report(command, result, err)
}

// stateFolder returns the folder for the progress of imports, or "" for none.
func (o *importOptions) stateFolder() string {
	if o.state != "" {
		return o.state
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "ledgerd", "imports")
}

// openSource opens a file of entries, or journals.
func openSource(command *cobra.Command, paths []string) (*importer.Source, error) {
	switch {
	case len(paths) > 1 || importer.IsJournal(paths[0]):
		return importer.OpenJournals(paths...)
	case paths[0] == "-":
		return importer.Stream(command.InOrStdin())
	}
	return importer.OpenFile(paths[0])
}

// connectToAll connects to the named nodes, and after them to the members that these know. An
// import then survives the failure of any of them.
func connectToAll(ctx context.Context, remote *remoteOptions) (*client.Client, error) {
	nodes, _, done, err := remote.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	cluster, err := nodes.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	addresses := slices.Clone(nodes.URLs())
	for _, member := range cluster.GetMembers() {
		if address := memberAddress(member); address != "" && !member.GetSelf() &&
			!slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return nodes.Beside(addresses, client.Options{Queue: remote.queue})
}

// memberAddress returns the address of a member's API, or "" if it has announced no usable one.
func memberAddress(member *ledgerdv1.MemberState) string {
	return importer.UsableAddress(member.GetApiAddress())
}

// report prints the outcome of the import. The failed lines go to the standard error, the summary
// to the standard output.
func (o *importOptions) report(command *cobra.Command, result importer.Result,
	failure error) error {
	here := result.Lines - min(result.Skipped, result.Lines)
	report := importReport{
		Lines: result.Lines, Imported: result.Imported, Failed: result.Failed,
		Skipped: result.Skipped, Seconds: result.Elapsed.Seconds(),
		LinesPerSecond: float64(here) / max(result.Elapsed.Seconds(), 1e-3),
		Complete:       failure == nil, Failures: result.Failures,
	}
	if report.Failures == nil {
		report.Failures = []importer.LineFailure{}
	}
	errs := command.ErrOrStderr()
	for i, line := range result.Failures {
		if i == importFailuresShown {
			fmt.Fprintf(errs, "... and %d more lines failed; --json lists up to 1000\n",
				result.Failed-importFailuresShown)
			break
		}
		fmt.Fprintf(errs, "line %d failed (%s): %s\n", line.Line, line.Code,
			sanitize(line.Reason, 300))
	}
	switch {
	case failure != nil && command.Context().Err() != nil:
		failure = fmt.Errorf("interrupted after line %d: run the same command again to go on",
			result.Lines)
	case failure == nil && result.Failed > 0:
		failure = fmt.Errorf("%s failed; the others are imported",
			plural(int(result.Failed), "line"))
	}
	if o.json {
		return errors.Join(writeJSON(command.OutOrStdout(), report), ended(failure))
	}
	summary := fmt.Sprintf("imported %s in %s (%.0f lines/s)", plural(int(result.Imported), "line"),
		result.Elapsed.Round(10*time.Millisecond), report.LinesPerSecond)
	if result.Skipped > 0 {
		summary += fmt.Sprintf(", %d of them before", result.Skipped)
	}
	if result.Failed > 0 {
		summary += fmt.Sprintf(", %d failed", result.Failed)
	}
	if _, err := fmt.Fprintln(command.OutOrStdout(), summary); err != nil {
		return err
	}
	return ended(failure)
}

// ended wraps the import's error, which itself says how the import ended.
func ended(failure error) error {
	if failure == nil {
		return nil
	}
	return &interruptedError{failure}
}

// importProgress shows the progress of an import: a bar on a terminal, a line now and then
// elsewhere.
type importProgress struct {
	out   io.Writer
	quiet bool
	bar   *progressbar.ProgressBar // nil if there is no terminal, and before the first progress
	tty   bool
	shown time.Time
}

func newImportProgress(out io.Writer, quiet bool) *importProgress {
	return &importProgress{out: out, quiet: quiet, tty: isTerminal(out), shown: time.Now()}
}

func (p *importProgress) show(at importer.Progress) {
	if p.quiet {
		return
	}
	text := fmt.Sprintf("%d lines, %.0f/s", at.Lines, at.PerSecond)
	if at.Failed > 0 {
		text += fmt.Sprintf(", %d failed", at.Failed)
	}
	if !p.tty {
		if !at.Done && time.Since(p.shown) >= importLineInterval {
			p.shown = time.Now()
			if at.BytesTotal > 0 {
				text = fmt.Sprintf("%3d%%  %s", 100*at.BytesRead/at.BytesTotal, text)
			}
			fmt.Fprintln(p.out, text)
		}
		return
	}
	if p.bar == nil {
		total := at.BytesTotal
		if total == 0 {
			total = -1
		}
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.out),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(total > 0), progressbar.OptionSetElapsedTime(true))
	}
	p.bar.Describe(text)
	// Go on even if the bar cannot be drawn. Keep it below 100 % until the import ends: the last
	// bytes are read before the last lines are imported.
	_ = p.bar.Set64(max(0, min(at.BytesRead, at.BytesTotal-1)))
}

// end removes the bar.
func (p *importProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
