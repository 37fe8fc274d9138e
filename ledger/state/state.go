package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The kinds of entries of a state. The kind is the first byte of an entry's key. Keys that are
// names end with a zero byte, so no key is a prefix of another.
const (
	kindAccount      = 'a'
	kindOrganisation = 'o'
	kindWindow       = 'n'
	kindRecord       = 'r'
	kindMember       = 'm'
	kindStream       = 't'
	kindPending      = 'p'
	kindCharter      = 'c'
	kindCancelled    = 'x'
	kindGrowth       = 'g'
	kindMove         = 'v'
	kindAsset        = 's' // ledger.Asset has the entry
	kindAlias        = 'l'
	kindSchedule     = 'z'
	kindEngine       = 'e'
)

// mark records that the current block touched an entry, and which of the encodings that the block
// keeps (execution.kept, counted from 1) is the one from before the block. If there is none, kept
// is 0: the entry is new, or an account in the tree.
type mark struct {
	touched bool
	kept    uint32
}

type organisation struct {
	ledger.Organisation
	home ledger.ShardID
	mark mark
	// asked is the last transaction that needed the organisation's consent, and consent the answer.
	// They are only used if the organisation has a policy.
	asked   uint64
	consent ledger.Code
}

// RecordPlace is the place where a record's value was last written: record Item of the transaction
// at Index in the block at Height. Digest is the SHA-256 of the value.
type RecordPlace struct {
	Height ledger.Height
	Index  uint32
	Item   uint32
	Digest ledger.Hash
}

type record struct {
	key ledger.RecordKey
	RecordPlace
	mark mark
}

type windowKey struct {
	organisation ledger.OrganisationName
	stream       uint64
}

// State is everything that execution depends on: organisations, accounts with their balances, nonce
// windows, the places of records, the members, cancellations and, in a book of several shards,
// streams and waiting transactions. Execution reads only memory: all entries but the accounts, the
// hashes of all accounts (some 43 bytes each), and resident accounts (some 190 bytes each; see
// resident.go). It is not safe for concurrent use, but several reads may run at the same time.
type State struct {
	genesis *ledger.Genesis
	// ledger is the identity of the book, and chain that of this chain. They are equal in a book of
	// one shard.
	ledger, chain ledger.Hash
	// In a book of one shard, tree is nil and the four fields below are empty.
	tree     *ledger.ShardTree
	shard    ledger.ShardID
	parent   *stream
	children []*stream
	pending  pendingSet
	fault    Fault
	// assetsMax is ledger.MaxAssets, and lateMax MaxLate, but in tests.
	assetsMax, lateMax int

	accounts accounts
	// opened is the number of open accounts. absent are paths at which none is open, as the caller
	// told. hand is the place where eviction goes on, evicts says that it has begun.
	opened uint64
	absent map[ledger.AccountPath]struct{}
	hand   int
	evicts bool

	assetNames    assetNames
	organisations map[ledger.OrganisationName]*organisation
	windows       map[windowKey]*window
	records       map[ledger.RecordKey]*record
	group         membershipState
	charter       charter
	growth        growth
	losses        losses
	moves         moves
	uses          map[ledger.OrganisationName]*use
	cancelled     cancelledSet
	assets        assets
	held          holdSet
	schedules     scheduleSet
	aliases       aliases
	details       detailSet

	// digest is the LtHash of all entries. From version ledger.AccountTreeVersion on, the accounts
	// are in accountTree instead, which is nil before, and from ledger.CrossingVersion on the
	// transactions that wait in slotTree, and from ledger.AssetsVersion on the assets in assetTree.
	// stateDigest has all.
	digest      Digest
	accountTree *accountTree
	slotTree    *slotTree
	assetTree   *accountTree
	stateDigest ledger.Hash
	divide      Divide

	execution
}

// New returns the state after block 0 of a chain. The chain of a shard that was added to the book
// begins with a directory, which is to be restored into the state; see Begin.
func New(genesis *ledger.Genesis) *State {
	s := &State{
		genesis: genesis, ledger: genesis.Book(), chain: genesis.Hash(), tree: genesis.ShardTree(),
		shard:         genesis.Shard,
		accounts:      newAccounts(),
		organisations: make(map[ledger.OrganisationName]*organisation),
		windows:       make(map[windowKey]*window), records: make(map[ledger.RecordKey]*record),
		group: newMembershipState(genesis), charter: charter{Charter: genesis.Charter()},
		uses: make(map[ledger.OrganisationName]*use), cancelled: newCancelledSet(),
		moves: newMoves(), held: newHoldSet(), schedules: newScheduleSet(), details: newDetailSet(),
		divide: inTurn, assetsMax: ledger.MaxAssets, lateMax: MaxLate,
	}
	if s.tree != nil {
		s.pending = newPendingSet()
		s.newStreams()
	}
	s.digestAll()
	return s
}

