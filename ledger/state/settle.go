package state

import (
	"cmp"

	"github.com/ledgerd/ledgerd/ledger"
)

// comparePlaces returns -1, 0 or 1 if the first place in a chain is before, equal to or after the
// second.
func comparePlaces(aHeight ledger.Height, aIndex uint32, bHeight ledger.Height, bIndex uint32) int {
	return cmp.Or(cmp.Compare(aHeight, bHeight), cmp.Compare(aIndex, bIndex))
}

// applyVerdict records another shard's verdict on a waiting transaction. The transaction takes
// effect when all other shards have given a good verdict, and is released on the first bad one.
func (s *State) applyVerdict(verdict *ledger.Verdict) ledger.Result {
	if verdict.Result.Code == ledger.Departed {
		return s.applyDeparture(verdict)
	}
	s.counter++
	found, awaited := s.awaits(verdict)
	if awaited == nil {
		return whole(ledger.OutOfPlace)
	}
	if testimony, is := verdict.Testimony(); is {
		return s.applyTestimony(found, awaited, verdict.Shard, testimony,
			verdict.Result.Code == ledger.HeardAgreement)
	}
	if !verdict.Good() {
		s.release(found.entry)
		s.settled(found, false)
		return whole(ledger.Released)
	}
	return s.agrees(found, awaited)
}

// agrees notes that a shard agrees to a transaction, which takes effect if it was the last one.
func (s *State) agrees(found *slot, awaited *wait) ledger.Result {
	s.touchSlot(found)
	s.countWaits(found.entry, -1)
	awaited.said = true
	s.countWaits(found.entry, 1)
	for _, each := range found.entry.waits {
		if !each.said {
			return applied
		}
	}
	s.takeEffect(found.entry)
	s.settled(found, true)
	return whole(ledger.Settled)
}

func (s *State) settled(found *slot, tookEffect bool) {
	s.settlements = append(s.settlements, Settlement{ID: found.entry.id, Index: s.index,
		Applied: tookEffect})
	s.removePending(found)
}

// release takes back the holds of a transaction.
func (s *State) release(entry *pending) {
	for i := range entry.parts {
		s.changeHold(s.find(entry.parts[i].account), &entry.parts[i], true)
	}
	s.goOn(entry.id)
	s.dropDetails(entry.id)
}

// takeEffect applies the parts of a transaction that were set aside. It cannot fail, because
// setting aside has kept each outgoing amount from all later transactions and reserved room for
// each incoming amount. A record keeps the value with the greatest place, as if the transaction had
// been applied at its own place ("The Duplicate Database Problem", Thomas' write rule, 1975).
func (s *State) takeEffect(entry *pending) {
	for i := range entry.parts {
		p := &entry.parts[i]
		found := s.find(p.account)
		s.touchAccount(found)
		s.changeHold(found, p, true)
		before, owed := found.pairs(), found.owes(p.asset)
		found.move(p, s.assetsMax)
		if s.fault == FaultAppliedTwice {
			found.move(p, s.assetsMax)
		}
		s.countIssuance(found, p.asset, owed)
		s.count(found.path.Organisation()).Assets += found.pairs() - before
		s.countHistory(found)
	}
	s.endAfter(entry.id)
	s.settleDetails(entry.id)
	for i := range entry.records {
		written := &entry.records[i]
		s.writeRecord(written.key, RecordPlace{Height: entry.height, Index: entry.index,
			Item: written.item, Digest: written.digest})
	}
}

// move adds the net amount of a part to the balance of an account that may have so many assets.
func (a *account) move(p *part, most int) {
	if p.net.Sign() == 0 {
		return
	}
	place, has := a.find(p.asset)
	if !has {
		a.insert(place, p.asset)
	}
	after, err := a.balances[place].amount.Add(p.net)
	if err != nil || len(a.balances) > most {
		panic("ledger: what was set aside does not fit into " + string(a.path))
	}
	a.balances[place].amount = after
}
