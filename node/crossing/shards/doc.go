// Package shards is a node's knowledge of the other shards in a book of several, and the exchange
// between their members. A node of a book with one shard uses none of it.
//
// # The members
//
// The Directory holds the members of all shards: those of the genesis, those of shards that were
// added to the book since, and later changes, which each shard's chain records and its members pass
// on. A member is named by its shard and its index
// in that shard's chain. Members announce their state (the Announcer). From these announcements the
// Directory derives which members to ask (Candidates) and a view for people (States).
//
//	directory, err := shards.NewDirectory(genesis)
//	directory.SetSelf(host.ID())
//	announcer, err := shards.NewAnnouncer(shards.AnnouncerConfig{Directory: directory, Control: control, Own: whatThisNodeDoes})
//	host.Watch(announcer.Event)
//	directory.SetOwn(store.Membership())                   // whenever it changed
//	directory.Grow(added)                                  // once additions of shards are durable
//	for { <-directory.Changed(); host.SetMembers(of all shards) }
//
// A shard that is added is there as if the book had begun with it. Its trail begins with its own
// genesis. Until a node knows the shard, its members are strangers: what they send is dropped, and
// comes again. Two nodes may know different numbers of shards at a time.
//
// The genesis decides what a node needs to believe a change of another shard's members. In either
// case it saves what it knows (Directory.Changes) for its next start.
//
// Without vouched crossings, the members of other shards may crash, but they do not lie. A message
// counts only if it comes from a member of the shard that it describes, and is bounded and
// validated. There is one exception: members of the own shard may also relay the members of other
// shards. A node that has just joined, or was away while a shard's members were replaced, learns
// them this way from its fellows.
//
// With vouched crossings (Genesis.VouchedCrossings), any member may lie. A node believes the trail
// of a shard and nothing else (Directory.LearnTrail): the certificates of all joins and leaves from
// the shard's genesis on. Keys, indices, names and addresses follow from it. A member's address
// never changes. So the sender of a trail does not matter. Announcements and relays only say up to
// which epoch their sender has a trail; the TrailExchange then asks the sender for it. It also asks
// all members of all shards in turn, so a node finds a shard again of which it knows no present
// member, as long as it reaches one node that does.
//
//	trails, err := shards.NewTrailExchange(shards.TrailExchangeConfig{Directory: directory, Host: host, Own: store.Trail})
//	announcer, err := shards.NewAnnouncer(shards.AnnouncerConfig{..., Newer: trails.Newer})
//
// A shard may be away while all members of another shard are replaced. It then knows nobody who
// runs, and its fabric refuses them. So members introduce themselves (Introductions), with or
// without vouched crossings: a node hands the trail of its shard to each member of another shard
// that it does not hear, through the fabric's door for strangers.
//
//	introductions, err := shards.NewIntroductions(shards.IntroductionsConfig{Directory: directory, Host: host, Own: store.Trail})
//
// What always holds of trails:
//
//   - Memberships of other shards are ordered by the members' epoch, the number of joins and
//     leaves. It is their Number here. In the shard's own chain, Number also counts admissions of
//     disks, which are in no trail and change no member that others see.
//   - A known trail only grows. A trail that contradicts it is refused, and reported in the log.
//     Both can hold only if a majority of the members of an epoch lied, lost their keys, or was
//     recovered from.
//   - A trail that names a member of another shard, by name or key, is refused until that member
//     has left.
//   - A peer can hold a trail back. It cannot keep it from a node that reaches an honest peer: one
//     goroutine asks one peer at a time, with a deadline, and leaves peers that were wrong alone
//     for a while. Requests, answers and the peers that wait are bounded.
//   - A stranger can only prove members by certificates, and lower nothing. What strangers cost is
//     bounded for each address and for all together (gate).
//   - Without vouched crossings, a trail counts if its last change is in a later block than the
//     members that were announced. Its members get a number above theirs, and not above the true
//     one, so that later announcements count.
//
// # Lost shards
//
// Once the operators have settled with a shard (ledger.ShardLoss), and this node's chain has that
// durably, Directory.Lose drops the shard's members for good. So the fabric lets them go, streams
// to them end, and nothing that they send is believed. Questions for verdicts on what waited for
// the shard become questions for the others' testimonies about it.
//
// # Obstacles
//
// A node refuses transactions that cross to a shard that is down or full (Obstacles): in the other
// shards they would wait for nothing but that shard, with what they set aside. What a node knows
// of this may be late or wrong. So it decides only on admission, never on what is in a chain.
//
//	obstacles, err := shards.NewObstacles(shards.ObstaclesConfig{Directory: directory, RefuseAfter: 30 * time.Second, Waiting: store.WaitingFor, Filled: announcer.Filled})
//	announcer, err := shards.NewAnnouncer(shards.AnnouncerConfig{..., Full: obstacles.OwnFull, FullChanged: look})
//	obstacles.Look(time.Now())                             // with each announcement, and in FullChanged
//	obstacles.Applied(time.Now(), store.PendingCount())    // after each block
//	for _, obstacle := range obstacles.List() { ... }      // at admission
//
// The obstacles:
//
//   - Down: no member has reported for RefuseAfter that the shard orders. Time in which this node
//     was paused does not count. The shard is up again once it has ordered for a while.
//   - Full: most of the transactions that may wait in a shard for one other shard do. A node sees
//     this of its own shard and tells the others at once, which forget it unless it is repeated.
//     With vouched crossings more than half of the members have to say so.
//   - A member that lies can only keep a shard that is down from being refused. Then the tables of
//     the other shards fill, and their own members see that.
//
// # The verdicts on transactions
//
// A transaction of several shards waits in each of them for the verdicts of the others
// ([ledger.Verdict]). Verdicts is the exchange. Package ledger/verdicts makes its decisions, and
// this package gives it the messages, the time, the chain and the members. Each shard's verdict
// follows from its chain, so any member can send it any number of times, and a lost message only
// causes a delay:
//
//	verdicts, err := shards.NewVerdicts(shards.VerdictsConfig{Directory: directory, Control: control, Store: current, Durable: height, Ready: pool.Wake})
//	verdicts.Applied(block)                                // each block that is executed here
//	verdicts.DurableTo(height)                             // blocks that are on a majority's disks
//	batch.Groups, batch.Verdicts = verdicts.Propose(room)  // with this node's next message
//	verdicts.Reset()                                       // another store took the place of the one before
//
// The genesis decides how much a verdict needs to be believed:
//
//   - Not vouched: members of other shards crash, they do not lie. A node believes a verdict that
//     one member of its shard tells.
//   - Vouched (VerdictsConfig.Vouched): a minority of the members of another shard may lie, be
//     silent, or contradict themselves. A node believes a verdict once more than half of the other
//     shard's present members told it the same verdict themselves, or once Prove returns it. The
//     Directory determines the present members, at the time of counting.
//
// The path of a verdict:
//
//   - Told: once a block is durable, members of its shard send the verdicts in it to members of
//     each other shard that they concern. Not vouched: f+1 of the n members, of which f = ⌊(n-1)/2⌋
//     may crash, send to f+1 members, and the choice rotates with the transaction's id. Vouched:
//     each member sends to each, and the good ones in groups once the chain takes groups
//     (VerdictsConfig.Groups). A group is believed, judged and proposed as one, and asked for as
//     single verdicts.
//   - Believed: not vouched, at once. Vouched, the words of members on a verdict wait until they
//     are enough. A member's first word on a verdict stays. A word against it, or against what is
//     believed, is counted and logged (VerdictsStatus.Contradicted). After a change of the members
//     all words are counted anew.
//   - Asked for: the members that should have told a verdict may have crashed, been cut off, or
//     had no room. A node therefore asks for a verdict that it has waited for longer than
//     AskAfter: each time another member, or in a vouched book all members. A node that starts
//     asks at once. It tries Prove if it asked twice in vain.
//   - Proposed: a verdict that the chain waits for goes into this node's next message. Not
//     vouched, it goes there again only after AgainAfter, and blocks take each verdict once,
//     whichever member proposes it. Vouched, it goes into every message until a block takes it,
//     because a block takes a verdict only if a majority of the members propose it in one round. A
//     message with too little room takes the first verdicts in the order of transaction ids and
//     shards, so that the messages of several members have the same ones. Ready is called for a
//     verdict that is new, and for one that waits for longer than AgainAfter.
//   - Early: a verdict that is believed before its transaction arrives is kept until then.
//
// What always holds:
//
//   - Only verdicts of durable blocks are told: other shards act on them for ever.
//   - A proposed verdict is well-formed, from another shard, believed, and was waited for when it
//     was judged. A verdict that was settled meanwhile is dropped with the next executed block, or
//     at the next look.
//   - Vouched: a minority of another shard's members can neither make this node believe a verdict
//     that their shard did not give, nor keep it from believing one that the others tell.
//   - All memory is bounded. A verdict that does not fit is dropped, and asked for later. Each
//     member has an equal share of the room for words, so that no member can push out the words of
//     another one.
//   - One goroutine reads the chain, and another one calls Prove. Handlers of messages count words.
//     Otherwise they, Applied and DurableTo only take notes. With nothing to do the goroutines
//     sleep, without a ticker.
//
// # Files
//
//	directory.go  the members, and which of them to ask
//	state.go      the state of the shards, for people
//	announcer.go  the nodes' reports about themselves
//	obstacles.go  the shards that are down, full or lost
//	loss.go       the shards with which the operators settled
//	waiting.go    the nodes' reports about what waits in their chains
//	trail.go      the members that certificates prove
//	trail_exchange.go  getting trails, and giving them
//	introductions.go  strangers that prove who they are
//	gate.go       what strangers may cost
//	verdicts.go   the exchange of verdicts, as the node sees it
//	exchange.go   its goroutine: judging, answering, telling, asking
//	words.go      what members of other shards say, and the contradictions to log
//	prove.go      certified proofs of verdicts that are not told
//	wire.go       the messages, byte by byte
package shards
