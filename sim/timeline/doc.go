// Package timeline has the queue of events that all simulators share. It holds what is to happen
// in virtual time and returns it in one order:
//
//   - the earliest event first;
//   - of two events at one instant, the one pushed first.
//
// This order is total, so the same pushes give the same events on every machine. A simulator is a
// loop around it:
//
//	var queue timeline.Queue[time.Duration, event]
//	queue.Push(0, begin)
//	for queue.Len() > 0 {
//		now, e := queue.Pop()
//		handle e, and push what follows from it at now or later
//	}
//
// # Two forms
//
// Queue is a binary heap. It suits runs in which tens to thousands of events are scheduled, over
// spans from microseconds to seconds: package sim and package sim/fabric.
//
// Wheel gives the same order. It puts a wheel of slots in front of a Queue, so that an event of the
// next 4 ms costs the same however many are scheduled. It suits package sim/network, where hundreds
// of thousands of frames are under way within a few milliseconds. It is no substitute for a Queue
// in the other simulators: it takes 130 KB a run, most of their events are too late for the wheel,
// so they pass through both, and between two events it would skip many empty slots.
//
// Both keep events by value. A simulator with large events keeps those aside and pushes their
// places. Nothing is allocated once the memory has grown.
package timeline
