// Package tram orders messages between groups: TRAM's tree, over any log of a group [TRAM].
//
// # Overview
//
// Groups form a static tree (Tree). A message for several groups enters at the lowest common
// ancestor of its destinations. That group orders it first, and the message flows down from there:
// each group that orders it forwards it to every child whose reach meets the destinations, in the
// order of its own log. A message for one group enters at that group and goes nowhere else. Two
// messages with a common destination are therefore both ordered by one group, the lower of the two
// ancestors, and all groups below keep that order. No group asks another for permission, and no two
// groups wait for each other.
//
// TRAM's proofs need little from a group: validity, integrity, agreement and total order of its log
// [TRAM, propositions 1 to 4]. They also need the messages from a parent to a child to keep their
// order. Any log with these properties works. In the node it is the shard's own chain. In package
// tram/replica it is the log of the paper, with a leader and permissions.
//
// # One group's part
//
// Every replica of a group runs a Relay over the group's log:
//
//	relay := tram.NewRelay(tree, group)
//	for item := range log { // the same at all replicas of the group
//		outcome := relay.Order(item)
//		for _, forward := range outcome.Forwards {
//			// The child's stream is the same at all replicas of the group.
//			streams[forward.Child].Append(forward.Number, item.Message)
//		}
//		if outcome.Delivered {
//			deliver(item.Message)
//		}
//	}
//
// The streams are numbered from 1 without gaps. Package tram/stream carries a stream from the
// replicas of the parent to the replicas of the child. These put its entries into their log
// together with the numbers, and the child's relay takes number n+1 only after n. Repeating an
// entry is therefore harmless, no entry can be lost, and the order is kept whatever the log does
// with the proposals.
//
// # Invariants
//
//   - Replicas that feed equal logs into their relays have equal deliveries and equal streams.
//   - A relay takes each number of a stream at most once, and in order. The numbers that it has
//     taken are a prefix of the stream.
//   - If a message enters at a group that covers its destinations, it gets one place in the stream
//     of each child whose reach meets them, and none in other streams. Over all groups, each
//     destination A-delivers it once. Only groups between the entry and the destinations order it
//     (Tree.Span, if it entered at the lowest common ancestor).
//   - If two groups A-deliver the same two messages, they do so in the same order. The relation
//     "before, at some group" has no cycle [TRAM, propositions 8 and 9]. Entering above the lowest
//     common ancestor keeps all this, at the cost of the groups between.
//   - The log guarantees that a message enters once, as it guarantees integrity [TRAM, proposition
//     2]. The relay remembers positions, not messages.
//   - A relay's state is one number for the parent's stream and one for each child. It has no
//     clock, goroutine, random source or I/O, and does not panic on any item.
//
// # Files
//
//	tree.go   the tree: shapes, files, lca, reach, route [TRAM, section 4]
//	relay.go  a group's part [TRAM, Algorithm 2, steps 2.4 and 2.5]
package tram
