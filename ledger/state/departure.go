package state

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// An organisation departs once no waiting transaction has a part of it in its old home: then its
// entries never change again. So each member makes the same arrivals of them, at any later block,
// and no entry of the chain is needed for that. What is only executed may be lost, so a member
// tells the new home only what follows from durable blocks.

// Departed reports whether an organisation has left this shard with a move: it had arrived here
// before, and no waiting transaction has a part of it.
func (s *State) Departed(number uint64) bool {
	m := s.moveOf(number)
	if m == nil || m.from != s.shard {
		return false
	}
	if _, holds := s.Holds(m.organisation); !holds {
		return false
	}
	if s.fault == FaultDepartedEarly {
		return true
	}
	for entry := s.pending.oldest; entry != nil && entry.height <= m.height; entry = entry.after {
		if entry.concerns(m.organisation) {
			return false
		}
	}
	// Also a transaction without a part may void a hold, or bring a key or a refund.
	return !s.endsHolds(m.organisation) && !s.detailsWait(m.organisation)
}

// NeverDeparts reports whether an organisation that is to move on from this shard never will: it
// did not arrive here, and never does. Its next home has to know.
func (s *State) NeverDeparts(number uint64) bool {
	m := s.moveOf(number)
	return m != nil && m.from == s.shard && s.fault != FaultNeverTold &&
		slices.ContainsFunc(s.moves.of[m.organisation],
			func(each *move) bool { return each.to == s.shard && s.isEndless(each) })
}

// Departures returns the moves away from this shard, by number, whether they have departed or not.
func (s *State) Departures() (away []Move) {
	for _, each := range s.moves.all {
		if each.from == s.shard {
			away = append(away, each.public())
		}
	}
	return away
}

// moveOf returns the move with a number, or nil.
func (s *State) moveOf(number uint64) *move {
	at, found := slices.BinarySearchFunc(s.moves.all, number, func(m *move, number uint64) int {
		if m.number < number {
			return -1
		}
		return int(min(m.number-number, 1))
	})
	if !found {
		return nil
	}
	return s.moves.all[at]
}

// concerns reports whether a waiting transaction has set a part of an organisation aside.
func (p *pending) concerns(name ledger.OrganisationName) bool {
	return slices.ContainsFunc(p.parts, func(each part) bool {
		return each.account.Organisation() == name
	}) || slices.ContainsFunc(p.records, func(each pendingRecord) bool {
		return each.key.Organisation() == name
	})
}

// withdrawnBy returns the cancellations of an organisation that this shard remembers, by id.
func (s *State) withdrawnBy(name ledger.OrganisationName) (all []withdrawn) {
	for key, each := range s.cancelled.by {
		if key.by == name {
			all = append(all, withdrawn{key.id, each.deadline})
		}
	}
	slices.SortFunc(all, func(a, b withdrawn) int { return bytes.Compare(a.id[:], b.id[:]) })
	return all
}

// withdrawnLater takes the cancellations that arrived with a move along to the next home, if the
// organisation is to move on: it cannot have departed before its arrival.
func (s *State) withdrawnLater(arrived *move) {
	for _, each := range s.moves.of[arrived.organisation] {
		if each.number > arrived.number && each.from == s.shard {
			s.touchMove(each)
			each.withdrawn = s.withdrawnBy(each.organisation)
		}
	}
}

// MovedRecord is a record of an organisation that departed.
type MovedRecord struct {
	Key ledger.RecordKey
	RecordPlace
}

// Leaves returns what an organisation that departed takes along, besides its accounts, which may be
// cold, and the values of its records, which the state does not have. Both are in no particular
// order. It searches all windows and records (Searched), which takes long if there are many. So it
// calls pause every now and then, and the state may change meanwhile: what departed does not.
func (s *State) Leaves(number uint64, pause func()) (entries []ledger.MovedEntry,
	records []MovedRecord) {
	m := s.moveOf(number)
	if m == nil {
		return nil, nil
	}
	add := func(each entry) {
		encoded, keyLength := each.appendEntry(nil)
		entries = append(entries, ledger.MovedEntry{Key: encoded[:keyLength:keyLength],
			Value: encoded[keyLength:]})
	}
	for i := range m.withdrawn {
		add(&cancelled{withdrawal: withdrawal{m.withdrawn[i].id, m.organisation},
			deadline: m.withdrawn[i].deadline})
	}
	searched := 0
	count := func() {
		if searched++; searched%searchedPart == 0 {
			pause()
		}
	}
	s.issuancesOf(m.organisation, func(each movedIssuance) { add(&each) })
	s.heldBy(m.organisation, func(each *held) { add(each) })
	s.detailsOf(m.organisation, func(each *detail) { add(each) })
	// A loop over a map meets each entry once that is there all the time, whatever else changes.
	for key, each := range s.windows {
		if key.organisation == m.organisation {
			add(each)
		}
		count()
	}
	for key, each := range s.records {
		if key.Organisation() == m.organisation {
			records = append(records, MovedRecord{key, each.RecordPlace})
		}
		count()
	}
	return entries, records
}

