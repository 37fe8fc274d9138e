package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// shapeReport is the tree as --json prints it.
type shapeReport struct {
	Shape string `json:"shape"`
	// Changes is the number of changes of the book's shards so far, of any kind.
	Changes uint64        `json:"changes"`
	Shards  []placeInTree `json:"shards"`
}

// placeInTree is where a shard is in the tree.
type placeInTree struct {
	Shard  uint32  `json:"shard"`
	Parent *uint32 `json:"parent,omitempty"` // none for the root
	Mode   string  `json:"mode"`
	// Former are the shards from which it still needs entries, although it hangs elsewhere.
	Former []uint32 `json:"former,omitempty"`
}

// rehangReport is a change of the tree as --json prints it.
type rehangReport struct {
	// Transaction is the id of the change; empty without --yes.
	Transaction string `json:"transaction"`
	Shard       uint32 `json:"shard"`
	From        uint32 `json:"from"`
	Parent      uint32 `json:"parent"`
	// Shape is the tree after the change.
	Shape string `json:"shape"`
	// Milliseconds is how long it took until the shard took its entries from its new parent, as
	// seen here.
	Milliseconds int64 `json:"milliseconds"`
}

// treePoll is how often the tree is asked for while a shard takes its new place.
const treePoll = 50 * time.Millisecond

// rehangOptions are those of ledgerd shards tree.
type rehangOptions struct {
	charterOptions
	shard, parent uint32
	yes           bool
}

// newShardsTreeCommand returns the `ledgerd shards tree` command.
func newShardsTreeCommand() *cobra.Command {
	var options rehangOptions
	command := &cobra.Command{
		Use:   "tree [--shard SHARD --parent SHARD --operator FILE --yes]",
		Short: "Show the tree of the shards, or hang a shard below another one",
		Long: `Show the tree of the shards. With --shard and --parent, hang a shard, with all that lies
below it, below another parent while the book runs.

A transaction enters at the lowest shard above all that it concerns, and passes
through the shards between. So hang shards together that deal with each other much
(ledgerd shards advise), and take busy ones from below a shard that has too much to
pass on.

All shards change the tree at one place of their common order, and nothing stops
meanwhile. The shard takes from its old parent what is before that place, and from
its new one what comes after. So both have to run, and the command waits until the
shard has come to its new parent. If the shard is down, its old parent keeps what it
needs. Do not stop the old parent for good before.

The root stays where it is, no shard is hung below itself, and lost shards do not
move. Without --yes the command says what would change, and does nothing.

As many operators sign this as sign a change of themselves: ledgerd cluster operators.

Fields with --json: shape, changes, shards (shard, parent, mode, former); of a
change: transaction, shard, from, parent, shape, milliseconds.`,
		Example: `  ledgerd shards tree
  ledgerd shards tree --shard 3 --parent 1
  ledgerd shards tree --shard 3 --parent 1 --operator net/operator.key --yes`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			shard, parent := command.Flags().Changed("shard"), command.Flags().Changed("parent")
			switch {
			case shard != parent:
				return usagef("--shard and --parent belong together: which shard, and below which")
			case !shard && (options.yes || options.out != ""):
				return usagef("--shard and --parent are missing: name what is to change")
			case !shard:
				return options.show(command)
			}
			return options.change(command)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	flags := command.Flags()
	flags.Uint32Var(&options.shard, "shard", 0, "shard that is hung elsewhere")
	flags.Uint32Var(&options.parent, "parent", 0, "shard right above it from then on")
	flags.BoolVar(&options.yes, "yes", false,
		"do it; without it the command only says what changes")
	return command
}

// show prints the tree.
func (o *rehangOptions) show(command *cobra.Command) error {
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	cluster, err := nodes.Cluster(ctx)
	if err != nil {
		return err
	}
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return err
	}
	report := reportShape(tree, cluster.GetBookChanges())
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	return report.write(command.OutOrStdout())
}

