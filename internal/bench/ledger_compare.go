package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// The loads of a comparison.
const (
	LoadCallers = "callers" // many callers, one transaction a call
	LoadPacked  = "packed"  // bundles of many transactions
	LoadAlone   = "alone"   // one caller
)

// LedgerComparisonParameters are the parameters of a comparison of loads.
type LedgerComparisonParameters struct {
	// LedgerParameters hold for all loads, except the clients, callers and transactions a bundle.
	LedgerParameters
	// CallersClients clients with Callers callers each make LoadCallers.
	CallersClients, Callers int
	// PackedClients clients with bundles of Bundle transactions make LoadPacked.
	PackedClients, Bundle int
}

// loads returns the loads in their order.
func (p LedgerComparisonParameters) loads() []LedgerParameters {
	callers, packed, alone := p.LedgerParameters, p.LedgerParameters, p.LedgerParameters
	callers.Clients, callers.Callers, callers.Bundle = p.CallersClients, p.Callers, 1
	packed.Clients, packed.Callers, packed.Bundle = p.PackedClients, 0, p.Bundle
	alone.Clients, alone.Callers, alone.Bundle = 1, 1, 1
	return []LedgerParameters{callers, packed, alone}
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p LedgerComparisonParameters) Validate() error {
	if p.Callers < 1 {
		return fmt.Errorf("%w: %d callers, want at least 1", ErrParameters, p.Callers)
	}
	for _, load := range p.loads() {
		if err := load.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// LedgerComparison is the result of a comparison.
type LedgerComparison struct {
	Machine MachineLimits `json:"machine"`
	Loads   []LedgerLoad  `json:"loads"`
}

// LedgerLoad is the result of one load.
type LedgerLoad struct {
	Load string `json:"load"`
	LedgerResult
}

// MachineLimits are what the machine can do, measured in the same run.
type MachineLimits struct {
	// Flush is the time of an fdatasync of a file after a write of 4 KiB to it, in microseconds.
	FlushP50 float64 `json:"fdatasync_us_p50"`
	FlushP99 float64 `json:"fdatasync_us_p99"`
	// Verifications is the number of ed25519 signatures that one processor verifies in one second,
	// each alone, and in batches of 64.
	Verifications        float64 `json:"verifications_per_second"`
	BatchedVerifications float64 `json:"batched_verifications_per_second"`
	// RoundTrip is for 64 bytes there and back over TCP on the loopback interface, in microseconds.
	RoundTripP50 float64 `json:"round_trip_us_p50"`
	RoundTripP99 float64 `json:"round_trip_us_p99"`
}

// CompareLedger measures the machine's limits, and then the whole ledger under one load after the
// other, each with new nodes. environment.Dir gets a folder for each, which is removed after its
// load. The error is as for RunLedger.
func CompareLedger(ctx context.Context, p LedgerComparisonParameters,
	environment LedgerEnvironment) (result LedgerComparison, err error) {
	if err := p.Validate(); err != nil {
		return LedgerComparison{}, err
	}
	if result.Machine, err = measureMachine(ctx, environment.Dir, warmUp(p.For)); err != nil {
		return LedgerComparison{}, err
	}
	names := []string{LoadCallers, LoadPacked, LoadAlone}
	for i, load := range p.loads() {
		one := environment
		one.Dir = filepath.Join(environment.Dir, names[i])
		if err := os.Mkdir(one.Dir, 0o700); err != nil {
			return LedgerComparison{}, fmt.Errorf("bench: %w", err)
		}
		measured, err := RunLedger(ctx, load, one)
		if err = errors.Join(err, os.RemoveAll(one.Dir)); err != nil {
			return LedgerComparison{}, fmt.Errorf("%s: %w", names[i], err)
		}
		result.Loads = append(result.Loads, LedgerLoad{Load: names[i], LedgerResult: measured})
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
	limits = MachineLimits{
		FlushP50:     float64(flushes.Quantile(0.50)) / 1e3,
		FlushP99:     float64(flushes.Quantile(0.99)) / 1e3,
		RoundTripP50: float64(trips.Quantile(0.50)) / 1e3,
		RoundTripP99: float64(trips.Quantile(0.99)) / 1e3,
	}
	if limits.Verifications, err = verifications(ctx, 1, each); err != nil {
		return MachineLimits{}, err
	}
	limits.BatchedVerifications, err = verifications(ctx, verificationBatch, each)
	return limits, err
}

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
