// Package fabric chooses what nodes talk over: it is the one place that knows the fabric's
// providers by their names, opens one, and tells which of them work on this machine.
//
//	memory       all nodes in one process
//	p2p          TCP, authenticated and encrypted (package rdmanet/p2p); the default between processes and machines
//	p2p-trusted  TCP, authenticated once and not encrypted, for a network that nobody else listens on
//	verbs        RDMA hardware, or Soft-RoCE (package rdmanet/verbs)
//
//	kind, err := fabric.Parse(name)
//	host, err := fabric.Open(kind, fabric.Options{Key: key, Listen: "127.0.0.1:26601", Members: addresses})
//	for _, provider := range fabric.Providers() { ... } // and what each that is not usable misses
//
// What always holds: all nodes of a shard use the same kind; whatever the kind, a node's identity
// is the one that its key has over p2p; a kind that cannot be used here is refused with all that is
// missing and what to do about each, before anything has happened.
package fabric
