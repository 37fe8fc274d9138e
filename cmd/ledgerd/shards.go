package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/importer"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// treeReport is what ledgerd shards --json prints.
type treeReport struct {
	AskedNode string        `json:"asked_node"`
	Own       uint32        `json:"own"` // the asked node's shard
	Shape     string        `json:"shape"`
	Shards    []shardReport `json:"shards"`
	// Refuses is what the asked node does not admit, unless it queues.
	Refuses []shardRefusalReport `json:"refuses"`
	// Changes are those of the shards that are under way, and those of the last ten minutes.
	Changes []shardChangeReport `json:"changes"`
}

// shardRefusalReport is why a node refuses transactions that cross to a shard.
type shardRefusalReport struct {
	Shard  uint32  `json:"shard"`
	Reason string  `json:"reason"` // shard_down, shard_full or shard_lost
	Since  string  `json:"since"`
	Full   *uint32 `json:"awaited,omitempty"` // the shard that it is full for
}

// line says what is refused.
func (r *shardRefusalReport) line() string {
	if r.Reason == nodereport.ReasonShardLost {
		return fmt.Sprintf("refused: transactions that concern shard %d, which is lost, also with "+
			"--queue", r.Shard)
	}
	if r.Full != nil {
		return fmt.Sprintf("refused: transactions between shards %d and %d, since too many wait "+
			"there already, from %s on", r.Shard, *r.Full, r.Since)
	}
	return fmt.Sprintf("refused: transactions that cross to shard %d, which is down since %s",
		r.Shard, r.Since)
}

// shardReport is a shard in a treeReport.
type shardReport struct {
	Shard             uint32  `json:"shard"`
	Parent            *uint32 `json:"parent,omitempty"` // none for the root
	Mode              string  `json:"mode"`             // ordering, halted, silent or lost
	Height            uint64  `json:"height"`
	DurableHeight     uint64  `json:"durable_height"`
	TransactionsTotal uint64  `json:"transactions_total"`
	AccountsTotal     uint64  `json:"accounts_total"`
	// Pending is the number of transactions that wait for other shards.
	Pending uint64 `json:"pending"`
	// Carried is the number of entries of the parent's stream that the shard's chain contains.
	Carried uint64 `json:"carried"`
	// Behind is the number of entries of the parent's stream that it does not contain yet.
	Behind uint64 `json:"behind"`
	waitsReport
	LastHeardMS uint64              `json:"last_heard_ms"`
	Streams     []streamReport      `json:"streams"`
	Members     []shardMemberReport `json:"members"`
}

// streamReport is the progress of a shard's stream to a child.
type streamReport struct {
	Child    uint32 `json:"child"`
	Streamed uint64 `json:"streamed"`
	Carried  uint64 `json:"carried"`
}

// shardMemberReport is a node of a shard, as the asked node sees it.
type shardMemberReport struct {
	Index         uint32 `json:"index"`
	Name          string `json:"name"`
	Mode          string `json:"mode"` // silent: it sent no message lately
	APIAddress    string `json:"api_address,omitempty"`
	OrderedHeight uint64 `json:"ordered_height"`
	LastHeardMS   uint64 `json:"last_heard_ms"`
	Self          bool   `json:"self"`
}

