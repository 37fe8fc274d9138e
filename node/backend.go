package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/crossing"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/order"
)

// admitDuringRestartMax bounds how long a node admits writes while its group restarts.
const admitDuringRestartMax = 10 * time.Second

// callsPerSecond converts the configured number to the API's limit. 0 means the API's default.
func callsPerSecond(configured float64) rate.Limit { return rate.Limit(configured) }

// Store implements api.Backend.
func (n *Node) Store() *store.Store { return n.pipeline.Store() }

// beside is the node as its crossing to other shards sees it.
type beside struct{ *Node }

var _ crossing.Node = beside{}

// Report implements crossing.Node.
func (b beside) Report() crossing.Report {
	heights, _ := b.pipeline.Heights()
	tip := b.pipeline.Tip()
	heights.Ordered = tip.Height
	own := crossing.Report{Mode: b.life.nodeMode(), APIAddress: b.URL(), Heights: heights,
		Head: tip.Hash, Transactions: b.pipeline.Total()}
	if b.stopping.Load() {
		own.Mode = report.ModeStopping
	}
	return own
}

// Wake implements crossing.Node.
func (b beside) Wake() { b.pool.Wake() }

// AdmitArrival implements crossing.Node.
func (n *Node) AdmitArrival(arrival *ledger.Bundle) *report.Refusal {
	return n.admit(n.Store(), arrival)
}

// FetchAbsent implements api.Backend.
func (n *Node) FetchAbsent(ctx context.Context, height ledger.Height) error {
	return n.backfill.borrow(ctx, height)
}

// Heights implements api.Backend.
func (n *Node) Heights() (report.Heights, <-chan struct{}) { return n.pipeline.Heights() }

// Status implements api.Backend.
func (n *Node) Status(id ledger.Hash) (report.Status, error) { return n.pipeline.Status(id) }

// Wait implements api.Backend.
func (n *Node) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	return n.pipeline.Wait(ctx, ids, level)
}

// Admit implements api.Backend.
func (n *Node) Admit(ctx context.Context, bundles []*ledger.Bundle,
	inOrder bool) []*report.Refusal {
	refusals := make([]*report.Refusal, len(bundles))
	refuseFrom := func(first int, refusal *report.Refusal) {
		for i := first; i < len(refusals); i++ {
			refusals[i] = refusal
		}
	}
	if refusal := n.refuses(); refusal != nil {
		refuseFrom(0, refusal)
		return refusals
	}
	opened := n.Store()
	failures := ledger.VerifyBundles(bundles, n.home.Genesis, opened.Book(), opened)
	moving := n.crossing.AwaitArrival(ctx, bundles, failures)
	var foreseen []*report.Refusal
	if !inOrder && !api.Queues(ctx) {
		foreseen = n.foresee(ctx, opened, bundles, failures)
	}
	for i, bundle := range bundles {
		if failures[i] == nil {
			if refusals[i] = cmp.Or(moving(i), n.life.refusesChange(bundle),
				n.crossing.Misrouted(bundle)); refusals[i] == nil && foreseen != nil {
				refusals[i] = foreseen[i]
			}
			if refusals[i] == nil {
				refusals[i] = n.admit(opened, bundle)
			}
		} else {
			refusals[i] = report.RefusalOf(failures[i])
		}
		if refusals[i] != nil && inOrder {
			refuseFrom(i+1, &report.Refusal{Code: report.RefusedPredecessor,
				Reason: "a bundle before it was refused"})
			break
		}
	}
	return refusals
}

// refuses returns why this node takes no writes now, or nil if it does.
func (n *Node) refuses() *report.Refusal {
	mode, why, since := n.life.modeStatus()
	refusal := func(format string, arguments ...any) *report.Refusal {
		return &report.Refusal{Code: report.RefusedNotWriting,
			Reason:  "this node takes no writes now: " + fmt.Sprintf(format, arguments...),
			Writers: n.life.writers()}
	}
	switch {
	case n.stopping.Load():
		return refusal("it is stopping")
	case n.disk.low():
		return refusal("its disk is nearly full (%d MiB free); free some space", n.disk.bytes()>>20)
	case n.pipeline.Stalled() != "":
		return refusal("%s", n.pipeline.Stalled())
	case mode == report.ModeOrdering || mode == report.ModeStarting &&
		since < admitDuringRestartMax && n.life.view().Between:
		return nil
	}
	return refusal("%s", why)
}

