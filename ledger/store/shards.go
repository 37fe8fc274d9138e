package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
)

// Bounds of one result of Stream.
const (
	MaxStreamPage  = 1024
	maxStreamBytes = 4 << 20
)

// Book returns the identity of the book, which transactions name as their ledger. In a book of one
// shard it is the GenesisHash.
func (s *Store) Book() ledger.Hash { return s.book }

// Shard returns the shard of this chain. It is 0 in a book of one shard.
func (s *Store) Shard() ledger.ShardID { return s.genesis.Shard }

// ShardTree returns the tree of the book's shards as of the head, or nil if the book has only one
// shard. It is read-only: after the addition of a shard, ShardTree returns another tree.
func (s *Store) ShardTree() *ledger.ShardTree {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.ShardTree()
}

// HomeShard returns the shard that holds an organisation's accounts and records, as of the head.
func (s *Store) HomeShard(name ledger.OrganisationName) ledger.ShardID {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.HomeShard(name)
}

// DecidedAt returns the shard whose chain gives the outcome of a client's transaction that not all
// shards execute: the home of its signer, the shard that a cancellation or a schedule names, or the
// home of the account whose terms it changes, which a guardian of another shard may sign. If the
// home is lost, it is another shard that the transaction concerns.
func (s *Store) DecidedAt(t *ledger.Transaction) ledger.ShardID {
	if c := t.Cancellation; c != nil && int(c.Shard) < s.BookShards() {
		return c.Shard
	}
	if keeper, keeps := t.Keeper(); keeps && int(keeper) < s.BookShards() {
		return keeper
	}
	decides := t.Signer
	if t.Account != nil {
		decides = t.Account.Account.Organisation()
	}
	home := s.HomeShard(decides)
	if !s.Lost(home) {
		return home
	}
	for _, other := range s.ShardTree().Destinations(t, s) {
		if !s.Lost(other) {
			return other
		}
	}
	return home
}

// BundleEntry returns the shard where a bundle enters, as of the head.
func (s *Store) BundleEntry(bundle *ledger.Bundle) ledger.ShardID {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.BundleEntry(bundle)
}

// Carried returns the number of the last entry of the parent shard's stream in the chain, or 0 if
// there is none.
func (s *Store) Carried() uint64 {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Carried()
}

// Streamed returns the number of the last entry of the stream to a child shard, or 0 if there is
// none.
func (s *Store) Streamed(child ledger.ShardID) uint64 {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Streamed(child)
}

// Stream returns entries of the stream to a child shard, in order, starting with number from. It
// returns only entries of blocks up to the height upTo, at most limit entries or MaxStreamPage, and
// at most some MB except for a first entry. The result is empty if the stream has no such entry
// yet. The numbers of a stream that ended and began again have a gap, and Stream returns nothing
// beyond it. Entries given to a child must never be taken back, so upTo must be a height that a
// majority of the members have on disk. Stream returns ErrAbsent if an entry is in a block that is
// not here, because the store began with a snapshot; other members have it. Once the block is
// filled in, its entries are here, too. If the snapshot was taken over by a version that did not do
// so, they are here once Unindexed is 0.
func (s *Store) Stream(child ledger.ShardID, from uint64, limit int,
	upTo ledger.Height) ([]ledger.Carried, error) {
	s.mutex.RLock()
	last, closed := s.legEnd(child, max(from, 1)), s.closed
	s.mutex.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	var carried []ledger.Carried
	size := 0
	for number := max(from, 1); number <= last &&
		len(carried) < min(max(limit, 1), MaxStreamPage) && size < maxStreamBytes; number++ {
		where, err := s.forward(child, number)
		if err != nil {
			return nil, err
		}
		if where.height > upTo {
			break
		}
		block, err := s.Block(where.height)
		if err != nil {
			return nil, err
		}
		if int(where.index) >= len(block.Bundles) {
			return nil, damaged(where.height, "entry %d of the stream to shard %d points to "+
				"bundle %d of %d", number, child, where.index, len(block.Bundles))
		}
		bundle := block.CarriedBundle(int(where.index))
		carried, size = append(carried, ledger.Carried{Number: number, Bundle: bundle}),
			size+len(bundle)
	}
	return carried, nil
}

