// Package tram orders messages between groups: TRAM's tree, over any log of a group [TRAM].
//
// # The story
//
// Groups form a static tree (Tree). A message for several groups enters at the lowest common
// ancestor of its destinations, is ordered there, and flows down: each group that orders it hands
// it on to each child whose reach meets the destinations, in the order of its own log. A message
// for one group enters there and goes nowhere else. So two messages with a common destination were
// both ordered by one group, the lower of the two ancestors, and all groups below keep that order:
// no group asks another for permission, and no two wait for each other.
//
// TRAM's proofs ask little of a group: validity, integrity, agreement and total order of its log
// [TRAM, propositions 1 to 4], and that what goes from a parent to a child keeps its order. Which
// log that is does not matter. In the node it is the shard's own chain; in package tram/replica it
// is the paper's, with a leader and permissions.
//
// # One group's part
//
// A Relay is what every replica of a group runs over the group's log:
//
//	relay := tram.NewRelay(tree, group)
//	for item := range log { // the same at all replicas of the group
//		outcome := relay.Order(item)
//		for _, forward := range outcome.Forwards {
//			streams[forward.Child].Append(forward.Number, item.Message) // the child's stream: the same at all replicas of the group
//		}
//		if outcome.Delivered {
//			deliver(item.Message)
//		}
//	}
//
// The streams are numbered from 1 without gaps. Package tram/stream carries one from the replicas
// of the parent to those of the child, who put its entries into their log with their numbers; there
// the relay takes number n+1 only after n. So repeating an entry is harmless, losing one is
// impossible, and order is kept whatever the log makes of what is proposed.
//
// # What always holds
//
//   - Replicas that feed equal logs into their relays have equal deliveries and equal streams.
//   - Of a stream, a relay takes each number at most once, and in order: what it has taken is a
//     prefix.
//   - A message that entered at a group which covers its destinations gets one place in the stream
//     of each child whose reach meets them, and none in others. Over all groups: each destination
//     A-delivers it once, and only groups between the entry and the destinations order it at all
//     (Tree.Span where it entered at the lowest common ancestor).
//   - If two groups A-deliver the same two messages, they do so in the same order; and "before,
//     somewhere" has no circle [TRAM, propositions 8 and 9]. Entering above the lowest common
//     ancestor keeps all this, and costs the groups between.
//   - That a message enters once is the log's part, as is that of integrity [TRAM, proposition 2]:
//     the relay remembers positions, not messages.
//   - A relay's state is one number for the parent's stream and one for each child. It has no
//     clock, goroutine, random source or I/O, and does not panic on any item.
//
// # Where to find what
//
//	tree.go   the tree: shapes, files, lca, reach, route [TRAM, section 4]
//	relay.go  a group's part [TRAM, Algorithm 2, steps 2.4 and 2.5]
package tram
