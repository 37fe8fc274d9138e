// Package clock decides the time of blocks. It is pure. The caller passes in the times that members
// announced and two readings of its own: the time of day and a monotonic time. Nodes, the ledger
// and the simulator call the same functions.
//
//	on an announcement:   clocks.Heard(member, theirTimeOfDay, monotonic)
//	on a batch:           view := clocks.View(timeOfDay, monotonic)
//	                      header.Time, batch.Clocks = clock.Stamp(&view, last.Time, fits, ...)
//	on a round:           round := clock.Round{Parent: last.Time, Members: ...}
//	                      round.Add(batch.Header.Time, batch.Clocks)   // each batch
//	                      block.Header.Time = round.Block()
//	for status:           view.Offset, view.Warning()
//
// Members do not lie, but their clocks may be wrong. A clock that is 30 years ahead must not date
// the chain, even if its node is the only proposer. Three rules prevent that:
//
//   - A node proposes its clock only while the clocks of a majority of the members, including its
//     own, are within Bound of it. Otherwise its batch has no time. Two majorities share a member,
//     so two clocks that count are within twice the bound of each other. While fewer than a
//     majority of the clocks are wrong, every majority includes a right clock, so a clock that
//     counts is within the bound of a right one.
//   - A batch takes its block further than MaxStep beyond the previous block only if it shows the
//     clocks of such a majority. Every node checks them against the chain's membership, so the
//     round itself proves how far a block's time may step.
//   - A block is never older than the previous block.
//
// The first block after an idle week has the right time, because the clocks of a majority prove the
// week. If no time in a round counts, the block has the time of the previous block.
//
// A message waits in queues and on lanes, so it understates how far its sender's clock has
// advanced. Of a member's messages in the last HeardLasts, the package therefore uses the one that
// puts the member's clock furthest ahead: it waited least. In between, the package advances the
// members' clocks by this node's monotonic clock, so a jump of this node's time of day shows at
// once.
package clock
