package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// shardsFlags are the flags of `ledgerd bench ledger` for several shards.
type shardsFlags struct {
	shards        int
	crossing      []int
	pattern, tree string
}

// benchShardsLong explains them.
const benchShardsLong = `With --shards, the command measures the same loads in one shard and in several, each shard with
--nodes nodes. Each client's organisation lives in one of the shards, in turn, and its client
submits to a node there. --crossing PERCENT of the bundles pay accounts of a client in another
shard; all others stay among the client's own accounts. Each of several percentages is measured in
turn. In one shard the same clients pay the same accounts. --tree arranges the shards as
` + "`ledgerd testnet --tree`" + ` does, and --pattern chooses the other shard:
  uniform      any other shard, all equally often
  neighbourly  nine times of ten the shard's parent, one of its children, or another child of its
               parent, all equally often; else any other shard. With --tree breadth, where all
               shards are neighbours, it is the same as uniform.
Unless flags say otherwise, there are 3 nodes a shard, and 24 clients with 100 transactions a
bundle. One shard is measured twice: with transactions in the form that a book of several shards
takes, and with packed bundles, which only a book of one shard takes. With --callers, whose senders
always pack, it is measured once.

The nodes of all shards share this machine's processors here, so the transactions in one second say
little. Processor time decides: "capacity" is what the book carries once its busiest node has used
one processor up, if each node has a machine of its own. The shards are ahead of one shard where
their capacity is larger. That is cautious: nodes with machines of their own have larger blocks,
which cost less a transaction. With --json, "loads" has for each percentage "crossing":
  one_shard         the figures of one shard, null with --callers
  one_shard_packed  those of one shard with packed bundles
  several_shards    those of the shards
  gain              how many times the capacity of one shard the shards have, 0 if not measured
  gain_packed       the same for one shard with packed bundles
Each of the three has "requests_per_second", "latency_p50_us", "latency_p90_us", "latency_p99_us",
"latency_max_us", "cpu_us_per_request", "client_cpu_us_per_request" and "seconds" as below, and:
  crossed_percent                  transactions that crossed, or would, in percent of all
  node_cpu_us_per_request          processor time of each node for each transaction of the book, in
                                   microseconds; node k is a member of shard k div "nodes"
  busiest_node_cpu_us_per_request  the largest of them
  capacity_per_second              1,000,000 divided by it
Beside "loads" there are the parameters, "shards" and "tree", which has each shard's parent, and:
  crossing_cost                 how many times the processor time of a transaction that stays in its
                                shard one that crosses takes, all nodes together; 0 if 0 percent was
                                not measured, or nothing else
  ahead_up_to_percent           up to which percentage the shards are ahead of one; null if they are
                                not at the lowest one
  ahead_of_packed_up_to_percent the same, of one shard with packed bundles
  idle_percent_one_shard        what a node without load takes, in percent of a processor, which is
  idle_percent_several_shards   a part of all figures
At the end, it also checks that the balances of all shards add up to zero.
`

// The load with --shards, unless flags change it.
const (
	shardsNodes   = 3
	shardsClients = 24
	shardsBundle  = 100
)

func (s *shardsFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.IntVar(&s.shards, "shards", 0, "measure this number of shards beside one shard")
	flags.IntSliceVar(&s.crossing, "crossing", []int{0, 25, 50, 75, 100},
		"percentages of the transactions that concern two shards; each is measured")
	flags.StringVar(&s.pattern, "pattern", bench.PatternUniform,
		"how transactions choose the other shard: uniform or neighbourly")
	flags.StringVar(&s.tree, "tree", "breadth",
		"tree of the shards: breadth, binary, chain, or a file with a line \"shard parent\" for "+
			"each")
	bindTreeCompletion(command)
	completeFlag(command, "pattern", cobra.FixedCompletions([]string{bench.PatternUniform,
		bench.PatternNeighbourly}, cobra.ShellCompDirectiveNoFileComp))
}

