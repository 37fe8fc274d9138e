// Package calls carries a node's calls to the members of other shards: HTTP requests and answers,
// and so Connect's unary RPCs, over the fabric's lane "calls". So a node needs neither the API
// addresses nor the certificates of the others, and only members get in.
//
//	c, err := calls.New(calls.Config{Host: host, Find: find, Candidates: directory.Candidates, Serve: server.Forwarded()})
//	client := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: c.Transport(shard)}, calls.URL(shard))
//	answer, err := client.GetAccount(ctx, request) // by some member of that shard, before ctx's deadline
//	c.Close()                                      // before the host
//
// # Who answers
//
// A call is asked of the shard's candidates, in the directory's order, those that did not answer
// lately last, each at most once:
//
//   - The next one is asked as soon as none of those that were asked shows that it works on the
//     call. A member shows that with small signs: the first one 100 ms after it got the request,
//     then every 500 ms until it answers. So a call may take long (WaitTransaction, Submit that
//     waits), and a member that hangs is still found out after Silence (2 s; a third of the time
//     that the caller has, where that is less, but not below 300 ms), or at once where the fabric
//     says that it is gone.
//   - The first answer wins; the others are told to stop. An answer of 503 with "Ledgerd-Retry:
//     true" is no answer as long as another member can be asked; it is the call's answer when
//     nobody has a better one.
//   - A member that was silent for GiveUp (10 s) counts as lost. When all are lost the call ends
//     with ErrUnanswered, which names the shard (what each did is in the debug log); nothing goes
//     on beyond the caller's deadline, or TimeoutMax (60 s) where it has none or a later one.
//
// A decision: EVERY call may be repeated at another member, also one that may have been carried out
// already. This is right for all of ledgerd's calls. Most only read. Submit and SubmitMany are
// idempotent by the transaction's id: a bundle that is in the pools of two members is in the chain
// once, and the second answer is of the same transaction. A call that could not bear it must not be
// served here.
//
// # What always holds
//
//   - Only peers that Find knows are served, and only who was asked can answer. Every frame is
//     checked against its bounds before anything is kept of it.
//   - A serving node runs at most ServingPerPeer calls of one peer and ServingMax in all, with
//     MemoryMax bytes of bodies; what is over that is answered with 503 and retry, at once. A
//     caller has at most AskingMax calls under way, and MemoryMax bytes of answers that come in
//     pieces.
//   - A request's and an answer's body has at most BodyMax bytes. Streams (Connect's streaming
//     RPCs, gRPC) are refused with ErrNotCarried.
//   - The receive function never blocks. A handler has a goroutine of its own, which also sends the
//     answer; its context ends with the call's deadline, when the caller lost interest, when the
//     caller's process is another one, and with Close. One goroutine sends the signs, and rests
//     while nothing is served. Close waits for all of them.
//
// # Frames
//
// Little-endian; the first byte is the kind, then comes the call's id (8), chosen by the caller and
// unique in all of its lives (signs have several). A request (1): the milliseconds that are left
// (4), the body's length (4), the head's length (4), the head, the body's beginning. An answer (4):
// the status (2), the body's length (4), the head's length (4), the head, the body's beginning.
// What does not fit follows in parts (2 of a request, 5 of an answer): the offset (4), bytes. A
// cancel (3) has the id only. A sign (6): the ids of calls of the receiver that the sender works
// on. A request's head: the method (its length (1), text), the target (2), and the headers; an
// answer's: the headers: their number (2), for each name (2) and value (2).
package calls
