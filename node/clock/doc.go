// Package clock judges this node's clock by the clocks of the shard's members. It is pure: the
// caller brings what members said and two readings of its own, the time of day and a monotonic one.
//
//	on an announcement:   clocks.Heard(member, theirTimeOfDay, monotonic)
//	on a batch:           view := clocks.View(timeOfDay, monotonic)
//	                      header.Time, batch.Clocks = view.Time, view.Near  // NoTime where it is far
//	for status:           view.Offset, view.Warning()
//
// What always holds, while members say what their clocks show:
//
//   - A time that View lets the node propose is within ledger.ClockBound of the clocks of a majority
//     of the members, this node's among them. So while fewer than a majority of the clocks are
//     wrong, it is within the bound of a right one, and two nodes that propose at the same moment
//     are within twice the bound of each other.
//   - A node that hears no majority proposes no time.
//
// A message is older than it looks: it waits in queues and on lanes, so a clock is at least as far
// as it says. Of the last HeardLasts the package therefore takes what put a member's clock furthest
// ahead, which is the message that waited least. The members' clocks go on by this node's monotonic
// clock in between, so that a jump of this node's time of day shows at once.
package clock
