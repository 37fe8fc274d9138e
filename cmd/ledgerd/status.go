package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// memberTime limits the wait for one member's own answer.
const memberTime = 2 * time.Second

// clusterReport is what ledgerd status --json prints.
type clusterReport struct {
	Chain             string `json:"chain"`
	GenesisHash       string `json:"genesis_hash"`
	Shard             uint32 `json:"shard"`
	ShardCount        uint32 `json:"shard_count,omitempty"` // in a ledger of several shards
	Digraph           string `json:"digraph"`
	Degree            uint32 `json:"degree"`
	ToleratedFailures uint32 `json:"tolerated_failures"`
	// Engine is the one by which the members order from the next eon on, and EngineHeight that of
	// the block that named it, or 0 if it is that of the nodes' settings.
	Engine            string       `json:"engine"`
	EngineHeight      uint64       `json:"engine_height"`
	TransactionsTotal uint64       `json:"transactions_total"`
	AccountsTotal     uint64       `json:"accounts_total"`
	AskedNode         string       `json:"asked_node"` // the address of the node that reported this
	Nodes             []nodeReport `json:"nodes"`
	// TakesWrites reports whether the asked node takes transactions; if not, WritesReason says why.
	TakesWrites  bool   `json:"takes_writes"`
	WritesReason string `json:"writes_reason,omitempty"`
	// OrderingNodes counts the members that order now, as the asked node sees it.
	OrderingNodes uint32 `json:"ordering_nodes"`
	// SurvivesNow is the number of nodes that may still fail while the others go on.
	// ToleratedFailures is that number if all members order.
	SurvivesNow uint32 `json:"survives_now"`
	// alarms says what has waited for other shards for too long, according to the asked node.
	alarms []string
}

// nodeReport is a node in a clusterReport. Answered reports whether the node answered itself.
// Otherwise the report holds what the asked node knows about it.
type nodeReport struct {
	Index                 uint32        `json:"index"`
	Name                  string        `json:"name"`
	Answered              bool          `json:"answered"`
	Error                 string        `json:"error,omitempty"`
	Mode                  string        `json:"mode"`
	Reason                string        `json:"reason,omitempty"`
	APIAddress            string        `json:"api_address"`
	FabricAddress         string        `json:"fabric_address"`
	PeerID                string        `json:"peer_id"`
	Member                bool          `json:"member"`
	Connected             bool          `json:"connected"` // to the asked node
	Suspected             bool          `json:"suspected"` // by the asked node
	OrderedHeight         uint64        `json:"ordered_height"`
	StoredHeight          uint64        `json:"stored_height"`
	DurableHeight         uint64        `json:"durable_height"`
	HeadHash              string        `json:"head_hash,omitempty"`
	Engine                *engineReport `json:"engine,omitempty"`
	PoolTransactions      uint64        `json:"pool_transactions"`
	TransactionsPerSecond float64       `json:"transactions_per_second"`
	OrderLatencyUS        uint32        `json:"order_latency_us"`
	DurableLatencyUS      uint32        `json:"durable_latency_us"`
	ReadsOnly             bool          `json:"reads_only"`
	DiskFreeBytes         uint64        `json:"disk_free_bytes"`
	DiskID                string        `json:"disk_id,omitempty"`
	// DiskLearner is the reason why the disk is not the one made with the home.
	DiskLearner string `json:"disk_learner,omitempty"`
	// ClockOffsetMS is how far the clock is ahead of the members' median. It is absent unless the
	// node receives the clocks of a majority.
	ClockOffsetMS *int64 `json:"clock_offset_ms,omitempty"`
	ClockWarning  string `json:"clock_warning,omitempty"`
	// AbsentHeight is the height up to which the node lacks blocks, by its last message to the
	// asked node.
	AbsentHeight uint64 `json:"absent_height"`
	// HeldUpMS is the time in the last three seconds during which the rounds waited for this node
	// alone, as the asked node saw it.
	HeldUpMS uint32 `json:"held_up_ms"`
	// ForgedBundles is how many bundles with wrong signatures the node proposed, as the asked node
	// has seen since it started.
	ForgedBundles uint64 `json:"forged_bundles,omitempty"`
	// CertifiedHeight is the node's last certified block, Evidence how many pieces of evidence
	// against members it keeps.
	CertifiedHeight uint64 `json:"certified_height,omitempty"`
	Evidence        uint32 `json:"evidence,omitempty"`
	// With log_rounds, RecordedHeight is the last block whose round was on the node's disk before
	// the block, and Records how often it synced rounds before they were ordered.
	RecordedHeight uint64 `json:"recorded_height,omitempty"`
	Records        uint64 `json:"records,omitempty"`
	// Backfill is the progress of a node that began with a snapshot.
	Backfill *backfillReport `json:"backfill,omitempty"`
	// In a ledger of several shards, what entries of the node's chain wait for.
	*waitsReport
	StartedMS uint64 `json:"started_ms"`
	Version   string `json:"version,omitempty"`
}

