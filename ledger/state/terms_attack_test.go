package state_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// extremes draws amounts at the ends of what an amount may be, and small ones.
func extremes(random *rand.Rand) ledger.Amount {
	half, _ := ledger.ParseAmount("85070591730234615865843651857942052864") // 2^126
	most := []ledger.Amount{ledger.MaxAmount, ledger.MaxAmount.Minus(ledger.NewAmount(1)), half}
	if random.IntN(3) > 0 {
		return ledger.NewAmount(int64(1 + random.IntN(9)))
	}
	return most[random.IntN(len(most))]
}

// TestTermsOfExtremes: whatever organisations sign, with amounts at the ends of 128 bits, nothing
// panics, no terms are passed, each block leaves the state that its entries restore, and no two
// accounts have the same alias.
func TestTermsOfExtremes(t *testing.T) {
	t.Parallel()
	refused := map[ledger.Code]int{}
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		chain, acme, shop := holdsChain(t, ledger.AccountTermsVersion)
		x := extremist{random: random, chain: chain, clients: []*ledgertest.Client{acme, shop}}
		before := x.accounts()
		for range 60 {
			var bundles []*ledger.Bundle
			changed := false
			for range 1 + random.IntN(4) {
				bundle, changes := x.bundle()
				changed = changed || changes
				bundles = append(bundles, bundle)
			}
			block := chain.block(bundles...)
			for i := range block.Len() {
				refused[block.Entry(i).Result.Code]++
			}
			after := x.accounts()
			for path, account := range after {
				// Within a block, terms may be changed and what they allow happen.
				if err := ledger.KeepsTerms(before[path], account); err != nil && !changed &&
					len(bundles) == 1 {
					t.Fatal(err)
				}
				if account.Standing == nil || account.Alias == "" {
					continue
				}
				if is, _ := chain.state.Aliased(path.Organisation(), account.Alias); is != path {
					t.Fatalf("%q is %s, not %s", account.Alias, is, path)
				}
			}
			before = after
			if err := chain.state.CheckUses(); err != nil {
				t.Fatal(err)
			}
		}
		restoredFrom(t, ledgertestGenesis(ledger.AccountTermsVersion), chain.state)
	})
	for _, code := range []ledger.Code{ledger.Applied, ledger.AccountFrozen, ledger.AccountClosed,
		ledger.NoDebits, ledger.NoCredits, ledger.BelowFloor, ledger.AboveCeiling,
		ledger.VelocityExceeded, ledger.AliasTaken, ledger.Overflow} {
		if refused[code] == 0 {
			t.Errorf("no transaction is %s", code)
		}
	}
}

// extremist makes bundles of organisations that try everything.
type extremist struct {
	random  *rand.Rand
	chain   *one
	clients []*ledgertest.Client
	holds   []ledger.Hash
	from    []ledger.AccountPath
}

func (x *extremist) accounts() map[ledger.AccountPath]*ledger.Account {
	all := map[ledger.AccountPath]*ledger.Account{}
	for _, account := range x.chain.state.Accounts() {
		all[account.Path] = &account
	}
	return all
}

func (x *extremist) pick(c *ledgertest.Client) ledger.AccountPath {
	return c.Account([]string{"issuer", "a", "b", "c", "d"}[x.random.IntN(5)])
}

