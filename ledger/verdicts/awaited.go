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

func (s *awaitedSet) add(verdict ledger.Verdict) {
	s.byID[verdict.ID] = append(s.byID[verdict.ID], s.fresh.PushBack(&awaited{verdict, never}))
}

func (s *awaitedSet) displace(*ledger.Verdict) (Key, bool) { return Key{}, false }

func (s *awaitedSet) remove(key Key) {
	elements := s.byID[key.ID]
	for i, element := range elements {
		if KeyOf(&element.Value.(*awaited).verdict) != key {
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

func (s *awaitedSet) each(visit func(*ledger.Verdict)) {
	for _, from := range []*list.List{&s.proposed, &s.fresh} {
		for element := from.Front(); element != nil; element = element.Next() {
			visit(&element.Value.(*awaited).verdict)
		}
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