// backfillReport is the progress of a node with the blocks before its snapshot.
type backfillReport struct {
	Snapshot uint64 `json:"snapshot"` // height of the block of its snapshot
	From     uint64 `json:"from"`     // first block that is missing
	To       uint64 `json:"to"`       // last block that is missing; both are 0 if none is
	Indexed  uint64 `json:"indexed"`  // height up to which histories are complete
	Source   string `json:"source,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// engineReport is a node's ordering engine.
type engineReport struct {
	Engine     string   `json:"engine"`
	Generation uint64   `json:"generation"`
	Epoch      uint64   `json:"epoch"`
	Round      uint64   `json:"round"`
	Mode       string   `json:"mode"` // reliable or unreliable
	Members    []uint32 `json:"members"`
	Suspected  []uint32 `json:"suspected"`
	Awaited    []uint32 `json:"awaited"`
	Halted     string   `json:"halted,omitempty"`
}

// newStatusCommand returns the `ledgerd status` command.
func newStatusCommand() *cobra.Command {
	var options watchOptions
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the condition of the ledger and its nodes",
		Long: `Show the condition of the ledger and its nodes.

The command asks one node for the others, and each of them for its own state. The
modes are

  starting    it looks for a majority, or fetches what it lacks: see the reason
  ordering    it takes part in ordering, and accepts transactions
  following   it is not in the group that orders now; it follows and serves reads
  halted      it orders no more: see the reason
  stopping    it was told to stop
  unreachable it does not answer; its heights are the last ones that others know

ORDERED, STORED and DURABLE are heights: the last block whose place is decided,
that is on this node's disk, and that is on the disks of a majority. ROUND is the
ordering engine's epoch and round, r for a reliable and u for an unreliable one.
AWAITED lists the nodes that the round still waits for: all of them if there is
nothing to do. A node whose clock is more than 10 s from the clocks of a majority
of the members says so, and dates no blocks.

The first lines show how many failures the ledger survives now. That is the number
that its overlay tolerates, or a smaller one while members do not order: a majority
of all members has to remain.

The exit status is 0 if the asked node takes transactions. It is 1 if the asked
node answers but takes no transactions, for example because it has no majority, and
if no node answers. With --watch it is 0.

A node that began with a snapshot shows its progress with the blocks before it,
which it fetches from the others and executes again.

In a ledger of several shards this is the asked node's: for all of them see
ledgerd shards. If transactions of this shard, or entries of its streams, have
waited for another shard for longer than alarm_after of the node's config.toml, an
alarm says for which one and how long.`,
		Example: `  ledgerd status
  ledgerd status --watch
  ledgerd status --node http://127.0.0.1:8082 --json | jq -r '.nodes[] | "\(.name) \(.mode)"'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, func(ctx context.Context, nodes *client.Client) (report,
				error) {
				return askCluster(ctx, nodes)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	return command
}

