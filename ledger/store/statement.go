package store

import (
	"cmp"
	"context"
	"errors"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
)

// Period is a part of a chain. The zero Period is all of it.
type Period struct {
	// First and Last are the blocks at its ends. A Last of 0 is no end.
	First, Last ledger.Height
	// From and Before are moments: of the blocks whose time is From or later, and earlier than
	// Before. A Before of 0 is no end.
	From, Before ledger.Milliseconds
}

// StatementQuery says which entries of an account's history to read.
type StatementQuery struct {
	Period
	// Cursor is 0 for the first page, and Next of the page before for the others.
	Cursor uint64
	// Limit is how many entries a page has at most.
	Limit       int
	NewestFirst bool
	// Match chooses entries; nil takes all.
	Match func(item *HistoryItem) bool
}

// StatementPage is a part of an account's history, with balances. Balances are whole: what waiting
// transactions set aside is in them, and what is incoming is not.
type StatementPage struct {
	// Items have their Balances. An empty page need not be the last.
	Items []HistoryItem
	// Opening and Closing are the balances before and after the entries that the page looked at,
	// whether they matched or not. Assets of 0 are left out.
	Opening, Closing []ledger.Balance
	// TooFar says that finding the balances takes more than half of the effort, so the page has
	// none. The balances of a page at either end of the history are never too far.
	TooFar bool
	// Next is the cursor of the next page. It is valid only if More is set.
	Next uint64
	More bool
	// Opened is the time of the block that opened the account here, or with which it arrived.
	Opened ledger.Milliseconds
}

// Statement returns a page of an account's history with the balances after each entry, from the
// oldest entry of a period on or from the newest back. A cursor stays valid while blocks are
// appended. The page ends early once the effort is over, so a query that matches little takes
// several pages. Statement returns ErrFarBack if there is not enough for one entry.
//
// Unlike a read at a place, it shows what took effect in the order in which it did so here.
func (s *Store) Statement(ctx context.Context, path ledger.AccountPath, query StatementQuery,
	effort *Effort) (StatementPage, error) {
	account, err := s.Account(path)
	if err != nil {
		return StatementPage{}, err
	}
	r := statementReader{store: s, ctx: ctx, account: &account, effort: effort}
	s.mutex.RLock()
	r.pending = s.unwritten.blocks
	closed := s.closed
	s.mutex.RUnlock()
	if closed {
		return StatementPage{}, ErrClosed
	}
	opened, _, err := s.Header(account.Opened)
	if err != nil {
		return StatementPage{}, err
	}
	first, last, err := r.within(query.Period)
	if err != nil {
		return StatementPage{}, err
	}
	page, err := StatementPage{}, error(nil)
	if query.NewestFirst {
		if query.Cursor != 0 {
			last = min(last, query.Cursor)
		}
		page, err = r.back(min(first, last), last, &query)
	} else {
		first = max(first, query.Cursor)
		page, err = r.forth(first, max(first, last), &query)
	}
	page.Opened = opened.Time
	return page, err
}

// statementReader reads a page of an account's history.
type statementReader struct {
	store   *Store
	ctx     context.Context
	account *ledger.Account
	pending []*pendingBlock
	effort  *Effort
}

// heightFrom returns the first block whose time is a moment or later.
func (s *Store) heightFrom(moment ledger.Milliseconds) (ledger.Height, error) {
	var failed error
	head := s.AppendedHeight()
	found := sort.Search(int(head)+1, func(i int) bool {
		header, _, err := s.Header(ledger.Height(i))
		failed = errors.Join(failed, err)
		return err != nil || header.Time >= moment
	})
	return ledger.Height(found), failed
}

// HeightBefore returns the last block whose time is before a moment; 0 if there is none.
func (s *Store) HeightBefore(moment ledger.Milliseconds) (ledger.Height, error) {
	height, err := s.heightFrom(moment)
	return max(height, 1) - 1, err
}

// within returns the steps of a period: those from first to before last.
func (r *statementReader) within(period Period) (first, last uint64, err error) {
	begin, end := period.First, r.store.AppendedHeight()+1
	if period.Last < end-1 && period.Last != 0 {
		end = period.Last + 1
	}
	if period.From != 0 {
		from, err := r.store.heightFrom(period.From)
		if err != nil {
			return 0, 0, err
		}
		begin = max(begin, from)
	}
	if period.Before != 0 {
		before, err := r.store.heightFrom(period.Before)
		if err != nil {
			return 0, 0, err
		}
		end = min(end, before)
	}
	if first, err = r.firstIn(begin); err == nil {
		last, err = r.firstIn(end)
	}
	return first, max(first, last), err
}