// forward returns the place of an entry of the stream to a child.
func (s *Store) forward(child ledger.ShardID, number uint64) (position, error) {
	s.mutex.RLock()
	where, found := s.unwritten.forward(child, number)
	s.mutex.RUnlock()
	if found {
		return where, nil
	}
	return s.readForward(child, number)
}

func (s *Store) readForward(child ledger.ShardID, number uint64) (where position, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	err = s.view(func(transaction *badger.Txn) error {
		where, err = findPlace(transaction, streamKey(child, number))
		if errors.Is(err, errMissing) && s.Unindexed() > 0 {
			return s.errUnindexed(fmt.Sprintf("entry %d of the stream to shard %d", number, child))
		}
		if err != nil || where.height > height {
			return damaged(height, "entry %d of the stream to shard %d: %v", number, child, err)
		}
		return nil
	})
	return where, err
}

// findPlace reads a stream row, a carried row or a settlement row.
func findPlace(transaction *badger.Txn, key []byte) (position, error) {
	value, err := get(transaction, key)
	if err != nil {
		return position{}, err
	}
	return decodePlace(value)
}

func streamKey(child ledger.ShardID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{rowStream},
		uint32(child)), number)
}

func carriedKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{rowCarried}, number)
}

func settledKey(id ledger.Hash) []byte { return append([]byte{rowSettled}, id[:]...) }

const placeSize = 8 + 4

func appendPlace(to []byte, height ledger.Height, index uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(to, uint64(height)), index)
}

func decodePlace(value []byte) (position, error) {
	if len(value) != placeSize {
		return position{}, errRow
	}
	return position{height: ledger.Height(binary.BigEndian.Uint64(value)),
		index: binary.BigEndian.Uint32(value[8:])}, nil
}

// shardRows passes the rows of a block that concern other shards to put.
func shardRows(block *ledger.Block, changes *state.Changes, put putRow) error {
	height := block.Header.Height
	for i := range block.Bundles {
		if number := block.Bundles[i].Number; number != 0 {
			if err := put("carried", carriedKey(number),
				appendPlace(nil, height, uint32(i))); err != nil {
				return err
			}
		}
	}
	for _, forward := range changes.Forwards {
		if err := put("stream", streamKey(forward.Child, forward.Number),
			appendPlace(nil, height, forward.Bundle)); err != nil {
			return err
		}
	}
	for _, settlement := range changes.Settlements {
		if foundByID(block, &settlement) {
			continue
		}
		if err := put("settled", settledKey(settlement.ID),
			appendPlace(nil, height, settlement.Index)); err != nil {
			return err
		}
	}
	return nil
}

// setAside is the result of a good verdict.
var setAside = ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}

// foundByID reports whether the verdict that ends a wait is found without a row, by its own id. The
// id of a good verdict follows from the transaction and the shard. A bad one has a reason, too.
func foundByID(block *ledger.Block, settlement *state.Settlement) bool {
	// A book of several shards has no packed bundles, so Unpacked has all transactions.
	end := &block.Unpacked[settlement.Index]
	return settlement.Applied && end.Transaction().Verdict.Result == setAside
}

// Pending returns the cross-shard transactions that wait for other shards as of the head, ordered
// by their place in the chain.
func (s *Store) Pending() []state.Pending {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.AllPending()
}

// OldestPending returns the cross-shard transaction with the lowest place among those that wait for
// other shards as of the head, and the time of its block. It reports whether there is one. It takes
// the same time however many wait, and needs no more of the block than its header.
func (s *Store) OldestPending() (oldest state.Pending, since ledger.Milliseconds, waits bool,
	err error) {
	s.mutex.RLock()
	oldest, waits = s.state.OldestPending()
	s.mutex.RUnlock()
	if !waits {
		return state.Pending{}, 0, false, nil
	}
	header, _, err := s.Header(oldest.Height)
	if err != nil {
		return state.Pending{}, 0, false, fmt.Errorf("oldest waiting transaction: %w", err)
	}
	return oldest, header.Time, true, nil
}

// PendingCount returns the number of cross-shard transactions that wait for other shards as of the
// head.
func (s *Store) PendingCount() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.PendingCount()
}

