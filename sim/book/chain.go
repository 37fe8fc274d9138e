package book

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// record is a block as the judge knows it, from the first member that executed it. Blocks that are
// lost and come again have another epoch, so no two records have the same block.
type record struct {
	block       *ledger.Block
	carried     []forwarded
	verdicts    []state.OwnVerdict
	settlements []state.Settlement
	// position is how far the chain has the parent's stream. holdings are what the shard has of
	// each organisation, and waiting the transactions that wait. All are those after the block.
	// source is the last entry of a parent's stream in the chain.
	position uint64
	source   source
	holdings map[ledger.OrganisationName]holding
	// brought is what organisations that arrived brought along.
	brought map[ledger.OrganisationName]holding
	waiting []ledger.Hash
	// late counts the transactions that are refused beside the order of the tree.
	late int
	// members are those after the block, in a book that replaces some.
	members []ledger.GroupMember
	// coming counts the organisations that are on their way here after the block. departed are the
	// moves whose organisations have left since the block before.
	coming   int
	departed []uint64
	// version is the chain's version after the block.
	version int
	// relay is TRAM's relay after the block. homes are the homes of the organisations that were
	// registered up to there and are pinned to a shard.
	relay *tram.Relay
	homes map[ledger.OrganisationName]ledger.ShardID
	// lost are the shards that the operators settled with up to there, in their order.
	lost []ledger.ShardID
	// shards is the number of shards of the book after the block, and tree their tree. seeds are
	// the directories of those that it added, and additions all that were added up to there.
	shards    int
	tree      *ledger.ShardTree
	seeds     []state.Seed
	additions []ledger.AddedShard
	// moved counts the moves of each organisation before the block, and moves are those in it,
	// which count only for later blocks. destinations are the shards that the transactions concern.
	moved        map[ledger.OrganisationName]int
	moves        []*ledger.OrganisationMove
	destinations map[ledger.Hash][]ledger.ShardID
	// cancelled are the cancellations that the shard took up to there, with their deadlines.
	cancelled map[withdrawal]ledger.Milliseconds
	// asset is the registered asset after the block, or nil.
	asset *ledger.Asset
	// held are the holds that are open after the block, and lapsed counts those that expired with
	// it.
	held   holdsOf
	lapsed int
	// details are what the chain remembers of details of entries after the block.
	details *detailsOf
	// schedules are those that the chain has open after the block.
	schedules schedulesOf
	// accounts are those after the block. Of those that are away the organisation lives in another
	// shard, or has not arrived with everything.
	accounts map[ledger.AccountPath]*ledger.Account
	away     map[ledger.AccountPath]bool
}

// holding is what a shard has of an organisation that lives there or lived there: the amounts of
// each asset in its accounts, set aside or not.
type holding = map[ledger.AssetName]ledger.Amount

// withdrawal is an organisation's cancellation of a transaction.
type withdrawal struct {
	id ledger.Hash
	by ledger.OrganisationName
}

// forwarded is an entry of the stream to a child.
type forwarded struct {
	child ledger.ShardID
	entry *carried
}

// place is the place of a transaction in a chain.
type place struct{ height, index int }

// before reports whether one place is before another.
func (p place) before(other place) bool {
	return p.height < other.height || p.height == other.height && p.index < other.index
}

// outcome is how a transaction ended in a shard that it concerns, and in which block.
type outcome struct {
	applied bool
	height  int
	// to are the shards that it concerned at its place.
	to []ledger.ShardID
}

// chain is what the judge knows of a shard's chain.
type chain struct {
	records []*record
	// places are those of all transactions. decided are the blocks with the shard's own decisions,
	// outcomes how the transactions ended here, and forwarded the blocks with each entry of each
	// child's stream.
	places    map[ledger.Hash]place
	outcomes  map[ledger.Hash]outcome
	decided   map[ledger.Hash]int
	forwarded map[ledger.ShardID][]handed
	// departed are the blocks with which organisations have left, by the number of the move.
	departed map[uint64]int
}

