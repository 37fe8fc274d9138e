// Package traffic computes what a book of several shards carries, from what its parties do with
// each other, and proposes homes for them that carry more.
//
//	book := traffic.Book{Tree: tram.Binary(7), Traffic: read, Homes: homes,
//		Costs: traffic.MeasuredCosts}
//	estimate, err := traffic.EstimateOf(book)
//	advice, err := traffic.Advise(book, traffic.Limits{})
//	tree, err := traffic.AdviseTree(book, traffic.Limits{})
//
// # The model
//
// A transaction concerns the homes of its parties. If that is one shard, the shard alone orders it.
// Otherwise the transaction enters at the lowest common ancestor, and the shards on the ways down
// to its destinations take it from their parents' streams [TRAM, Algorithm 2]. Each destination
// sets its part aside and takes one verdict of each other destination. Costs has the processor time
// of one node for each of these steps. All nodes of a shard do the same work, so the work of a
// shard is that of each of its nodes. The book carries what its busiest shard carries: the
// bottleneck. Memory, disks and networks are not part of the model, nor is the time in which a
// processor waits. The costs hold for one size of bundles and blocks. MeasuredCosts are those of
// one machine; FitCosts makes them of a measurement.
//
// # Advice
//
// Advise moves one party at a time, each time the best of all moves. The best move leaves the least
// work to the bottleneck. Among equals, it leaves the least sum of the squares of the shards' work,
// which rewards both balance and less work, and then the fewest crossings. The search ends when no
// move is better than staying, or at a limit. It is a local search: it does not find gains that
// need two moves at once.
//
// AdviseTree keeps the homes and changes the tree: it gives one shard, with all below it, another
// parent, or lets two shards change places, each time the best of all such changes. It begins at
// the book's tree and at the three shapes with names.
//
// # What always holds
//
// Results depend on the input alone, not on the order in which it was collected. Counts are added
// up exactly. Advice never adds work to the bottleneck. Every input is bounded, and so is the work
// of a search.
package traffic
