package state

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// AccountLeaves are what a state keeps of cold accounts: the hashes of their entries, and counts by
// organisation. They are collected from entries beside each other, and then restored one after
// another:
//
//	var leaves state.AccountLeaves
//	err := leaves.Add(key, value) // of some accounts
//	err = s.RestoreLeaves(&leaves, most)
//	err = s.Restore(key, value) // of each entry that is no account
//	err = s.Complete(divide)
type AccountLeaves struct {
	leaves []accountLeaf
	uses   map[ledger.OrganisationName]*ledger.Quotas
	names  assetNames
	// read is the account that was added last. used are the counts of its organisation.
	read account
	last ledger.OrganisationName
	used *ledger.Quotas
}

type accountLeaf struct {
	number uint64
	hash   ledger.Hash
	// before is the first byte of what the tree has at the number.
	before byte
}

// Len returns the number of accounts that were added since the last RestoreLeaves.
func (l *AccountLeaves) Len() int { return len(l.leaves) }

// Add adds an account, given its entry. It keeps neither the key nor the value. Of the encoding it
// checks only what it needs: the digest of the state covers the bytes.
func (l *AccountLeaves) Add(key, value []byte) error {
	if !IsAccountKey(key) {
		return fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	l.read = account{}
	r := read(value)
	l.read.restore(r, &l.names)
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: account %x: %w", ErrEntry, key, err)
	}
	l.use(key[1 : len(key)-1])
	l.used.Accounts++
	l.used.Assets += l.read.pairs()
	var buffer [512]byte
	l.leaves = append(l.leaves, accountLeaf{number: l.read.number,
		hash: accountHash(append(append(buffer[:0], key...), value...))})
	return nil
}

// use finds the counts of the organisation of the account with a path. Most accounts that follow
// each other are of the same one.
func (l *AccountLeaves) use(path []byte) {
	organisation, _, _ := bytes.Cut(path, []byte(":"))
	if l.used != nil && string(organisation) == string(l.last) {
		return
	}
	if l.uses == nil {
		l.uses = make(map[ledger.OrganisationName]*ledger.Quotas)
	}
	l.last = ledger.OrganisationName(organisation)
	if l.used = l.uses[l.last]; l.used == nil {
		l.used = new(ledger.Quotas)
		l.uses[l.last] = l.used
	}
}

// RestoreLeaves adds accounts to a state that has no resident ones. They are cold then. It empties
// the leaves, which may be filled again. The caller knows that there are at most so many accounts,
// so RestoreLeaves takes no more memory. It returns ErrEntry for a higher number, and if a number
// is there twice.
func (s *State) RestoreLeaves(from *AccountLeaves, most uint64) error {
	switch {
	case len(from.leaves) == 0:
		return nil
	case s.accounts.length > 0:
		return fmt.Errorf("%w: cold and resident accounts", ErrEntry)
	}
	if s.accountTree == nil {
		s.accountTree = &accountTree{}
	}
	highest, lowest := uint64(0), uint64(1)
	for i := range from.leaves {
		highest = max(highest, from.leaves[i].number)
		lowest = min(lowest, from.leaves[i].number)
	}
	if highest > most || lowest == 0 {
		return fmt.Errorf("%w: accounts %d to %d, of at most %d", ErrEntry, lowest, highest, most)
	}
	s.accountTree.grow(int(max(highest, uint64(s.accountTree.accounts()))))
	for rest := from.leaves; len(rest) > 0; rest = rest[min(len(rest), lookAhead):] {
		if err := s.accountTree.restore(rest[:min(len(rest), lookAhead)]); err != nil {
			return err
		}
	}
	s.opened += uint64(len(from.leaves))
	for name, used := range from.uses {
		counts := s.use(name)
		counts.Accounts += used.Accounts
		counts.Assets += used.Assets
	}
	from.leaves, from.uses, from.used = from.leaves[:0], nil, nil
	return nil
}

// restore sets leaves that have no hash yet. They lie all over the memory, and a processor waits
// for several places at a time if it has little else to do in between. So restore looks at all of
// them first.
func (t *accountTree) restore(some []accountLeaf) error {
	leaves := &t.levels[0]
	for i := range some {
		some[i].before = leaves.at(int(some[i].number - 1))[0]
	}
	for i := range some {
		at := leaves.at(int(some[i].number - 1))
		if some[i].before != 0 || *at != (ledger.Hash{}) {
			return fmt.Errorf("%w: two accounts have number %d", ErrEntry, some[i].number)
		}
		*at = some[i].hash
	}
	return nil
}

// hasLeaves reports whether the accounts of the state were restored as leaves.
func (s *State) hasLeaves() bool {
	return s.accounts.length == 0 && s.accountTree != nil && s.accountTree.accounts() > 0
}
