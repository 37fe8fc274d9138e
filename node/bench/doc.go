// Package bench measures the engines as the product runs them: the production round driver over a
// fabric, with nothing but the ledger left out.
//
// Every server A-broadcasts a batch of Batch requests of Size bytes as soon as its engine lets it,
// round after round, and every server's Sink takes note of what is A-delivered. With the memory
// fabric all servers live in this process; with any other each is a process of its own (see
// [Serve]), on 127.0.0.1, and talks to the one that measures over its standard input and output.
//
// # What the figures mean
//
//   - RequestsPerSecond: A-delivered requests, of all servers, in one second at server 0: the
//     agreed throughput.
//   - GbitPerSecond: the same in 1e9 payload bits.
//   - LatencyP50 and P99: from a batch's A-broadcast at a server to its A-delivery at that server,
//     over all servers.
//   - CPUSeconds: user and system time of all processes with servers, within the measured window.
//   - WireBytesPerByte: bytes that all servers put on lanes, engine headers included and the
//     fabric's excluded, per payload byte agreed, from the start of the rounds to their end;
//     messages that were under way at the end make it look larger in runs of few rounds.
//
// A warm-up comes before the window; it is not measured, but it is checked.
//
// # What is checked
//
// Every server keeps a running hash over all that it A-delivered since its start: round, who was
// removed, origins, payload bytes. At the end the servers' hashes at the last round that all of
// them have delivered must be equal, or the run is an error ([ErrDiverged]).
//
// # Atomic multicast
//
// [RunMulticast] measures atomic multicast to some of several groups: package tram/replica, or
// AllConcur+ in each group with package tram's relay behind it and package tram/stream between the
// groups. All replicas are in this process, over any fabric, each driven by a goroutine of its own
// at least. Clients keep a number of messages under way. Of tram/replica they write into the
// replicas' memory; of the leaderless form each sits beside one member of each group, as the
// clients of a node do, so its way there costs nothing. The figures are like those above, with
// these differences: a request is a message that was delivered in all its destinations; the latency
// is from a client's A-multicast until in each destination some replica A-delivered the message;
// the processor time is that of the clients, too. Leaders can be taken away meanwhile. Then the
// longest time without a delivery in a group concerned stands beside that of the intervals before,
// in which nobody was. At the end, all live replicas of a group must have delivered the same in the
// same order, and as much as was multicast to the group. That the order is consistent between
// groups is what sim/multicast checks.
//
// # The whole ledger
//
// [RunLedger] measures what clients get: signed transactions, ordered, executed and stored by nodes
// as users run them, each a process with a store of its own (or all in this process, over the
// memory fabric). Clients wait for each bundle's acknowledgement before they make the next. The
// figures are like those above, with these differences: a request is a transaction that was
// acknowledged, its bytes are the signed bundle's; the latency is that of a bundle, from before the
// call to after the answer; the processor time is that of the nodes without the clients, but with
// them where the nodes are in this process; the bytes on lanes are those of the engines, as the
// nodes tell them. At the end all nodes' blocks are compared, and the chain must have whatever was
// acknowledged.
package bench
