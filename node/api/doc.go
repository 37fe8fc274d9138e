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
// The node implements Backend; everything else of one shard is here. Reads come from the node's own
// store and never wait for other nodes. Writes go through Backend.Admit, and are answered when they
// reach the wanted level.
//
// # What always holds
//
//   - A transaction reported as ordered or better can be read at once from the same node.
//   - Submitting again is safe: an id is executed once, and the second answer reports the outcome
//     of the first.
//   - Bad input gets an error with the matching Connect code and a sentence that says what to do.
//     None of it is kept. A panic in a call becomes an internal error of that call and is logged
//     with its stack. The node continues.
//   - A request is checked before it is decoded (package intake), and all requests under way share
//     one memory budget. A request beyond it is refused at once.
//   - Connections are bounded, in all and by address; idle ones give way. Slow headers and bodies
//     are cut off. An address that costs work in masses and asks for nothing is put off.
//   - Everything is bounded: the size of messages, the bundles of a request, the entries of a page,
//     calls per second and streams by remote address, streams in all. A stream of blocks or
//     states keeps one height and no queue. It reads each block from the store when its reader is
//     ready for it. A slow reader therefore costs a goroutine and nothing else, and a stuck reader
//     is cut off.
//   - Browsers of other origins get nothing, unless Options.AllowedOrigins names them.
//
// # Streams of bundles
//
// SubmitStream is Submit for clients with many bundles, over one stream of HTTP/2. Both share
// checks, limits and refusals: each bundle counts as a call, has a share of the memory for
// requests, and is refused alone. Each arrives in its canonical encoding. An answer has one status
// for all transactions that share it:
//
//	stream := service.SubmitStream(ctx)
//	stream.Send(nil)
//	stream.Receive()                        // an empty message: the node takes bundles
//	stream.Send(&ledgerdv1.SubmitStreamRequest{Number: 7, Bundle: bundle.Encode()})
//	answers, err := stream.Receive()        // of 7, and of all that are ready with it
//
// A bundle keeps its place among those under way until its answer is sent. At the bound the node
// reads no further, and HTTP/2 slows the client down. So a client that reads no answers holds a
// bounded amount, and is cut off as other stuck readers are. No timer delays an answer: the
// goroutine of a bundle sends what is ready, unless another one sends already, which then sends
// this too.
//
// A request that is malformed ends the stream, since it has no number. So does a node that stops,
// with the statuses of the moment for what it took and an error that may be retried. A client's
// identity is that of the stream's beginning.
//
// # Several shards
//
// A Service answers for one shard: from its node's chain alone, without another hop. It refuses a
// request that names another shard with an OtherShardError. In a book of several shards, package
// route answers clients for the whole book (NewServer), and nodes of other shards get the Service
// itself (Server.Forwarded). There, an account or a record of another shard's organisation is
// unknown, and the Backend refuses a bundle that enters at another shard.
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
// GET /livez, or /healthz, reports whether the process is alive. GET /readyz reports whether the
// node takes writes now; /readyz?for=reads reports whether it serves reads. GET /metrics is for
// Prometheus, and GET /version names the program. The standard service grpc.health.v1.Health
// answers for the node ("") as /readyz does, and for ledgerd.v1.LedgerService as /readyz?for=reads
// does. Server.Admin has all of these, and Go's profiles, for a listener that clients cannot reach.
package api
