package book

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// lossOf is a shard with which the operators settle. It may be gone for good from a turn on, or it
// goes on, and other shards may no longer believe it.
type lossOf struct {
	shard ledger.ShardID
	gone  bool
	// at is when it is gone, and settled when the operators settle with it.
	at, settled Turn
	// From one turn until another one, some shards do not hear it.
	unheardFrom, heardAgain Turn
	deaf                    []bool
	bundle                  *ledger.Bundle
}

// lossChance is the chance of losses. It is apart from that of the rest of the plan, which is the
// same without them.
func lossChance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, math.MaxUint64)) }

// loses reports whether shards of the book of a seed get lost.
func loses(seed uint64) bool { return lossChance(seed).IntN(4) == 0 }

// lose draws the shards that get lost, each after all shards below it. The root does not.
func (p *plan) lose(seed uint64) {
	if !p.losing {
		return
	}
	random := lossChance(seed)
	random.IntN(4)
	at := Turn(50 + random.IntN(max(1, int(p.calm)-70)))
	lost := func(shard ledger.ShardID) bool {
		return slices.ContainsFunc(p.losses, func(l lossOf) bool { return l.shard == shard })
	}
	for range 1 + random.IntN(2) {
		shard := ledger.ShardID(random.IntN(len(p.genesis)))
		if !state.CanLose(p.tree, lost, shard) || lost(shard) {
			continue
		}
		one := lossOf{shard: shard, gone: random.IntN(3) > 0, at: at,
			settled:     at + Turn(random.IntN(40)),
			unheardFrom: at - Turn(random.IntN(40)),
			deaf:        make([]bool, len(p.genesis)),
			bundle:      p.workload.settlement(uint64(len(p.losses)+1), shard)}
		one.heardAgain = one.settled + Turn(random.IntN(60))
		for i := range one.deaf {
			one.deaf[i] = random.IntN(2) == 0
		}
		p.losses = append(p.losses, one)
		p.calm = max(p.calm, one.settled+20)
		p.payAround(random, &one)
		at += Turn(random.IntN(30))
	}
}

// payAround adds payments of one organisation to all others, on their way when a shard is lost:
// some of the shards that they concern have its verdict then, and others do not.
func (p *plan) payAround(random *rand.Rand, around *lossOf) {
	for range 3 + random.IntN(6) {
		s := submission{number: len(p.submissions) + 1, shard: around.shard,
			member: random.IntN(MembersMax),
			at: max(1, around.unheardFrom-4+Turn(random.IntN(int(around.settled-
				around.unheardFrom)+8)))}
		s.what, s.bundle = p.workload.payAll(random, s.at)
		p.submissions = append(p.submissions, s)
	}
}

// payAll makes a payment of one organisation to all others.
func (w *workload) payAll(random *rand.Rand, at Turn) (what string, bundle *ledger.Bundle) {
	payer := w.clients[random.IntN(len(w.clients))]
	transaction := w.next(payer)
	transaction.Deadline = w.began + turnLength*ledger.Milliseconds(at+400)
	for _, to := range w.clients {
		if to != payer {
			transaction.Postings = append(transaction.Postings,
				ledger.Posting{Account: payer.account("issuer"), Asset: assets[0],
					Amount: ledger.NewAmount(-1)},
				ledger.Posting{Account: to.account("a"), Asset: assets[0],
					Amount: ledger.NewAmount(1)})
		}
	}
	return describe(&transaction), w.sign([]*client{payer}, func(*client) bool { return true },
		transaction)
}

func (p *plan) lossesInWords() (text string) {
	for _, each := range p.losses {
		text += fmt.Sprintf(", shard %d lost at turn %d (gone: %v) and settled with at turn %d",
			each.shard, each.at, each.gone, each.settled)
	}
	return text
}

// settlement makes the operators' bundle that settles with a shard.
func (w *workload) settlement(number uint64, shard ledger.ShardID) *ledger.Bundle {
	return w.sign([]*client{{name: ledger.Operator, key: operatorKey()}}, never,
		ledger.Transaction{Ledger: w.book, Signer: ledger.Operator,
			Book: &ledger.BookChange{Number: number, Loss: &ledger.ShardLoss{Shard: shard}}})
}

// lose takes the power of shards for good, and submits the settlements with them, each after those
// before it.
func (w *world) lose() {
	root := w.groups[w.plan.tree.Root()]
	for i := range w.plan.losses {
		l := &w.plan.losses[i]
		if l.at == w.turn && l.gone && int(l.shard) < len(w.groups) {
			w.say("shard %d is gone for good", l.shard)
			for _, m := range w.groups[l.shard].members {
				m.crash()
				m.returns = math.MaxInt64
			}
		}
		if w.plan.mixed {
			continue
		}
		if w.turn >= l.settled && (w.turn-l.settled)%againAfter == 0 && !w.placed(l.bundle) &&
			len(root.last().lost) == i && ledger.TakesBookChanges(root.version()) {
			w.say("the operators settle with shard %d", l.shard)
			w.admit(root.shard, w.random.IntN(MembersMax), l.bundle)
		}
	}
}