// adopt makes other blocks the chain.
func (g *group) adopt(records []*record) {
	g.chain = chain{places: make(map[ledger.Hash]place),
		outcomes: make(map[ledger.Hash]outcome), decided: make(map[ledger.Hash]int),
		forwarded: make(map[ledger.ShardID][]handed), departed: make(map[uint64]int)}
	for _, each := range records {
		g.append(each)
	}
}

// append adds a block to the chain, and judges integrity and atomicity.
func (g *group) append(r *record) {
	g.chain.records = append(g.chain.records, r)
	height := len(g.chain.records)
	g.world.changed = true
	g.world.trace.Note(g.world.turn, uint64(g.shard), uint64(height), word(r.block.Hash))
	for i := range r.block.Len() {
		id := r.block.Entry(i).ID
		if first, again := g.places[id]; again {
			g.world.fail(order.Integrity, fmt.Sprintf("shard %d has transaction %s twice: in "+
				"block %d and in block %d", g.shard, short(id), first.height, height))
		}
		g.places[id] = place{height, i}
	}
	for _, each := range r.carried {
		before, number := g.handed(each.child), each.entry.Number
		g.forwarded[each.child] = append(g.forwarded[each.child], handed{number, height})
		next := before + 1
		if base := ledger.StreamBase(ledger.StreamOf(number)); before < base {
			next = base + 1
		}
		if number != next {
			g.world.fail(order.Integrity, fmt.Sprintf("shard %d numbers entry %d of the stream to "+
				"shard %d %d", g.shard, next, each.child, number))
		}
	}
	for _, number := range r.departed {
		g.departed[number] = height
	}
	for i := range r.block.Unpacked {
		entry := &r.block.Unpacked[i]
		if t := entry.Transaction(); t.Verdict != nil || t.Arrival != nil ||
			entry.Result.Code == ledger.Relayed {
			continue
		}
		g.decided[entry.ID] = height
		if entry.Result.Code != ledger.SetAside {
			g.settle(entry.ID, outcome{applied: entry.Result.OK(), height: height,
				to: r.destinations[entry.ID]})
		}
	}
	for _, each := range r.settlements {
		g.settle(each.ID, outcome{applied: each.Applied, height: height,
			to: g.records[g.places[each.ID].height-1].destinations[each.ID]})
	}
}

func word(hash ledger.Hash) (word uint64) {
	for _, each := range hash[:8] {
		word = word<<8 | uint64(each)
	}
	return word
}

// contradicts reports whether a transaction ended in two shards as it may not. If it took effect in
// one, it must have taken effect in the other one exactly if it concerned that one.
func (o *outcome) contradicts(shard ledger.ShardID, there *outcome, other ledger.ShardID) bool {
	return o.applied && there.applied != slices.Contains(o.to, other) ||
		there.applied && o.applied != slices.Contains(there.to, shard)
}

// settle records how a transaction ended in this shard. A copy of a transaction may come after one
// of its organisations moved, and then concerns other shards: it fails in those where it is new if
// it concerns any where it is not, and may take effect otherwise if it failed before.
func (g *group) settle(id ledger.Hash, o outcome) {
	g.outcomes[id] = o
	if g.world.isLost(g.shard) {
		return
	}
	for _, other := range g.world.remaining() {
		if there, ended := other.outcomes[id]; ended &&
			o.contradicts(g.shard, &there, other.shard) {
			yes, no := g, other
			if there.applied {
				yes, no = other, g
			}
			g.world.fail(Atomicity, fmt.Sprintf("transaction %s took effect in shard %d, block "+
				"%d, and not in shard %d, block %d", short(id), yes.shard, yes.outcomes[id].height,
				no.shard, no.outcomes[id].height))
		}
	}
}

