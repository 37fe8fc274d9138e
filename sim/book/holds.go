package book

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// In books whose chains take holds, clients place holds on their accounts, and posters post them in
// part or whole, void them, or leave them to expire. Many ends of one hold are under way at the
// same time, come before the hold or after its time, ask for too much, or are those of strangers.
// Organisations move meanwhile, and the other shards of an end refuse it, or are lost.

// drawHolds draws the holds and their ends. The chance is apart from others, so that other books
// stay as they were.
func (p *plan) drawHolds(seed uint64) {
	if !ledger.TakesHolds(max(p.genesis[0].Version, p.upgrade)) {
		return
	}
	random, w := rand.New(rand.NewPCG(seed, 1<<48)), p.workload
	at, last := max(30, w.upgradedAt-5), Turn(0)
	for range 8 + random.IntN(14) {
		at += Turn(random.IntN(8))
		placed, expires := w.placing(random, at)
		last = max(last, expires)
		p.add(random, at, describe(placed.Transaction(0)), placed)
		for range random.IntN(4) {
			when := max(1, at+Turn(random.IntN(50)-4))
			what, bundle := w.ending(random, when, placed)
			p.add(random, when, what, bundle)
		}
	}
	// Holds expire when their shard makes a block. In the end every client writes a record, so that
	// every home makes one.
	for _, c := range w.clients {
		transaction := w.next(c)
		transaction.Deadline = w.began + turnLength*ledger.Milliseconds(last+w.far)
		transaction.Records = []ledger.Record{{Key: ledger.RecordKey(c.account("record")),
			Value: []byte("after all holds")}}
		p.add(random, last+10, describe(&transaction), w.sign([]*client{c},
			func(*client) bool { return true }, transaction))
	}
}

// add adds a bundle that clients submit at a turn.
func (p *plan) add(random *rand.Rand, at Turn, what string, bundle *ledger.Bundle) {
	p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
		what: what, bundle: bundle, member: random.IntN(MembersMax)})
	p.calm = max(p.calm, at+20)
}

// placing makes a bundle that places a hold, and says at which turn most such holds expire.
func (w *workload) placing(random *rand.Rand, at Turn) (placed *ledger.Bundle, expires Turn) {
	from := w.someone(random)
	transaction := w.next(from)
	h := &ledger.Hold{From: from.account(accountNames[1+random.IntN(2)]),
		Asset: w.assets[random.IntN(len(assets))], Amount: ledger.NewAmount(1 + random.Int64N(12)),
		Poster: w.someone(random).name}
	if random.IntN(5) == 0 {
		h.From, h.Asset = from.account("issuer"), w.assets[random.IntN(len(w.assets))]
	}
	for range 1 + random.IntN(3) {
		to := w.someone(random).account(accountNames[random.IntN(len(accountNames))])
		if random.IntN(10) == 0 {
			to = w.someone(random).account("nobody")
		}
		if to != h.From && !slices.Contains(h.To, to) {
			h.To = append(h.To, to)
		}
	}
	if len(h.To) == 0 {
		h.To = append(h.To, from.account("nobody"))
	}
	slices.Sort(h.To)
	expires = at + 4 + Turn(random.IntN(90))
	h.Expires = w.began + turnLength*ledger.Milliseconds(expires)
	switch random.IntN(20) {
	case 0:
		h.Expires = w.began - 1
	case 1:
		h.Expires += 2 * ledger.MaxHoldTime
	}
	transaction.Hold = h
	return w.sign([]*client{from}, func(*client) bool { return true }, transaction), expires
}

func (w *workload) someone(random *rand.Rand) *client {
	return w.clients[random.IntN(len(w.clients))]
}

