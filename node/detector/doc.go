// Package detector is the failure detector of [Poke19, section 5.2.1.1]. Every server sends
// heartbeats to its successors in the reliable digraph G_R. It suspects a predecessor that is
// silent for a timeout.
//
// A server is suspected when
//
//   - its heartbeats have not come for a timeout, which adapts to the gaps between them and to past
//     mistakes (link.go), from Timeout up to TimeoutMax;
//   - its connection is down and has not come back for Grace, which adapts, too;
//   - its machine refuses connections, or a lane to it other than the group's broke. So a killed
//     process is noticed within milliseconds if the fabric reports it, and otherwise after Grace.
//     Only a machine or a cable that vanishes takes the timeout.
//
// All of these can be wrong. A later heartbeat of the same incarnation, with its connection up,
// takes the suspicion back (Config.Trust). So the detector is eventually perfect, ◇P [Chandra and
// Toueg, JACM 43(2), 1996]. Without Config.Trust no suspicion is taken back. These suspicions are
// never taken back in the same run:
//
//   - The server came back as a new incarnation: it has forgotten its rounds.
//   - Messages between the two are lost: this server's lane to it, Config.Lane, broke for good or
//     was given up (Lost), or it reports that its lane to this server did.
//   - Another server that lost its lane to it reports this (an accusation). The unreliable digraph
//     G_U has edges that G_R has not, and only the successors of a server in G_R may suspect it. A
//     server that loses a lane over another edge tells one of these successors, the first that is
//     left. One suspicion makes rounds reliable, so the lane is no longer needed. The accused
//     server stays in the group if it is alive.
//
// A server that lost its lane to another server stops sending it heartbeats of this run. So the
// other side suspects it as well, at the latest because of its silence.
//
// Heartbeats carry the number of their run. Heartbeats of another eon of the same generation are
// signs of life, too, since servers end an eon at different times. A server that will take part in
// a later eon can send heartbeats for it before it begins (Prepare), for example while it fetches
// what it lacks.
//
// While nothing is under way at a server, which Config.Quiet reports, its heartbeats come every
// Timing.Quiet. A heartbeat says when the next one comes at the latest, and that long counts on top
// of what heartbeats may be late. So a machine that vanishes then is noticed as much later as its
// next heartbeat was to come. With traffic, heartbeats come every Timing.Heartbeat again at once
// (Detector.Hurry).
//
// Timers measure this process, too. If it was stopped for longer than a heartbeat, its
// predecessors' heartbeats wait unread. So a jump of the clock counts as a pause of this process,
// and every predecessor gets a fresh Timeout.
//
// Machine is the state machine, without clock, goroutine or fabric. Detector drives it over
// node/wire. Heartbeats can carry a few bytes of data that is sent regularly, such as the stored
// height.
package detector
