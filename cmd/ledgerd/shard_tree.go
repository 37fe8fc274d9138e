package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/tram"
)

// treeShapes are the named shapes of shard trees.
var treeShapes = []string{"breadth", "binary", "chain"}

// readShardTree parses --tree for a number of shards. It returns each shard's parent; the root is
// its own parent. Errors are usage errors.
func readShardTree(text string, shards int) ([]ledger.ShardID, error) {
	tree, err := readTree(text, shards)
	if err != nil {
		return nil, usagef("--tree, for %s: %w", plural(shards, "shard"), err)
	}
	return parentsOf(tree), nil
}

func parentsOf(tree *tram.Tree) []ledger.ShardID {
	parents := make([]ledger.ShardID, tree.Groups())
	for i, parent := range tree.Parents() {
		parents[i] = ledger.ShardID(parent)
	}
	return parents
}

// treeText returns a tree's shape, or its shards with their parents if it has no named shape.
func treeText(tree []ledger.ShardID) string {
	for _, shape := range treeShapes {
		if shaped, err := tram.ParseTree(shape, len(tree)); err == nil &&
			slices.Equal(parentsOf(shaped), tree) {
			return shape
		}
	}
	lines := make([]string, len(tree))
	for shard, parent := range tree {
		lines[shard] = fmt.Sprintf("%d %d", shard, parent)
	}
	return strings.Join(lines, ", ")
}

// bindTreeCompletion completes --tree with the named shapes and with files.
func bindTreeCompletion(command *cobra.Command) {
	completeFlag(command, "tree", cobra.FixedCompletions(treeShapes,
		cobra.ShellCompDirectiveDefault))
}
