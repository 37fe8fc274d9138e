package state

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrNoTree reports a chain whose version has no tree of accounts, so that no account can be
// proven.
var ErrNoTree = errors.New("ledger: a chain of this version has no tree of accounts")

// ProveAccount returns the proof of what an account has, against the present state digest. The
// caller adds the header with that digest. Of an account that is not resident, it needs the value
// of the entry, and returns ErrEntry if that is not the one in the tree. It returns a nil proof if
// the account is not resident and there is no value.
func (s *State) ProveAccount(path ledger.AccountPath, value []byte) (*ledger.AccountProof, error) {
	if s.accountTree == nil {
		return nil, fmt.Errorf("%w: version %d", ErrNoTree, s.Version())
	}
	proven := s.accounts.find(path)
	switch {
	case proven != nil:
		entry, keyLength := proven.appendEntry(nil)
		value = entry[keyLength:]
	case value == nil:
		return nil, nil
	default:
		proven = &account{path: path}
		if err := s.readCurrent(proven, value, &assetNames{}); err != nil {
			return nil, err
		}
	}
	return &ledger.AccountProof{Account: path, Entry: value,
		Accounts: uint64(s.accountTree.accounts()),
		Siblings: s.accountTree.siblings(proven.number), Others: s.othersDigest()}, nil
}

// siblings returns the other children of each node above the account with a number, the lowest node
// first. All hashes must be up to date.
func (t *accountTree) siblings(number uint64) (siblings []ledger.Hash) {
	place := int(number - 1)
	for level := range t.levels[:len(t.levels)-1] {
		first := place / treeArity * treeArity
		for i, hash := range t.levels[level].children(place / treeArity) {
			if first+i != place {
				siblings = append(siblings, hash)
			}
		}
		place /= treeArity
	}
	return siblings
}