// WaitingFor returns the number of transactions that wait for the verdict of another shard as of
// the head, of at most state.MaxWaiting.
func (s *Store) WaitingFor(shard ledger.ShardID) int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.WaitingFor(shard)
}

// Standing returns the standing of a verdict as of the head.
func (s *Store) Standing(verdict *ledger.Verdict) (verdicts.Standing, error) {
	s.mutex.RLock()
	awaited, takes := s.state.Awaits(verdict), s.state.TakesVerdict(verdict)
	s.mutex.RUnlock()
	switch {
	case awaited:
		return verdicts.Awaited, nil
	case !takes:
		return verdicts.Early, nil
	}
	known, err := s.Known(verdict.ID)
	if err != nil || !known {
		return verdicts.Early, err
	}
	// The transaction's block may have been appended between the two checks.
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return verdicts.StandingOf(s.state.Awaits(verdict), known), nil
}

// Verdict returns this shard's verdict on a transaction, for another shard that asks, or its word
// that an organisation has left with a move, whose id is asked for then. made is false
// if there is none: the transaction is not in a block up to upTo, concerned only this shard, or
// passed through. As for Stream, upTo must be a height that a majority of the members have on disk,
// because another shard acts irrevocably on a verdict. A store that began with a snapshot knows the
// verdicts in absent blocks from their outlines. So none that another shard needs is lost when
// members that have the blocks leave. Verdict returns ErrAbsent for others (answerAbsent), and if
// the snapshot came from a version without outlines.
func (s *Store) Verdict(id ledger.Hash, asks ledger.ShardID, upTo ledger.Height) (
	verdict ledger.Verdict, made bool, err error) {
	height, entry, absent, err := s.result(id)
	if errors.Is(err, ErrNotFound) {
		return s.departure(id, asks, upTo)
	}
	if err != nil || height > upTo {
		return ledger.Verdict{}, false, err
	}
	return s.answer(entry, height, asks, absent)
}

// Outcome is the outcome of a transaction, as far as this shard's chain has it.
type Outcome uint8

// The outcomes.
const (
	// TookEffect: the transaction was applied.
	TookEffect Outcome = iota
	// Refused: this shard or another one refused the transaction, and it changed nothing.
	Refused
	// Waiting: this shard has set its part aside and waits for other shards.
	Waiting
	// PassedThrough: the transaction concerns only other shards, and their chains have the outcome.
	PassedThrough
)

// Crossing is a transaction's way through this shard.
type Crossing struct {
	Found
	// Destinations are the shards that the transaction concerns, in ascending order.
	Destinations []ledger.ShardID
	Outcome      Outcome
	// Waits are the shards whose verdicts, or testimonies about a lost shard, are awaited. Said are
	// those whose good verdicts are in the chain. Both are empty if the transaction does not wait.
	Waits, Said []ledger.ShardID
	// Settled is the verdict that ended the wait. It is nil if there was no wait, or if it has not
	// ended.
	Settled *Found
}

// Crossing returns a transaction's way through this shard, as of the head. The transaction may
// concern this shard alone. Crossing returns ErrNotFound if it is not in the chain.
func (s *Store) Crossing(id ledger.Hash) (Crossing, error) {
	found, err := s.Transaction(id)
	if err != nil {
		return Crossing{}, err
	}
	crossing := Crossing{Found: found, Destinations: s.destinations(found), Outcome: Refused}
	switch found.Entry.Result.Code {
	case ledger.Applied, ledger.Settled, ledger.Released:
		crossing.Outcome = TookEffect
	case ledger.Relayed:
		crossing.Outcome = PassedThrough
	case ledger.SetAside:
		return s.crossingOf(id, crossing)
	}
	return crossing, nil
}

// crossingOf completes the Crossing of a transaction that was set aside.
func (s *Store) crossingOf(id ledger.Hash, crossing Crossing) (Crossing, error) {
	s.mutex.RLock()
	waiting, waits := s.state.Pending(id)
	s.mutex.RUnlock()
	if waits {
		crossing.Outcome, crossing.Said = Waiting, waiting.Said
		crossing.Waits = waiting.WaitsFor(s.genesis.Shard)
		return crossing, nil
	}
	settled, err := s.settlement(id, crossing.Destinations)
	if err != nil {
		return Crossing{}, err
	}
	crossing.Settled = &settled
	if settled.Entry.Result.Code == ledger.Settled {
		crossing.Outcome = TookEffect
	}
	return crossing, nil
}