// admit takes a bundle into the pool, or returns why it does not.
func (n *Node) admit(opened *store.Store, bundle *ledger.Bundle) *report.Refusal {
	for i := range bundle.Distinct() {
		transaction := bundle.Transaction(i)
		last := transaction.LastValid
		if last == 0 {
			continue
		}
		// Its client signs it again once it hears that it has expired, so that must not be taken
		// back. A block that is only ordered may be lost with the power of all nodes.
		heights, _ := n.Heights()
		head := min(opened.Head().Height, heights.Durable)
		if last > head || !n.crossing.Expires(transaction) {
			continue
		}
		if known, err := opened.Known(bundle.ID(i)); err == nil && !known &&
			!n.pool.Pending(bundle.ID(i)) {
			return &report.Refusal{Code: report.RefusedExpired,
				Reason: fmt.Sprintf("transaction %d was valid up to block %d, and block %d is "+
					"final: sign it again with a later one", i, last, head)}
		}
	}
	var lookup error
	err := n.pool.Add(bundle, bundle.Encode(), func(bundle *ledger.Bundle) (known []bool, _ error) {
		known, lookup = opened.KnownIn(bundle)
		return known, lookup
	})
	switch {
	case lookup != nil:
		return &report.Refusal{Code: report.RefusedNotWriting,
			Reason: "this node cannot read its store: " + lookup.Error(), Writers: n.life.writers()}
	case errors.Is(err, mempool.ErrFull):
		return &report.Refusal{Code: report.RefusedOverloaded, Reason: err.Error()}
	case err != nil:
		return &report.Refusal{Code: report.RefusedMalformed, Reason: err.Error()}
	}
	return nil
}

// refusesChange returns why a change of the membership cannot be ordered now, or nil.
//
// With a perfect detector a change can never be ordered. Such engines leave no votes, so a new
// generation could not find out what the former members may have A-delivered. A change is also
// refused if too few of the working servers would be members with disks that count: the shard would
// stand still (shard.Member.TooFew). The admission of a disk changes neither the members nor their
// number, so it is always allowed.
func (l *life) refusesChange(bundle *ledger.Bundle) *report.Refusal {
	change := bundle.Transaction(0).Change
	if change == nil || change.Kind == ledger.ChangeAdmit {
		return nil
	}
	if !l.eventual() {
		return &report.Refusal{Code: report.RefusedMalformed,
			Reason: `neither members nor engine can change while the nodes treat their failure ` +
				`detector as perfect: stop all nodes, set [ordering] detector = "eventual" in the ` +
				`config.toml of each, start them, and try again`}
	}
	if change.Kind == ledger.ChangeEngine {
		return l.refusesEngine(change.Engine)
	}
	membership := l.node.Store().Membership()
	working, size := l.driver.Status().Engine.Members, len(membership.Members)
	switch change.Kind {
	case ledger.ChangeJoin:
		if _, present := membership.ByKey(change.Member.Key); !present {
			size++
		}
	case ledger.ChangeLeave:
		if _, present := membership.Find(change.Index); present {
			size--
		}
		working = slices.DeleteFunc(slices.Clone(working), func(server order.ServerID) bool {
			return server == order.ServerID(change.Index)
		})
	}
	if refusal := refusesSize(l.node.engineChoice().Name, size); refusal != nil {
		return refusal
	}
	if err := l.tooFew(size, working); err != nil {
		return &report.Refusal{Code: report.RefusedMalformed, Reason: err.Error()}
	}
	if change.Kind == ledger.ChangeLeave {
		return l.refusesLast(&membership, change.Index)
	}
	return nil
}

// refusesSize returns why an engine takes no group of this size, or nil.
func refusesSize(name string, members int) *report.Refusal {
	made, err := engine.Of(name)
	if err == nil {
		err = made.Takes(members)
	}
	if err == nil {
		return nil
	}
	return &report.Refusal{Code: report.RefusedMalformed,
		Reason: fmt.Sprintf("%v: change the engine first (ledgerd cluster engine %s)", err,
			engine.Default)}
}