// newRecord makes the record of a block that a member has just executed.
func (g *group) newRecord(m *member, block *ledger.Block, changes *state.Changes) *record {
	r := &record{block: block, verdicts: changes.Verdicts, settlements: changes.Settlements,
		position: m.state.Carried(), version: g.version(), shards: g.shards(),
		seeds: changes.Seeds, additions: m.state.Additions(),
		holdings:     make(map[ledger.OrganisationName]holding),
		destinations: make(map[ledger.Hash][]ledger.ShardID)}
	if g.world.trace.HasText() {
		g.world.say("shard %d has block %d:%s", g.shard, block.Header.Height, r.describe())
	}
	if changes.OutOfPlace > 0 {
		g.world.fail(order.Integrity, fmt.Sprintf("shard %d, block %d: %d transactions are out of "+
			"place", g.shard, block.Header.Height, changes.OutOfPlace))
	}
	for _, forward := range changes.Forwards {
		bundle := block.CarriedBundle(int(forward.Bundle))
		r.carried = append(r.carried, forwarded{forward.Child, &carried{
			Carried: ledger.Carried{Number: forward.Number, Bundle: bundle},
			hash:    ledger.CarriedHash(bundle), height: int(block.Header.Height)}})
	}
	g.judgeIssuances(m, r)
	for _, path := range g.world.paths {
		account, open := m.account(path)
		if !open {
			continue
		}
		for i := range account.Balances {
			balance := &account.Balances[i]
			if balance.Amount.Sign() < 0 && !account.Issuer {
				g.world.fail(Conservation, fmt.Sprintf("shard %d, block %d: %s is overdrawn: %v",
					g.shard, block.Header.Height, path, balance.Amount))
			}
			r.hold(m, path.Organisation(), balance)
		}
	}
	for _, each := range m.state.AllPending() {
		r.waiting = append(r.waiting, each.ID)
	}
	if g.world.plan.replacers != nil {
		r.members = m.state.Membership().Members
	}
	g.noteMoves(m, r)
	if g.head() == 0 {
		r.tree, r.lost = g.treeOfBeginning(m.state), m.state.LostBefore()
		r.relay = tram.NewRelay(groupsOf(r.tree), g.id())
		r.homes, r.moved = g.pinned()
	} else {
		last := g.last()
		r.tree, r.source = last.tree, last.source
		r.relay, r.cancelled, r.lost = last.relay.Clone(), last.cancelled, last.lost
		r.brought, r.held, r.details = last.brought, last.held, last.details
		r.schedules = last.schedules
		r.homes, r.moved = last.homesAfter()
	}
	g.judgeTerms(m, r)
	before := r.homes
	g.relay(r, changes)
	g.judgeHolds(m, r)
	g.judgeDetails(m, r, before)
	g.judgeSchedules(m, r)
	return r
}

func add(sums map[ledger.AssetName]ledger.Amount, asset ledger.AssetName, amount ledger.Amount) {
	sum, err := sums[asset].Add(amount)
	if err != nil {
		panic(fmt.Sprintf("sim/book: the sum of %s: %v", asset, err))
	}
	sums[asset] = sum
}

