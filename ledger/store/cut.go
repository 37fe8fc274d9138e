package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrFarBack reports that reading at a place takes more effort than allowed, because too much
// happened since.
var ErrFarBack = errors.New("store: too much happened since the place")

// blockEffort is what a block counts for in an effort, above its entries.
const blockEffort = 16

// Effort bounds the work of reads at places, which may share it one after the other. Nil is without
// a bound.
type Effort struct {
	// Most is how much work the reads may do in all: for each step that they take back 1, and for
	// each block that they look into 16 and its entries. Then they return ErrFarBack.
	Most int
	// Far, unless it is nil, is called once they have done more than Near, before they go on. It
	// may wait. Its error ends this read and the next ones.
	Near int
	Far  func(ctx context.Context) error

	done, last int // last is the height of the last block
	far        bool
	ended      error
}

// look counts a look into a block, for a step.
func (e *Effort) look(ctx context.Context, block *ledger.Block) error {
	if e == nil || e.ended != nil {
		return e.why()
	}
	e.done++
	if height := int(block.Header.Height); height != e.last {
		e.done, e.last = e.done+blockEffort+block.Len(), height
	}
	if e.done > e.Most {
		e.ended = ErrFarBack
	} else if e.done > e.Near && !e.far && e.Far != nil {
		e.far = true
		e.ended = e.Far(ctx)
	}
	return e.ended
}

// half does a read that may take half of what is left. If that is not enough, it reports so in
// place of ErrFarBack, and the rest is left to other reads.
func (e *Effort) half(read func() error) (enough bool, err error) {
	if e == nil {
		return true, read()
	}
	most := e.Most
	e.Most = e.done + (most-e.done)/2
	err = read()
	e.Most = most
	if errors.Is(err, ErrFarBack) {
		e.ended = nil
		return false, nil
	}
	return true, err
}

// why returns the error that ended the reads, or nil.
func (e *Effort) why() error {
	if e == nil {
		return nil
	}
	return e.ended
}

// Over reports whether a read ended because of the effort.
func (e *Effort) Over() bool { return e.why() != nil }

// AccountAt returns an account as of a place: its balances are those that it has once every
// transaction before the place is decided, and no later one took effect. So a transaction that
// waited for other shards there counts if it took effect since. AccountAt returns ErrNotYet while
// one still waits, and ErrNotFound if the account was not open at the place. It takes the longer
// the more often the account changed since, and returns ErrFarBack once that is more than effort.
func (s *Store) AccountAt(ctx context.Context, path ledger.AccountPath, place Place,
	effort *Effort) (ledger.Account, error) {
	if err := s.decided(place); err != nil {
		return ledger.Account{}, err
	}
	account, err := s.Account(path)
	if err != nil {
		return ledger.Account{}, err
	}
	open, err := s.rewind(ctx, &account, place, effort)
	if err == nil && !open {
		err = errNoAccount(path)
	}
	return account, err
}

// AccountsAt returns at most limit accounts after the given path, ordered by path, as of a place
// (see AccountAt). more reports whether there may be accounts after the last path that it looked
// at, which it returns as well. If ctx or the effort ends meanwhile, it returns what it has, or the
// error if it has looked at no account.
func (s *Store) AccountsAt(ctx context.Context, place Place, after ledger.AccountPath, limit int,
	effort *Effort) (page []ledger.Account, last ledger.AccountPath, more bool, err error) {
	if err := s.decided(place); err != nil {
		return nil, "", false, err
	}
	accounts, err := s.Accounts(after, limit)
	if err != nil || len(accounts) == 0 {
		return nil, after, false, err
	}
	for i := range accounts {
		open, err := s.rewind(ctx, &accounts[i], place, effort)
		if err != nil && (ctx.Err() != nil || effort.Over()) && i > 0 {
			return page, accounts[i-1].Path, true, nil
		}
		if err != nil {
			return nil, "", false, err
		}
		if open {
			page = append(page, accounts[i])
		}
	}
	return page, accounts[len(accounts)-1].Path, len(accounts) == limit, nil
}

// decided returns ErrNotYet if a transaction before a place still waits for other shards, an
// organisation that moved here before has not arrived, or the chain does not reach the place.
func (s *Store) decided(place Place) error {
	if err := s.CheckPlace(place); err != nil {
		return err
	}
	s.mutex.RLock()
	oldest, waits := s.state.OldestPending()
	coming, _ := s.state.Coming()
	s.mutex.RUnlock()
	for i := range coming {
		if place.Has(coming[i].Height, coming[i].Index) {
			return fmt.Errorf("%w: organisation %s is on its way here", ErrNotYet,
				coming[i].Organisation)
		}
	}
	if waits && place.Has(oldest.Height, oldest.Index) {
		return fmt.Errorf("%w: transaction %s waits for shards %v", ErrNotYet, oldest.ID,
			oldest.WaitsFor(s.genesis.Shard))
	}
	return nil
}