// newShardsCommand returns the `ledgerd shards` command.
func newShardsCommand() *cobra.Command {
	var options watchOptions
	command := &cobra.Command{
		Use:   "shards",
		Short: "Show the tree of the ledger's shards and their condition",
		Long: `Show the tree of the ledger's shards and their condition, as far as the asked node
knows.

In a ledger of several shards, each shard has a chain of its own, kept by a group
of nodes of its own. An organisation's accounts live in one of them. A transaction
that concerns several shards enters the tree at the lowest shard above them all.
Each shard carries the stream of its parent, and the shards exchange their
verdicts. Every node answers for the whole ledger.

  ordering  a node of the shard orders, or reported so lately
  halted    nodes of the shard answer, but none orders
  silent    no node of the shard sent a message lately
  lost      the operators settled with the shard: ledgerd shards settle

PENDING counts the transactions in a shard's chain that wait for other shards,
OVERDUE those of them that have waited for longer than alarm_after of its nodes'
config.toml, and BEHIND the entries of the parent's stream that the shard does not
have yet. Below the table are lines for changes under way and what they wait for,
for shards that are waited for too long and since when, and for shards that the
asked node refuses transactions for, and why. The shard of the asked node has an
asterisk. A ledger of one shard is a tree of one.`,
		Example: `  ledgerd shards
  ledgerd shards --watch
  ledgerd shards --json | jq -r '.shards[] | "\(.shard) \(.mode) \(.pending)"'

  # What has waited for too long, and for which shard
  ledgerd shards --json | jq -c '.shards[] | select(.overdue > 0) | .waits_for'

  # Which organisations are on their way to another shard
  ledgerd shards --json | jq -c '.changes[] | select(.state != "done")'

  # What the asked node refuses, since a shard is down or full
  ledgerd shards --json | jq -c '.refuses[]'

  # Details of one shard
  ledgerd cluster status --shard 2
  ledgerd block --shard 2`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, func(ctx context.Context, nodes *client.Client) (report,
				error) {
				tree, err := nodes.Tree(ctx)
				if err != nil {
					return nil, err
				}
				return reportTree(tree, nodes.Current()), nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	command.AddCommand(newShardsAdviseCommand(), newShardsAddCommand(), newShardsHomeCommand(),
		newShardsMoveCommand(), newShardsSplitCommand(), newShardsMergeCommand(),
		newShardsTreeCommand(), newShardsSettleCommand())
	return command
}

// reportTree converts the asked node's answer to a report.
func reportTree(tree *ledgerdv1.Tree, asked string) *treeReport {
	report := &treeReport{AskedNode: asked, Own: tree.GetOwn(), Shape: tree.GetShape(),
		Shards: []shardReport{}, Refuses: []shardRefusalReport{},
		Changes: reportChanges(tree.GetChanges())}
	for _, each := range tree.GetRefuses() {
		report.Refuses = append(report.Refuses, shardRefusalReport{each.GetShard(),
			each.GetReason(), time.UnixMilli(int64(each.GetSinceMs())).UTC().
				Format(time.RFC3339), each.Awaited})
	}
	behind := make(map[uint32]uint64)
	for _, shard := range tree.GetShards() {
		for _, stream := range shard.GetStreams() {
			behind[stream.GetChild()] = stream.GetStreamed() - min(stream.GetStreamed(),
				stream.GetCarried())
		}
	}
	for _, shard := range tree.GetShards() {
		each := shardReport{
			Shard: shard.GetShard(), Mode: shard.GetMode(), Height: shard.GetHeight(),
			DurableHeight:     shard.GetDurableHeight(),
			TransactionsTotal: shard.GetTransactionsTotal(),
			AccountsTotal:     shard.GetAccountsTotal(), Pending: shard.GetPending(),
			Carried: shard.GetCarried(),
			Behind:  behind[shard.GetShard()], LastHeardMS: shard.GetLastHeardMs(),
			waitsReport: reportWaits(shard, tree.GetTimeMs()),
			Streams:     []streamReport{}, Members: []shardMemberReport{},
		}
		if !shard.GetRoot() {
			parent := shard.GetParent()
			each.Parent = &parent
		}
		for _, stream := range shard.GetStreams() {
			each.Streams = append(each.Streams, streamReport{stream.GetChild(),
				stream.GetStreamed(), stream.GetCarried()})
		}
		for _, member := range shard.GetMembers() {
			each.Members = append(each.Members, shardMemberReport{
				member.GetIndex(), member.GetName(), member.GetMode(), member.GetApiAddress(),
				member.GetOrderedHeight(), member.GetLastHeardMs(), member.GetSelf(),
			})
		}
		report.Shards = append(report.Shards, each)
	}
	return report
}

func (r *treeReport) write(out io.Writer) error {
	overview := table{}
	overview.add("shards", fmt.Sprintf("%d, in the tree %s", len(r.Shards), r.Shape))
	overview.add("asked", fmt.Sprintf("%s, of shard %d", r.AskedNode, r.Own))
	if err := overview.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	rows := table{
		header: []string{"SHARD", "MODE", "NODES", "HEIGHT", "DURABLE", "TRANSACTIONS", "ACCOUNTS",
			"PENDING", "OVERDUE", "BEHIND"},
		right: []bool{false, false, true, true, true, true, true, true, true, true},
		colour: func(column int, cell string) string {
			switch {
			case column == 1:
				return colourOfShard(cell)
			case column == 8 && cell != "0":
				return colourBad
			}
			return ""
		},
	}
	for i := range r.Shards {
		if r.Shards[i].Parent == nil {
			r.draw(&rows, &r.Shards[i], "", "")
		}
	}
	if err := rows.write(out); err != nil {
		return err
	}
	for i := range r.Changes {
		if line := r.Changes[i].line(); line != "" {
			if _, err := fmt.Fprintf(out, "\n%s\n", line); err != nil {
				return err
			}
		}
	}
	var alarms []string
	for i := range r.Shards {
		alarms = append(alarms, r.Shards[i].alarms(r.Shards[i].Shard)...)
	}
	if len(alarms) > 0 {
		alarms = append(alarms, alarmAdvice)
	}
	for i := range r.Refuses {
		alarms = append(alarms, r.Refuses[i].line())
	}
	if slices.ContainsFunc(r.Refuses, func(each shardRefusalReport) bool {
		return each.Reason != nodereport.ReasonShardLost
	}) {
		alarms = append(alarms, "the asked node takes them all the same with --queue")
	}
	if len(alarms) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(alarms, "\n"))
	return err
}

// draw adds a shard and all shards below it to a table. before is the text before its number, below
// the text before the numbers of its children.
func (r *treeReport) draw(rows *table, shard *shardReport, before, below string) {
	ordering := 0
	for _, member := range shard.Members {
		if member.Mode == "ordering" {
			ordering++
		}
	}
	name, behind := before+fmt.Sprint(shard.Shard), fmt.Sprint(shard.Behind)
	if shard.Shard == r.Own {
		name += " *"
	}
	if shard.Parent == nil {
		behind = "-"
	}
	rows.add(name, shard.Mode, fmt.Sprintf("%d/%d", ordering, len(shard.Members)),
		fmt.Sprint(shard.Height), fmt.Sprint(shard.DurableHeight),
		fmt.Sprint(shard.TransactionsTotal), fmt.Sprint(shard.AccountsTotal),
		fmt.Sprint(shard.Pending), fmt.Sprint(shard.Overdue), behind)
	var children []*shardReport
	for i := range r.Shards {
		if parent := r.Shards[i].Parent; parent != nil && *parent == shard.Shard {
			children = append(children, &r.Shards[i])
		}
	}
	for i, child := range children {
		if i == len(children)-1 {
			r.draw(rows, child, below+"└─ ", below+"   ")
		} else {
			r.draw(rows, child, below+"├─ ", below+"│  ")
		}
	}
}

// colourOfShard returns the colour of a shard's mode.
func colourOfShard(mode string) string {
	switch mode {
	case "ordering":
		return colourGood
	case "halted", "silent", "lost":
		return colourBad
	}
	return ""
}

// shardFlag is the flag --shard of the commands that show the contents of a chain.
type shardFlag struct{ number *uint32 }

// String implements pflag.Value.
func (f *shardFlag) String() string {
	if f.number == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*f.number), 10)
}

