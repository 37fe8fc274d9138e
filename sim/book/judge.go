package book

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

// heads returns the cut at the heads of all chains. It is consistent, because messages tell only
// what is durable.
func (w *world) heads() []int {
	cut := make([]int, len(w.groups))
	for i, g := range w.groups {
		cut[i] = g.head()
	}
	return cut
}

// judgeStreams judges that no chain has more of a stream than its parent's chain.
func (w *world) judgeStreams() {
	for _, g := range w.groups {
		from := g.last().source
		if of := w.groups[from.shard].handed(g.shard); from.number > of {
			w.fail(order.Integrity, fmt.Sprintf("shard %d has entries of its parent's stream up "+
				"to %d, and shard %d has made them up to %d", g.shard, from.number, from.shard, of))
		}
	}
}

// conserve judges that at a cut the amounts of each asset add up to zero: what the transactions of
// each shard made of what organisations brought along. A transaction that took effect in one shard
// and still waits in another counts as having taken effect in both.
func (w *world) conserve(cut []int) {
	w.judgeSupply(cut)
	sums := make(map[ledger.AssetName]ledger.Amount)
	for _, g := range w.remaining() {
		if cut[g.shard] == 0 {
			continue
		}
		r := g.records[cut[g.shard]-1]
		for name, held := range r.holdings {
			for _, asset := range w.plan.workload.assets {
				add(sums, asset, held[asset])
				add(sums, asset, ledger.Amount{}.Minus(r.brought[name][asset]))
			}
		}
		for _, id := range r.waiting {
			if w.tookEffect(id, g.shard, cut) {
				w.addParts(sums, g, r, id)
			}
		}
	}
	if len(w.plan.losses) > 0 {
		w.addLost(sums, cut)
	}
	for _, asset := range w.plan.workload.assets {
		if sums[asset].Sign() != 0 {
			w.fail(Conservation, fmt.Sprintf("%s adds up to %v over all shards at blocks %v", asset,
				sums[asset], cut))
		}
	}
}

// tookEffect reports whether a transaction of several shards took effect in one of them, in which
// it concerned this shard, too.
func (w *world) tookEffect(id ledger.Hash, shard ledger.ShardID, cut []int) bool {
	for _, g := range w.remaining() {
		if ended, here := g.outcomes[id]; here && ended.applied && ended.height <= cut[g.shard] &&
			slices.Contains(ended.to, shard) {
			return true
		}
	}
	return false
}

// addParts adds what a transaction will change in a shard.
func (w *world) addParts(sums map[ledger.AssetName]ledger.Amount, g *group, r *record,
	id ledger.Hash) {
	at := g.places[id]
	before := g.records[at.height-1]
	t := before.block.Unpacked[at.index].Transaction()
	for i := range t.Postings {
		if name := t.Postings[i].Account.Organisation(); g.home(before, name) == g.shard {
			add(sums, t.Postings[i].Asset, t.Postings[i].Amount)
		}
	}
}

// home returns the home of an organisation as of a record.
func (g *group) home(r *record, name ledger.OrganisationName) ledger.ShardID {
	if home, pinned := r.homes[name]; pinned {
		return home
	}
	return ledger.Rendezvous(name, len(g.world.plan.genesis))
}

// conserveHistory judges conservation at random cuts of the whole history.
func (w *world) conserveHistory() {
	const cuts = 12
	for range cuts {
		cut := make([]int, len(w.groups))
		for i, g := range w.groups {
			cut[i] = w.random.IntN(g.head() + 1)
		}
		w.close(cut)
		w.conserve(cut)
	}
}

// close lowers a cut until it has the sending of each message that it has.
func (w *world) close(cut []int) {
	for again := true; again; {
		again = false
		for i, g := range w.groups {
			for cut[i] > 0 && !w.has(cut, g, cut[i]) {
				cut[i]--
				again = true
			}
		}
	}
}

// has reports whether a cut has the sending of everything that a shard's blocks up to a height took
// over. Blocks below the last one are the loop's in close.
func (w *world) has(cut []int, g *group, height int) bool {
	if from := g.records[height-1].source; from.number > 0 {
		all := w.groups[from.shard].forwarded[g.shard]
		at := slices.IndexFunc(all, func(each handed) bool { return each.number == from.number })
		if all[at].height > cut[from.shard] {
			return false
		}
	}
	for _, r := range g.records[:height] {
		for i := range r.block.Unpacked {
			verdict := r.block.Unpacked[i].Transaction().Verdict
			if verdict == nil {
				continue
			}
			from, sent := w.groups[verdict.Shard], 0
			if testimony, is := verdict.Testimony(); is {
				sent = from.lostAt(testimony.AsOf)
			} else if number, departure := verdict.MoveOf(); departure {
				sent = from.departed[number]
			} else {
				sent = from.decided[verdict.ID]
			}
			if sent > cut[verdict.Shard] {
				return false
			}
		}
	}
	return true
}

