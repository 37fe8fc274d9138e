package store

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Organisations that move from this shard or to it; see ledger/state and docs/design/moves.md.
//
// At a place of the chain an organisation's accounts are those of the shard where it lives there,
// so all shards agree on whose they are (a cut has the move before the places of all shards or of
// none). A new home reads them as they arrived for every place between the move and the arrival,
// because nothing changes them meanwhile. Before the arrival it answers ErrNotYet.

// MaxMoved bounds the entries of an organisation that operators may move. A member packs up to
// twice as many, since there may be more by the time of the move.
const MaxMoved = 1_000_000

// Moves returns the moves of an organisation, by number.
func (s *Store) Moves(name ledger.OrganisationName) []state.Move {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.MovesOf(name)
}

// HasMoves reports whether any organisation ever moved.
func (s *Store) HasMoves() bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.HasMoves()
}

// AllMoves returns all moves, by number.
func (s *Store) AllMoves() []state.Move {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Moves()
}

// Coming returns the moves to this shard whose last arrival is not in the chain, by number, and the
// id of the next arrival of each, or zero.
func (s *Store) Coming() (coming []state.Move, next []ledger.Hash) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Coming()
}

// MovesUnderWay returns all moves and Coming, both as of one block.
func (s *Store) MovesUnderWay() (all, coming []state.Move, next []ledger.Hash) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	coming, next = s.state.Coming()
	return s.state.Moves(), coming, next
}

// Holds returns which of an organisation's entries in this shard count; see State.Holds.
func (s *Store) Holds(name ledger.OrganisationName) (number uint64, holds bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Holds(name)
}

// Awaiting returns what to ask other shards for: the transactions that wait for their verdicts, and
// the departures of organisations that are on their way here, with the ids of their moves.
func (s *Store) Awaiting() []state.Pending {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return append(s.state.AllPending(), s.state.AwaitedDepartures()...)
}

// AwaitingCount returns how many Awaiting returns.
func (s *Store) AwaitingCount() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.PendingCount() + len(s.state.AwaitedDepartures())
}

// MovedBefore reports whether a transaction that waits concerns an organisation that ever moved.
func (s *Store) MovedBefore(t *ledger.Transaction) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.MovedBefore(t)
}

// ConcernsComing reports whether a transaction concerns an organisation that is on its way here.
func (s *Store) ConcernsComing(t *ledger.Transaction) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.ConcernsComing(t)
}

// IsComing reports whether an organisation is on its way to this shard, which is its home.
func (s *Store) IsComing(name ledger.OrganisationName) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.IsComing(name)
}

// HomeAt returns the home of an organisation as it was for the transactions of a block.
func (s *Store) HomeAt(name ledger.OrganisationName, height ledger.Height) ledger.ShardID {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.HomeAt(name, height)
}

// LivesHere reports whether an organisation's home is this shard as of the head, and it has
// arrived.
func (s *Store) LivesHere(name ledger.OrganisationName) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.LivesHere(name)
}

// IsStranded reports whether an organisation whose home is this shard never arrives, because a
// shard that it was coming from is lost.
func (s *Store) IsStranded(name ledger.OrganisationName) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.IsStranded(name)
}

// livesHere reports whether an organisation's home is this shard at a place, and all that it has is
// here or still comes. An account of an organisation that never moved is here because that lives
// here. What a part of the arrivals brought of one that never arrives is not.
func (s *Store) livesHere(name ledger.OrganisationName, place Place) bool {
	moves := s.Moves(name)
	if len(moves) == 0 {
		return true
	}
	if homeAtPlace(moves, place) != s.genesis.Shard {
		return false
	}
	for i := range moves {
		if moves[i].To == s.genesis.Shard {
			return moves[i].Arrived > 0
		}
	}
	return true // it is the first home
}

// HomeAtPlace returns the home of an organisation at a place of this chain.
func (s *Store) HomeAtPlace(name ledger.OrganisationName, place Place) ledger.ShardID {
	moves := s.Moves(name)
	if len(moves) == 0 {
		return s.HomeShard(name)
	}
	return homeAtPlace(moves, place)
}

// homeAtPlace is HomeAtPlace, given the moves of the organisation.
func homeAtPlace(moves []state.Move, place Place) ledger.ShardID {
	home := moves[0].From
	for i := range moves {
		if place.Has(moves[i].Height, moves[i].Index) {
			home = moves[i].To
		}
	}
	return home
}

// cameWith reports whether an account arrived with its organisation.
func (s *Store) cameWith(account *ledger.Account) bool {
	for _, each := range s.Moves(account.Path.Organisation()) {
		if each.To == s.genesis.Shard {
			return account.Opened <= each.Arrived
		}
	}
	return false
}

