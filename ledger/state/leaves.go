package state

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// Leaf is the hash of the entry of the account with a number, as the tree has it.
type Leaf struct {
	Number uint64
	Hash   ledger.Hash
}

// LeafOf returns the leaf of an account, given its entry.
func LeafOf(key, value []byte) (Leaf, error) {
	number, size := binary.Uvarint(value)
	if !IsAccountKey(key) || size <= 0 || number == 0 {
		return Leaf{}, fmt.Errorf("%w: account %x", ErrEntry, key)
	}
	var buffer [512]byte
	return Leaf{number, accountHash(append(append(buffer[:0], key...), value...))}, nil
}

// AppendLeaves appends the hashes of some accounts, from that with the number first on: up to most,
// as far as there are so many. There are none before the chain has an account tree.
func (s *State) AppendLeaves(to []byte, first uint64, most int) []byte {
	if s.accountTree == nil {
		return to
	}
	for place, accounts := int(first-1), s.accountTree.accounts(); most > 0 && place < accounts; {
		page := s.accountTree.levels[0].pages[place/hashesPerPage][place%hashesPerPage:]
		page = page[:min(len(page), most)]
		for i := range page {
			to = append(to, page[i][:]...)
		}
		place, most = place+len(page), most-len(page)
	}
	return to
}

// LeavesPerPart is how many leaves, at most, RestoreTree wants at a time.
const LeavesPerPart = hashesPerPage

// RestoreTree gives a state without accounts the leaves of the accounts 1 to some number, which are
// cold then, and the counts of organisations. It calls fill for parts of the leaves, as divide
// divides them: fill writes those from the number first on. Complete checks the leaves, but the
// digest does not cover the counts: the caller must know that they are right. RestoreTree returns
// ErrEntry if there are accounts, or if the counts have not as many, and the errors of fill.
func (s *State) RestoreTree(accounts uint64, counts []Counts, divide Divide,
	fill func(first uint64, leaves []ledger.Hash) error) error {
	if s.opened > 0 {
		return fmt.Errorf("%w: there are %d accounts already", ErrEntry, s.opened)
	}
	counted := uint64(0)
	for _, each := range counts {
		used := s.use(each.Organisation)
		used.Accounts, used.Assets = each.Accounts, each.Assets
		counted += each.Accounts
	}
	if counted != accounts {
		return fmt.Errorf("%w: %d accounts, counted as %d", ErrEntry, accounts, counted)
	}
	s.accountTree, s.opened = &accountTree{}, accounts
	s.accountTree.grow(int(accounts))
	if accounts == 0 {
		return nil
	}
	pages := s.accountTree.levels[0].pages
	failures := make([]error, len(pages))
	divide(len(pages), func(part int) {
		failures[part] = fill(uint64(part)*hashesPerPage+1, pages[part])
	})
	return errors.Join(failures...)
}
