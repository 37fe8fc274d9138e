// Package catchup lets a node fetch the blocks that it lacks from its peers, and serve those that
// it has, over the fabric's lane "blocks".
//
// A node holds a Point, a height and the hash of its block there, and asks one peer for what
// follows it, piece by piece:
//
//	exchange, err := catchup.New(catchup.Config{Host: host, Peers: members, Chain: current})
//	after := catchup.Point{Height: head.Height, Hash: head.Hash}
//	err = exchange.Fetch(ctx, peer, after, to, func(block *ledger.Block) error { return store.Append(block) })
//	switch {
//	case err == nil:                            // every block up to `to` was added
//	case errors.Is(err, catchup.ErrBehind):     // this peer has no more; what it had was added
//	case errors.Is(err, catchup.ErrFork):       // this peer has another chain; errors.As a *catchup.ForkError tells its block
//	case errors.Is(err, catchup.ErrAbsent):     // this peer began with a snapshot, and has no blocks so old
//	case errors.Is(err, catchup.ErrUnavailable): // ask somebody else, or later
//	}
//
// What always holds:
//
//   - Nothing is believed. A block is decoded, which checks all its roots, and must have the height
//     and the previous hash that follow the block before, down to the caller's point, before the
//     caller sees it. Whether the chain is the one that the members decided is for the caller to
//     know; so are the signatures (ledger.VerifySignatures).
//   - Every request says the whole of what it wants, so that the server keeps nothing between two,
//     and the store that it serves from may be exchanged at any time: the next request then shows
//     the fork.
//   - A Fetch has one piece under way, a node at most SlotsPerPeer with one peer, and a server
//     queues no more than that of one peer's requests; what is over that is answered with "busy". A
//     server never waits for room on a lane: an answer that does not fit is dropped. So a peer that
//     asks much and reads slowly harms itself only.
//   - Blocks larger than a piece travel in parts: the request tells the offset in the encoded
//     block. A server keeps the encoding of one such block.
//   - What a server cannot read it does not serve: the answer is a reason.
//   - The server's goroutines are a fixed number, and Close waits for them. Fetch has none of its
//     own.
//
// The same lane gives out contents by their sha256: the rounds that a group goes on with which no
// block holds yet (FetchContent). They travel in parts, and are checked against the hash.
//
// Frames are little-endian. A request: 1 (1 byte), its id (8), the point's height (8) and hash
// (32), the last height wanted (8), the offset in the first block (8), the most blocks (4) and
// bytes (4) in a piece. A request for contents: 3 (1 byte), its id (8), the hash (32), the offset
// (8), the most bytes (4) in a piece; it is answered by a part or a reason. An answer: 2 (1 byte),
// the request's id (8), a status (1), the server's height (8), and by status the blocks (their
// number (4), then for each its length (4) and encoding), a part (the length of the whole (8), the
// offset (8), bytes), the server's point (height (8), hash (32)) for a fork, the height up to which
// blocks are absent (8), or a reason in words for unavailable.
package catchup
