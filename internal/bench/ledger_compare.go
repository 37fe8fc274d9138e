package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// The loads of a comparison. Those over many accounts and with more nodes have their names, too,
// with an ending: "callers_large_zipf", "packed_5_nodes".
const (
	LoadCallers = "callers"     // many callers, one transaction a call
	LoadPacked  = "packed"      // bundles of many transactions
	LoadAlone   = "alone"       // one caller
	LoadBook    = "packed_book" // LoadPacked over a book that is there before
)

// bytesPerAccount is the memory of an account at a node, rounded up.
const bytesPerAccount = 2 << 10

// LedgerComparisonParameters are the parameters of a comparison of loads.
type LedgerComparisonParameters struct {
	// LedgerParameters hold for all loads, except the clients, callers and transactions a bundle.
	// If there is a book, LoadPacked runs again over it, as LoadBook. No other load has it.
	LedgerParameters
	// CallersClients clients with Callers callers each make LoadCallers.
	CallersClients, Callers int
	// PackedClients clients with bundles of Bundle transactions make LoadPacked.
	PackedClients, Bundle int
	// LargeAccounts is the number of accounts over which all three loads run again, first with
	// DistributionUniform and then with DistributionZipf. 0 means that they do not.
	LargeAccounts int
	// MoreNodes are numbers of nodes with which LoadPacked runs again.
	MoreNodes []int
	// Memory is the memory of the machine in bytes. The loads over LargeAccounts are left out if
	// they need more. 0 means that it is unknown.
	Memory int64
}

// namedLoad is a load of a comparison.
type namedLoad struct {
	name string
	LedgerParameters
	large bool
}

// loads returns the loads in their order.
func (p LedgerComparisonParameters) loads() []namedLoad {
	plain := p.LedgerParameters
	plain.BookTransactions, plain.BookAccounts = 0, 0
	callers, packed, alone := plain, plain, plain
	callers.Clients, callers.Callers, callers.Bundle = p.CallersClients, p.Callers, 1
	packed.Clients, packed.Callers, packed.Bundle = p.PackedClients, 0, p.Bundle
	alone.Clients, alone.Callers, alone.Bundle = 1, 1, 1
	base := []namedLoad{{LoadCallers, callers, false}, {LoadPacked, packed, false},
		{LoadAlone, alone, false}}
	loads := slices.Clone(base)
	if p.LargeAccounts != 0 {
		for _, distribution := range []string{DistributionUniform, DistributionZipf} {
			for _, load := range base {
				load.name += "_large_" + distribution
				load.Accounts, load.Distribution, load.large = p.LargeAccounts, distribution, true
				loads = append(loads, load)
			}
		}
	}
	for _, nodes := range p.MoreNodes {
		more := packed
		more.Nodes = nodes
		loads = append(loads, namedLoad{fmt.Sprintf("%s_%d_nodes", LoadPacked, nodes), more, false})
	}
	if p.hasBook() {
		over := packed
		over.BookTransactions, over.BookAccounts = p.BookTransactions, p.BookAccounts
		loads = append(loads, namedLoad{LoadBook, over, false})
	}
	return loads
}

// tooLarge returns why a load does not fit into the machine's memory, or "".
func (p LedgerComparisonParameters) tooLarge(load namedLoad) string {
	needed := int64(load.Nodes) * int64(load.Accounts) * bytesPerAccount
	if !load.large || p.Memory == 0 || needed <= p.Memory {
		return ""
	}
	return fmt.Sprintf("%d nodes with %d accounts need %d MiB of memory, and the machine has %d",
		load.Nodes, load.Accounts, needed>>20, p.Memory>>20)
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p LedgerComparisonParameters) Validate() error {
	if p.Callers < 1 {
		return fmt.Errorf("%w: %d callers, want at least 1", ErrParameters, p.Callers)
	}
	for _, load := range p.loads() {
		if err := load.Validate(); err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
	}
	return nil
}

// LedgerComparison is the result of a comparison.
type LedgerComparison struct {
	Machine MachineLimits `json:"machine"`
	Loads   []LedgerLoad  `json:"loads"`
	LeftOut []LoadLeftOut `json:"left_out"`
}

// LedgerLoad is the result of one load.
type LedgerLoad struct {
	Load string `json:"load"`
	LedgerResult
}

// LoadLeftOut is a load that was not measured.
type LoadLeftOut struct {
	Load   string `json:"load"`
	Reason string `json:"reason"`
}

// MachineLimits are what the machine can do, measured in the same run.
type MachineLimits struct {
	// Flush is the time of an fdatasync of a file after a write of 4 KiB to it, in microseconds.
	// Flushes is how many of them one file gets in one second, with the writes.
	FlushP50 float64 `json:"fdatasync_us_p50"`
	FlushP99 float64 `json:"fdatasync_us_p99"`
	Flushes  float64 `json:"fdatasyncs_per_second"`
	// Verifications is the number of ed25519 signatures that one processor verifies in one second,
	// each alone, and in batches of 64.
	Verifications        float64 `json:"verifications_per_second"`
	BatchedVerifications float64 `json:"batched_verifications_per_second"`
	// RoundTrip is for 64 bytes there and back over TCP on the loopback interface, in microseconds.
	// Loopback is the rate of one connection with writes of 64 KiB.
	RoundTripP50 float64 `json:"round_trip_us_p50"`
	RoundTripP99 float64 `json:"round_trip_us_p99"`
	Loopback     float64 `json:"loopback_gbit_per_second"`
}

