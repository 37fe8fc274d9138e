package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

// newClusterUpgradeCommand returns the `ledgerd cluster upgrade` command.
func newClusterUpgradeCommand() *cobra.Command {
	var options charterOptions
	version := ledger.NewestVersion
	command := &cobra.Command{
		Use:   "upgrade --operator FILE",
		Short: "Raise the version of a ledger's chains",
		Long: `Raise the version of a ledger's chains to the newest that this program knows, or to
that of --to. A version is the set of rules by which the nodes execute blocks:

  1  the state digest is a sum over all entries of the state
  2  the state digest has a Merkle tree over the accounts: blocks cost less, and an
     account can be proven as of any block

The block with this change is the first one of the new version, in each shard at a
height of its own. Nothing else changes: blocks, ids and proofs from before stay
valid, and so do the homes of the nodes. A version never goes down.

Before you raise it, install a program that knows the version on every node, and
restart the nodes one by one (ledgerd status shows each node's program). A node
whose program knows versions, but not this one, stops at the change and goes on
when it runs a newer program. A node with a program from before there were versions
makes another block than the others and can only be replaced.

The operators sign this as they sign a change of themselves, with --operator or
one after another in a file (--out): see ledgerd cluster operators set. ledgerd
cluster status shows the present version.`,
		Example: `  ledgerd cluster upgrade --operator net/operator.key
  ledgerd cluster upgrade --to 2 --operator a.key --operator b.key`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if version <= ledger.FirstVersion || version > ledger.NewestVersion {
				return usagef("--to %d: this program can raise a chain to version %d, and to none "+
					"above %d", version, ledger.AccountTreeVersion, ledger.NewestVersion)
			}
			err := options.run(command, func(charter *ledger.Charter) error {
				if present := max(ledger.FirstVersion, charter.Version); present >= version {
					return fmt.Errorf("the ledger has version %d already: nothing to do", present)
				}
				charter.Version = version
				return nil
			})
			if connect.CodeOf(err) == connect.CodeInvalidArgument {
				return fmt.Errorf("%w: is the node's program older than this one? Install this "+
					"one on all nodes first (ledgerd status shows a node's program)", err)
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	command.Flags().IntVar(&version, "to", version, "the version")
	return command
}
