package book

import (
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// Turn is an instant of virtual time.
type Turn int64

// plan is everything that a seed decides before a run.
type plan struct {
	// tree and groups are those of the genesis.
	tree    *ledger.ShardTree
	groups  *tram.Tree
	genesis []*ledger.Genesis
	// keys are the node keys of all members, by shard.
	keys [][]ed25519.PrivateKey
	// limit replaces state.MaxWaiting unless it is 0. bounds are those of each member's memory of
	// verdicts, and proposed is how many of them fit into a batch.
	limit    int
	bounds   verdicts.Bounds
	proposed int
	// late and lateMax bound the copies that are too late, at a member and in a block.
	late    verdicts.LateBounds
	lateMax int
	// outlines says that new disks begin with outlines of earlier blocks, and fills that members
	// fill these in.
	outlines, fills bool
	// assetsMax replaces ledger.MaxAssets unless it is 0.
	assetsMax int
	// memory is how many accounts a member may keep in memory, 0 for all.
	memory int
	// indexes are those of each shard's members.
	indexes []ledger.MemberIndex
	// loss and repeats are the percentages of messages that are lost and sent twice. delay is the
	// longest time that a message takes.
	loss, repeats, delay int
	// haste is the percentage of turns in which a shard orders a round, and flush that of turns in
	// which a disk flushes.
	haste, flush int
	workload     *workload
	// additions are the shards that the operators add, in order, and addedAt when.
	additions []ledger.ShardAddition
	addedAt   []Turn
	// upgrade is the version to which the operators raise the chains on the way, 0 for none.
	upgrade int
	// movers draws the moves of organisations, or is nil in a book without. arrival is the size of
	// what arrives at once, in bytes.
	movers  *rand.Rand
	arrival int
	// minters draws who issues registered assets.
	minters *rand.Rand
	// limiters draws the terms of accounts.
	limiters *rand.Rand
	// hangers draws the changes of the tree, or is nil in a book without.
	hangers *rand.Rand
	// replacers draws the replacements of members, or is nil in a book without.
	replacers   *rand.Rand
	submissions []submission
	faults      []fault
	losses      []lossOf
	// losing says that shards get lost. mixed says that the operators add shards, move
	// organisations and settle with lost shards in the same run: changes, in any order.
	losing, mixed bool
	changes       []change
	// calm is the turn at which faults are over.
	calm Turn
}

// submission is a bundle that a client submits. Number is its number in the plan.
type submission struct {
	number int
	at     Turn
	what   string
	bundle *ledger.Bundle
	// above is how far above its entry the bundle is submitted. If copies is set, it is also
	// submitted at its entry. If astray is set, it is submitted at shard instead.
	above  int
	copies bool
	astray bool
	shard  ledger.ShardID
	member int
}

// fault is a fault of the plan. The members are struck at a turn, and back after a while.
type fault struct {
	number  int
	at      Turn
	kind    Faults
	shard   ledger.ShardID
	members []int
	length  Turn
}

func (f *fault) String() string {
	return fmt.Sprintf("fault %d: %v at members %v of shard %d for %d turns", f.number, f.kind,
		f.members, f.shard, f.length)
}

// newPlan draws the plan of a run.
func newPlan(options *Options) (*plan, error) {
	random := rand.New(rand.NewPCG(options.Seed, 0))
	// The moves have a chance of their own, so that other books stay as they were without them.
	movers := rand.New(rand.NewPCG(options.Seed, 1<<40))
	mixing := rand.New(rand.NewPCG(options.Seed, 1<<41))
	grouping := rand.New(rand.NewPCG(options.Seed, 1<<44)) // so have groups of verdicts
	p := &plan{mixed: mixing.IntN(3) == 0, delay: 1, haste: 30 + random.IntN(70),
		flush: 10 + random.IntN(80)}
	p.losing = options.Faults&FaultLose != 0 && (p.mixed || loses(options.Seed))
	shards, members := 2+random.IntN(4), []int{1, 3, 3, 3, 3, 2, 5}[random.IntN(7)]
	if p.losing && !p.mixed {
		shards = max(shards, 4) // some are left to agree with each other
	}
	if options.Shards != 0 {
		shards = options.Shards
	}
	if options.Members != 0 {
		members = options.Members
	}
	if random.IntN(3) == 0 {
		p.limit = 1 + random.IntN(6)
	}
	p.bounds, p.proposed = verdicts.DefaultBounds(), ledger.MaxBatchVerdicts
	if random.IntN(3) == 0 {
		few := func() int { return 4 + random.IntN(12) }
		p.bounds = verdicts.Bounds{Awaited: few(), Early: few(), Settled: few(), Received: few(),
			Believed: few(), Words: few() * 10, Grouped: 50 + grouping.IntN(500)}
		p.proposed = few()
	}
	if random.IntN(3) == 0 {
		p.memory = 1 + random.IntN(5)
	}
	for i := range members {
		p.indexes = append(p.indexes, ledger.MemberIndex(i))
	}
	if movers.IntN(3) == 0 && !p.losing || p.mixed {
		p.movers, p.arrival = movers, 40+movers.IntN(600)
	}
	if !p.losing && !p.mixed && p.movers == nil {
		p.hangers = hangs(options.Seed)
	}
	p.replacers, p.minters = replaces(options), rand.New(rand.NewPCG(options.Seed, 1<<47))
	p.limiters = rand.New(rand.NewPCG(options.Seed, 1<<49))
	p.outline(options.Seed)
	if err := p.found(random, grouping, shards, members); err != nil {
		return nil, err
	}
	if p.mixed || !p.losing && p.movers == nil {
		p.grow(random, members)
	}
	count := 10 + random.IntN(SubmissionsMax-9)
	if options.Submissions != 0 {
		count = options.Submissions
	}
	p.workload = newWorkload(random, p.genesis[0], p.upgrade)
	if p.movers != nil {
		p.workload.far = nearerDeadline
	}
	p.submit(random, count)
	p.issue(options.Seed)
	p.mint()
	p.drawHolds(options.Seed)
	p.drawDetails(options.Seed)
	p.drawSchedules(options.Seed)
	p.restrict()
	p.late, p.lateMax = verdicts.DefaultLateBounds(), state.MaxLate
	if tight := rand.New(rand.NewPCG(options.Seed, 1<<46)); tight.IntN(3) > 0 {
		p.late.All, p.late.OfShard = 2+tight.IntN(4), 1
		p.lateMax = 1
	}
	if p.mixed {
		p.mix(mixing)
	} else {
		p.lose(options.Seed)
		p.move()
		p.hang()
	}
	if options.Faults&FaultNetwork != 0 {
		p.loss, p.repeats, p.delay = random.IntN(50), random.IntN(40), 1+random.IntN(12)
	}
	p.strike(random, options.Faults)
	p.forget(options)
	p.replace(options.Faults)
	if options.OnlySubmissions != nil {
		p.submissions = slices.DeleteFunc(p.submissions, func(s submission) bool {
			return !slices.Contains(options.OnlySubmissions, s.number)
		})
	}
	if options.OnlyFaults != nil {
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool {
			return !slices.Contains(options.OnlyFaults, f.number)
		})
	}
	return p, nil
}

