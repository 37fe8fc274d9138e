// Package digraph builds the overlay digraphs over which servers broadcast, and computes their
// properties.
//
// AllConcur and AllConcur+ send every message along the edges of a digraph instead of to all
// servers. The reliable rounds use a sparse, regular, optimally connected digraph (G_R). The
// unreliable rounds use per-source binomial trees (G_U). A few numbers of the digraph determine how
// many failures a shard survives and how fast it is:
//
//   - The degree d is the work of a server per message: it sends each message d times and receives
//     it d times.
//   - The vertex-connectivity κ bounds the failures: f < κ servers may fail and the others still
//     reach each other.
//   - The diameter D is the number of steps of a broadcast without failures.
//   - The fault diameter D_f is the number of steps when up to f servers have failed.
//
// # The families
//
// [GS] is the preferred family [Poke19, section 5.6.4]. It exists for every degree d >= 3 and every
// n >= 2d. Its connectivity equals its degree. For n <= d^3 + d its diameter is at most one above
// the Moore bound ([MinimalDiameter]). [Binomial] graphs have a degree that follows from n, which
// is too high or too low for most targets. [Complete] serves small n. [Ring] serves comparisons.
// [BinomialTree] is the tree of one source of G_U. [New] takes any list of edges.
//
// # Choosing a digraph
//
//	// Six nines over 24 hours with a server MTTF of 18,304 hours.
//	target := digraph.Target{}
//	// GS(n,d) with the smallest sufficient d, or the complete digraph for few servers.
//	g, err := digraph.Reliable(n, target)
//	// min(κ-1, ⌊(n-1)/2⌋)
//	f := digraph.Tolerated(g)
//	for _, successor := range g.Successors(v) {
//		// send to successor
//	}
//
// # Invariants
//
// A [Digraph] is immutable and safe for concurrent use. Its vertices are the ints 0 to n-1. It has
// neither self-loops nor parallel edges. Every constructor is a pure function of its arguments, on
// every machine: two servers that agree on n and d agree on every edge and on its place in the
// list. The choice of the degree uses fixed-precision arithmetic instead of the processor's
// floating point, so servers agree on d too. No function panics on bad arguments: it returns an
// error, or nothing if it has no error result.
//
// A Digraph implements gonum's graph.Directed and can be passed to gonum's algorithms.
//
// # Sources
//
// The sources are [Poke19], chapters 2, 5 and 6. The construction of GS is that of Soneoka, Imase
// and Manabe, "Design of a d-connected digraph with a minimum number of edges and a quasiminimal
// diameter II" (1996), as restated in [Poke19, section 5.6.4]. Connectivity is computed with Even's
// reduction (1975), disjoint paths with successive shortest paths.
package digraph
