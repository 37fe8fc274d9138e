package state

import (
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// From version ledger.AccountTreeVersion on, the tree has a hash of each account, and only resident
// accounts are in memory. The others are cold: their entries are where the caller keeps what blocks
// changed. Before a draft is executed, the caller asks which accounts it may look up that are not
// resident, reads their entries, and admits them:
//
//	for _, path := range s.Wanted(draft) {
//		err := s.Admit(path, read(path)) // nil if no account is open at the path
//	}
//	block, changes := s.Execute(draft)
//	s.Evict(stored, limit) // blocks up to the height stored are where read looks
//
// What always holds:
//
//   - A cold account never counts as absent. A look-up that finds nothing panics, unless everything
//     is resident or the caller has told that no account is open at the path.
//   - An admitted entry is the one whose hash the tree has.
//   - An account that a block touched is resident until the caller says that it has stored the
//     block.
//   - No result depends on which accounts are resident.

// AllResident reports whether no account is cold.
func (s *State) AllResident() bool { return uint64(s.accounts.length) == s.opened }

// Resident returns the number of accounts that are resident.
func (s *State) Resident() int { return s.accounts.length }

// find returns the account with a path, or nil if none is open. Only execution may call it.
func (s *State) find(path ledger.AccountPath) *account {
	found := s.accounts.find(path)
	if found == nil {
		s.requireAbsent(path)
	}
	return found
}

// requireAbsent panics if the account with a path, which is not resident, may be cold.
func (s *State) requireAbsent(path ledger.AccountPath) {
	if _, absent := s.absent[path]; !absent && !s.AllResident() {
		panic(fmt.Sprintf("ledger: account %s is looked up, and was neither resident, nor "+
			"admitted, nor said to be absent; %d of %d accounts are resident", path,
			s.accounts.length, s.opened))
	}
}

// forgetAbsent forgets which accounts are absent: the block may have opened them.
func (s *State) forgetAbsent() { clear(s.absent) }

// Wanted returns the paths of accounts that executing the draft may look up and that are not
// resident, each once. Admit must be called for each of them before the draft is executed, and no
// other draft may be executed between.
func (s *State) Wanted(draft *Draft) []ledger.AccountPath {
	if s.AllResident() {
		return nil
	}
	w, block := s.newWanting(), &draft.block
	for next := 0; next < len(block.Entries); {
		entry := &block.Entries[next]
		if seal := &block.Bundles[entry.Bundle]; seal.Packed() {
			w.transfers(seal.Transfers())
			next += seal.Len()
			continue
		}
		w.transaction(entry.Decoded)
		next++
	}
	return w.all()
}

// WantedBy is Wanted for a Precheck of the bundle.
func (s *State) WantedBy(bundle *ledger.Bundle) []ledger.AccountPath {
	if s.AllResident() {
		return nil
	}
	w := s.newWanting()
	if bundle.Packed() {
		w.transfers(bundle.Transfers())
		return w.all()
	}
	for i := range bundle.Len() {
		w.transaction(bundle.Transaction(i))
	}
	return w.all()
}

// wanting collects the paths of accounts that are looked up and not resident.
type wanting struct {
	state   *State
	lookups []lookup
	seen    map[ledger.AccountPath]struct{}
	paths   []ledger.AccountPath
}

func (s *State) newWanting() *wanting {
	return &wanting{state: s, lookups: s.looked[:0], seen: make(map[ledger.AccountPath]struct{})}
}

// transaction adds the accounts that executing the transaction may look up: those of its postings
// and openings, and those of the waiting transaction that it may settle. One that began to wait in
// the same block has its own postings there.
func (w *wanting) transaction(t *ledger.Transaction) {
	for i := range t.Postings {
		w.path(t.Postings[i].Account)
	}
	for i := range t.Openings {
		w.path(t.Openings[i].Account)
	}
	if t.Verdict == nil {
		return
	}
	if waits := w.state.pending.byID[t.Verdict.ID]; waits != nil {
		for i := range waits.entry.parts {
			w.path(waits.entry.parts[i].account)
		}
	}
}

// transfers adds the accounts of a packed bundle.
func (w *wanting) transfers(transfers ledger.Transfers) {
	for number := range transfers.Accounts() {
		w.path(transfers.Account(number))
	}
}

// path adds a path, unless its organisation has its accounts in another shard for certain.
func (w *wanting) path(path ledger.AccountPath) {
	if s := w.state; s.tree != nil {
		if found := s.organisations[path.Organisation()]; found != nil && found.home != s.shard {
			return
		}
	}
	if w.lookups = append(w.lookups, lookup{path: path}); len(w.lookups) >= 2*lookAhead {
		w.flush()
	}
}

// flush looks up the accounts that were collected together, which takes less time.
func (w *wanting) flush() {
	w.state.accounts.findAll(w.lookups)
	for i := range w.lookups {
		if l := &w.lookups[i]; l.found == nil {
			if _, seen := w.seen[l.path]; !seen {
				w.seen[l.path] = struct{}{}
				w.paths = append(w.paths, l.path)
			}
		}
	}
	clear(w.lookups)
	w.lookups = w.lookups[:0]
}

func (w *wanting) all() []ledger.AccountPath {
	w.flush()
	w.state.looked = w.lookups
	return w.paths
}

// Admit makes the account with a path resident, given the value of its entry. If there is no value,
// it notes that no account is open at the path, until the next draft is executed. Admit returns
// ErrEntry, and changes nothing, if the entry is not the one in the account tree.
func (s *State) Admit(path ledger.AccountPath, value []byte) error {
	switch {
	case s.accounts.find(path) != nil:
		return nil
	case len(value) == 0:
		if s.absent == nil {
			s.absent = make(map[ledger.AccountPath]struct{})
		}
		s.absent[path] = struct{}{}
		return nil
	}
	admitted := s.accounts.add(s.keptPath(path))
	if err := s.readCurrent(admitted, value, &s.assetNames); err != nil {
		s.accounts.remove(admitted)
		return err
	}
	admitted.recent = true
	return nil
}

// ReadAccount decodes the value of the entry of a cold account. It returns ErrEntry if the entry is
// not the one in the account tree.
func (s *State) ReadAccount(path ledger.AccountPath, value []byte) (ledger.Account, error) {
	read, names := account{path: path}, assetNames{}
	if err := s.readCurrent(&read, value, &names); err != nil {
		return ledger.Account{}, err
	}
	return read.copy(), nil
}

// readCurrent decodes the entry of an account that has only a path, and checks it against the tree.
func (s *State) readCurrent(to *account, value []byte, names *assetNames) error {
	if err := to.decode(value, names); err != nil {
		return err
	}
	if s.accountTree == nil || to.number == 0 || to.number > uint64(s.accountTree.accounts()) {
		return fmt.Errorf("%w: %s is account %d of %d", ErrEntry, to.path, to.number, s.opened)
	}
	var buffer [512]byte
	entry := append(AppendAccountKey(buffer[:0], to.path), value...)
	hash, leaf := accountHash(entry), *s.accountTree.levels[0].at(int(to.number - 1))
	if hash != leaf {
		return fmt.Errorf("%w: account %d, %s, has hash %s; the tree says %s", ErrEntry, to.number,
			to.path, hash, leaf)
	}
	return nil
}

// decode reads the value of the entry of an account that has only a path.
func (a *account) decode(value []byte, names *assetNames) error {
	r := read(value)
	a.restore(r, names)
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: account %s: %w", ErrEntry, a.path, err)
	}
	return nil
}

