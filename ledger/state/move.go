package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// An organisation moves to another shard (ledger.OrganisationMove). All shards learn of it at one
// place of their common order, so from there on they agree on its new home. What it has follows:
//
//	old home   what the organisation has is frozen from the move on, except for what waiting
//	           transactions settle there. Once none of them has a part of it, the organisation has
//	           departed, and each member tells the new home what the arrivals are (departure.go).
//	new home   the departure, believed as a verdict is, names the first arrival, and each arrival
//	           the next one (arrival.go). Until the last one is in the chain, transactions that
//	           concern the organisation are refused there (ledger.OrganisationMoving).
//	others     only remember the move, to answer questions on transactions before it (AnswersTo).
//
// What always holds:
//
//   - An organisation's entries count in one shard: the one with its latest arrival, or else its
//     first home. The others have entries that are frozen, and never change again.
//   - Nonces that were used, and cancellations, come along. So what was applied or cancelled at an
//     old home is not applied at a new one.
//   - An organisation never returns to a shard where it lived, so nothing arrives twice.
//   - A transaction that is executed in all of its shards before the move is not settled by shards
//     that execute a copy of it after the move: AnswersTo refuses it to those that were not among
//     its shards.

// move is a move of an organisation. Each shard has an entry for each.
type move struct {
	number       uint64
	organisation ledger.OrganisationName
	from, to     ledger.ShardID
	// height and index are the place of the move in this chain.
	height ledger.Height
	index  uint32
	// next is the id of the next arrival, at the new home. It is zero before the departure and
	// after the last arrival, which is in the block at the height arrived. It is the id of the move
	// if nothing ever arrives.
	next    ledger.Hash
	arrived ledger.Height
	// withdrawn are the cancellations of the organisation at the time of the move, at the old home.
	withdrawn []withdrawn
	mark      mark
}

// withdrawn is a cancellation that moves.
type withdrawn struct {
	id       ledger.Hash
	deadline ledger.Milliseconds
}

// maxWithdrawn bounds the cancellations that move: those that an organisation may have at each of
// its homes.
const maxWithdrawn = MaxCancelled * ledger.MaxShards

// moves are the moves so far.
type moves struct {
	// all are ordered by number, of those of one organisation are in of.
	all []*move
	of  map[ledger.OrganisationName][]*move
	// coming are the moves to this shard whose last arrival is not in the chain, by number.
	coming  map[uint64]*move
	touched []*move
}

func newMoves() moves {
	return moves{of: make(map[ledger.OrganisationName][]*move), coming: make(map[uint64]*move)}
}

// add adds a move. It is the one with the greatest number, or the caller sorts all afterwards.
func (m *moves) add(added *move, shard ledger.ShardID) {
	m.all = append(m.all, added)
	m.of[added.organisation] = append(m.of[added.organisation], added)
	if added.to == shard && added.arrived == 0 {
		m.coming[added.number] = added
	}
}

// attemptMove decides on a move. It depends only on the directory, so all shards decide alike.
func (s *State) attemptMove(m *ledger.OrganisationMove) ledger.Result {
	found := s.organisations[m.Organisation]
	switch {
	case found == nil:
		return whole(ledger.UnknownOrganisation)
	case int(m.To) >= s.tree.Shards():
		return whole(ledger.UnknownShard)
	case s.Lost(m.To), s.Lost(found.home):
		return whole(ledger.ShardLost)
	case found.home == m.To:
		return whole(ledger.OrganisationHome)
	}
	for _, each := range s.moves.of[m.Organisation] {
		if each.from == m.To {
			return whole(ledger.OrganisationHome)
		}
	}
	return applied
}

// moveOrganisation makes a move that attemptMove allowed.
func (s *State) moveOrganisation(number uint64, change *ledger.OrganisationMove) {
	found := s.organisations[change.Organisation]
	if !found.mark.touched {
		found.mark = s.keep(found.appendEntry)
		s.touchedOrganisations = append(s.touchedOrganisations, found)
	}
	made := &move{number: number, organisation: found.Name, from: found.home, to: change.To,
		height: s.height, index: s.index, mark: mark{touched: true}}
	found.Pinned, found.Shard, found.home = true, change.To, change.To
	if made.from == s.shard {
		made.withdrawn = s.withdrawnBy(found.Name)
		s.freezeHolds(found.Name)
		s.freezeDetails(found.Name)
	}
	s.moves.add(made, s.shard)
	s.moves.touched = append(s.moves.touched, made)
}

// HasMoves reports whether any organisation ever moved.
func (s *State) HasMoves() bool { return len(s.moves.all) > 0 }

// hasMoved reports whether an organisation ever moved.
func (s *State) hasMoved(name ledger.OrganisationName) bool { return len(s.moves.of[name]) > 0 }

// IsComing reports whether an organisation is on its way to this shard, which is its home.
func (s *State) IsComing(name ledger.OrganisationName) bool { return s.isComing(name) }

