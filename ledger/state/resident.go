package state

import (
	"fmt"
	"slices"
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

// forgetPrepared forgets what Wanted and Admit have prepared. The block may have opened accounts
// that were absent.
func (s *State) forgetPrepared() {
	clear(s.absent)
	if s.preparedFor != nil {
		clear(s.looked) // they keep the memory of the block's paths
	}
	s.prepared, s.preparedFor = nil, nil
}

// Wanted returns the paths of accounts that executing the draft may look up and that are not
// resident, each once. Admit must be called for each of them before the draft is executed, and no
// other draft may be executed between. For concurrency it counts as a write of what only execution
// reads.
func (s *State) Wanted(draft *Draft) []ledger.AccountPath {
	if s.AllResident() {
		return nil
	}
	w, block := wanting{state: s, inTurn: s.looked[:0]}, &draft.block
	w.holds(block.Header.Time)
	for _, part := range block.Parts() {
		if part.Packed != nil {
			w.transfers(part.Packed.Transfers())
			continue
		}
		for i := range part.Unpacked {
			w.transaction(part.Unpacked[i].Decoded)
		}
	}
	paths := w.all()
	s.looked = w.inTurn
	if s.tree == nil { // otherwise some accounts are left out
		s.prepared, s.preparedFor = w.inTurn, draft
	}
	return paths
}

// wanting collects the paths of accounts that are looked up and not resident.
type wanting struct {
	state *State
	// inTurn are the accounts of postings and of the tables of packed bundles, as execution needs
	// them one after another. Those before done were looked up. others are accounts of openings and
	// of waiting transactions.
	inTurn, others []lookup
	done           int
	seen           map[ledger.AccountPath]struct{}
	paths          []ledger.AccountPath
}

// transaction adds the accounts that executing the transaction may look up: those of its postings
// and openings, those of the waiting transaction that it may settle, and those whose waiting
// amounts the registration of an asset counts. One that began to wait in the same block has its own
// postings there.
func (w *wanting) transaction(t *ledger.Transaction) {
	for i := range t.Postings {
		if path := t.Postings[i].Account; !w.elsewhere(path) {
			w.inTurn = append(w.inTurn, lookup{path: path})
		}
	}
	for i := range t.Openings {
		if path := t.Openings[i].Account; !w.elsewhere(path) {
			w.others = append(w.others, lookup{path: path})
		}
	}
	w.hold(t)
	if t.Account != nil && !w.elsewhere(t.Account.Account) {
		w.others = append(w.others, lookup{path: t.Account.Account})
	}
	if t.Verdict != nil && w.state.fault != FaultVerdictNotWanted {
		if waits := w.state.pending.byID[t.Verdict.ID]; waits != nil {
			for i := range waits.entry.parts {
				w.others = append(w.others, lookup{path: waits.entry.parts[i].account})
			}
		}
	}
	if t.Asset != nil {
		for path := range w.state.waitingIn(t.Asset.Asset, &t.Asset.AssetTerms) {
			w.others = append(w.others, lookup{path: path})
		}
	}
	w.lookSome()
}

// lookSome looks up the accounts that were collected, if they are many. To look them up together
// takes less time.
func (w *wanting) lookSome() {
	if len(w.inTurn)-w.done >= 2*lookAhead {
		w.look(w.inTurn[w.done:])
		w.done = len(w.inTurn)
	}
	if len(w.others) >= lookAhead {
		w.look(w.others)
		w.others = w.others[:0]
	}
}

// transfers adds the accounts of a packed bundle.
func (w *wanting) transfers(transfers ledger.Transfers) {
	for number := range transfers.Accounts() {
		if path := transfers.Account(number); !w.elsewhere(path) {
			w.inTurn = append(w.inTurn, lookup{path: path})
		}
	}
	w.lookSome()
}

// elsewhere reports whether an account is in another shard for certain.
func (w *wanting) elsewhere(path ledger.AccountPath) bool {
	s := w.state
	if s.tree == nil {
		return false
	}
	found := s.organisations[path.Organisation()]
	return found != nil && found.home != s.shard
}

func (w *wanting) look(some []lookup) {
	for part := range slices.Chunk(some, 2*lookAhead) {
		w.state.accounts.findAll(part)
	}
	for i := range some {
		if l := &some[i]; l.found == nil {
			if _, seen := w.seen[l.path]; !seen {
				if w.seen == nil {
					w.seen = make(map[ledger.AccountPath]struct{})
				}
				w.seen[l.path] = struct{}{}
				w.paths = append(w.paths, l.path)
			}
		}
	}
}

// all returns the paths.
func (w *wanting) all() []ledger.AccountPath {
	w.look(w.inTurn[w.done:])
	w.look(w.others)
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

// IndexedMetadata returns the metadata by which the account is found whose entry has a value; nil
// if it has none. It does not check whether the entry is one of a state.
func IndexedMetadata(value []byte) ([]ledger.Metadatum, error) {
	r := read(value)
	r.Uvarint() // number
	r.Bool()    // issuer
	r.Bytes("bytes of alias", ledger.MaxAlias)
	r.Uvarint() // opened
	r.Uvarint() // history
	for range r.Count("balances", ledger.MaxAssets, 2) {
		r.Bytes("bytes of asset", ledger.MaxAssetName)
		r.Amount()
	}
	if r.Err == nil && len(r.Data) > 0 {
		for range r.Count("holds", ledger.MaxAssets, 3) {
			r.Bytes("bytes of asset", ledger.MaxAssetName)
			r.Amount()
			r.Amount()
		}
	}
	var indexed []ledger.Metadatum
	if r.Err == nil && len(r.Data) > 0 {
		if standing := r.restoreStanding(); standing != nil {
			indexed = slices.DeleteFunc(standing.Metadata,
				func(m ledger.Metadatum) bool { return !m.Indexed })
		}
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("%w: account: %w", ErrEntry, err)
	}
	return indexed, nil
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
	s.prepared, s.preparedFor = nil, nil
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

// Warming is an account that may be made resident: its path, the value of its entry, and its leaf
// as LeafOf returns it.
type Warming struct {
	Path  ledger.AccountPath
	Value []byte
	Leaf  Leaf
	// before is the first byte of what the tree has at the leaf's number.
	before byte
}

// Warm makes accounts resident until most are. Unlike Admit, it takes entries that may be older
// ones, and leaves out those that are not in the tree. It leaves out accounts that are resident,
// too. Eviction does not pass accounts that are only warm. For concurrency Warm counts as a write.
func (s *State) Warm(some []Warming, most int) {
	if s.accountTree == nil || s.accountTree.accounts() == 0 {
		return
	}
	s.accounts.reserve(min(most, int(s.opened)))
	leaves := &s.accountTree.levels[0]
	inTree := func(w *Warming) bool {
		return w.Leaf.Number > 0 && w.Leaf.Number <= uint64(leaves.length)
	}
	// The leaves lie all over the memory, as in accountTree.restore.
	for i := range some {
		if w := &some[i]; inTree(w) {
			w.before = leaves.at(int(w.Leaf.Number - 1))[0]
		}
	}
	for i := range some {
		w := &some[i]
		switch {
		case s.accounts.length >= most:
			return
		case !inTree(w) || w.before != w.Leaf.Hash[0] ||
			*leaves.at(int(w.Leaf.Number - 1)) != w.Leaf.Hash || s.accounts.find(w.Path) != nil:
			continue
		}
		warmed := s.accounts.add(s.keptPath(w.Path))
		if err := warmed.decode(w.Value, &s.assetNames); err != nil {
			s.accounts.remove(warmed)
		}
	}
}