// parameters returns the parameters of a run with several shards, or nil if it has one.
func (s *shardsFlags) parameters(command *cobra.Command, p bench.LedgerParameters) (
	*bench.ShardsParameters, error) {
	changed := command.Flags().Changed
	if !changed("shards") {
		for _, name := range []string{"crossing", "pattern", "tree"} {
			if changed(name) {
				return nil, usagef("--%s is for --shards: name both, or neither", name)
			}
		}
		return nil, nil
	}
	if changed("compare") {
		return nil, usagef("--compare and --shards exclude each other: choose one")
	}
	if s.shards < 2 {
		return nil, usagef("--shards is %d, want at least 2; one shard is measured beside them",
			s.shards)
	}
	tree, err := readShardTree(s.tree, s.shards)
	if err != nil {
		return nil, err
	}
	if !changed("nodes") {
		p.Nodes = shardsNodes
	}
	if !changed("clients") {
		p.Clients = shardsClients
	}
	if !changed("bundle") && p.Callers == 0 {
		p.Bundle = shardsBundle
	}
	return &bench.ShardsParameters{LedgerParameters: p, Tree: tree, Pattern: s.pattern,
		Crossing: slices.Clone(s.crossing)}, nil
}

// writeShards writes the result of --shards as text.
func writeShards(out io.Writer, r bench.ShardsResult) error {
	plain := bench.LedgerResult{LedgerParameters: r.LedgerParameters}
	if _, err := fmt.Fprintf(out, "%s of %s (%s), %s, %s, %s, %s, %s accounts, %s\n\n",
		plural(r.Shards, "shard"), plural(r.Nodes, "node"), treeText(r.Tree), r.Pattern, r.Engine,
		r.Fabric, clientsOf(plain), accountsOf(plain), r.Ack); err != nil {
		return err
	}
	rows := table{header: []string{"CROSS", "IN", "TRANSACTIONS/S", "MEDIAN US", "99TH US",
		"NODES US", "BUSIEST US", "CAPACITY/S", "GAIN"},
		right: []bool{true, false, true, true, true, true, true, true, true}}
	for _, load := range r.Loads {
		add := func(name string, f *bench.ShardsFigures, gain float64) {
			if f == nil {
				return
			}
			shown := ""
			if gain > 0 {
				shown = fmt.Sprintf("%.2f", gain)
			}
			rows.add(fmt.Sprintf("%d %%", load.Crossing), name,
				fmt.Sprintf("%.0f", f.RequestsPerSecond), fmt.Sprintf("%.0f", f.LatencyP50),
				fmt.Sprintf("%.0f", f.LatencyP99), fmt.Sprintf("%.1f", f.CPUPerRequest),
				fmt.Sprintf("%.2f", f.BusiestCPUPerRequest), fmt.Sprintf("%.0f", f.Capacity), shown)
		}
		add(plural(r.Shards, "shard"), load.Several, 0)
		add("one", load.One, load.Gain)
		add("one, packed", load.Packed, load.GainPacked)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	if r.CrossingCost > 0 {
		if _, err := fmt.Fprintf(out, "\nA transaction that crosses takes %.1f times the "+
			"processor time of one that does not, all nodes together.\n",
			r.CrossingCost); err != nil {
			return err
		}
	}
	ahead := func(than string, measured bool, percent *float64) error {
		if !measured {
			return nil
		}
		text := "not ahead of " + than + " at the lowest percentage"
		if percent != nil {
			text = fmt.Sprintf("ahead of %s up to %.0f %% that cross", than, *percent)
		}
		_, err := fmt.Fprintf(out, "%s are %s.\n", plural(r.Shards, "shard"), text)
		return err
	}
	first := r.Loads[0]
	if err := ahead("one", first.One != nil, r.Ahead); err != nil {
		return err
	}
	if err := ahead("one with packed bundles", first.Packed != nil, r.AheadPacked); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `A node without load takes %.1f %% of a processor in one shard, and %.1f %% in %s.

NODES US is processor time of a transaction, all nodes of the book together; BUSIEST US that of the
node with the most. CAPACITY is what the book carries once that node has used one processor up, if
each node has a machine of its own. GAIN is how many times the capacity of one the shards have.
`, r.IdleOne, r.IdleSeveral, plural(r.Shards, "shard"))
	return err
}
