// Package p2p is the fabric between machines. It uses go-libp2p over TCP, with Noise for
// authentication and encryption and yamux for streams. It uses nothing else of libp2p: no relay, no
// NAT traversal, no discovery, no ping. libp2p is the control plane. The lanes' data goes over
// separate connections.
//
// # Admission
//
// The operator gives the member set, with the identity and address of each member. It can be
// replaced while the host runs. Nothing reaches libp2p before its caller has proved to be a member:
// a connection begins with a pass, the signature of a challenge. Each member has its own slots, so
// neither strangers nor other members can take them. Strangers share a bounded number of places for
// unidentified callers, for ten seconds each. A connection gater checks the identities again after
// the Noise handshake, and before dialling. Members are protected in the connection manager. The
// resource manager's limits are sized for the member set. No limit of members is per address, so
// hundreds of them can share one.
//
// A stranger may hand one message to the host's program, an introduction of at most half a MiB, and
// gets a short answer (Host.Introduced, Host.Introduce). The program decides before anything is
// read whether the stranger's address may speak. At most 16 strangers speak at a time; one more
// ends the oldest of the address that has the most. The bytes are plain, and prove nobody's
// identity.
//
// # Lanes
//
// Each lane is a TCP connection of its own, a direct connection. So bulk is separate from control,
// no frame passes through a multiplexer, and a frame meets only one goroutine at each end. The
// right to a direct connection is negotiated on a stream of libp2p, whose ends have proved their
// identities:
//
//	sender                                    receiver
//	hello: lane, both incarnations,
//	       opening, frames lost before    ->
//	                                      <-  answer: status, incarnation, next wanted, delivered
//	ticket, from the end that accepted libp2p's connection
//
// The other end dials the address that libp2p's connection leads to and shows the ticket's token.
// So direct connections need no port, address or permission beyond those of libp2p. A token admits
// one connection, and only while the receiver waits for it. On the direct connection follow:
//
//	batch: first number, lengths, frames  ->
//	batch ...                             <-  acknowledgement: delivered up to;
//	                                          also sent as a sign of life
//	                                      <-  goodbye: this incarnation closes
//
// Package rdmanet/internal/lane implements the protocol: numbering, resending, giving up, and the
// acknowledgements owed at a close. This package makes its connections.
//
// An acknowledgement waits for more frames, for 5 ms on a quiet lane and up to an eighth of the
// mend timeout while frames keep coming, unless 2 MiB or a quarter of the window wait for it. Once
// no frame has come for 80 ms, it leaves. Without frames, the sender gets one every quarter of the
// mend timeout. After half of it in silence it treats the connection as broken. After all of it
// without a sign of life the lane breaks. A goodbye carries the last acknowledgement. So does the
// answer that refuses a hello because the host is closing.
//
// # The poller
//
// On Linux one goroutine of a host, the poller, reads the connections of all lanes with prompt
// receivers (ReceivePrompt). It takes these connections out of the Go runtime's epoll and puts them
// into one of its own, level-triggered, and waits in the runtime for that one. So whatever arrives
// wakes one goroutine, and none hands over to another:
//
//	look: which connections can be read?
//	for each of them: read into a slab, open records, cut batches into frames, TryReceive
//	Turn, once for all of them; what it sends is written at once as far as sockets take it
//
// The poller never waits but for epoll, so lanes do not wait for each other. It waits once it has
// read everything that had arrived, without another look: the runtime then learns only of more. Of
// one connection it reads at most 512 KiB at a time. If a receiver takes only a part of a batch,
// the connection leaves the poller's epoll: its own goroutine gives the rest to Receive, which may
// wait, and then returns it. The same happens to the first frames after a loss, since watchers are
// told of that, and to frames that meet an earlier connection of their lane in the middle of
// Receive. A connection belongs either to the poller or to its goroutine, and only the latter
// closes it.
//
// The poller's system calls do not wait, and are made without telling Go's scheduler, which would
// treat each as a wait. It sends urgent acknowledgements itself. One that the kernel does not take
// goes with the next one.
//
// Other systems have no poller, nor has a host with Options.NoPoller. Then one goroutine reads each
// lane, as it does for all other receivers.
//
// # Regions
//
// One-sided memory is implemented in software here. An agent at the owner performs incoming
// operations, one agent for each peer, whether or not the owner's program takes part. All
// operations of a host on one peer's regions go over one link, a direct connection. It is made like
// a lane's, after a hello of its own protocol:
//
//	attaching host                            owner's agent
//	hello: both incarnations, opening      ->
//	                                       <-  answer: status, incarnation;
//	                                           then the ticket, from either end
//	attach: number, region's name          ->
//	                                       <-  done: size, permission; or no access,
//	                                           no such region, too many
//	write: number, offset, length, bytes   ->
//	read: number, offset, length           ->
//	                                       <-  done, for all with the same outcome; a read's bytes
//	detach: number                         ->
//
// Requests are performed and answered in their order, so operations complete in the order of
// posting, over all attachments to the peer. Operations posted while the connection is busy are
// sent together, and so are answers that are ready together. Operations of more than 256 KiB are
// split into pieces, cut between words: writes from the first piece to the last, reads from the
// last to the first. So the order of bytes holds over all pieces. A write is applied as it arrives,
// in parts that are also cut between words. The agent waits for the network only outside the fence,
// so a permission change does not wait for the network. Answers are sent before the agent waits,
// and after every 512 KiB if it does not wait.
//
// When a connection breaks, the attaching host cannot know which operations have landed, so it
// sends nothing again. All operations under way and every attachment end: with ErrReset if another
// incarnation answers, with ErrUnreachable otherwise. The operation timeout is the mend timeout. It
// restarts with each answer, so a long queue behind a slow network does not time out. A new
// connection of a peer is welcomed only once no operation of its earlier one can land any more.
//
// For each peer the owner holds an input buffer of 128 KiB, up to 384 KiB of answers, the buffers
// that seal the connection, and at most 1,024 working attachments. The attaching host holds an
// entry and up to 128 bytes of each operation. Longer writes are sent without copying, together
// with their headers in one call. Read data arrives directly in its destination.
//
// # Encryption
//
// The ticket also carries a secret. From it both ends derive a key for each direction. Everything
// that follows the token is sealed with AES-256-GCM, in records of at most 64 KiB that are numbered
// by their nonces. An attacker on the network can neither read, change, omit nor repeat a byte of a
// lane. It can only end the lane. The secret itself crosses the network under libp2p's Noise, and
// serves one connection.
//
// On a trusted network (Options.Trusted, the fabric p2p-trusted) there is no secret, and bytes go
// over the direct connection in plain text. The identities of the ends are still proved, but an
// attacker that can write into the network's packets can forge frames. All members must have the
// same setting. A hello with another setting gets a refusal that names it.
//
// # Within a machine
//
// On Linux, with Options.Local besides Trusted (the fabric shm), the end that shows a ticket
// first looks for the peer within the machine: under a name of a UNIX socket that has the peer's
// identity and the port. If nobody has that name, or its owner belongs to another user or does not
// take the token, the end dials TCP's port. Hosts of p2p-trusted have no such names, and both kinds
// work together. Everything else is the same, and libp2p's connection remains TCP's. A name is only
// visible in its network namespace, and a proxy has another port. So networks that tests cut or
// slow down between namespaces or by proxies are cut and slowed down for UNIX sockets, too.
//
// The batches of a lane with a prompt receiver then pass through a ring in shared memory. The
// receiver makes it and passes it over the socket, with the bell of its poller:
//
//	receiver                                  sender
//	offer: none; or a ring, the bell,
//	       the event that wakes the poller ->
//
// The sender copies batches into the ring, as far as there is room, and then looks at the bell. If
// that says that the poller waits, the sender raises the event. The poller copies what all its
// rings have, takes its turns, sets the bell, looks at all rings once more, and waits. Whichever of
// the two looks second sees what the other one did first, so the poller hears of every batch. The
// socket still carries acknowledgements. Its end is the end of the connection, once the ring is
// empty. Each end keeps its own position and checks the other's, and the memory is sealed against
// shrinking. But a host of shm trusts all processes of its user in its network namespace:
// they can stop its lanes, or pass for a member.
//
// # The port
//
// libp2p, direct connections and introductions share one port. Their first bytes distinguish them.
// A connection has ten seconds to show a pass, a token or an introduction. At most 256 connections
// may be in that state, and at most an eighth of the files that the process may open; one more
// closes the oldest of the address that has the most. An unknown token closes its connection at
// once. A host holds one direct connection for each lane to and from a member, beside libp2p's one
// for the member.
//
// # Bytes
//
// The sender copies small frames into one contiguous batch (up to 256 KiB), takes large ones
// without copying, and passes both to the kernel in one call. A batch that finds its lane idle is
// written by the goroutine that called TrySend, as far as the kernel takes it at once; the lane's
// goroutine writes the rest. A batch of more than 128 KiB that has to be sealed is left to that
// goroutine. The receiver reads a batch's frames, or opens their records, directly into one new
// buffer and hands out parts of it. It copies no received byte, but for the part of a batch that
// the end of the poller's buffer cuts off. Allocating new memory is then the largest cost. There
// are two ways to use the same memory again. A receiver that keeps no frames can have them lent
// until it returns (Host.ReceiveLent). A prompt receiver can have them lent until it releases them
// (PromptReceiver.TryReceiveLent). With Options.Poison released memory is overwritten, so that
// programs that read it later fail.
//
// A message that does not decode, skips a number or exceeds a bound ends its stream or connection,
// with an error in the log.
package p2p