// settlement returns the verdict that ended a transaction's wait.
func (s *Store) settlement(id ledger.Hash, destinations []ledger.ShardID) (Found, error) {
	if settled, found, err := s.settledByID(id, destinations); found || err != nil {
		return settled, err
	}
	where, err := s.settledAt(id)
	if err != nil {
		return Found{}, err
	}
	settled, err := s.at(where)
	if err != nil {
		return Found{}, err
	}
	if verdict := settled.Entry.Transaction().Verdict; verdict == nil || verdict.ID != id {
		return Found{}, damaged(where.height, "transaction %d should have ended the wait of %s",
			where.index, id)
	}
	return settled, nil
}

// settledByID looks for the good verdict that ended a transaction's wait, among those of all other
// destinations.
func (s *Store) settledByID(id ledger.Hash, destinations []ledger.ShardID) (settled Found,
	found bool, err error) {
	for _, shard := range destinations {
		if shard == s.genesis.Shard {
			continue
		}
		verdict := ledger.Verdict{ID: id, Shard: shard, Result: setAside}.Entry(s.book)
		where, known, err := s.locate(verdict.ID)
		if err != nil {
			return Found{}, false, err
		}
		if !known {
			continue
		}
		if settled, err = s.at(where); err != nil {
			return Found{}, false, err
		}
		if settled.Entry.Result.Code == ledger.Settled {
			return settled, true, nil
		}
	}
	return Found{}, false, nil
}

// settledAt looks up the row of the verdict that ended a transaction's wait. Stores of earlier
// versions have rows of all such verdicts, later ones of those that are not found by their ids.
func (s *Store) settledAt(id ledger.Hash) (where position, err error) {
	s.mutex.RLock()
	height := s.head.Header.Height
	where, found := s.unwritten.settlement(id)
	s.mutex.RUnlock()
	if found {
		return where, nil
	}
	defer guard(height, &err)
	err = s.view(func(transaction *badger.Txn) error {
		where, err = findPlace(transaction, settledKey(id))
		if errors.Is(err, errMissing) && s.Unindexed() > 0 {
			return s.errUnindexed(fmt.Sprintf("the end of the wait of %s", id))
		}
		if err != nil {
			return damaged(height, "the end of the wait of %s: %v", id, err)
		}
		return nil
	})
	return where, err
}

// OwnVerdicts returns this shard's verdicts in the block at a height, in the order of their
// transactions, each with the other shards that wait for it. They are read-only. It returns the
// errors of Block.
func (s *Store) OwnVerdicts(height ledger.Height) ([]state.OwnVerdict, error) {
	s.mutex.RLock()
	pending, closed := s.unwritten.at(height), s.closed
	s.mutex.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if pending != nil {
		return pending.changes.Verdicts, nil
	}
	block, err := s.Block(height)
	if err != nil {
		return nil, err
	}
	return s.ownVerdictsIn(block), nil
}

// ownVerdictsIn finds this shard's verdicts in a block that was executed long ago.
func (s *Store) ownVerdictsIn(block *ledger.Block) (own []state.OwnVerdict) {
	for index, entry := range block.All() {
		verdict, made := ledger.VerdictOf(entry, s.genesis.Shard)
		if !made {
			continue
		}
		others := slices.DeleteFunc(s.Destinations(block, index), func(shard ledger.ShardID) bool {
			return shard == s.genesis.Shard
		})
		if len(others) > 0 {
			own = append(own, state.OwnVerdict{Verdict: verdict, To: others})
		}
	}
	return own
}

// Destinations returns the shards that a transaction concerns, in ascending order. It is the one at
// an index of a block of this chain. Destinations reads nothing from the disk.
func (s *Store) Destinations(block *ledger.Block, index int) []ledger.ShardID {
	entry := block.Entry(index)
	return s.destinations(Found{Height: block.Header.Height, Index: index, Entry: &entry,
		Block: block})
}

