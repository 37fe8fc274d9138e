package book

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// In some books the operators make changes of all kinds: they add shards, hang them elsewhere, move
// organisations and settle with lost shards. They number each change after those that the root's
// chain has durably, and make it again with another number if another one was earlier.

// change is a change of the book that the operators make from a turn on, with the number that is
// next. It waits until the book has some shards, and until the changes before it are made that it
// follows.
type change struct {
	at     Turn
	what   string
	change ledger.BookChange
	shards int
	// follows says that all earlier changes of this kind have to be made before.
	follows bool
	bundle  *ledger.Bundle
	tried   Turn
	done    bool
}

// mix draws the changes of a book in which they are of all kinds. Shards get lost, and many
// organisations move to them or away from them at about that time.
func (p *plan) mix(random *rand.Rand) {
	parents := slices.Clone(p.genesis[0].Tree)
	for i := range p.additions {
		addition, at := &p.additions[i], slices.Max(p.addedAt[:i+1])
		parents = append(parents, addition.Parent)
		p.changes = append(p.changes, change{at: at, follows: true,
			what:   fmt.Sprintf("adds shard %d below shard %d", len(parents)-1, addition.Parent),
			change: ledger.BookChange{Addition: addition}})
	}
	any := func() ledger.ShardID { return ledger.ShardID(random.IntN(p.shards())) }
	if p.losing {
		p.mixLosses(random, parents)
	}
	for range 1 + random.IntN(4) {
		p.mixMove(random, Turn(50+random.IntN(140)), p.someClient(random), any())
	}
	for i := range p.losses {
		lost := &p.losses[i]
		near := func() Turn { return max(40, lost.at-30+Turn(random.IntN(60))) }
		for range random.IntN(3) {
			c, at := p.someClient(random), near()
			p.mixMove(random, at, c, lost.shard)
			for range random.IntN(3) {
				p.mixMove(random, at+Turn(random.IntN(40)), c, any())
			}
		}
	}
	p.mixRehangs(random, parents)
	for tries := random.IntN(20); tries > 0 && !p.mixDetour(random, parents); {
		tries--
	}
	slices.SortStableFunc(p.changes, func(a, b change) int { return int(a.at - b.at) })
	for _, each := range p.changes {
		p.calm = max(p.calm, each.at+40)
	}
}

func (p *plan) someClient(random *rand.Rand) *client {
	return p.workload.clients[random.IntN(len(p.workload.clients))]
}

// mixLosses draws shards that get lost, each after all shards below it.
func (p *plan) mixLosses(random *rand.Rand, parents []ledger.ShardID) {
	tree := p.tree
	for _, parent := range parents[len(p.genesis):] {
		tree = tree.Grow(parent)
	}
	at := Turn(70 + random.IntN(90))
	for range 1 + random.IntN(3) {
		shard := ledger.ShardID(random.IntN(len(parents)))
		lost := func(shard ledger.ShardID) bool {
			return slices.ContainsFunc(p.losses, func(l lossOf) bool { return l.shard == shard })
		}
		if !state.CanLose(tree, lost, shard) || lost(shard) {
			continue
		}
		one := lossOf{shard: shard, gone: random.IntN(3) > 0, at: at,
			settled:     at + Turn(random.IntN(40)),
			unheardFrom: at - Turn(random.IntN(40)),
			deaf:        make([]bool, len(parents))}
		one.heardAgain = one.settled + Turn(random.IntN(60))
		for i := range one.deaf {
			one.deaf[i] = random.IntN(2) == 0
		}
		p.losses = append(p.losses, one)
		p.changes = append(p.changes, change{at: one.settled, shards: int(shard) + 1, follows: true,
			what:   fmt.Sprintf("settles with shard %d", shard),
			change: ledger.BookChange{Loss: &ledger.ShardLoss{Shard: shard}}})
		p.payAround(random, &one)
		at = one.settled + Turn(random.IntN(30))
	}
}

// mixRehangs draws changes of the tree. No shard is hung below one that gets lost, which could then
// not be settled with, or away from one: the operators must not settle with a parent before the
// shard has all from it (docs/design/tree.md).
func (p *plan) mixRehangs(random *rand.Rand, parents []ledger.ShardID) {
	lost := func(shard ledger.ShardID) bool {
		return slices.ContainsFunc(p.losses, func(l lossOf) bool { return l.shard == shard })
	}
	for range random.IntN(4) {
		shard, parent := ledger.ShardID(random.IntN(len(parents))),
			ledger.ShardID(random.IntN(len(parents)))
		at := Turn(50 + random.IntN(140))
		if lost(parent) || lost(parents[shard]) {
			continue
		}
		p.changes = append(p.changes, change{at: at, shards: int(max(shard, parent)) + 1,
			what:   fmt.Sprintf("hangs shard %d below shard %d", shard, parent),
			change: ledger.BookChange{Rehang: &ledger.ShardRehang{Shard: shard, Parent: parent}}})
	}
}

// mixMove adds a move, and bundles that concern the organisation and come again after it.
func (p *plan) mixMove(random *rand.Rand, at Turn, c *client, to ledger.ShardID) {
	p.changes = append(p.changes, change{at: at, shards: int(to) + 1,
		what: fmt.Sprintf("moves %s to shard %d", c.name, to),
		change: ledger.BookChange{Move: &ledger.OrganisationMove{Organisation: c.name,
			To: to}}})
	if random.IntN(2) == 0 {
		p.repeat(c, at)
	}
}

