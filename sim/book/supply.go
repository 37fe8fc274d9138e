package book

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// In some books of the newest version, two organisations register an asset at about the same time,
// with a low cap that several issuers share. Clients issue it, redeem it and pass it on, more than
// the cap allows, and the terms change on the way.

const (
	registered ledger.AssetName = "euro"
	// supplyCap is the cap of the registration. The terms may lower it.
	supplyCap = 12
)

// takeAssets makes chains that could change the book take registrations of assets, too, in half of
// the books. The chance is apart from others, so that other books stay as they were.
func (p *plan) takeAssets(genesis *ledger.Genesis) {
	if p.minters.IntN(2) == 0 && genesis.Version >= ledger.GrowthVersion && p.upgrade == 0 {
		genesis.Version = max(genesis.Version, ledger.AssetsVersion)
	}
}

// mint draws the registrations of the asset, changes of its terms, and who issues it.
func (p *plan) mint() {
	if !ledger.TakesAssets(max(p.genesis[0].Version, p.upgrade)) {
		return
	}
	random, w := p.minters, p.workload
	add := func(at Turn, what string, bundle *ledger.Bundle) {
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what: what, bundle: bundle, member: random.IntN(MembersMax)})
		p.calm = max(p.calm, at+20)
	}
	w.assets = append(w.assets, registered)
	terms := ledger.AssetTerms{Decimals: 2, Cap: ledger.NewAmount(supplyCap),
		Supply: []ledger.SupplyPolicy{ledger.SupplyCapped, ledger.SupplyFixed}[random.IntN(2)]}
	issuers := slices.Clone(w.clients[:2+random.IntN(2)])
	slices.SortFunc(issuers, func(a, b *client) int {
		return strings.Compare(string(a.name), string(b.name))
	})
	for _, c := range issuers {
		terms.Issuers = append(terms.Issuers, ledger.Issuer{Organisation: c.name,
			Allowance: ledger.NewAmount(int64(supplyCap / len(issuers)))})
	}
	at := max(30, w.upgradedAt)
	for i := range 2 { // one of them has it, and changes it
		c := w.clients[i]
		add(at+Turn(random.IntN(6)), fmt.Sprintf("%s registers %s", c.name, registered),
			w.asset(c, 1, terms))
	}
	at += 30
	number := uint64(1)
	for range 12 + random.IntN(20) {
		at += Turn(random.IntN(8))
		if random.IntN(8) == 0 {
			number++
			terms = w.changedTerms(random, terms)
			for i := range 2 {
				c := w.clients[i]
				add(at, fmt.Sprintf("%s changes %s", c.name, registered), w.asset(c, number, terms))
			}
			continue
		}
		from := issuers[random.IntN(len(issuers))]
		if random.IntN(6) == 0 {
			from = w.clients[random.IntN(len(w.clients))]
		}
		what, bundle := w.minted(random, from, at)
		add(at, what, bundle)
	}
}

// asset makes the bundle with which an organisation registers the asset, or changes its terms.
func (w *workload) asset(c *client, number uint64, terms ledger.AssetTerms) *ledger.Bundle {
	transaction := w.next(c)
	transaction.Asset = &ledger.AssetChange{Asset: registered, Number: number,
		AssetTerms: terms.Clone()}
	return w.sign([]*client{c}, func(*client) bool { return true }, transaction)
}

// changedTerms withdraws an issuer or admits it again, lowers the cap, or closes the issuance.
func (w *workload) changedTerms(random *rand.Rand, terms ledger.AssetTerms) ledger.AssetTerms {
	terms = terms.Clone()
	switch one := &terms.Issuers[random.IntN(len(terms.Issuers))]; random.IntN(6) {
	case 0, 1, 2:
		one.Withdrawn = !one.Withdrawn
	case 3:
		terms.Closed = true
	default:
		if terms.Supply == ledger.SupplyCapped && one.Allowance.Sign() > 0 {
			one.Allowance = one.Allowance.Minus(ledger.NewAmount(1))
			terms.Cap = terms.Cap.Minus(ledger.NewAmount(1))
		}
	}
	return terms
}

