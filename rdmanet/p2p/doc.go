// Package p2p is the fabric between machines: go-libp2p over TCP, with Noise for authentication and encryption and yamux for
// streams, and nothing else of libp2p: no relay, no NAT traversal, no discovery, no ping.
//
// # Who gets in
//
// The member set is given, identity and address of each, and can be replaced while the host runs. A connection gater refuses
// everybody else, inbound as soon as the Noise handshake has proved who calls, outbound before dialling. Members are protected in the
// connection manager; the resource manager's limits are sized for the member set, and none is per address, so that hundreds of members
// can live behind one.
//
// # Lanes
//
// A lane is a libp2p stream that its sender opens and keeps open. Lanes of different names are streams of their own, so
// that bulk is apart from control; lanes in both directions and of all names share the connection. On a stream:
//
//	sender                                    receiver
//	hello: lane, both incarnations,
//	       opening, what was lost before  ->
//	                                      <-  answer: status, incarnation, next wanted, delivered
//	batch: first number, lengths, frames  ->
//	batch ...                             <-  acknowledgement: delivered up to; also sent as a sign of life
//	                                      <-  goodbye: this incarnation closes
//
// When the stream breaks, the sender opens another one, with growing pauses, and goes on where the answer says. An opening is one Lane of the
// program: what an opening gave up is never sent again, and the next opening tells how much that was. The receiver serves one
// stream per lane, the newest; it counts a frame as wanted no more when it is about to call the receive function, and as delivered when that
// has returned, so a reconnect in the middle of a slow receive call neither repeats nor skips a frame.
//
// The sender hears an acknowledgement at least every quarter of the mend timeout. After half of it in silence it takes the connection for broken,
// after all of it without a sign of life the lane breaks.
//
// # Bytes
//
// The sender copies small frames into one contiguous batch (up to 256 KiB) and writes it at once; large frames are written from where they are. The
// receiver reads a batch's frames into one buffer and hands out parts of it. Sizes fit together: a yamux message is as large as one
// Noise segment can carry.
//
// Whatever a peer sends that does not decode, skips a number or breaks a bound ends its stream with an error in the log.
package p2p