// found draws the tree and the members.
func (p *plan) found(random, grouping *rand.Rand, shards, members int) error {
	parents := make([]ledger.ShardID, shards)
	numbers := random.Perm(shards)
	parents[numbers[0]] = ledger.ShardID(numbers[0])
	for i := 1; i < shards; i++ {
		parents[numbers[i]] = ledger.ShardID(numbers[random.IntN(i)])
	}
	genesis := &ledger.Genesis{Chain: "book", Time: 1_700_000_000_000, Tree: parents,
		VouchedCrossings: random.IntN(4) == 0,
		Operators:        []ledger.PublicKey{ledger.PublicKey(operatorKey()[32:])},
		Version:          ledger.FirstVersion + random.IntN(ledger.CancelVersion)}
	if p.replacers != nil && p.replacers.IntN(2) == 0 {
		genesis.VouchedCrossings = true
	}
	if random.IntN(3) == 0 {
		genesis.Version = ledger.GrowthVersion
	}
	if older := ledger.CancelVersion - genesis.Version; older > 0 && random.IntN(2) == 0 {
		p.upgrade = genesis.Version + 1 + random.IntN(older)
	}
	switch {
	case p.mixed:
		p.upgrade, genesis.Version = 0, ledger.GrowthVersion
	case p.losing:
		if p.upgrade = 0; genesis.Version < ledger.DeadlineVersion {
			p.upgrade = ledger.GrowthVersion
		} else {
			genesis.Version = ledger.GrowthVersion
		}
	case p.movers == nil && p.hangers == nil:
	case p.upgrade > 0:
		p.upgrade = ledger.GrowthVersion
	default:
		genesis.Version = ledger.GrowthVersion
	}
	// Half of the books with that version have the newest one instead, which is decided by what is
	// drawn already.
	if newest := (shards+members)%2 == 0; newest && genesis.Version == ledger.GrowthVersion {
		genesis.Version = ledger.NewestVersion
	} else if newest && p.upgrade == ledger.GrowthVersion {
		p.upgrade = ledger.NewestVersion
	}
	p.takeGroups(genesis, grouping)
	p.takeAssets(genesis)
	groups := make([]order.GroupID, shards)
	for shard := range parents {
		groups[shard] = order.GroupID(parents[shard])
		ofShard, keys := membersOf(shard, members)
		genesis.Shards, p.keys = append(genesis.Shards, ofShard), append(p.keys, keys)
	}
	genesis.Members = genesis.Shards[0]
	if err := genesis.Validate(); err != nil {
		return err
	}
	for shard := range parents {
		one, err := genesis.ForShard(ledger.ShardID(shard))
		if err != nil {
			return err
		}
		p.genesis = append(p.genesis, one)
	}
	p.tree = genesis.ShardTree()
	var err error
	p.groups, err = tram.NewTree(groups)
	return err
}

