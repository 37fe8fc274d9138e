// Package api is the network front of a node. One handler on one address serves ledgerd.v1 over
// gRPC, gRPC-Web and JSON on HTTP, the health and metrics pages, and the web explorer.
//
// # How it is driven
//
//	server, err := api.New(backend, api.Options{Explorer: explorer.Handler(), Docs: docs.Handler(),
//		Registry: registry})
//	go server.Serve(listener)          // returns nil after Shutdown
//	...
//	server.Shutdown(ctx)               // ends the streams, lets the other calls finish until ctx ends
//
// The node implements Backend; everything else is here. Reads come from the node's own store and
// never wait for other nodes. Writes go through Backend.Admit, and are answered when they reach the
// wanted level.
//
// # What always holds
//
//   - A transaction reported as ordered or better can be read at once from the same node.
//   - Submitting again is safe: an id is executed once, and the second answer reports the outcome
//     of the first.
//   - Bad input gets an error with the matching Connect code and a sentence that says what to do.
//     None of it is kept. A panic in a call becomes an internal error of that call and is logged
//     with its stack. The node continues.
//   - Everything is bounded: the size of messages, the bundles of a request, the entries of a page,
//     calls per second and streams by remote address, streams in all. A stream keeps one height and
//     no queue. It reads each block from the store when its reader is ready for it. A slow reader
//     therefore costs a goroutine and nothing else, and a stuck reader is cut off.
//   - Browsers of other origins get nothing, unless Options.AllowedOrigins names them.
//
// # Several shards
//
// In a book of several shards every node answers for the whole book. Backend.Shards returns the
// tree, and clients whose calls a node of another shard answers through Server.Forwarded. A call
// takes at most one such hop.
//
//   - A query for an account, a record or a nonce goes to the home shard of its organisation.
//   - A query that names a shard goes to that shard.
//   - Lists and searches go to all shards at the same time. The answer names the shards that did
//     not reply.
//   - A bundle is admitted where it enters the tree. The node then waits for its transactions in
//     the chains of their signers' homes, which decide on them.
//   - A transaction shows its place in the chain of each shard that it concerns.
//
// The files:
//
//	route.go           routing: answers a call here, passes it on, or asks several shards at once
//	submit_sharded.go  where bundles enter, in what order, and what cannot be submitted
//	waiting.go         waiting at the homes, and finding transactions that no shard knows yet
//	learn.go           organisations whose registration is still on its way down the tree
//	wherever.go        a transaction from the chains of all shards that have it
//	crossing.go        what this shard's chain has of a transaction
//	tree.go            the tree, and the state of each shard
//
// Streams cover the node's own shard only. In a book of one shard none of this applies, and none of
// its fields are set.
//
// # By hand
//
// Every method takes JSON by POST. Methods without side effects also take GET:
//
//	curl -H 'Content-Type: application/json' -d '{"account":"acme:cash"}' http://127.0.0.1:8080/ledgerd.v1.LedgerService/GetAccount
//
//	curl --get http://127.0.0.1:8080/ledgerd.v1.LedgerService/GetBlock \
//	  --data-urlencode 'encoding=json' --data-urlencode 'message={"head":true}'
//
// GET /healthz reports whether the process is alive. GET /readyz reports whether the node takes
// writes now; /readyz?for=reads reports whether it serves reads. GET /metrics is for Prometheus.
package api
