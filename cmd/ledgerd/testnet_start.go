package main

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/testnet"
)

// newTestnetStartCommand returns the `ledgerd testnet start` command.
func newTestnetStartCommand() *cobra.Command {
	request := testnetRequest{want: testnet.NodeRunning}
	return request.bind(&cobra.Command{
		Use:   "start DIR",
		Short: "Start the nodes again that ledgerd testnet stop stopped",
		Long: `Start the nodes again that ledgerd testnet stop stopped.

Without --shard and --node all nodes are started. The command waits until their
APIs answer. A node then fetches what it missed, and orders again once a majority
of its shard runs: see ledgerd status.

Nodes that run already go on. If no ledgerd testnet --run runs the network, start
that instead.`,
		Example: `  ledgerd testnet start sharded --shard 2
  ledgerd testnet start net --node node-3,node-4`,
	})
}