// rewind takes back what happened to an account after a place, and reports whether it was open
// there. Nothing before the place may wait for other shards.
func (s *Store) rewind(ctx context.Context, account *ledger.Account, place Place,
	effort *Effort) (open bool, err error) {
	if open, err = s.openAt(account, place); !open || err != nil {
		return false, err
	}
	// An asset with 0 at the place may have come later. A step before tells.
	doubtful := make(map[ledger.AssetName]bool)
	for i := range account.Balances {
		balance := &account.Balances[i]
		if balance.SetAside.Sign() != 0 || balance.Incoming.Sign() != 0 {
			doubtful[balance.Asset] = true
		}
		*balance = ledger.Balance{Asset: balance.Asset, Amount: balance.Settled()}
	}
	if s.AppendedHeight() <= place.Height {
		return true, nil // no step is after the place
	}
	unindexed := s.Unindexed()
	err = s.eachStep(ctx, account, func(where position) (more bool, err error) {
		before := place.Has(where.height, where.index) // and so are all steps before it
		if before && !hasDoubt(account, doubtful) {
			return false, nil
		}
		found, crossed, err := s.stepAt(ctx, where, effort)
		if err != nil {
			return false, err
		}
		moved := movedIn(account.Path, found.Entry.Transaction().Postings, crossed)
		if place.Has(found.Height, uint32(found.Index)) {
			// It counts, even if the verdict that let it take effect is after the place.
			for i := range moved {
				delete(doubtful, moved[i].Asset)
			}
			return true, nil
		}
		for i := range moved {
			doubtful[moved[i].Asset] = true
			if err := takeBack(account, &moved[i]); err != nil {
				return false, damaged(where.height, "transaction %d: %v", where.index, err)
			}
		}
		return true, nil
	})
	// In a store that began with a snapshot, the steps up to there may not be found. If the place
	// is later, most often they need not be. But a step that is found may be the end of a wait that
	// began before the snapshot. If the block with its transaction is absent, it has to be fetched.
	block := (*AbsentError)(nil)
	if errors.Is(err, ErrAbsent) && !errors.As(err, &block) && unindexed > 0 &&
		unindexed <= place.Height && !hasDoubt(account, doubtful) {
		err = nil
	}
	account.Balances = slices.DeleteFunc(account.Balances, func(balance ledger.Balance) bool {
		return balance.Amount.Sign() == 0 && doubtful[balance.Asset]
	})
	return true, err
}

// hasDoubt reports whether an account has 0 of an asset of which it is in doubt whether the account
// had it.
func hasDoubt(account *ledger.Account, doubtful map[ledger.AssetName]bool) bool {
	return slices.ContainsFunc(account.Balances, func(balance ledger.Balance) bool {
		return balance.Amount.Sign() == 0 && doubtful[balance.Asset]
	})
}

// eachStep calls visit with the steps of an account's history, from the newest on, as long as it
// returns true.
func (s *Store) eachStep(ctx context.Context, account *ledger.Account,
	visit func(where position) (more bool, err error)) error {
	// Each step that the account counts is in a block of these, or in the database later.
	s.mutex.RLock()
	pending := s.unwritten.blocks
	s.mutex.RUnlock()
	growth := uint64(16)
	count := uint64(1)
	for last := account.History; last > 0; count = min(count*growth, MaxHistoryPage) {
		first := last - min(last, count)
		places, err := s.steps(account, first, last, pending)
		if errors.Is(err, ErrAbsent) && count > 1 {
			count, growth = 1, 1 // some of these may be there: look one by one
			continue
		}
		if err != nil {
			return err
		}
		for ; last > first; last-- {
			if err := ctx.Err(); err != nil {
				return err
			}
			if more, err := visit(places[last-1-first]); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// stepAt returns the transaction of a step: the one that is there, or the one that the verdict
// there let take effect. Then it crossed shards.
func (s *Store) stepAt(ctx context.Context, where position, effort *Effort) (found Found,
	crossed bool, err error) {
	if found, err = s.at(where); err == nil {
		err = effort.look(ctx, found.Block)
	}
	if err != nil {
		return Found{}, false, err
	}
	verdict := found.Entry.Transaction().Verdict
	if verdict == nil {
		return found, false, nil
	}
	if found, err = s.Transaction(verdict.ID); err == nil {
		err = effort.look(ctx, found.Block)
	}
	return found, true, err
}

// movedIn returns what a transaction moved in an account. A transaction of the shard alone moves
// each posting by itself. Of one that crossed, only the sum for each asset counts, if it is not 0.
func movedIn(path ledger.AccountPath, postings []ledger.Posting,
	crossed bool) (moved []ledger.Posting) {
	for i := range postings {
		posting := &postings[i]
		if posting.Account != path {
			continue
		}
		at := -1
		if crossed {
			at = slices.IndexFunc(moved, func(other ledger.Posting) bool {
				return other.Asset == posting.Asset
			})
		}
		if at < 0 {
			moved = append(moved, *posting)
		} else {
			moved[at].Amount = moved[at].Amount.Minus(ledger.Amount{}.Minus(posting.Amount))
		}
	}
	if crossed {
		moved = slices.DeleteFunc(moved, func(posting ledger.Posting) bool {
			return posting.Amount.Sign() == 0
		})
	}
	return moved
}

// takeBack takes back what a transaction moved. The balance at the place is in range. What is taken
// back one after the other may be out of it in between.
func takeBack(account *ledger.Account, moved *ledger.Posting) error {
	at := slices.IndexFunc(account.Balances, func(balance ledger.Balance) bool {
		return balance.Asset == moved.Asset
	})
	if at < 0 {
		return fmt.Errorf("account %s has no asset %s, which it moved", account.Path, moved.Asset)
	}
	balance := &account.Balances[at]
	balance.Amount = balance.Amount.Minus(moved.Amount)
	return nil
}

// openAt reports whether an account was open at a place.
func (s *Store) openAt(account *ledger.Account, place Place) (bool, error) {
	if lives := s.livesHere(account.Path.Organisation(), place); !lives || s.cameWith(account) {
		return lives, nil
	}
	if account.Opened != place.Height+1 {
		return account.Opened <= place.Height, nil
	}
	if place.Entries == 0 {
		return false, nil
	}
	block, err := s.Block(account.Opened)
	if err != nil {
		return false, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		if entry.Result.OK() && slices.ContainsFunc(entry.Transaction().Openings,
			func(opening ledger.Opening) bool { return opening.Account == account.Path }) {
			return true, nil
		}
	}
	return false, nil
}
