// Package order states the two contracts that every engine of the house fulfils, atomic broadcast
// and atomic multicast, and holds the property checker that judges them.
//
// # The contracts
//
// Atomic broadcast is for one group: its servers A-deliver the same messages in the same order
// [Poke19, section 2.2.1]. The engines of the house run in rounds, in each of which every server
// A-broadcasts one message, so what they A-deliver is a sequence of rounds; the interface is
// Broadcaster. Atomic multicast is for several groups: a message goes to a set of them, and the
// order is consistent wherever it is seen [TRAM, section 2.2]; the interface is Multicaster.
// Broadcast is the multicast of a single group.
//
// Engines are pure state machines. They have no clock, goroutine or socket; a driver (the node, the
// simulator, a test) feeds them one input at a time and carries out what they ask for. The loop is
// in the comments of Broadcaster and Multicaster.
//
// # The checker
//
// A history holds what every process submitted, what it A-delivered and which processes failed.
// Judging it runs one oracle a property, each in the file of its name:
//
//	integrity.go      a message is A-delivered at most once by a process, only where it was sent to, and only if somebody submitted it
//	total_order.go    no two processes A-deliver two messages in opposite orders
//	prefix_order.go   of two processes that get the same messages, neither A-delivers one without what the other delivered before it
//	acyclic_order.go  "A-delivered before, somewhere" is no circle
//	validity.go       what a correct process submitted is A-delivered
//	agreement.go      what one process A-delivered, every correct process A-delivers (and uniformly: also what a failed one A-delivered)
//	set_agreement.go  for broadcast, round by round: the same epoch, round, messages and removals at all servers
//	round_form.go     for broadcast: a round has the form that Delivery promises
//
// The first four and the last two are safety properties and hold at any moment. Validity and
// agreement are liveness properties and are judged only when the run has come to rest: faults are
// over, nothing is submitted, nothing is under way.
//
// Each oracle answers with nil or with a Violation: the property's name and the shortest evidence
// that a reader can check by hand, such as
//
//	total order is broken:
//	  server 0 A-delivers m1.2 (epoch 1, round 3), then m2.2 (epoch 1, round 4)
//	  server 4 A-delivers m2.2 (epoch 1, round 3), then m1.2 (epoch 1, round 4)
//
// where m1.2 is the second message that server 1 submitted. Messages without a payload are not
// messages here: they keep rounds going and mean nothing to a user; only set_agreement.go looks at
// them.
//
// Use a RoundHistory for a Broadcaster and a History for a Multicaster:
//
//	history := order.NewRoundHistory(servers)
//	history.Broadcast(server, payload)                       // for each A-broadcast
//	if broken := history.Deliver(server, delivery); broken != nil { ... } // for each A-delivered round: judged at once
//	history.Fail(server)                                     // for each crash
//	violations := history.Judge(order.AtRest)                // in the end
//
// What always holds: judging changes nothing, the same history gives the same answer word for word,
// and the cost of a delivery that equals what another server delivered before is a comparison of
// the two.
package order