// DecodeAccount decodes the value of the entry of an account. It does not check whether the entry
// is one of a state.
func DecodeAccount(path ledger.AccountPath, value []byte) (ledger.Account, error) {
	read, names := account{path: path}, assetNames{}
	if err := read.decode(value, &names); err != nil {
		return ledger.Account{}, err
	}
	return read.copy(), nil
}

// AppendAccountKey appends the key of the entry of an account.
func AppendAccountKey(to []byte, path ledger.AccountPath) []byte {
	return append(append(append(to, kindAccount), path...), 0)
}

// IsAccountKey reports whether an entry with this key is one of an account.
func IsAccountKey(key []byte) bool {
	return len(key) > 2 && key[0] == kindAccount && key[len(key)-1] == 0
}

// AccountOfKey returns the path of the account whose entry has a key.
func AccountOfKey(key []byte) ledger.AccountPath { return ledger.AccountPath(key[1 : len(key)-1]) }

// keptPath returns the path in memory that the state may keep. Once accounts were evicted, each
// path has its own memory, so that one does not keep those of others.
func (s *State) keptPath(path ledger.AccountPath) ledger.AccountPath {
	if s.evicts {
		return ledger.AccountPath(strings.Clone(string(path)))
	}
	return s.accounts.paths.kept(path)
}

// Eviction passes accounts like the hand of a clock. How many it passes in one call is bounded, by
// evictionSteps and by evictionFactor for each account more than there may be: if most of what it
// passes may not be dropped yet, the next calls go on.
const (
	evictionSteps  = 1 << 12
	evictionFactor = 4
)

// Evict drops accounts until at most limit are resident, or it has passed many. The caller has
// stored the changes of the blocks up to a height. Evict drops no account that a later block
// touched, and passes once those that were touched or admitted since it came by last.
func (s *State) Evict(stored ledger.Height, limit int) {
	if s.accountTree == nil || s.accounts.length <= limit {
		return
	}
	s.evicts = true
	over := s.accounts.length - limit
	steps := evictionSteps + evictionFactor*over
	for ; steps > 0 && s.accounts.length > limit; steps-- {
		if s.hand >= s.accounts.places {
			s.hand = 0
		}
		each := s.accounts.at(s.hand)
		s.hand++
		switch {
		case each.path == "" || each.changed() > stored:
		case each.recent:
			each.recent = false
		default:
			s.accounts.remove(each)
		}
	}
}
