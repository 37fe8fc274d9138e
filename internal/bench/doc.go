// Package bench measures the engines as the product runs them: with the production round driver, or
// for polled engines the production poller, over a fabric. Only the ledger is left out.
//
// Every server A-broadcasts a batch of Batch requests of Size bytes as soon as its engine allows
// it, round after round. Every server's Sink records the A-deliveries. With the memory fabric, all
// servers live in this process. With any other fabric, each server is a process of its own (see
// [Serve]), on 127.0.0.1, and talks to the measuring process over its standard input and output.
//
// # What the figures mean
//
//   - RequestsPerSecond: requests of all servers that server 0 A-delivers in one second: the agreed
//     throughput.
//   - GbitPerSecond: the same in 1e9 payload bits.
//   - LatencyP50 and P99: from a batch's A-broadcast at a server to its A-delivery at that server,
//     over all servers.
//   - CPUSeconds: user and system time of all processes with servers, within the measured window.
//   - WireBytesPerByte: bytes that all servers put on lanes, per payload byte agreed, from the
//     start of the rounds to their end. It includes the headers of engines and excludes the
//     fabric's. Messages that were under way at the end make it larger in runs of few rounds.
//   - POTE: 100(n-1)/WireBytesPerByte, the throughput efficiency of [TRAINS, section V-A] as it is
//     on the lanes. Parameters.Layout makes it the paper's.
//   - CPUPerFrame: CPUSeconds for each frame that a server put on a lane for another. The frames of
//     the window are those of a round, the same in all of a run, times the window's rounds.
//   - SwitchesPerMessage: context switches of all threads of a server, as getrusage has them, for
//     each message that it A-delivered in the window. A message is what one server A-broadcast in a
//     round. ReadsAndWritesPerMessage: the same for calls that read and write, which the kernel
//     counts in /proc/self/io.
//   - SystemCallsPerMessage: the same for all system calls, which Linux counts by a tracepoint. To
//     count slows the calls of the whole machine down, so they have a part of the run after the
//     window, and no other figure is from it.
//
// A warm-up comes before the window. It is not measured, but it is checked.
//
// With Each, a server packs requests into a message one by one, each behind its length, and hands
// them over one by one. Requests, bytes and throughput count requests without their lengths.
//
// [CompareEngines] measures several loads one after the other, each with and without the poller of
// package p2p, and a TCP connection over loopback before each of them.
//
// # What is checked
//
// Every server keeps a running hash over its A-deliveries since its start: round, removed servers,
// origins, the payloads' lengths and their first bytes, and in a few rounds the whole payloads. At
// the end, the run compares the servers' hashes at the last round that all of them have delivered.
// If they differ, the run fails with [ErrDiverged].
//
// # Atomic multicast
//
// [RunMulticast] measures atomic multicast to some of several groups. It runs package tram/replica,
// or AllConcur+ in each group with package tram's relay behind it and package tram/stream between
// the groups. All replicas are in this process, over any fabric, each with at least one goroutine
// of its own. Clients keep a number of messages under way. The clients of tram/replica write into
// the replicas' memory. A client of the leaderless form sits beside one member of each group, as
// the clients of a node do, so its way to the member costs nothing.
//
// The figures are like those above, with these differences:
//
//   - A request is a message that was delivered in all its destinations.
//   - The latency is from a client's A-multicast until some replica of each destination has
//     A-delivered the message.
//   - The processor time includes the clients'.
//
// Leaders can be taken away during the run. Then the result compares the longest time without a
// delivery in an affected group with the same time in the undisturbed intervals before. At the end,
// all live replicas of a group must have delivered the same messages in the same order, and as many
// as were multicast to the group. sim/multicast checks that the order is consistent between groups.
//
// # The whole ledger
//
// [RunLedger] measures the service that clients get: signed transactions, ordered, executed and
// stored by nodes as users run them. Each node is a process with a store of its own; with the
// memory fabric, all are in this process. Clients wait for each bundle's acknowledgement before
// they make the next.
//
// The figures are like those above, with these differences:
//
//   - A request is an acknowledged transaction. Its bytes are those of the signed bundle.
//   - The latency is that of a bundle, from before the call to after the answer. With callers, it
//     is that of a caller's transaction, with its wait for a bundle. Latencies are in histograms of
//     three digits (HdrHistogram).
//   - The processor time is that of the nodes without the clients; it includes the clients if the
//     nodes are in this process.
//   - The bytes on lanes are those of the engines, as the nodes report them.
//   - Flushes are those of the stores' files, to make blocks durable, of all nodes together.
//   - The bytes on disk are the space that the file system allocated to the data of a node and to
//     its rounds, with all indexes and logs, and without holes in files. The run stops the nodes in
//     good order after the accounts are open and once more after the load, so that the stores have
//     written and sorted what they hold, and divides the growth by the transactions of the load.
//     Segments that a store keeps to write them again count in both sizes. In short runs the store
//     has few files, and what it leaves free in them counts.
//
// [CompareLedger] measures loads one after the other: many callers, bundles and one caller, the
// same over many accounts, and with more nodes. It measures the limits of the machine beside them:
// the time of a flush, the signatures that a processor verifies, and loopback.
//
// A run may begin with a book: accounts and transfers that are there before the load. The run makes
// it in the store of one home, before any node runs, and copies it to the other homes. Then it also
// measures how long a node takes to order again after a restart. The most memory that a node had is
// what the kernel counted for its process.
//
// [RunShards] measures the same loads in one shard and in several. A part of the bundles pay
// accounts of a client whose organisation lives in another shard; in one shard, the same clients
// pay the same accounts. All transactions of a bundle concern the same shards, because a bundle
// enters the tree where its transactions together do. The processor time is that of each node, and
// the busiest one's bounds what the book carries: a book whose nodes have machines of their own,
// unlike those of the run. So the gain of several shards over one is the ratio of the busiest
// nodes' processor times for a transaction. At the end, the balances of all shards must add up to
// zero.
//
// At the end, the run compares the blocks of all nodes, and the chain must contain at least as many
// transactions as were acknowledged.
package bench