// ending makes a bundle that posts a hold or voids it. Some ask for what the hold does not allow.
func (w *workload) ending(random *rand.Rand, at Turn, placed *ledger.Bundle) (what string,
	bundle *ledger.Bundle) {
	h := placed.Transaction(0).Hold
	by := w.clients[slices.IndexFunc(w.clients,
		func(c *client) bool { return c.name == h.Poster })]
	if random.IntN(6) == 0 {
		by = w.someone(random)
	}
	transaction := w.next(by)
	transaction.HoldEnd = &ledger.HoldEnd{Hold: placed.ID(0), From: h.From}
	if transaction.Deadline = w.deadline(random, at); transaction.Deadline < w.began {
		transaction.Deadline = 0
	}
	give := func(amount ledger.Amount) {
		transaction.Postings = append(transaction.Postings, ledger.Posting{
			Account: h.To[random.IntN(len(h.To))], Asset: h.Asset, Amount: amount})
	}
	one := ledger.NewAmount(1)
	take := func(amount ledger.Amount) {
		transaction.Postings = []ledger.Posting{{Account: h.From, Asset: h.Asset,
			Amount: ledger.Amount{}.Minus(amount)}}
	}
	switch random.IntN(12) {
	case 0, 1: // it is voided
	case 2:
		more, _ := h.Amount.Add(one)
		take(more)
		give(more)
	case 3:
		take(one)
		give(one)
		transaction.Postings[1].Account = w.someone(random).account("late")
	case 4, 5, 6:
		take(h.Amount)
		give(h.Amount)
	case 7:
		two := ledger.NewAmount(2)
		take(two)
		give(one)
		give(one)
	default:
		part := ledger.NewAmount(1 + random.Int64N(6))
		take(part)
		give(part)
	}
	if len(transaction.Postings) > 0 && transaction.Postings[len(transaction.Postings)-1].Account ==
		h.From {
		transaction.Postings = nil
	}
	what = describe(&transaction)
	return what, w.sign([]*client{by}, func(*client) bool { return true }, transaction)
}

// openHold is a hold as the judge has it. ending is the transaction that waits for other shards and
// is about to end it, and posted what that one posts.
type openHold struct {
	ledger.Hold
	ending ledger.Hash
	posted ledger.Amount
}

// holdsOf are the holds that a chain has open after a block. Those of organisations that moved on
// are among them.
type holdsOf = map[ledger.Hash]openHold

// judgeHolds goes through a block as the rules of holds say, and judges that the chain did so too:
// each decision on a hold, the holds that are open afterwards, and what is set aside of each
// account.
func (g *group) judgeHolds(m *member, r *record) {
	if !ledger.TakesHolds(r.version) {
		return
	}
	now := r.block.Header.Time
	if r.held = maps.Clone(r.held); r.held == nil {
		r.held = make(holdsOf)
	}
	for id, each := range r.held {
		if each.Expires <= now && each.ending == (ledger.Hash{}) &&
			g.home(r, each.From.Organisation()) == g.shard {
			delete(r.held, id)
			r.lapsed++
		}
	}
	for i := range r.block.Unpacked {
		g.judgeHoldsIn(r, &r.block.Unpacked[i])
	}
	g.compareHolds(m, r)
	g.judgeSetAside(m, r)
}

