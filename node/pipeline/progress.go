package pipeline

import (
	"context"
	"slices"
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
	// waits are what callers wait for, by transaction.
	waits map[ledger.Hash]*wait
}

type gate struct {
	level  report.Level
	height ledger.Height
}

// waiter collects the outcomes of the transactions that one caller waits for.
type waiter struct {
	level report.Level  // the caller waits until all have it
	more  chan struct{} // one buffered value: look again
	gated ledger.Height // the height of the gate that holds it, if any; guarded by progress.mu
	waits []wait        // one for each transaction, in the caller's order; guarded by progress.mu

	mu      sync.Mutex
	found   []report.Status // in the caller's order; those without an outcome are unknown yet
	left    int             // how many are unknown yet
	highest ledger.Height   // the last block that decides one of them
}

// wait is one caller's wait for one transaction.
type wait struct {
	waiter *waiter
	place  int   // of the transaction in the waiter
	next   *wait // another one for the same transaction, if any
}

func newProgress(heights report.Heights) *progress {
	return &progress{heights: heights, gates: map[gate]map[*waiter]struct{}{},
		waits: map[ledger.Hash]*wait{}}
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
	for _, each := range p.waits {
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
	left, highest := w.state()
	if left > 0 {
		return false
	}
	if highest == 0 || p.heights.Level(highest) >= w.level {
		return true
	}
	if w.gated != highest {
		p.release(w)
		g := gate{w.level, highest}
		if p.gates[g] == nil {
			p.gates[g] = map[*waiter]struct{}{}
		}
		p.gates[g][w] = struct{}{}
		w.gated = highest
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
// later, with the same ids.
func (p *progress) watch(ids []ledger.Hash, level report.Level) *waiter {
	w := &waiter{level: level, more: make(chan struct{}, 1), waits: make([]wait, len(ids)),
		found: make([]report.Status, len(ids)), left: len(ids)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range ids {
		w.waits[i] = wait{waiter: w, place: i, next: p.waits[id]}
		p.waits[id] = &w.waits[i]
	}
	return w
}

func (p *progress) unwatch(w *waiter, ids []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(w)
	for i, id := range ids {
		gone, before := &w.waits[i], p.waits[id]
		switch {
		case before != gone:
			for before.next != gone {
				before = before.next
			}
			before.next = gone.next
		case gone.next != nil:
			p.waits[id] = gone.next
		default:
			delete(p.waits, id)
		}
	}
}

// settle reports the outcomes of transactions to their waiters. It is cheap if there are none.
func (p *progress) settle(statuses []report.Status) {
	p.tell(len(statuses), func(i int) ledger.Hash { return statuses[i].ID },
		func(i int) report.Status { return statuses[i] })
}

// settleBlock reports the outcomes of a block's transactions to their waiters.
func (p *progress) settleBlock(block *ledger.Block) {
	p.tell(len(block.Entries), func(i int) ledger.Hash { return block.Entries[i].ID },
		func(i int) report.Status {
			return statusOf(&block.Entries[i], block.Header.Height, i, report.LevelOrdered)
		})
}

// tell tells the waiters of count transactions their outcomes. It asks only for the status of a
// transaction that a caller waits for, and wakes those waiters that have nothing left to wait for.
func (p *progress) tell(count int, id func(int) ledger.Hash, status func(int) report.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) == 0 {
		return
	}
	for i := range count {
		for each := p.waits[id(i)]; each != nil; each = each.next {
			if w := each.waiter; w.put(each.place, status(i)) && p.isDone(w) {
				w.wake()
			}
		}
	}
}

// anyone reports whether any caller waits for a transaction. A caller that comes later finds the
// outcome in the store.
func (p *progress) anyone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waits) > 0
}

// watched returns the ids that a caller waits for, of those that among passes to its function.
func (p *progress) watched(among func(watched func(ledger.Hash))) (ids []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	among(func(id ledger.Hash) {
		if p.waits[id] != nil {
			ids = append(ids, id)
		}
	})
	return ids
}

// put keeps the outcome of the transaction at a place, and reports whether all are known. Then the
// waiter may be done.
func (w *waiter) put(place int, status report.Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
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

func (w *waiter) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.found)
	w.left, w.highest = len(w.found), 0
}

// state returns how many outcomes are unknown yet, and the last block that decides a transaction.
func (w *waiter) state() (unknown int, highest ledger.Height) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left, w.highest
}

// Wait implements the API's Wait.
func (p *Pipeline) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	w := p.progress.watch(ids, level)
	defer p.progress.unwatch(w, ids)
	for {
		era := p.progress.inEra()
		for _, place := range p.config.Pool.Absent(ids) {
			status, err := p.Status(ids[place])
			if err != nil {
				return nil, err
			}
			if status.Decisive() > 0 || status.Outcome == report.OutcomeExpired {
				w.put(place, status) // by this goroutine, which need not wake
			}
		}
		var ended error
		if level > report.LevelAdmitted {
			ended = p.gather(ctx, w, era)
		}
		statuses, err := p.gathered(w, ids)
		if err != nil {
			return nil, err
		}
		if p.progress.inEra() == era {
			return statuses, ended
		}
		// Another chain replaced the one that the answers came from.
		w.forget()
	}
}

// gather waits until the waiter is done. It returns early if the era ends.
func (p *Pipeline) gather(ctx context.Context, w *waiter, era uint64) error {
	for !p.progress.done(w) && p.progress.inEra() == era {
		select {
		case <-w.more:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stopping:
			return ErrStopping
		}
	}
	return nil
}

// gathered returns the current statuses of the transactions, in the order of ids.
func (p *Pipeline) gathered(w *waiter, ids []ledger.Hash) ([]report.Status, error) {
	heights := p.progress.now()
	w.mu.Lock()
	statuses := slices.Clone(w.found)
	w.mu.Unlock()
	for i, id := range ids {
		status := &statuses[i]
		if status.Outcome == report.OutcomeUnknown {
			var err error
			if *status, err = p.Status(id); err != nil {
				return nil, err
			}
		}
		if height := status.Decisive(); height > 0 {
			status.Level = heights.Level(height)
		}
	}
	return statuses, nil
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