// unheard reports whether a message of a shard that gets lost does not arrive.
func (w *world) unheard(l *letter) bool {
	return slices.ContainsFunc(w.plan.losses, func(each lossOf) bool {
		return each.shard == l.from.shard && each.deaf[l.to.shard] &&
			w.turn >= each.unheardFrom && w.turn < each.heardAgain
	})
}

// isGone reports whether a shard is gone for good.
func (w *world) isGone(shard ledger.ShardID) bool {
	return slices.ContainsFunc(w.plan.losses, func(l lossOf) bool {
		return l.shard == shard && l.gone && w.turn >= l.at
	})
}

// isLost reports whether a shard gets lost in this run, now or later. What it does is not judged.
func (w *world) isLost(shard ledger.ShardID) bool {
	return slices.ContainsFunc(w.plan.losses, func(l lossOf) bool { return l.shard == shard })
}

// remaining returns the shards that do not get lost.
func (w *world) remaining() []*group {
	return slices.DeleteFunc(slices.Clone(w.groups), func(g *group) bool {
		return w.isLost(g.shard)
	})
}

// without returns shards without those that are lost at a record.
func (r *record) without(shards []ledger.ShardID) (rest []ledger.ShardID) {
	for _, each := range shards {
		if !slices.Contains(r.lost, each) {
			rest = append(rest, each)
		}
	}
	return rest
}

// settleWith records a settlement with a lost shard.
func (r *record) settleWith(g *group, entry *ledger.Entry) {
	change := entry.Transaction().Book
	if change == nil || change.Loss == nil || !entry.Result.OK() {
		return
	}
	r.lost = append(slices.Clone(r.lost), change.Loss.Shard)
	g.world.result.Losses++
}

// lostAt returns the block in which a chain settled with a shard.
func (g *group) lostAt(shard ledger.ShardID) int {
	for i, r := range g.records {
		if slices.Contains(r.lost, shard) {
			return i + 1
		}
	}
	return math.MaxInt
}

// judgeLoss judges a verdict that a chain takes: none of a shard that is lost there, and none that
// testifies about a shard that is not.
func (g *group) judgeLoss(r *record, verdict *ledger.Verdict) {
	testimony, is := verdict.Testimony()
	wrong := ""
	switch {
	case is && verdict.Shard == g.shard:
		return // in the chain of a lost shard that goes on, which nobody believes
	case slices.Contains(r.lost, verdict.Shard):
		wrong = "takes a verdict of a lost shard"
	case is && !slices.Contains(r.lost, testimony.About):
		wrong = "takes a testimony about a shard that is not lost"
	default:
		return
	}
	g.world.fail(Verdicts, fmt.Sprintf("shard %d, block %d, %s: %s of shard %d", g.shard,
		r.block.Header.Height, wrong, short(verdict.ID), verdict.Shard))
}

// addLost adds what lost shards would have of the transactions that took effect in others.
func (w *world) addLost(sums map[ledger.AssetName]ledger.Amount, cut []int) {
	counted := make(map[ledger.Hash]bool)
	for _, g := range w.remaining() {
		for id, ended := range g.outcomes {
			if !ended.applied || ended.height > cut[g.shard] || counted[id] {
				continue
			}
			counted[id] = true
			at := g.places[id]
			r := g.records[at.height-1]
			t := r.block.Unpacked[at.index].Transaction()
			for i := range t.Postings {
				if w.isLost(g.home(r, t.Postings[i].Account.Organisation())) {
					add(sums, t.Postings[i].Asset, t.Postings[i].Amount)
				}
			}
		}
	}
}

// testify answers a question about a lost shard.
func (m *member) testify(id ledger.Hash, asked ledger.Testimony) (ledger.Verdict, bool) {
	evidence, height, made := m.state.Evidence(id, asked)
	heard := slices.ContainsFunc(evidence, func(entry ledger.Hash) bool { return m.ids[entry] })
	return asked.Verdict(id, m.group.shard, heard), made && int(height) <= m.visible(false)
}

// countInherited counts the transactions that a testimony made take effect.
func (w *world) countInherited() {
	for _, g := range w.remaining() {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				verdict := r.block.Unpacked[i].Transaction().Verdict
				if verdict != nil && verdict.Result.Code == ledger.HeardAgreement {
					w.result.Inherited++
				}
			}
		}
	}
}