// askCluster asks a node for the state of its shard, and every member for its own state.
func askCluster(ctx context.Context, nodes *client.Client) (*clusterReport, error) {
	cluster, err := nodes.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	report := &clusterReport{
		Chain: cluster.GetChain(), GenesisHash: hex.EncodeToString(cluster.GetGenesisHash()),
		Shard: cluster.GetShard(), ShardCount: cluster.GetShardCount(),
		Digraph: cluster.GetDigraph(),
		Degree:  cluster.GetDegree(), ToleratedFailures: cluster.GetToleratedFailures(),
		Engine:            cluster.GetOrdering().GetEngine(),
		EngineHeight:      cluster.GetOrdering().GetEngineHeight(),
		TransactionsTotal: cluster.GetTransactionsTotal(),
		AccountsTotal:     cluster.GetAccountsTotal(), AskedNode: nodes.Current(),
		Nodes: []nodeReport{},
	}
	members := cluster.GetMembers()
	states := make([]*ledgerdv1.NodeState, len(members))
	failures := make([]error, len(members))
	own := cluster.GetNode().GetIndex()
	var asking sync.WaitGroup
	for i, member := range members {
		if member.GetIndex() == own {
			states[i] = cluster.GetNode()
			continue
		}
		asking.Go(func() { states[i], failures[i] = askMember(ctx, nodes, memberAddress(member)) })
	}
	asking.Wait()
	for i, member := range members {
		// A node of another ledger may now use the address.
		if states[i] != nil && states[i].GetIndex() != member.GetIndex() {
			states[i], failures[i] = nil, fmt.Errorf("another node answers at %s",
				member.GetApiAddress())
		}
		node := reportNode(member, states[i], failures[i])
		if states[i] != nil && report.ShardCount > 1 {
			waits := reportWaits(states[i], cluster.GetTimeMs())
			node.waitsReport = &waits
			if member.GetIndex() == own {
				report.alarms = waits.alarms(report.Shard)
				if lacks := waits.Lacks; lacks != nil {
					report.alarms = append(report.alarms, lostLine(lacks, lacks.Shard,
						report.Shard))
				}
			}
		}
		report.Nodes = append(report.Nodes, node)
	}
	report.judge(cluster.GetNode())
	return report, nil
}

// judge fills in whether the asked node takes transactions, and how many failures the ledger
// survives now.
func (r *clusterReport) judge(asked *ledgerdv1.NodeState) {
	mode, engine := asked.GetMode(), asked.GetEngine()
	// A node that starts takes transactions between two groups.
	r.TakesWrites = !asked.GetReadsOnly() && (mode == ledgerdv1.NodeMode_NODE_MODE_ORDERING ||
		mode == ledgerdv1.NodeMode_NODE_MODE_STARTING)
	if !r.TakesWrites {
		r.WritesReason = cmp.Or(asked.GetReason(), engine.GetHalted(), "it is "+modeName(mode))
		return
	}
	for _, member := range engine.GetMembers() {
		if !slices.Contains(engine.GetSuspected(), member) {
			r.OrderingNodes++
		}
	}
	if majority := uint32(len(r.Nodes)/2 + 1); r.OrderingNodes > majority {
		r.SurvivesNow = min(r.ToleratedFailures, r.OrderingNodes-majority)
	}
}

// failure returns an error if the asked node takes no transactions.
func (r *clusterReport) failure() error {
	if r.TakesWrites {
		return nil
	}
	return &reportedError{fmt.Errorf("%s takes no transactions now: %s", r.AskedNode,
		r.WritesReason)}
}

// survives states how many failures the ledger survives now, and why not more.
func (r *clusterReport) survives() string {
	switch {
	case !r.TakesWrites:
		return "survives no failure now: the asked node takes no transactions: " +
			sanitize(r.WritesReason, 0)
	case r.SurvivesNow < r.ToleratedFailures:
		return fmt.Sprintf("survives %s now, of %d: %d of %d members order",
			plural(int(r.SurvivesNow), "failure"), r.ToleratedFailures, r.OrderingNodes,
			len(r.Nodes))
	}
	return "survives " + plural(int(r.SurvivesNow), "failure")
}

// modeName returns a node's mode as one word.
func modeName(mode ledgerdv1.NodeMode) string {
	return strings.ToLower(strings.TrimPrefix(mode.String(), "NODE_MODE_"))
}

// askMember asks one node for its state.
func askMember(ctx context.Context, beside *client.Client,
	address string) (*ledgerdv1.NodeState, error) {
	if address == "" {
		return nil, errors.New("its address is not known")
	}
	node, err := beside.Beside([]string{address}, client.Options{CallTime: memberTime})
	if err != nil {
		return nil, err
	}
	defer node.Close()
	return node.Node(ctx)
}

