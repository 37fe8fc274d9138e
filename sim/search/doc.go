// Package search proves what can be proven by looking everywhere: it visits every state that a
// small group of the very engines that production runs can get to, whatever the order in which
// frames arrive, servers A-broadcast and crash, and detectors err. The authors of AllConcur had the
// model checker TLC do this on a specification [Poke19, section 5.5.1]; here it is done on the
// code.
//
// # What is explored
//
// A state of the group is the state of each server, engine included, and what is under way on each
// channel. From each state, each of these is a step:
//
//   - a server takes the first frame of a channel (channels are reliable and FIFO, as the papers
//     have them);
//   - a server A-broadcasts its payload of a round, at any moment in the first Options.Rounds
//     rounds, or an empty message, at any moment at which its driver may;
//   - a server crashes: between two inputs, or in the middle of the sends that an input leads to;
//     then each channel gets a prefix of what was meant for it, all combinations;
//   - a server's detector suspects a crashed predecessor, at any moment after the last frame of it
//     (P's accuracy on that edge);
//   - with false suspicions, a server's detector suspects a predecessor that may be fine, at any
//     moment, and trusts it again at any later moment.
//
// A search starts once for each scenario: who crashes, and who is wrong about whom. It ends when
// all is visited, and then it is a proof for groups of that size, that many rounds and those
// faults; or at a bound, which the result names.
//
// # What is judged
//
//	package order    integrity, total order, prefix order, set agreement, round form at every delivery; validity and (uniform) agreement where nothing is left to do
//	judge.go         accuracy: only servers that failed are removed; survival: nobody halts while no more fail than the group tolerates
//	server.go        contract: no assertion of an engine fails (also the propositions of [Poke19, section 6.2.4.2]), no frame of a correct peer is refused
//	invariants.go    I1 to I4 of tracking digraphs, both specifications agree, the RTD invariant [Poke19, sections 5.5.1.2 and 5.5.2]
//
// # Why it is fast
//
// Servers are deterministic and few of their states differ: each state of a single server, each
// frame and each content of a channel is numbered, and an engine takes an input once (and its
// tracking digraphs are checked once); from then on the step is an entry in a table. A state of the
// group is a dozen words, the set of visited states holds 128-bit fingerprints. Two engines are
// equal when Engine.AppendState says so, and a server is its engine with what its driver knows.
//
// # Why nothing is lost
//
// Four reductions, each exact.
//
// Channels into a server that has stopped are emptied: it takes nothing any more.
//
// A frame that changes nothing and never will (a copy of what the receiver has; flooding makes
// many) is taken off its channel as soon as it is the first there. That it never will is an
// assumption that the search checks for each state which the receiver can get to from there; where
// it fails, it is withdrawn and the search begins again (outdated.go). No state that was left out
// could tell, by induction on the steps to the end: a state of the receiver that the frame's
// waiting would have allowed is reached without it as well, and so is checked.
//
// Steps of different servers commute, and neither makes the other impossible: each takes from the
// heads of its own server's channels, appends to the tails of others', and reads nothing else.
// Crashes and false suspicions do not break this, since a scenario gives each server its own. So a
// set of servers is enough to look at, in some state, if none of them waits for a server outside:
// if each channel into the set from a working server outside holds a frame already. Whatever those
// outside do meanwhile, the steps of the set stay the same: it is a persistent set [Godefroid,
// Partial-Order Methods for the Verification of Concurrent Systems, 1996, chapter 4], and taking
// only its steps leads to every end that there is. (reduction.go takes the smallest of the sets.)
// Every run comes to an end, since rounds with payloads are bounded, and it is equal to one that is
// visited, up to the order of steps of different servers. So each server passes through the same
// states in it, which is all that the properties look at: a delivery stays in the state, and what
// one server breaks by itself it breaks there.
//
// Scenarios that are the same up to the names of the servers are searched once. Names may be
// exchanged where that maps G_R, and each tree of G_U, to itself (all names for three servers), and
// engines treat names alike; a test searches all scenarios and compares. Where a tree has inner
// vertices, engines forward what waited by ascending origin, which tells names apart; then no names
// are exchanged.
package search
