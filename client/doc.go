// Package client is the Go client of a ledgerd node's API. It finds a node that answers among
// several, builds, signs and submits transactions, and reads pages and streams to their end.
//
//	nodes, err := client.New([]string{"http://127.0.0.1:8080", "http://127.0.0.1:8082"}, client.Options{})
//	keyring, err := client.OpenKeyring("")
//	key, err := keyring.Load("acme")
//	status, err := nodes.Post(ctx, []client.Key{key}, ledger.Transaction{Postings: ...}, ledgerdv1.Level_LEVEL_DURABLE)
//	for account, err := range nodes.Accounts(ctx, "acme:") { ... }
//	proof, err := nodes.VerifiedProof(ctx, ledger.Hash(status.GetId()))
//
// A service with many concurrent callers uses a Sender. It signs and sends everything that its
// callers submit at once as one bundle, which takes a fraction of the time:
//
//	sender, err := nodes.NewSender(ctx, client.SenderOptions{Keys: []client.Key{key}})
//	answer, err := sender.Post(ctx, ledger.Transaction{Postings: ...})  // from any goroutine
//	caller := sender.Caller()                                           // keeps an order
//	submission, err := caller.Begin(ctx, ledger.Transaction{Postings: ...})
//	answer, err = submission.Wait(ctx)
//	err = sender.Close(ctx)                                             // waits for what is left
//
// # What always holds
//
//   - The client submits the same bytes again until their outcome is known, at the same node or
//     another: an id is executed once. It signs a transaction anew, with another nonce, only if the
//     ledger reported that the first nonce was stale. Then the transaction is known to have changed
//     nothing.
//   - Two calls of Post are two transactions, even if their content is equal, in one client or in
//     two.
//   - A Sender sends its bundles on one stream to the node that it uses (SubmitStream), and falls
//     back to unary calls at a node, or over a proxy, that carries none. If the stream breaks, only
//     bundles without an answer are looked up, or sent again.
//   - Client.Submit does the same with bundles of 16 transactions and more. A bundle without an
//     answer is sent again.
//   - A Sender asks what became of a bundle before it sends the same bytes again, and keeps the
//     order of each Caller, whatever fails. What it holds is bounded.
//   - Retries are bounded, wait longer each time, and end with the context. If no node can be
//     reached the first time, the call fails at once.
//   - Errors are sentences for people: a Failure (an error that a node returned) or ErrUnreachable
//     (no node answered).
package client