// takeGroups makes chains that could change the book take groups of verdicts, too, from the
// beginning or from a change of the version on, in most books with vouched crossings.
func (p *plan) takeGroups(genesis *ledger.Genesis, grouping *rand.Rand) {
	switch draw := grouping.IntN(8); {
	case !genesis.VouchedCrossings || draw == 0:
	case p.upgrade > 0:
		p.upgrade = ledger.CrossingVersion
	case genesis.Version != ledger.GrowthVersion:
	case draw < 3 && !p.mixed && !p.losing && p.movers == nil && p.hangers == nil:
		p.upgrade = ledger.CrossingVersion
	default:
		genesis.Version = ledger.CrossingVersion
	}
}

// membersOf returns the first members of a shard, and their keys.
func membersOf(shard, count int) (members []ledger.Member, keys []ed25519.PrivateKey) {
	for i := range count {
		name := fmt.Sprintf("node-%d-%d", shard, i)
		key := keyOf(name)
		keys = append(keys, key)
		members = append(members, ledger.Member{Name: name, Key: key[32:],
			Address: fmt.Sprintf("10.0.%d.%d:7000", shard, i)})
	}
	return members, keys
}

// grow draws the shards that the operators add on the way.
func (p *plan) grow(random *rand.Rand, members int) {
	if p.genesis[0].Version < ledger.GrowthVersion {
		return
	}
	shards := len(p.genesis)
	for range 1 + random.IntN(2) {
		added, keys := membersOf(shards, members)
		p.additions = append(p.additions, ledger.ShardAddition{
			Parent: ledger.ShardID(random.IntN(shards)), Members: added})
		p.keys = append(p.keys, keys)
		p.addedAt = append(p.addedAt, Turn(30+len(p.addedAt)*40+random.IntN(60)))
		shards++
	}
}

// shards is the number of shards of the book after all additions.
func (p *plan) shards() int { return len(p.genesis) + len(p.additions) }

// vouched reports whether members have to vouch for what comes from other shards.
func (p *plan) vouched() bool { return p.genesis[0].VouchedCrossings }

// minority is how many members of a shard may lie.
func (p *plan) minority() int { return (len(p.indexes) - 1) / 2 }

// mayLie reports whether the member of this number, of any shard, may lie: at all times the same
// minority, because words that were said stay.
func (p *plan) mayLie(member int) bool { return p.vouched() && member < p.minority() }

