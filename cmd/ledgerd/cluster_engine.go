package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
)

// engineOptions are the flags of ledgerd cluster engine.
type engineOptions struct {
	changeOptions
	dryRun bool
}

// engineChoiceReport is what ledgerd cluster engine prints with --json.
type engineChoiceReport struct {
	Chain string `json:"chain"`
	// Shard is the shard whose engine it is, if the book has several.
	Shard *ledger.ShardID `json:"shard,omitempty"`
	// Engine is the engine by which the members order from the next eon on, and SinceHeight that of
	// the block that named it; 0 if it is that of the nodes' settings.
	Engine      string `json:"engine"`
	SinceHeight uint64 `json:"since_height"`
	// OrdersBy is the engine of the asked node's present run.
	OrdersBy string `json:"orders_by"`
	// Engines are those that the asked node's program can run.
	Engines []string `json:"engines"`
	// AlreadySo says that nothing had to be changed. Durable is that of the change.
	AlreadySo bool `json:"already_so,omitempty"`
	Durable   bool `json:"durable,omitempty"`
}

// newClusterEngineCommand returns the `ledgerd cluster engine` command.
func newClusterEngineCommand() *cobra.Command {
	var o engineOptions
	command := &cobra.Command{
		Use:   "engine [NAME]",
		Short: "Show or change the engine by which the members order",
		Long: `Show the engine by which the members order, and since which block, or change it to
NAME while the ledger runs: ` + runnableEngines().String() + `. docs/choosing-an-engine.md says
which one is for what.

A change is a transaction. An operator signs it, and it is ordered as a change of the
members is. The rounds that are under way end, at the same round on every node, and
the next ones are those of the new engine. Nothing is lost, and transactions wait for
some rounds at most. The command waits until the asked node orders by the new engine.

From then on the chain says which engine it is. The key [ordering] engine in a node's
config.toml is only the one with which a chain begins: a node with another value logs
a warning and orders as the chain says, also after a restart, with a new disk, or if it
joins later. The settings prompt and log_rounds have an effect while the engine has
them. Each shard of a ledger has an engine of its own (--shard).

The chain must have version 13 (ledgerd cluster upgrade), and the nodes an eventual
detector. The command asks every member whether its program runs the engine. A node
whose program does not stops when the engine is to begin, and goes on when it runs one
that does.`,
		Example: `  ledgerd cluster engine
  ledgerd cluster engine allconcur --operator net/operator.key
  ledgerd cluster engine allconcur+ --shard 2 --operator a.key --operator b.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 0 {
				return o.show(command)
			}
			return o.change(command, arguments[0])
		},
		ValidArgsFunction: cobra.FixedCompletions(runnableEngines().Names(),
			cobra.ShellCompDirectiveNoFileComp),
	}
	o.bind(command)
	command.Flags().Lookup("force").Usage = "do it even if some members do not answer, and so " +
		"may have a program without the engine"
	command.Flags().Lookup("operator").Usage = "file with an operator's key, for example " +
		"net/operator.key; several with commas or repeated, as many as have to sign (required " +
		"with NAME)"
	command.Flags().Lookup("shard").Usage = "the shard whose engine it is (default the one of " +
		"the node of --via)"
	bindDryRun(command, &o.dryRun)
	return command
}

// runnableEngines are the engines that this program can run in a node.
func runnableEngines() engine.List { return engine.All().With(engine.Engine.RunsInNode) }

// show prints the present engine.
func (o *engineOptions) show(command *cobra.Command) error {
	if o.dryRun || o.force || len(o.signing.files) > 0 {
		return usagef("name the engine to change to, for example ledgerd cluster engine %s",
			runnableEngines()[0].Name)
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	_, cluster, err := nodes.MembershipOf(ctx, o.shard.number)
	if err != nil {
		return err
	}
	return o.write(command.OutOrStdout(), reportEngine(cluster))
}

// change has the members order by an engine, and waits until they do.
func (o *engineOptions) change(command *cobra.Command, name string) error {
	if err := ledger.ValidateEngineName(name); err != nil {
		return asUsage(err)
	}
	c, ctx, done, err := o.connect(command)
	if err != nil {
		return err
	}
	defer done()
	if version := max(ledger.FirstVersion, c.charter.Version); !ledger.TakesEngines(version) {
		return fmt.Errorf("%s has version %d, and changes its engine from version %d on: run "+
			"ledgerd cluster upgrade first", c.chain(), version, ledger.EnginesVersion)
	}
	present := reportEngine(c.cluster)
	if present.Engine == name && present.SinceHeight > 0 && !o.dryRun {
		present.AlreadySo = true
		return o.write(command.OutOrStdout(), present)
	}
	if err := c.checkEngines(ctx, name); err != nil {
		return err
	}
	change := ledger.MembershipChange{Kind: ledger.ChangeEngine, Engine: name}
	if o.dryRun {
		outcome, err := c.nodes.PostDry(ctx, c.operators, ledger.Transaction{Change: &change,
			LastValid: ledger.Height(c.cluster.GetNode().GetOrderedHeight()) + changeLife})
		if err != nil {
			return withWriters(err)
		}
		return writeDryRuns(command.OutOrStdout(), o.json, []*ledgerdv1.DryRunOutcome{outcome})
	}
	ordered, err := c.order(ctx, change)
	if err != nil {
		return err
	}
	c.say("block %d names %s: waiting until the members order by it", ordered.Height, name)
	if err := c.awaitEngine(ctx, name, ordered.Height); err != nil {
		return err
	}
	report := reportEngine(c.cluster)
	report.Durable = ordered.Durable
	return o.write(command.OutOrStdout(), report)
}

// checkEngines asks all members which engines their programs run. It returns an error if one does
// not run this one, or, unless forced, if one does not answer.
func (c *membershipSession) checkEngines(ctx context.Context, name string) error {
	var silent []string
	for _, member := range c.cluster.GetMembers() {
		said, err := c.cluster, error(nil)
		if !member.GetSelf() {
			said, err = clusterAt(ctx, c.nodes, member.GetApiAddress())
		}
		switch {
		case err != nil:
			silent = append(silent, member.GetName())
		case !slices.Contains(said.GetEngines(), name):
			return fmt.Errorf("the program of member %s does not run engine %s (it runs %s): "+
				"choose one of these, or install a program there that has it and restart the "+
				"node first", member.GetName(), name,
				strings.Join(sanitizeAll(said.GetEngines()), ", "))
		}
	}
	if len(silent) > 0 && !c.force {
		return fmt.Errorf("%s cannot be asked which engines its program runs: start it, or use "+
			"--force if you know that every member has this program", strings.Join(silent, ", "))
	}
	return nil
}

// awaitEngine waits until the asked node orders by the engine that the block at a height named.
func (c *membershipSession) awaitEngine(ctx context.Context, name string, height uint64) error {
	for {
		if err := c.refresh(ctx); err != nil {
			return fmt.Errorf("block %d names %s, and the members change to it: %w", height, name,
				err)
		}
		switch now := reportEngine(c.cluster); {
		case now.SinceHeight > height:
			return fmt.Errorf("block %d named %s, and block %d named %s since", height, name,
				now.SinceHeight, now.Engine)
		case now.SinceHeight == height && now.OrdersBy == name:
			return nil
		}
		if err := sleep(ctx, membershipPause); err != nil {
			return fmt.Errorf("block %d names %s, and the members change to it as soon as a "+
				"majority of them runs: %w", height, name, err)
		}
	}
}

func sanitizeAll(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = sanitize(text, 0)
	}
	return all
}

func reportEngine(cluster *ledgerdv1.ClusterState) *engineChoiceReport {
	report := &engineChoiceReport{
		Chain: cluster.GetChain(), Engine: cluster.GetOrdering().GetEngine(),
		SinceHeight: cluster.GetOrdering().GetEngineHeight(),
		OrdersBy:    cluster.GetNode().GetEngine().GetEngine(), Engines: cluster.GetEngines(),
	}
	if cluster.GetShardCount() > 1 {
		shard := ledger.ShardID(cluster.GetShard())
		report.Shard = &shard
	}
	return report
}

// engineWords says which engine the members order by, and since which block.
func engineWords(name string, height uint64) string {
	since := "the nodes' setting"
	if height > 0 {
		since = fmt.Sprintf("since block %d", height)
	}
	return sanitize(name, 0) + ", " + since
}

// write prints the report, as the flags say.
func (o *engineOptions) write(out io.Writer, r *engineChoiceReport) error {
	if o.json {
		return writeJSON(out, r)
	}
	name := sanitize(r.Chain, 0)
	if r.Shard != nil {
		name += fmt.Sprintf(", shard %d", *r.Shard)
	}
	rows := table{}
	rows.add("ledger", name)
	rows.add("engine", engineWords(r.Engine, r.SinceHeight))
	if r.OrdersBy != r.Engine {
		rows.add("orders by", fmt.Sprintf("%s, until these rounds end", sanitize(r.OrdersBy, 0)))
	}
	rows.add("others", strings.Join(slices.DeleteFunc(sanitizeAll(r.Engines),
		func(name string) bool { return name == r.Engine }), ", "))
	return rows.write(out)
}
