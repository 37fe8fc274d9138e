package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// ErrNoTree reports a chain whose version has no tree of accounts, so that no account can be
// proven.
var ErrNoTree = state.ErrNoTree

// ProveAccount proves what an account has after the head, which it returns, too. The proof has no
// finality yet: the block's certificate comes a moment later. The state has the tree of accounts as
// of the head only, so no other block can be chosen (but see ProveAccountAfter). It takes a hash or
// three for each level of the tree, however large the book is.
func (s *Store) ProveAccount(path ledger.AccountPath) (*ledger.AccountProof, error) {
	var value []byte
	var before error
	for {
		proof, err := s.proveHead(path, value)
		switch {
		case proof != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrNoTree):
			return proof, err
		case err != nil && before != nil && before.Error() == err.Error():
			return nil, damaged(s.AppendedHeight(), "%v", err)
		}
		// A block may touch the account before it is proven. Then it is resident, or has a new
		// entry. The error has both hashes.
		before = err
		values, err := s.readAccounts([]ledger.AccountPath{path})
		if err != nil {
			return nil, damagedUnless(ErrClosed, err, s.AppendedHeight(),
				fmt.Sprintf("account %.150q", string(path)))
		}
		if value = values[0]; value == nil {
			return nil, errNoAccount(path) // as of the head when it was looked up
		}
	}
}

// proveHead proves what an account has after the head, given the value of its entry if it is not
// resident. It returns nil if it needs one.
func (s *Store) proveHead(path ledger.AccountPath, value []byte) (*ledger.AccountProof, error) {
	// Not for readers only: the trees bring their hashes up to date.
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	proof, err := s.state.ProveAccount(path, value)
	if proof != nil {
		proof.Header = s.head.Header.Encode()
	}
	return proof, err
}

// ProveAccountAfter proves what an account had after any block, with the certificates that the
// store has for it. It executes the chain from the genesis up to the block, so it takes as long as
// Verify, and is for a store that nothing else uses. It returns ErrNotFound if the account was not
// open then.
func (s *Store) ProveAccountAfter(ctx context.Context, path ledger.AccountPath,
	height ledger.Height) (proof *ledger.AccountProof, err error) {
	if absent := s.Absent(); absent > 0 {
		return nil, s.errAbsent(absent)
	}
	header, _, err := s.Header(height)
	if err != nil {
		return nil, err
	}
	replayed, err := s.newReplay()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, replayed.end()) }()
	for next := ledger.Height(1); next <= height; next++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		block, err := s.Block(next)
		if err != nil {
			return nil, err
		}
		executed, _, err := replayed.execute(block)
		if err != nil {
			return nil, err
		}
		if executed.Hash != block.Hash {
			return nil, damaged(next, "executing it again gives another result: %s",
				difference(block, executed))
		}
	}
	value, err := replayed.accountEntry(path)
	if err != nil {
		return nil, err
	}
	if proof, err = replayed.state.ProveAccount(path, value); err != nil {
		return nil, err
	}
	if proof == nil {
		return nil, fmt.Errorf("%w after block %d", errNoAccount(path), height)
	}
	proof.Header = header.Encode()
	proof.Finality, err = s.Finality(height)
	return proof, err
}

// accountEntry returns the value of an account's entry if the account is not resident, or nil.
func (r *replay) accountEntry(path ledger.AccountPath) (value []byte, err error) {
	if _, resident := r.state.Account(path); resident || r.scratch == nil {
		return nil, nil
	}
	err = r.scratch.View(func(transaction *badger.Txn) error {
		item, err := transaction.Get(state.AppendAccountKey(nil, path))
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			value, err = item.ValueCopy(nil)
		}
		return err
	})
	return value, err
}
