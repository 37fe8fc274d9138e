package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// newBenchLedgerCommand returns the `ledgerd bench ledger` command.
func newBenchLedgerCommand() *cobra.Command {
	var p bench.LedgerParameters
	var dir string
	var asJSON, compare bool
	var large int
	var memory bytesFlag
	var more []int
	var shards shardsFlags
	command := &cobra.Command{
		Use:   "ledger",
		Short: "Measure a whole ledger: signed transactions, ordered, executed and stored",
		Long: `Measure a whole ledger: signed transactions, ordered, executed and stored. The nodes
run as under ledgerd testnet: each is a process with its own store, and they talk over 127.0.0.1.
Each client submits for an organisation of its own. It makes a bundle of --bundle transfers, signs
it once, submits it to its node, waits for the acknowledgement, and goes on with the next. With
--fabric memory the nodes live in this process, beside the clients.

With --callers, each client has that many concurrent callers. Each caller submits one transfer after
the other, alone, through the client's sender, which signs and sends as one bundle what its callers
submit at the same time. The latency is then that of a caller's transaction.

Transfers go between any two of the client's accounts, which are its share of --accounts. With
--distribution uniform, all are chosen equally often. With zipf, account k of a client is chosen in
proportion to (1+k)^-1.1. With hot, all transfers of a client are between the same two accounts, and
the others are idle. With --accounts 0 each client has just those two. Before the load, the command
opens the accounts, stops the nodes in good order and starts them again.

With --book-transactions and --book-accounts, the nodes begin with a book that has so many transfers
and accounts. The command makes it before the nodes start, without them: it executes blocks of
packed bundles in the store of one home, as fast as the machine can, and copies that to the others.
The load's --accounts are among those of the book. After the load, one node is stopped in good order
and started again, while the others go on: ready_ms is the time until it orders. --memory-limit is
the memory_limit_bytes of each node. All of it is in the folder of --dir, and is removed at the end.
A node that has just started over a large book checks its tables and reads accounts for a while
beside the load; with --warm-up the measurement begins later.

With --compare, the command measures several loads one after the other, each with new nodes, 3
unless --nodes is given. It shows them beside what the machine can do in the same run:
  callers         3 clients with 1,000 callers each
  packed          16 clients with 400 transactions a bundle
  alone           one caller
  *_large_uniform these three over 1,000,000 accounts, uniform and then Zipf
  *_large_zipf
  packed_5_nodes  "packed" with five nodes, and with seven
  packed_7_nodes
  packed_book     "packed" over the book of --book-transactions and --book-accounts, if there is one
--clients, --callers and --bundle change the first two, --large-accounts and --more-nodes those with
their names. This takes about six minutes with --for 10s, more than half of it for the loads over
many accounts, whose nodes need 4 GB of memory in all. Loads that the machine has no memory for are
left out. --large-accounts 0 --more-nodes 0 leaves three loads, which take under a minute. With
--json, "loads" has the keys below and "load" for each, "left_out" has the "load" and "reason" of
those that were not measured, and "machine" has:
  fdatasync_us_p50                  a flush of 4 KiB to the disk of --dir, in microseconds: the
  fdatasync_us_p99                  median and the 99th percentile
  fdatasyncs_per_second             such flushes in one second, one after the other
  verifications_per_second          ed25519 signatures that one processor verifies in one second,
  batched_verifications_per_second  each alone, and in batches of 64
  round_trip_us_p50                 64 bytes there and back over TCP on the loopback interface, in
  round_trip_us_p99                 microseconds
  loopback_gbit_per_second          one TCP connection there, with writes of 64 KiB

The keys of --json, besides the parameters:
  requests_per_second   transactions acknowledged in one second, all clients together
  gbit_per_second       the bytes of their signed bundles in 10^9 bits; with --callers, of the
                        transactions without signatures
  latency_p50_us        from just before the submission of a bundle to its acknowledgement, in
  latency_p99_us        microseconds: the median and the 99th percentile
  latency_p90_us        the 90th percentile, the 99.9th, and the longest
  latency_p999_us
  latency_max_us
  latency_histogram     all of them in nanoseconds, as HdrHistogram's tools read them: its compressed
                        encoding V2 in base64
  cpu_seconds           processor time of all nodes during the measurement; with --fabric memory, of
                        the clients too
  cpu_us_per_request    the same for each acknowledged transaction, in microseconds
  client_cpu_us_per_request  processor time of the clients for each; 0 with --fabric memory
  flushes_per_request   files that all nodes flushed to the disk, for each acknowledged transaction
  flushes_per_block     the same for each block
  bytes_on_disk_per_request  how much a node's data grew on the disk for each transaction, with its
                        indexes: the space that the file system allocated to the files, without
                        holes, once the nodes had stopped in good order after the load, less the
                        same before the load; of the average node
  ready_ms              with a book: how long a node took to order again after the start of its
                        process, in milliseconds; else 0
  peak_memory_bytes     the most memory that a node had, of the node that had most, with the parts
                        of files that are mapped into it; 0 with --fabric memory
  wire_bytes_per_byte   bytes that all nodes put on lanes, for each byte of acknowledged bundles
  seconds               length of the measurement, after a warm-up
  acknowledged          transactions acknowledged since the start
  compared_height       last block up to which all nodes' chains were compared

` + benchShardsLong + `
At the end, the command compares the blocks of all nodes, and looks for every acknowledged
transaction in them. A difference or a missing transaction is an error.`,
		Example: `  ledgerd bench ledger --nodes 4 --clients 64 --for 10s
  ledgerd bench ledger --nodes 4 --clients 16 --bundle 100 --ack ordered --for 10s --json
  ledgerd bench ledger --nodes 3 --clients 3 --callers 1000 --accounts 100000 --distribution zipf
  ledgerd bench ledger --nodes 3 --clients 16 --bundle 400 --book-transactions 100000000 \
    --book-accounts 20000000 --memory-limit 4GiB --dir /var/tmp
  ledgerd bench ledger --compare --for 5s
  ledgerd bench ledger --compare --large-accounts 0 --more-nodes 0 --json
  ledgerd bench ledger --shards 4 --crossing 0,25,50,75,100
  ledgerd bench ledger --shards 7 --tree binary --pattern neighbourly --crossing 50 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			for _, name := range []string{"large-accounts", "more-nodes"} {
				if !compare && command.Flags().Changed(name) {
					return usagef("--%s is for --compare: name both, or neither", name)
				}
			}
			p.MemoryLimit = int64(memory)
			loads := loadsOf(command, p)
			loads.LargeAccounts = large
			loads.MoreNodes = slices.DeleteFunc(more, func(nodes int) bool { return nodes == 0 })
			validate := p.Validate
			if compare {
				validate = loads.Validate
			}
			inShards, err := shards.parameters(command, p)
			if err != nil {
				return err
			}
			if inShards != nil {
				validate = inShards.Validate
			}
			if err := validate(); err != nil {
				return asUsage(err)
			}
			process, err := nodeProcess()
			if err != nil {
				return err
			}
			homes, err := os.MkdirTemp(dir, "ledgerd-bench-")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(homes)) }()
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelError}))
			if p.BookTransactions == 0 && p.BookAccounts == 0 {
				tuneMemory(0) // otherwise the book may take more than the limit
			}
			environment := bench.LedgerEnvironment{Dir: homes, Command: process,
				Start: nodeStarter(logger, store.Options{}),
				Store: store.Options{AccountsInMemory: bookInMemory(p, memoryThere(os.DirFS("/")))},
				Progress: func(text string) {
					if !asJSON {
						_, _ = fmt.Fprintln(command.ErrOrStderr(), text)
					}
				}}
			if compare {
				result, err := bench.CompareLedger(command.Context(), loads, environment,
					func(load string) {
						if !asJSON {
							_, _ = fmt.Fprintln(command.ErrOrStderr(), "measuring", load)
						}
					})
				if err != nil {
					return withFolder(err)
				}
				if asJSON {
					return writeBenchJSON(command.OutOrStdout(), result)
				}
				return writeLedgerComparison(command.OutOrStdout(), result)
			}
			if inShards != nil {
				result, err := bench.RunShards(command.Context(), *inShards, environment)
				if err != nil {
					return withFolder(err)
				}
				if asJSON {
					return writeBenchJSON(command.OutOrStdout(), result)
				}
				return writeShards(command.OutOrStdout(), result)
			}
			result, err := bench.RunLedger(command.Context(), p, environment)
			if err != nil {
				return withFolder(err)
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			return writeLedger(command.OutOrStdout(), result)
		},
	}
	flags := command.Flags()
	flags.IntVar(&p.Nodes, "nodes", 4, "number of nodes")
	flags.IntVar(&p.Clients, "clients", 64,
		"number of clients, each with an organisation of its own")
	flags.IntVar(&p.Bundle, "bundle", 1, "transactions that a client signs and submits together")
	flags.IntVar(&p.Callers, "callers", 0, "concurrent callers of each client, which submit one "+
		"transaction a call (default none: the client submits bundles)")
	flags.IntVar(&p.Accounts, "accounts", defaultAccounts,
		"accounts of all clients together, or 0 for two for each client")
	flags.StringVar(&p.Distribution, "distribution", bench.DistributionUniform,
		"how transfers choose accounts: uniform, zipf or hot")
	flags.IntVar(&p.BookTransactions, "book-transactions", 0,
		"transfers that the nodes' book has before the load")
	flags.IntVar(&p.BookAccounts, "book-accounts", 0,
		"accounts that the nodes' book has before the load (default those of the load)")
	flags.Var(&memory, "memory-limit",
		"memory_limit_bytes of each node, such as 4GiB (default that of ledgerd start)")
	flags.BoolVar(&compare, "compare", false,
		"measure several loads, and show them beside the machine's limits")
	flags.IntVar(&large, "large-accounts", compareLargeAccounts,
		"accounts of the large loads of --compare, or 0 for no such loads")
	flags.IntSliceVar(&more, "more-nodes", []int{5, 7},
		"numbers of nodes with which --compare repeats a load, or 0 for none")
	shards.add(command)
	flags.StringVar(&p.Ack, "ack", bench.AckDurable,
		"what a client waits for: ordered, stored, durable or durable-everywhere")
	addFabricFlag(command, &p.Fabric, fabric.P2P)
	addEngineFlag(command, &p.Engine, engine.All().With(engine.Engine.RunsInNode))
	flags.DurationVar(&p.For, "for", 10*time.Second,
		"how long to measure")
	flags.DurationVar(&p.WarmUp, "warm-up", 0, "how long the load runs before the measurement "+
		"(default a quarter of --for, at most 1s)")
	flags.StringVar(&dir, "dir", "", "folder for the nodes' temporary homes; the speed of its "+
		"disk is part of the measurement (default the system's temporary folder)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// defaultAccounts are enough for two accounts of each of bench.ClientsMax clients.
const defaultAccounts = 10_000

// The loads of --compare, unless flags change them.
const (
	compareNodes          = 3
	compareCallersClients = 3
	compareCallers        = 1000
	comparePackedClients  = 16
	compareBundle         = 400
	compareLargeAccounts  = 1_000_000
)

// loadsOf returns the loads of --compare with the flags of a command.
func loadsOf(command *cobra.Command, p bench.LedgerParameters) bench.LedgerComparisonParameters {
	loads := bench.LedgerComparisonParameters{LedgerParameters: p,
		CallersClients: compareCallersClients, Callers: compareCallers,
		PackedClients: comparePackedClients, Bundle: compareBundle}
	if memory := memoryThere(os.DirFS("/")); memory != math.MaxInt64 {
		loads.Memory = memory
	}
	flags := command.Flags()
	if !flags.Changed("nodes") {
		loads.Nodes = compareNodes
	}
	if flags.Changed("clients") {
		loads.CallersClients, loads.PackedClients = p.Clients, p.Clients
	}
	if flags.Changed("callers") {
		loads.Callers = p.Callers
	}
	if flags.Changed("bundle") {
		loads.Bundle = p.Bundle
	}
	return loads
}

// bookAccountBytes is the memory of an account while a book is made, about.
const bookAccountBytes = 512

// bookInMemory returns how many accounts are in memory while the book is made: all of them, as the
// transfers between them are then made without reading, or as many as half of the memory has room
// for.
func bookInMemory(p bench.LedgerParameters, memory int64) int {
	return int(min(int64(max(p.BookAccounts, p.Accounts)), memory/2/bookAccountBytes))
}

// withFolder adds advice to an error of a full disk, whose files are gone by now.
func withFolder(err error) error {
	if errors.Is(err, store.ErrDiskFull) || errors.Is(err, syscall.ENOSPC) {
		return &hintedError{err, "or name a folder on a larger disk with --dir"}
	}
	return err
}

// writeLedger writes a result as text.
func writeLedger(out io.Writer, r bench.LedgerResult) error {
	_, err := fmt.Fprintf(out,
		`%s (%s, %s), %s, %s accounts, %s, %.1f s
  acknowledged %14.0f transactions/s  %8.3f Gbit/s
  latency      %14.0f us median       %8.0f us 90th percentile
               %14.0f us 99th         %8.0f us 99.9th     %8.0f us longest
  processors   %14.2f s               %8.1f us a transaction, and %.1f us of the clients
  disks        %14.1f bytes a transaction and node, %.1f flushes a block
  lanes        %14.2f bytes per byte
%s  compared     all nodes have the same blocks up to %d
`, plural(r.Nodes, "node"), r.Engine, r.Fabric, clientsOf(r), accountsOf(r), r.Ack,
		r.Seconds, r.RequestsPerSecond, r.GbitPerSecond,
		r.LatencyP50, r.LatencyP90, r.LatencyP99, r.LatencyP999, r.LatencyMax,
		r.CPUSeconds, r.CPUPerRequest, r.ClientCPUPerRequest, r.BytesOnDisk, r.FlushesPerBlock,
		r.WireBytesPerByte, bookOf(r), r.ComparedHeight)
	return err
}

// bookOf returns the lines of a result about its book and the nodes' memory.
func bookOf(r bench.LedgerResult) (lines string) {
	if r.PeakMemory > 0 {
		lines = fmt.Sprintf("  memory       %14.0f MiB of a node at most\n",
			float64(r.PeakMemory)/(1<<20))
	}
	if r.Ready > 0 {
		lines += fmt.Sprintf("  book         %14d transactions, %d accounts before the load; "+
			"a node that restarts orders in %.0f ms\n", r.BookTransactions, r.BookAccounts,
			r.Ready)
	}
	return lines
}

// clientsOf names the clients of a load.
func clientsOf(r bench.LedgerResult) string {
	switch {
	case r.Callers == 0:
		return fmt.Sprintf("%d x %d a bundle", r.Clients, r.Bundle)
	case r.Callers == 1 && r.Clients == 1:
		return "one caller"
	}
	return fmt.Sprintf("%d x %d callers", r.Clients, r.Callers)
}

// accountsOf names the accounts of a load.
func accountsOf(r bench.LedgerResult) string {
	if r.Accounts == 0 {
		return fmt.Sprintf("%d %s", 2*r.Clients, bench.DistributionHot)
	}
	return fmt.Sprintf("%d %s", r.Accounts, r.Distribution)
}

// writeLedgerComparison writes the results of --compare as text.
func writeLedgerComparison(out io.Writer, c bench.LedgerComparison) error {
	m := c.Machine
	r := c.Loads[0]
	if _, err := fmt.Fprintf(out, `%s, %s, %s, %.1f s a load
this machine   fdatasync %.0f us median, %.0f us 99th percentile, %.0f/s
               loopback %.1f us median, %.1f us 99th percentile there and back, %.1f Gbit/s
               ed25519 %.0f verifications/s on a processor, %.0f in batches

`, r.Engine, r.Fabric, r.Ack, r.Seconds, m.FlushP50, m.FlushP99, m.Flushes, m.RoundTripP50,
		m.RoundTripP99, m.Loopback, m.Verifications, m.BatchedVerifications); err != nil {
		return err
	}
	rows := table{header: []string{"NODES", "LOAD", "ACCOUNTS", "TRANSACTIONS/S", "MEDIAN US",
		"99TH US", "99.9TH US", "NODES US", "CLIENTS US", "FLUSHES", "BYTES"}}
	for _, r := range c.Loads {
		rows.add(fmt.Sprint(r.Nodes), clientsOf(r.LedgerResult), accountsOf(r.LedgerResult),
			fmt.Sprintf("%.0f", r.RequestsPerSecond),
			fmt.Sprintf("%.0f", r.LatencyP50), fmt.Sprintf("%.0f", r.LatencyP99),
			fmt.Sprintf("%.0f", r.LatencyP999), fmt.Sprintf("%.1f", r.CPUPerRequest),
			fmt.Sprintf("%.1f", r.ClientCPUPerRequest),
			fmt.Sprintf("%.1f", r.FlushesPerBlock), fmt.Sprintf("%.0f", r.BytesOnDisk))
	}
	if err := rows.write(out); err != nil {
		return err
	}
	for _, left := range c.LeftOut {
		if _, err := fmt.Fprintf(out, "left out %s: %s\n", left.Load, left.Reason); err != nil {
			return err
		}
	}
	for _, r := range c.Loads {
		if lines := bookOf(r.LedgerResult); r.Ready > 0 {
			if _, err := fmt.Fprintf(out, "%s:\n%s", r.Load, lines); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprint(out, `
NODES US and CLIENTS US are processor time of a transaction, all nodes and all clients together.
FLUSHES are the files that all nodes flushed to the disk for a block. BYTES are those that a node
keeps on its disk for a transaction.
`)
	return err
}