// minted makes a bundle that moves some of the asset, mostly from an issuer account.
func (w *workload) minted(random *rand.Rand, from *client, at Turn) (what string,
	bundle *ledger.Bundle) {
	transaction := w.next(from)
	if w.namesDeadlines(random, at) {
		transaction.Deadline = w.deadline(random, at)
	}
	to, amount := w.clients[random.IntN(len(w.clients))], int64(1+random.IntN(5))
	account := func() string { return accountNames[max(0, random.IntN(5)-2)] }
	transaction.Postings = []ledger.Posting{
		{Account: from.account(account()), Asset: registered, Amount: ledger.NewAmount(-amount)},
		{Account: to.account(account()), Asset: registered, Amount: ledger.NewAmount(amount)}}
	return describe(&transaction), w.sign([]*client{from}, func(*client) bool { return true },
		transaction)
}

// judgeIssuances judges that a chain counts what each issuer issued as the accounts of the issuer
// are below zero after a block, and keeps the asset as the chain has it then.
func (g *group) judgeIssuances(m *member, r *record) {
	asset, known := m.state.Asset(registered)
	if !known || asset.Registered == r.block.Header.Height {
		g.world.usedBefore = g.world.usedBefore || usesBefore(r.block)
	}
	if !known || g.world.usedBefore {
		return
	}
	kept := *asset
	kept.Issuances = slices.Clone(asset.Issuances)
	r.asset = &kept
	coming, _ := m.state.Coming()
	for i := range asset.Issuers {
		name, has := asset.Issuers[i].Organisation, &asset.Issuances[i]
		if m.state.IsStranded(name) || slices.ContainsFunc(coming, func(each state.Move) bool {
			return each.Organisation == name
		}) {
			continue // some of its accounts are on their way, maybe to move on from here
		}
		var owed, most ledger.Amount
		for _, path := range g.world.paths {
			if path.Organisation() != name {
				continue
			}
			account, _ := m.account(path)
			for j := range account.Balances {
				balance := &account.Balances[j]
				if balance.Asset != registered {
					continue
				}
				if settled := balance.Settled(); settled.Sign() < 0 {
					owed = owed.Minus(settled)
				}
				if balance.Amount.Sign() < 0 {
					most = most.Minus(balance.Amount)
				}
			}
		}
		if has.Outstanding() != owed || has.Waiting != most.Minus(owed) {
			g.world.fail(Supply, fmt.Sprintf("shard %d, block %d: %s issued %+v of %s, and its "+
				"accounts are %v below zero, at most %v", g.shard, r.block.Header.Height, name,
				*has, registered, owed, most))
		}
	}
}

// usesBefore reports whether a block moves some of the asset before it registers it. What is
// outstanding then does not count as issued, so the supply is not judged.
func usesBefore(block *ledger.Block) bool {
	for i := range block.Unpacked {
		entry := &block.Unpacked[i]
		t := entry.Transaction()
		switch {
		case t.Asset != nil && entry.Result.OK():
			return false
		case t.Hold != nil && t.Hold.Asset == registered && entry.Result.OK():
			return true
		case (entry.Result.OK() || entry.Result.Code == ledger.SetAside) && slices.ContainsFunc(
			t.Postings, func(p ledger.Posting) bool { return p.Asset == registered }):
			return true
		}
	}
	return false
}

// judgeSupply judges that at a cut no more is outstanding than the cap, and of a fixed supply that
// no more was ever issued, whatever becomes of what waits.
func (w *world) judgeSupply(cut []int) {
	last := make(map[ledger.OrganisationName]ledger.Issuance)
	policy := ledger.SupplyUnlimited
	for _, g := range w.remaining() {
		if cut[g.shard] == 0 || g.records[cut[g.shard]-1].asset == nil {
			continue
		}
		asset := g.records[cut[g.shard]-1].asset
		policy = asset.Supply
		for i := range asset.Issuers {
			name, each := asset.Issuers[i].Organisation, asset.Issuances[i]
			if before := last[name]; each.Arrived > before.Arrived ||
				each.Arrived == before.Arrived && each.Issued.Compare(before.Issued) > 0 ||
				before == (ledger.Issuance{}) {
				last[name] = each
			}
		}
	}
	if w.usedBefore {
		return
	}
	var sum ledger.Amount
	for _, each := range last {
		sum, _ = sum.Add(each.Committed(policy))
	}
	if sum.Compare(ledger.NewAmount(supplyCap)) > 0 {
		w.fail(Supply, fmt.Sprintf("%v of %d %s is issued over all shards at blocks %v, if what "+
			"waits takes effect", sum, supplyCap, registered, cut))
	}
}
