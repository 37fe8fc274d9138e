// Package clock decides the time of blocks. It is pure: the caller brings what members said and
// two readings of its own, the time of day and a monotonic one. Nodes, the ledger and the
// simulator call the same functions.
//
//	on an announcement:   clocks.Heard(member, theirTimeOfDay, monotonic)
//	on a batch:           view := clocks.View(timeOfDay, monotonic)
//	                      header.Time, batch.Clocks = clock.Stamp(&view, last.Time, fits, ...)
//	on a round:           round := clock.Round{Parent: last.Time, Members: ...}
//	                      round.Add(batch.Header.Time, batch.Clocks)   // each batch
//	                      block.Header.Time = round.Block()
//	for status:           view.Offset, view.Warning()
//
// Members do not lie, but their clocks may: one that is 30 years ahead must not date the chain, not
// even if its node is the only one that proposes anything. Three rules keep it from that:
//
//   - A node proposes its clock only while the clocks of a majority of the members, its own among
//     them, are within Bound of it. Otherwise its batch has no time. Two majorities share a member,
//     so two clocks that count are within twice the bound of each other. A majority has a member
//     that is right while fewer than a majority are wrong, so a clock that counts is within the
//     bound of a right one.
//   - A batch takes its block further than MaxStep beyond the block before only if it shows the
//     clocks of such a majority. Every node checks that against the membership that the chain has,
//     so the step of a block is bounded by what the round itself proves.
//   - A block is never older than the block before.
//
// A ledger that was idle for a week goes on with the right time in its first block, because the
// clocks of a majority prove the week. If nothing in a round has a time that counts, the block has
// the time of the block before.
//
// A message is older than it looks: it waits in queues and on lanes, so a clock is at least as far
// as it says. Of the last HeardLasts the package therefore takes what put a member's clock furthest
// ahead, which is the message that waited least. The members' clocks go on by this node's monotonic
// clock in between, so that a jump of this node's time of day shows at once.
package clock
