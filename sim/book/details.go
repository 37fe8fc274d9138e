package book

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// In books whose chains take details of entries, clients use a few idempotency keys again and
// again, post entries that can be refunded, and refund them: in part, too much, several times at
// once, before the entry or after its time. The other shards of an entry or a refund refuse it, and
// organisations move meanwhile.

// drawDetails draws the entries with details. The chance is apart from others, so that other books
// stay as they were.
func (p *plan) drawDetails(seed uint64) {
	if !ledger.TakesDetails(max(p.genesis[0].Version, p.upgrade)) {
		return
	}
	random, w := rand.New(rand.NewPCG(seed, 1<<50)), p.workload
	at := max(30, w.upgradedAt-5)
	for range 12 + random.IntN(20) {
		at += Turn(random.IntN(6))
		posted := w.refundable(random, at)
		p.add(random, at, describe(posted.Transaction(0)), posted)
		for range random.IntN(6) {
			when := max(1, at+Turn(random.IntN(60)-4))
			refund := w.refunding(random, when, posted)
			p.add(random, when, describe(refund.Transaction(0)), refund)
		}
	}
}

// keyed gives an entry one of a few idempotency keys, or none.
func keyed(random *rand.Rand, t *ledger.Transaction) {
	if random.IntN(3) > 0 {
		t.Details.Key = fmt.Sprintf("invoice %d", random.IntN(8))
	}
}

// signedBy signs a transaction for all whose consent it needs, with both of their keys.
func (w *workload) signedBy(t *ledger.Transaction) *ledger.Bundle {
	return w.sign(w.payers([]ledger.Transaction{*t}), func(*client) bool { return true }, *t)
}

// timely gives a transaction a deadline, which most that concern several shards need.
func (w *workload) timely(random *rand.Rand, at Turn, t *ledger.Transaction) {
	if t.Deadline = w.deadline(random, at); t.Deadline < w.began {
		t.Deadline = 0
	}
}

// refundable makes a bundle with an entry that can be refunded. Some entries only have a key.
func (w *workload) refundable(random *rand.Rand, at Turn) *ledger.Bundle {
	from := w.someone(random)
	t := w.next(from)
	w.timely(random, at, &t)
	t.Details = &ledger.Details{Effective: ledger.Milliseconds(1 + random.IntN(1000))}
	keyed(random, &t)
	payer := from.account(accountNames[1+random.IntN(2)])
	if random.IntN(2) == 0 {
		payer = from.account("issuer")
	}
	asset := w.assets[random.IntN(len(assets))]
	var sum int64
	for range 1 + random.IntN(2) {
		to := w.someone(random).account(accountNames[1+random.IntN(2)])
		if random.IntN(10) == 0 {
			to = w.someone(random).account("nobody")
		}
		if to == payer || slices.ContainsFunc(t.Postings,
			func(p ledger.Posting) bool { return p.Account == to }) {
			continue
		}
		amount := 1 + random.Int64N(12)
		sum += amount
		t.Postings = append(t.Postings, ledger.Posting{Account: to, Asset: asset,
			Amount: ledger.NewAmount(amount)})
	}
	if sum == 0 {
		t.Records = []ledger.Record{{Key: ledger.RecordKey(from.account("record")),
			Value: []byte("details")}}
		return w.signedBy(&t)
	}
	t.Postings = append(t.Postings, ledger.Posting{Account: payer, Asset: asset,
		Amount: ledger.NewAmount(-sum)})
	t.Details.Refundable = w.began + turnLength*ledger.Milliseconds(at+4+Turn(random.IntN(90)))
	switch random.IntN(20) {
	case 0:
		t.Details.Refundable = w.began - 1
	case 1:
		t.Details.Refundable += 2 * ledger.MaxRefundTime
	case 2:
		t.Details.Refundable = 0
	}
	return w.signedBy(&t)
}

// refunding makes a bundle with a refund. Some ask for what cannot be.
func (w *workload) refunding(random *rand.Rand, at Turn, posted *ledger.Bundle) *ledger.Bundle {
	of := posted.Transaction(0)
	by := w.someone(random)
	t := w.next(by)
	w.timely(random, at, &t)
	t.Details = &ledger.Details{Refund: &ledger.Refund{Entry: posted.ID(0),
		Organisation: of.Signer}}
	keyed(random, &t)
	if random.IntN(15) == 0 {
		t.Details.Refund.Organisation = by.name
	}
	if len(of.Postings) == 0 {
		other := w.someone(random)
		t.Postings = []ledger.Posting{{Account: by.account("a"), Asset: assets[0],
			Amount: ledger.NewAmount(-1)}, {Account: other.account("b"), Asset: assets[0],
			Amount: ledger.NewAmount(1)}}
		return w.signedBy(&t)
	}
	payer := of.Postings[len(of.Postings)-1]
	giver := of.Postings[random.IntN(len(of.Postings)-1)]
	amount := giver.Amount
	one := ledger.NewAmount(1)
	switch random.IntN(8) {
	case 0:
		amount, _ = amount.Add(one)
	case 1, 2, 3, 4:
		amount = one
	case 5:
		payer.Account = w.someone(random).account("b")
	}
	if payer.Account == giver.Account {
		payer.Account = "nobody:a"
	}
	t.Postings = []ledger.Posting{{Account: giver.Account, Asset: giver.Asset,
		Amount: ledger.Amount{}.Minus(amount)}, {Account: payer.Account, Asset: payer.Asset,
		Amount: amount}}
	return w.signedBy(&t)
}

