// Package wire carries what nodes say to each other beside the rounds: datagrams, and requests with
// their answers.
//
// # Datagrams
//
// Datagrams share the fabric's lane "control" among the users of small, urgent messages:
// heartbeats, stored heights, the agreement on generations. The lane is separate from the bulk
// lanes, so a heartbeat never waits behind a megabyte of transactions.
//
// A datagram is one byte of kind and a payload. A kind has one handler:
//
//	d, err := wire.NewDatagrams(host, logger)
//	err = d.Register(wire.KindHeartbeat, func(from rdmanet.Peer, payload []byte) { ... })
//	err = d.Send(peer, wire.KindHeartbeat, payload)
//
// What always holds: Send never blocks. Datagrams of one sender arrive in order. Datagrams may be
// lost when a peer's window is full, when it restarts, or when it has no handler yet. A user that
// needs more repeats its messages, as all users do.
//
// # Requests
//
// Requests serve packages catchup and calls. Each of them has a lane. A request has a kind, a head
// and a body; its answer is a stream of chunks with an end, or an error. A service decides what
// they mean.
//
//	x, err := wire.New(wire.Config{Host: host, Lane: "blocks", Admit: isMember, Serve: serve})
//	asked := x.Ask(peer, wire.Request{Head: head, Deadline: deadline, AnswerMax: max, Wake: wake})
//	for now := asked.Progress(); !now.Whole && now.Err == nil; now = asked.Progress() {
//		<-wake // or the deadline
//		for chunk, ok := asked.Next(); ok; chunk, ok = asked.Next() { ... }
//	}
//	asked.Close()
//	x.Close() // before the host
//
//	func serve(ctx context.Context, request *wire.Served) error {
//		err := request.Send(chunk) // waits for room on the lane
//		return request.End(last)
//	}
//
// What always holds:
//
//   - The receive function never blocks, so one lane carries requests and answers, and two nodes
//     that ask each other do not wait in a circle. There are no windows besides the lane's. The
//     asker says how large an answer may be, and has room for all of it.
//   - Memory is bounded. A server runs ServingPerPeer requests of one peer and ServingMax in all.
//     It has the memory of their bodies in Serving. Requests beyond that are answered with Busy at
//     once. An asker has the memory of answers in several chunks in Arriving. Every length is
//     checked before anything is kept.
//   - An answer has no gaps. Chunks are numbered, and go over one lane object. An answer ends with
//     an error if a chunk is missing, too large, or lost with its lane.
//   - Only peers that Admit knows are served, and only the peer that was asked can answer.
//   - Each handler has a goroutine, which also sends the answer. Its context ends at the request's
//     deadline, when the asker gives up or restarts, and with Close. So a peer that takes no answer
//     holds its own places, until its deadlines. A request that does not fit the lane at once has a
//     goroutine at the asker.
//   - While a request is served its asker gets signs: the first one after 100 ms, then every
//     500 ms. So the asker can distinguish long work from a peer that hangs. One goroutine sends
//     the signs, and rests while nothing is served. Close waits for all goroutines.
//
// # Frames
//
// Frames are little-endian. The first byte is the kind. Then follows the request's id (8), which
// the asker chooses and never uses again, even after a restart (a sign has several ids).
//
//   - A request (1): its kind (1), the milliseconds that are left (4), the body's length (4), the
//     head's length (4), the head, the body's beginning.
//   - A part (2) has more of the body: the offset (4), bytes.
//   - A cancel (3) has the id only.
//   - A chunk (4) of an answer, and the last chunk (5): its number (4), bytes. Only the last one
//     may be empty.
//   - A failure (6) ends an answer with a reason in words.
//   - A sign (7): the ids of the receiver's requests that the sender works on.
//
// docs/design/traffic.md compares this with HTTP/2 over lanes.
package wire
