// Package shards is what a node of a book with several shards knows of the others, and what their members tell each other. A node of a book with one shard makes none of this.
//
// # Who they are
//
// The Directory holds the members of all shards: those of the genesis, and what came since, which each shard's chain says and its members pass on. A member is named by its shard and its index in that
// shard's chain. From what members say of themselves the Directory knows whom to ask (Candidates) and what people want to see (States).
//
// Network-wide trust is as within a shard: members crash, they do not lie. Where a membership may come from is the caller's check all the same, and what comes in is bounded and validated.
package shards