func reportShape(tree *ledgerdv1.Tree, changes uint64) *shapeReport {
	report := &shapeReport{Shape: tree.GetShape(), Changes: changes, Shards: []placeInTree{}}
	former := make(map[uint32][]uint32)
	for _, each := range tree.GetShards() {
		for _, stream := range each.GetStreams() {
			former[stream.GetChild()] = stream.GetFormer()
		}
	}
	for _, each := range tree.GetShards() {
		at := placeInTree{Shard: each.GetShard(), Mode: each.GetMode(),
			Former: former[each.GetShard()]}
		if parent := each.GetParent(); !each.GetRoot() {
			at.Parent = &parent
		}
		report.Shards = append(report.Shards, at)
	}
	return report
}

func (r *shapeReport) write(out io.Writer) error {
	for i := range r.Shards {
		if r.Shards[i].Parent == nil {
			return r.draw(out, &r.Shards[i], "", "")
		}
	}
	return nil
}

// draw writes a shard and all shards below it. before is the text before its number, below the text
// before the numbers of its children.
func (r *shapeReport) draw(out io.Writer, at *placeInTree, before, below string) error {
	text := fmt.Sprintf("%s%d", before, at.Shard)
	if at.Mode != nodereport.ShardOrdering.String() {
		text += "  " + at.Mode
	}
	if len(at.Former) > 0 {
		text += "  still takes entries from " + shardsInWords(at.Former)
	}
	if _, err := fmt.Fprintln(out, text); err != nil {
		return err
	}
	var children []*placeInTree
	for i := range r.Shards {
		if parent := r.Shards[i].Parent; parent != nil && *parent == at.Shard {
			children = append(children, &r.Shards[i])
		}
	}
	for i, child := range children {
		branch, rest := "├─ ", "│  "
		if i == len(children)-1 {
			branch, rest = "└─ ", "   "
		}
		if err := r.draw(out, child, below+branch, below+rest); err != nil {
			return err
		}
	}
	return nil
}

// change hangs a shard below another one and waits until it takes its entries from there, or says
// what would change, or writes the signed change to a file.
func (o *rehangOptions) change(command *cobra.Command) error {
	session, ctx, done, err := o.begin(command, o.yes || o.out != "")
	if err != nil {
		return err
	}
	defer done()
	tree, err := session.nodes.Tree(ctx)
	if err != nil {
		return err
	}
	report, err := o.check(tree)
	if err != nil {
		return err
	}
	if !o.yes && o.out == "" {
		if o.json {
			return writeJSON(command.OutOrStdout(), report)
		}
		_, err := fmt.Fprintf(command.OutOrStdout(), "shard %d would leave shard %d and hang "+
			"below shard %d:\n  now   %s\n  then  %s\nNothing was done. Do it with --yes and "+
			"--operator.\n", report.Shard, report.From, report.Parent, tree.GetShape(),
			report.Shape)
		return err
	}
	change := ledger.BookChange{Rehang: &ledger.ShardRehang{Shard: ledger.ShardID(o.shard),
		Parent: ledger.ShardID(o.parent)}}
	if o.out != "" {
		return session.write(ctx, command, change)
	}
	began := time.Now()
	status, err := session.submit(ctx, change)
	if err != nil {
		return err
	}
	if status.GetReasonCode() != "" {
		return fmt.Errorf("the tree does not change: %s", status.GetReason())
	}
	report.Transaction = status.GetIdHex()
	if err := o.await(ctx, command, session.nodes, report); err != nil {
		return fmt.Errorf("the tree has changed, and shard %d still takes entries from shard %d: "+
			"keep that one running, and see ledgerd shards tree: %w", o.shard, report.From, err)
	}
	report.Milliseconds = time.Since(began).Milliseconds()
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "shard %d hangs below shard %d, in the tree %s; "+
		"it takes its entries from there after %d ms\n", report.Shard, report.Parent, report.Shape,
		report.Milliseconds)
	return err
}

