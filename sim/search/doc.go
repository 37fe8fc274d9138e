// Package search checks a small group exhaustively. It visits every state that the group can reach,
// with the same engines that production runs, for every order in which frames arrive, servers
// A-broadcast and crash, and detectors err. The authors of AllConcur used the model checker TLC on
// a specification [Poke19, section 5.5.1]; this package checks the code.
//
// # What is explored
//
// engines.go has the table of the engines: AllConcur's, and the rings of package trains. A state of
// the group is the state of each server, including its engine, and the frames under way on each
// channel. From each state, each of these is a step:
//
//   - a server takes the first frame of a channel (channels are reliable and FIFO, as in the
//     papers);
//   - a server A-broadcasts its payload of a round, at any moment in the first Options.Rounds
//     rounds, or an empty message, at any moment at which its driver may;
//   - a server crashes: between two inputs, or in the middle of the sends that an input causes.
//     Then each channel gets a prefix of the frames meant for it, in all combinations;
//   - a server's detector suspects a crashed predecessor, at any moment after its last frame (P's
//     accuracy on that edge);
//   - a server sends what its engine has to send before its first input;
//   - with false suspicions, a server's detector suspects a predecessor that may be correct, at any
//     moment, and trusts it again at any later moment.
//
// A search starts once for each scenario: which servers crash, and which suspect which others
// falsely. If it visits all states, it is a proof for groups of that size, that many rounds and
// those faults. Otherwise it ends at a bound, which the result names.
//
// # What is judged
//
//	package order  integrity, total order, prefix order, set agreement and round form at every
//	               delivery; validity and (uniform) agreement if nothing is left to do
//	judge.go       accuracy: only servers that failed are removed; survival: no server halts
//	               while no more fail than the group tolerates
//	server.go      contract: no assertion of an engine fails (also the propositions of [Poke19,
//	               section 6.2.4.2]), no frame of a correct peer is refused
//	records.go     with Options.Records, what docs/design/rounds.md builds a log of rounds on
//	promises.go    with Options.Prompt, what the promises of each majority show
//	ring.go        of rings (package trains): trains and wagons in each server; and under ◇P,
//	               what any server that is left votes for
//	invariants.go  I1 to I4 of tracking digraphs, agreement of both specifications, the RTD
//	               invariant [Poke19, sections 5.5.1.2 and 5.5.2]
//
// # Why it is fast
//
// Servers are deterministic, and few of their states differ. Each state of a single server, each
// frame and each content of a channel is numbered. An engine takes an input once, and its tracking
// digraphs are checked once. From then on the step is an entry in a table. A state of the group is
// a dozen words, and the set of visited states holds 128-bit fingerprints. Two engines are equal if
// Engine.AppendState gives equal bytes, and a server is its engine plus the state of its driver.
//
// # Why nothing is missed
//
// There are four reductions, each exact.
//
// Channels into a stopped server are emptied: it takes nothing any more.
//
// A frame that changes nothing and never will (a copy of what the receiver has; flooding makes
// many) is removed from its channel as soon as it is first. That it never will is an assumption,
// which the search checks for each state that the receiver can reach from there. If the check
// fails, the assumption is withdrawn and the search begins again (outdated.go). By induction on the
// steps to the end, the omitted states show nothing new: a state of the receiver that is possible
// while the frame waits is also reached without the frame, and so is checked.
//
// Steps of different servers commute, and neither makes the other impossible: each takes from the
// heads of its own server's channels, appends to the tails of others', and reads nothing else.
// Crashes and false suspicions do not break this, since a scenario gives each server its own. In
// some states it is therefore enough to look at a set of servers, if none of them waits for a
// server outside: each channel into the set from a working server outside already holds a frame.
// Whatever the servers outside do meanwhile, the steps of the set stay the same. The set is a
// persistent set [Godefroid, Partial-Order Methods for the Verification of Concurrent Systems,
// 1996, chapter 4], and taking only its steps leads to every end that exists. (reduction.go takes
// the smallest such set.) Every run ends, since rounds with payloads are bounded, and it is equal
// to a visited run, up to the order of steps of different servers. Each server passes through the
// same states in both, and the properties depend on nothing else: a delivery stays in the state,
// and what a server breaks by itself shows in its own state.
//
// Scenarios that are the same up to the names of the servers are searched once. Names may be
// exchanged if that maps G_R, and each tree of G_U, to itself (all names for three servers), and
// engines treat names alike. A test searches all scenarios and compares. If a tree has inner
// vertices, engines forward waiting messages by ascending origin, which distinguishes names; then
// no names are exchanged.
package search
