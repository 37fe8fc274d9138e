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
	seen         bool           // in the present look
	of           *state.Pending // as it was seen last
	asks         int            // how often it was asked for
}

// NewAsking returns an empty Asking. A transaction is overdue when it has waited for the time
// after, and again whenever the time every has passed since it was asked for.
func NewAsking(after, every time.Duration) *Asking {
	return &Asking{after: after, every: every, waiting: map[ledger.Hash]*waiting{}}
}

// Overdue takes a look at all transactions that wait, and returns those to ask for, the least
// recently asked first. If anew is set, the chain was just opened: all are overdue. So is a
// departure at once, and again more often.
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
			if anew || pending[i].Departure {
				w.since = never
			}
			a.waiting[pending[i].ID] = w
		}
		w.seen, w.of = true, &pending[i]
		every := a.every
		if pending[i].Departure { // nobody tells it unasked
			every = min(every, a.after/2)
		}
		if now-w.since >= a.after && now-w.asked >= every {
			due = append(due, &pending[i])
		}
	}
	maps.DeleteFunc(a.waiting, func(_ ledger.Hash, w *waiting) bool { return !w.seen })
	slices.SortStableFunc(due, func(p, q *state.Pending) int {
		return cmp.Compare(a.waiting[p.ID].asked, a.waiting[q.ID].asked)
	})
	return due
}

// Sweep makes misplaced verdicts ones to judge again: those to propose for which no transaction
// waits, such as those of a shard that is lost, early ones whose transactions wait, and early
// departures if some departure is waited for. So with groups.
func (x *Exchange) Sweep(a *Asking) {
	var misplaced []ledger.Verdict
	x.awaited.each(func(verdict *ledger.Verdict) {
		w := a.waiting[verdict.ID]
		if w == nil || !w.of.Wants(verdict.Shard, verdict.Subject()) {
			misplaced = append(misplaced, *verdict)
		}
	})
	for i := range misplaced {
		x.leave(x.facts.find(KeyOf(&misplaced[i])))
	}
	if x.early.count > 0 {
		departs := false
		for id, w := range a.waiting {
			misplaced = x.early.take(&x.facts, id, misplaced)
			departs = departs || w.of.Departure
		}
		if departs && x.config.Fault != FaultEarlyDeparture {
			misplaced = x.early.takeDepartures(&x.facts, misplaced)
		}
	}
	slices.SortFunc(misplaced, func(v, w ledger.Verdict) int {
		return KeyOf(&v).order(KeyOf(&w))
	})
	x.received = append(x.received, misplaced...)
	x.sweepGroups(a)
}

// Question is what a shard is to be asked: its verdicts on these transactions, or its testimonies
// with this subject.
type Question struct {
	Shard   ledger.ShardID
	Subject ledger.Subject
	IDs     []ledger.Hash
}

// asked is whom to ask, and for what.
type asked struct {
	shard   ledger.ShardID
	subject ledger.Subject
}

// missing returns what a transaction waits for.
func missing(pending *state.Pending) (all []asked) {
	for _, shard := range pending.Waits {
		all = append(all, asked{shard, 0})
	}
	for i := range pending.Inquiries {
		for _, shard := range pending.Inquiries[i].Of {
			all = append(all, asked{shard, pending.Inquiries[i].Testimony.Subject()})
		}
	}
	return all
}

// Questions returns what to ask on overdue transactions, at most the given number for each shard,
// and the verdicts that were asked for in vain at least so often before. Verdicts that are
// believed, but were dropped for lack of room, are to be judged again instead. Those that a group
// has that is believed and not early are not asked for.
func (x *Exchange) Questions(a *Asking, due []*state.Pending, now time.Duration, most, often int) (
	questions []Question, vain []Key) {
	ids, count := map[asked][]ledger.Hash{}, map[ledger.ShardID]int{}
	var grouped map[Key]bool
	if len(due) > 0 {
		grouped = x.groups.asking()
	}
	for _, each := range due {
		waits, any := a.waiting[each.ID], false
		for _, from := range missing(each) {
			key := Key{each.ID, from.shard, from.subject}
			x.testifyAlone(key)
			at := x.facts.find(key)
			if count[from.shard] >= most || x.facts.facts[at].awaited ||
				grouped[key] || x.config.Fault == FaultAskedOnce && waits.asks > 0 {
				continue
			}
			// The verdict was judged while the transaction's block was executed, and is not over.
			x.settled.remove(&x.facts, at)
			if result, believed := x.Believed(key); believed {
				// Without room, this one comes before others at the next look.
				if x.enqueue(ledger.Verdict{ID: each.ID, Shard: from.shard, Result: result}) {
					waits.asked = now
				}
				continue
			}
			waits.asked = now
			ids[from] = append(ids[from], each.ID)
			count[from.shard]++
			any = true
			if waits.asks >= often && from.subject == 0 {
				vain = append(vain, key)
			}
		}
		if any {
			waits.asks++
		}
	}
	for from, list := range ids {
		questions = append(questions, Question{from.shard, from.subject, list})
	}
	slices.SortFunc(questions, func(p, q Question) int {
		return cmp.Or(cmp.Compare(p.Shard, q.Shard), cmp.Compare(p.Subject, q.Subject))
	})
	return questions, vain
}

// testifyAlone believes the testimony of the own shard, if that is what a transaction waits for. It
// does if no other shard is left to ask: then this shard heard nothing, or it would not wait.
func (x *Exchange) testifyAlone(key Key) {
	testimony, is := key.Subject.Testimony()
	if !is || key.Shard != x.config.Own {
		return
	}
	if _, believed := x.Believed(key); !believed {
		verdict := testimony.Verdict(key.ID, key.Shard, false)
		x.Believe(&verdict)
	}
}