// submit draws the bundles and when they are submitted.
func (p *plan) submit(random *rand.Rand, count int) {
	add := func(at Turn, what string, bundle *ledger.Bundle) {
		s := submission{number: len(p.submissions) + 1, at: at, what: what, bundle: bundle,
			shard: ledger.ShardID(random.IntN(len(p.genesis))), member: random.IntN(MembersMax)}
		switch random.IntN(10) {
		case 0:
			s.astray = true
		case 1, 2:
			s.above = 1 + random.IntN(2)
			s.copies = random.IntN(2) == 0
		}
		p.submissions = append(p.submissions, s)
	}
	for i, client := range p.workload.clients {
		at := Turn(1)
		if i == len(p.workload.clients)-1 && random.IntN(2) == 0 {
			at = 60 // its registration races with transactions that involve it
		}
		if added := len(p.additions); added > 0 && i == len(p.workload.clients)-1 {
			// It is to live in the newest shard, and tries until that is there.
			at = p.addedAt[added-1] + Turn(random.IntN(10))
			for range 3 {
				add(at, "registers "+string(client.name), p.workload.pinned(client,
					ledger.ShardID(p.shards()-1)))
				at += 25
			}
			p.calm = max(p.calm, at+40)
		} else {
			add(at, "registers "+string(client.name), p.workload.registration(random, client,
				len(p.genesis)))
		}
		add(at+Turn(10+random.IntN(10)), "opens accounts of "+string(client.name),
			p.workload.opening(client))
	}
	for i := range p.additions {
		if p.mixed {
			break
		}
		add(p.addedAt[i], fmt.Sprintf("adds a shard below shard %d", p.additions[i].Parent),
			p.workload.addition(uint64(i+1), &p.additions[i]))
	}
	const first, between = 48, 5
	at := Turn(first)
	if random.IntN(4) == 0 {
		at /= 2 // the first transactions come before organisations and accounts
	}
	if p.upgrade > 0 {
		p.workload.upgradedAt = at + Turn(random.IntN(count*between/2))
		add(p.workload.upgradedAt, fmt.Sprintf("raises the version to %d", p.upgrade),
			p.workload.upgrade(p.genesis[0], p.upgrade))
	}
	for range count {
		at += Turn(random.IntN(between))
		if random.IntN(6) == 0 { // a client that does not know the outcome submits again
			again := p.submissions[random.IntN(len(p.submissions))]
			add(at, "again: "+again.what, again.bundle)
			continue
		}
		what, bundle := p.workload.bundle(random, at)
		add(at, what, bundle)
		if !p.workload.cancels || random.IntN(2) == 0 {
			continue
		}
		for _, each := range p.workload.cancellations(random, bundle, len(p.genesis)) {
			// Many come before the transaction does. Their sender need not have submitted it.
			when := max(first, at+Turn(random.IntN(60)-35))
			p.calm = max(p.calm, when)
			add(when, each.what, each.bundle)
		}
	}
	p.calm = max(p.calm, at, p.workload.upgradedAt) + 20
}

// move draws the moves of organisations. Some come before the organisation is registered, or do not
// change its home.
func (p *plan) move() {
	if p.movers == nil {
		return
	}
	const first = 50
	at := max(first, p.workload.upgradedAt)
	for number := range uint64(1 + p.movers.IntN(4)) {
		at += Turn(p.movers.IntN(30))
		c := p.workload.clients[p.movers.IntN(len(p.workload.clients))]
		to := ledger.ShardID(p.movers.IntN(len(p.genesis)))
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what:   fmt.Sprintf("move %d, of %s to shard %d", number+1, c.name, to),
			bundle: p.workload.move(number+1, c, to), member: p.movers.IntN(MembersMax)})
		p.calm = max(p.calm, at+20)
		p.repeat(c, at)
	}
}

// repeat draws bundles that concern an organisation and are submitted again after it moved.
func (p *plan) repeat(c *client, moved Turn) {
	for _, each := range p.submissions {
		if each.at > moved || !concerns(each.bundle, c.name) || p.movers.IntN(3) == 0 {
			continue
		}
		at := moved + Turn(p.movers.IntN(40))
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what: "after the move: " + each.what, bundle: each.bundle,
			member: p.movers.IntN(MembersMax)})
		p.calm = max(p.calm, at+20)
	}
}