// judgeRest judges what holds at rest.
func (w *world) judgeRest() {
	w.conserve(w.heads())
	w.conserveHistory()
	w.judgeArrived()
	w.judgeOutcomes()
	w.judgeEnds()
	w.judgeForeseen()
	w.judgeHoldsMoved()
	w.judgeRefunds()
	w.judgeDetailsMoved()
	w.countInherited()
	w.countStranded()
	w.judgeOrder()
	w.judgeBalances()
}

// judgeOutcomes judges that each transaction of several shards has ended wherever it was set aside,
// and in all of its destinations if it took effect. One that fails need not reach all: its
// destinations are certain only once its organisations are registered.
func (w *world) judgeOutcomes() {
	late, withdrawn := w.refusedAs(ledger.DeadlinePassed), w.refusedAs(ledger.Cancelled)
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.verdicts {
				verdict := &r.verdicts[i]
				ended, here := g.outcomes[verdict.ID]
				if !here {
					w.fail(Atomicity, fmt.Sprintf("shard %d has set %s aside, and nothing ended it",
						g.shard, short(verdict.ID)))
				}
				if !ended.applied {
					w.result.Refused++
					if verdict.Good() && late[verdict.ID] {
						w.result.Late++
					}
					if verdict.Good() && withdrawn[verdict.ID] {
						w.result.Withdrawn++
					}
					continue
				}
				w.result.Applied++
				for _, to := range verdict.To {
					if _, there := w.groups[to].outcomes[verdict.ID]; !there && !w.isLost(to) {
						w.fail(Atomicity, fmt.Sprintf("shard %d, block %d, decided on %s, and it "+
							"took no effect in shard %d", g.shard, r.block.Header.Height,
							short(verdict.ID), to))
					}
				}
			}
		}
	}
}

// refusedAs returns the transactions that a shard refused with a code.
func (w *world) refusedAs(code ledger.Code) map[ledger.Hash]bool {
	refused := make(map[ledger.Hash]bool)
	for _, g := range w.groups {
		for _, r := range g.records {
			for i := range r.verdicts {
				if r.verdicts[i].Result.Code == code {
					refused[r.verdicts[i].ID] = true
				}
			}
		}
	}
	return refused
}

// tookEffectAt reports whether an entry of a chain took effect there, at once or later.
func (g *group) tookEffectAt(entry *ledger.Entry) bool {
	return entry.Transaction().Verdict == nil &&
		(entry.Result.OK() || g.outcomes[entry.ID].applied)
}

// judgeOrder judges that any two shards have the transactions that took effect in both in one
// order.
func (w *world) judgeOrder() {
	for i, a := range w.groups {
		for _, b := range w.groups[:i] {
			var last place
			var before ledger.Hash
			for _, r := range a.records {
				for e := range r.block.Unpacked {
					entry := &r.block.Unpacked[e]
					at, both := b.places[entry.ID]
					if !both || !a.tookEffectAt(entry) ||
						!b.tookEffectAt(&b.records[at.height-1].block.Unpacked[at.index]) {
						continue
					}
					if at.before(last) {
						w.fail(order.TotalOrder, fmt.Sprintf("shard %d has %s before %s, and "+
							"shard %d after it", a.shard, short(before), short(entry.ID), b.shard))
					}
					last, before = at, entry.ID
				}
			}
		}
	}
}

// balanceKey is an account and an asset.
type balanceKey struct {
	account ledger.AccountPath
	asset   ledger.AssetName
}

// judgeBalances judges that each balance is the sum of the transactions that took effect, and that
// each record is of the last one that wrote it.
func (w *world) judgeBalances() {
	balances := make(map[balanceKey]ledger.Amount)
	writings := make(map[ledger.RecordKey]writing)
	counted := make(map[ledger.Hash]bool)
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				if !g.tookEffectAt(entry) {
					continue
				}
				t := entry.Transaction()
				w.noteWriting(writings, g, r, entry)
				if counted[entry.ID] {
					continue
				}
				counted[entry.ID] = true
				for j := range t.Postings {
					key := balanceKey{t.Postings[j].Account, t.Postings[j].Asset}
					balances[key], _ = balances[key].Add(t.Postings[j].Amount)
				}
			}
		}
	}
	w.compareBalances(balances)
	for _, c := range w.plan.workload.clients {
		key := ledger.RecordKey(c.account("record"))
		if want, written := writings[key]; written && !w.wasLost(c.name) {
			w.judgeRecord(key, want)
		}
	}
}

