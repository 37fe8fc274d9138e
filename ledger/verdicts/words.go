package verdicts

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// word is a verdict as one member tells it. The member is one of the verdict's shard.
type word struct {
	// fact is the verdict, and next the next word on it.
	fact, next index
	// teller is the member, by its place in wordSet.tellers.
	teller int32
	// before and after are the neighbours among the member's words.
	before, after index
	result        ledger.Result
}

// teller is a member of another shard with its words, in the order of their arrival.
type teller struct {
	member         Member
	oldest, newest index
	count          int
}

// wordSet holds words on verdicts that are not believed yet. It holds at most one word of each
// member on a verdict, and of each member at most its share, the latest. It is not safe for
// concurrent use.
type wordSet struct {
	table *table
	share int
	// words begins with one that is none. unused is the first of those not in use, linked by next.
	words   []word
	unused  index
	tellers []teller
	places  map[Member]int32 // of tellers
	count   int
	fault   Fault
}

func newWordSet(table *table, fault Fault) *wordSet {
	return &wordSet{table: table, share: 1, words: make([]word, 1), places: map[Member]int32{},
		fault: fault}
}

// against returns a word as a contradiction of a result.
func (s *wordSet) against(at index, result ledger.Result) Contradiction {
	w := &s.words[at]
	key := &s.table.facts[w.fact].key
	return Contradiction{Member: s.tellers[w.teller].member, Against: result,
		Verdict: ledger.Verdict{ID: key.ID, Shard: key.Shard, Result: w.result}}
}

// teller returns the place of a member.
func (s *wordSet) teller(member Member) int32 {
	at, known := s.places[member]
	if !known {
		at = int32(len(s.tellers))
		s.tellers = append(s.tellers, teller{member: member})
		s.places[member] = at
	}
	return at
}

// add adds a word on a fact. It returns how many words of the member it dropped to make room. If
// the member has a word on this verdict already, that one stays; contradicts reports whether the
// new one differs from it, and before is its result.
func (s *wordSet) add(by int32, at index, result ledger.Result) (dropped int,
	before ledger.Result, contradicts bool) {
	for place := s.table.facts[at].words; place != 0; place = s.words[place].next {
		w := &s.words[place]
		if w.teller != by || s.fault == FaultCountTwice {
			continue
		}
		if w.result == result {
			return 0, result, false
		}
		before = w.result
		if s.fault == FaultOverwriteWord {
			w.result = result
		}
		return 0, before, true
	}
	made := s.unused
	if made != 0 {
		s.unused = s.words[made].next
	} else {
		made = index(len(s.words))
		s.words = append(s.words, word{})
	}
	t := &s.tellers[by]
	s.words[made] = word{fact: at, teller: by, before: t.newest, result: result}
	if t.newest == 0 {
		t.oldest = made
	} else {
		s.words[t.newest].after = made
	}
	t.newest = made
	t.count++
	s.count++
	if last := s.last(at); last == 0 {
		s.table.facts[at].words = made
	} else {
		s.words[last].next = made
	}
	return s.trim(by, s.share), result, false
}

// last returns the last word on a fact.
func (s *wordSet) last(at index) (last index) {
	for place := s.table.facts[at].words; place != 0; place = s.words[place].next {
		last = place
	}
	return last
}

// trim drops a member's oldest words until it has at most the given number. It returns how many.
func (s *wordSet) trim(by int32, most int) (dropped int) {
	for ; s.tellers[by].count > most; dropped++ {
		oldest := s.tellers[by].oldest
		f := &s.table.facts[s.words[oldest].fact]
		if f.words == oldest {
			f.words = s.words[oldest].next
		} else {
			before := f.words
			for s.words[before].next != oldest {
				before = s.words[before].next
			}
			s.words[before].next = s.words[oldest].next
		}
		at := s.words[oldest].fact
		s.unlink(oldest)
		s.table.release(at)
	}
	return dropped
}

// unlink takes a word from its member. It is in no fact's list any more.
func (s *wordSet) unlink(at index) {
	w := &s.words[at]
	t := &s.tellers[w.teller]
	if w.before == 0 {
		t.oldest = w.after
	} else {
		s.words[w.before].after = w.after
	}
	if w.after == 0 {
		t.newest = w.before
	} else {
		s.words[w.after].before = w.before
	}
	t.count--
	s.count--
	w.next, s.unused = s.unused, at
}

// majority returns the result that more than half of the present members said, if there is one.
func (s *wordSet) majority(at index, present []ledger.MemberIndex) (ledger.Result, bool) {
	type votes struct {
		result ledger.Result
		count  int
	}
	words := 0
	for place := s.table.facts[at].words; place != 0; place = s.words[place].next {
		words++
	}
	if 2*words <= len(present) && s.fault != FaultQuorumOfOne {
		return ledger.Result{}, false
	}
	var few [4]votes // correct members say the same
	tally := few[:0]
	for place := s.table.facts[at].words; place != 0; place = s.words[place].next {
		w := &s.words[place]
		if s.fault != FaultCountDeparted &&
			!contains(present, s.tellers[w.teller].member.Index) {
			continue
		}
		of := slices.IndexFunc(tally, func(v votes) bool { return v.result == w.result })
		if of < 0 {
			of, tally = len(tally), append(tally, votes{result: w.result})
		}
		tally[of].count++
		if 2*tally[of].count > len(present) || s.fault == FaultQuorumOfOne {
			return w.result, true
		}
	}
	return ledger.Result{}, false
}

// contains reports whether ascending indexes have an index.
func contains(present []ledger.MemberIndex, index ledger.MemberIndex) bool {
	_, found := slices.BinarySearch(present, index)
	return found
}

// take removes the words on a fact, and returns those against a result. The caller releases the
// fact.
func (s *wordSet) take(at index, result ledger.Result) (against []Contradiction) {
	for place := s.table.facts[at].words; place != 0; place = s.words[place].next {
		if s.words[place].result != result {
			against = append(against, s.against(place, result))
		}
	}
	s.drop(at)
	return against
}

// drop removes the words on a fact. The caller releases the fact.
func (s *wordSet) drop(at index) {
	for place := s.table.facts[at].words; place != 0; {
		next := s.words[place].next
		s.unlink(place)
		place = next
	}
	s.table.facts[at].words = 0
}

// tellers counts the present members of the other shards.
func (c *Config) tellers() (count int) {
	for shard := range c.Shards() {
		if ledger.ShardID(shard) != c.Own {
			count += len(c.Members(ledger.ShardID(shard)))
		}
	}
	return count
}

// follow adapts the set to the present members of the other shards: it drops the words of members
// that left, and shares the room for words between those that are present. It returns how many
// words it dropped.
func (s *wordSet) follow(config *Config) (dropped int) {
	s.share = max(1, config.Bounds.Words/max(1, config.tellers()))
	for by := range s.tellers {
		member, most := s.tellers[by].member, s.share
		if !contains(config.Members(member.Shard), member.Index) &&
			s.fault != FaultCountDeparted {
			most = 0
		}
		dropped += s.trim(int32(by), most)
	}
	return dropped
}

// keys returns the verdicts with words in the set, each once, in canonical order.
func (s *wordSet) keys() (keys []Key) {
	for by := range s.tellers {
		for place := s.tellers[by].oldest; place != 0; place = s.words[place].after {
			if f := &s.table.facts[s.words[place].fact]; f.words == place {
				keys = append(keys, f.key)
			}
		}
	}
	slices.SortFunc(keys, Key.order)
	return keys
}