// Digest returns the state digest, as it is in the header of the last executed block.
func (s *State) Digest() ledger.Hash { return s.stateDigest }

// Organisation returns a registered organisation, read-only.
func (s *State) Organisation(name ledger.OrganisationName) (ledger.Organisation, bool) {
	if found := s.organisations[name]; found != nil {
		return found.Organisation, true
	}
	return ledger.Organisation{}, false
}

// Organisations returns all organisations by name.
func (s *State) Organisations() []ledger.Organisation {
	all := make([]ledger.Organisation, 0, len(s.organisations))
	for _, each := range s.organisations {
		all = append(all, each.Organisation)
	}
	slices.SortFunc(all, func(a, b ledger.Organisation) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return all
}

// Account returns a copy of an account if it is resident. Another one may be cold, unless
// AllResident.
func (s *State) Account(path ledger.AccountPath) (ledger.Account, bool) {
	if found := s.accounts.find(path); found != nil {
		return found.copy(), true
	}
	return ledger.Account{}, false
}

// AccountCount returns the number of open accounts.
func (s *State) AccountCount() int { return int(s.opened) }

// EntryCount returns the number of entries, or a few more.
func (s *State) EntryCount() int {
	const single = 3 // the charter, the changes of the book's shards, and the parent's stream
	return int(s.opened) + len(s.organisations) + len(s.windows) + len(s.records) +
		len(s.group.members) + len(s.group.engines) + len(s.growth.added) + len(s.children) +
		len(s.pending.slots) + len(s.cancelled.by) + len(s.losses) + len(s.moves.all) +
		len(s.growth.rehung) + len(s.assets.all) + len(s.held.by) + len(s.schedules.by) +
		len(s.aliases.by) + len(s.details.keys) + len(s.details.refundable) + single
}

// Record returns the place of a record's value.
func (s *State) Record(key ledger.RecordKey) (RecordPlace, bool) {
	if found := s.records[key]; found != nil {
		return found.RecordPlace, true
	}
	return RecordPlace{}, false
}

// Fresh reports whether a nonce can still be applied. A transaction with a fresh nonce was never
// applied, if it TakesNonce.
func (s *State) Fresh(organisation ledger.OrganisationName, nonce ledger.Nonce) bool {
	found := s.windows[windowKey{organisation, nonce.Stream}]
	return found == nil || found.fresh(nonce.Sequence)
}

// Unseen reports that a transaction was in no earlier block, if its nonce says so: it can still be
// applied. The caller must remember by their ids those earlier transactions for which KnownByNonce
// is false. A registration takes no nonce in a book of several shards, so it is always to be looked
// up.
func (s *State) Unseen(t *ledger.Transaction) bool {
	return t.TakesNonce() && len(t.Registrations) == 0 && s.Fresh(t.Signer, t.Nonce)
}

// KnownByNonce reports whether a transaction with this result used up its nonce, or had none and
// cannot come again. Those that failed, were set aside or were relayed may be proposed again while
// their nonce is fresh. A verdict has no nonce, and the transaction that waits for it takes it only
// once.
func KnownByNonce(result ledger.Result) bool {
	return result.OK() || result.Code == ledger.Settled || result.Code == ledger.Released
}

// NextSequence returns the number after the highest applied one of a stream, or 1 for a new stream.
func (s *State) NextSequence(organisation ledger.OrganisationName, stream uint64) uint64 {
	if found := s.windows[windowKey{organisation, stream}]; found != nil {
		return found.high + 1
	}
	return 1
}

func (o *organisation) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(append(append(to, kindOrganisation), o.Name...), 0)
	keyLength = len(to) - start
	to = codec.AppendString(to, o.Name)
	to = binary.AppendUvarint(to, uint64(len(o.Keys)))
	for i := range o.Keys {
		to = append(to, o.Keys[i][:]...)
	}
	to = codec.AppendBool(to, o.Pinned)
	to = binary.AppendUvarint(to, uint64(o.Shard))
	to = binary.AppendUvarint(to, uint64(o.Registered))
	if o.Policy != nil {
		to = o.appendPolicy(to)
	}
	return to, keyLength
}

