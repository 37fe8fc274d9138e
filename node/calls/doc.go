// Package calls carries a node's calls to the members of other shards, as requests of package wire
// on the fabric's lane "calls". The calls are HTTP requests and answers, which include Connect's
// unary RPCs. A node therefore needs neither the API addresses nor the certificates of the others,
// and only members can call.
//
//	c, err := calls.New(calls.Config{Host: host, Find: find, Candidates: directory.Candidates, Serve: server.Forwarded()})
//	client := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: c.Transport(shard)}, calls.URL(shard))
//	answer, err := client.GetAccount(ctx, request) // by some member of that shard, before ctx's deadline
//	c.Close()                                      // before the host
//
// # Which member answers
//
// A call goes to the shard's candidates one after the other, in the directory's order. Members that
// did not answer lately come last. Each member is asked at most once:
//
//   - The next member is asked as soon as no earlier member shows that it works on the call. A
//     member shows that with small signs: the first one 100 ms after it got the request, then every
//     500 ms until it answers. So a call may take long (WaitTransaction, Submit that waits), but a
//     member that hangs is still detected: after Silence (2 s; a third of the caller's remaining
//     time if that is less, but at least 300 ms), or at once if the fabric reports that it is gone.
//   - The first answer wins; the other members are told to stop. An answer of 503 with
//     "Ledgerd-Retry: true" does not count while another member can be asked. It becomes the call's
//     answer if no member has a better one. If another member was asked and has not answered, the
//     answer has "Ledgerd-Unsure: true": a refusal then does not mean that nothing was carried out.
//   - A member that was silent for GiveUp (10 s) counts as lost. When all are lost the call ends
//     with ErrUnanswered, which names the shard; the debug log has what each member did. No call
//     outlives the caller's deadline or TimeoutMax (60 s), whichever is earlier.
//
// A design decision: EVERY call may be repeated at another member, even if it may have been carried
// out already. This is right for all of ledgerd's calls. Most only read. Submit and SubmitMany are
// idempotent by the transaction's id: a bundle in the pools of two members is in the chain once,
// and the second answer is about the same transaction. A call that must not be repeated must not be
// served here.
//
// # What always holds
//
//   - Only peers that Find knows are served, and only a member that was asked can answer. Every
//     message is checked against its bounds before any of it is kept.
//   - A serving node runs at most ServingPerPeer calls of one peer and ServingMax in all, with
//     MemoryMax bytes of bodies. Excess calls get an immediate 503 with Ledgerd-Retry. A caller has
//     at most AskingMax calls under way, and MemoryMax bytes of answers that arrive in pieces.
//   - The body of a request or an answer has at most BodyMax bytes. Streams (Connect's streaming
//     RPCs, gRPC) are refused with ErrNotCarried.
//   - Each handler has its own goroutine, which also sends the answer. Its context ends with the
//     call's deadline, when the caller cancels the call, when the caller's process restarts, and
//     with Close. Close waits for all of them.
//
// # Messages
//
// Messages are little-endian.
//
//   - A request is one of package wire, of kind 1. Its head has the method (its length (1), text),
//     the target (length 2), and the headers. Its body is the call's.
//   - The first chunk of an answer has the status (2), the length of the headers (4), the headers,
//     and the beginning of the body. Further chunks have the rest.
//   - The headers are their number (2), and for each its name (length 2) and value (length 2).
package calls