// relay runs TRAM's relay over the block. It must deliver what was not only relayed here, and hand
// on the same entries with the same numbers.
func (g *group) relay(r *record, changes *state.Changes) {
	forwards := changes.Forwards
	for b := range r.block.Bundles {
		var to []order.GroupID
		delivered, client := false, r.block.Bundles[b].Number != 0
		var change *ledger.BookChange
		if parent, below := r.tree.Parent(g.shard); client && below {
			r.source = source{parent, r.block.Bundles[b].Number}
		}
		for i := range r.block.Unpacked {
			entry := &r.block.Unpacked[i]
			if entry.Bundle != b {
				continue
			}
			if verdict := entry.Transaction().Verdict; verdict != nil {
				g.judgeVersion(r, verdict)
				g.judgeLoss(r, verdict)
				continue
			}
			if arrival := entry.Transaction().Arrival; arrival != nil {
				r.arrive(arrival)
				continue
			}
			destinations := g.destinations(r, entry.Transaction())
			if g.isLate(r, b, entry, destinations) {
				r.destinations[entry.ID] = destinations
				g.judgeDeadline(r, entry, destinations)
				continue
			}
			client = true
			// One that concerns only lost shards is refused where it enters.
			delivered = delivered || entry.Result.Code != ledger.Relayed &&
				(entry.Result.Code != ledger.ShardLost ||
					slices.Contains(destinations, g.shard))
			r.destinations[entry.ID] = destinations
			g.judgeDeadline(r, entry, destinations)
			g.judgeCancelling(r, i)
			for _, shard := range r.without(destinations) {
				if id := order.GroupID(shard); !slices.Contains(to, id) {
					to = append(to, id)
				}
			}
			r.register(entry)
			r.raise(entry)
			r.settleWith(g, entry)
			if entry.Transaction().Book != nil && entry.Result.OK() {
				change = entry.Transaction().Book
			}
		}
		if !client {
			continue // a verdict concerns this shard only
		}
		slices.Sort(to)
		got := r.relay.Order(tram.Item{Number: r.block.Bundles[b].Number,
			Message: order.Multicast{To: to}})
		count := 0
		for count < len(forwards) && forwards[count].Bundle == uint32(b) {
			count++
		}
		same := got.Delivered == delivered && slices.EqualFunc(got.Forwards, forwards[:count],
			func(a tram.Forward, b state.Forward) bool {
				return a.Child == order.GroupID(b.Child) && a.Number == b.Number
			})
		if slices.Contains(r.lost, g.shard) {
			continue // its chain ends here for all others
		}
		if !same || got.Skipped != tram.SkipNone && len(to) > 0 {
			g.world.fail(SameRelay, fmt.Sprintf("shard %d, block %d, bundle %d (number %d) to %v: "+
				"the chain delivers it: %v, and hands on %v", g.shard, r.block.Header.Height, b,
				r.block.Bundles[b].Number, to, delivered, forwards[:count]),
				fmt.Sprintf("tram.Relay %v: delivers it: %v, and hands on %v", got.Skipped,
					got.Delivered, got.Forwards))
		}
		forwards = forwards[count:]
		switch {
		case change == nil:
		case change.Addition != nil:
			r.shards++
			r.tree = r.tree.Grow(change.Addition.Parent)
			r.relay.Grow(groupsOf(r.tree))
		case change.Rehang != nil:
			r.tree = r.tree.Rehang(change.Number, change.Rehang)
			r.relay.Rehang(groupsOf(r.tree), order.GroupID(change.Rehang.Shard),
				ledger.StreamBase(change.Number))
			if g.shard == change.Rehang.Shard {
				g.world.result.Rehung++
			}
		}
	}
	if r.relay.Position() != r.position && !slices.Contains(r.lost, g.shard) {
		g.world.fail(SameRelay, fmt.Sprintf("shard %d, block %d: the chain has the parent's "+
			"stream up to %d, and tram.Relay up to %d", g.shard, r.block.Header.Height, r.position,
			r.relay.Position()))
	}
}

// destinations returns the shards that a transaction concerns, with the homes of the record.
func (g *group) destinations(r *record, t *ledger.Transaction) []ledger.ShardID {
	if t.Change != nil {
		return []ledger.ShardID{g.shard}
	}
	return t.AppendDestinations(nil, r.shards, func(name ledger.OrganisationName) ledger.ShardID {
		return g.home(r, name)
	})
}

// shards returns the number of shards of the book as the chain knows it.
func (g *group) shards() int {
	if g.head() == 0 {
		return g.genesis.BookShards()
	}
	return g.last().shards
}

// groupsOf returns the tree of the shards as one of groups.
func groupsOf(of *ledger.ShardTree) *tram.Tree {
	var parents []order.GroupID
	for _, parent := range of.Parents() {
		parents = append(parents, order.GroupID(parent))
	}
	tree, err := tram.NewTree(parents)
	if err != nil {
		panic(fmt.Sprintf("sim/book: %v", err))
	}
	return tree
}

