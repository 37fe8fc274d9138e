package verdicts

import (
	"container/list"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// awaitedSet is awaitedVerdicts of which each is proposed again only after a pause.
type awaitedSet struct {
	byID map[ledger.Hash][]*list.Element
	// fresh holds those never proposed, in the order of their arrival. proposed holds the others,
	// in the order of their last proposal.
	fresh, proposed list.List
}

// awaited is an element of the lists.
type awaited struct {
	verdict  ledger.Verdict
	proposed time.Duration // or never
}

func newAwaitedSet() *awaitedSet { return &awaitedSet{byID: map[ledger.Hash][]*list.Element{}} }

func (s *awaitedSet) len() int { return s.fresh.Len() + s.proposed.Len() }

func (s *awaitedSet) has(key Key) bool {
	for _, element := range s.byID[key.ID] {
		if element.Value.(*awaited).verdict.Shard == key.Shard {
			return true
		}
	}
	return false
}

func (s *awaitedSet) add(verdict ledger.Verdict) {
	s.byID[verdict.ID] = append(s.byID[verdict.ID], s.fresh.PushBack(&awaited{verdict, never}))
}

func (s *awaitedSet) displace(*ledger.Verdict) bool { return false }

func (s *awaitedSet) remove(key Key) {
	elements := s.byID[key.ID]
	for i, element := range elements {
		if element.Value.(*awaited).verdict.Shard != key.Shard {
			continue
		}
		s.unlink(element)
		if len(elements) == 1 {
			delete(s.byID, key.ID)
			return
		}
		elements[i] = elements[len(elements)-1]
		s.byID[key.ID] = elements[:len(elements)-1]
		return
	}
}

func (s *awaitedSet) removeAll(id ledger.Hash) {
	for _, element := range s.byID[id] {
		s.unlink(element)
	}
	delete(s.byID, id)
}

func (s *awaitedSet) of(id ledger.Hash) (verdicts []ledger.Verdict) {
	for _, element := range s.byID[id] {
		verdicts = append(verdicts, element.Value.(*awaited).verdict)
	}
	return verdicts
}

func (s *awaitedSet) unlink(element *list.Element) {
	if element.Value.(*awaited).proposed == never {
		s.fresh.Remove(element)
	} else {
		s.proposed.Remove(element)
	}
}

// propose returns at most the given number of verdicts: first those whose last proposal was at
// least patience ago, then fresh ones.
func (s *awaitedSet) propose(most int, now time.Duration, patience time.Duration) []ledger.Verdict {
	var verdicts []ledger.Verdict
	for len(verdicts) < most {
		from := &s.proposed
		if !s.due(now, patience) {
			from = &s.fresh
		}
		element := from.Front()
		if element == nil {
			break
		}
		// The element moves to another list, so the index must point to the new one.
		a := from.Remove(element).(*awaited)
		a.proposed = now
		moved := s.proposed.PushBack(a)
		for i, indexed := range s.byID[a.verdict.ID] {
			if indexed == element {
				s.byID[a.verdict.ID][i] = moved
			}
		}
		verdicts = append(verdicts, a.verdict)
	}
	return verdicts
}

// due reports whether a verdict was proposed long enough ago to be proposed again.
func (s *awaitedSet) due(now time.Duration, patience time.Duration) bool {
	at, waits := s.again(patience)
	return waits && now >= at
}

func (s *awaitedSet) pending(now time.Duration, patience time.Duration) bool {
	return s.fresh.Len() > 0 || s.due(now, patience)
}

func (s *awaitedSet) again(patience time.Duration) (at time.Duration, waits bool) {
	oldest := s.proposed.Front()
	if oldest == nil {
		return 0, false
	}
	return oldest.Value.(*awaited).proposed + patience, true
}

func (s *awaitedSet) transactions(visit func(ledger.Hash)) {
	for id := range s.byID {
		visit(id)
	}
}

func (s *awaitedSet) drain() []ledger.Verdict {
	var verdicts []ledger.Verdict
	for _, from := range []*list.List{&s.proposed, &s.fresh} {
		for element := from.Front(); element != nil; element = element.Next() {
			verdicts = append(verdicts, element.Value.(*awaited).verdict)
		}
		from.Init()
	}
	clear(s.byID)
	return verdicts
}

// earlySet keeps verdicts that arrived before their transactions. At its bound it drops the oldest.
// It is not safe for concurrent use.
type earlySet struct {
	bound int
	byID  map[ledger.Hash][]*list.Element
	order list.List
}

func newEarlySet(bound int) *earlySet {
	return &earlySet{bound: bound, byID: map[ledger.Hash][]*list.Element{}}
}

func (s *earlySet) len() int { return s.order.Len() }

func (s *earlySet) has(key Key) bool {
	for _, element := range s.byID[key.ID] {
		if element.Value.(ledger.Verdict).Shard == key.Shard {
			return true
		}
	}
	return false
}

// add adds a verdict that is not in the set.
func (s *earlySet) add(verdict ledger.Verdict) {
	for s.order.Len() >= s.bound {
		oldest := s.order.Front()
		id := oldest.Value.(ledger.Verdict).ID
		s.order.Remove(oldest)
		// A transaction's elements are in the order of their arrival, so the oldest of all is its
		// first.
		if s.byID[id] = s.byID[id][1:]; len(s.byID[id]) == 0 {
			delete(s.byID, id)
		}
	}
	s.byID[verdict.ID] = append(s.byID[verdict.ID], s.order.PushBack(verdict))
}

// take removes and returns the verdicts on a transaction.
func (s *earlySet) take(id ledger.Hash) []ledger.Verdict {
	elements := s.byID[id]
	if len(elements) == 0 {
		return nil
	}
	verdicts := make([]ledger.Verdict, len(elements))
	for i, element := range elements {
		verdicts[i] = s.order.Remove(element).(ledger.Verdict)
	}
	delete(s.byID, id)
	return verdicts
}

// drain empties the set and returns its verdicts.
func (s *earlySet) drain() []ledger.Verdict {
	verdicts := make([]ledger.Verdict, 0, s.order.Len())
	for element := s.order.Front(); element != nil; element = element.Next() {
		verdicts = append(verdicts, element.Value.(ledger.Verdict))
	}
	s.order.Init()
	clear(s.byID)
	return verdicts
}

// recentSet remembers the most recently added keys, up to a bound, with a result for each.
type recentSet struct {
	bound int
	known map[Key]ledger.Result
	order []Key // a ring once it is full
	next  int
}

func newRecentSet(bound int) *recentSet {
	return &recentSet{bound: bound, known: map[Key]ledger.Result{}}
}

func (s *recentSet) has(key Key) bool {
	_, known := s.known[key]
	return known
}

// get returns the result of a key.
func (s *recentSet) get(key Key) (result ledger.Result, known bool) {
	result, known = s.known[key]
	return result, known
}

func (s *recentSet) add(key Key) { s.put(key, ledger.Result{}) }

// put is add with a result. The result of a known key stays.
func (s *recentSet) put(key Key, result ledger.Result) {
	if s.has(key) {
		return
	}
	if len(s.order) < s.bound {
		s.order = append(s.order, key)
	} else {
		delete(s.known, s.order[s.next])
		s.order[s.next], s.next = key, (s.next+1)%s.bound
	}
	s.known[key] = result
}

// remove drops a key. Its place in the order stays, so the key may be dropped early if it is added
// again.
func (s *recentSet) remove(key Key) { delete(s.known, key) }

func (s *recentSet) clear() {
	clear(s.known)
	s.order, s.next = s.order[:0], 0
}