// CompareLedger measures the machine's limits, and then the whole ledger under one load after the
// other, each with new nodes. environment.Dir gets a folder for each, which is removed after its
// load. It passes each load's name to progress before the load. The error is as for RunLedger.
func CompareLedger(ctx context.Context, p LedgerComparisonParameters,
	environment LedgerEnvironment, progress func(load string)) (result LedgerComparison,
	err error) {
	if err := p.Validate(); err != nil {
		return LedgerComparison{}, err
	}
	result.LeftOut = []LoadLeftOut{}
	if result.Machine, err = measureMachine(ctx, environment.Dir, warmUp(p.For)); err != nil {
		return LedgerComparison{}, err
	}
	for _, load := range p.loads() {
		if reason := p.tooLarge(load); reason != "" {
			result.LeftOut = append(result.LeftOut, LoadLeftOut{Load: load.name, Reason: reason})
			continue
		}
		progress(load.name)
		one := environment
		one.Dir = filepath.Join(environment.Dir, load.name)
		if err := os.Mkdir(one.Dir, 0o700); err != nil {
			return LedgerComparison{}, fmt.Errorf("bench: %w", err)
		}
		measured, err := RunLedger(ctx, load.LedgerParameters, one)
		if err = errors.Join(err, os.RemoveAll(one.Dir)); err != nil {
			return LedgerComparison{}, fmt.Errorf("%s: %w", load.name, err)
		}
		result.Loads = append(result.Loads, LedgerLoad{Load: load.name, LedgerResult: measured})
	}
	return result, nil
}

// measureMachine measures each limit for about the given time.
func measureMachine(ctx context.Context, dir string, each time.Duration) (limits MachineLimits,
	err error) {
	flushes, err := flushTimes(ctx, dir, each)
	if err != nil {
		return MachineLimits{}, err
	}
	trips, err := roundTrips(ctx, each)
	if err != nil {
		return MachineLimits{}, err
	}
	bytes, err := stream(ctx, loopbackWrite, each)
	if err != nil {
		return MachineLimits{}, err
	}
	limits = MachineLimits{
		FlushP50:     float64(flushes.Quantile(0.50)) / 1e3,
		FlushP99:     float64(flushes.Quantile(0.99)) / 1e3,
		Flushes:      float64(flushes.total()) / each.Seconds(),
		RoundTripP50: float64(trips.Quantile(0.50)) / 1e3,
		RoundTripP99: float64(trips.Quantile(0.99)) / 1e3,
		Loopback:     bytes * 8 / 1e9,
	}
	if limits.Verifications, err = verifications(ctx, 1, each); err != nil {
		return MachineLimits{}, err
	}
	limits.BatchedVerifications, err = verifications(ctx, verificationBatch, each)
	return limits, err
}

// loopbackWrite is the size of a write over loopback.
const loopbackWrite = 64 << 10

// flushTimes repeatedly writes to a file in a folder and makes the file durable.
func flushTimes(ctx context.Context, dir string, measured time.Duration) (times Histogram,
	err error) {
	file, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return Histogram{}, fmt.Errorf("bench: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	const fileBytes = 4 << 20
	page := touched(4 << 10)
	for at := int64(0); at < fileBytes; at += int64(len(page)) {
		if _, err := file.WriteAt(page, at); err != nil {
			return Histogram{}, fmt.Errorf("bench: %w", err)
		}
	}
	if err := file.Sync(); err != nil {
		return Histogram{}, fmt.Errorf("bench: %w", err)
	}
	at := int64(0)
	for begun := time.Now(); time.Since(begun) < measured && ctx.Err() == nil; {
		if _, err := file.WriteAt(page, at); err != nil {
			return Histogram{}, fmt.Errorf("bench: %w", err)
		}
		at = (at + int64(len(page))) % fileBytes
		asked := time.Now()
		if err := flush(file); err != nil {
			return Histogram{}, fmt.Errorf("bench: %w", err)
		}
		times.Add(time.Since(asked))
	}
	return times, context.Cause(ctx)
}

// verificationBatch is the number of bundles that are verified together.
const verificationBatch = 64

// verifications returns how many signatures one processor verifies in one second, in batches.
func verifications(ctx context.Context, batch int, measured time.Duration) (float64, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	key := client.NewKey("machine", private)
	bundles := make([]*ledger.Bundle, batch)
	for i := range bundles {
		if bundles[i], err = client.Sign(ctx, []client.Key{key}, ledger.Transaction{
			Signer: key.Organisation, Nonce: ledger.Nonce{Stream: 1, Sequence: uint64(i)},
			Postings: postings("machine:a", "machine:b")}); err != nil {
			return 0, err
		}
	}
	count, begun := 0, time.Now()
	for time.Since(begun) < measured {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		// A new verifier has not seen the signatures before.
		for _, err := range ledger.NewVerifier().Bundles(bundles) {
			if err != nil {
				return 0, fmt.Errorf("bench: %w", err)
			}
		}
		count += batch
	}
	return float64(count) / time.Since(begun).Seconds(), nil
}
