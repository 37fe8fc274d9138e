package state

import (
	"crypto/sha256"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// The departure of an organisation is believed as a verdict is, and names the first arrival. Each
// arrival names the next one. So the chain takes exactly those that the old home made, in order,
// and nobody has to vouch for them. An account gets a number of this chain, and its history begins
// anew. A record's value is in the block with the arrival.

// awaitsDeparture returns the move that waits for a departure, or nil.
func (s *State) awaitsDeparture(verdict *ledger.Verdict) *move {
	number, _ := verdict.MoveOf()
	if m := s.moves.coming[number]; m != nil && m.from == verdict.Shard &&
		m.next == (ledger.Hash{}) {
		return m
	}
	return nil
}

// AwaitedDepartures returns the departures that this shard waits for, as if they were transactions
// with the ids of the moves.
func (s *State) AwaitedDepartures() (waiting []Pending) {
	for _, each := range s.moves.all {
		if s.moves.coming[each.number] != nil && each.next == (ledger.Hash{}) {
			waiting = append(waiting, Pending{Departure: true,
				ID: ledger.MoveID(s.ledger, each.number), Height: each.height, Index: each.index,
				Waits: []ledger.ShardID{each.from}})
		}
	}
	return waiting
}

// applyDeparture takes the old home's word on what the arrivals are.
func (s *State) applyDeparture(verdict *ledger.Verdict) ledger.Result {
	m := s.awaitsDeparture(verdict)
	if m == nil {
		return whole(ledger.OutOfPlace)
	}
	s.touchMove(m)
	m.next = verdict.ID
	s.strand()
	return applied
}

// nextArrival returns the id of the next arrival of a move, or zero if none may come.
func (s *State) nextArrival(number uint64) ledger.Hash {
	if m := s.moves.coming[number]; m != nil {
		return m.next
	}
	return ledger.Hash{}
}

// applyArrival takes over some of an organisation's entries.
func (s *State) applyArrival(t *ledger.Transaction, id ledger.Hash) ledger.Result {
	a := t.Arrival
	if t.Ledger != s.ledger || id != s.nextArrival(a.Move) || id == (ledger.Hash{}) {
		return whole(ledger.OutOfPlace)
	}
	m := s.moves.coming[a.Move]
	taken, err := m.read(a)
	if err != nil || !s.takesIssuances(taken.issued) || !s.takesHolds(taken) ||
		!s.takesDetails(taken.details) {
		// A majority of the old home's members made it.
		return whole(ledger.OutOfPlace)
	}
	s.counter++
	s.takeOver(taken, m.number)
	s.touchMove(m)
	if m.next = a.Next; a.Next == (ledger.Hash{}) {
		m.arrived = s.height
		delete(s.moves.coming, m.number)
		s.withdrawnLater(m)
	}
	return applied
}

// arriving is what an arrival brings.
type arriving struct {
	accounts  []*account
	windows   []*window
	withdrawn []cancelled
	records   []record
	issued    []movedIssuance
	held      []*held
	details   []*detail
}

// read decodes the entries of an arrival. All have to be the organisation's.
func (m *move) read(a *ledger.Arrival) (*arriving, error) {
	all, names := new(arriving), new(assetNames)
	for i := range a.Entries {
		key, value := a.Entries[i].Key, a.Entries[i].Value
		owner := ledger.OrganisationName("")
		r := read(value)
		switch {
		case IsAccountKey(key):
			each := &account{path: AccountOfKey(key)}
			each.restore(r, names)
			owner = each.path.Organisation()
			all.accounts = append(all.accounts, each)
		case key[0] == kindWindow:
			from := read(key[1:])
			each := r.window(from)
			if err := from.End(); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrEntry, err)
			}
			owner = each.organisation
			all.windows = append(all.windows, each)
		case key[0] == kindCancelled && len(key) > 1+ledger.HashSize+1:
			each := cancelled{deadline: ledger.Milliseconds(r.Uvarint())}
			copy(each.id[:], key[1:])
			owner = ledger.OrganisationName(key[1+ledger.HashSize : len(key)-1])
			each.by = owner
			all.withdrawn = append(all.withdrawn, each)
		case key[0] == kindRecord && len(key) > 2:
			each := record{key: ledger.RecordKey(key[1 : len(key)-1])}
			each.Digest, each.Item = sha256.Sum256(value), uint32(i)
			owner = each.key.Organisation()
			r.Take(len(value))
			all.records = append(all.records, each)
		case key[0] == kindHold:
			each, err := r.hold(key)
			if err != nil {
				return nil, err
			}
			if each.ending != (ledger.Hash{}) {
				return nil, fmt.Errorf("%w: hold %s of an arrival is ending", ErrEntry, each.ID)
			}
			owner = each.From.Organisation()
			all.held = append(all.held, each)
		case key[0] == kindKey || key[0] == kindRefundable:
			each, err := r.detail(key)
			if err != nil {
				return nil, err
			}
			if each.waits != (ledger.Hash{}) {
				return nil, fmt.Errorf("%w: entry %x of an arrival waits", ErrEntry, key)
			}
			owner = each.of
			all.details = append(all.details, each)
		case key[0] == kindIssuance:
			each := r.movedIssuance(key, value)
			owner = each.by
			all.issued = append(all.issued, each)
		}
		if owner != m.organisation || r.End() != nil {
			return nil, fmt.Errorf("%w: entry %x of an arrival of %s", ErrEntry, key,
				m.organisation)
		}
	}
	return all, nil
}

