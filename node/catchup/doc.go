// Package catchup lets a node fetch the blocks that it lacks from its peers, and serve those that
// it has, as requests of package wire on the fabric's lane "blocks".
//
// A node holds a Point, a height and the hash of its block there. It asks one peer for the blocks
// that follow it, piece by piece:
//
//	exchange, err := catchup.New(catchup.Config{Host: host, Peers: members, Chain: current})
//	after := catchup.Point{Height: head.Height, Hash: head.Hash}
//	err = exchange.Fetch(ctx, peer, after, to, func(block *ledger.Block) error { return store.Append(block) })
//	switch {
//	case err == nil:                            // every block up to `to` was added
//	case errors.Is(err, catchup.ErrBehind):     // this peer has no more blocks; those that it had were added
//	case errors.Is(err, catchup.ErrFork):       // this peer has another chain; errors.As gives a *catchup.ForkError with its block
//	case errors.Is(err, catchup.ErrAbsent):     // this peer began with a snapshot, and has no blocks so old
//	case errors.Is(err, catchup.ErrUnavailable): // ask another peer, or later
//	}
//
// What always holds:
//
//   - Answers are not trusted. A block is decoded, which checks all its roots. Its height and
//     previous hash must follow the block before, down to the caller's point, before the caller
//     sees it. The caller checks whether the chain is the one that the members decided. The
//     store verifies the signatures (store.Append).
//   - Every request is complete in itself, so the server keeps no state between requests. The store
//     that it serves from may be replaced at any time: the next request then detects the fork.
//   - A Fetch has one piece under way, and a node at most SlotsPerPeer with one peer. A piece
//     arrives in chunks of whole blocks, and the caller sees the first blocks while later ones
//     travel. The server reads two pieces at a time, and not while it sends. Requests too many are
//     answered with "busy". A peer that asks much and reads slowly therefore harms only itself.
//   - Blocks larger than a piece travel in parts: the request gives the offset in the encoded
//     block. A server keeps the encoding of one such block.
//   - A server never serves a block that it cannot read. It answers with a reason.
//   - Each request that is served has a goroutine, and Close waits for them. Fetch starts none.
//
// The same lane also serves contents by their sha256 (FetchContent): the rounds with which a group
// continues and which no block holds yet. They travel in parts, and are checked against the hash.
//
// # Messages
//
// Messages are little-endian. Requests are heads of package wire's requests, and have no body.
//
//   - A request (kind 1): the point's height (8) and hash (32), the last height wanted (8), the
//     offset in the first block (8), the maximum number of blocks (4) and of bytes (4) in a piece.
//   - A request for contents (kind 2): the hash (32), the offset (8), the maximum bytes (4) in a
//     piece. The answer is a part or a reason.
//   - A request for certificates (kind 3): the height above which they are wanted (8), the maximum
//     bytes (4). The answer is one part, a reason, or "no more". The part has each certificate
//     after its length (uvarint). They are decoded here and verified by the caller (package
//     certification, store.PutCertificate).
//   - An answer is one chunk: a status (1), the server's height (8), and, depending on the status:
//     the blocks (their number (4), the length of each (4), their encodings); a part (the length of
//     the whole (8), the offset (8), bytes); the server's point (height (8), hash (32)) for a fork;
//     the height up to which blocks are absent (8); or a reason in words for unavailable. After
//     blocks may come further chunks of that status, up to the limits of the request.
package catchup
