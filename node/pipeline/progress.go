package pipeline

import (
	"context"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// progress holds the height of each level, and the callers that wait for more.
type progress struct {
	mu      sync.Mutex
	heights report.Heights
	changed chan struct{} // nil until a caller asks for it
	// era counts the chains that this node has held. Results from an earlier era may no longer be
	// in the chain.
	era uint64
	// gates hold the waiters that know their outcomes, until a height reaches their level.
	gates map[gate]map[*waiter]struct{}
	waits waits // what callers wait for
}

type gate struct {
	level  report.Level
	height ledger.Height
}

// waiter collects the outcomes of the transactions that one caller waits for.
type waiter struct {
	ids   []ledger.Hash // in the caller's order
	level report.Level  // the caller waits until all have it
	era   uint64        // in which it began
	more  chan struct{} // one buffered value: look again

	// Guarded by progress.mu until unwatch.
	gated   ledger.Height   // the height of the gate that holds it, if any
	waits   []wait          // for all transactions
	found   []report.Status // of each transaction; those without an outcome are unknown yet
	left    int             // how many are unknown yet
	highest ledger.Height   // the last block that decides one of them
}

func newProgress(heights report.Heights) *progress {
	return &progress{heights: heights, gates: map[gate]map[*waiter]struct{}{},
		waits: newWaits()}
}

func (p *progress) now() report.Heights {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heights
}

// get returns the heights with a channel that is closed at the next change.
func (p *progress) get() (report.Heights, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.heights, p.changed
}

// update changes the heights and wakes the callers that waited for the change.
func (p *progress) update(change func(*report.Heights)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.heights
	change(&p.heights)
	if p.heights == before {
		return
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	for g, held := range p.gates {
		if p.heights.Level(g.height) >= g.level {
			p.open(g, held)
		}
	}
}

// open wakes the waiters that a gate holds. The caller must hold the mutex.
func (p *progress) open(g gate, held map[*waiter]struct{}) {
	for w := range held {
		w.gated = 0
		w.wake()
	}
	delete(p.gates, g)
}

// renew begins an era. All waiting callers look again.
func (p *progress) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.era++
	for g, held := range p.gates {
		p.open(g, held)
	}
	for _, each := range p.waits.lists {
		for ; each != nil; each = each.next {
			each.waiter.wake()
		}
	}
}

func (p *progress) inEra() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.era
}

// done reports whether all of a waiter's transactions have an outcome and its level. If only the
// level is missing, a gate holds the waiter until that is reached.
func (p *progress) done(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isDone(w)
}

// isDone is done for a caller that holds the mutex.
func (p *progress) isDone(w *waiter) bool {
	if w.left > 0 {
		return false
	}
	if w.highest == 0 || p.heights.Level(w.highest) >= w.level {
		return true
	}
	if w.gated != w.highest {
		p.release(w)
		g := gate{w.level, w.highest}
		if p.gates[g] == nil {
			p.gates[g] = map[*waiter]struct{}{}
		}
		p.gates[g][w] = struct{}{}
		w.gated = w.highest
	}
	return false
}

// release takes a waiter out of the gate that holds it, if any. The caller must hold the mutex.
func (p *progress) release(w *waiter) {
	if w.gated == 0 {
		return
	}
	g := gate{w.level, w.gated}
	w.gated = 0
	if delete(p.gates[g], w); len(p.gates[g]) == 0 {
		delete(p.gates, g)
	}
}

// watch registers a caller that waits until transactions have a level. The caller must call unwatch
// later, and keep the ids as they are until then.
func (p *progress) watch(ids []ledger.Hash, level report.Level) *waiter {
	w := &waiter{ids: ids, level: level, more: make(chan struct{}, 1),
		found: make([]report.Status, len(ids)), left: len(ids)}
	w.waits = runsOf(w)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.era = p.era
	for i := range w.waits {
		p.waits.add(&w.waits[i])
	}
	return w
}

// unwatch ends what watch began. From then on the waiter is the caller's.
func (p *progress) unwatch(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(w)
	for i := range w.waits {
		p.waits.remove(&w.waits[i])
	}
}

// settle reports the outcomes of transactions to their waiters. It is cheap if there are none.
func (p *progress) settle(statuses []report.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range statuses {
		p.tell(&statuses[i].ID, 1, func(int) report.Status { return statuses[i] })
	}
}

// settleBlock reports the outcomes of a block's transactions to their waiters.
func (p *progress) settleBlock(block *ledger.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for head := range block.Heads() {
		p.tell(&head.ID, max(1, head.Transfers), func(offset int) report.Status {
			at := head.Index + offset
			entry := block.Entry(at)
			return statusOf(&entry, block.Header.Height, at, report.LevelOrdered)
		})
	}
}

