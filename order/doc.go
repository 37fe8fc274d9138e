// Package order states the two contracts that the engines implement, atomic broadcast and atomic
// multicast. It also holds the property checker that judges them.
//
// # The contracts
//
// Atomic broadcast is for one group: its servers A-deliver the same messages in the same order
// [Poke19, section 2.2.1]. The engines run in rounds. In each round every server A-broadcasts one
// message, so a server A-delivers a sequence of rounds. The interface is Broadcaster.
//
// Atomic multicast is for several groups: a message goes to a set of groups, and the order is
// consistent at all of them [TRAM, section 2.2]. The interface is Multicaster. Broadcast is
// multicast with a single group.
//
// Engines are pure state machines. They have no clock, goroutine or socket. A driver (the node, the
// simulator, a test) feeds them one input at a time and carries out their requests. The comments of
// Broadcaster and Multicaster show the loop.
//
// # The checker
//
// A history records what every process submitted, what it A-delivered and which processes failed.
// Judging it runs one oracle for each property, in the file of that name:
//
//	integrity.go      a process A-delivers a message at most once, only at a destination, only if
//	                  it was submitted
//	total_order.go    no two processes A-deliver two messages in opposite orders
//	prefix_order.go   of two processes that get the same messages, neither A-delivers one without
//	                  the messages that the other delivered before it
//	acyclic_order.go  "A-delivered before, at some process" has no cycle
//	validity.go       messages that a correct process submitted are A-delivered
//	agreement.go      every correct process A-delivers what one correct process A-delivered
//	                  (uniform: also what a failed process A-delivered)
//	set_agreement.go  for broadcast, round by round: the same epoch, round, messages and removals
//	                  at all servers
//	round_form.go     for broadcast: a round has the form that Delivery promises
//
// The first four and the last two are safety properties and hold at any moment. Validity and
// agreement are liveness properties. They are judged only when the run has come to rest: faults are
// over, nothing is submitted, nothing is under way.
//
// Each oracle returns nil or a Violation: the property's name and the shortest evidence that a
// reader can check by hand, such as
//
//	total order is broken:
//	  server 0 A-delivers m1.2 (epoch 1, round 3), then m2.2 (epoch 1, round 4)
//	  server 4 A-delivers m2.2 (epoch 1, round 3), then m1.2 (epoch 1, round 4)
//
// where m1.2 is the second message that server 1 submitted. Messages without a payload do not count
// as messages here: they keep rounds going and mean nothing to a user. Only set_agreement.go and
// round_form.go look at them.
//
// Use a RoundHistory for a Broadcaster and a History for a Multicaster:
//
//	history := order.NewRoundHistory(servers)
//	history.Broadcast(server, payload)              // for each A-broadcast
//	broken := history.Deliver(server, delivery)     // for each A-delivered round: judged at once
//	history.Fail(server)                            // for each crash
//	violations := history.Judge(order.AtRest)       // when the run has come to rest
//
// Judging changes no result: the same history always gives the same answer, word for word.
// Delivering a round that another server delivered before costs one comparison of the two.
package order
