// Package testnet makes whole ledgers on one machine and runs them: the homes of n nodes that know
// each other, and either a process for each, which is watched over, or all of them within this
// process.
//
//	homes, err := testnet.Make(testnet.Layout{Dir: dir, Nodes: 4})     // or testnet.Load(dir)
//	processes := testnet.Run(homes, testnet.ProcessOptions{Command: []string{"ledgerd", "start"}, Report: print})
//	defer processes.Stop(ctx)
//	err = processes.Ready(ctx)
//
//	cluster, err := testnet.Embed(ctx, testnet.EmbedOptions{Dir: dir, Ports: ports, Start: start})
//	defer cluster.Stop(ctx)                                               // or testnet.EmbedHomes(ctx, homes, start)
//
// A book of several shards has Layout.Shards times Layout.Nodes nodes: node i is member i mod Nodes
// of shard i / Nodes, with the genesis of that shard.
//
// What always holds:
//
//   - Make makes all homes or none, and touches no folder that holds one.
//   - A process that ends although nobody asked it to is started again, after a pause that grows up
//     to a bound. One that never came up is given up after a few tries, and the others with it. One
//     that says that its node is no member any more is left alone.
//   - When Stop returns no process is left. If this process is killed, the others see the end of
//     their standard input and stop in good order.
//   - All that processes say goes to node.log in their homes, which is bounded.
package testnet