// last returns the last record, or an empty one.
func (g *group) last() *record {
	if g.head() == 0 {
		return &record{shards: g.genesis.BookShards()}
	}
	return g.records[g.head()-1]
}

func (w *world) compareBalances(want map[balanceKey]ledger.Amount) {
	for _, path := range w.paths {
		if w.wasLost(path.Organisation()) {
			continue
		}
		g := w.groups[w.finalHome(path.Organisation())]
		account, _ := g.members[0].account(path)
		for _, asset := range w.plan.workload.assets {
			key := balanceKey{path, asset}
			if got := settled(&account, asset); got.Compare(want[key]) != 0 {
				w.fail(Outcome, fmt.Sprintf("%s has %v %s, and what took effect adds up to %v",
					path, got, asset, want[key]))
			}
		}
	}
}

// settled returns the balance of an account, with what is set aside.
func settled(account *ledger.Account, asset ledger.AssetName) (amount ledger.Amount) {
	for i := range account.Balances {
		if account.Balances[i].Asset == asset {
			amount = account.Balances[i].Settled()
		}
	}
	return amount
}

// unrest lists what keeps the book from resting, or nil.
func (w *world) unrest() (reasons []string) {
	say := func(format string, arguments ...any) {
		reasons = append(reasons, fmt.Sprintf(format, arguments...))
	}
	for _, g := range w.remaining() {
		for _, m := range g.members {
			switch {
			case !m.up:
				say("%v is not up", m)
			case !m.takesPart():
				say("%v takes no part", m)
			case len(m.records) < g.head() || m.next < len(g.log):
				say("%v has %d of %d blocks, and %d of %d rounds", m, len(m.records), g.head(),
					m.next, len(g.log))
			case len(m.disk) < g.head() || m.durable < g.head():
				say("%v has flushed %d of %d blocks", m, len(m.disk), g.head())
			}
		}
		if left := len(g.replacing); left > 0 {
			say("shard %d: %d members are to be replaced", g.shard, left)
		}
		if waiting := g.last().waiting; len(waiting) > 0 {
			say("shard %d: %d transactions wait, the first is %s", g.shard, len(waiting),
				short(waiting[0]))
		}
		if coming := g.last().coming; coming > 0 {
			say("shard %d: %d organisations are on their way", g.shard, coming)
		}
		for _, above := range w.groups {
			if has, of := g.last().position, above.handed(g.shard); has < of {
				say("shard %d has the entries of the streams from above up to %d, and shard %d "+
					"has made some up to %d", g.shard, has, above.shard, of)
			}
		}
	}
	for i := range w.plan.changes {
		if c := &w.plan.changes[i]; !c.done {
			say("the operators have not made the change: %s", c.what)
		}
	}
	for _, l := range w.plan.losses {
		if l.bundle == nil {
			continue
		}
		if w.turn < l.settled || !w.placed(l.bundle) {
			say("the operators have not settled with shard %d", l.shard)
		}
	}
	for _, s := range w.due() {
		say("submission %d is in no chain: %s", s.number, s.what)
	}
	return reasons
}

// due returns the submissions that should be in a chain and are in none. A bundle with a signer
// that is not registered stays outside, and one with deadlines if the chains do not take them.
func (w *world) due() (due []submission) {
	for _, s := range w.plan.submissions {
		if s.at <= w.turn && !w.placed(s.bundle) && w.takes(s.bundle) {
			due = append(due, s)
		}
	}
	return due
}

// takes reports whether the root could take a bundle, as far as its version and the signers matter.
func (w *world) takes(bundle *ledger.Bundle) bool {
	root := w.groups[w.tree.Root()]
	return bundle.NeedsVersion() <= root.last().version && root.knowsSigners(bundle)
}

// knowsSigners reports whether the signers of all transactions of a bundle are registered, as far
// as they have to be. In a book that loses a shard, some never are.
func (g *group) knowsSigners(bundle *ledger.Bundle) bool {
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		if len(t.Registrations) > 0 || t.Charter != nil || t.Book != nil {
			continue
		}
		if !slices.ContainsFunc(g.members, func(m *member) bool {
			if m.state == nil {
				return false
			}
			_, known := m.state.Organisation(t.Signer)
			return known
		}) {
			return false
		}
	}
	return true
}

// placed reports whether all transactions of a bundle are in some chain.
func (w *world) placed(bundle *ledger.Bundle) bool {
	for _, id := range bundle.IDs() {
		if !slices.ContainsFunc(w.groups, func(g *group) bool {
			_, has := g.places[id]
			return has
		}) {
			return false
		}
	}
	return true
}