// tooFew calls shard.Member.TooFew. It returns an error if there is no machine yet.
func (l *life) tooFew(members int, working []order.ServerID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine == nil {
		return errors.New("this node takes part in nothing yet: try again")
	}
	return l.machine.TooFew(members, working)
}

// refusesLast returns why a running member cannot leave: it holds blocks that no other running
// member holds, as far as this node knows. If the member does not run, its blocks are unknown and
// may be lost. The operator then decides.
func (l *life) refusesLast(membership *ledger.Membership,
	leaving ledger.MemberIndex) *report.Refusal {
	member, present := membership.Find(leaving)
	own, others, any := l.holding(membership, leaving)
	if !present || own == nil || !any || *own >= others {
		return nil
	}
	return &report.Refusal{Code: report.RefusedMalformed,
		Reason: fmt.Sprintf("%s is the last running member that has the blocks from %d to %d; the "+
			"others began with snapshots: wait until one of them has fetched these blocks "+
			"(ledgerd status shows their progress), or start a member that has them",
			member.Name, *own+1, others)}
}

// holding returns the height up to which a member lacks blocks, or nil if it does not run. It also
// returns the height up to which all other running members lack blocks. any is false if none of
// them runs.
func (l *life) holding(membership *ledger.Membership, of ledger.MemberIndex) (own *ledger.Height,
	others ledger.Height, any bool) {
	self := l.node.Store().Absent()
	lasts := l.hearsayLasts()
	for _, member := range membership.Members {
		server, absent := order.ServerID(member.Index), self
		if server != l.node.home.Self {
			h := l.heard(server)
			if !h.linked || time.Since(h.at) > lasts {
				continue
			}
			absent = ledger.Height(h.Absent)
		}
		switch {
		case member.Index == of:
			own = &absent
		case !any || absent < others:
			others, any = absent, true
		}
	}
	return own, others, any
}

// State returns a snapshot of this node.
func (n *Node) State() report.NodeState { return n.NodeState() }

// NodeState implements api.Backend.
func (n *Node) NodeState() report.NodeState {
	mode, why, _ := n.life.modeStatus()
	heights, _ := n.pipeline.Heights()
	transactions, bytes := n.pool.Size()
	figures := n.pipeline.Figures()
	state := report.NodeState{
		Index: uint32(n.home.Self), Name: n.home.Name(), PeerID: string(n.host.ID()),
		APIAddress: n.URL(), FabricAddress: n.home.FabricAddress(),
		Mode: mode, Reason: why, Engine: n.life.engineState(), Heights: heights,
		HeadHash: n.pipeline.Tip().Hash, Started: n.started, Version: n.options.Version,
		PoolTransactions: uint64(transactions), PoolBytes: uint64(bytes),
		TransactionsPerSecond: figures.TransactionsPerSecond, OrderLatency: figures.OrderLatency,
		DurableLatency: figures.DurableLatency, DiskFreeBytes: n.disk.bytes(),
		Records: n.pipeline.Records(),
		DiskID:  n.identity.ID, Waiting: n.crossing.Waiting(),
	}
	if state.Mode == report.ModeOrdering && !n.life.acts(&state.Engine) {
		state.Mode, state.Reason = report.ModeStarting, "the group begins"
	}
	state.Backfill = n.backfill.state()
	if n.life.view().Learner {
		state.DiskLearner = n.identity.Learner // until the chain has admitted the disk
	}
	if n.stopping.Load() {
		state.Mode = report.ModeStopping
	}
	if refusal := n.refuses(); refusal != nil {
		state.ReadsOnly = true
		if state.Reason == "" {
			state.Reason = refusal.Reason
		}
	}
	n.showClock(&state)
	return state
}

// acts reports whether the shown engine acts in the machine's group. The machine takes part a
// moment before its engine does.
func (l *life) acts(shown *report.EngineState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acting && len(shown.Members) > 0
}

func (l *life) engineState() report.EngineState {
	state := report.EngineState{Engine: l.node.engineChoice().Name}
	status, view := l.driver.Status(), l.view()
	state.Generation = uint64(view.Decided)
	if status.Group.Run == 0 {
		return state
	}
	engine := &status.Engine
	state.Generation = uint64(generation.Run(status.Group.Run).Generation())
	state.Epoch, state.Round = uint64(engine.Epoch), uint64(engine.Round)
	state.Reliable, state.Halted = engine.Reliable, status.Halted
	if view.Group == nil {
		return state
	}
	state.Engine = status.Group.Engine // the chain may name another one already
	state.Members, state.Suspected = indices(engine.Members), indices(engine.Suspected)
	state.Awaited = indices(engine.Awaited)
	return state
}