// AppendRecordKey appends the key of the entry of a record.
func AppendRecordKey(to []byte, key ledger.RecordKey) []byte {
	return append(append(append(to, kindRecord), key...), 0)
}

// IsRecordKey reports whether an entry with this key is one of a record.
func IsRecordKey(key []byte) bool { return len(key) > 2 && key[0] == kindRecord }

// RecordOfKey returns the record whose entry has a key.
func RecordOfKey(key []byte) ledger.RecordKey { return ledger.RecordKey(key[1 : len(key)-1]) }

// DecodeRecordPlace decodes the value of the entry of a record, or returns ErrEntry.
func DecodeRecordPlace(value []byte) (RecordPlace, error) {
	r := read(value)
	place := r.recordPlace()
	if err := r.End(); err != nil {
		return RecordPlace{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return place, nil
}

func (r *reader) recordPlace() RecordPlace {
	return RecordPlace{Height: ledger.Height(r.Uvarint()), Index: uint32(r.Uvarint()),
		Item: uint32(r.Uvarint()), Digest: r.Hash()}
}

func (r *record) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = AppendRecordKey(to, r.key)
	keyLength = len(to) - start
	to = binary.AppendUvarint(to, uint64(r.Height))
	to = binary.AppendUvarint(to, uint64(r.Index))
	to = binary.AppendUvarint(to, uint64(r.Item))
	return append(to, r.Digest[:]...), keyLength
}

// ErrEntry reports that an entry of a state cannot be restored.
var ErrEntry = errors.New("ledger: malformed state entry")

// Restore adds an entry, as Changes and Entries return it, to a state that has no entry with this
// key. It copies key and value. After all entries are restored, call Complete, and compare Digest
// with a block's header to verify them.
func (s *State) Restore(key, value []byte) error {
	if len(key) < 2 || (key[0] != kindWindow && key[len(key)-1] != 0) {
		return fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	r := read(value)
	if key[0] != kindAccount { // an account copies the names that it keeps
		r = read(bytes.Clone(value))
	}
	restored, again, err := s.restore(key, r)
	if err != nil {
		return err
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	if again {
		return fmt.Errorf("%w: twice", ErrEntry)
	}
	// The digest covers the entry as it is encoded now, so nothing else may be taken.
	encoded, keyLength := restored.appendEntry(s.arena[:0])
	s.arena = encoded[:0]
	if !bytes.Equal(encoded[:keyLength], key) || !bytes.Equal(encoded[keyLength:], value) {
		return fmt.Errorf("%w: key %x: not encoded as its content is", ErrEntry, key)
	}
	return nil
}

// restore puts an entry into the state. It reports whether there was one already.
func (s *State) restore(key []byte, r *reader) (restored entry, again bool, err error) {
	switch key[0] {
	case kindAccount:
		if !IsAccountKey(key) {
			return nil, false, fmt.Errorf("%w: an account without a path", ErrEntry)
		}
		path := s.keptPath(ledger.AccountPath(key[1 : len(key)-1]))
		again = s.accounts.find(path) != nil
		restored := s.accounts.add(path)
		restored.restore(r, &s.assetNames)
		s.opened++
		counts := s.use(restored.path.Organisation())
		counts.Accounts++
		counts.Assets += restored.pairs()
		return restored, again, nil
	case kindOrganisation:
		restored := &organisation{Organisation: r.organisation()}
		s.settleHome(restored)
		_, again = s.organisations[restored.Name]
		s.organisations[restored.Name] = restored
		return restored, again, nil
	case kindWindow:
		restored := r.window(read(key[1:]))
		_, again = s.windows[windowKey{restored.organisation, restored.stream}]
		s.windows[windowKey{restored.organisation, restored.stream}] = restored
		s.use(restored.organisation).Streams++
		return restored, again, nil
	case kindRecord:
		restored := &record{key: RecordOfKey(key), RecordPlace: r.recordPlace()}
		_, again = s.records[restored.key]
		s.records[restored.key] = restored
		s.use(restored.key.Organisation()).Records++
		return restored, again, nil
	case kindMember:
		return s.group.restore(key, r)
	case kindEngine:
		return s.group.restoreEngine(key, r)
	case kindCharter:
		again, err = s.charter.restore(key, r)
		return &s.charter, again, err
	case kindGrowth:
		if isLossKey(key) {
			return s.losses.restore(key, r)
		}
		return s.growth.restore(key, r)
	case kindMove:
		return s.restoreMove(key, r)
	case kindStream:
		return s.restoreStream(key, r)
	case kindPending:
		return s.restorePending(key, r)
	case kindCancelled:
		return s.restoreCancelled(key, r)
	case kindAsset:
		return s.restoreAsset(key, r)
	case kindHold:
		return s.restoreHold(key, r)
	case kindSchedule:
		return s.restoreSchedule(key, r)
	case kindAlias:
		return s.restoreAlias(key, r)
	case kindKey, kindRefundable:
		return s.restoreDetail(key, r)
	}
	return nil, false, fmt.Errorf("%w: kind %q", ErrEntry, key[0])
}

func (r *reader) organisation() ledger.Organisation {
	const keySize = len(ledger.PublicKey{})
	o := ledger.Organisation{Name: r.organisationName(),
		Keys: make([]ledger.PublicKey, r.Count("keys", ledger.MaxKeys, keySize))}
	for i := range o.Keys {
		copy(o.Keys[i][:], r.Take(keySize))
	}
	o.Pinned, o.Shard, o.Registered = r.Bool(), r.shard(), ledger.Height(r.Uvarint())
	if r.Err == nil && len(r.Data) > 0 {
		o.Policy = r.policy(o.Keys)
	}
	return o
}

// Entries calls visit with the key and value of every entry but those of cold accounts, in no
// particular order, until visit fails. The slices are valid only during the call.
func (s *State) Entries(visit func(key, value []byte) error) error {
	var buffer []byte
	show := func(each entry) error {
		var keyLength int
		buffer, keyLength = each.appendEntry(buffer[:0])
		return visit(buffer[:keyLength], buffer[keyLength:])
	}
	for each := range s.accounts.all() {
		if err := show(each); err != nil {
			return err
		}
	}
	for _, some := range [][]entry{s.others(), s.waitingEntries(), s.assetEntries()} {
		for _, each := range some {
			if err := show(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitingEntries returns the entries of the transactions that wait.
func (s *State) waitingEntries() []entry {
	all := make([]entry, 0, len(s.pending.byID))
	for _, each := range s.pending.slots {
		if each.entry != nil {
			all = append(all, each)
		}
	}
	return all
}

// assetEntries returns the entries of the assets.
func (s *State) assetEntries() []entry {
	all := make([]entry, len(s.assets.all))
	for i, each := range s.assets.all {
		all[i] = each
	}
	return all
}

// others returns all entries but the accounts, the transactions that wait and the assets, in no
// particular order.
func (s *State) others() []entry {
	all := make([]entry, 0, len(s.organisations)+len(s.windows)+len(s.records))
	for _, each := range s.organisations {
		all = append(all, each)
	}
	for _, each := range s.windows {
		all = append(all, each)
	}
	for _, each := range s.records {
		all = append(all, each)
	}
	for _, each := range s.group.members {
		if each.isEntry() {
			all = append(all, each)
		}
	}
	for _, each := range s.group.engines {
		all = append(all, each)
	}
	if s.charter.Number > 0 {
		all = append(all, &s.charter)
	}
	if s.growth.number > 0 {
		all = append(all, &s.growth)
	}
	for _, each := range s.losses {
		all = append(all, each)
	}
	for _, each := range s.growth.rehung {
		all = append(all, each)
	}
	for _, each := range s.growth.streams {
		all = append(all, each)
	}
	for _, each := range s.growth.added {
		all = append(all, each)
	}
	if s.parent != nil && s.parent.number > 0 {
		all = append(all, s.parent)
	}
	for _, each := range s.children {
		if each.number > 0 {
			all = append(all, each)
		}
	}
	for _, each := range s.cancelled.by {
		all = append(all, each)
	}
	for _, each := range s.moves.all {
		all = append(all, each)
	}
	for _, each := range s.held.by {
		all = append(all, each)
	}
	for _, each := range s.schedules.by {
		all = append(all, each)
	}
	for _, each := range s.aliases.by {
		all = append(all, each)
	}
	for _, each := range s.details.keys {
		all = append(all, each)
	}
	for _, each := range s.details.refundable {
		all = append(all, each)
	}
	return all
}