// isComing reports whether an organisation whose home is this shard has not arrived. Few ever move.
func (s *State) isComing(name ledger.OrganisationName) bool {
	if len(s.moves.coming) == 0 || s.fault == FaultArrivedEarly {
		return false
	}
	last := s.lastMove(name)
	return last != nil && last.to == s.shard && last.arrived == 0 && !s.isEndless(last)
}

func (s *State) lastMove(name ledger.OrganisationName) *move {
	of := s.moves.of[name]
	if len(of) == 0 {
		return nil
	}
	return of[len(of)-1]
}

// isEndless reports whether the organisation of a move to this shard can never arrive: the
// operators settled with the shard that it was coming from, or that one has said so, because the
// organisation never arrived there either.
func (s *State) isEndless(m *move) bool {
	return m.arrived == 0 && (s.Lost(m.from) || m.next == ledger.MoveID(s.ledger, m.number))
}

// isStranded reports whether an organisation whose home is this shard can never arrive. It does not
// live here without what it had before: its nonces would be fresh again.
func (s *State) isStranded(name ledger.OrganisationName) bool {
	last := s.lastMove(name)
	return last != nil && last.to == s.shard && s.isEndless(last) && s.fault != FaultStrandedLives
}

// IsStranded reports whether an organisation whose home is this shard never arrives, because a
// shard that it was coming from is lost.
func (s *State) IsStranded(name ledger.OrganisationName) bool { return s.isStranded(name) }

// concernsStranded reports whether a transaction concerns such an organisation. The chain need not
// have the loss yet: another shard may have said that nothing arrives.
func (s *State) concernsStranded(t *ledger.Transaction) bool {
	if len(s.moves.all) == 0 {
		return false
	}
	for name := range t.Organisations() {
		if s.isStranded(name) {
			return true
		}
	}
	return false
}

// strand stops waiting for organisations that can never arrive.
func (s *State) strand() {
	for number, each := range s.moves.coming {
		if s.isEndless(each) {
			delete(s.moves.coming, number)
		}
	}
}

// ConcernsComing reports whether a transaction concerns an organisation that is on its way here.
func (s *State) ConcernsComing(t *ledger.Transaction) bool { return s.concernsComing(t) }

// concernsComing is ConcernsComing. Changes of the directory go on.
func (s *State) concernsComing(t *ledger.Transaction) bool {
	if len(s.moves.coming) == 0 {
		return false
	}
	for name := range t.Organisations() {
		if s.isComing(name) {
			return true
		}
	}
	return false
}

// HomeAt returns the home of an organisation as it was for the transactions of a block of this
// chain.
func (s *State) HomeAt(name ledger.OrganisationName, height ledger.Height) ledger.ShardID {
	if s.tree == nil {
		return 0
	}
	return s.homeAt(name, height)
}

// homeAt is HomeAt in a book of several shards. A change of the book is the last of its block, it
// counts only for later blocks.
func (s *State) homeAt(name ledger.OrganisationName, height ledger.Height) ledger.ShardID {
	for _, each := range s.moves.of[name] {
		if height <= each.height {
			return each.from
		}
	}
	return s.HomeShard(name)
}

// DestinationsAt returns the shards that a transaction in a block of this chain concerned there.
func (s *State) DestinationsAt(t *ledger.Transaction, height ledger.Height) []ledger.ShardID {
	if s.tree == nil {
		return []ledger.ShardID{0}
	}
	return t.AppendDestinations(nil, s.tree.Shards(),
		func(name ledger.OrganisationName) ledger.ShardID { return s.homeAt(name, height) })
}

// AnswersTo returns what this shard answers to a shard that waits for its verdict on an entry of a
// block of this chain, and whether it has an answer. Without moves that is the verdict that it
// gave.
//
// A shard that was not among those that the transaction concerned here waits all the same if a copy
// of the transaction reached it after a move. Then this shard has decided together with others,
// without that one, and never executes the copy. So the answer is a refusal: its own if it refused,
// or else ledger.StaleNonce. Of an agreement that holds also while this chain does not have the
// move yet, because it is behind. If the transaction concerned other shards only, or this one
// alone, then each shard that waits is such a stranger.
func (s *State) AnswersTo(entry *ledger.Entry, height ledger.Height, asks ledger.ShardID) (
	verdict ledger.Verdict, answers bool) {
	verdict, answers = ledger.VerdictOf(entry, s.shard)
	t := entry.Transaction()
	switch {
	case answers && !verdict.Good(), !answers && len(s.moves.all) == 0,
		t.Verdict != nil, t.Change != nil, t.Arrival != nil,
		answers && has(s.DestinationsAt(t, height), asks), s.fault == FaultAnsweredToStrangers:
		return verdict, answers
	}
	return s.refusesStranger(entry.ID), true
}

// MovedBefore reports whether a transaction concerns an organisation that ever moved. A verdict of
// another shard on it may not be one for this shard; see AnswersTo.
func (s *State) MovedBefore(t *ledger.Transaction) bool {
	if len(s.moves.all) == 0 {
		return false
	}
	for name := range t.Organisations() {
		if s.hasMoved(name) {
			return true
		}
	}
	return false
}

