package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// testnetOptions are the flags of ledgerd testnet.
type testnetOptions struct {
	layout testnet.Layout
	tree   string
	// registration is open or operators.
	registration string
	run, json    bool
}

// testnetReport is what ledgerd testnet --json prints.
type testnetReport struct {
	Dir         string      `json:"dir"`
	Chain       string      `json:"chain"`
	Genesis     string      `json:"genesis_hash"`
	Engine      string      `json:"engine"`
	Fabric      fabric.Kind `json:"fabric"`
	OperatorKey string      `json:"operator_key"`
	// Book is the identity of a book of several shards, and Tree holds each shard's parent. The
	// genesis hash is then the one of shard 0.
	Book   string           `json:"book_hash,omitempty"`
	Shards int              `json:"shards,omitempty"`
	Tree   []ledger.ShardID `json:"tree,omitempty"`
	Nodes  []homeReport     `json:"nodes"`
}

// newTestnetCommand returns the `ledgerd testnet` command.
func newTestnetCommand() *cobra.Command {
	var o testnetOptions
	command := &cobra.Command{
		Use:   "testnet --dir DIR --nodes N",
		Short: "Make a ledger of several processes on this machine, and run it",
		Long: `Make a ledger of several processes on this machine, and run it.

The folder gets a home for each node, node-0, node-1 and so on, and a key of an
operator of the new chain, operator.key. Any client registers organisations; with
--registration operators, the operator has to sign that. Node i has its API on port P+2i and
talks to the other nodes on port P+2i+1, where P is the --base-port.

With --run the nodes are run too, each as a process of its own. If a node crashes,
it is started again. Its log is node.log in its home. An interrupt (Ctrl-C) stops
all nodes in good order and leaves the folder as it is. Meanwhile, ledgerd testnet
stop and ledgerd testnet start stop and start a shard or single nodes.

If the folder has a ledger already, --run runs it, including nodes that joined it
later with homes node-N in the folder (ledgerd cluster join). A node that was
removed from the members is not started again, and its home may be removed.

With --shards the ledger is split: each shard has a chain of its own, kept by N
nodes, and the organisations are spread over the shards. Node i belongs to shard
i/N. A transaction that concerns one shard only is ordered there and nowhere else.
One that concerns several shards enters at the lowest shard above all of them, and
comes down the tree. --tree selects the tree: breadth has shard 0 above all others,
binary has 2s+1 and 2s+2 below shard s, in chain each shard has the next one below
it, and a file has a line "shard parent" for each shard, where the root's parent
is the root itself.

The nodes talk over the --fabric, which their homes keep: p2p, p2p-trusted,
shm, which is the fastest between processes of one machine, or verbs if
there is an RDMA device (ledgerd fabric). With memory all nodes run in this one
process, and end with it.`,
		Example: `  # Make four nodes and run them; later, run the same again
  ledgerd testnet --dir net --nodes 4 --run
  ledgerd testnet --dir net --run

  # Three shards of four nodes each, shard 0 above the other two
  ledgerd testnet --dir wide --shards 3 --nodes 4 --run

  # In another terminal: stop shard 2 while the others go on, and start it again
  ledgerd testnet stop wide --shard 2
  ledgerd testnet start wide --shard 2

  # Make them, and run each by itself
  ledgerd testnet --dir net --nodes 3 --base-port 30000
  ledgerd start --home net/node-0`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			homes, made, err := o.homes(command.Flags().Changed)
			if err != nil {
				return err
			}
			report, err := o.report(homes)
			if err != nil {
				return err
			}
			if o.run {
				return o.supervise(command.Context(), command.OutOrStdout(), command.ErrOrStderr(),
					homes, report, made)
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			return o.print(command.OutOrStdout(), report)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.layout.Dir, "dir", "", "folder for the homes (required)")
	flags.IntVar(&o.layout.Nodes, "nodes", 4, "number of nodes of each shard")
	flags.IntVar(&o.layout.Shards, "shards", 1, "number of shards")
	flags.StringVar(&o.tree, "tree", "breadth",
		"tree of the shards: breadth, binary, chain, or a file with a line \"shard parent\" for "+
			"each shard")
	flags.IntVar(&o.layout.BasePort, "base-port", testnet.DefaultBasePort,
		"port of node 0's API; node i uses this plus 2i and 2i+1")
	addEngineFlag(command, &o.layout.Engine, engine.All().With(engine.Engine.RunsInNode))
	addFabricFlag(command, &o.layout.Fabric, fabric.P2P)
	flags.StringVar(&o.layout.Chain, "chain", testnet.DefaultChain, "name of the chain")
	bindRegistration(command, &o.registration, registrationOpen,
		"who registers organisations: open or operators")
	flags.BoolVar(&o.run, "run", false, "run the nodes, until interrupted")
	addJSONFlag(command, &o.json)
	bindTreeCompletion(command)
	command.AddCommand(newTestnetStopCommand(), newTestnetStartCommand(),
		newTestnetAddShardCommand())
	return command
}

// homes makes the homes. With --run it uses the homes in the folder if there are any.
func (o *testnetOptions) homes(given func(flag string) bool) (homes []*home.Home, made bool,
	err error) {
	if o.layout.Dir == "" {
		return nil, false, usagef("--dir is missing: name the folder for the nodes' homes, for " +
			"example --dir net")
	}
	if o.layout.Shards < 1 {
		return nil, false, usagef("--shards is %d: a ledger has 1 shard or more", o.layout.Shards)
	}
	if o.layout.RegistrationByOperator, err = parseRegistration(o.registration); err != nil {
		return nil, false, err
	}
	if !o.run || !testnet.Exists(o.layout.Dir) {
		if err := o.layout.Validate(); err != nil {
			return nil, false, asUsage(err)
		}
		if o.layout.Tree, err = readShardTree(o.tree, o.layout.Shards); err != nil {
			return nil, false, err
		}
		if _, err := fabric.Parse(string(o.layout.Fabric)); err != nil {
			return nil, false, asUsage(err)
		}
		if err := o.checkFabric(o.layout.Fabric); err != nil {
			return nil, false, err
		}
		homes, err = testnet.Make(o.layout)
		return homes, true, err
	}
	if homes, err = testnet.Load(o.layout.Dir); err != nil {
		return nil, false, err
	}
	return homes, false, o.differs(homes, given)
}

// differs refuses given flags that do not fit the existing network.
func (o *testnetOptions) differs(homes []*home.Home, given func(flag string) bool) error {
	first := homes[0]
	number, shards, tree := int(first.Self), 1, []ledger.ShardID{0}
	if first.Genesis.Sharded() {
		newest := testnet.Newest(homes)
		shards, tree = newest.BookShards(), newest.ShardTree().Parents()
		number += int(first.Genesis.Shard) * len(first.Genesis.Members)
	}
	charter, nodes := first.Genesis.Charter(), fmt.Sprint(len(homes))
	if shards > 1 {
		nodes = nodesOfShards(homes)
	}
	differs := func(flag string, wanted, found any) error {
		if given(flag) && wanted != found {
			return fmt.Errorf("%s holds a ledger already, with %s %v and not %v: leave --%s out "+
				"to run it as it is, or choose another --dir", o.layout.Dir, flag, found, wanted,
				flag)
		}
		return nil
	}
	for _, err := range []error{
		differs("nodes", fmt.Sprint(o.layout.Nodes), nodes),
		differs("shards", o.layout.Shards, shards),
		differs("base-port", fmt.Sprintf("127.0.0.1:%d", o.layout.BasePort+2*number),
			first.Config.API.Listen),
		differs("engine", o.layout.Engine, first.Config.Ordering.Engine),
		differs("fabric", o.layout.Fabric, first.Config.Fabric.Kind),
		differs("chain", o.layout.Chain, first.Genesis.Chain),
		differs("registration", o.registration, registrationOf(&charter)),
	} {
		if err != nil {
			return err
		}
	}
	if !given("tree") {
		return nil
	}
	wanted, err := readShardTree(o.tree, shards)
	if err != nil {
		return err
	}
	return differs("tree", treeText(wanted), treeText(tree))
}

// nodesOfShards returns the number of homes of each shard, or one number if it is the same for all.
func nodesOfShards(homes []*home.Home) string {
	counts := make([]int, testnet.Newest(homes).BookShards())
	for _, h := range homes {
		counts[h.Genesis.Shard]++
	}
	if same := slices.Compact(slices.Clone(counts)); len(same) == 1 {
		return fmt.Sprint(same[0])
	}
	texts := make([]string, len(counts))
	for shard, count := range counts {
		texts[shard] = fmt.Sprint(count)
	}
	return strings.Join(texts, ", ") + " (shard by shard)"
}

func (o *testnetOptions) report(homes []*home.Home) (testnetReport, error) {
	dir, err := filepath.Abs(o.layout.Dir)
	if err != nil {
		return testnetReport{}, err
	}
	report := testnetReport{
		Dir: dir, Chain: homes[0].Genesis.Chain, Genesis: homes[0].Genesis.Hash().String(),
		Engine: homes[0].Config.Ordering.Engine, Fabric: homes[0].Config.Fabric.Kind,
		OperatorKey: filepath.Join(dir, testnet.OperatorKeyFile),
	}
	if genesis := testnet.Newest(homes); genesis.Sharded() {
		report.Book, report.Shards, report.Tree = genesis.Book().String(), genesis.BookShards(),
			genesis.ShardTree().Parents()
		root, err := genesis.ForShard(0)
		if err != nil {
			return testnetReport{}, err
		}
		report.Genesis = root.Hash().String()
	}
	for _, h := range homes {
		line, err := reportHome(h)
		if err != nil {
			return testnetReport{}, err
		}
		report.Nodes = append(report.Nodes, line)
	}
	return report, nil
}

func (o *testnetOptions) print(out io.Writer, report testnetReport) error {
	var text strings.Builder
	if report.Shards > 1 {
		fmt.Fprintf(&text, "%d nodes in %d shards of ledger %s (%s) in %s\n\n", len(report.Nodes),
			report.Shards, report.Chain, report.Engine, o.layout.Dir)
	} else {
		fmt.Fprintf(&text, "%d nodes of chain %s (%s) in %s\n\n", len(report.Nodes), report.Chain,
			report.Engine, o.layout.Dir)
	}
	for _, node := range report.Nodes {
		fmt.Fprintf(&text, "  %-8s%s API %s   fabric %s\n", node.Name, node.shardText(report.Tree),
			node.API, node.Fabric)
	}
	fmt.Fprintf(&text, "\nNext: ledgerd testnet --dir %s --run\n", o.layout.Dir)
	if report.Fabric != fabric.Memory {
		fmt.Fprintf(&text, "  or: ledgerd start --home %s   (and so on for each)\n",
			filepath.Join(o.layout.Dir, report.Nodes[0].Name))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// nodeProcess returns the command line of a node's process, without its home.
func nodeProcess() ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to run nodes as processes: %w", err)
	}
	return []string{program, "start", "--" + withInputFlag}, nil
}

// supervise runs the nodes until ctx ends.
func (o *testnetOptions) supervise(ctx context.Context, out, errs io.Writer, homes []*home.Home,
	report testnetReport, made bool) (err error) {
	kind := homes[0].Config.Fabric.Kind
	var runner *testnet.Runner
	if kind != fabric.Memory { // Then the nodes have no processes that could be stopped.
		runner, err = testnet.Take(o.layout.Dir, homes)
		if errors.Is(err, testnet.ErrRunning) {
			return &hintedError{err, "end that one first"}
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, runner.Close()) }()
	}
	if err := testnet.CheckPorts(homes); err != nil {
		advice := "stop what uses the port, or change it in the homes' config.toml"
		if made {
			advice = fmt.Sprintf("remove %s and choose another --base-port", o.layout.Dir)
		}
		return fmt.Errorf("%w: %s", err, advice)
	}
	events := out
	if o.json {
		events = errs
	}
	say := func(format string, arguments ...any) {
		// The nodes go on even if the line cannot be written.
		_, _ = fmt.Fprintf(events, time.Now().Format(time.TimeOnly)+"  "+format+"\n", arguments...)
	}
	if made {
		say("made %s in %s", o.howMany(len(homes), report), o.layout.Dir)
	} else if report.Shards > 1 {
		say("%s holds a ledger already: running its %s as they are", o.layout.Dir,
			o.howMany(len(homes), report))
	} else {
		say("%s holds a ledger already: running its %d nodes as they are", o.layout.Dir, len(homes))
	}
	if missing := testnet.Missing(homes); len(missing) > 0 {
		say("the homes of %s are not here: running the others", strings.Join(missing, ", "))
	}
	if kind == fabric.Memory {
		return o.embed(ctx, out, errs, say, homes, report)
	} else if err := o.checkFabric(kind); err != nil {
		return err
	}
	command, err := nodeProcess()
	if err != nil {
		return err
	}
	processes := testnet.Run(homes, testnet.ProcessOptions{Command: command,
		RemovedStatus: exitRemoved, Report: func(event testnet.Event) {
			name := filepath.Base(homes[event.Node].Dir)
			switch event.Kind {
			case testnet.EventStarted:
				say("%s  started, process %s", name, event.Detail)
			case testnet.EventReady:
				say("%s  answers at %s", name, event.Detail)
			case testnet.EventEnded:
				say("%s  ended: %s", name, event.Detail)
			case testnet.EventError:
				say("%s  %s", name, event.Detail)
			case testnet.EventRemoved:
				say("%s  is no member any more and is not started again: its home, %s, may be "+
					"removed",
					name, homes[event.Node].Dir)
			case testnet.EventStopped:
				say("%s  stopped; to start it: ledgerd testnet start %s --node %s", name,
					o.layout.Dir, name)
			}
		}})
	defer func() {
		say("stopping")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopPatience)
		defer cancel()
		processes.Stop(stopping)
		say("all nodes have ended")
	}()
	runner.Serve(ctx, processes)
	err = processes.Ready(ctx)
	if err == nil {
		err = awaitWrites(ctx, homes, processes, say)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	down := processes.Removed()
	for i, held := range processes.Held() {
		down[i] = down[i] || held
	}
	if err := o.ready(ctx, out, say, report, down); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-processes.Done():
		if err := processes.Err(); err != nil {
			return err
		}
		return errors.New("none of the nodes is a member of the ledger any more")
	}
}

