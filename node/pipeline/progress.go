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
	// gates are closed when a height reaches a level.
	gates map[gate]chan struct{}
	// waiters are the callers that wait for single transactions.
	waiters map[ledger.Hash][]*waiter
}

type gate struct {
	level  report.Level
	height ledger.Height
}

// waiter collects the outcomes of the transactions that one caller waits for.
type waiter struct {
	mu    sync.Mutex
	found map[ledger.Hash]report.Status // those without an outcome are unknown yet
	left  int                           // how many are unknown yet
	more  chan struct{}                 // one buffered value: left fell
}

func newProgress(heights report.Heights) *progress {
	return &progress{heights: heights, gates: map[gate]chan struct{}{},
		waiters: map[ledger.Hash][]*waiter{}}
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
	for g, open := range p.gates {
		if p.heights.Level(g.height) >= g.level {
			close(open)
			delete(p.gates, g)
		}
	}
}

// renew begins an era. All waiting callers look again.
func (p *progress) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.era++
	for g, open := range p.gates {
		close(open)
		delete(p.gates, g)
	}
	for _, watching := range p.waiters {
		for _, w := range watching {
			w.wake()
		}
	}
}

func (p *progress) inEra() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.era
}

// reached returns a channel that is closed once the height has the level, or when the era ends.
// current reports whether the given era still lasts.
func (p *progress) reached(level report.Level, height ledger.Height,
	era uint64) (reached <-chan struct{}, current bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.era != era {
		return nil, false
	}
	g := gate{level, height}
	open := p.gates[g]
	if open == nil {
		open = make(chan struct{})
		if p.heights.Level(height) >= level {
			close(open)
			return open, true
		}
		p.gates[g] = open
	}
	return open, true
}

// watch registers a caller for transactions. The caller must call unwatch later.
func (p *progress) watch(ids []ledger.Hash) *waiter {
	w := &waiter{found: make(map[ledger.Hash]report.Status, len(ids)), more: make(chan struct{}, 1)}
	for _, id := range ids {
		w.found[id] = report.Status{}
	}
	w.left = len(w.found)
	p.mu.Lock()
	defer p.mu.Unlock()
	slab := make([]*waiter, len(ids)) // most transactions have one waiter
	for i, id := range ids {
		watching := p.waiters[id]
		if watching == nil {
			watching = slab[i : i : i+1]
		}
		p.waiters[id] = append(watching, w)
	}
	return w
}

func (p *progress) unwatch(w *waiter, ids []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		kept := p.waiters[id][:0]
		for _, other := range p.waiters[id] {
			if other != w {
				kept = append(kept, other)
			}
		}
		if len(kept) == 0 {
			delete(p.waiters, id)
		} else {
			p.waiters[id] = kept
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
// transaction that a caller waits for, and wakes the waiter of several adjacent ones once.
func (p *progress) tell(count int, id func(int) ledger.Hash, status func(int) report.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiters) == 0 {
		return
	}
	var told *waiter // and not awake yet
	for i := range count {
		for _, w := range p.waiters[id(i)] {
			if told != nil && told != w {
				told.wake()
			}
			w.put(status(i))
			told = w
		}
	}
	if told != nil {
		told.wake()
	}
}

// anyone reports whether any caller waits for a transaction. A caller that comes later finds the
// outcome in the store.
func (p *progress) anyone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters) > 0
}

// watched returns the ids that a caller waits for, of those that among passes to its function.
func (p *progress) watched(among func(watched func(ledger.Hash))) (ids []ledger.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	among(func(id ledger.Hash) {
		if len(p.waiters[id]) > 0 {
			ids = append(ids, id)
		}
	})
	return ids
}

// put keeps an outcome. The caller must wake the waiter afterwards.
func (w *waiter) put(status report.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found[status.ID].Outcome == report.OutcomeUnknown {
		w.left--
	}
	w.found[status.ID] = status
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
	for id := range w.found {
		w.found[id] = report.Status{}
	}
	w.left = len(w.found)
}

// unknown returns how many outcomes are unknown yet.
func (w *waiter) unknown() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left
}

// Wait implements the API's Wait.
func (p *Pipeline) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	w := p.progress.watch(ids)
	defer p.progress.unwatch(w, ids)
	for {
		era := p.progress.inEra()
		for _, id := range ids {
			status, err := p.Status(id)
			if err != nil {
				return nil, err
			}
			if status.Decisive() > 0 || status.Outcome == report.OutcomeExpired {
				w.put(status) // by this goroutine, which need not wake
			}
		}
		var ended error
		if level > report.LevelAdmitted {
			ended = p.gather(ctx, w, level, era)
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

// gather waits until all of the waiter's transactions have an outcome, and the level. It returns
// early if the era ends.
func (p *Pipeline) gather(ctx context.Context, w *waiter, level report.Level, era uint64) error {
	for w.unknown() > 0 && p.progress.inEra() == era {
		select {
		case <-w.more:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stopping:
			return ErrStopping
		}
	}
	w.mu.Lock()
	var highest ledger.Height
	for _, status := range w.found {
		highest = max(highest, status.Decisive())
	}
	w.mu.Unlock()
	if highest == 0 {
		return nil
	}
	reached, current := p.progress.reached(level, highest, era)
	if !current {
		return nil
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stopping:
		return ErrStopping
	}
}

// gathered returns the current statuses of the transactions, in the order of ids.
func (p *Pipeline) gathered(w *waiter, ids []ledger.Hash) ([]report.Status, error) {
	heights := p.progress.now()
	statuses := make([]report.Status, len(ids))
	w.mu.Lock()
	for i, id := range ids {
		statuses[i] = w.found[id]
	}
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