// mixDetour lets two organisations come to a shard between two others, where a payment between them
// fails. Then one goes elsewhere and one to a shard below, and the payment comes again. The shard
// between has it from before and does not hand it on. Not every draw makes sense.
func (p *plan) mixDetour(random *rand.Rand, parents []ledger.ShardID) (drawn bool) {
	below, beside := ledger.ShardID(random.IntN(len(parents))),
		ledger.ShardID(random.IntN(len(parents)))
	between := parents[below]
	from, to := p.someClient(random), p.someClient(random)
	if from == to || between == p.tree.Root() || parents[beside] == between ||
		beside == between || slices.ContainsFunc(p.losses, func(l lossOf) bool {
		return l.shard == below || l.shard == between || l.shard == beside
	}) {
		return false
	}
	at := Turn(50 + random.IntN(60))
	move := func(c *client, to ledger.ShardID) {
		p.changes = append(p.changes, change{at: at, shards: int(to) + 1,
			what: fmt.Sprintf("moves %s to shard %d", c.name, to),
			change: ledger.BookChange{Move: &ledger.OrganisationMove{Organisation: c.name,
				To: to}}})
	}
	what, payment := p.workload.payAbsent(from, to, at+400)
	submit := func() {
		p.submissions = append(p.submissions, submission{number: len(p.submissions) + 1, at: at,
			what: what, bundle: payment, member: random.IntN(MembersMax)})
	}
	move(from, between)
	move(to, between)
	at += 60
	submit()
	at += 20
	move(from, beside)
	move(to, below)
	at += 80
	submit()
	p.calm = max(p.calm, at+20)
	return true
}

// payAbsent makes a payment to an account that is never open.
func (w *workload) payAbsent(from, to *client, until Turn) (what string, bundle *ledger.Bundle) {
	transaction := w.next(from)
	transaction.Deadline = w.began + turnLength*ledger.Milliseconds(until)
	transaction.Postings = []ledger.Posting{
		{Account: from.account("issuer"), Asset: assets[0], Amount: ledger.NewAmount(-1)},
		{Account: to.account("absent"), Asset: assets[0], Amount: ledger.NewAmount(1)}}
	return describe(&transaction), w.sign([]*client{from}, func(*client) bool { return true },
		transaction)
}

func (p *plan) changesInWords() (text string) {
	for i := range p.changes {
		text += fmt.Sprintf(", at turn %d the operator %s", p.changes[i].at, p.changes[i].what)
	}
	return text
}

// changed makes the operators' bundle that changes the book.
func (w *workload) changed(change ledger.BookChange) *ledger.Bundle {
	return w.sign([]*client{{name: ledger.Operator, key: operatorKey()}}, never,
		ledger.Transaction{Ledger: w.book, Signer: ledger.Operator, Book: &change})
}

// operate lets the operators make the changes of a book in which they are of all kinds.
func (w *world) operate() {
	root := w.groups[w.plan.tree.Root()]
	for i := range w.plan.changes {
		c := &w.plan.changes[i]
		if c.done || w.turn < c.at || w.learn(root, c) {
			continue
		}
		switch {
		case c.bundle == nil:
			if root.shards() < c.shards || c.follows && w.isEarly(i) {
				continue
			}
			c.change.Number = root.changes() + 1
			c.bundle, c.tried = w.plan.workload.changed(c.change), w.turn
			w.say("the operator %s, change %d", c.what, c.change.Number)
		case (w.turn-c.tried)%againAfter != 0:
			continue
		}
		w.admit(root.shard, w.random.IntN(MembersMax), c.bundle)
	}
}

// learn learns what became of a change. It reports whether that is made, or in a block that may
// still be lost.
func (w *world) learn(root *group, c *change) bool {
	if c.bundle == nil {
		return false
	}
	at, placed := root.places[c.bundle.ID(0)]
	if !placed || at.height > root.durable {
		return placed
	}
	entry := root.records[at.height-1].block.Entry(at.index)
	switch entry.Result.Code {
	case ledger.BookOutdated, ledger.UnknownShard: // the block that added it may have been lost
		c.bundle = nil
		return false
	}
	if c.change.Move == nil && c.change.Rehang == nil && !entry.Result.OK() {
		w.fail(Progress, fmt.Sprintf("the operator %s: %v", c.what, entry.Result.Code))
	}
	c.done = true
	return true
}

// isEarly reports whether an earlier change of the same kind is not made.
func (w *world) isEarly(number int) bool {
	of := &w.plan.changes[number].change
	return slices.ContainsFunc(w.plan.changes[:number], func(c change) bool {
		return !c.done && (c.change.Loss != nil) == (of.Loss != nil) &&
			(c.change.Addition != nil) == (of.Addition != nil)
	})
}

// changes returns how many changes of the book the chain has durably.
func (g *group) changes() (number uint64) {
	for _, r := range g.records[:min(g.durable, g.head())] {
		for i := range r.block.Unpacked {
			if t := r.block.Unpacked[i].Transaction(); t.Book != nil &&
				r.block.Unpacked[i].Result.OK() {
				number = max(number, t.Book.Number)
			}
		}
	}
	return number
}