func indices(servers []order.ServerID) []uint32 {
	list := make([]uint32, len(servers))
	for i, server := range servers {
		list[i] = uint32(server)
	}
	return list
}

// ClusterState implements api.Backend.
func (n *Node) ClusterState() report.ClusterState {
	node := n.NodeState()
	config, choice := n.home.Config.Ordering, n.engineChoice()
	state := report.ClusterState{
		Chain: n.home.Genesis.Chain, GenesisHash: n.Store().GenesisHash(), Node: node,
		Engines:           engine.All().With(engine.Engine.RunsInNode).Names(),
		TransactionsTotal: n.pipeline.Total(), AccountsTotal: uint64(n.Store().AccountCount()),
		Ordering: report.OrderingSettings{
			Engine: choice.Name, EngineHeight: choice.Height,
			TargetNines:     uint32(config.TargetNines),
			ServerMTTFHours: uint32(config.ServerMTTFHour),
			BatchBytesMax:   uint32(config.BatchBytesMax), Prompt: config.Prompt,
		},
	}
	membership := n.Store().Membership()
	if g := n.life.view().Group; g != nil {
		if overlay := n.life.overlay(); overlay != nil && overlay.Order() == len(g.Members) {
			describe(&state, overlay, g.Members)
		}
	}
	for _, member := range membership.Members {
		state.Members = append(state.Members, n.memberState(&node, &member))
	}
	return state
}

// memberState returns what this node knows of a member. The member may be this node.
func (n *Node) memberState(node *report.NodeState, member *ledger.GroupMember) report.MemberState {
	server := order.ServerID(member.Index)
	shown := report.MemberState{
		Index: uint32(server), Name: member.Name, PeerID: string(n.peers.id(server)),
		FabricAddress: member.Address,
		Member:        slices.Contains(node.Engine.Members, uint32(server)),
		Suspected:     slices.Contains(node.Engine.Suspected, uint32(server)),
	}
	h := n.life.heard(server)
	if server == n.home.Self {
		shown.Self, shown.Connected, shown.APIAddress, shown.LastHeard, shown.Mode = true, true,
			n.URL(), time.Now(), node.Mode
		shown.FabricAddress = n.home.FabricAddress()
		shown.OrderedHeight, shown.StoredHeight = node.Heights.Ordered, node.Heights.Stored
		shown.AbsentHeight = n.Store().Absent()
	} else if !h.at.IsZero() {
		shown.Connected, shown.APIAddress, shown.LastHeard, shown.Mode = h.linked, h.APIAddress,
			h.at, report.NodeMode(h.Mode)
		shown.OrderedHeight, shown.StoredHeight = ledger.Height(h.Heights.Ordered),
			ledger.Height(h.Heights.Stored)
		shown.AbsentHeight = ledger.Height(h.Absent)
	}
	shown.HeldUp, shown.Forged = n.life.heldUp(server), n.forgeries.of(server)
	if node.Engine.Members == nil {
		// Outside the group, the node relies on the members' announcements.
		shown.Member = server != n.home.Self && h.Group.Run != 0 && !h.Stalled && h.linked
	}
	return shown
}

// describe adds the reliable digraph, named by the members' indexes.
func describe(state *report.ClusterState, g *digraph.Digraph, members []order.ServerID) {
	state.Degree, state.ToleratedFailures = uint32(g.Degree()), uint32(digraph.Tolerated(g))
	switch g.Kind() {
	case digraph.KindGS:
		state.Digraph = fmt.Sprintf("GS(%d,%d)", g.Order(), g.Degree())
	default:
		state.Digraph = fmt.Sprintf("%s(%d)", g.Kind(), g.Order())
	}
	for _, edge := range g.Edges() {
		state.Edges = append(state.Edges, report.DigraphEdge{From: uint32(members[edge[0]]),
			To: uint32(members[edge[1]])})
	}
}