// reportNode combines a node's own answer, if there is one, with what the asked node knows about
// it.
func reportNode(member *ledgerdv1.MemberState, state *ledgerdv1.NodeState,
	failure error) nodeReport {
	report := nodeReport{
		Index: member.GetIndex(), Name: member.GetName(), Mode: "unreachable",
		APIAddress: member.GetApiAddress(), FabricAddress: member.GetFabricAddress(),
		PeerID: member.GetPeerId(), Member: member.GetMember(), Connected: member.GetConnected(),
		Suspected:     member.GetSuspected(),
		OrderedHeight: member.GetOrderedHeight(), StoredHeight: member.GetStoredHeight(),
		AbsentHeight: member.GetAbsentHeight(),
		HeldUpMS:     member.GetHeldUpMs(), ForgedBundles: member.GetForgedBundles(),
	}
	if state == nil {
		if failure != nil {
			report.Error = sentence(failure)
		}
		return report
	}
	engine := state.GetEngine()
	report.Answered = true
	report.Mode = modeName(state.GetMode())
	report.Reason = state.GetReason()
	report.OrderedHeight, report.StoredHeight, report.DurableHeight = state.GetOrderedHeight(),
		state.GetStoredHeight(), state.GetDurableHeight()
	report.CertifiedHeight, report.Evidence = state.GetCertifiedHeight(), state.GetEvidence()
	report.RecordedHeight, report.Records = state.GetRecordedHeight(), state.GetRecords()
	report.HeadHash = hex.EncodeToString(state.GetHeadHash())
	report.PoolTransactions, report.TransactionsPerSecond = state.GetPoolTransactions(),
		state.GetTransactionsPerSecond()
	report.OrderLatencyUS, report.DurableLatencyUS = state.GetOrderLatencyUs(),
		state.GetDurableLatencyUs()
	if b := state.GetBackfill(); b != nil {
		report.Backfill = &backfillReport{
			Snapshot: b.GetSnapshotHeight(), From: min(1, b.GetAbsentHeight()),
			To:      b.GetAbsentHeight(),
			Indexed: b.GetIndexedHeight(), Source: b.GetSource(), Reason: b.GetReason(),
		}
	}
	report.AbsentHeight = state.GetBackfill().GetAbsentHeight()
	report.ReadsOnly, report.DiskFreeBytes = state.GetReadsOnly(), state.GetDiskFreeBytes()
	report.ClockOffsetMS, report.ClockWarning = state.ClockOffsetMs, state.GetClockWarning()
	report.DiskID, report.DiskLearner = hex.EncodeToString(state.GetDiskId()),
		state.GetDiskLearner()
	report.StartedMS, report.Version = state.GetStartedMs(), state.GetVersion()
	if address := state.GetApiAddress(); report.APIAddress == "" {
		report.APIAddress = address
	}
	report.Engine = &engineReport{
		Engine: engine.GetEngine(), Generation: engine.GetGeneration(), Epoch: engine.GetEpoch(),
		Round: engine.GetRound(), Mode: "unreliable",
		Members: list(engine.GetMembers()), Suspected: list(engine.GetSuspected()),
		Awaited: list(engine.GetAwaited()), Halted: engine.GetHalted(),
	}
	if engine.GetReliable() {
		report.Engine.Mode = "reliable"
	}
	return report
}

// list returns numbers, or an empty list for nil, which JSON prints as [].
func list(numbers []uint32) []uint32 {
	if numbers == nil {
		return []uint32{}
	}
	return numbers
}

// colourOfMode returns the colour of a node's mode.
func colourOfMode(mode string) string {
	switch mode {
	case "ordering":
		return colourGood
	case "starting", "following", "stopping":
		return colourWait
	case "halted", "unreachable":
		return colourBad
	}
	return ""
}

func (r *clusterReport) write(out io.Writer) error {
	overview := table{}
	of := ""
	if r.ShardCount > 1 {
		of = fmt.Sprintf(" of %d", r.ShardCount)
	}
	overview.add("ledger", fmt.Sprintf("%s, shard %d%s (genesis %s)", sanitize(r.Chain, 0),
		r.Shard, of, r.GenesisHash[:min(16, len(r.GenesisHash))]))
	overview.add("engine", engineWords(r.Engine, r.EngineHeight))
	overview.add("overlay", cmp.Or(r.Digraph, "none")+", which "+r.survives())
	overview.add("holds", fmt.Sprintf("%s in %s", plural(int(r.TransactionsTotal), "transaction"),
		plural(int(r.AccountsTotal), "account")))
	overview.add("asked", r.AskedNode)
	if err := overview.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	rows := table{
		header: []string{"NODE", "MODE", "ORDERED", "STORED", "DURABLE", "TX/S", "POOL", "ROUND",
			"AWAITED", "SUSPECTED", "ADDRESS"},
		right: []bool{false, false, true, true, true, true, true},
		colour: func(column int, cell string) string {
			if column == 1 {
				return colourOfMode(cell)
			}
			return ""
		},
	}
	remarks := slices.Clone(r.alarms)
	if len(remarks) > 0 {
		remarks = append(remarks, alarmAdvice+"; `ledgerd shards` shows them")
	}
	for _, node := range r.Nodes {
		remarks = append(remarks, node.row(&rows, r.Nodes)...)
	}
	if err := rows.write(out); err != nil || len(remarks) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(remarks, "\n"))
	return err
}

