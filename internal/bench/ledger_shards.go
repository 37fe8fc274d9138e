package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// ShardsParameters are the parameters of a run that compares one shard with several.
type ShardsParameters struct {
	// LedgerParameters hold for all loads. Nodes is the number of nodes in each shard, and Clients
	// and Accounts are those of all shards together. There is no book before the load.
	LedgerParameters
	// Tree has the parent of each shard. The root is its own parent.
	Tree []ledger.ShardID `json:"tree"`
	// Pattern is how transactions choose the other shard: PatternUniform or PatternNeighbourly.
	Pattern string `json:"pattern"`
	// Crossing are the percentages of transactions that concern two shards. Each is measured.
	Crossing []int `json:"-"`
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p ShardsParameters) Validate() error {
	shards := len(p.Tree)
	switch {
	case shards < 2 || shards > testnet.NodesMax:
		return fmt.Errorf("%w: %d shards, want 2 to %d", ErrParameters, shards, testnet.NodesMax)
	case p.Nodes > 0 && shards*p.Nodes > testnet.NodesMax:
		return fmt.Errorf("%w: %d shards of %d nodes are %d nodes, want at most %d in all",
			ErrParameters, shards, p.Nodes, shards*p.Nodes, testnet.NodesMax)
	case p.Clients > 0 && p.Clients < shards:
		return fmt.Errorf("%w: %d clients for %d shards, want at least one for each",
			ErrParameters, p.Clients, shards)
	case p.hasBook():
		return fmt.Errorf("%w: a book before the load is for one shard", ErrParameters)
	case p.Fabric == fabric.Memory:
		return fmt.Errorf("%w: the processor time of each node is measured, and those of fabric "+
			"%q are in one process", ErrParameters, p.Fabric)
	case !slices.Contains(patterns, p.Pattern):
		return fmt.Errorf("%w: pattern %q, want one of %q", ErrParameters, p.Pattern, patterns)
	case len(p.Crossing) == 0:
		return fmt.Errorf("%w: no percentage of transactions that cross", ErrParameters)
	}
	for i, percent := range p.Crossing {
		switch {
		case percent < 0 || percent > percents:
			return fmt.Errorf("%w: %d %% of the transactions cross, want 0 to %d", ErrParameters,
				percent, percents)
		case slices.Contains(p.Crossing[:i], percent):
			return fmt.Errorf("%w: %d %% of the transactions cross, twice", ErrParameters, percent)
		}
	}
	return p.LedgerParameters.Validate()
}

// variant is a way to measure all loads.
type variant struct {
	name    string
	several bool // in several shards
	plain   bool // the clients pack no bundles
	figures func(*ShardsLoad) **ShardsFigures
}

// variants returns the ways to measure the loads, those with the same nodes one after the other.
func (p ShardsParameters) variants() []variant {
	packed := variant{"one shard, packed", false, false,
		func(l *ShardsLoad) **ShardsFigures { return &l.Packed }}
	several := variant{fmt.Sprintf("%d shards", len(p.Tree)), true, false,
		func(l *ShardsLoad) **ShardsFigures { return &l.Several }}
	if p.Callers > 0 {
		return []variant{packed, several}
	}
	return []variant{{"one shard", false, true,
		func(l *ShardsLoad) **ShardsFigures { return &l.One }}, packed, several}
}

// RunShards measures the same loads with one shard and with several: first with all percentages in
// one shard, then in several. Nothing is left running when it returns; the caller removes the
// folder. The error wraps ErrParameters, ErrServer, ErrDiverged or ctx's cause.
func RunShards(ctx context.Context, p ShardsParameters, environment LedgerEnvironment) (
	result ShardsResult, err error) {
	if err := p.Validate(); err != nil {
		return ShardsResult{}, err
	}
	result = ShardsResult{ShardsParameters: p, Shards: len(p.Tree),
		Loads: make([]ShardsLoad, len(p.Crossing))}
	for i, percent := range p.Crossing {
		result.Loads[i].Crossing = percent
	}
	for _, several := range []bool{false, true} {
		idle := &result.IdleOne
		if several {
			idle = &result.IdleSeveral
		}
		if *idle, err = p.measureBook(ctx, several, environment, result.Loads); err != nil {
			return ShardsResult{}, err
		}
	}
	result.compare()
	return result, nil
}

