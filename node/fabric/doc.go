// Package fabric chooses the network of the nodes. Only this package knows the fabric's providers
// by their names. It opens a provider's host, and reports which providers work on this machine.
//
//	memory       all nodes in one process
//	p2p          TCP, authenticated and encrypted (package rdmanet/p2p); the default
//	             between processes and machines
//	p2p-trusted  TCP, authenticated once and not encrypted, for a private network
//	shm          the same, with shared memory between nodes of one user and machine
//	verbs        RDMA hardware, or Soft-RoCE (package rdmanet/verbs)
//
//	kind, err := fabric.Parse(name)
//	host, err := fabric.Open(kind, fabric.Options{Key: key, Listen: "127.0.0.1:26601",
//		Members: addresses})
//	for _, provider := range fabric.Providers() { ... } // and what each unusable one lacks
//
// What always holds:
//
//   - All nodes of a shard use the same kind.
//   - A node's identity is that of its key over p2p, whatever the kind.
//   - A kind that cannot be used here is refused before anything has happened. The error lists
//     everything that is missing and a remedy for each.
package fabric
