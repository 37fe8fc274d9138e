// Package client is the Go client of a ledgerd node's API: it finds a node that answers among
// several, builds, signs and submits transactions, and reads pages and streams to their end.
//
//	nodes, err := client.New([]string{"http://127.0.0.1:8080", "http://127.0.0.1:8082"}, client.Options{})
//	keyring, err := client.OpenKeyring("")
//	key, err := keyring.Load("acme")
//	status, err := nodes.Post(ctx, []client.Key{key}, ledger.Transaction{Postings: ...}, ledgerdv1.Level_LEVEL_DURABLE)
//	for account, err := range nodes.Accounts(ctx, "acme:") { ... }
//
// # What always holds
//
//   - The same bytes are submitted again until their outcome is known, at the same node or another:
//     an id is executed once. A transaction is signed anew, with another nonce, only when the
//     ledger said that the first nonce was stale, that is, when it is known to have changed
//     nothing.
//   - Two calls of Post are two transactions, though they say the same, in one client and in two.
//   - Retries are bounded, wait longer each time, and end with the context. Where no node can be
//     reached the first time, the call fails at once.
//   - Errors are sentences for people: a Failure (what a node said) or ErrUnreachable (nobody
//     answered).
package client
