// Package p2p is the fabric between machines: go-libp2p over TCP, with Noise for authentication and
// encryption and yamux for streams, and nothing else of libp2p: no relay, no NAT traversal, no
// discovery, no ping. libp2p is the control plane; what lanes carry goes over connections beside
// it.
//
// # Who gets in
//
// The member set is given, identity and address of each, and can be replaced while the host runs. A
// connection gater refuses everybody else, inbound as soon as the Noise handshake has proved who
// calls, outbound before dialling. Members are protected in the connection manager; the resource
// manager's limits are sized for the member set, and none is per address, so that hundreds of
// members can live behind one.
//
// # Lanes
//
// A lane is a TCP connection of its own, a direct connection, so that bulk is apart from control,
// no frame passes through a multiplexer, and one goroutine at each end is all that a frame meets.
// Who may have it is settled on a stream of libp2p, between ends that have proved who they are:
//
//	sender                                    receiver
//	hello: lane, both incarnations,
//	       opening, what was lost before  ->
//	                                      <-  answer: status, incarnation, next wanted, delivered
//	ticket, from whichever of the two accepted libp2p's connection
//
// The other one dials the address that libp2p's connection leads to and shows the ticket's token,
// so direct connections need no port, no address and no permission that libp2p has not got already.
// A token admits one connection, at that time only. Then, on the direct connection:
//
//	batch: first number, lengths, frames  ->
//	batch ...                             <-  acknowledgement: delivered up to; also sent as a sign of life
//	                                      <-  goodbye: this incarnation closes
//
// The protocol, what is numbered, sent again, given up and owed at a close, is package
// rdmanet/internal/lane's; this package makes its connections.
//
// The sender hears an acknowledgement at least every quarter of the mend timeout. After half of it
// in silence it takes the connection for broken, after all of it without a sign of life the lane
// breaks. A goodbye carries the last acknowledgement, and so does the answer that refuses a hello
// because the host closes.
//
// # Regions
//
// One-sided memory is software here: an agent at the owner performs what comes in, one for each
// peer, whether or not the owner's program takes part. All that a host does in one peer's regions
// goes over one link, a direct connection that is made as lanes' are, after a hello of the
// protocol's own:
//
//	attaching host                            owner's agent
//	hello: both incarnations, opening      ->
//	                                       <-  answer: status, incarnation; then the ticket, from whichever of the two it is
//	attach: number, region's name          ->
//	                                       <-  done: size, permission; or no access, no such region, too many
//	write: number, offset, length, bytes   ->
//	read: number, offset, length           ->
//	                                       <-  done, for as many as came to the same end; a read's bytes
//	detach: number                         ->
//
// Requests are performed and answered in their order, so operations complete in the order of
// posting, over all attachments to the peer. What is posted while the connection is busy goes out
// together, and answers that are there together go back together. Operations of more than 256 KiB
// go in pieces, cut between words, writes from the first to the last and reads from the last to the
// first, so that the order of bytes holds over all of them. A write is applied as it comes in, each
// part of it that is there, cut between words; the agent waits for the network outside of the fence
// only, so that a permission changes without waiting for it. Answers go out before the agent waits,
// and after every 512 KiB if it never has to.
//
// When a connection breaks, nobody knows what has landed, so nothing is sent again. All that is
// under way, and every attachment, ends: with ErrReset if another incarnation answers, with
// ErrUnreachable otherwise. The operation timeout is the mend timeout; it runs anew with each
// answer, so that a long queue behind a slow wire does not break by its length. A new connection of
// a peer is welcomed only once nothing of its earlier one lands any more.
//
// For each peer the owner holds a buffer of 128 KiB for what comes in, up to 384 KiB of answers,
// what seals the connection, and at most 1,024 attachments that work. The attaching host holds an
// entry and up to 128 bytes of each operation; longer writes go out from where they are, together
// with their headers in one call, and what is read comes in right to where it is wanted.
//
// # What is on the wire
//
// The ticket carries a secret too. From it both ends derive a key for each direction, and all that
// follows the token is sealed with AES-256-GCM, in records of at most 64 KiB that are numbered by
// their nonces: whoever is on the wire can neither read, change, leave out nor repeat a byte of a
// lane, only end it. The secret itself has crossed the wire under libp2p's Noise, and serves one
// connection.
//
// On a trusted network (Options.Trusted, the fabric p2p-trusted) there is no secret, and bytes go
// over the direct connection as they are. Who the ends are is proved as ever; whoever can write
// into the network's packets can then forge frames. Members have to agree: the answer to a hello
// with another setting is a refusal that names it.
//
// # The port
//
// libp2p and direct connections share it; their first bytes tell them apart. A connection has ten
// seconds to show whether it is libp2p's or to show a token, 256 of them may be at that, and one
// more closes the oldest. A token that is not awaited closes its connection at once. A host holds
// one direct connection for each lane to and from a member, beside libp2p's one for the member.
//
// # Bytes
//
// The sender copies small frames into one contiguous batch (up to 256 KiB), takes large ones from
// where they are, and hands both to the system in one call. The receiver reads a batch's frames, or
// opens their records, right into one new buffer and hands out parts of it: a received byte is
// copied by nobody. New memory is then what costs most: a receiver that keeps no frames can have
// them lent (Host.ReceiveLent) and gets them in the same memory again and again.
//
// Whatever a peer sends that does not decode, skips a number or breaks a bound ends its stream or
// connection with an error in the log.
package p2p
