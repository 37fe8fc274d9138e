// Package torture hurts a whole ledger and looks at what is left. It has no code but tests: they
// build the program once, run its nodes as processes of their own, exactly as an operator would
// (`ledgerd testnet`, `ledgerd start`), and speak to them through the program and its client.
//
//	go test ./torture           # everything that this machine allows
//	go test -short ./torture    # the quick part
//	go test ./torture -run Kill -rounds 20 -seed 7 -v
//
// # What is done, and what must hold
//
//   - Import (import_test.go): the first months of Bitcoin's chain go into five nodes while one of
//     them is killed with kill -9, and started again. Each line is in the ledger once, all exports
//     are the same bytes, every balance is the plain sum of the postings, and a restart of all
//     shows the same head.
//   - ImportOverShards (book_test.go): the same file goes into four shards of three nodes, while
//     one node of each shard is killed, and later a whole shard, which comes back. Every balance is
//     the plain sum, and the same import again adds nothing to any chain. With -whole it is the
//     whole file.
//   - Testnet (testnet_test.go): `ledgerd testnet --run` over a fabric other than the default, an
//     import, a kill -9 in its middle; the node comes back by itself, and all exports are the same
//     bytes. LEDGERD_TEST_FABRIC chooses the fabric: scripts/verbs-test has it run over verbs.
//   - Kill (kill_test.go): all nodes are killed at a random moment, under writes by several
//     clients. What was acknowledged as durable is there afterwards.
//   - Linearizable (linearizable_test.go): clients move money and write and read records at several
//     nodes while nodes are killed and come back. Their history is checked with Porcupine against a
//     sequential model, which is written down there, and no money appears or goes.
//   - Clocks (clock_test.go): under writes, the clock of one of three and of five nodes is 30 years
//     ahead while others are down for a moment, jumps back and forth, and is moved while its node
//     is down. Time never goes back, no block is dated ahead, writes go on, and the node says that
//     its clock is wrong. The nodes are the program with another source of the time of day (the
//     build tag movedclock of cmd/ledgerd): moving the machine's clock would move everybody's.
//   - Paused (pause_test.go): a node stops for longer than the others wait for it (SIGSTOP), and
//     goes on. It never forks, and comes back by itself.
//   - Environment (environment_test.go): occupied ports, foreign, damaged and half homes, a node
//     started twice, flags that do not exist. One clear error each, exit status 1 or 2, nothing
//     served that is wrong.
//   - Hostile (hostile_test.go): garbage on the fabric's port, strangers with keys of their own,
//     and a member's key in the wrong hands sending nonsense on every lane.
//   - FullDisk (disk_test.go): the disk of one node is really full (a small tmpfs, which takes
//     root). It says so, keeps serving reads, the others go on, and it comes back when there is
//     space.
//   - Membership (membership_test.go): nodes join, leave and are replaced while the others write,
//     and the joiner is killed in the middle. What was promised is with the new ones, too, and a
//     node that left ends with exit status 3.
//   - Forgotten disks (forgetting_test.go): a minority of the disks loses data or promises, or is
//     replaced by an older copy, and starts first, beside disks that never had the writes. They
//     wait and say so; with the node that remembers everything acknowledged is there.
//   - DiskFillsWhileEonChanges (disk_test.go): a disk fills at several moments around a change of
//     the group, without traffic. With space the node is back.
//   - LinearizablePauses and LinearizableCuts (linearizable_test.go): Porcupine also while nodes
//     are paused, join and leave, and, for what is durable, while the power of some or all fails.
//   - Chaos (chaos_test.go): a seed mixes kills, cuts of power, torn writes, dying disks, forgetful
//     disks, older copies, pauses, joins and leaves, for 45 s or as long as -chaos says.
//     Nothing acknowledged as durable is lost, balances agree with records, and after each
//     disturbance all order again.
//   - Power (volume_test.go): homes on ext4 volumes of their own, on loop devices, which the kernel
//     shuts down without what was not synced. It takes root; tests that need it skip without.
//     A run that is killed leaves no mounts and no loop devices (mounts_test.go).
//   - Dip (dip_test.go), with -dip only: what crashes, returns, joins and leaves cost in
//     throughput, measured. DipOfSilence measures a full disk, a silent process, and a machine
//     whose cable is pulled.
//
// # How
//
// Tests wait for most of their time, so they run side by side; more of them with -parallel than the
// machine has processors is well. TestSlowMember, which measures throughput, runs alone.
//
// Every test has its own folder, ports and processes; whatever happens, no process outlives it, and
// when it fails, the ends of its nodes' logs are shown. Nothing sleeps and hopes: tests wait for a
// condition, up to a deadline that a slow, busy machine can keep. Chance comes from a seed that is
// printed.
package torture