// searchedPart is how many entries Leaves searches between two pauses: some 0.2 ms.
const searchedPart = 1 << 10

// Searched returns how many entries Leaves searches.
func (s *State) Searched() int { return len(s.windows) + len(s.records) }

// Arrivals makes the arrivals of a move from all that the organisation takes along: what Leaves
// returns, with the values of the records, and the entries of its accounts. It sorts the entries.
// Size is as in ledger.PackArrivals.
func Arrivals(book ledger.Hash, number uint64, entries []ledger.MovedEntry, size int) (
	[]*ledger.Bundle, ledger.Hash, error) {
	slices.SortFunc(entries, func(a, b ledger.MovedEntry) int {
		return bytes.Compare(a.Key, b.Key)
	})
	return ledger.PackArrivals(book, number, entries, size)
}

// MovedRecordEntry returns the entry of a record that moves, with its value.
func MovedRecordEntry(key ledger.RecordKey, value []byte) ledger.MovedEntry {
	return ledger.MovedEntry{Key: append(append([]byte{kindRecord}, key...), 0), Value: value}
}

// MovedAccountEntry returns the entry of an account that moves. What is set aside of it is in the
// entries of its holds.
func MovedAccountEntry(moved *ledger.Account) ledger.MovedEntry {
	a := account{path: moved.Path, number: moved.Number, issuer: moved.Issuer,
		opened: moved.Opened, history: moved.History}
	a.setRare(moved.Alias, nil)
	a.setStanding(moved.Standing)
	for i := range moved.Balances {
		a.insert(i, moved.Balances[i].Asset)
		a.balances[i].amount = moved.Balances[i].Settled()
	}
	encoded, keyLength := a.appendEntry(nil)
	return ledger.MovedEntry{Key: encoded[:keyLength:keyLength], Value: encoded[keyLength:]}
}

// MovedCancellation returns the cancellation that an entry that moves is of, if it is of one.
func MovedCancellation(e *ledger.MovedEntry) (id ledger.Hash, by ledger.OrganisationName,
	deadline ledger.Milliseconds, is bool) {
	if e.Key[0] != kindCancelled || len(e.Key) < 1+ledger.HashSize+2 {
		return id, "", 0, false
	}
	copy(id[:], e.Key[1:])
	r := read(e.Value)
	return id, ledger.OrganisationName(e.Key[1+ledger.HashSize : len(e.Key)-1]),
		ledger.Milliseconds(r.Uvarint()), true
}

// MovedHold returns the hold that an entry that moves is of, if it is of one.
func MovedHold(e *ledger.MovedEntry) (moved Held, is bool, err error) {
	if e.Key[0] != kindHold {
		return Held{}, false, nil
	}
	decoded, err := read(e.Value).hold(e.Key)
	if err != nil {
		return Held{}, true, err
	}
	return decoded.public(), true, nil
}

// MovedBalances returns the balances in an entry that moves, if it is of an account.
func MovedBalances(e *ledger.MovedEntry) (balances []ledger.Balance, is bool, err error) {
	if !IsAccountKey(e.Key) {
		return nil, false, nil
	}
	moved, names := account{path: AccountOfKey(e.Key)}, assetNames{}
	if err := moved.decode(e.Value, &names); err != nil {
		return nil, true, err
	}
	return moved.copy().Balances, true, nil
}

// MovedRecordValue returns the value in an entry that moves, if it is of this record.
func MovedRecordValue(e *ledger.MovedEntry, key ledger.RecordKey) (value []byte, is bool) {
	if len(e.Key) < 3 || e.Key[0] != kindRecord || string(e.Key[1:len(e.Key)-1]) != string(key) {
		return nil, false
	}
	return e.Value, true
}