// keyOfSigner is an idempotency key of an organisation.
type keyOfSigner struct {
	of  ledger.OrganisationName
	key string
}

// detailsOf are the idempotency keys and the refundable entries that a chain remembers after a
// block, as the judge has them. Those of organisations that moved on are among them.
type detailsOf struct {
	keys       map[keyOfSigner]state.Keyed
	refundable map[ledger.Hash]state.Refundable
	// taken is what refunds that wait took, by their ids.
	taken map[ledger.Hash][]ledger.Amount
}

// after returns a copy to which the changes of a block are made.
func (d *detailsOf) after() *detailsOf {
	if d == nil {
		return &detailsOf{make(map[keyOfSigner]state.Keyed),
			make(map[ledger.Hash]state.Refundable), make(map[ledger.Hash][]ledger.Amount)}
	}
	return &detailsOf{maps.Clone(d.keys), maps.Clone(d.refundable), maps.Clone(d.taken)}
}

// judgeDetails goes through a block as the rules of details say, and judges that the chain did so
// too: each decision, and what it remembers afterwards. The homes are those before the block: an
// entry of it may name an organisation that a later one registers.
func (g *group) judgeDetails(m *member, r *record,
	homes map[ledger.OrganisationName]ledger.ShardID) {
	if !ledger.TakesDetails(r.version) {
		return
	}
	r.details = r.details.after()
	r = &record{block: r.block, details: r.details, homes: homes}
	now := r.block.Header.Time
	for name, each := range r.details.keys {
		if each.Expires <= now && !each.Waits && g.home(r, name.of) == g.shard {
			delete(r.details.keys, name)
		}
	}
	for id, each := range r.details.refundable {
		if each.Until <= now && each.Waits == (ledger.Hash{}) &&
			g.home(r, each.Organisation) == g.shard {
			delete(r.details.refundable, id)
		}
	}
	for i := range r.block.Unpacked {
		g.judgeDetailsIn(r, &r.block.Unpacked[i])
		r.register(&r.block.Unpacked[i])
	}
	g.compareDetails(m, r)
}

// judgeDetailsIn judges an entry of a block.
func (g *group) judgeDetailsIn(r *record, entry *ledger.Entry) {
	t, code := entry.Transaction(), entry.Result.Code
	switch {
	case t.Verdict != nil && (code == ledger.Settled || code == ledger.Released):
		r.details.decide(t.Verdict.ID, code == ledger.Settled)
	case t.Arrival != nil && code == ledger.Applied:
		for i := range t.Arrival.Entries {
			key, refundable, err := state.MovedDetail(&t.Arrival.Entries[i])
			switch {
			case err != nil:
				g.world.fail(Refunds, fmt.Sprintf("shard %d, block %d: %v", g.shard,
					r.block.Header.Height, err))
			case key != nil:
				r.details.keys[keyOfSigner{key.Organisation, key.Key}] = *key
				g.world.detailsMoved[key.Entry] = true
			case refundable != nil:
				r.details.refundable[refundable.Entry] = *refundable
				g.world.detailsMoved[refundable.Entry] = true
			}
		}
	case t.Details != nil:
		want := g.mayDetail(r, t)
		agreed := code == ledger.Applied || code == ledger.SetAside
		if agreed && want != ledger.Applied ||
			code >= ledger.KeyTaken && code <= ledger.TooManyRefundable && code != want {
			property := Refunds
			if code == ledger.KeyTaken || want == ledger.KeyTaken {
				property = Keys
			}
			g.world.fail(property, fmt.Sprintf("shard %d, block %d: transaction %s of %s ends "+
				"with %q, and its details ask for %q", g.shard, r.block.Header.Height,
				short(entry.ID), t.Signer, code, want))
		}
		if agreed {
			g.takeDetails(r, entry, code == ledger.SetAside)
		}
	}
}