// tell tells the waiters of a transaction its outcome, or those of a packed bundle's first
// transfers the outcomes of so many, and wakes those that have nothing left to wait for. It asks
// for a status, by the offset from the first, only if a caller waits for it. The caller must hold
// the mutex.
func (p *progress) tell(id *ledger.Hash, count int, status func(offset int) report.Status) {
	for each := *p.waits.list(id); each != nil; each = each.next {
		var offset, skipped int // of the first transaction of the wait; how many come before id
		if count == 1 {
			at, holds := each.holds(id)
			if !holds {
				continue
			}
			skipped = at
		} else {
			first, place := ledger.PackedPlace(*each.id())
			if first != *id || place >= count {
				continue
			}
			offset = place
		}
		w, all := each.waiter, false
		for i := 0; i < min(each.count-skipped, count-offset); i++ {
			all = w.put(each.place+skipped+i, status(offset+i))
		}
		if all && p.isDone(w) {
			w.wake()
		}
	}
}

// find tells a waiter an outcome that its own goroutine found, which need not wake.
func (p *progress) find(w *waiter, place int, status report.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.put(place, status)
}

// anyone reports whether any caller waits for a transaction. A caller that comes later finds the
// outcome in the store.
func (p *progress) anyone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits.count > 0
}

// watched returns the ids that a caller waits for, of those that among passes to its function.
func (p *progress) watched(among func(watched func(ledger.Hash))) (ids []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	among(func(id ledger.Hash) {
		if p.waits.anyOf(&id) {
			ids = append(ids, id)
		}
	})
	return ids
}

// put keeps the outcome of the transaction at a place, and reports whether all are known. Then the
// waiter may be done. The caller must hold the mutex.
func (w *waiter) put(place int, status report.Status) bool {
	if w.found[place].Outcome == report.OutcomeUnknown {
		w.left--
	}
	w.found[place] = status
	w.highest = max(w.highest, status.Decisive())
	return w.left == 0
}

func (w *waiter) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Wait implements the API's Wait.
func (p *Pipeline) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	for {
		w := p.progress.watch(ids, level)
		ended, err := p.gather(ctx, w)
		if err == nil {
			err = p.complete(w)
		}
		if err != nil {
			return nil, err
		}
		if p.progress.inEra() == w.era {
			return w.found, ended
		}
		// Another chain replaced the one that the answers came from.
	}
}

// gather looks for outcomes in the chain and waits until the waiter is done, or until its era ends.
// ended says why it waited no longer. The waiter is unwatched then.
func (p *Pipeline) gather(ctx context.Context, w *waiter) (ended, err error) {
	defer p.progress.unwatch(w)
	for _, place := range p.config.Pool.Absent(w.ids) {
		status, err := p.Status(w.ids[place])
		if err != nil {
			return nil, err
		}
		if status.Decisive() > 0 || status.Outcome == report.OutcomeExpired {
			p.progress.find(w, place, status)
		}
	}
	for w.level > report.LevelAdmitted && !p.progress.done(w) && p.progress.inEra() == w.era {
		select {
		case <-w.more:
		case <-ctx.Done():
			return ctx.Err(), nil
		case <-p.stopping:
			return ErrStopping, nil
		}
	}
	return nil, nil
}

// complete brings what an unwatched waiter has found to the current statuses of all transactions.
func (p *Pipeline) complete(w *waiter) error {
	heights := p.progress.now()
	for i := range w.found {
		status := &w.found[i]
		if status.Outcome == report.OutcomeUnknown {
			var err error
			if *status, err = p.Status(w.ids[i]); err != nil {
				return err
			}
		}
		if height := status.Decisive(); height > 0 {
			status.Level = heights.Level(height)
		}
	}
	return nil
}

// Status returns the current status of a transaction.
func (p *Pipeline) Status(id ledger.Hash) (report.Status, error) {
	if p.config.Pool.Pending(id) {
		return report.Status{ID: id, Outcome: report.OutcomePending,
			Level: report.LevelAdmitted}, nil
	}
	status, err := p.inChain(id)
	if err == nil || !notFound(err) {
		return status, err
	}
	if _, expired := p.config.Pool.Expired(id); expired {
		return report.Status{ID: id, Outcome: report.OutcomeExpired}, nil
	}
	return report.Status{ID: id}, nil
}

// inChain returns the status of a transaction in a block, or the store's ErrNotFound.
func (p *Pipeline) inChain(id ledger.Hash) (report.Status, error) {
	opened := p.store()
	if opened.Genesis().Sharded() {
		return p.crossing(opened, id)
	}
	found, err := opened.Transaction(id)
	if err != nil {
		return report.Status{}, err
	}
	heights := p.progress.now()
	return statusOf(found.Entry, found.Height, found.Index, heights.Level(found.Height)), nil
}

func statusOf(entry *ledger.Entry, height ledger.Height, index int,
	level report.Level) report.Status {
	status := report.Status{ID: entry.ID, Outcome: report.OutcomeExecuted, Level: level,
		Height: height, Index: uint32(index), Result: entry.Result}
	if !entry.Result.OK() {
		status.Outcome = report.OutcomeFailed
	}
	return status
}