// destinations returns the shards that a transaction concerns, given the directory at its place.
func (s *Store) destinations(found Found) []ledger.ShardID {
	transaction := found.Entry.Transaction()
	tree := s.ShardTree()
	if tree == nil || transaction.Change != nil || transaction.Verdict != nil ||
		transaction.Arrival != nil {
		return []ledger.ShardID{s.genesis.Shard}
	}
	directory := directoryAt{s, found}
	return transaction.AppendDestinations(nil, s.shardsAt(found.Height),
		func(name ledger.OrganisationName) ledger.ShardID { return tree.Home(name, directory) })
}

// directoryAt is the directory at a transaction's place.
type directoryAt struct {
	store *Store
	place Found
}

// Organisation returns an organisation that was registered before the place.
func (d directoryAt) Organisation(name ledger.OrganisationName) (ledger.Organisation, bool) {
	organisation, known := d.store.Organisation(name)
	if moves := d.store.Moves(name); known && len(moves) > 0 {
		organisation.Pinned = true
		for i := len(moves) - 1; i >= 0 && d.place.Height <= moves[i].Height; i-- {
			organisation.Shard = moves[i].From
		}
	}
	switch {
	case !known || organisation.Registered > d.place.Height:
		return ledger.Organisation{}, false
	case organisation.Registered < d.place.Height:
		return organisation, true
	}
	registers := func(entry ledger.Entry) bool {
		return entry.Result.OK() && slices.ContainsFunc(entry.Transaction().Registrations,
			func(r ledger.Registration) bool {
				return r.Name == name
			})
	}
	// A book of several shards has no packed bundles, so Unpacked has all transactions.
	return organisation, slices.ContainsFunc(d.place.Block.Unpacked[:d.place.Index], registers)
}

// sealShard seals a round of a book with several shards. It holds the mutex, because the state must
// not change meanwhile.
func (s *Store) sealShard(epoch ledger.Epoch, round ledger.Round,
	batches []*ledger.VerifiedBatch) (*state.Draft, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var lookup error
	parent := s.head
	parent.Members = s.state.Membership
	draft := s.state.Seal(parent, epoch, round, batches, func(id ledger.Hash,
		transaction *ledger.Transaction) bool {
		if s.unseen(id, transaction) {
			return false
		}
		where, found := s.unwritten.find(id)
		if !found {
			var err error
			if where, found, err = s.locateWritten(s.head.Header.Height, id); err != nil &&
				lookup == nil {
				lookup = err
			}
		}
		return found && where.kind != indexBlock
	})
	return draft, lookup
}

// verifyShard checks that look-ups find the stream entries and ends of waits that a block made, and
// the entries of the parent's stream in it unless an earlier version wrote the block.
// Ends of waits that are found by their ids are checked with the index.
func (s *Store) verifyShard(transaction *badger.Txn, block *ledger.Block,
	crossings *state.Crossings) error {
	height := block.Header.Height
	if crossings.OutOfPlace > 0 {
		return damaged(height, "%d of its transactions are out of place", crossings.OutOfPlace)
	}
	for i := range block.Bundles {
		number := block.Bundles[i].Number
		if number == 0 {
			continue
		}
		if where, err := findPlace(transaction, carriedKey(number)); !errors.Is(err, errMissing) &&
			(err != nil || where != position{height: height, index: uint32(i)}) {
			return damaged(height, "entry %d of the stream from above is not found", number)
		}
	}
	for _, forward := range crossings.Forwards {
		if where, err := findPlace(transaction, streamKey(forward.Child, forward.Number)); err !=
			nil || where != (position{height: height, index: forward.Bundle}) {
			return damaged(height, "entry %d of the stream to shard %d is not found",
				forward.Number, forward.Child)
		}
	}
	for _, settlement := range crossings.Settlements {
		if foundByID(block, &settlement) {
			continue
		}
		if where, err := findPlace(transaction, settledKey(settlement.ID)); err != nil ||
			where != (position{height: height, index: settlement.Index}) {
			return damaged(height, "the end of the wait of %s is not found", settlement.ID)
		}
	}
	return nil
}
