package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// splitReport is the output of `ledgerd shards split` and `ledgerd shards merge` with --json.
type splitReport struct {
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
	// Organisations are those that move, ascending. Stay counts those of the shard that stay.
	Organisations []string `json:"organisations"`
	Stay          int      `json:"stay"`
	// Transactions is the number that were read to choose them, 0 if they were named.
	Transactions uint64 `json:"transactions"`
	// Moved are the moves that were made; none without --yes.
	Moved []*movedReport `json:"moved"`
}

// splitOptions move organisations of one shard to another one.
type splitOptions struct {
	charterOptions
	to      uint32
	named   []string
	all     bool
	limit   uint64
	yes     bool
	nothing string // what to say if there is nothing to move
}

// bind adds the flags of both commands, except --out: each move is a change of its own, so
// operators who sign one after another sign with shards move.
func (o *splitOptions) bind(command *cobra.Command) {
	bindVia(command, &o.remote)
	o.signing.bind(command)
	bindWait(command, &o.wait)
	addJSONFlag(command, &o.json)
	flags := command.Flags()
	flags.Uint32Var(&o.to, "to", 0, "shard that the organisations move to (required)")
	flags.BoolVar(&o.yes, "yes", false, "move them; without it the command only says which move")
	if err := command.MarkFlagRequired("to"); err != nil {
		panic("shards split: no such flag: to")
	}
	timeout := flags.Lookup("timeout") // of all moves together
	timeout.DefValue = time.Hour.String()
	if err := timeout.Value.Set(timeout.DefValue); err != nil {
		panic("shards split: --timeout: " + err.Error())
	}
}