// NeverDeparts reports whether an organisation that is to move on from this shard never will; see
// State.NeverDeparts.
func (s *Store) NeverDeparts(number uint64) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.NeverDeparts(number)
}

// neverDeparts reports whether that is so with a block up to a height.
func (s *Store) neverDeparts(number uint64, upTo ledger.Height) bool {
	s.mutex.RLock()
	never, head := s.state.NeverDeparts(number), s.head.Header.Height
	s.mutex.RUnlock()
	if !never {
		return false
	}
	at, _ := s.stuck.LoadOrStore(number, head)
	return at.(ledger.Height) <= upTo
}

// pack makes the arrivals of a move. It takes long if the organisation has much.
func (s *Store) pack(number uint64) ([]*ledger.Bundle, error) {
	s.mutex.RLock()
	var name ledger.OrganisationName
	for _, each := range s.state.Departures() {
		if each.Number == number {
			name = each.Organisation
		}
	}
	entries, records := s.state.Leaves(number, func() {
		s.mutex.RUnlock() // blocks go on
		s.mutex.RLock()
	})
	s.mutex.RUnlock()
	for i := range records {
		if s.closing.Load() {
			return nil, ErrClosed
		}
		value, err := s.recordAt(records[i].Key, records[i].RecordPlace)
		if err != nil {
			return nil, err
		}
		entries = append(entries, state.MovedRecordEntry(records[i].Key, value.Value))
	}
	for after := ledger.AccountPath(name + ":"); ; {
		if s.closing.Load() {
			return nil, ErrClosed
		}
		accounts, err := s.Accounts(after, accountsPage)
		if err != nil {
			return nil, err
		}
		for i := range accounts {
			if accounts[i].Path.Organisation() != name {
				accounts = accounts[:i]
				break
			}
			entries = append(entries, state.MovedAccountEntry(&accounts[i]))
			after = accounts[i].Path
		}
		if len(entries) > 2*MaxMoved {
			return nil, fmt.Errorf("organisation %s has more than %d entries", name, 2*MaxMoved)
		}
		if len(accounts) < accountsPage {
			break
		}
	}
	arrivals, _, err := state.Arrivals(s.genesis.Book(), number, entries, ledger.ArrivalBytes)
	return arrivals, err
}

// recordAt returns the value of a record at its place, which is a transaction or an arrival.
func (s *Store) recordAt(key ledger.RecordKey, place state.RecordPlace) (RecordValue, error) {
	where, err := s.at(position{height: place.Height, index: place.Index})
	if err != nil {
		return RecordValue{}, err
	}
	value, holds := recordIn(where.Entry.Transaction(), key, place.Item)
	if !holds || sha256.Sum256(value) != place.Digest {
		return RecordValue{}, damaged(place.Height, "transaction %d does not hold record %s",
			place.Index, key)
	}
	return RecordValue{Value: value, Height: place.Height, Index: int(place.Index),
		ID: where.Entry.ID}, nil
}

// recordIn returns the value of a record that is item of a transaction or of an arrival.
func recordIn(t *ledger.Transaction, key ledger.RecordKey, item uint32) (value []byte, holds bool) {
	if t.Arrival != nil {
		if int(item) >= len(t.Arrival.Entries) {
			return nil, false
		}
		return state.MovedRecordValue(&t.Arrival.Entries[item], key)
	}
	if int(item) >= len(t.Records) || t.Records[item].Key != key {
		return nil, false
	}
	return t.Records[item].Value, true
}

// answer returns the verdict on an entry for a shard that asks; see State.AnswersTo.
func (s *Store) answer(entry *ledger.Entry, height ledger.Height, asks ledger.ShardID,
	absent bool) (verdict ledger.Verdict, made bool, err error) {
	if absent {
		return s.answerAbsent(entry, height, asks)
	}
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	verdict, made = s.state.AnswersTo(entry, height, asks)
	return verdict, made, nil
}

// answerAbsent is answer for an entry of an absent block; see state.AnswersAbsent.
func (s *Store) answerAbsent(entry *ledger.Entry, height ledger.Height, asks ledger.ShardID) (
	verdict ledger.Verdict, made bool, err error) {
	s.mutex.RLock()
	verdict, made, open := s.state.AnswersAbsent(entry, asks)
	s.mutex.RUnlock()
	if !open {
		return verdict, made, nil
	}
	verdict, made, err = state.AnswerOfChain(verdict, s.book, asks, s.BookShards(), s.Known,
		s.settled)
	if err == nil && !made {
		err = s.errAbsent(height)
	}
	return verdict, made, err
}

// settled reports whether a verdict of another shard made its transaction take effect. It needs no
// more of the blocks than their outlines.
func (s *Store) settled(verdict ledger.Hash) (bool, error) {
	_, entry, _, err := s.result(verdict)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return entry.Result.Code == ledger.Settled, nil
}
