package book

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// In books whose chains take schedules, clients place schedules at the root, with too little in
// their accounts, for accounts that nobody has, or in other shards. They end some of them before,
// while and after occurrences are due, also those of others. Organisations move meanwhile, accounts
// are frozen, and shards are lost.

// drawSchedules draws the schedules and their ends, with a chance of its own.
func (p *plan) drawSchedules(seed uint64) {
	if !ledger.TakesSchedules(max(p.genesis[0].Version, p.upgrade)) {
		return
	}
	random, w := rand.New(rand.NewPCG(seed, 1<<52)), p.workload
	at := max(25, w.upgradedAt-5)
	for range 6 + random.IntN(12) {
		at += Turn(random.IntN(8))
		placed := w.scheduling(random, at, p.tree.Root())
		p.add(random, at, describe(placed.Transaction(0)), placed)
		if random.IntN(6) == 0 {
			p.add(random, at+Turn(random.IntN(70)), "once more: "+
				describe(placed.Transaction(0)), placed)
		}
		for range random.IntN(3) {
			by := w.someone(random)
			if random.IntN(4) > 0 {
				by = w.clients[slices.IndexFunc(w.clients, func(c *client) bool {
					return c.name == placed.Transaction(0).Signer
				})]
			}
			end := w.next(by)
			end.Deadline = 0
			end.ScheduleEnd = &ledger.ScheduleEnd{Shard: p.tree.Root(), Schedule: placed.ID(0)}
			p.add(random, max(1, at+Turn(random.IntN(60)-4)), describe(&end),
				w.sign([]*client{by}, func(*client) bool { return true }, end))
		}
		p.calm = max(p.calm, at+90)
	}
}

// scheduling makes a bundle that places a schedule.
func (w *workload) scheduling(random *rand.Rand, at Turn, root ledger.ShardID) *ledger.Bundle {
	by, asset := w.someone(random), w.assets[random.IntN(len(w.assets))]
	from := by.account(accountNames[random.IntN(len(accountNames))])
	transaction := w.next(by)
	transaction.Deadline, transaction.Note = 0, []byte("again")
	s := &ledger.Schedule{Shard: root, Count: 1,
		First: w.began + turnLength*ledger.Milliseconds(at+4+Turn(random.IntN(50)))}
	if random.IntN(3) == 0 {
		s.Period = ledger.Minutes + ledger.Period(random.IntN(4))
		s.Every, s.Count = 1+random.Uint64N(3), 1+random.Uint64N(3)
	}
	one, two := ledger.NewAmount(1), ledger.NewAmount(1+random.Int64N(12))
	give := func(amount ledger.Amount) {
		s.Postings = append(s.Postings, ledger.Posting{
			Account: w.someone(random).account(accountNames[random.IntN(len(accountNames))]),
			Asset:   asset, Amount: amount})
	}
	sum, _ := one.Add(two)
	s.Postings = []ledger.Posting{{Account: from, Asset: asset,
		Amount: ledger.Amount{}.Minus(sum)}}
	give(one)
	give(two)
	switch random.IntN(20) {
	case 0:
		s.First = w.began - 1
	case 1:
		s.First += 2 * ledger.MaxScheduleTime
	case 2:
		s.Postings[2].Account = w.someone(random).account("nobody")
	case 3:
		s.Shard++
	}
	transaction.Schedule = s
	return w.sign([]*client{by}, func(*client) bool { return true }, transaction)
}

// openSchedule is a schedule as the judge has it. over says that it ended before its first time.
type openSchedule struct {
	placed *ledger.Transaction
	issued uint64
	over   bool
}

func (o *openSchedule) next() ledger.Milliseconds { return o.placed.Schedule.TimeOf(o.issued + 1) }

// schedulesOf are the schedules that the root's chain has open after a block.
type schedulesOf = map[ledger.Hash]openSchedule

