package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/node"
)

// The exit statuses of ledgerd.
const (
	exitDone    = 0
	exitFailure = 1 // the command failed, wholly or in part
	exitUsage   = 2 // the command line is wrong: unknown command or flag, invalid value
	// An operator removed the node from the members. Starting it again is useless.
	exitRemoved = 3
)

// The groups of commands in the help of ledgerd.
const (
	groupNode   = "node"
	groupClient = "client"
	groupStudy  = "study"
)

// nodeCommands construct the commands that run nodes and read their home folders.
var nodeCommands = []func() *cobra.Command{
	newDemoCommand, newTestnetCommand, newInitCommand, newStartCommand, newClusterCommand,
	newAccessCommand, newForgetCommand, newRecoverCommand, newVerifyCommand, newEvidenceCommand,
	newExportCommand,
}

// clientCommands construct the commands that talk to nodes.
var clientCommands = []func() *cobra.Command{newKeysCommand, newOrgCommand, newAssetCommand,
	newAccountCommand, newHoldCommand, newScheduleCommand, newTxCommand, newBlockCommand,
	newStatusCommand, newShardsCommand, newCutCommand, newTrialBalanceCommand, newFiguresCommand,
	newSinkCommand, newABCICommand, newRoundsCommand}

// studyCommands construct the commands that study the engines.
var studyCommands = []func() *cobra.Command{newDigraphCommand, newPlanCommand, newSimCommand,
	newBenchCommand, newFabricCommand}

// version is the release; the linker sets it (-ldflags "-X main.version=1.2.3").
var version = ""

// usageError marks an error in the command line. The exit status is then 2.
type usageError struct {
	err     error
	command *cobra.Command // the command whose help explains it; nil if unknown
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, arguments ...any) error {
	return &usageError{err: fmt.Errorf(format, arguments...)}
}

// asUsage turns an error, unless it is nil, into a usageError.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err: err}
}

// runError marks an error of a command that started: its command line was valid.
type runError struct{ error }

func (e *runError) Unwrap() error { return e.error }

// interruptedError marks an error whose own text says how the command was interrupted.
type interruptedError struct{ error }

func (e *interruptedError) Unwrap() error { return e.error }

// reportedError marks a failure that the output of the command shows already. Without --json it is
// not printed again.
type reportedError struct{ error }

func (e *reportedError) Unwrap() error { return e.error }

// execute runs the command line and returns the exit status. It is the whole program except for the
// process.
func execute(ctx context.Context, arguments []string, in io.Reader, out, errs io.Writer) int {
	if len(arguments) > 0 && strings.HasPrefix(arguments[0], cobra.ShellCompRequestCmd) {
		completing.Add(1)
		defer completing.Add(-1)
	}
	root := newRootCommand()
	root.SetArgs(arguments)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	ran := errors.As(err, new(*runError))
	asJSON := wantsJSON(command, arguments, ran)
	misused := (*usageError)(nil)
	switch wrong := errors.As(err, &misused); {
	case errors.As(err, new(*reportedError)):
		if asJSON {
			writeFailure(errs, err, "")
		}
		return exitFailure
	case ran && !wrong:
		status := exitFailure
		switch {
		case errors.Is(err, node.ErrRemoved):
			status = exitRemoved
		case ctx.Err() != nil && !errors.As(err, new(*interruptedError)):
			err = errors.New("interrupted")
		}
		if asJSON {
			writeFailure(errs, err, "")
		} else {
			fmt.Fprintf(errs, "ledgerd: %s\n", sentence(err))
		}
		return status
	}
	if misused != nil && misused.command != nil {
		command = misused.command
	}
	help := fmt.Sprintf("`%s --help`", command.CommandPath())
	if asJSON {
		writeFailure(errs, err, "see "+help)
	} else {
		fmt.Fprintf(errs, "ledgerd: %s\nSee %s.\n", sentence(err), help)
	}
	return exitUsage
}

// wantsJSON reports whether the caller gave --json. If the command did not run, flag parsing may
// have stopped before --json, so wantsJSON searches the arguments as well.
func wantsJSON(command *cobra.Command, arguments []string, ran bool) bool {
	if flag := command.Flags().Lookup("json"); flag != nil && flag.Changed {
		return flag.Value.String() == "true"
	}
	if ran {
		return false
	}
	if end := slices.Index(arguments, "--"); end >= 0 {
		arguments = arguments[:end]
	}
	return slices.Contains(arguments, "--json") || slices.Contains(arguments, "--json=true")
}

// failureReport is what a command that fails prints with --json, on one line of standard error.
type failureReport struct {
	Error string `json:"error"`
	Next  string `json:"next,omitempty"` // what to do about it
}

// writeFailure writes an error as JSON. A hint in the error takes precedence over next.
func writeFailure(errs io.Writer, err error, next string) {
	report := failureReport{Error: sentence(err), Next: next}
	if hinted := (*hintedError)(nil); errors.As(err, &hinted) {
		report.Next = sanitize(hinted.hint, 0)
		report.Error = strings.Replace(report.Error, ": "+report.Next, "", 1)
	}
	_ = writeJSONLine(errs, report) // there is nowhere left to report it
}

// packagePrefixes are the prefixes that packages put before their errors. They do not help users.
var packagePrefixes = []string{"client: ", "importer: ", "ledger: ", "store: ", "node: ", "home: ",
	"api: "}

// sentence formats an error on one line, without package prefixes.
func sentence(err error) string {
	text := ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, prefix := range packagePrefixes {
		text = strings.ReplaceAll(text, ": "+prefix, ": ")
	}
	return sanitize(strings.TrimPrefix(text, ": "), 0)
}

