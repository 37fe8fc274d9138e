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
		parent, below := w.plan.tree.Parent(g.shard)
		if !below {
			continue
		}
		has, of := g.last().position, uint64(len(w.groups[parent].forwarded[g.shard]))
		if has > of {
			w.fail(order.Integrity, fmt.Sprintf("shard %d has %d entries of its parent's stream, "+
				"and shard %d has made %d", g.shard, has, parent, of))
		}
	}
}

// conserve judges that at a cut the amounts of each asset add up to zero. A transaction that took
// effect in one shard and still waits in another counts as having taken effect in both.
func (w *world) conserve(cut []int) {
	sums := make(map[ledger.AssetName]ledger.Amount)
	for i, g := range w.groups {
		if cut[i] == 0 {
			continue
		}
		r := g.records[cut[i]-1]
		for _, asset := range assets {
			add(sums, asset, r.sums[asset])
		}
		for _, id := range r.waiting {
			if w.tookEffect(id, cut) {
				w.addParts(sums, g, r, id)
			}
		}
	}
	for _, asset := range assets {
		if sums[asset].Sign() != 0 {
			w.fail(Conservation, fmt.Sprintf("%s adds up to %v over all shards at blocks %v", asset,
				sums[asset], cut))
		}
	}
}

// tookEffect reports whether a transaction of several shards took effect in one of them.
func (w *world) tookEffect(id ledger.Hash, cut []int) bool {
	for i, g := range w.groups {
		if ended, here := g.outcomes[id]; here && ended.applied && ended.height <= cut[i] {
			return true
		}
	}
	return false
}

// addParts adds what a transaction will change in a shard.
func (w *world) addParts(sums map[ledger.AssetName]ledger.Amount, g *group, r *record,
	id ledger.Hash) {
	at := g.places[id]
	t := g.records[at.height-1].block.Unpacked[at.index].Transaction()
	for i := range t.Postings {
		if home := g.home(r, t.Postings[i].Account.Organisation()); home == g.shard {
			add(sums, t.Postings[i].Asset, t.Postings[i].Amount)
		}
	}
}

// home returns the home of an organisation as of a record.
func (g *group) home(r *record, name ledger.OrganisationName) ledger.ShardID {
	if home, pinned := r.homes[name]; pinned {
		return home
	}
	return ledger.Rendezvous(name, len(g.world.groups))
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
	if parent, below := w.plan.tree.Parent(g.shard); below {
		if last := g.records[height-1].position; last > 0 {
			if w.groups[parent].forwarded[g.shard][last-1] > cut[parent] {
				return false
			}
		}
	}
	for _, r := range g.records[:height] {
		for i := range r.block.Unpacked {
			verdict := r.block.Unpacked[i].Transaction().Verdict
			if verdict != nil && w.groups[verdict.Shard].decided[verdict.ID] > cut[verdict.Shard] {
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
	w.judgeOutcomes()
	w.judgeOrder()
	w.judgeBalances()
}

// judgeOutcomes judges that each transaction of several shards has ended wherever it was set aside,
// and in all of its destinations if it took effect. One that fails need not reach all: its
// destinations are certain only once its organisations are registered.
func (w *world) judgeOutcomes() {
	late, withdrawn := w.refusedAs(ledger.DeadlinePassed), w.refusedAs(ledger.Cancelled)
	for _, g := range w.groups {
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
					if _, there := w.groups[to].outcomes[verdict.ID]; !there {
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
	writers := make(map[ledger.RecordKey]ledger.Hash)
	counted := make(map[ledger.Hash]bool)
	for _, g := range w.groups {
		last := g.last()
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				if !g.tookEffectAt(entry) {
					continue
				}
				t := entry.Transaction()
				for j := range t.Records {
					if g.home(last, t.Records[j].Key.Organisation()) == g.shard {
						writers[t.Records[j].Key] = entry.ID
					}
				}
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
		want, written := writers[key]
		if !written {
			continue
		}
		g := w.groups[w.groups[0].home(w.groups[0].last(), c.name)]
		at, _ := g.members[0].state.Record(key)
		if got := g.records[at.Height-1].block.Entry(int(at.Index)).ID; got != want {
			w.fail(Outcome, fmt.Sprintf("record %s has the value of %s, and %s wrote it last", key,
				short(got), short(want)))
		}
	}
}

// last returns the last record, or an empty one.
func (g *group) last() *record {
	if g.head() == 0 {
		return new(record)
	}
	return g.records[g.head()-1]
}

func (w *world) compareBalances(want map[balanceKey]ledger.Amount) {
	for _, path := range w.paths {
		g := w.groups[w.groups[0].home(w.groups[0].last(), path.Organisation())]
		account, _ := g.members[0].account(path)
		for _, asset := range assets {
			key := balanceKey{path, asset}
			if got := account.Balance(asset); got.Compare(want[key]) != 0 {
				w.fail(Outcome, fmt.Sprintf("%s has %v %s, and what took effect adds up to %v",
					path, got, asset, want[key]))
			}
		}
	}
}

// unrest lists what keeps the book from resting, or nil.
func (w *world) unrest() (reasons []string) {
	say := func(format string, arguments ...any) {
		reasons = append(reasons, fmt.Sprintf(format, arguments...))
	}
	for _, g := range w.groups {
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
		if waiting := g.last().waiting; len(waiting) > 0 {
			say("shard %d: %d transactions wait, the first is %s", g.shard, len(waiting),
				short(waiting[0]))
		}
		if parent, below := w.plan.tree.Parent(g.shard); below {
			if has, of := g.last().position,
				len(w.groups[parent].forwarded[g.shard]); has < uint64(of) {
				say("shard %d has %d of the %d entries of its parent's stream", g.shard, has, of)
			}
		}
	}
	for _, s := range w.due() {
		say("submission %d is in no chain: %s", s.number, s.what)
	}
	return reasons
}

// due returns the submissions that should be in a chain and are in none. A bundle whose signer is
// not registered stays outside, and one with deadlines if the chains do not take them.
func (w *world) due() (due []submission) {
	root := w.groups[w.plan.tree.Root()]
	for _, s := range w.plan.submissions {
		if s.at > w.turn || w.placed(s.bundle) {
			continue
		}
		t := s.bundle.Transaction(0)
		if s.bundle.NeedsVersion() > root.last().version {
			continue
		}
		known := slices.ContainsFunc(root.members, func(m *member) bool {
			if m.state == nil {
				return false
			}
			_, known := m.state.Organisation(t.Signer)
			return known
		})
		if known || len(t.Registrations) > 0 || t.Charter != nil {
			due = append(due, s)
		}
	}
	return due
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