// judgeHoldsIn judges an entry of a block.
func (g *group) judgeHoldsIn(r *record, entry *ledger.Entry) {
	t, code, wrong := entry.Transaction(), entry.Result.Code, ""
	agreed := code == ledger.Applied || code == ledger.SetAside
	switch {
	case t.Verdict != nil && (code == ledger.Settled || code == ledger.Released):
		for id, each := range r.held {
			if each.ending != t.Verdict.ID {
				continue
			}
			each.ending, each.posted = ledger.Hash{}, ledger.Amount{}
			if r.held[id] = each; code == ledger.Settled {
				delete(r.held, id)
			}
		}
	case t.Arrival != nil && code == ledger.Applied:
		for i := range t.Arrival.Entries {
			if moved, is, err := state.MovedHold(&t.Arrival.Entries[i]); err != nil {
				wrong = err.Error()
			} else if is {
				r.held[moved.ID] = openHold{Hold: moved.Hold}
				g.world.holdsMoved[moved.ID] = true
			}
		}
	case t.Hold != nil && g.home(r, t.Signer) == g.shard:
		ahead := t.Hold.Expires - r.block.Header.Time
		inTime := ahead > 0 && ahead <= ledger.MaxHoldTime
		switch {
		case agreed && !inTime:
			wrong = "places a hold at a wrong time"
		case code == ledger.HoldTime && inTime:
			wrong = "is refused for its time"
		case agreed:
			r.held[entry.ID] = openHold{Hold: *t.Hold}
		}
	case t.HoldEnd != nil && g.home(r, t.HoldEnd.From.Organisation()) == g.shard:
		found, want := r.mayEnd(t)
		switch {
		case agreed && want != ledger.Applied,
			code >= ledger.UnknownHold && code <= ledger.HoldDiffers && code != want:
			wrong = fmt.Sprintf("ends hold %s with %s, and the chain says that it may with %s",
				short(t.HoldEnd.Hold), code, want)
		case code == ledger.Applied:
			delete(r.held, t.HoldEnd.Hold)
		case code == ledger.SetAside:
			found.ending, found.posted = entry.ID, postedBy(t)
			r.held[t.HoldEnd.Hold] = found
		}
	}
	if wrong != "" {
		g.world.fail(Holds, fmt.Sprintf("shard %d, block %d: transaction %s of %s %s", g.shard,
			r.block.Header.Height, short(entry.ID), t.Signer, wrong))
	}
}

// mayEnd returns the hold that a transaction is to end, and whether it may.
func (r *record) mayEnd(t *ledger.Transaction) (found openHold, code ledger.Code) {
	found, open := r.held[t.HoldEnd.Hold]
	switch {
	case !open || found.From != t.HoldEnd.From:
		return found, ledger.UnknownHold
	case found.Poster != t.Signer:
		return found, ledger.HoldDiffers
	case found.ending != (ledger.Hash{}):
		return found, ledger.HoldEnding
	case found.Expires <= r.block.Header.Time:
		return found, ledger.HoldOver
	case postedBy(t).Compare(found.Amount) > 0:
		return found, ledger.HoldDiffers
	}
	for i := range t.Postings {
		if p := &t.Postings[i]; p.Asset != found.Asset || i > 0 &&
			!slices.Contains(found.To, p.Account) {
			return found, ledger.HoldDiffers
		}
	}
	return found, ledger.Applied
}

// postedBy returns how much the end of a hold posts.
func postedBy(t *ledger.Transaction) ledger.Amount {
	if len(t.Postings) == 0 {
		return ledger.Amount{}
	}
	return ledger.Amount{}.Minus(t.Postings[0].Amount)
}

// compareHolds judges that the chain has those holds open that the judge has.
func (g *group) compareHolds(m *member, r *record) {
	wrong := ""
	if has := m.state.HoldCount(); has != len(r.held) {
		wrong = fmt.Sprintf("%d holds are open", has)
	}
	for _, c := range g.world.plan.workload.clients {
		for _, has := range m.state.HoldsOf(c.name, "") {
			if want, open := r.held[has.ID]; !open || want.ending != has.Ending ||
				want.posted != has.Posted || want.Amount != has.Amount ||
				want.From != has.From || want.Expires != has.Expires || want.Poster != has.Poster {
				wrong = fmt.Sprintf("hold %s is open as %+v, and should be as %+v", short(has.ID),
					has, want)
			}
		}
	}
	if wrong != "" {
		g.world.fail(Holds, fmt.Sprintf("shard %d, block %d: %s; %d should be", g.shard,
			r.block.Header.Height, wrong, len(r.held)))
	}
}

