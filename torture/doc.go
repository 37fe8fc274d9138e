// Package torture damages a whole ledger and checks what is left. It contains only tests. They
// build the program once and run its nodes as processes of their own, exactly as an operator would
// (`ledgerd testnet`, `ledgerd start`). They talk to the nodes through the program and its client.
//
//	go test ./torture           # everything that this machine allows
//	go test -short ./torture    # the quick part
//	go test ./torture -run Kill -rounds 20 -seed 7 -v
//	go test ./torture -run 'Kill|Paused|Linearizable' -engine trains
//
// # What is done, and what must hold
//
//   - Import (import_test.go): the first months of Bitcoin's chain go into five nodes while one of
//     them is killed with kill -9 and started again. Each line is in the ledger once, all exports
//     are the same bytes, every balance is the plain sum of the postings, and the head is the same
//     after a restart of all nodes.
//   - ImportOverShards (book_test.go): the same file goes into four shards of three nodes.
//     Meanwhile one node of each shard is killed, and later a whole shard, which comes back. Every
//     balance is the plain sum, and running the import again adds nothing to any chain. With -whole
//     it uses the whole file.
//   - Testnet (testnet_test.go): `ledgerd testnet --run` over a fabric other than the default, an
//     import, and a kill -9 in its middle. The node comes back by itself, and all exports are the
//     same bytes. LEDGERD_TEST_FABRIC selects the fabric: scripts/verbs-test runs it over verbs.
//   - Strangers (strangers_test.go): all nodes of one of two shards are killed, and meanwhile
//     commands replace all members of the other one. The shard that comes back finds the new ones.
//   - Kill (kill_test.go): all nodes are killed at a random moment, under writes by several
//     clients. Everything acknowledged as durable is there afterwards.
//   - Linearizable (linearizable_test.go): clients move money and write and read records at several
//     nodes while nodes are killed and come back. Porcupine checks their history against the
//     sequential model in that file. No money appears or disappears.
//   - Clocks (clock_test.go): under writes, the clock of one of three and of five nodes is 30 years
//     ahead while other nodes are down for a moment, jumps back and forth, and is moved while its
//     node is down. Time never goes back, no block is dated ahead, writes go on, and the node
//     reports that its clock is wrong. The nodes run the program with another source of the time of
//     day (the build tag movedclock of cmd/ledgerd), because moving the machine's clock would move
//     the clocks of all nodes.
//   - Paused (pause_test.go): a node stops (SIGSTOP) for longer than the others wait for it, and
//     goes on. It never forks, and comes back by itself.
//   - Environment (environment_test.go): occupied ports; foreign, damaged and incomplete homes; a
//     node started twice; flags that do not exist. Each gives one clear error and exit status 1 or
//     2, and no wrong data is served.
//   - Hostile (hostile_test.go): garbage on the fabric's port, strangers with keys of their own,
//     and a stolen member's key that sends nonsense on every lane.
//   - FullDisk (disk_test.go): the disk of one node is really full (a small tmpfs, which needs
//     root). The node reports it and keeps serving reads, the others go on, and the node comes back
//     when there is space.
//   - Membership (membership_test.go): nodes join, leave and are replaced while the others write,
//     and the joining node is killed in the middle. The new nodes have all promised writes, too,
//     and a node that left ends with exit status 3.
//   - Forgotten disks (forgetting_test.go): a minority of the disks loses data or promises, or is
//     replaced by an older copy. Their nodes start first, beside nodes whose disks never had the
//     writes. They wait and say so. Once the node that remembers runs, everything acknowledged is
//     there.
//   - DiskFillsWhileEonChanges (disk_test.go): a disk fills at several moments around a change of
//     the group, without traffic. With free space the node comes back.
//   - LinearizablePauses and LinearizableCuts (linearizable_test.go): Porcupine also checks
//     histories while nodes are paused, join and leave, and, for durable transactions, while the
//     power of some or all nodes fails.
//   - Engines (engines_test.go): with each engine that is not the default, Porcupine checks the
//     history of clients while nodes are killed and paused. Then all are killed at once, and a disk
//     forgets: all promises are kept. A node also comes back while there is nothing to order.
//   - KillsWhileEngineChanges (engines_test.go): the operator changes from engine to engine, under
//     the same clients. At a random moment of each change nodes are killed or paused: one, two, or
//     all. All order by the engine that the chain names. The histories are linearizable.
//   - DiskFillsWhileEngineChanges, ClockMovesWhileEngineChanges (engines_test.go): a disk is full,
//     or a clock is moved, before, while and after the engine changes. The others go on, and the
//     node comes with them.
//   - SlowMember, SlowMemberOfABook (slow_test.go): a node is paused for most of each second. The
//     others order without it, and it returns.
//   - Chaos (chaos_test.go): a seed mixes kills, power failures, torn writes, dying disks,
//     forgetful disks, older copies, pauses, joins, leaves and changes of the engine, for 45 s or
//     for the time of -chaos. It also draws the first engine, unless -engine names it.
//     Nothing acknowledged as durable is lost, balances agree with records, and after each
//     disturbance all nodes order again.
//   - Power (volume_test.go): each home is on an ext4 volume of its own, on a loop device, which
//     the kernel shuts down without the unsynced writes. That needs root; without it the tests are
//     skipped. A run that is killed leaves no mounts and no loop devices (mounts_test.go).
//   - Dip (dip_test.go), with -dip only: measures the throughput lost when nodes crash, return,
//     join and leave. DipOfSilence measures a full disk, a silent process, and a machine whose
//     cable is pulled.
//
// # How
//
// A ledger orders by the default engine, unless a test names another one or -engine does. With
// dare, a node that is down while there is nothing to order leaves the group some 32 heartbeats of
// the leader later than with others.
//
// Tests wait for most of their time, so they run side by side. With -parallel, more of them than
// the machine has processors may run. TestSlowMember, which measures throughput, runs alone.
//
// Every test has its own folder, ports and processes. No process outlives its test, whatever
// happens. When a test fails, it shows the ends of its nodes' logs. No test sleeps and hopes: tests
// wait for a condition, up to a deadline that a slow, busy machine can meet. Randomness comes from
// a seed that is printed.
//
// The tests run on Linux only: they mount file systems, and cut the power of some.
package torture