// firstIn returns the first step in a block from a height on.
func (r *statementReader) firstIn(height ledger.Height) (uint64, error) {
	switch {
	case height <= r.account.Opened:
		return 0, nil
	case height > r.store.AppendedHeight():
		return r.account.History, nil
	}
	var failed error
	found := sort.Search(int(r.account.History), func(i int) bool {
		places, err := r.store.steps(r.account, uint64(i), uint64(i)+1, r.pending)
		failed = errors.Join(failed, err)
		return err != nil || places[0].height >= height
	})
	return uint64(found), failed
}

// back reads steps from the last one back to the first one.
func (r *statementReader) back(first, last uint64, query *StatementQuery) (StatementPage, error) {
	at, far, err := r.tallyAt(last)
	if err != nil {
		return StatementPage{}, err
	}
	page := StatementPage{Closing: at.known(), TooFar: far}
	err = r.each(first, last, query.Limit, true, func(item *HistoryItem) bool {
		page.stand(item, &at)
		at.takeBack(item.Changes)
		return page.take(item, query)
	})
	page.Opening, page.Next, page.More = at.known(), at.steps, at.steps > first
	return page.whole(), r.unlessSome(err, at.steps < last)
}

// forth reads steps from the first one on to before the last one.
func (r *statementReader) forth(first, last uint64, query *StatementQuery) (StatementPage, error) {
	at, far, err := r.tallyAt(first)
	if err != nil {
		return StatementPage{}, err
	}
	page := StatementPage{Opening: at.known(), TooFar: far}
	err = r.each(first, last, query.Limit, false, func(item *HistoryItem) bool {
		at.add(item.Changes)
		page.stand(item, &at)
		return page.take(item, query)
	})
	page.Closing, page.Next, page.More = at.known(), at.steps, at.steps < last
	return page.whole(), r.unlessSome(err, at.steps > first)
}

// whole returns the page, without the sums of its changes if it has no balances.
func (p StatementPage) whole() StatementPage {
	if p.TooFar {
		p.Opening, p.Closing = nil, nil
	}
	return p
}

// unlessSome returns an error, unless it only ends a page that has looked at some entries: the next
// one goes on.
func (r *statementReader) unlessSome(err error, some bool) error {
	if some && (r.ctx.Err() != nil || r.effort.Over()) {
		return nil
	}
	return err
}

// take adds an item that matches, and reports whether there is room for more.
func (p *StatementPage) take(item *HistoryItem, query *StatementQuery) (more bool) {
	if query.Match == nil || query.Match(item) {
		p.Items = append(p.Items, *item)
	}
	return len(p.Items) < query.Limit
}

// stand sets the balances after an item, if the page has any.
func (p *StatementPage) stand(item *HistoryItem, at *tally) {
	if p.TooFar {
		return
	}
	for i := range item.Changes {
		asset := item.Changes[i].Asset
		item.Balances = append(item.Balances, ledger.Balance{Asset: asset,
			Amount: at.amount(asset)})
	}
}

// tallyAt returns what the account had after some steps. If finding that takes too much, it only
// counts the steps.
func (r *statementReader) tallyAt(steps uint64) (at tally, far bool, err error) {
	if steps == 0 && !r.store.cameWith(r.account) {
		return tally{}, false, nil // it was opened here, empty
	}
	if at, err = r.store.tallyFrom(r.account, steps); err != nil {
		return tally{}, false, err
	}
	enough, err := r.effort.half(func() error {
		err := r.each(steps, at.steps, MaxHistoryPage, true, func(item *HistoryItem) bool {
			at.takeBack(item.Changes)
			return true
		})
		return cmp.Or(err, r.effort.why())
	})
	if !enough {
		at = tally{steps: steps}
	}
	return at, !enough, err
}

// each calls visit with the items from first to before last, or from the last one back, until it
// returns false.
func (r *statementReader) each(first, last uint64, limit int, newestFirst bool,
	visit func(item *HistoryItem) (more bool)) error {
	for first < last {
		from, to := first, min(last, first+uint64(min(limit, MaxHistoryPage)))
		if newestFirst {
			from, to = max(first, last-min(last, uint64(min(limit, MaxHistoryPage)))), last
		}
		limit = MaxHistoryPage
		places, err := r.store.steps(r.account, from, to, r.pending)
		if err != nil {
			return err
		}
		for k := range places {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			ordinal := from + uint64(k)
			if newestFirst {
				ordinal = to - 1 - uint64(k)
			}
			item, err := r.item(ordinal, places[ordinal-from])
			if err != nil {
				return err
			}
			if !visit(&item) {
				return nil
			}
		}
		if newestFirst {
			last = from
		} else {
			first = to
		}
	}
	return nil
}

// item reads the item of a step.
func (r *statementReader) item(ordinal uint64, where position) (HistoryItem, error) {
	item, err := r.store.historyItem(r.account, ordinal, where)
	if err != nil {
		return HistoryItem{}, err
	}
	block, err := r.store.Block(where.height)
	if err == nil {
		err = r.effort.look(r.ctx, block)
	}
	item.Changes = changesIn(r.account.Path, item.Entry.Transaction().Postings)
	return item, err
}
