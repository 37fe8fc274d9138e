// Package api is the door of a node: the one service of ledgerd.v1 over gRPC, gRPC-Web and JSON on HTTP from one handler, the health and
// metrics pages, and the web explorer, all on one address.
//
// # How it is driven
//
//	server, err := api.New(backend, api.Options{Explorer: explorer.Handler(), Registry: registry})
//	go server.Serve(listener)          // returns nil after Shutdown
//	...
//	server.Shutdown(ctx)               // ends the streams, lets the other calls finish until ctx ends
//
// The node implements Backend; everything else is here. Reads come from the node's own store and never wait for other nodes. Writes go through
// Backend.Admit; the answer is given when the wanted level is reached.
//
// # What always holds
//
//   - A transaction reported as ordered or better can be read at once from the same node.
//   - Submitting again is safe: an id is executed once, and the second answer tells the first one's outcome.
//   - Bad input gets an error of the Connect code that fits, with a sentence that says what to do, and is never kept. A panic in a call is an
//     internal error of that call, logged with its stack, and the node goes on.
//   - Everything is bounded: the size of messages, the bundles of a request, the entries of a page, calls per second and streams by
//     remote address, streams in all. A stream keeps one height and no queue: it reads each block from the store when its reader is ready for
//     it, so that a slow reader costs a goroutine and nothing else, and a stuck one is cut off.
//   - Browsers of other origins get nothing, unless Options.AllowedOrigins names them.
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
// GET /healthz says whether the process lives, /readyz whether it takes writes now (/readyz?for=reads: whether it serves reads), /metrics is
// for Prometheus.
package api
