package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// newTestnetAddShardCommand returns the `ledgerd testnet add-shard` command.
func newTestnetAddShardCommand() *cobra.Command {
	var parent uint32
	nodes := 3
	var asJSON bool
	command := &cobra.Command{
		Use:   "add-shard DIR --parent SHARD",
		Short: "Add a shard to a running test network",
		Long: `Add a shard to a running test network: make the homes of its nodes in the network's
folder, add the shard with the operator's key that is there, and complete the homes.

If the command is interrupted, run it again: it goes on where it was. Fields with
--json: those of ledgerd shards add.

Then start the nodes. ledgerd testnet --dir DIR --run runs them together with the
others when it is run again.`,
		Example: `  ledgerd testnet add-shard net --parent 0 --nodes 3`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if nodes < 1 || nodes > testnet.NodesMax {
				return usagef("--nodes %d: a shard of a test network has 1 to %d nodes", nodes,
					testnet.NodesMax)
			}
			report, err := addTestnetShard(command, arguments[0], ledger.ShardID(parent), nodes)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprint(command.OutOrStdout(), report)
			return err
		},
	}
	command.Flags().Uint32Var(&parent, "parent", 0, "the shard right above the new one")
	command.Flags().IntVar(&nodes, "nodes", nodes, "number of nodes of the new shard")
	addJSONFlag(command, &asJSON)
	return command
}

// addTestnetShard adds a shard to the network in a folder.
func addTestnetShard(command *cobra.Command, dir string, parent ledger.ShardID,
	nodes int) (*shardAddedReport, error) {
	begun, unfinished, err := testnet.LoadGrowing(dir)
	if err != nil {
		return nil, err
	}
	if len(begun) == 0 {
		return nil, fmt.Errorf("%s has no home of a running node", dir)
	}
	remote := remoteOptions{timeout: time.Minute}
	for _, h := range begun {
		remote.nodes = append(remote.nodes, testnet.URL(h))
	}
	asked, ctx, done, err := remote.connect(command.Context())
	if err != nil {
		return nil, err
	}
	defer done()
	session := bookSession{nodes: asked, level: ledgerdv1.Level_LEVEL_DURABLE}
	g, err := session.grow(ctx)
	if err != nil {
		return nil, err
	}
	signing := operatorOptions{files: []string{filepath.Join(dir, testnet.OperatorKeyFile)}}
	if session.keys, err = signing.load(); err != nil {
		return nil, err
	}
	session.files = signing.files
	// An earlier run may have made the homes, or added the shard, and been interrupted.
	if report, err := g.resume(ctx, begun, unfinished); report != nil || err != nil {
		return report, err
	}
	folders := unfinished
	if len(folders) != 0 && len(folders) != nodes {
		return nil, fmt.Errorf("%s has the homes of %s of a shard that is not added: say --nodes "+
			"%d, or remove %s", dir, plural(len(folders), "node"), len(folders), folders[0])
	}
	addition := &ledger.ShardAddition{Parent: parent}
	for _, folder := range folders {
		member, err := home.ReadMember(folder)
		if err != nil {
			return nil, err
		}
		addition.Members = append(addition.Members, member)
	}
	for next := testnet.NextNumber(dir); len(folders) < nodes; next++ {
		join := joinOptions{home: filepath.Join(dir, testnet.Name(next)), address: "127.0.0.1",
			fabric: begun[0].Config.Fabric.Kind, beside: addition.Members}
		if err := join.check(); err != nil {
			return nil, err
		}
		if _, err := join.shardHome(ctx, command, asked); err != nil {
			return nil, err
		}
		member, err := home.ReadMember(join.home)
		if err != nil {
			return nil, err
		}
		folders, addition.Members = append(folders, join.home), append(addition.Members, member)
	}
	report, err := g.add(ctx, addition)
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("the homes %s stay: run the command again, or "+
			"remove them", strings.Join(folders, ", ")))
	}
	if report.Homes, err = g.complete(ctx, report, folders); err != nil {
		return nil, fmt.Errorf("%w; run the command again: it completes the homes", err)
	}
	return report, nil
}

// resume completes unfinished homes whose shard an earlier run added, and reports that shard. It
// returns nil if none of them has one: then they are homes of a shard that is still to be added.
func (g *growing) resume(ctx context.Context, begun []*home.Home,
	unfinished []string) (*shardAddedReport, error) {
	var report *shardAddedReport
	for _, folder := range unfinished {
		at, err := home.LoadJoining(folder)
		if err == nil {
			err = completeHome(ctx, g.nodes, at, g.genesis, g.shards, "")
		}
		if err != nil {
			return nil, fmt.Errorf("%s could not be completed: %w; run the command again", folder,
				err)
		}
		if len(at.Genesis.Grown) == 0 {
			continue
		}
		if report == nil {
			report = &shardAddedReport{Homes: []string{}}
			report.describe(at.Genesis)
			for _, h := range begun { // those that the earlier run completed
				if h.Genesis.Hash() == at.Genesis.Hash() {
					report.Homes = append(report.Homes, h.Dir)
				}
			}
		}
		report.Homes = append(report.Homes, folder)
	}
	return report, nil
}
