// Package plan tells what to expect of a shard before it is built: its overlay, the failures it
// survives, how fast its rounds are, and how to set the failure detector. It is arithmetic over the
// models of [Poke19, sections 5.2.1.1, 5.6 and 6.5.2].
//
//	deployment, err := plan.DeploymentOf("dc")
//	p, err := plan.Make(plan.Question{Servers: 72, Deployment: deployment, Batch: 4})
//
// # The models
//
//	round.go       depth: LogP's time of a message's way, over G_R (L + o_s + o)·D with o_s = o + (d-1)/2·o, over G_U down a binomial tree [Poke19, section 5.6.2.1];
//	               work: 2(n-1)d·o for the processor [Poke19, section 5.6.1], and likewise for links
//	robust.go      expected latency and throughput with failures [Poke19, section 6.5.2], Pr[𝒟 > D_f] [Poke19, section 5.6.2.2], ρ_G [Poke19, section 5.6.4]
//	heartbeat.go   the probability that nobody is suspected wrongly [Poke19, section 5.2.1.1], and the timeout for a wanted one
//	deployment.go  the networks: figure 5.10's cluster, and section 6.5's datacentres
//
// # Where the models are stretched
//
// LogP is for short messages. For batches, the time that a link takes to carry one message stands
// beside o: whichever is longer spaces the messages (as LogGP's G does). L is not one number
// between datacentres: there the depth is that of the best ways over the overlay's actual edges,
// each with its own latency, and where all latencies are equal that is the paper's formula. The
// paper looks at one message in an idle group, whose latency is the way there and the empty
// messages' way back, and draws depth and work as two lines to compare with. Here everybody
// A-broadcasts at once, round after round, as in its section 6.5: a round lasts as long as servers
// wait for each other's messages, or as long as the busiest resource works and its last message
// travels. TestAgainstSimulator holds this against the simulator.
//
// Everything is an expectation without queues in the network, without execution or disks, and with
// one message of each server outstanding.
//
// What always holds: a plan follows from its question alone, and no question makes it panic.
package plan