// newRootCommand returns the `ledgerd` command.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ledgerd",
		Short: "A replicated ledger: several nodes that keep one book",
		Long: `A replicated ledger: several nodes that keep one book.

Each node of a ledger has the whole book and takes transactions. All nodes put
them into the same order, as long as fewer of them fail than their overlay
survives, and nothing that was acknowledged is lost.

  ledgerd demo       runs a small ledger in this process, to look at
  ledgerd testnet    makes one of several processes, to use
  ledgerd status     shows its condition
  ledgerd shards     shows its shards, if it has several

The commands that talk to nodes ask the one at http://127.0.0.1:8080. Name
others with --node or in LEDGERD_NODE, separated by commas: if one does not
answer, the next is asked. For https:// addresses and for nodes that serve
identified callers see --ca, --cert, --key and --token, or LEDGERD_CA,
LEDGERD_CERT, LEDGERD_KEY and LEDGERD_TOKEN. The keys of organisations are kept in
the folder that --keys or LEDGERD_KEYS names. Every command that shows something
prints JSON with --json. If it fails, it then prints
{"error": "...", "next": "..."} as the last line of standard error; next says
what to do, and is absent if the error has no such hint.

The exit status is 0 for success, 1 for a failure, and 2 for a wrong command line.
A node that was removed from the members ends with 3.`,
		Example: `  # See one run, with an explorer at http://127.0.0.1:8080
  ledgerd demo

  # Move money on it
  ledgerd keys create acme
  ledgerd org add acme
  ledgerd account open acme:mint --issuer
  ledgerd account open acme:cash
  ledgerd tx transfer acme:mint acme:cash 100

  # Complete commands with the tab key, in bash
  source <(ledgerd completion bash)`,
		Version:                    programVersion(),
		Args:                       knownCommand,
		RunE:                       showHelp,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("ledgerd {{.Version}}\n")
	root.SetFlagErrorFunc(explainFlag)
	root.AddGroup(
		&cobra.Group{ID: groupNode, Title: "Run a ledger:"},
		&cobra.Group{ID: groupClient, Title: "Use a ledger:"},
		&cobra.Group{ID: groupStudy, Title: "Study and measure it:"},
	)
	add := func(group string, makers []func() *cobra.Command) {
		for _, make := range makers {
			command := make()
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add(groupNode, nodeCommands)
	add(groupClient, clientCommands)
	add(groupStudy, studyCommands)
	root.AddCommand(newVersionCommand())
	markRuns(root)
	return root
}

// markRuns makes every command of the tree mark the errors from running it as runErrors. All other
// errors are then reported as wrong usage.
func markRuns(command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = func(command *cobra.Command, arguments []string) error {
			if err := run(command, arguments); err != nil {
				if misused := (*usageError)(nil); errors.As(err, &misused) &&
					misused.command == nil {
					misused.command = command
				}
				return &runError{withDoorHint(err)}
			}
			return nil
		}
	}
	for _, each := range command.Commands() {
		markRuns(each)
	}
}

// newGroupCommand turns a command into one that only groups the commands below it.
func newGroupCommand(command *cobra.Command, below ...*cobra.Command) *cobra.Command {
	command.Args = knownCommand
	command.RunE = showHelp
	command.SuggestionsMinimumDistance = 2
	command.AddCommand(below...)
	return command
}

func showHelp(command *cobra.Command, _ []string) error { return command.Help() }

// knownCommand refuses an unknown subcommand, and suggests a similar one.
func knownCommand(command *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	message := fmt.Sprintf("there is no command %q", command.CommandPath()+" "+arguments[0])
	if near := command.SuggestionsFor(arguments[0]); len(near) > 0 {
		message += fmt.Sprintf(": did you mean %q?", command.CommandPath()+" "+near[0])
	}
	return errors.New(message)
}

// explainFlag adds the most similar flag to the error of an unknown flag.
func explainFlag(command *cobra.Command, err error) error {
	misused := &usageError{err: err, command: command}
	if words := command.Flags().Args(); command.HasSubCommands() && len(words) > 0 {
		// The flag may be one of the command that was meant.
		misused.err = knownCommand(command, words)
		return misused
	}
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return misused
	}
	if number := unknown.GetSpecifiedShortnames(); number != "" && number[0] >= '0' &&
		number[0] <= '9' {
		misused.err = fmt.Errorf("-%s is no amount: amounts are above zero; to move one back, "+
			"exchange the accounts", number)
		return misused
	}
	if len(unknown.GetSpecifiedName()) < 2 {
		return misused
	}
	name, nearest, distance := unknown.GetSpecifiedName(), "", 3
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		if found := editDistance(name, flag.Name); found < distance || nearest == "" &&
			strings.HasPrefix(flag.Name, name) {
			nearest, distance = flag.Name, min(found, distance)
		}
	})
	if nearest != "" {
		misused.err = fmt.Errorf("%w: did you mean --%s?", err, nearest)
	}
	return misused
}

// editDistance returns the number of letters to add, drop or replace to turn one word into the
// other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// programVersion returns the release, or what the build knows about its source.
func programVersion() string {
	if version != "" {
		return version
	}
	build, known := debug.ReadBuildInfo()
	if !known {
		return "unknown"
	}
	revision, modified := "", ""
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			if setting.Value == "true" {
				modified = " with changes"
			}
		}
	}
	if revision == "" {
		return "development"
	}
	return "development " + revision + modified
}
