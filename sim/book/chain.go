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
	// position is how far the chain has the parent's stream. sums are the amounts of each asset in
	// all accounts, set aside or not, and waiting the transactions that wait. All are those after
	// the block.
	position uint64
	sums     map[ledger.AssetName]ledger.Amount
	waiting  []ledger.Hash
	// version is the chain's version after the block.
	version int
	// relay is TRAM's relay after the block. homes are the homes of the organisations that were
	// registered up to there and are pinned to a shard.
	relay *tram.Relay
	homes map[ledger.OrganisationName]ledger.ShardID
	// cancelled are the cancellations that the shard took up to there, with their deadlines.
	cancelled map[withdrawal]ledger.Milliseconds
}

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
	forwarded map[ledger.ShardID][]int
}

// adopt makes other blocks the chain.
func (g *group) adopt(records []*record) {
	g.chain = chain{places: make(map[ledger.Hash]place),
		outcomes: make(map[ledger.Hash]outcome), decided: make(map[ledger.Hash]int),
		forwarded: make(map[ledger.ShardID][]int)}
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
		g.forwarded[each.child] = append(g.forwarded[each.child], height)
		if count := len(g.forwarded[each.child]); each.entry.Number != uint64(count) {
			g.world.fail(order.Integrity, fmt.Sprintf("shard %d numbers entry %d of the stream to "+
				"shard %d %d", g.shard, count, each.child, each.entry.Number))
		}
	}
	for i := range r.block.Unpacked {
		entry := &r.block.Unpacked[i]
		if entry.Transaction().Verdict != nil || entry.Result.Code == ledger.Relayed {
			continue
		}
		g.decided[entry.ID] = height
		if entry.Result.Code != ledger.SetAside {
			g.settle(entry.ID, outcome{entry.Result.OK(), height})
		}
	}
	for _, each := range r.settlements {
		g.settle(each.ID, outcome{each.Applied, height})
	}
}

func word(hash ledger.Hash) (word uint64) {
	for _, each := range hash[:8] {
		word = word<<8 | uint64(each)
	}
	return word
}

// settle records how a transaction ended in this shard. It must not have ended otherwise in
// another.
func (g *group) settle(id ledger.Hash, o outcome) {
	g.outcomes[id] = o
	for _, other := range g.world.groups {
		if there, ended := other.outcomes[id]; ended && there.applied != o.applied {
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
		position: m.state.Carried(), version: g.version(),
		sums: make(map[ledger.AssetName]ledger.Amount)}
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
			add(r.sums, balance.Asset, balance.Settled())
		}
	}
	for _, each := range m.state.AllPending() {
		r.waiting = append(r.waiting, each.ID)
	}
	r.relay, r.homes = tram.NewRelay(g.world.plan.groups, g.id()),
		map[ledger.OrganisationName]ledger.ShardID{}
	if g.head() > 0 {
		last := g.last()
		r.relay, r.homes, r.cancelled = last.relay.Clone(), last.homes, last.cancelled
	}
	g.relay(r, changes)
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
		for i := range r.block.Unpacked {
			entry := &r.block.Unpacked[i]
			if entry.Bundle != b {
				continue
			}
			if verdict := entry.Transaction().Verdict; verdict != nil {
				g.judgeVersion(r, verdict)
				continue
			}
			client = true
			delivered = delivered || entry.Result.Code != ledger.Relayed
			destinations := g.destinations(r, entry.Transaction())
			g.judgeDeadline(r, entry, destinations)
			g.judgeCancelling(r, i)
			for _, shard := range destinations {
				if id := order.GroupID(shard); !slices.Contains(to, id) {
					to = append(to, id)
				}
			}
			r.register(entry)
			r.raise(entry)
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
		if !same || got.Skipped != tram.SkipNone && len(to) > 0 {
			g.world.fail(SameRelay, fmt.Sprintf("shard %d, block %d, bundle %d (number %d) to %v: "+
				"the chain delivers it: %v, and hands on %v", g.shard, r.block.Header.Height, b,
				r.block.Bundles[b].Number, to, delivered, forwards[:count]),
				fmt.Sprintf("tram.Relay %v: delivers it: %v, and hands on %v", got.Skipped,
					got.Delivered, got.Forwards))
		}
		forwards = forwards[count:]
	}
	if r.relay.Position() != r.position {
		g.world.fail(SameRelay, fmt.Sprintf("shard %d, block %d: the chain has the parent's "+
			"stream up to %d, and tram.Relay up to %d", g.shard, r.block.Header.Height, r.position,
			r.relay.Position()))
	}
}

// destinations returns the shards that a transaction concerns, with the homes of the record.
func (g *group) destinations(r *record, t *ledger.Transaction) []ledger.ShardID {
	shards := len(g.world.groups)
	return t.AppendDestinations(nil, shards, func(name ledger.OrganisationName) ledger.ShardID {
		if home, pinned := r.homes[name]; pinned {
			return home
		}
		return ledger.Rendezvous(name, shards)
	})
}

// register records the homes that a registration pins.
func (r *record) register(entry *ledger.Entry) {
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
	case agrees && crosses && takes && t.Deadline == 0:
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
