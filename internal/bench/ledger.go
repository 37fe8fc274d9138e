package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// The acknowledgements that a run can wait for.
const (
	AckOrdered = "ordered"
	AckStored  = "stored"
	AckDurable = "durable"
	// AckDurableEverywhere is AckDurable in all shards that a transaction concerns.
	AckDurableEverywhere = "durable-everywhere"
)

// ackLevels maps acknowledgements to the API's levels.
var ackLevels = map[string]ledgerdv1.Level{
	AckOrdered: ledgerdv1.Level_LEVEL_ORDERED, AckStored: ledgerdv1.Level_LEVEL_STORED,
	AckDurable:           ledgerdv1.Level_LEVEL_DURABLE,
	AckDurableEverywhere: ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE,
}

// ClientsMax limits the clients of a run.
const ClientsMax = 4096

// CallersMax limits the callers of all clients together.
const CallersMax = 1 << 16

// AccountsMax limits the accounts of a run.
const AccountsMax = 1 << 26

// The distributions of accounts.
const (
	// DistributionUniform chooses all accounts of a client equally often.
	DistributionUniform = "uniform"
	// DistributionZipf chooses account k of a client, from 0 on, in proportion to (1+k)^-1.1.
	DistributionZipf = "zipf"
	// DistributionHot transfers from the first account of a client to its second, always. The
	// other accounts are open and idle.
	DistributionHot = "hot"
)

// distributions are all of them.
var distributions = []string{DistributionUniform, DistributionZipf, DistributionHot}

// startOrdering and, for each account that they have to load, startAccount limit the time that the
// nodes of a run may take until they order.
const (
	startOrdering = 60 * time.Second
	startAccount  = 100 * time.Microsecond
)

// settleTime limits the time, at the end, until every node has the blocks that any node has.
const settleTime = 20 * time.Second

