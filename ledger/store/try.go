package store

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Trial says what a transaction of a bundle would do in this shard if it were in the next block,
// which had nothing else.
type Trial struct {
	ID ledger.Hash
	// Known says that a block has the transaction already. Then nothing else is set.
	Known bool
	// Result is Applied, or the reason of the failure. If several shards decide, it is this shard's
	// verdict, SetAside if it agrees. It is Relayed if the transaction does not concern this shard.
	Result ledger.Result
	// Destinations are the shards that decide, in ascending order; nil in a book of one shard.
	Destinations []ledger.ShardID
	// Balances are those of this shard that it would change, in the order of its postings.
	Balances []TrialBalance
}

// TrialBalance is what a transaction would make of an account's balance of an asset.
type TrialBalance struct {
	Account       ledger.AccountPath
	Asset         ledger.AssetName
	Before, After ledger.Amount
}

// Try tries the transactions of a bundle, each alone, on the state after the head, whose height it
// returns. It changes nothing. now is the time that the next block would have, unless the head has
// a later one. The bundle's signatures must be verified. A trial takes about the time of the
// bundle's execution, and blocks are not executed meanwhile.
func (s *Store) Try(bundle *ledger.Bundle, now ledger.Milliseconds) (trials []Trial,
	head ledger.Height, err error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mutex.RLock()
	closed, failure := s.closed, s.failure
	s.mutex.RUnlock()
	switch {
	case closed:
		return nil, 0, ErrClosed
	case failure != nil:
		return nil, 0, failure
	}
	height := s.head.Header.Height
	defer guard(height, &err)
	trying := state.Trying{Root: bundle.Root(), Signatures: bundle.Signatures(), Height: height + 1,
		Round: s.head.Header.Round + 1, Time: max(now, s.head.Header.Time)}
	for i := range bundle.Len() {
		trying.ID, trying.Transaction = bundle.ID(i), bundle.Transaction(i)
		trial := Trial{ID: trying.ID}
		if trial.Known, err = s.executed(trying.ID, trying.Transaction); err != nil {
			return nil, 0, err
		}
		if !trial.Known {
			if err := s.admitPaths(height+1, func() []ledger.AccountPath {
				return s.state.TryWants(trying.Transaction)
			}); err != nil {
				return nil, 0, err
			}
			s.try(&trying, &trial)
		}
		trials = append(trials, trial)
	}
	return trials, height, nil
}

// try tries one transaction, whose accounts are resident.
func (s *Store) try(trying *state.Trying, trial *Trial) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	trial.Result = s.state.Try(trying)
	if s.genesis.Sharded() {
		trial.Destinations = s.state.Destinations(trying.Transaction)
	}
	if trial.Result.Code == ledger.Applied || trial.Result.Code == ledger.SetAside {
		trial.Balances = s.triedBalances(trying.Transaction)
	}
	s.dropAccounts()
}

// triedBalances returns what the postings of a transaction would make of the balances of accounts
// here. The caller must hold the mutex.
func (s *Store) triedBalances(t *ledger.Transaction) (balances []TrialBalance) {
	for i := range t.Postings {
		p := &t.Postings[i]
		at := slices.IndexFunc(balances, func(b TrialBalance) bool {
			return b.Account == p.Account && b.Asset == p.Asset
		})
		if at < 0 {
			account, open := s.state.Account(p.Account)
			if !open && !opens(t, p.Account) {
				continue
			}
			before := account.Balance(p.Asset)
			at, balances = len(balances), append(balances, TrialBalance{p.Account, p.Asset, before,
				before})
		}
		// It does not overflow: the state allows the transaction.
		balances[at].After, _ = balances[at].After.Add(p.Amount)
	}
	return balances
}

func opens(t *ledger.Transaction, path ledger.AccountPath) bool {
	return slices.ContainsFunc(t.Openings, func(o ledger.Opening) bool { return o.Account == path })
}
