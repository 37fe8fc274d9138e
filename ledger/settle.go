package ledger

import "cmp"

// comparePlaces returns -1, 0 or 1 as the first place in a chain comes before the second, is it, or
// comes after it.
func comparePlaces(aHeight Height, aIndex uint32, bHeight Height, bIndex uint32) int {
	return cmp.Or(cmp.Compare(aHeight, bHeight), cmp.Compare(aIndex, bIndex))
}

// applyVerdict notes what another shard says of a transaction that waits, and settles the
// transaction where nothing more is missing: it takes effect when all have said that their parts
// are good, and is released as soon as one has said that its is not.
func (s *State) applyVerdict(verdict *Verdict) Result {
	s.counter++
	if !s.Awaits(verdict) {
		return Result{OutOfPlace, NoItem}
	}
	found := s.pending.byID[verdict.ID]
	if !verdict.Good() {
		s.release(found.entry)
		s.settled(found, false)
		return Result{Released, NoItem}
	}
	s.touchSlot(found)
	found.entry.wait(verdict.Shard).said = true
	s.pending.waiting[verdict.Shard]--
	for _, each := range found.entry.waits {
		if !each.said {
			return applied
		}
	}
	s.takeEffect(found.entry)
	s.settled(found, true)
	return Result{Settled, NoItem}
}

func (s *State) settled(found *slot, tookEffect bool) {
	s.settlements = append(s.settlements, Settlement{ID: found.entry.id, Index: s.index,
		Applied: tookEffect})
	s.removePending(found)
}

// release gives back what a transaction has set aside.
func (s *State) release(entry *pending) {
	for i := range entry.parts {
		s.changeHold(s.accounts[entry.parts[i].account], &entry.parts[i], true)
	}
}

// takeEffect does what a transaction has set aside. It cannot fail: that is what setting aside is
// for. An amount that goes was held back from everything since, one that comes has its room. A
// record keeps the value with the greatest place, as if the transaction had been applied at its own
// ("The Duplicate Database Problem", Thomas' write rule, 1975).
func (s *State) takeEffect(entry *pending) {
	for i := range entry.parts {
		p := &entry.parts[i]
		found := s.accounts[p.account]
		s.touchAccount(found)
		s.changeHold(found, p, true)
		found.move(p)
		s.countHistory(found)
	}
	for i := range entry.records {
		written := &entry.records[i]
		s.writeRecord(written.key, RecordPlace{Height: entry.height, Index: entry.index,
			Item: written.item, Digest: written.digest})
	}
}

// move changes the balance by what a part asks for.
func (a *account) move(p *part) {
	if p.net.Sign() == 0 {
		return
	}
	place, has := a.find(p.asset)
	if !has {
		a.Balances = append(a.Balances, Balance{})
		copy(a.Balances[place+1:], a.Balances[place:])
		a.Balances[place] = Balance{Asset: p.asset}
	}
	after, err := a.Balances[place].Amount.Add(p.net)
	if err != nil || len(a.Balances) > MaxAssets {
		panic("ledger: what was set aside does not fit into " + string(a.Path))
	}
	a.Balances[place].Amount = after
}