// judgeSchedules goes through a block as the rules of schedules say, and judges that the chain did
// so too: each schedule, each end, and that the occurrences are those that are due, each once, in
// their order, and not before their time.
func (g *group) judgeSchedules(m *member, r *record) {
	if !ledger.TakesSchedules(r.version) {
		return
	}
	if r.schedules = maps.Clone(r.schedules); r.schedules == nil {
		r.schedules = make(schedulesOf)
	}
	now, issued := r.block.Header.Time, 0
	wrong := func(id ledger.Hash, format string, arguments ...any) {
		g.world.fail(Schedules, fmt.Sprintf("shard %d, block %d: %s %s", g.shard,
			r.block.Header.Height, short(id), fmt.Sprintf(format, arguments...)))
	}
	maps.DeleteFunc(r.schedules, func(_ ledger.Hash, o openSchedule) bool {
		return o.over && o.next() <= now
	})
	for i := range r.block.Unpacked {
		entry := &r.block.Unpacked[i]
		t, code := entry.Transaction(), entry.Result.Code
		switch {
		case t.Occurrence != nil && r.block.Bundles[entry.Bundle].Number == 0:
			id, first := g.nextOccurrence(r, now)
			if id != t.Occurrence.Schedule || first.issued+1 != t.Occurrence.Number ||
				first.next() != t.Occurrence.Time {
				wrong(entry.ID, "is occurrence %d of %s, and that of %s comes first",
					t.Occurrence.Number, short(t.Occurrence.Schedule), short(id))
				continue
			}
			issued++
			if first.issued++; first.issued == first.placed.Schedule.Occurrences() {
				delete(r.schedules, id)
			} else {
				r.schedules[id] = first
			}
			g.world.result.Occurred++
		case t.Schedule != nil:
			ahead := t.Schedule.First - now
			_, again := r.schedules[entry.ID]
			inTime := ahead > 0 && ahead <= ledger.MaxScheduleTime
			here := g.shard == r.tree.Root() && t.Schedule.Shard == g.shard
			applied := code == ledger.Applied
			if applied && (!inTime || again || !here) || code == ledger.ScheduleTime && inTime ||
				code == ledger.SchedulePlaced && !again || code == ledger.UnknownShard && here {
				wrong(entry.ID, "places a schedule, which is %s", code)
			} else if applied {
				r.schedules[entry.ID] = openSchedule{placed: t}
			}
		case t.ScheduleEnd != nil:
			id := t.ScheduleEnd.Schedule
			found, open := r.schedules[id]
			may := open && !found.over && found.placed.Signer == t.Signer
			applied := code == ledger.Applied
			switch {
			case applied && !may, code == ledger.UnknownSchedule && may:
				wrong(entry.ID, "ends schedule %s, which is %s", short(id), code)
			case applied && found.issued == 0 && found.next() > now:
				found.over = true
				r.schedules[id] = found
			case applied:
				delete(r.schedules, id)
			}
		}
	}
	if id, first := g.nextOccurrence(r, now); first.placed != nil && issued < dueAtOnce &&
		first.placed.Schedule.First != 0 && !g.placedIn(r, id) {
		wrong(id, "has an occurrence that is due and not in the block")
	}
	open := 0
	for _, each := range r.schedules {
		if !each.over {
			open++
		}
	}
	if has := len(m.state.SchedulesOf("")); has != open {
		wrong(ledger.Hash{}, ": %d schedules are open, and %d should be", has, open)
	}
}

// dueAtOnce is how many occurrences a block may have. The judge says it by itself.
const dueAtOnce = 256

// placedIn reports whether a block placed a schedule.
func (g *group) placedIn(r *record, id ledger.Hash) bool {
	return slices.ContainsFunc(r.block.Unpacked, func(e ledger.Entry) bool { return e.ID == id })
}

// nextOccurrence returns the schedule whose occurrence comes first, if one is due.
func (g *group) nextOccurrence(r *record, now ledger.Milliseconds) (id ledger.Hash,
	first openSchedule) {
	for each, o := range r.schedules {
		if o.over || o.next() > now {
			continue
		}
		if first.placed == nil || cmp.Or(cmp.Compare(o.next(), first.next()),
			bytes.Compare(each[:], id[:])) < 0 {
			id, first = each, o
		}
	}
	return id, first
}