// Type implements pflag.Value.
func (f *shardFlag) Type() string { return "number" }

// Set implements pflag.Value.
func (f *shardFlag) Set(text string) error {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number > math.MaxUint32 {
		return errors.New("a shard is a number, from 0 on: see `ledgerd shards`")
	}
	shard := uint32(number)
	f.number = &shard
	return nil
}

// bind adds the flag to a command.
func (f *shardFlag) bind(command *cobra.Command, remote *remoteOptions, usage string) {
	command.Flags().Var(f, "shard", usage)
	completeFlag(command, "shard", func(command *cobra.Command, _ []string,
		begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(command, remote, func(ctx context.Context,
			nodes *client.Client) (words []cobra.Completion) {
			tree, err := nodes.Tree(ctx)
			if err != nil {
				return nil
			}
			for _, shard := range tree.GetShards() {
				if number := fmt.Sprint(shard.GetShard()); strings.HasPrefix(number, begun) {
					words = append(words, number)
				}
			}
			return words
		})
	})
}

// shardPatience limits how long a command waits until a node has heard from the nodes of another
// shard. A node that has just started has heard from none.
const shardPatience = 3 * time.Second

// nodesOf returns a client that asks the nodes of the flag's shard directly, which streams need. It
// returns the given client if its node belongs to the shard. The caller has to call the returned
// function at the end.
func (f *shardFlag) nodesOf(ctx context.Context, nodes *client.Client) (*client.Client, func(),
	error) {
	keep := func() {}
	if f.number == nil {
		return nodes, keep, nil
	}
	const between = 100 * time.Millisecond
	for tries := shardPatience / between; ; tries-- {
		tree, err := nodes.Tree(ctx)
		if err != nil || tree.GetOwn() == *f.number {
			return nodes, keep, err
		}
		addresses, known := addressesOf(tree, *f.number)
		switch {
		case !known:
			return nil, keep, fmt.Errorf("there is no shard %d: see `ledgerd shards`", *f.number)
		case len(addresses) > 0:
			own, err := nodes.Beside(addresses, client.Options{})
			if err != nil {
				return nil, keep, err
			}
			return own, own.Close, nil
		case tries == 0:
			return nil, keep, fmt.Errorf("no node of shard %d sent a message lately, or none has "+
				"a known address: name one of its nodes instead", *f.number)
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return nil, keep, context.Cause(ctx)
		}
	}
}

// addressesOf returns the addresses of a shard's nodes that sent a message lately, and whether
// there is such a shard.
func addressesOf(tree *ledgerdv1.Tree, number uint32) (addresses []string, known bool) {
	for _, shard := range tree.GetShards() {
		if shard.GetShard() != number {
			continue
		}
		known = true
		for _, member := range shard.GetMembers() {
			if address := importer.UsableAddress(member.GetApiAddress()); address != "" &&
				member.GetMode() != "silent" {
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, known
}