// concerns reports whether a bundle has a transaction of an organisation, or with its accounts.
func concerns(bundle *ledger.Bundle, name ledger.OrganisationName) bool {
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		if !t.BookWide() && t.Cancellation == nil && (t.Signer == name ||
			slices.ContainsFunc(t.Postings, func(posting ledger.Posting) bool {
				return posting.Account.Organisation() == name
			})) {
			return true
		}
	}
	return false
}

// strike draws the faults.
func (p *plan) strike(random *rand.Rand, kinds Faults) {
	members := len(p.keys[0])
	add := func(f fault) {
		f.number = len(p.faults) + 1
		p.faults = append(p.faults, f)
	}
	timed := []Faults{FaultCrash, FaultStop, FaultReplace, FaultSlow, FaultLie}
	for range random.IntN(9) {
		f := fault{at: Turn(random.IntN(int(p.calm))),
			shard: ledger.ShardID(random.IntN(p.shards())),
			kind:  timed[random.IntN(len(timed))], length: Turn(1 + random.IntN(40))}
		one := random.IntN(members)
		if kinds&f.kind == 0 {
			continue
		}
		switch f.kind {
		case FaultStop:
			for member := range members {
				f.members = append(f.members, member)
			}
			add(f)
		case FaultReplace:
			f.length = Turn(3 + random.IntN(4))
			for member := range 1 + random.IntN(members) {
				each := f
				each.members = []int{member}
				each.at += Turn(member) * 12
				if each.at < p.calm {
					add(each)
				}
			}
		case FaultLie:
			if f.length *= 4; p.mayLie(0) {
				f.members = []int{one % p.minority()}
				add(f)
			}
		default:
			f.members = []int{one}
			add(f)
		}
	}
}

// forget draws, in some books, that a shard loses several blocks at once: for a while no disk of it
// flushes anything, and then more than half of its members lose power. In memory the others still
// have what is lost. The chance is apart from others, so that other books stay as they were.
func (p *plan) forget(options *Options) {
	random := rand.New(rand.NewPCG(options.Seed, 1<<45))
	if options.Faults&FaultStop == 0 || options.Faults&FaultSlow == 0 || random.IntN(4) > 0 {
		return
	}
	members := len(p.keys[0])
	for range 1 + random.IntN(3) {
		slow := fault{number: len(p.faults) + 1, kind: FaultSlow,
			at: Turn(40 + random.IntN(max(1, int(p.calm)-60))), length: Turn(10 + random.IntN(30)),
			shard: ledger.ShardID(random.IntN(p.shards()))}
		struck := random.Perm(members)
		slow.members = slices.Clone(struck)
		stop := slow
		stop.number, stop.kind, stop.at = slow.number+1, FaultStop, slow.at+slow.length
		stop.members = struck[:members/2+1]
		if random.IntN(4) == 0 {
			stop.members = struck
		}
		stop.length = Turn(1 + random.IntN(20))
		p.faults = append(p.faults, slow, stop)
		p.calm = max(p.calm, stop.at+stop.length)
	}
}

// String describes the plan in a line.
func (p *plan) String() string {
	version := fmt.Sprint(p.genesis[0].Version)
	if p.upgrade > 0 {
		version += fmt.Sprintf(" and then %d", p.upgrade)
	}
	return fmt.Sprintf("%d shards of %d, parents %v, %d added, version %s, vouched: %v, at most "+
		"%d waiting, %d accounts in memory, assets in one: %d, outlines: %v, filled in: %v, "+
		"%d%% of messages lost, %d%% repeated, up to %d turns late, %d bundles, %d faults%s",
		len(p.genesis), len(p.keys[0]), p.genesis[0].Tree, len(p.additions), version,
		p.vouched(), p.limit, p.memory, p.assetsMax, p.outlines, p.fills, p.loss,
		p.repeats, p.delay, len(p.submissions), len(p.faults),
		p.lossesInWords()+p.changesInWords()+p.replacementsInWords())
}
