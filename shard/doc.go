// Package shard is the life of one member of a shard, as a pure state machine. It decides how the
// member takes part in forming generations (package allconcur/generation), which runs it enters,
// and when it follows the others, falls back or leaves. It also decides what the member may
// promise, vote, forget and set aside. A node and the simulator run this same machine. Only the
// driver around it differs.
//
// # The loop that drives it
//
//	member, err := shard.New(config)
//	for {
//		select one input, and member.Step(input)
//		for effects := member.Ready(); len(effects) > 0; effects = member.Ready() {
//			for each effect, in order: carry it out; if it is quick and has an answer, Step it
//		}
//	}
//
// A driver must keep the order of effects. A crash may come between any two of them.
//
// # A life
//
//	forming.go       the next generation: the synod's messages, what is saved, how a decision
//	                 becomes an engine
//	waiting.go       why no generation is formed
//	group.go         the run that the member works in: its start, its end and its progress
//	eons.go          the members of the next eon
//	following.go     which chain a member without a group follows, and how it enters a group
//	admission.go     learners: disks that count in no majority until the chain admits them
//	falling_back.go  sets aside blocks that the majority goes on without
//	hearing.go       what the members announce
//	leaving.go       the end of a removed member
//	durability.go    which blocks a majority of the disks holds
//
// # What always holds
//
//   - A run's engine starts only after the disk holds that this member takes part in the run, and
//     holds all blocks up to the run's base. A process starts the engine of a run at most once, and
//     only if everything sent in the run reaches this same process.
//   - All members of a run have the engine that the chain names at the run's base, whatever their
//     settings say. A change of the engine ends its run as a change of the membership does.
//   - A member that promised a later generation delivers nothing more in an earlier one. Freeze
//     comes before the promise, and the promise reports what the engine had voted for.
//   - A message that depends on the disk is sent after the disk has it: Save is answered first.
//   - A block at or below a height that is known to be durable is never set aside. A decision that
//     asks for it ends the member with ErrFork.
//   - A learner starts no engine and proposes no generation. It asks a member for its admission
//     only when its disk holds everything that this member knows to be durable.
//   - At most one effect at a time changes the chain.
//
// Sources: [Poke19, sections 6.3 and 6.4] for eons and the eventually perfect detector; Lamport,
// The Part-Time Parliament, for the synod; Alagappan et al., Protocol-Aware Recovery, FAST 2018,
// for disks that forget.
package shard
