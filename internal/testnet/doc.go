// Package testnet makes whole ledgers on one machine and runs them. It makes the homes of n nodes
// that know each other. It runs each node as a supervised process, or all of them within this
// process.
//
//	homes, err := testnet.Make(testnet.Layout{Dir: dir, Nodes: 4}) // or testnet.Load(dir)
//	processes := testnet.Run(homes, testnet.ProcessOptions{
//		Command: []string{"ledgerd", "start"}, Report: print})
//	defer processes.Stop(ctx)
//	err = processes.Ready(ctx)
//
//	cluster, err := testnet.Embed(ctx, testnet.EmbedOptions{Dir: dir, Ports: ports, Start: start})
//	defer cluster.Stop(ctx) // or testnet.EmbedHomes(ctx, homes, start)
//
// A book of several shards has Layout.Shards times Layout.Nodes nodes. Node i is member i mod Nodes
// of shard i / Nodes, with the genesis of that shard.
//
// A runner of processes lets other processes stop and start single nodes:
//
//	runner, err := testnet.Take(dir, homes)
//	defer runner.Close()
//	runner.Serve(ctx, processes)
//
//	status, err := testnet.Status(dir) // in another process
//	err = testnet.Request(dir, "node-3", testnet.NodeStopped)
//
// What always holds:
//
//   - Make makes all homes or none, and does not touch a folder that holds a home.
//   - A process that ends unasked is started again, after a pause that grows up to a limit. If a
//     process never comes up, all processes are given up after a few tries. A process whose exit
//     status says that its node is no longer a member is not started again.
//   - No process is left when Stop returns. If this process is killed, the others see the end of
//     their standard input and stop in good order.
//   - Only the runner signals its processes. Requests and states are files in the network's folder.
//     A runner holds the lock of that folder, so a killed runner leaves no wrong state behind.
//   - All output of the processes goes to node.log in their homes. A log that is too large is set
//     aside when its process starts.
package testnet