// takeOver adds what arrives with a move. It never was in this shard before.
func (s *State) takeOver(all *arriving, move uint64) {
	for _, each := range all.accounts {
		s.opened++
		created := s.accounts.add(s.keptPath(each.path))
		created.number, created.issuer, created.opened = s.opened, each.issuer, s.height
		created.setRare(each.alias(), nil)
		if s.fault != FaultTermsLeft {
			created.setStanding(each.standing())
		}
		if each.standing() != nil {
			s.setAlias(created.path, created.alias(), created.path)
		}
		for i := range each.balances {
			created.insert(i, s.assetNames.kept(each.balances[i].asset))
			created.balances[i].amount = each.balances[i].amount
		}
		created.mark = mark{touched: true}
		s.touchedAccounts = append(s.touchedAccounts, created)
		counts := s.count(created.path.Organisation())
		counts.Accounts++
		counts.Assets += created.pairs()
	}
	for _, each := range all.windows {
		if s.fault == FaultNoncesLeft {
			break
		}
		each.mark = mark{touched: true}
		s.windows[windowKey{each.organisation, each.stream}] = each
		s.touchedWindows = append(s.touchedWindows, each)
		s.use(each.organisation).Streams++
	}
	for i := range all.issued {
		if s.fault != FaultIssuedLeft {
			s.takeIssuance(&all.issued[i], move)
		}
	}
	for _, each := range all.held {
		each.mark = mark{touched: true}
		s.addHold(each)
		s.held.touched = append(s.held.touched, each)
		p := each.outgoing(each.Amount)
		s.changeHold(s.find(each.From), &p, false)
	}
	for _, each := range all.details {
		s.addDetail(each)
	}
	for i := range all.withdrawn {
		each := &all.withdrawn[i]
		s.remember(withdrawal{each.id, each.by}, each.deadline)
	}
	for i := range all.records {
		each := &all.records[i]
		s.writeRecord(each.key, RecordPlace{Height: s.height, Index: s.index, Item: each.Item,
			Digest: each.Digest})
	}
}

// isNext reports whether an arrival is the next one of its move, at the present place of a draft.
func (s *sealing) isNext(a *ledger.Arrival, id *ledger.Hash) bool {
	next, begun := s.arrivals[a.Move]
	if !begun {
		next = s.state.nextArrival(a.Move)
	}
	return *id == next && next != (ledger.Hash{}) && s.state.hasIssuers(a)
}

// early reports whether a client's bundle concerns an organisation that is on its way here before
// the draft. It enters by a later round.
func (s *sealing) early(proposal *ledger.Proposal) bool {
	if len(s.state.moves.coming) == 0 || proposal.Err != nil || proposal.Packed() {
		return false
	}
	for i := range proposal.Len() {
		if s.state.concernsComing(proposal.Transaction(i)) {
			return true
		}
	}
	return false
}
