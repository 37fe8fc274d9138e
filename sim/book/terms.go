package book

import (
	"fmt"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// In books of the newest version, organisations set terms of their accounts on the way: limits near
// what the accounts have, and freezes.

// restrict draws changes of the terms of accounts. The chance is apart from others.
func (p *plan) restrict() {
	if !ledger.TakesAccountTerms(max(p.genesis[0].Version, p.upgrade)) {
		return
	}
	random, w := p.limiters, p.workload
	numbers := make(map[ledger.AccountPath]uint64)
	at := max(30, w.upgradedAt)
	for range 4 + random.IntN(24) {
		at += Turn(random.IntN(12))
		c := w.clients[random.IntN(len(w.clients))]
		path := c.account(accountNames[random.IntN(len(accountNames))])
		numbers[path]++
		transaction := w.next(c)
		transaction.Account = &ledger.AccountChange{Account: path, Number: numbers[path],
			AccountTerms: w.drawnTerms(random)}
		if random.IntN(3) == 0 {
			transaction.Account.Alias = string(path)
		}
		bundle := w.sign([]*client{c}, func(*client) bool { return true }, transaction)
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what: fmt.Sprintf("terms of %s", path), bundle: bundle,
			member: random.IntN(MembersMax)})
		p.calm = max(p.calm, at+20)
	}
}

func (w *workload) drawnTerms(random *rand.Rand) ledger.AccountTerms {
	var terms ledger.AccountTerms
	switch random.IntN(8) {
	case 0:
		terms.NoDebits = true
	case 1:
		terms.NoCredits = true
	case 2:
		terms.Freeze = ledger.FreezeOwner
	case 3: // none
	default:
		near := func() *ledger.Amount {
			amount := ledger.NewAmount(max(0, w.funds+int64(random.IntN(9)-4)))
			return &amount
		}
		limit := ledger.AccountLimit{Asset: assets[random.IntN(len(assets))]}
		switch random.IntN(5) {
		case 0, 1, 2:
			floor := ledger.NewAmount(max(0, w.funds-random.Int64N(w.funds/2+8)))
			limit.Floor = &floor
		case 3:
			limit.Ceiling = near()
		default:
			limit.Velocity = &ledger.Velocity{Amount: ledger.NewAmount(int64(random.IntN(8))),
				Seconds: uint32(1 + random.IntN(20))}
		}
		terms.Limits = []ledger.AccountLimit{limit}
	}
	return terms
}

// judgeTerms judges what a block made of the accounts, by their terms before and after. The record
// has the homes before the block.
func (g *group) judgeTerms(m *member, r *record) {
	r.accounts = make(map[ledger.AccountPath]*ledger.Account)
	r.away = make(map[ledger.AccountPath]bool)
	before := g.last()
	for _, path := range g.world.paths {
		account, open := m.account(path)
		if !open {
			continue
		}
		if account.Standing != nil {
			account.Standing = account.Standing.Clone()
		}
		r.accounts[path] = &account
		// An account whose holds have not arrived yet has nothing set aside for them.
		name := path.Organisation()
		r.away[path] = g.home(r, name) != g.shard || m.state.IsComing(name)
		if !r.away[path] && !before.away[path] {
			if err := ledger.KeepsTerms(before.accounts[path], &account); err != nil {
				g.world.fail(Terms, fmt.Sprintf("shard %d, block %d: %v", g.shard,
					r.block.Header.Height, err))
			}
			g.judgeVelocities(r, &account)
		}
		g.judgeMovedTerms(m, r, &account)
	}
}

// judgeVelocities adds up how far an account fell in the blocks within the time of a velocity.
func (g *group) judgeVelocities(r *record, account *ledger.Account) {
	if account.Standing == nil {
		return
	}
	for i := range account.Standing.Limits {
		limit := &account.Standing.Limits[i]
		if limit.Velocity == nil {
			continue
		}
		since := r.block.Header.Time - ledger.Milliseconds(limit.Velocity.Seconds)*1000
		var sum ledger.Amount
		later, at := account, r
		for height := g.head() - 1; height >= 0 && at.block.Header.Time > since; height-- {
			earlier := g.records[height]
			was := earlier.accounts[account.Path]
			if was == nil || earlier.away[account.Path] || was.Standing == nil ||
				was.Standing.Revision != account.Standing.Revision {
				break
			}
			if fell := was.Balance(limit.Asset).Minus(later.Balance(limit.Asset)); fell.Sign() > 0 {
				sum, _ = sum.Add(fell)
			}
			later, at = was, earlier
		}
		if sum.Compare(limit.Velocity.Amount) > 0 {
			g.world.fail(Terms, fmt.Sprintf("shard %d, block %d: %s gave %v %s within %d seconds, "+
				"and may give %v", g.shard, r.block.Header.Height, account.Path, sum, limit.Asset,
				limit.Velocity.Seconds, limit.Velocity.Amount))
		}
	}
}

// judgeMovedTerms judges that an account has the terms that it had at its earlier homes, which do
// not change after the move.
func (g *group) judgeMovedTerms(m *member, r *record, account *ledger.Account) {
	if name := account.Path.Organisation(); m.state.HomeShard(name) != g.shard ||
		m.state.IsStranded(name) {
		return
	}
	for _, other := range g.world.groups {
		if other == g || other.head() == 0 {
			continue
		}
		was := other.records[other.head()-1].accounts[account.Path]
		if was == nil || was.Standing == nil {
			continue
		}
		if account.Standing == nil || account.Standing.Revision < was.Standing.Revision {
			g.world.fail(Terms, fmt.Sprintf("shard %d, block %d: %s has terms %v, and had %v in "+
				"shard %d", g.shard, r.block.Header.Height, account.Path, account.Standing,
				was.Standing, other.shard))
		}
	}
}
