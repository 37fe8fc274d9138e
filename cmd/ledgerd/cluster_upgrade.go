package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/importer"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// newClusterUpgradeCommand returns the `ledgerd cluster upgrade` command.
func newClusterUpgradeCommand() *cobra.Command {
	var options charterOptions
	version, force := ledger.NewestVersion, false
	command := &cobra.Command{
		Use:   "upgrade --operator FILE",
		Short: "Raise the version of a ledger's chains",
		Long: `Raise the version of a ledger's chains to the newest that this program knows, or to
that of --to. A version is the set of rules by which the nodes execute blocks:

  1  the state digest is a sum over all entries of the state
  2  the state digest has a Merkle tree over the accounts: blocks cost less, and an
     account can be proven as of any block
  3  ledgers of one shard take packed bundles of plain transfers, which cost a
     fraction; blocks have fewer hashes. Auditors need a program that knows it, too
  4  transactions that cross shards must have a deadline. Clients that are older than
     this version cannot make one, so install newer ones first
  5  signers may cancel a transaction that has a deadline
  6  the operators may change the shards of a ledger of several shards: see
     ledgerd shards
  7  what crosses shards costs less: the state digest has a tree over the
     transactions that wait for other shards, and verdicts share bundles
  8  organisations may register assets: see ledgerd asset
  9  accounts may have holds: see ledgerd hold
  10 organisations may set terms of their accounts, such as limits and aliases: see
     ledgerd account limit
  11 entries may have details: an idempotency key, an effective date, a time until
     which they can be refunded
  12 organisations may place schedules: see ledgerd schedule
  13 the operators may change the engine of a shard: see ledgerd cluster engine

The block with this change is the first one of the new version, in each shard at a
height of its own. Nothing else changes: blocks, ids and proofs from before stay
valid, and so do the homes of the nodes. A version never goes down.

Before you raise it, install a program that knows the version on every node, and
restart the nodes one by one. The command asks every member for its program. A node
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
				return usagef("--to %d: this program can raise a chain to versions %d to %d",
					version, ledger.AccountTreeVersion, ledger.NewestVersion)
			}
			return options.run(command, func(charter *ledger.Charter) error {
				if present := max(ledger.FirstVersion, charter.Version); present >= version {
					return fmt.Errorf("the ledger has version %d already: nothing to do", present)
				}
				charter.Version = version
				return nil
			}, func(ctx context.Context, nodes *client.Client) error {
				return checkPrograms(ctx, nodes, version, force)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	command.Flags().IntVar(&version, "to", version, "the version")
	command.Flags().BoolVar(&force, "force", false,
		"do it even if some members do not answer, and so may have an older program")
	return command
}

// programPatience limits the wait for one member's answer.
const programPatience = 5 * time.Second

// checkPrograms asks all members, of all shards, which versions their programs know. It returns an
// error if one does not know the version, or, unless forced, if one does not answer.
func checkPrograms(ctx context.Context, nodes *client.Client, version int, force bool) error {
	cluster, err := nodes.Cluster(ctx)
	if err != nil {
		return err
	}
	members, err := programs(ctx, nodes, cluster)
	if err != nil {
		return err
	}
	var silent []string
	for _, member := range members {
		newest, err := knownVersion(cluster), error(nil)
		if !member.asked {
			var said *ledgerdv1.ClusterState
			said, err = clusterAt(ctx, nodes, member.address)
			newest = knownVersion(said)
		}
		switch {
		case err != nil:
			silent = append(silent, member.name)
		case newest < version:
			return fmt.Errorf("the program of member %s does not know version %d: install this "+
				"one there and restart the node first", member.name, version)
		}
	}
	if len(silent) > 0 && !force {
		return fmt.Errorf("%s cannot be asked for its program's version: start it, or use "+
			"--force if you know that every member has this program", strings.Join(silent, ", "))
	}
	return nil
}

// program is that of a member, with the address of its API, or none if that is not known. The
// member that is asked anyway needs no address.
type program struct {
	name, address string
	asked         bool
}

// programs returns those of all members, of all shards.
func programs(ctx context.Context, nodes *client.Client, cluster *ledgerdv1.ClusterState) (
	all []program, err error) {
	if cluster.GetShardCount() < 2 {
		for _, member := range cluster.GetMembers() {
			all = append(all, program{member.GetName(), member.GetApiAddress(), member.GetSelf()})
		}
		return all, nil
	}
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return nil, err
	}
	for _, shard := range tree.GetShards() {
		for _, member := range shard.GetMembers() {
			all = append(all, program{member.GetName(), member.GetApiAddress(), member.GetSelf()})
		}
	}
	return all, nil
}

var errNoAddress = errors.New("the address of its API is not known")

// clusterAt asks the node at an address for the state of its shard, once and not for long.
func clusterAt(ctx context.Context, nodes *client.Client, address string) (
	*ledgerdv1.ClusterState, error) {
	usable := importer.UsableAddress(address)
	if usable == "" {
		return nil, errNoAddress
	}
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	one, err := nodes.Beside([]string{usable}, client.Options{Tries: 1})
	if err != nil {
		return nil, err
	}
	defer one.Close()
	return one.Cluster(ctx)
}

// knownVersion returns the newest version that the program of a node knows. Programs from before
// there were versions say nothing.
func knownVersion(cluster *ledgerdv1.ClusterState) int {
	return max(ledger.FirstVersion, int(cluster.GetNewestVersion()))
}