// LedgerParameters are the parameters of a run of the whole ledger.
type LedgerParameters struct {
	// Nodes is the number of nodes. Clients is the number of clients, which are spread over the
	// nodes. Each client has an organisation of its own and submits one bundle after the other.
	Nodes   int `json:"nodes"`
	Clients int `json:"clients"`
	// Bundle is the number of transactions in a bundle. They share one signature.
	Bundle int `json:"bundle"`
	// Callers is the number of concurrent callers of each client, which submit one transaction
	// after the other through one client.Sender. 0 means that the client submits bundles itself.
	Callers int `json:"callers"`
	// Accounts is the number of accounts of all clients together, between which transfers go. 0
	// means that each client has two and transfers from one to the other.
	Accounts int `json:"accounts"`
	// Distribution is how transfers choose accounts: DistributionUniform, DistributionZipf or
	// DistributionHot.
	Distribution string `json:"distribution"`
	// BookTransactions and BookAccounts are what the nodes' book has before the load, without the
	// transactions that register organisations and open accounts. The load's accounts are among
	// those of the book. BookAccounts 0 means as many as the load has. If both are 0, the accounts
	// are opened by the nodes, and nothing else is in the book.
	BookTransactions int `json:"book_transactions"`
	BookAccounts     int `json:"book_accounts"`
	// MemoryLimit is the memory_limit_bytes of each node's configuration; 0: the default.
	MemoryLimit int64 `json:"memory_limit_bytes"`
	// Ack is the acknowledgement that a client waits for: AckOrdered, AckStored, AckDurable or
	// AckDurableEverywhere.
	Ack string `json:"ack"`
	// Fabric is fabric.Memory, with all nodes in this process, or another kind, with a process for
	// each node.
	Fabric fabric.Kind `json:"fabric"`
	// Engine is the name of an engine that a node may run.
	Engine string `json:"engine"`
	// For is the length of the measured window. WarmUp is that of the load before it; 0 means a
	// quarter of For, at most a second.
	For    time.Duration `json:"-"`
	WarmUp time.Duration `json:"-"`
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p LedgerParameters) Validate() error {
	_, unknown := engine.All().With(engine.Engine.RunsInNode).Of(p.Engine)
	switch _, known := ackLevels[p.Ack]; {
	case p.Nodes < 1 || p.Nodes > testnet.NodesMax:
		return fmt.Errorf("%w: %d nodes, want 1 to %d", ErrParameters, p.Nodes, testnet.NodesMax)
	case p.Clients < 1 || p.Clients > ClientsMax:
		return fmt.Errorf("%w: %d clients, want 1 to %d", ErrParameters, p.Clients, ClientsMax)
	case p.Bundle < 1 || p.Bundle > ledger.MaxBundleTransactions:
		return fmt.Errorf("%w: bundles of %d transactions, want 1 to %d", ErrParameters, p.Bundle,
			ledger.MaxBundleTransactions)
	case p.Callers < 0 || p.Callers*p.Clients > CallersMax:
		return fmt.Errorf("%w: %d callers for each of %d clients, want 0 to %d in all",
			ErrParameters, p.Callers, p.Clients, CallersMax)
	case p.Callers > 0 && p.Bundle > 1:
		return fmt.Errorf("%w: callers submit one transaction a call, not bundles of %d",
			ErrParameters, p.Bundle)
	case p.Accounts != 0 && (p.Accounts < 2*p.Clients || p.Accounts > AccountsMax):
		return fmt.Errorf("%w: %d accounts, want 0, or two for each of %d clients up to %d in all",
			ErrParameters, p.Accounts, p.Clients, AccountsMax)
	case !slices.Contains(distributions, p.Distribution):
		return fmt.Errorf("%w: distribution %q, want one of %q", ErrParameters, p.Distribution,
			distributions)
	case !known:
		return fmt.Errorf("%w: acknowledgement %q, want %q, %q, %q or %q", ErrParameters, p.Ack,
			AckOrdered, AckStored, AckDurable, AckDurableEverywhere)
	case p.Callers > 0 && p.Ack == AckDurableEverywhere:
		return fmt.Errorf("%w: callers share a sender, which cannot wait for %q", ErrParameters,
			p.Ack)
	case unknown != nil:
		return fmt.Errorf("%w: %w", ErrParameters, unknown)
	case p.For <= 0:
		return fmt.Errorf("%w: a run for %v, want a time above 0", ErrParameters, p.For)
	case p.WarmUp < 0:
		return fmt.Errorf("%w: a warm-up of %v, want none or a time above 0", ErrParameters,
			p.WarmUp)
	case p.Fabric == fabric.Memory && (p.hasBook() || p.MemoryLimit != 0):
		return fmt.Errorf("%w: a book and a limit of the memory are for nodes in processes of "+
			"their own, and those of fabric %q are in this one", ErrParameters, p.Fabric)
	case p.MemoryLimit < 0:
		return fmt.Errorf("%w: a limit of the memory of %d bytes", ErrParameters, p.MemoryLimit)
	}
	if err := p.checkBook(); err != nil {
		return err
	}
	return checkFabric(p.Fabric)
}

