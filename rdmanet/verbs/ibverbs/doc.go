// Package ibverbs is the thin layer over libibverbs that the verbs provider stands on: devices,
// protection domains, registered memory, completion queues and RC queue pairs, each a Go value with
// the calls that the provider needs and no policy.
//
// Two calls are on hot paths, and each crosses into C once for many things: Post hands a list of
// work requests to a queue pair, Poll takes a list of completions. Their lists are flat arrays
// without pointers that Go may follow.
//
// Without the build tag verbs the package is empty. With it, cgo and libibverbs' headers are needed
// (Debian: libibverbs-dev).
//
// The rules of the library hold: a value must not be used after its Close, and what stands on it is
// closed first.
package ibverbs