// decide ends the wait for a transaction.
func (d *detailsOf) decide(id ledger.Hash, applied bool) {
	for name, each := range d.keys {
		if each.Waits && each.Entry == id {
			each.Waits = false
			if d.keys[name] = each; !applied {
				delete(d.keys, name)
			}
		}
	}
	for entry, each := range d.refundable {
		if each.Waits != id {
			continue
		}
		each.Waits = ledger.Hash{}
		if !applied {
			each.Left = slices.Clone(each.Left)
			for i, taken := range d.taken[id] {
				each.Left[i].Amount = each.Left[i].Amount.Minus(taken)
			}
		}
		if d.refundable[entry] = each; entry == id && !applied || spent(each.Left) {
			delete(d.refundable, entry)
		}
	}
	delete(d.taken, id)
}

// spent reports whether nothing is left of an entry.
func spent(left []state.Left) bool {
	return !slices.ContainsFunc(left, func(l state.Left) bool { return l.Amount.Sign() != 0 })
}

// mayDetail returns how the details of an entry have to end in this shard.
func (g *group) mayDetail(r *record, t *ledger.Transaction) ledger.Code {
	d, now := t.Details, r.block.Header.Time
	if g.home(r, t.Signer) == g.shard {
		if found, taken := r.details.keys[keyOfSigner{t.Signer, d.Key}]; taken &&
			(found.Waits || now < found.Expires) {
			return ledger.KeyTaken
		}
		if d.Refundable != 0 && (d.Refundable <= now ||
			d.Refundable > now+ledger.MaxRefundTime) {
			return ledger.RefundTime
		}
	}
	if d.Refund == nil || g.home(r, d.Refund.Organisation) != g.shard {
		return ledger.Applied
	}
	found, known := r.details.refundable[d.Refund.Entry]
	switch {
	case !known || found.Organisation != d.Refund.Organisation:
		return ledger.UnknownRefundable
	case found.Waits != (ledger.Hash{}):
		return ledger.RefundWaits
	case found.Until <= now:
		return ledger.RefundOver
	}
	for i := range t.Postings {
		if !slices.ContainsFunc(found.Left, func(l state.Left) bool {
			p := &t.Postings[i]
			negative := l.Amount.Sign() < 0
			rest, err := l.Amount.Add(p.Amount)
			return err == nil && l.Account == p.Account && l.Asset == p.Asset &&
				l.Amount.Sign()*p.Amount.Sign() < 0 && (rest.Sign() == 0 ||
				(rest.Sign() < 0) == negative)
		}) {
			return ledger.RefundExceeded
		}
	}
	return ledger.Applied
}

// takeDetails makes the changes of an entry that a shard agreed to.
func (g *group) takeDetails(r *record, entry *ledger.Entry, waits bool) {
	t := entry.Transaction()
	d := t.Details
	waiting := ledger.Hash{}
	if waits {
		waiting = entry.ID
	}
	if g.home(r, t.Signer) == g.shard {
		if d.Key != "" {
			r.details.keys[keyOfSigner{t.Signer, d.Key}] = state.Keyed{Organisation: t.Signer,
				Key: d.Key, Entry: entry.ID, Expires: r.block.Header.Time + ledger.KeyTime,
				Waits: waits}
		}
		if d.Refundable != 0 {
			added := state.Refundable{Entry: entry.ID, Organisation: t.Signer, Until: d.Refundable,
				Waits: waiting}
			for i := range t.Postings {
				p := &t.Postings[i]
				added.Left = append(added.Left, state.Left{Account: p.Account, Asset: p.Asset,
					Amount: p.Amount})
			}
			r.details.refundable[entry.ID] = added
		}
	}
	if d.Refund == nil || g.home(r, d.Refund.Organisation) != g.shard {
		return
	}
	found, known := r.details.refundable[d.Refund.Entry]
	if !known {
		return // it was judged already
	}
	found.Left, found.Waits = slices.Clone(found.Left), waiting
	taken := make([]ledger.Amount, len(found.Left))
	for i := range found.Left {
		for j := range t.Postings {
			l, p := &found.Left[i], &t.Postings[j]
			if l.Account == p.Account && l.Asset == p.Asset {
				taken[i] = p.Amount
				l.Amount, _ = l.Amount.Add(p.Amount)
			}
		}
	}
	if r.details.refundable[d.Refund.Entry] = found; waits {
		r.details.taken[entry.ID] = taken
	} else if spent(found.Left) {
		delete(r.details.refundable, d.Refund.Entry)
	}
}