// row adds the node to a table, and returns remarks about it.
func (n *nodeReport) row(rows *table, nodes []nodeReport) (remarks []string) {
	durable, rate, pool, round, awaited, suspected := "-", "-", "-", "-", "-", "-"
	if n.Answered {
		durable, rate, pool = fmt.Sprint(n.DurableHeight),
			fmt.Sprintf("%.0f", n.TransactionsPerSecond), fmt.Sprint(n.PoolTransactions)
		round = fmt.Sprintf("%d/%d%s", n.Engine.Epoch, n.Engine.Round, n.Engine.Mode[:1])
		awaited, suspected = names(n.Engine.Awaited, nodes), names(n.Engine.Suspected, nodes)
		if len(n.Engine.Awaited) > 1 && len(n.Engine.Awaited) == len(n.Engine.Members) {
			awaited = "all"
		}
	}
	rows.add(sanitize(n.Name, 0), n.Mode, fmt.Sprint(n.OrderedHeight), fmt.Sprint(n.StoredHeight),
		durable, rate, pool, round, awaited, suspected, n.APIAddress)
	for i, text := range []string{n.Reason, n.Error, n.ClockWarning} {
		if text != "" && (i == 0 || text != n.Reason) {
			remarks = append(remarks, fmt.Sprintf("%s: %s", sanitize(n.Name, 0),
				sanitize(text, 0)))
		}
	}
	if n.Backfill != nil {
		remarks = append(remarks, n.Name+" "+n.Backfill.text())
	}
	if n.HeldUpMS > 0 {
		remarks = append(remarks, fmt.Sprintf("%s: the rounds waited for it alone for %d of the "+
			"last 3,000 ms",
			sanitize(n.Name, 0), n.HeldUpMS))
	}
	if n.ForgedBundles > 0 {
		remarks = append(remarks, fmt.Sprintf("%s proposed %d forged bundles, which no node "+
			"executes: its program or its machine is compromised; remove it with `ledgerd cluster "+
			"leave`", sanitize(n.Name, 0), n.ForgedBundles))
	}
	if n.Evidence > 0 {
		remarks = append(remarks, fmt.Sprintf("%s keeps evidence against members, who signed what "+
			"cannot be true: see `ledgerd evidence`", sanitize(n.Name, 0)))
	}
	if n.DiskLearner != "" {
		remarks = append(remarks, fmt.Sprintf("%s: its disk may have forgotten what the one "+
			"before held: %s",
			sanitize(n.Name, 0), sanitize(n.DiskLearner, 0)))
	}
	if n.ReadsOnly && n.Reason == "" {
		remarks = append(remarks, n.Name+" takes no transactions for now")
	}
	if n.Engine != nil && n.Engine.Halted != "" && n.Engine.Halted != n.Reason {
		remarks = append(remarks, fmt.Sprintf("%s orders no more: %s", n.Name,
			sanitize(n.Engine.Halted, 0)))
	}
	return remarks
}

// text describes the progress in words.
func (b *backfillReport) text() string {
	text := fmt.Sprintf("began with block %d: it has executed the blocks before it again up to %d",
		b.Snapshot, b.Indexed)
	if b.To > 0 {
		text = fmt.Sprintf("began with block %d: it fetches the blocks from %d to %d", b.Snapshot,
			b.From, b.To)
		if b.Source != "" {
			text += " from " + sanitize(b.Source, 0)
		}
	}
	if b.Reason != "" {
		text += "; nothing comes now: " + sanitize(b.Reason, 0)
	}
	return text
}

// names returns the names of nodes, given their indices.
func names(indices []uint32, nodes []nodeReport) string {
	if len(indices) == 0 {
		return "-"
	}
	var found []string
	for _, index := range indices {
		name := fmt.Sprint(index)
		if at := slices.IndexFunc(nodes, func(node nodeReport) bool {
			return node.Index == index
		}); at >= 0 {
			name = sanitize(nodes[at].Name, 0)
		}
		found = append(found, name)
	}
	return strings.Join(found, ",")
}