// check returns what the change would make of the tree, or why it cannot be made.
func (o *rehangOptions) check(tree *ledgerdv1.Tree) (*rehangReport, error) {
	shards := tree.GetShards() // they are by number
	for _, shard := range []uint32{o.shard, o.parent} {
		if int64(shard) >= int64(len(shards)) {
			return nil, fmt.Errorf("there is no shard %d: see `ledgerd shards`", shard)
		}
		if shards[shard].GetMode() == nodereport.ShardLost.String() {
			return nil, fmt.Errorf("shard %d is lost: the operators settled with it", shard)
		}
	}
	of := shards[o.shard]
	if of.GetRoot() {
		return nil, fmt.Errorf("shard %d is the root of the tree, and stays where it is", o.shard)
	}
	if of.GetParent() == o.parent {
		return nil, fmt.Errorf("shard %d hangs below shard %d already", o.shard, o.parent)
	}
	above, err := upwards(shards, o.parent)
	if err != nil {
		return nil, err
	}
	if slices.Contains(above, o.shard) {
		return nil, fmt.Errorf("shard %d lies below shard %d, or is the same: no shard is hung "+
			"below itself", o.parent, o.shard)
	}
	if above, err = upwards(shards, of.GetParent()); err != nil {
		return nil, err
	}
	for _, at := range above {
		if shards[at].GetMode() == nodereport.ShardSilent.String() {
			return nil, fmt.Errorf("shard %d is silent, and the change comes to shard %d through "+
				"it: start its nodes first", at, o.shard)
		}
	}
	report := &rehangReport{Shard: o.shard, From: of.GetParent(), Parent: o.parent}
	parents := make([]uint32, len(shards))
	for i := range shards {
		parents[i] = shards[i].GetParent()
	}
	parents[o.shard] = o.parent
	for i := range shards {
		if shards[i].GetRoot() {
			parents[i] = uint32(i)
			report.Shape = shapeBelow(parents, uint32(i))
		}
	}
	return report, nil
}

// shapeBelow writes a shard as text, with its children in brackets.
func shapeBelow(parents []uint32, shard uint32) string {
	var children []string
	for i, parent := range parents {
		if parent == shard && uint32(i) != shard {
			children = append(children, shapeBelow(parents, uint32(i)))
		}
	}
	if len(children) == 0 {
		return fmt.Sprint(shard)
	}
	return fmt.Sprintf("%d(%s)", shard, strings.Join(children, ","))
}

// upwards returns a shard and all shards above it up to the root, in order.
func upwards(shards []*ledgerdv1.Shard, shard uint32) (above []uint32, err error) {
	for len(above) < len(shards) && int64(shard) < int64(len(shards)) {
		if above = append(above, shard); shards[shard].GetRoot() {
			return above, nil
		}
		shard = shards[shard].GetParent()
	}
	return nil, errors.New("the node shows shards that are no tree: ask another node (--node)")
}

// shardsInWords returns the numbers of shards for people.
func shardsInWords(shards []uint32) string {
	if len(shards) == 1 {
		return fmt.Sprintf("shard %d", shards[0])
	}
	text := "shards"
	for i, shard := range shards {
		text += fmt.Sprintf("%s %d", []string{"", ", then"}[min(i, 1)], shard)
	}
	return text
}

// await waits until the shard takes its entries from its new parent. On the way it says where it
// still takes them from.
func (o *rehangOptions) await(ctx context.Context, command *cobra.Command, nodes *client.Client,
	report *rehangReport) error {
	said := false
	for {
		tree, err := nodes.Tree(ctx)
		if err == nil {
			for _, at := range reportShape(tree, 0).Shards {
				there := at.Shard == report.Shard && at.Parent != nil && *at.Parent == report.Parent
				if there && len(at.Former) == 0 {
					return nil
				}
				if there && !said && !o.json {
					said = true
					_, _ = fmt.Fprintf(command.ErrOrStderr(), "the tree has changed; shard %d "+
						"still takes entries from %s\n", report.Shard, shardsInWords(at.Former))
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(treePoll):
		}
	}
}
