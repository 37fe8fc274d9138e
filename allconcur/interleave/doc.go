// Package interleave keeps several rounds of an atomic broadcast in flight: k engines of package
// allconcur side by side, whose rounds are A-delivered in turns.
//
// # The story
//
// An engine of package allconcur begins a round when the round before it is complete. Where
// messages take long, servers wait most of the time: a message that just missed a round waits for
// the next one, and no round carries more than the largest message of each server. Here each of k
// engines has a round in flight. The group's rounds have consecutive numbers, from
// Config.Engine.FirstRound on. The engines take them in turns: round FirstRound + i belongs to
// engine i mod k.
//
//	engine 0   round 1 ────────>  round 4 ────────>  round 7 ...
//	engine 1       round 2 ────────>  round 5 ────────>  ...
//	engine 2           round 3 ────────>  round 6 ────────>  ...
//	A-delivered    1, 2, 3, 4, 5, 6, 7, ...
//
// Each engine is a whole atomic broadcast of its own: it has its own messages, failure
// notifications, votes, epochs and removals, and knows nothing of the others. This package does
// four things: it gives each frame to the engine whose number it has, tells every suspicion to all
// engines, A-broadcasts in the order of the rounds, and A-delivers in the order of the rounds.
//
//	config.go   what a group agrees on, and faults to plant
//	engine.go   the inputs: A-broadcasts, frames, suspicions
//	merge.go    the output: what waits for its turn, who was removed
//	status.go   the state for people and for searches
//	pace.go     when a server with much to say should A-broadcast: rounds spread over time
//
// # The rules
//
//  1. A server A-broadcasts in round r+1 only after it did so in round r. So messages of one server
//     are A-delivered in the order in which it A-broadcast them, and no engine runs ahead.
//  2. Round r is A-delivered when its engine has A-delivered it and all rounds before are
//     A-delivered. An empty round has its turn like any other.
//  3. If any engine waits for a message of this server, the next round is due, also an empty one,
//     and so on until that engine has its message (Solicited). The same holds while a message waits
//     for later rounds, of its own engine or of others (Undelivered).
//  4. A server leaves the group with the first round, in the order of all rounds, with which an
//     engine removes it. Engines remove a server in rounds of their own. From that round on, the
//     messages that other engines still have of it are left out.
//  5. Once an engine has removed a server, this server suspects it in all engines, for good.
//  6. A server that halts in one engine halts.
//  7. The epoch of an A-delivered round is one more than the number of reliable rounds that engines
//     had before: the sum of their epochs, each less one, plus one.
//
// # What always holds
//
// Whatever holds of an engine (package allconcur) holds of a group of interleaved engines:
//
//   - Total order and agreement. An engine's A-deliveries are the same sequence at all servers, as
//     far as each server has come. What this package A-delivers is a function of those sequences:
//     rules 2, 4 and 7 look at nothing else, neither at the time at which something arrived nor at
//     what is still missing. So two servers A-deliver equal rounds.
//   - Integrity. A message is in one round of one engine. Rule 4 leaves messages out and adds none.
//   - Validity. A message of a server that goes on is A-delivered by its engine, and by rule 3 the
//     rounds before it are, too. Rule 4 leaves out only messages of servers that some engine
//     removed. By rule 6 they halt.
//   - Uniformity. Each engine is uniform, so what a server A-delivered before it crashed is a
//     prefix of what the others A-deliver.
//   - No engine stands in the way of another for ever. Take the server with the least round to
//     A-broadcast in. All servers A-broadcast in the rounds before, so its engine completes them or
//     removes servers that do not take part. Then the server may A-broadcast.
//   - Bounded memory. By rule 1, engines are at most one round apart in what this server
//     A-broadcast. So at most four rounds of an engine wait for their turn here.
//
// With k = 1 the output is that of the one engine, frame by frame.
//
// # What does not fit
//
// Prompt delivery (allconcur.Config.Prompt) closes rounds after it A-delivers them, each engine for
// itself, and the end of an eon (Config.Change) is a round of one engine. Both are refused. A log
// of rounds and a new generation need the votes of all engines. docs/design/interleaving.md says
// what that takes.
package interleave
