// Package plan estimates the properties of a shard before it is built: its overlay, the failures it
// survives, the speed of its rounds, and the settings of its failure detector. It computes them
// from the models of [Poke19, sections 5.2.1.1, 5.6 and 6.5.2]. It compares the engines that could
// order the shard's transactions: both AllConcurs, TRAINS, DARE, and TRAM in one group. It also has
// the models of DARE's accesses alone [Poke19, sections 4.5 and 4.6], and the formulas of the paper
// on TRAINS [TRAINS, section V].
//
//	deployment, err := plan.DeploymentOf("dc")
//	p, err := plan.Make(plan.Question{Servers: 72, Deployment: deployment, Batch: 4})
//
// # The models
//
//	round.go       depth: the time of a message's path in LogP, over G_R (L + o_s + o)·D with
//	               o_s = o + (d-1)/2·o, over G_U down a binomial tree [Poke19, section 5.6.2.1];
//	               work: 2(n-1)d·o for the processor [Poke19, section 5.6.1], and similarly
//	               for links
//	votes.go       the votes of AllConcur with an eventually perfect detector
//	engines.go     the comparison of the engines
//	ring.go        TRAINS: hops around a ring, and what keeps the trains waiting [TRAINS, section
//	               III-C, Table III], and how nodes renew a ring that stands still
//	leader.go      DARE: round trips of one-sided accesses, and what keeps the leader busy
//	tram.go        TRAM in one group: a client writes to all replicas, and the leader's next
//	               message says what is ordered [TRAM, Algorithms 1 and 2]
//	remote.go      one-sided accesses over the networks of deployment.go
//	robust.go      expected latency and throughput with failures [Poke19, section 6.5.2],
//	               Pr[𝒟 > D_f] [Poke19, section 5.6.2.2], ρ_G [Poke19, section 5.6.4]
//	heartbeat.go   the probability that no server is wrongly suspected [Poke19, section 5.2.1.1],
//	               and the timeout for a wanted probability
//	dare.go        lower bounds of the latency of DARE's reads and writes, by LogGP's parameters
//	               of remote memory [Poke19, section 4.5.2]
//	memory.go      the components of a server and how often they fail, zombies, and the
//	               probability that entries get lost that are only in memory [Poke19, section
//	               4.6]
//	trains.go      how many of the bytes that TRAINS and LCR send are messages, and how many hops
//	               a message takes [TRAINS, section V]
//	deployment.go  the networks: the cluster of figure 5.10, and the datacentres of section 6.5
//
// # Extensions of the models
//
// LogP describes short messages. For batches, the time that a link takes for one message is
// compared with o, and the longer of the two is the interval between messages (as with the G of
// LogGP). Between datacentres, L is not a single number. There the depth is that of the fastest
// paths over the actual edges of the overlay, each with its own latency. If all latencies are
// equal, this is the paper's formula. The paper considers one message in an idle group, with a
// latency that covers the way there and the empty messages' way back, and shows depth and work as
// two separate curves. Here all servers A-broadcast at once, round after round, as in its section
// 6.5. A round lasts either as long as servers wait for each other's messages, or until the busiest
// resource is done and its last message has arrived. TestAgainstSimulator compares the estimates
// with the simulator.
//
// All estimates are expectations. They leave out queues in the network, execution and disks, and
// assume that each server has one message outstanding.
//
// What always holds: a plan depends only on its question, and no question makes the package panic.
package plan