// compareDetails judges that the chain remembers what the judge does.
func (g *group) compareDetails(m *member, r *record) {
	keys, refundable := m.state.DetailCounts()
	if keys != len(r.details.keys) {
		g.world.fail(Keys, fmt.Sprintf("shard %d, block %d: it remembers %d keys, and should %d",
			g.shard, r.block.Header.Height, keys, len(r.details.keys)))
	}
	for name, want := range r.details.keys {
		if has, _ := m.state.Key(name.of, name.key); has != want {
			g.world.fail(Keys, fmt.Sprintf("shard %d, block %d: it remembers key %q of %s as %+v, "+
				"and should as %+v", g.shard, r.block.Header.Height, name.key, name.of, has, want))
		}
	}
	if refundable != len(r.details.refundable) {
		g.world.fail(Refunds, fmt.Sprintf("shard %d, block %d: %d entries can be refunded, and %d "+
			"should", g.shard, r.block.Header.Height, refundable, len(r.details.refundable)))
	}
	for id, want := range r.details.refundable {
		has, _ := m.state.Refundable(id)
		if has.Organisation != want.Organisation || has.Until != want.Until ||
			has.Waits != want.Waits || !slices.Equal(has.Left, want.Left) {
			g.world.fail(Refunds, fmt.Sprintf("shard %d, block %d: entry %s can be refunded as "+
				"%+v, and should as %+v", g.shard, r.block.Header.Height, short(id), has, want))
		}
	}
}

// judgeDetailsMoved judges that organisations that moved took their keys and refundable entries
// along.
func (w *world) judgeDetailsMoved() {
	for _, g := range w.remaining() {
		last := g.last().details
		if last == nil {
			continue
		}
		left := func(of ledger.OrganisationName, entry ledger.Hash) bool {
			return !w.detailsMoved[entry] && w.finalHome(of) != g.shard && !w.wasLost(of)
		}
		for name, each := range last.keys {
			if left(name.of, each.Entry) {
				w.fail(Keys, fmt.Sprintf("shard %d has key %q of %s, which moved without it",
					g.shard, name.key, name.of))
			}
		}
		for id, each := range last.refundable {
			if left(each.Organisation, id) {
				w.fail(Refunds, fmt.Sprintf("shard %d has what is left of entry %s of %s, which "+
					"moved without it", g.shard, short(id), each.Organisation))
			}
		}
	}
}

// judgeRefunds judges that over all shards no more was given back of an entry than it had, and that
// no second entry of a signer with one key took effect in time. It knows nothing of what the chains
// remember. The entries of a lost shard are not known.
func (w *world) judgeRefunds() {
	w.judgeKeys()
	posted := make(map[ledger.Hash]*ledger.Transaction)
	refunds := make(map[ledger.Hash]*ledger.Transaction)
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				t := entry.Transaction()
				if t.Details == nil || !g.tookEffectAt(entry) {
					continue
				}
				if t.Details.Refundable != 0 {
					posted[entry.ID] = t
				}
				if t.Details.Refund != nil {
					refunds[entry.ID] = t
				}
			}
		}
	}
	w.result.Refundable += len(posted)
	given := make(map[ledger.Hash]map[balanceKey]ledger.Amount)
	for id, t := range refunds {
		w.result.Refunds++
		of := t.Details.Refund.Entry
		original := posted[of]
		if original == nil {
			if len(w.plan.losses) == 0 {
				w.fail(Refunds, fmt.Sprintf("%s refunded entry %s, which is none", short(id),
					short(of)))
			}
			continue
		}
		if given[of] == nil {
			given[of] = make(map[balanceKey]ledger.Amount)
			for i := range original.Postings {
				p := &original.Postings[i]
				given[of][balanceKey{p.Account, p.Asset}] = p.Amount
			}
		}
		for i := range t.Postings {
			p := &t.Postings[i]
			key := balanceKey{p.Account, p.Asset}
			left := given[of][key]
			rest, _ := left.Add(p.Amount)
			if left.Sign()*p.Amount.Sign() >= 0 || rest.Sign()*p.Amount.Sign() > 0 {
				w.fail(Refunds, fmt.Sprintf("%s gave %v %s of %s back of entry %s, of which %v "+
					"was left", short(id), p.Amount, p.Asset, p.Account, short(of), left))
			}
			given[of][key] = rest
		}
	}
}

// judgeKeys judges that no two entries of a signer with one key took effect. Runs are much shorter
// than ledger.KeyTime.
func (w *world) judgeKeys() {
	first := make(map[keyOfSigner]ledger.Hash)
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				t := entry.Transaction()
				if t.Details == nil || t.Details.Key == "" || !g.tookEffectAt(entry) {
					continue
				}
				name := keyOfSigner{t.Signer, t.Details.Key}
				if before, again := first[name]; again && before != entry.ID {
					w.fail(Keys, fmt.Sprintf("%s and %s of %s took effect, both with key %q",
						short(before), short(entry.ID), t.Signer, name.key))
				}
				if first[name] == (ledger.Hash{}) {
					w.result.Keys++
				}
				first[name] = entry.ID
			}
		}
	}
}