// checkFabric refuses a fabric that does not work on this machine, if the nodes are to be run.
func (o *testnetOptions) checkFabric(kind fabric.Kind) error {
	if err := fabric.Check(kind); o.run && !errors.Is(err, fabric.ErrOneProcess) {
		return err
	}
	return nil
}

// embed runs the nodes in this process until ctx ends.
func (o *testnetOptions) embed(ctx context.Context, out, errs io.Writer,
	say func(format string, arguments ...any), homes []*home.Home,
	report testnetReport) (err error) {
	tuneMemory(0)
	logger, _ := newLogger(home.LogConfig{Level: "warn"}, errs)
	cluster, err := testnet.EmbedHomes(ctx, homes, nodeStarter(logger, store.Options{}))
	if err != nil {
		return err
	}
	defer func() {
		say("stopping")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopPatience)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopping))
		say("all nodes have ended")
	}()
	err = cluster.Ordering(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := o.ready(ctx, out, say, report, make([]bool, len(homes))); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case ended := <-cluster.Ended():
		return fmt.Errorf("%s ended by itself: %w", homes[ended].Name(),
			cluster.Nodes()[ended].Err())
	}
}

// ready prints the addresses of the nodes that take transactions. Nodes that are down were removed
// or stopped.
func (o *testnetOptions) ready(ctx context.Context, out io.Writer,
	say func(format string, arguments ...any), report testnetReport, down []bool) error {
	var running []homeReport
	for i, node := range report.Nodes {
		if !down[i] {
			running = append(running, node)
		}
	}
	report.Nodes = running
	report.Tree = presentTree(ctx, running, report.Tree)
	if o.json {
		return writeJSON(out, report)
	}
	which := "all"
	if len(running) < len(down) {
		which = "the other"
	}
	say("ready: %s %s run and take transactions\n", which, o.howMany(len(running), report))
	for _, node := range running {
		// The nodes go on even if the line cannot be written.
		_, _ = fmt.Fprintf(out, "  %-8s%s %s\n", node.Name, node.shardText(report.Tree), node.API)
	}
	if len(running) > 0 {
		_, _ = fmt.Fprintf(out, "\n  export LEDGERD_NODE=%s\n", running[0].API) // as above
	}
	if report.Shards > 1 {
		_, _ = fmt.Fprint(out, "  ledgerd shards\n") // as above
	}
	_, _ = fmt.Fprint(out, "\nCtrl-C stops them; the folder stays.\n\n") // as above
	return nil
}