// Move is a move of an organisation, as clients see it.
type Move struct {
	// Number is that of the change of the book.
	Number       uint64
	Organisation ledger.OrganisationName
	From, To     ledger.ShardID
	// Height and Index are the place of the move in this chain.
	Height ledger.Height
	Index  uint32
	// Arrived is the height of the block with the last arrival, at the new home. It is 0 in other
	// shards.
	Arrived ledger.Height
}

// Moves returns all moves, by number.
func (s *State) Moves() []Move {
	all := make([]Move, len(s.moves.all))
	for i, each := range s.moves.all {
		all[i] = each.public()
	}
	return all
}

// MovesOf returns the moves of an organisation, by number.
func (s *State) MovesOf(name ledger.OrganisationName) (of []Move) {
	for _, each := range s.moves.of[name] {
		of = append(of, each.public())
	}
	return of
}

func (m *move) public() Move {
	return Move{Number: m.number, Organisation: m.organisation, From: m.from, To: m.to,
		Height: m.height, Index: m.index, Arrived: m.arrived}
}

// Holds returns which of an organisation's entries in this shard count, if any do, compared to
// other shards: those of the shard with the greatest number do. It is the number of the move with
// which the organisation arrived here, or 0 in its first home.
func (s *State) Holds(name ledger.OrganisationName) (number uint64, holds bool) {
	of := s.moves.of[name]
	if len(of) == 0 {
		return 0, s.HomeShard(name) == s.shard
	}
	if of[0].from == s.shard {
		return 0, true
	}
	for _, each := range of {
		if each.to == s.shard {
			return each.number, each.arrived > 0
		}
	}
	return 0, false
}

// LivesHere reports whether an organisation's home is this shard, and it has arrived.
func (s *State) LivesHere(name ledger.OrganisationName) bool {
	of := s.moves.of[name]
	return len(of) == 0 || s.HomeShard(name) == s.shard && of[len(of)-1].arrived > 0
}

// Coming returns the moves to this shard whose last arrival is not in the chain, by number, and the
// id of the next arrival of each. It is zero before the departure is known.
func (s *State) Coming() (coming []Move, next []ledger.Hash) {
	for _, each := range s.moves.all {
		if s.moves.coming[each.number] != nil {
			coming, next = append(coming, each.public()), append(next, each.next)
		}
	}
	return coming, next
}

func (s *State) touchMove(m *move) {
	if m.mark.touched {
		return
	}
	m.mark = s.keep(m.appendEntry)
	s.moves.touched = append(s.moves.touched, m)
}

// finishMoves collects the changes of moves.
func (s *State) finishMoves(changes *Changes) {
	for _, each := range s.moves.touched {
		s.settle(changes, each.mark, each.appendEntry)
		each.mark = mark{}
	}
	s.moves.touched = s.moves.touched[:0]
}

// appendEntry appends the entry: the organisation's name after its length, the shards, the place,
// the next arrival, the height of the last one, and the cancellations.
func (m *move) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint64(append(to, kindMove), m.number), 0)
	keyLength = len(to) - start
	to = binary.AppendUvarint(to, uint64(len(m.organisation)))
	to = append(to, m.organisation...)
	to = binary.AppendUvarint(to, uint64(m.from))
	to = binary.AppendUvarint(to, uint64(m.to))
	to = binary.AppendUvarint(to, uint64(m.height))
	to = binary.AppendUvarint(to, uint64(m.index))
	to = append(to, m.next[:]...)
	to = binary.AppendUvarint(to, uint64(m.arrived))
	to = binary.AppendUvarint(to, uint64(len(m.withdrawn)))
	for i := range m.withdrawn {
		to = append(to, m.withdrawn[i].id[:]...)
		to = binary.AppendUvarint(to, uint64(m.withdrawn[i].deadline))
	}
	return to, keyLength
}

// restoreMove puts the entry of a move into the state. It reports whether there was one already.
func (s *State) restoreMove(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != 1+8+1 || s.tree == nil {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	m := &move{number: binary.BigEndian.Uint64(key[1:]),
		organisation: ledger.OrganisationName(strings.Clone(string(r.organisationName()))),
		from:         r.shard(), to: r.shard(), height: ledger.Height(r.Uvarint()),
		index: r.Uvarint32("index"), next: r.Hash(), arrived: ledger.Height(r.Uvarint())}
	if count := r.Count("cancellations", maxWithdrawn, ledger.HashSize+1); count > 0 {
		m.withdrawn = make([]withdrawn, count)
		for i := range m.withdrawn {
			m.withdrawn[i] = withdrawn{r.Hash(), ledger.Milliseconds(r.Uvarint())}
		}
	}
	again = slices.ContainsFunc(s.moves.all, func(o *move) bool { return o.number == m.number })
	if !again && r.Err == nil {
		s.moves.add(m, s.shard)
	}
	return m, again, nil
}

// sortRestoredMoves orders moves that were restored in any order.
func (s *State) sortRestoredMoves() {
	order := func(a, b *move) int {
		if a.number < b.number {
			return -1
		}
		return 1
	}
	slices.SortFunc(s.moves.all, order)
	for _, of := range s.moves.of {
		slices.SortFunc(of, order)
	}
	s.strand()
}