// pinned returns the homes of the organisations that were pinned to a shard when the chain began,
// and how often they had moved.
func (g *group) pinned() (homes map[ledger.OrganisationName]ledger.ShardID,
	moved map[ledger.OrganisationName]int) {
	homes = make(map[ledger.OrganisationName]ledger.ShardID)
	if g.seed == nil {
		return homes, nil
	}
	begun, err := state.Begin(g.genesis, g.seed)
	if err != nil {
		panic(fmt.Sprintf("sim/book: %v", err))
	}
	for _, each := range begun.Organisations() {
		if each.Pinned {
			homes[each.Name] = each.Shard
		}
	}
	moved = make(map[ledger.OrganisationName]int)
	for _, each := range begun.Moves() {
		moved[each.Organisation]++
	}
	return homes, moved
}

// register records the homes that a registration pins, and moves.
func (r *record) register(entry *ledger.Entry) {
	if change := entry.Transaction().Book; change != nil && change.Move != nil &&
		entry.Result.OK() {
		r.moves = append(r.moves, change.Move)
	}
	registrations := entry.Transaction().Registrations
	if !entry.Result.OK() || len(registrations) == 0 {
		return
	}
	r.homes = maps.Clone(r.homes)
	for i := range registrations {
		if _, again := r.homes[registrations[i].Name]; registrations[i].Pinned && !again {
			r.homes[registrations[i].Name] = registrations[i].Shard
		}
	}
}

// version returns the chain's version.
func (g *group) version() int {
	if g.head() == 0 {
		return g.genesis.Version
	}
	return g.last().version
}

// raise records the version to which the operators raise that of the chain.
func (r *record) raise(entry *ledger.Entry) {
	if change := entry.Transaction().Charter; change != nil && entry.Result.OK() {
		r.version = max(r.version, change.Version)
	}
}

// judgeDeadline judges that a shard agrees to a transaction only in time, and says that it is late
// only if it is. The version of the record is that before the transaction.
func (g *group) judgeDeadline(r *record, entry *ledger.Entry, destinations []ledger.ShardID) {
	t, now, code := entry.Transaction(), r.block.Header.Time, entry.Result.Code
	agrees, takes := code == ledger.Applied || code == ledger.SetAside,
		ledger.TakesDeadlines(r.version)
	passed := t.Deadline != 0 && now >= t.Deadline
	crosses := len(destinations) > 1 && !t.BookWide()
	wrong := ""
	switch {
	case t.NeedsVersion() > g.version():
		wrong = "needs a later version than the chain has"
	case agrees && passed:
		wrong = "is agreed to after its deadline"
	case agrees && crosses && takes && t.Deadline == 0 && t.Occurrence == nil:
		wrong = "crosses shards without a deadline"
	case agrees && crosses && t.Deadline > now+ledger.MaxDeadline:
		wrong = "has a deadline that is too far ahead"
	case code == ledger.DeadlinePassed && !passed:
		wrong = "is refused as late, and is in time"
	default:
		return
	}
	g.world.fail(Deadline, fmt.Sprintf("shard %d, block %d at %d ms: transaction %s with the "+
		"deadline %d ms %s", g.shard, r.block.Header.Height, now-g.genesis.Time, short(entry.ID),
		t.Deadline-g.genesis.Time, wrong))
}