// measureBook measures all loads with one shard, or with several. It returns what an idle node
// takes, in percent of a processor.
func (p ShardsParameters) measureBook(ctx context.Context, several bool,
	environment LedgerEnvironment, loads []ShardsLoad) (idle float64, err error) {
	layout := layoutOf(p.LedgerParameters, filepath.Join(environment.Dir, "one"))
	if several {
		layout.Dir = filepath.Join(environment.Dir, "several")
		layout.Shards, layout.Tree = len(p.Tree), p.Tree
	}
	defer func() { err = errors.Join(err, os.RemoveAll(layout.Dir)) }()
	clients, err := newLoad(p.LedgerParameters)
	if err != nil {
		return 0, err
	}
	clients.traffic = newTraffic(p.Tree, p.Pattern, clients.clients)
	if several {
		clients.shards = len(p.Tree)
	}
	nodes, err := processNodes(layout, startPatience(p.LedgerParameters), environment.Command)
	if err != nil {
		return 0, err
	}
	err = nodes.during(ctx, func(ctx context.Context, fail context.CancelCauseFunc) error {
		prepared, err := clients.prepare(ctx, nodes.urls)
		if err != nil {
			return err
		}
		if idle, err = measureIdle(ctx, nodes, min(p.For, idleTime)); err != nil {
			return err
		}
		var acknowledged uint64
		for _, variant := range p.variants() {
			if variant.several != several {
				continue
			}
			clients.plain = variant.plain
			for i := range loads {
				if environment.Progress != nil {
					environment.Progress(fmt.Sprintf("measuring %s, of which %d %% cross",
						variant.name, loads[i].Crossing))
				}
				clients.traffic.percent = loads[i].Crossing
				figures, err := p.measureWindow(ctx, fail, nodes, clients, &acknowledged)
				if err != nil {
					return err
				}
				*variant.figures(&loads[i]) = figures
			}
		}
		return p.check(ctx, nodes.urls, max(layout.Shards, 1), prepared+acknowledged)
	})
	return idle, err
}

// idleTime is how long nodes without load are measured, at most: long beside the kernel's clock, in
// which processor time is counted.
const idleTime = 3 * time.Second

// measureIdle returns what a node without load takes, in percent of a processor.
func measureIdle(ctx context.Context, nodes *nodes, during time.Duration) (float64, error) {
	before, err := nodes.figures(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := pause(ctx, during); err != nil {
		return 0, err
	}
	seconds := time.Since(begun).Seconds()
	after, err := nodes.figures(ctx)
	if err != nil {
		return 0, err
	}
	return idlePercent(before.nodeSeconds, after.nodeSeconds, seconds), nil
}

// measureWindow measures one load. It sets acknowledged to the transactions of all loads so far.
func (p ShardsParameters) measureWindow(ctx context.Context, fail context.CancelCauseFunc,
	nodes *nodes, clients *load, acknowledged *uint64) (*ShardsFigures, error) {
	defer clients.close()
	if err := clients.open(ctx, nodes.urls); err != nil {
		return nil, err
	}
	clients.start(ctx, fail)
	defer clients.end()
	if err := pause(ctx, cmp.Or(p.WarmUp, warmUp(p.For))); err != nil {
		return nil, err
	}
	before, err := nodes.figures(ctx)
	if err != nil {
		return nil, err
	}
	clients.begin()
	if err := pause(ctx, p.For); err != nil {
		return nil, err
	}
	window, crossed, latency := clients.window()
	after, err := nodes.figures(ctx)
	if err != nil {
		return nil, err
	}
	*acknowledged = clients.end()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if window.Requests == 0 {
		return nil, fmt.Errorf("%w: nothing was acknowledged in %.3f s; measure for longer",
			ErrServer, window.Seconds)
	}
	at := func(percentile float64) float64 {
		return float64(latency.ValueAtPercentile(percentile)) / 1e3
	}
	figures := &ShardsFigures{Seconds: window.Seconds, LatencyP50: at(50), LatencyP90: at(90),
		LatencyP99: at(99), LatencyMax: float64(latency.Max()) / 1e3}
	seconds := make([]float64, len(after.nodeSeconds))
	for i := range seconds {
		seconds[i] = after.nodeSeconds[i] - before.nodeSeconds[i]
	}
	figures.divide(window.Requests, crossed, seconds, after.clientSeconds-before.clientSeconds)
	return figures, nil
}

// check compares the chains of each shard's nodes, checks that the shards have at least as many
// transactions as were acknowledged, and that the balances of the whole book add up to zero.
func (p ShardsParameters) check(ctx context.Context, urls []string, shards int,
	acknowledged uint64) error {
	if err := checkBalances(ctx, urls[0]); err != nil {
		return err
	}
	var total uint64
	each := len(urls) / shards
	for members := range slices.Chunk(urls, each) {
		_, transactions, err := compareChains(ctx, members, 0)
		if err != nil {
			return err
		}
		total += transactions
	}
	if total < acknowledged {
		return fmt.Errorf("%w: %d transactions were acknowledged, and %d are in the chains",
			ErrDiverged, acknowledged, total)
	}
	return nil
}

// checkBalances waits until the balances of all accounts of a book add up to zero: until what is on
// its way between shards has arrived.
func checkBalances(ctx context.Context, url string) error {
	node, err := client.New([]string{url}, client.Options{})
	if err != nil {
		return err
	}
	defer node.Close()
	settling, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		var sum ledger.Amount
		for account, err := range node.Accounts(ctx, "") {
			if err != nil {
				return err
			}
			for _, balance := range account.GetBalances() {
				amount, err := ledger.ParseAmount(balance.GetAmount())
				if err == nil {
					sum, err = sum.Add(amount)
				}
				if err != nil {
					return err
				}
			}
		}
		if sum.Sign() == 0 {
			return nil
		}
		if err := pause(settling, settleStep); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w: after %v the balances of all accounts add up to %v", ErrDiverged,
				settleTime, sum)
		}
	}
}

// settleStep is the time between two looks at all balances.
const settleStep = 500 * time.Millisecond
