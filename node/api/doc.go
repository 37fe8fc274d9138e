// Package api is the door of a node: the one service of ledgerd.v1 over gRPC, gRPC-Web and JSON on
// HTTP from one handler, the health and metrics pages, and the web explorer, all on one address.
//
// # How it is driven
//
//	server, err := api.New(backend, api.Options{Explorer: explorer.Handler(), Registry: registry})
//	go server.Serve(listener)          // returns nil after Shutdown
//	...
//	server.Shutdown(ctx)               // ends the streams, lets the other calls finish until ctx ends
//
// The node implements Backend; everything else is here. Reads come from the node's own store and
// never wait for other nodes. Writes go through Backend.Admit; the answer is given when the wanted
// level is reached.
//
// # What always holds
//
//   - A transaction reported as ordered or better can be read at once from the same node.
//   - Submitting again is safe: an id is executed once, and the second answer tells the first one's
//     outcome.
//   - Bad input gets an error of the Connect code that fits, with a sentence that says what to do,
//     and is never kept. A panic in a call is an internal error of that call, logged with its
//     stack, and the node goes on.
//   - Everything is bounded: the size of messages, the bundles of a request, the entries of a page,
//     calls per second and streams by remote address, streams in all. A stream keeps one height and
//     no queue: it reads each block from the store when its reader is ready for it, so that a slow
//     reader costs a goroutine and nothing else, and a stuck one is cut off.
//   - Browsers of other origins get nothing, unless Options.AllowedOrigins names them.
//
// # Several shards
//
// In a book of several shards every node answers for all of it. Backend.Shards tells the tree and
// makes calls that a node of another shard answers, from Server.Forwarded: one hop, never a second
// one. What is asked of an account, a record or a nonce is asked at the home of its organisation,
// what names a shard at that shard, lists and searches at all shards side by side, and those that
// do not answer are named. A bundle is admitted where it enters the tree, and then its transactions
// are waited for in the chains of their signers' homes, which decide on them. A transaction shows
// its place in the chain of each shard that it concerns.
//
//	route.go           whether a call is answered here, passing it on, asking several shards side by side
//	submit_sharded.go  where bundles enter, in what order, and what cannot be submitted
//	waiting.go         waiting at the homes, and finding what nobody knows yet
//	learn.go           organisations whose registration is still on its way down the tree
//	wherever.go        a transaction from the chains of all shards that have it
//	crossing.go        what this shard's chain has of a transaction
//	tree.go            the tree, and how each shard does
//
// Streams are of the node's own shard. In a book of one shard nothing of this happens, and none of
// its fields are set.
//
// # By hand
//
// Every method takes JSON by POST, and those without side effects by GET, too:
//
//	curl -H 'Content-Type: application/json' -d '{"account":"acme:cash"}' http://127.0.0.1:8080/ledgerd.v1.LedgerService/GetAccount
//
//	curl --get http://127.0.0.1:8080/ledgerd.v1.LedgerService/GetBlock \
//	  --data-urlencode 'encoding=json' --data-urlencode 'message={"head":true}'
//
// GET /healthz says whether the process lives, /readyz whether it takes writes now
// (/readyz?for=reads: whether it serves reads), /metrics is for Prometheus.
package api
