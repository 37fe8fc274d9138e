// Package digraph builds the overlay digraphs over which servers broadcast, and measures them.
//
// AllConcur and AllConcur+ send every message along the edges of a digraph instead of to everybody:
// a sparse, regular, optimally connected digraph for the reliable rounds (G_R), and per-source
// binomial trees for the unreliable ones (G_U). What a shard survives and how fast it is follows
// from a handful of the digraph's numbers:
//
//   - the degree d is the work of a server per message (it sends each message d times and receives
//     it d times);
//   - the vertex-connectivity κ bounds the failures: f < κ servers may fail and the others still
//     reach each other;
//   - the diameter D is the number of steps of a broadcast without failures;
//   - the fault diameter D_f is the number of steps when up to f servers have failed.
//
// # The families
//
// [GS] is the family of choice [Poke19, section 5.6.4]: it exists for every degree d >= 3 and every
// n >= 2d, its connectivity equals its degree, and its diameter is at most one above the Moore
// bound ([MinimalDiameter]) for n <= d^3 + d. [Binomial] graphs have a degree that follows from n,
// which is too much or too little for a target. [Complete] serves small n, [Ring] serves
// comparisons. [BinomialTree] is the tree of one source of G_U. [New] takes any list of edges.
//
// # Choosing one
//
//	target := digraph.Target{}                // six nines over 24 hours with a server MTTF of 18,304 hours
//	g, err := digraph.Reliable(n, target)     // GS(n,d) with the smallest sufficient d, or the complete digraph for few servers
//	f := digraph.Tolerated(g)                 // min(κ-1, ⌊(n-1)/2⌋)
//	for _, successor := range g.Successors(v) {
//		// send to successor
//	}
//
// # What always holds
//
// A [Digraph] is immutable and safe for concurrent use. Its vertices are the ints 0 to n-1; it has
// neither self-loops nor parallel edges. Every constructor is a pure function of its arguments, on
// every machine: two servers that agree on n and d agree on every edge and on its place in the
// list. The choice of the degree uses fixed-precision arithmetic of its own rather than the
// processor's floating point, so that they agree on d too. Nothing here panics on input: wrong
// arguments get an error, or nothing where a method returns no error.
//
// A Digraph satisfies gonum's graph.Directed, so that gonum's algorithms take it as it is.
//
// # Sources
//
// [Poke19] chapters 2, 5 and 6; the construction of GS is that of Soneoka, Imase and Manabe,
// "Design of a d-connected digraph with a minimum number of edges and a quasiminimal diameter II"
// (1996), as restated in [Poke19, section 5.6.4]. Connectivity is computed with Even's reduction
// (1975), disjoint paths with successive shortest paths.
package digraph