// newShardsSplitCommand returns the `ledgerd shards split` command.
func newShardsSplitCommand() *cobra.Command {
	options := splitOptions{limit: 100_000,
		nothing: "no part of the shard's organisations has less than half of its traffic: name " +
			"those that are to move with --organisation"}
	command := &cobra.Command{
		Use:   "split SHARD --to SHARD --operator FILE --yes",
		Short: "Move half of a shard's organisations to another shard",
		Long: `Split a shard along organisations: some of them move to another shard, most often one
that ledgerd shards add has just added.

The command reads the newest transactions of the book and chooses about a half of the
shard by load, so that few transactions concern both halves. Or name the
organisations with --organisation. Each moves as with ledgerd shards move: its
transactions wait for less than a second, usually.

Without --yes the command says which organisations move, and changes nothing. If it
is broken off, the same command with --organisation goes on: those that have moved
already are passed over.

Fields with --json: from, to, organisations (that move), stay (how many do not),
transactions (that were read), moved (as of ledgerd shards move).

As many operators sign this as sign a change of themselves: ledgerd cluster operators.`,
		Example: `  ledgerd shards split 1 --to 3
  ledgerd shards split 1 --to 3 --operator net/operator.key --yes
  ledgerd shards split 1 --to 3 --organisation acme --organisation bank --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.run(command, arguments[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	flags := command.Flags()
	flags.StringArrayVar(&options.named, "organisation", nil,
		"an organisation that moves (repeatable)")
	flags.Uint64Var(&options.limit, "transactions", options.limit,
		"read at most about so many transactions to choose them")
	return command
}

// newShardsMergeCommand returns the `ledgerd shards merge` command.
func newShardsMergeCommand() *cobra.Command {
	options := splitOptions{all: true, nothing: "no organisation lives there that could move"}
	command := &cobra.Command{
		Use:   "merge SHARD --to SHARD --operator FILE --yes",
		Short: "Move all organisations of a shard to another shard",
		Long: `Merge a shard into another one: all of its organisations move there, one after another, as
with ledgerd shards move.

The shard goes on, without organisations. If no shard lies below it, stop its nodes
for good, and let the others go on without it: ledgerd shards settle. New
organisations whose names lead to it have to be registered elsewhere then (ledgerd
org add --shard).

Without --yes the command says which organisations move, and changes nothing. If it
is broken off, the same command goes on with the rest.

Fields with --json: from, to, organisations (that move), stay (how many do not),
transactions (0), moved (as of ledgerd shards move).

As many operators sign this as sign a change of themselves: ledgerd cluster operators.`,
		Example: `  ledgerd shards merge 3 --to 1
  ledgerd shards merge 3 --to 1 --operator net/operator.key --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.run(command, arguments[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	return command
}

func (o *splitOptions) run(command *cobra.Command, shard string) error {
	from, err := strconv.ParseUint(shard, 10, 32)
	if err != nil {
		return usagef("%q: a shard is a number, from 0 on: see `ledgerd shards`", shard)
	}
	if uint32(from) == o.to {
		return usagef("--to is shard %d itself: name another one", from)
	}
	if !o.all && (o.limit < 1 || o.limit > trafficMax) {
		return usagef("--transactions is %d: it has to be 1 to %d", o.limit, trafficMax)
	}
	session, ctx, done, err := o.begin(command, o.yes)
	if err != nil {
		return err
	}
	defer done()
	report, err := o.choose(ctx, command, session.nodes, uint32(from))
	if err != nil {
		return err
	}
	if o.yes {
		if err := o.moveAll(ctx, command, session, report); err != nil {
			return err
		}
	}
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	return o.say(command, report)
}

// choose returns which organisations of a shard move.
func (o *splitOptions) choose(ctx context.Context, command *cobra.Command, nodes *client.Client,
	from uint32) (*splitReport, error) {
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return nil, err
	}
	if count := len(tree.GetShards()); int(from) >= count || int(o.to) >= count {
		return nil, fmt.Errorf("there are shards 0 to %d: see `ledgerd shards`", count-1)
	}
	homes, err := homesOf(ctx, nodes)
	if err != nil {
		return nil, err
	}
	report := &splitReport{From: from, To: o.to, Organisations: []string{}, Moved: []*movedReport{}}
	var here []string
	for name, shard := range homes {
		if shard == from {
			here = append(here, name)
		}
	}
	slices.Sort(here)
	switch {
	case o.all:
		report.Organisations = here
	case len(o.named) > 0:
		for _, name := range o.named {
			switch home, known := homes[name]; {
			case !known:
				return nil, fmt.Errorf("%q is not registered: see `ledgerd org list`", name)
			case home == o.to: // it has moved already
			case home != from:
				return nil, fmt.Errorf("%s lives in shard %d, not in shard %d", name, home, from)
			default:
				report.Organisations = append(report.Organisations, name)
			}
		}
		slices.Sort(report.Organisations)
		report.Organisations = slices.Compact(report.Organisations)
	default:
		progress, end := trafficProgress(command.ErrOrStderr(), o.limit)
		reader := trafficReader{nodes: nodes, homes: homes, limit: o.limit, progress: progress}
		readable, _ := readableShards(tree)
		found, err := reader.read(ctx, readable)
		end()
		if err != nil {
			return nil, err
		}
		read := found.Traffic()
		report.Organisations = append(report.Organisations, read.Halve(here)...)
		report.Transactions = found.Transactions
	}
	report.Stay = len(here) - len(report.Organisations)
	return report, nil
}

// moveAll moves the organisations one after another.
func (o *splitOptions) moveAll(ctx context.Context, command *cobra.Command, session *bookSession,
	report *splitReport) error {
	for i, name := range report.Organisations {
		moved, err := session.moveOne(ctx, ledger.OrganisationName(name), ledger.ShardID(o.to))
		if err != nil {
			return fmt.Errorf("%d of %d organisations have moved: %w", i, len(report.Organisations),
				err)
		}
		report.Moved = append(report.Moved, moved)
		if !o.json {
			if _, err := fmt.Fprintln(command.OutOrStdout(), moved); err != nil {
				return err
			}
		}
	}
	return nil
}

// say says what moves, or what comes next.
func (o *splitOptions) say(command *cobra.Command, report *splitReport) error {
	out := command.OutOrStdout()
	switch {
	case len(report.Organisations) == 0:
		_, err := fmt.Fprintln(out, "nothing moves: "+o.nothing)
		return err
	case len(report.Moved) > 0:
		return nil
	}
	for _, name := range report.Organisations {
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\nThese move from shard %d to shard %d, and %d stay. Move them "+
		"with --yes.\n", report.From, report.To, report.Stay)
	return err
}
