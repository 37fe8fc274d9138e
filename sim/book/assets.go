package book

import (
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// In some books accounts may have few assets, and clients issue new ones to the same accounts at
// about the same time: some that come in and some that wait.

// newAssets are issued in such a book only. Accounts have room for one or two of them.
var newAssets = []ledger.AssetName{"coin", "pearl", "ruby", "silk"}

// issue draws whether accounts may have few assets, and who issues new ones. The chance is apart
// from others, so that other books stay as they were.
func (p *plan) issue(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1<<44))
	if random.IntN(6) > 0 {
		return
	}
	p.assetsMax = len(assets) + 1 + random.IntN(2)
	p.workload.assets = append(p.workload.assets, newAssets...)
	at := Turn(48)
	for range 1 + random.IntN(3) {
		at += Turn(random.IntN(30))
		to := p.someClient(random)
		for range 2 + random.IntN(5) {
			s := submission{number: len(p.submissions) + 1, at: at + Turn(random.IntN(8)),
				member: random.IntN(MembersMax)}
			s.what, s.bundle = p.workload.issued(random, to, s.at)
			p.submissions = append(p.submissions, s)
			p.calm = max(p.calm, s.at+20)
		}
	}
}

// issued makes a bundle of a transaction that gives one unit or two of new assets to an account.
func (w *workload) issued(random *rand.Rand, to *client, at Turn) (what string,
	bundle *ledger.Bundle) {
	from := w.clients[random.IntN(len(w.clients))]
	transaction := w.next(from)
	if w.namesDeadlines(random, at) {
		transaction.Deadline = w.deadline(random, at)
	}
	for _, i := range random.Perm(len(newAssets))[:1+random.IntN(2)] {
		transaction.Postings = append(transaction.Postings,
			ledger.Posting{Account: from.account("issuer"), Asset: newAssets[i],
				Amount: ledger.NewAmount(-1)},
			ledger.Posting{Account: to.account("a"), Asset: newAssets[i],
				Amount: ledger.NewAmount(1)})
	}
	return describe(&transaction), w.sign([]*client{from}, func(*client) bool { return true },
		transaction)
}
