// Package ibverbs is a thin layer over libibverbs for the verbs provider: devices, protection
// domains, registered memory, completion queues and RC queue pairs. Each is a Go value with the
// calls that the provider needs and no policy.
//
// Two calls are on hot paths, and each crosses into C once for many items: Post passes a list of
// work requests to a queue pair, and Poll takes a list of completions. Their lists are flat arrays
// without Go pointers.
//
// Without the build tag verbs the package is empty. With it, cgo and libibverbs' headers are needed
// (Debian: libibverbs-dev).
//
// The rules of the library apply: a value must not be used after its Close, and all values that
// depend on it must be closed first.
package ibverbs