// bundle makes the next bundle, and says whether it may change terms.
func (x *extremist) bundle() (*ledger.Bundle, bool) {
	c, other := x.clients[x.random.IntN(2)], x.clients[x.random.IntN(2)]
	alias := []string{"", "x", "y"}[x.random.IntN(3)]
	switch x.random.IntN(8) {
	case 0, 1:
		path := x.pick(other)
		number, terms := uint64(1), x.terms(other)
		if found, open := x.chain.state.Account(path); open && found.Standing != nil {
			number = found.Standing.Revision + 1
			if x.random.IntN(3) == 0 { // to lift a freeze
				alias, terms = found.Alias, found.Standing.AccountTerms.Clone()
				terms.Freeze = ledger.Freeze(x.random.IntN(4))
				if terms.Guardian == "" {
					terms.Freeze = ledger.FreezeNone
				}
			}
		}
		if c != other {
			number = 1
			if found, open := x.chain.state.Account(path); open && found.Standing != nil {
				number = found.Standing.Guarded + 1
			}
			return c.Bundle(c.Guard(path, number, 2*ledger.Freeze(x.random.IntN(2)))), true
		}
		return c.Bundle(c.ChangeAccount(path, number, alias, terms)), true
	case 2: // an opening that may fail after it took an alias
		opening := c.Next()
		opening.Openings = []ledger.Opening{{Account: c.Account("c"), Alias: alias},
			{Account: x.pick(c), Alias: alias}}
		if x.random.IntN(2) == 0 {
			opening.Openings = opening.Openings[:1]
		}
		return c.Bundle(opening), true
	case 3:
		hold := c.PlaceHold(c.Account("a"), other.Account("b"), 1, x.chain.parent.Header.Time+
			ledger.Milliseconds(1+x.random.IntN(30)))
		hold.Hold.From = x.pick(c)
		hold.Hold.Amount = extremes(x.random)
		if hold.Hold.From == hold.Hold.To[0] {
			hold.Hold.From = c.Account("issuer")
		}
		bundle := c.Bundle(hold)
		x.holds, x.from = append(x.holds, bundle.ID(0)), append(x.from, hold.Hold.From)
		return bundle, false
	case 4:
		if len(x.holds) > 0 {
			at := x.random.IntN(len(x.holds))
			to := other.Account("b")
			if to == x.from[at] {
				break
			}
			end := other.EndHold(x.holds[at], x.from[at], to, 1)
			most := extremes(x.random)
			taken, _ := most.Neg()
			end.Postings[0].Amount, end.Postings[1].Amount = taken, most
			if x.random.IntN(3) == 0 {
				end.Postings = nil
			}
			return other.Bundle(end), false
		}
	}
	transfer := c.Next()
	for range 1 + x.random.IntN(3) {
		amount := extremes(x.random)
		taken, _ := amount.Neg()
		transfer.Postings = append(transfer.Postings,
			ledger.Posting{Account: x.pick(c), Asset: ledger.DefaultAsset, Amount: taken},
			ledger.Posting{Account: x.pick(other), Asset: ledger.DefaultAsset, Amount: amount})
	}
	if p := transfer.Postings; len(p) == 2 && p[0].Account != p[1].Account {
		return c.Packed(transfer), false
	}
	if x.random.IntN(4) == 0 { // -2^127
		transfer.Postings = []ledger.Posting{{Account: c.Account("issuer"),
			Asset: ledger.DefaultAsset, Amount: ledger.MinAmount}}
		for _, part := range []ledger.Amount{ledger.MaxAmount, ledger.NewAmount(1)} {
			transfer.Postings = append(transfer.Postings, ledger.Posting{Account: x.pick(other),
				Asset: ledger.DefaultAsset, Amount: part})
		}
	}
	return c.Bundle(transfer), false
}

func (x *extremist) terms(owner *ledgertest.Client) (terms ledger.AccountTerms) {
	if x.random.IntN(2) == 0 {
		terms.Guardian = x.clients[0].Organisation
		if owner == x.clients[0] {
			terms.Guardian = x.clients[1].Organisation
		}
	}
	switch x.random.IntN(10) {
	case 0:
		terms.NoDebits = true
	case 1:
		terms.NoCredits = true
	case 2:
		terms.Freeze = ledger.FreezeOwner
	case 3:
		terms.Closed = true
	}
	limit := ledger.AccountLimit{Asset: ledger.DefaultAsset}
	if x.random.IntN(3) == 0 {
		floor := extremes(x.random)
		if x.random.IntN(2) == 0 {
			floor = [2]ledger.Amount{ledger.MinAmount, {}}[x.random.IntN(2)]
		}
		limit.Floor = &floor
	}
	if x.random.IntN(3) == 0 {
		ceiling := extremes(x.random)
		if x.random.IntN(4) == 0 {
			ceiling = ledger.MinAmount
		}
		if limit.Floor == nil || limit.Floor.Compare(ceiling) <= 0 {
			limit.Ceiling = &ceiling
		}
	}
	if x.random.IntN(3) == 0 {
		limit.Velocity = &ledger.Velocity{Amount: extremes(x.random),
			Seconds: []uint32{1, 2, ledger.MaxVelocitySeconds}[x.random.IntN(3)]}
	}
	if limit.Floor != nil || limit.Ceiling != nil || limit.Velocity != nil {
		terms.Limits = []ledger.AccountLimit{limit}
	}
	return terms
}