// judgeCancelling judges an entry of a block by the cancellations before it, and a cancellation by
// what waits.
func (g *group) judgeCancelling(r *record, index int) {
	entry := &r.block.Unpacked[index]
	t, now, code := entry.Transaction(), r.block.Header.Time, entry.Result.Code
	wrong := ""
	if c := t.Cancellation; c != nil {
		waits := g.waitsAt(r, index, c.Transaction)
		switch {
		case code == ledger.Applied && waits:
			wrong = "cancels what the shard has agreed to"
		case code == ledger.CancelledTooLate && !waits:
			wrong = "is refused as too late, and nothing waits"
		case code == ledger.Applied:
			key := withdrawal{c.Transaction, t.Signer}
			if r.cancelled = maps.Clone(r.cancelled); r.cancelled == nil {
				r.cancelled = make(map[withdrawal]ledger.Milliseconds)
			}
			r.cancelled[key] = max(r.cancelled[key], t.Deadline)
		}
	} else {
		withdrawn := false
		for name := range t.Consenting() {
			withdrawn = withdrawn || r.cancelled[withdrawal{entry.ID, name}] > now
		}
		switch {
		case withdrawn && (code == ledger.Applied || code == ledger.SetAside):
			wrong = "is agreed to after it was cancelled"
		case code == ledger.Cancelled && !withdrawn:
			wrong = "is refused as cancelled, and none of those who sign it did so here"
		}
	}
	if wrong != "" {
		g.world.fail(Cancelling, fmt.Sprintf("shard %d, block %d: transaction %s of %s %s", g.shard,
			r.block.Header.Height, short(entry.ID), t.Signer, wrong))
	}
}

// judgeVersion judges that a chain takes no verdict with a reason that it does not know yet: the
// programs of its members may not know it either. The version of the record is that before the
// verdict.
func (g *group) judgeVersion(r *record, verdict *ledger.Verdict) {
	needed := ledger.FirstVersion
	switch verdict.Result.Code {
	case ledger.DeadlinePassed, ledger.DeadlineMissing, ledger.DeadlineTooFar:
		needed = ledger.DeadlineVersion
	case ledger.Cancelled:
		needed = ledger.CancelVersion
	case ledger.ShardLost, ledger.HeardAgreement, ledger.HeardNothing, ledger.OrganisationMoving,
		ledger.Departed:
		needed = ledger.GrowthVersion
	case ledger.UnknownHold, ledger.HoldDiffers, ledger.HoldEnding, ledger.HoldOver:
		needed = ledger.HoldsVersion
	case ledger.KeyTaken, ledger.TooManyKeys, ledger.UnknownRefundable, ledger.RefundOver,
		ledger.RefundWaits, ledger.RefundExceeded, ledger.RefundTime, ledger.TooManyRefundable:
		needed = ledger.DetailsVersion
	}
	if r.version < needed {
		g.world.fail(Verdicts, fmt.Sprintf("shard %d, block %d, version %d: shard %d says %s of %s",
			g.shard, r.block.Header.Height, r.version, verdict.Shard, verdict.Result.Code,
			short(verdict.ID)))
	}
}

// waitsAt reports whether a transaction waits in the shard at a place of the block. Verdicts come
// first in a block, so none ends a wait after another transaction.
func (g *group) waitsAt(r *record, index int, id ledger.Hash) bool {
	for i := range index {
		if entry := &r.block.Unpacked[i]; entry.ID == id {
			return entry.Result.Code == ledger.SetAside
		}
	}
	return slices.Contains(g.last().waiting, id) &&
		!slices.ContainsFunc(r.settlements, func(s state.Settlement) bool { return s.ID == id })
}

// describe lists the entries of a block.
func (r *record) describe() (text string) {
	for b := range r.block.Bundles {
		if number := r.block.Bundles[b].Number; number != 0 {
			text += fmt.Sprintf(" [entry %d]", number)
		}
	}
	for i := range r.block.Len() {
		entry := &r.block.Unpacked[i]
		if verdict := entry.Transaction().Verdict; verdict != nil {
			text += fmt.Sprintf(" %s of shard %d (%v): %v;", short(verdict.ID), verdict.Shard,
				verdict.Result.Code, entry.Result.Code)
			continue
		}
		text += fmt.Sprintf(" %s: %v;", short(entry.ID), entry.Result.Code)
	}
	return text
}
