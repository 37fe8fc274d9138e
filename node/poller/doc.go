// Package poller drives a machine over one-sided memory (protected.Machine), as package driver
// drives an engine that takes frames. Such a machine has no goroutine and no clock, and nobody
// tells it that a word of its memory has changed: it has to look.
//
//	p := poller.New(poller.Config{Host: host, Machine: replica, Drain: func() bool { ... }})
//	p.Start()
//	p.Do(func() { replica.Lead(2) }) // an input, between two polls
//	...
//	p.Stop()
//	replica.Close()
//
// A Runs has a poller for each run of a node, one after the other, as package driver's Driver has
// for engines that take frames:
//
//	runs, err := poller.NewRuns(poller.RunsConfig{Host: host, Self: self, Peers: peers,
//		NewMachine: newMachine, Source: pool, Sink: pipeline, Ended: ...})
//	err = runs.Activate(driver.Group{Run: 7 << 16, FirstRound: 1, Members: members, Shard: 5})
//	...
//	remains := runs.Freeze() // nobody writes the run's memory any more
//	...
//	runs.Close()
//
// A run begins once all of its members were met, since memory is granted to incarnations. It ends
// with the round that changes the group. Then it goes on for a moment beside the next run, for
// members that do not know yet that this round is committed, or with Freeze. Freeze takes the
// memory from the others before it reads what remains. Regions carry the number of the run, so no
// run shares memory with another.
//
// # Turns
//
// One goroutine owns the machine. In a turn it runs the inputs that wait, asks Feed for more, polls
// the machine once, makes the attachments that the machine wants, and lets Drain take what it has
// done. Attachments may wait for a peer, so each has a goroutine of its own, and its result is an
// input.
//
// # When it looks
//
// A turn with work is followed by the next one at once, and so are some turns without: most waits
// are shorter than it takes to park. Then the goroutine parks until another process writes to the
// machine's regions with Ring, an input comes, or some time is over, which is short while
// operations are under way, since completions ring for nobody. All pollers of a process yield to
// each other between turns.
//
// # What always holds
//
//   - No two methods of the machine are called at the same time, and none after Stop has returned.
//   - The time that the machine is told never runs backwards.
//   - Each Want of the machine is answered once, unless the poller stops before.
//   - Goroutines: one, one for each region, and one for each attachment under way, of which the
//     machine wants at most one for each of its ways. Stop waits for all. A run has one for its
//     source, and one while it waits for members or for its end. Close waits for all.
//   - The Sink gets the rounds of a run in order, and nothing more once Freeze has returned.
//   - At most Inputs inputs wait. Do waits for room, and no longer than the poller runs.
package poller