// judgeSetAside judges that what is set aside of each account is what its holds and the
// transactions that wait say.
func (g *group) judgeSetAside(m *member, r *record) {
	aside := make(map[balanceKey]ledger.Amount)
	more := func(key balanceKey, amount ledger.Amount) { aside[key], _ = aside[key].Add(amount) }
	for _, each := range r.held {
		more(balanceKey{each.From, each.Asset}, each.Amount.Minus(each.posted))
	}
	for _, id := range r.waiting {
		for key, net := range g.waitingParts(r, id) {
			if net.Sign() < 0 {
				more(key, ledger.Amount{}.Minus(net))
			}
		}
	}
	for _, path := range g.world.paths {
		account, open := m.account(path)
		if !open {
			continue
		}
		for i := range account.Balances {
			has := &account.Balances[i]
			if want := aside[balanceKey{path, has.Asset}]; has.SetAside != want {
				g.world.fail(Holds, fmt.Sprintf("shard %d, block %d: %v %s of %s are set aside, "+
					"and holds and what waits need %v", g.shard, r.block.Header.Height,
					has.SetAside, has.Asset, path, want))
			}
			delete(aside, balanceKey{path, has.Asset})
		}
	}
	for key, want := range aside {
		if want.Sign() != 0 {
			g.world.fail(Holds, fmt.Sprintf("shard %d, block %d: nothing is set aside of %v, and "+
				"holds and what waits need %v", g.shard, r.block.Header.Height, key, want))
		}
	}
}

// waitingParts returns what a transaction that waits changes in this shard, by account and asset.
func (g *group) waitingParts(r *record, id ledger.Hash) map[balanceKey]ledger.Amount {
	at, before := r, -1
	if place, here := g.places[id]; here {
		at, before = g.records[place.height-1], place.index
	} else {
		before = slices.IndexFunc(r.block.Unpacked,
			func(e ledger.Entry) bool { return e.ID == id })
	}
	parts := make(map[balanceKey]ledger.Amount)
	t := at.block.Unpacked[before].Transaction()
	for i := range t.Postings {
		p := &t.Postings[i]
		if g.home(at, p.Account.Organisation()) == g.shard {
			key := balanceKey{p.Account, p.Asset}
			parts[key], _ = parts[key].Add(p.Amount)
		}
	}
	return parts
}

// judgeHoldsMoved judges that organisations that moved took the holds along that were open at their
// old homes.
func (w *world) judgeHoldsMoved() {
	for _, g := range w.remaining() {
		for id, each := range g.last().held {
			name := each.From.Organisation()
			if !w.holdsMoved[id] && w.finalHome(name) != g.shard && !w.wasLost(name) {
				w.fail(Holds, fmt.Sprintf("shard %d has hold %s of %s, which moved without it",
					g.shard, short(id), name))
			}
		}
	}
}

// judgeEnds judges that over all shards each hold was ended at most once, and no more was posted of
// it than it held.
func (w *world) judgeEnds() {
	placed, ended := make(map[ledger.Hash]*ledger.Hold), make(map[ledger.Hash]ledger.Hash)
	for _, g := range w.remaining() {
		for _, r := range g.records {
			w.result.Lapsed += r.lapsed
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				if t := entry.Transaction(); t.Hold != nil && entry.Result.OK() {
					placed[entry.ID] = t.Hold
					w.result.Held++
				}
			}
		}
	}
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				t := entry.Transaction()
				if t.HoldEnd == nil || !g.tookEffectAt(entry) ||
					g.home(r, t.HoldEnd.From.Organisation()) != g.shard {
					continue
				}
				of := placed[t.HoldEnd.Hold]
				first, again := ended[t.HoldEnd.Hold]
				switch {
				case again:
					w.fail(Holds, fmt.Sprintf("%s and %s both ended hold %s", short(first),
						short(entry.ID), short(t.HoldEnd.Hold)))
				case of != nil && postedBy(t).Compare(of.Amount) > 0:
					w.fail(Holds, fmt.Sprintf("%s posted %v of hold %s, which held %v",
						short(entry.ID), postedBy(t), short(t.HoldEnd.Hold), of.Amount))
				case of == nil && len(w.plan.losses) == 0:
					w.fail(Holds, fmt.Sprintf("%s ended hold %s, which nobody placed",
						short(entry.ID), short(t.HoldEnd.Hold)))
				}
				if ended[t.HoldEnd.Hold] = entry.ID; len(t.Postings) > 0 {
					w.result.Posted++
				} else {
					w.result.Voided++
				}
			}
		}
	}
}