// presentTree returns the tree of the shards as the first running node knows it: the operators may
// have changed it since the genesis. If that does not answer, it returns the tree of the genesis.
func presentTree(ctx context.Context, running []homeReport,
	genesis []ledger.ShardID) []ledger.ShardID {
	if len(genesis) < 2 || len(running) == 0 {
		return genesis
	}
	node, err := client.New([]string{running[0].API}, client.Options{Tries: 1})
	if err != nil {
		return genesis
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(ctx, treePatience)
	defer cancel()
	tree, err := node.Tree(ctx)
	if err != nil || len(tree.GetShards()) < len(genesis) {
		return genesis
	}
	parents := make([]ledger.ShardID, len(tree.GetShards()))
	for i, shard := range tree.GetShards() { // by number
		if parents[i] = ledger.ShardID(shard.GetParent()); shard.GetRoot() {
			parents[i] = ledger.ShardID(i)
		}
	}
	return parents
}

// howMany states the number of nodes and shards.
func (o *testnetOptions) howMany(nodes int, report testnetReport) string {
	if report.Shards > 1 {
		return fmt.Sprintf("%d nodes in %d shards", nodes, report.Shards)
	}
	return fmt.Sprintf("%d nodes", nodes)
}

const (
	// writesPause is the pause between two questions to a node whether it takes writes.
	writesPause = 100 * time.Millisecond
	// writesPatience is the time after which awaitWrites reports what the nodes wait for.
	writesPatience = 15 * time.Second
	// treePatience bounds the question for the present tree of the shards.
	treePatience = 5 * time.Second
)

// awaitWrites waits until every node that is a member either orders or follows, and at least one
// node of each shard orders. It waits for no nodes that an operator stopped meanwhile. If it takes
// long, it reports the reason.
func awaitWrites(ctx context.Context, homes []*home.Home, processes *testnet.Processes,
	say func(format string, arguments ...any)) error {
	ticker := time.NewTicker(writesPause)
	defer ticker.Stop()
	tell := time.Now().Add(writesPatience)
	for {
		waiting := waitsFor(ctx, homes, processes)
		if waiting == "" {
			return nil
		}
		if time.Now().After(tell) {
			say("not ready yet: %s", sanitize(waiting, 0))
			tell = time.Now().Add(2 * writesPatience)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-processes.Done():
			return processes.Err()
		case <-ticker.C:
		}
	}
}

// waitsFor returns the reason why the nodes do not take transactions yet, or "" if they do.
func waitsFor(ctx context.Context, homes []*home.Home,
	processes *testnet.Processes) (waiting string) {
	removed, held, urls := processes.Removed(), processes.Held(), processes.URLs()
	stopped := map[ledger.ShardID]bool{}
	ordering, members := map[ledger.ShardID]int{}, map[ledger.ShardID]int{}
	for i, h := range homes {
		shard := h.Genesis.Shard
		if removed[i] {
			continue
		}
		members[shard]++
		if held[i] {
			stopped[shard] = true
			continue
		}
		state := stateAt(ctx, urls[i])
		switch state.GetMode() {
		case ledgerdv1.NodeMode_NODE_MODE_ORDERING:
			ordering[shard]++
		case ledgerdv1.NodeMode_NODE_MODE_FOLLOWING:
		case ledgerdv1.NodeMode_NODE_MODE_UNSPECIFIED:
			waiting = fmt.Sprintf("%s does not answer", filepath.Base(h.Dir))
		default:
			waiting = fmt.Sprintf("%s says: %s", state.GetName(), state.GetReason())
		}
	}
	for shard := range ledger.ShardID(testnet.Newest(homes).BookShards()) {
		switch {
		case waiting != "" || ordering[shard] > 0 || stopped[shard]:
		case members[shard] == 0 && homes[0].Genesis.Sharded():
			waiting = fmt.Sprintf("there is no node of shard %d", shard)
		default:
			waiting = "no node orders"
		}
	}
	return waiting
}

// stateAt returns the state of the node at an address, or nil if none answers.
func stateAt(ctx context.Context, url string) *ledgerdv1.NodeState {
	if url == "" {
		return nil
	}
	node, err := client.New([]string{url}, client.Options{Tries: 1})
	if err != nil {
		return nil
	}
	defer node.Close()
	state, err := node.Node(ctx)
	if err != nil {
		return nil
	}
	return state
}
