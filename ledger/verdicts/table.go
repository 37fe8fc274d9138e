package verdicts

import "github.com/ledgerd/ledgerd/ledger"

// A table has what a member knows about each verdict, in one place. A verdict is looked at several
// times between the first word on it and its block: each look takes one look-up. A table has no
// pointers, which the garbage collector would follow, and uses its memory again.

// index is the place of a fact in a table, or of a word in a wordSet. 0 stands for none.
type index int32

// fact is what a member knows about one verdict. It is dropped once it is in none of the sets,
// and no group watches it.
type fact struct {
	key Key
	// next is another fact on the same transaction.
	next index
	// words is the first word on the verdict, if there are words that wait for others.
	words index
	// believed and settled are places in the rings of these sets, or 0.
	believed, settled index
	// believedAs and earlyAs are the results in these sets.
	believedAs, earlyAs ledger.Result
	// before and after are the neighbours among the early verdicts.
	before, after  index
	early, awaited bool
	// again says that a departure that was believed before is to be judged again, so that a member
	// that repeats it takes no further room.
	again bool
	// watch is the slot of the first group that watches the verdict, or 0.
	watch index
}

// held reports whether the verdict is in a set.
func (f *fact) held() bool {
	return f.words != 0 || f.believed != 0 || f.settled != 0 || f.early || f.awaited
}

// table is the facts by their keys. It is not safe for concurrent use.
type table struct {
	// first has the first fact on each transaction, the one that is known for longest. Members of
	// other shards that lie choose the ids, so the key is the whole id and not a part of it.
	first map[ledger.Hash]index
	// facts begins with one that is none. unused is the first of those not in use, linked by next.
	facts  []fact
	unused index
}

func newTable() table { return table{first: map[ledger.Hash]index{}, facts: make([]fact, 1)} }

// find returns the place of a fact, or 0.
func (t *table) find(key Key) index {
	at := t.first[key.ID]
	for at != 0 && t.facts[at].key != key {
		at = t.facts[at].next
	}
	return at
}

// get returns a fact, or one that is in no set. It is valid until the next call of need.
func (t *table) get(key Key) *fact { return &t.facts[t.find(key)] }

// need returns the place of a fact, and makes it if there is none. The caller puts it into a set.
func (t *table) need(key Key) index {
	last := index(0)
	first, known := t.first[key.ID]
	for at := first; at != 0; at = t.facts[at].next {
		if t.facts[at].key == key {
			return at
		}
		last = at
	}
	made := t.unused
	if made != 0 {
		t.unused = t.facts[made].next
		t.facts[made] = fact{key: key}
	} else {
		made = index(len(t.facts))
		t.facts = append(t.facts, fact{key: key})
	}
	if known {
		t.facts[last].next = made
	} else {
		t.first[key.ID] = made
	}
	return made
}

// release drops a fact that is in no set.
func (t *table) release(at index) {
	f := &t.facts[at]
	if at == 0 || f.held() || f.watch != 0 {
		return
	}
	switch before := t.first[f.key.ID]; {
	case before != at:
		for t.facts[before].next != at {
			before = t.facts[before].next
		}
		t.facts[before].next = f.next
	case f.next != 0:
		t.first[f.key.ID] = f.next
	default:
		delete(t.first, f.key.ID)
	}
	f.next, t.unused = t.unused, at
}

// ring remembers the facts that were added to a set last, up to a bound.
type ring struct {
	bound int
	// places has the facts in the order of their arrival, 0 for those that were removed. Once it
	// has as many as the bound, next is the oldest.
	places []index
	next   int
	// of returns a fact's place in places, counted from 1.
	of func(*fact) *index
}

// add adds a fact that is not in the set.
func (r *ring) add(t *table, at index) {
	if len(r.places) < r.bound {
		r.places = append(r.places, at)
		*r.of(&t.facts[at]) = index(len(r.places))
		return
	}
	place := r.next
	r.next = (place + 1) % r.bound
	r.drop(t, place)
	r.places[place] = at
	*r.of(&t.facts[at]) = index(place + 1)
}

// drop removes the fact at a place of the ring, if there is one.
func (r *ring) drop(t *table, place int) {
	if at := r.places[place]; at != 0 {
		*r.of(&t.facts[at]), r.places[place] = 0, 0
		t.release(at)
	}
}

// remove removes a fact if it is in the set.
func (r *ring) remove(t *table, at index) {
	if place := *r.of(&t.facts[at]); place != 0 {
		r.drop(t, int(place)-1)
	}
}

func (r *ring) clear(t *table) {
	for place := range r.places {
		r.drop(t, place)
	}
	r.places, r.next = r.places[:0], 0
}

// earlySet keeps verdicts that arrived before their transactions, in the order of their arrival. At
// its bound it drops the oldest.
type earlySet struct {
	bound, count   int
	oldest, newest index
}

// add adds a verdict that is not in the set.
func (s *earlySet) add(t *table, at index, result ledger.Result) {
	for s.count >= s.bound {
		s.remove(t, s.oldest)
	}
	f := &t.facts[at]
	f.early, f.earlyAs, f.before, f.after = true, result, s.newest, 0
	if s.newest == 0 {
		s.oldest = at
	} else {
		t.facts[s.newest].after = at
	}
	s.newest = at
	s.count++
}

// remove removes a verdict and returns it.
func (s *earlySet) remove(t *table, at index) ledger.Verdict {
	f := &t.facts[at]
	if f.before == 0 {
		s.oldest = f.after
	} else {
		t.facts[f.before].after = f.after
	}
	if f.after == 0 {
		s.newest = f.before
	} else {
		t.facts[f.after].before = f.before
	}
	verdict := ledger.Verdict{ID: f.key.ID, Shard: f.key.Shard, Result: f.earlyAs}
	f.early, s.count = false, s.count-1
	t.release(at)
	return verdict
}

// take removes the verdicts on a transaction, and appends them.
func (s *earlySet) take(t *table, id ledger.Hash, to []ledger.Verdict) []ledger.Verdict {
	for at := t.first[id]; at != 0; {
		next := t.facts[at].next
		if t.facts[at].early {
			to = append(to, s.remove(t, at))
		}
		at = next
	}
	return to
}

// takeDepartures removes the departures of organisations, and appends them. Their ids do not tell
// the moves that they belong to.
func (s *earlySet) takeDepartures(t *table, to []ledger.Verdict) []ledger.Verdict {
	for at := s.oldest; at != 0; {
		next := t.facts[at].after
		if t.facts[at].earlyAs.Code == ledger.Departed {
			to = append(to, s.remove(t, at))
		}
		at = next
	}
	return to
}

// drain empties the set and appends its verdicts.
func (s *earlySet) drain(t *table, to []ledger.Verdict) []ledger.Verdict {
	for s.count > 0 {
		to = append(to, s.remove(t, s.oldest))
	}
	return to
}
