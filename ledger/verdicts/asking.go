package verdicts

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Asking knows for how long transactions have been waiting for verdicts, and when they were asked
// for. It is not safe for concurrent use.
type Asking struct {
	after, every time.Duration
	waiting      map[ledger.Hash]*waiting
}

// waiting is a transaction that waits for verdicts.
type waiting struct {
	since, asked time.Duration
	seen         bool // in the present look
	asks         int  // how often it was asked for
}

// NewAsking returns an empty Asking. A transaction is overdue when it has waited for the time
// after, and again whenever the time every has passed since it was asked for.
func NewAsking(after, every time.Duration) *Asking {
	return &Asking{after: after, every: every, waiting: map[ledger.Hash]*waiting{}}
}

// Overdue takes a look at all transactions that wait, and returns those to ask for, the least
// recently asked first. If anew is set, the chain was just opened: all are overdue.
func (a *Asking) Overdue(pending []state.Pending, now time.Duration, anew bool) []*state.Pending {
	if anew {
		clear(a.waiting)
	}
	for _, w := range a.waiting {
		w.seen = false
	}
	var due []*state.Pending
	for i := range pending {
		w := a.waiting[pending[i].ID]
		if w == nil {
			w = &waiting{since: now, asked: never}
			if anew {
				w.since = never
			}
			a.waiting[pending[i].ID] = w
		}
		w.seen = true
		if now-w.since >= a.after && now-w.asked >= a.every {
			due = append(due, &pending[i])
		}
	}
	maps.DeleteFunc(a.waiting, func(_ ledger.Hash, w *waiting) bool { return !w.seen })
	slices.SortStableFunc(due, func(p, q *state.Pending) int {
		return cmp.Compare(a.waiting[p.ID].asked, a.waiting[q.ID].asked)
	})
	return due
}

// Sweep makes misplaced verdicts ones to judge again: those to propose whose transactions do not
// wait, and early ones whose transactions do.
func (x *Exchange) Sweep(a *Asking) {
	var misplaced []ledger.Verdict
	x.awaited.each(func(verdict *ledger.Verdict) {
		if a.waiting[verdict.ID] == nil {
			misplaced = append(misplaced, *verdict)
		}
	})
	for i := range misplaced {
		x.leave(x.facts.find(KeyOf(&misplaced[i])))
	}
	if x.early.count > 0 {
		for id := range a.waiting {
			misplaced = x.early.take(&x.facts, id, misplaced)
		}
	}
	slices.SortFunc(misplaced, func(v, w ledger.Verdict) int {
		return KeyOf(&v).order(KeyOf(&w))
	})
	x.received = append(x.received, misplaced...)
}

// Question is what a shard is to be asked: its verdicts on these transactions.
type Question struct {
	Shard ledger.ShardID
	IDs   []ledger.Hash
}

// Questions returns what to ask on overdue transactions, at most the given number for each shard,
// and the verdicts that were asked for in vain at least so often before. Verdicts that are
// believed, but were dropped for lack of room, are to be judged again instead.
func (x *Exchange) Questions(a *Asking, due []*state.Pending, now time.Duration, most, often int) (
	questions []Question, vain []Key) {
	ids := map[ledger.ShardID][]ledger.Hash{}
	for _, each := range due {
		waits, asked := a.waiting[each.ID], false
		for _, shard := range each.Waits {
			key := Key{each.ID, shard}
			at := x.facts.find(key)
			if len(ids[shard]) >= most || x.facts.facts[at].awaited ||
				x.config.Fault == FaultAskedOnce && waits.asks > 0 {
				continue
			}
			// The verdict was judged while the transaction's block was executed, and is not over.
			x.settled.remove(&x.facts, at)
			if result, believed := x.Believed(key); believed {
				// Without room, this one comes before others at the next look.
				if x.enqueue(ledger.Verdict{ID: each.ID, Shard: shard, Result: result}) {
					waits.asked = now
				}
				continue
			}
			waits.asked = now
			ids[shard] = append(ids[shard], each.ID)
			asked = true
			if waits.asks >= often {
				vain = append(vain, key)
			}
		}
		if asked {
			waits.asks++
		}
	}
	for shard, list := range ids {
		questions = append(questions, Question{shard, list})
	}
	slices.SortFunc(questions, func(p, q Question) int { return cmp.Compare(p.Shard, q.Shard) })
	return questions, vain
}