// LedgerResult is the result of a run. The package comment explains the figures.
type LedgerResult struct {
	LedgerParameters
	Seconds           float64 `json:"seconds"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	GbitPerSecond     float64 `json:"gbit_per_second"`
	LatencyP50        float64 `json:"latency_p50_us"`
	LatencyP99        float64 `json:"latency_p99_us"`
	LatencyP90        float64 `json:"latency_p90_us"`
	LatencyP999       float64 `json:"latency_p999_us"`
	LatencyMax        float64 `json:"latency_max_us"`
	// LatencyHistogram is the whole histogram, in nanoseconds: HdrHistogram's compressed encoding
	// V2 in base64, which its tools read.
	LatencyHistogram string  `json:"latency_histogram"`
	CPUSeconds       float64 `json:"cpu_seconds"`
	// CPUPerRequest is CPUSeconds divided by the requests, in microseconds.
	CPUPerRequest float64 `json:"cpu_us_per_request"`
	// ClientCPUPerRequest is the processor time of this process. It is 0 if the nodes are in it.
	ClientCPUPerRequest float64 `json:"client_cpu_us_per_request"`
	FlushesPerRequest   float64 `json:"flushes_per_request"`
	FlushesPerBlock     float64 `json:"flushes_per_block"`
	// BytesOnDisk is for each transaction and node. It is below 0 if a store is smaller after the
	// load.
	BytesOnDisk      float64 `json:"bytes_on_disk_per_request"`
	WireBytesPerByte float64 `json:"wire_bytes_per_byte"`
	// Ready is the time until a node orders again, in milliseconds: from the start of its process,
	// after the load, while the others go on. It is 0 without a book.
	Ready float64 `json:"ready_ms"`
	// PeakMemory is the most memory that a node had, of the node that had most, with the parts of
	// files that are mapped into it. It is 0 if the system does not tell.
	PeakMemory int64 `json:"peak_memory_bytes"`
	// Acknowledged is the number of transactions acknowledged since the start. All are in the
	// chain.
	Acknowledged uint64 `json:"acknowledged"`
	// ComparedHeight is the block up to which the chains of all nodes were compared.
	ComparedHeight ledger.Height `json:"compared_height"`
}

// LedgerEnvironment is the environment of a run.
type LedgerEnvironment struct {
	// Dir gets the nodes' homes. It must be empty. Its disk's speed is part of the measurement.
	Dir string
	// Command runs the node in a home as a process; see testnet.ProcessOptions.
	Command []string
	// Start starts a node in this process.
	Start testnet.Starter
	// Store are the options of the store in which this process makes a book.
	Store store.Options
	// Progress is called every few seconds while a book is made; nil: not at all.
	Progress func(text string)
}

// RunLedger measures the whole ledger: signed transactions, ordered, executed and stored. Nothing
// is left running when it returns; the caller removes the folder. The error wraps ErrParameters,
// ErrServer, ErrDiverged or ctx's cause.
func RunLedger(ctx context.Context, p LedgerParameters,
	environment LedgerEnvironment) (result LedgerResult, err error) {
	if err := p.Validate(); err != nil {
		return LedgerResult{}, err
	}
	p = p.withBook()
	load, err := newLoad(p)
	if err != nil {
		return LedgerResult{}, err
	}
	nodes, err := newNodes(p, environment)
	if err != nil {
		return LedgerResult{}, err
	}
	var prepared, total uint64
	if p.hasBook() {
		prepared, err = load.makeBook(ctx, nodes.homes, p, environment)
	} else {
		err = nodes.during(ctx, func(ctx context.Context, _ context.CancelCauseFunc) error {
			prepared, err = load.prepare(ctx, nodes.urls)
			return err
		})
	}
	if err != nil {
		return LedgerResult{}, err
	}
	// The nodes have stopped in good order before and after the load, so both sizes are of settled
	// stores.
	before, err := nodes.bytesOnDisk()
	if err != nil {
		return LedgerResult{}, err
	}
	if err := nodes.during(ctx, func(ctx context.Context, fail context.CancelCauseFunc) error {
		result, total, err = measureLoad(ctx, fail, p, nodes, load, prepared)
		return err
	}); err != nil {
		return LedgerResult{}, err
	}
	after, err := nodes.bytesOnDisk()
	if err != nil {
		return LedgerResult{}, err
	}
	result.BytesOnDisk = float64(after-before) / float64(total-prepared) / float64(p.Nodes)
	return result, nil
}

// measureLoad measures nodes that run and have a number of transactions in their chain. It returns
// the number after the load, too.
func measureLoad(ctx context.Context, fail context.CancelCauseFunc, p LedgerParameters,
	nodes *nodes, load *load, prepared uint64) (result LedgerResult, total uint64, err error) {
	defer load.close()
	if err := load.open(ctx, nodes.urls); err != nil {
		return LedgerResult{}, 0, err
	}
	load.start(ctx, fail)
	defer load.end()
	if err := pause(ctx, cmp.Or(p.WarmUp, warmUp(p.For))); err != nil {
		return LedgerResult{}, 0, err
	}
	before, err := nodes.figures(ctx)
	if err != nil {
		return LedgerResult{}, 0, err
	}
	load.begin()
	if err := pause(ctx, p.For); err != nil {
		return LedgerResult{}, 0, err
	}
	window, _, latency := load.window()
	after, err := nodes.figures(ctx)
	if err != nil {
		return LedgerResult{}, 0, err
	}
	acknowledged := load.end()
	if ctx.Err() != nil {
		return LedgerResult{}, 0, context.Cause(ctx)
	}
	if window.Requests == 0 || after.height == before.height {
		return LedgerResult{}, 0,
			fmt.Errorf("%w: nothing was acknowledged in %.3f s; measure for longer", ErrServer,
				window.Seconds)
	}
	memory := nodes.peakMemory()
	ready := time.Duration(0)
	if p.hasBook() {
		if ready, err = nodes.restartOne(ctx); err != nil {
			return LedgerResult{}, 0, err
		}
	}
	height, total, err := compareChains(ctx, nodes.urls, prepared+acknowledged)
	if err != nil {
		return LedgerResult{}, 0, err
	}
	requests := float64(window.Requests)
	at := func(percentile float64) float64 {
		return float64(latency.ValueAtPercentile(percentile)) / 1e3
	}
	histogram, err := latency.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return LedgerResult{}, 0, fmt.Errorf("bench: %w", err)
	}
	flushes := after.flushes - before.flushes
	result = LedgerResult{
		LedgerParameters:  p,
		Seconds:           window.Seconds,
		RequestsPerSecond: requests / window.Seconds,
		GbitPerSecond:     float64(window.Bytes) * 8 / 1e9 / window.Seconds,
		LatencyP50:        at(50),
		LatencyP90:        at(90),
		LatencyP99:        at(99),
		LatencyP999:       at(99.9),
		LatencyMax:        float64(latency.Max()) / 1e3,
		LatencyHistogram:  string(histogram),
		CPUSeconds:        after.cpuSeconds - before.cpuSeconds,
		CPUPerRequest:     (after.cpuSeconds - before.cpuSeconds) * 1e6 / requests,
		FlushesPerRequest: flushes / requests,
		FlushesPerBlock:   flushes / (after.height - before.height),
		WireBytesPerByte:  (after.sentBytes - before.sentBytes) / float64(window.Bytes),
		Ready:             float64(ready.Microseconds()) / 1e3,
		PeakMemory:        memory,
		Acknowledged:      acknowledged,
		ComparedHeight:    height,
	}
	if !nodes.embedded {
		result.ClientCPUPerRequest = (after.clientSeconds - before.clientSeconds) * 1e6 / requests
	}
	return result, total, nil
}

// compareChains checks that all nodes have the same blocks up to the lowest of their heads, and
// that the chain has at least as many transactions as were acknowledged. It returns that height and
// the number of transactions up to it.
func compareChains(ctx context.Context, urls []string, acknowledged uint64) (common ledger.Height,
	transactions uint64, err error) {
	nodes, err := clientsOf(urls)
	if err != nil {
		return 0, 0, err
	}
	defer closeClients(nodes)
	settling, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	common, err = settle(settling, nodes)
	if err != nil {
		return 0, 0, err
	}
	want := make([]ledger.Hash, 0, common)
	for i, node := range nodes {
		next := ledger.Height(1)
		for header, err := range node.Blocks(ctx, 1, true) {
			if err != nil {
				return 0, 0, err
			}
			var hash ledger.Hash
			copy(hash[:], header.GetHash())
			switch {
			case ledger.Height(header.GetHeight()) != next:
				return 0, 0, fmt.Errorf("%w: %s shows block %d in place of %d", ErrDiverged,
					urls[i], header.GetHeight(), next)
			case i == 0:
				want = append(want, hash)
				transactions += uint64(header.GetTransactionCount())
			case want[next-1] != hash:
				return 0, 0, fmt.Errorf("%w: block %d is %v at %s and %v at %s", ErrDiverged, next,
					hash, urls[i], want[next-1], urls[0])
			}
			if next++; next > common {
				break
			}
		}
		if next <= common {
			return 0, 0, fmt.Errorf("%w: %s shows no block %d", ErrDiverged, urls[i], next)
		}
	}
	if transactions < acknowledged {
		return 0, 0, fmt.Errorf("%w: %d transactions were acknowledged, and %d are in the chain",
			ErrDiverged, acknowledged, transactions)
	}
	return common, transactions, nil
}

// settle waits until all nodes have the same head, or ctx ends. It returns the lowest height.
func settle(ctx context.Context, nodes []*client.Client) (ledger.Height, error) {
	for {
		var least, most uint64
		for i, node := range nodes {
			state, err := node.Node(ctx)
			if err != nil {
				return 0, err
			}
			height := state.GetOrderedHeight()
			if i == 0 || height < least {
				least = height
			}
			most = max(most, height)
		}
		if least == most {
			return ledger.Height(least), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%w: after %v the nodes' heads are still %d to %d", ErrDiverged,
				settleTime, least, most)
		}
	}
}
