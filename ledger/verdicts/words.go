package verdicts

import (
	"container/list"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// word is a verdict as one member tells it. The member is one of the verdict's shard.
type word struct {
	member  Member
	verdict ledger.Verdict
}

// against returns the word as a contradiction of a result.
func (w *word) against(result ledger.Result) Contradiction {
	return Contradiction{Member: w.member, Verdict: w.verdict, Against: result}
}

// wordSet holds words on verdicts that are not believed yet. It holds at most one word of each
// member on a verdict, and of each member at most its share, the latest. It is not safe for
// concurrent use.
type wordSet struct {
	share    int
	byID     map[ledger.Hash][]*list.Element
	byMember map[Member]*list.List // of *word, in the order of their arrival
	count    int
	fault    Fault
}

func newWordSet(fault Fault) *wordSet {
	return &wordSet{share: 1, byID: map[ledger.Hash][]*list.Element{},
		byMember: map[Member]*list.List{}, fault: fault}
}

// said returns a member's word on a verdict.
func (s *wordSet) said(member Member, key Key) (w *word, known bool) {
	for _, element := range s.byID[key.ID] {
		if w := element.Value.(*word); w.member == member {
			return w, true
		}
	}
	return nil, false
}

// add adds a word. It returns how many words of the member it dropped to make room. If the member
// has a word on this verdict already, that one stays; contradicted reports whether the new one
// differs, and is not nil then.
func (s *wordSet) add(w word) (dropped int, contradicted *word) {
	if before, known := s.said(w.member, KeyOf(&w.verdict)); known && s.fault != FaultCountTwice {
		if before.verdict.Result == w.verdict.Result {
			return 0, nil
		}
		if s.fault == FaultOverwriteWord {
			before.verdict = w.verdict
		}
		return 0, before
	}
	words := s.byMember[w.member]
	if words == nil {
		words = list.New()
		s.byMember[w.member] = words
	}
	dropped = s.trim(w.member, s.share-1)
	s.byID[w.verdict.ID] = append(s.byID[w.verdict.ID], words.PushBack(&w))
	s.count++
	return dropped, nil
}

// trim drops a member's oldest words until it has at most the given number. It returns how many.
func (s *wordSet) trim(member Member, most int) (dropped int) {
	for words := s.byMember[member]; words.Len() > most; dropped++ {
		oldest := words.Front()
		id := oldest.Value.(*word).verdict.ID
		s.byID[id] = slices.DeleteFunc(s.byID[id], func(element *list.Element) bool {
			return element == oldest
		})
		if len(s.byID[id]) == 0 {
			delete(s.byID, id)
		}
		words.Remove(oldest)
		s.count--
	}
	return dropped
}

// majority returns the verdict that more than half of the present members said, if there is one.
func (s *wordSet) majority(key Key, present []ledger.MemberIndex) (ledger.Verdict, bool) {
	type votes struct {
		result ledger.Result
		count  int
	}
	if 2*len(s.byID[key.ID]) <= len(present) && s.fault != FaultQuorumOfOne {
		return ledger.Verdict{}, false
	}
	var tally []votes
	for _, element := range s.byID[key.ID] {
		w := element.Value.(*word)
		if w.verdict.Shard != key.Shard || s.fault != FaultCountDeparted &&
			!contains(present, w.member.Index) {
			continue
		}
		at := slices.IndexFunc(tally, func(v votes) bool { return v.result == w.verdict.Result })
		if at < 0 {
			at, tally = len(tally), append(tally, votes{result: w.verdict.Result})
		}
		tally[at].count++
		if 2*tally[at].count > len(present) || s.fault == FaultQuorumOfOne {
			return w.verdict, true
		}
	}
	return ledger.Verdict{}, false
}

// contains reports whether ascending indexes have an index.
func contains(present []ledger.MemberIndex, index ledger.MemberIndex) bool {
	_, found := slices.BinarySearch(present, index)
	return found
}

// take removes and returns the words on a verdict.
func (s *wordSet) take(key Key) []word {
	return s.takeIf(key.ID, func(shard ledger.ShardID) bool { return shard == key.Shard })
}

// takeAll removes and returns the words of all shards on a transaction.
func (s *wordSet) takeAll(id ledger.Hash) []word {
	return s.takeIf(id, func(ledger.ShardID) bool { return true })
}

func (s *wordSet) takeIf(id ledger.Hash, of func(ledger.ShardID) bool) (taken []word) {
	elements := s.byID[id]
	if len(elements) == 0 {
		return nil
	}
	left := slices.DeleteFunc(elements, func(element *list.Element) bool {
		w := element.Value.(*word)
		if !of(w.member.Shard) {
			return false
		}
		taken = append(taken, *w)
		s.byMember[w.member].Remove(element)
		s.count--
		return true
	})
	if s.byID[id] = left; len(left) == 0 {
		delete(s.byID, id)
	}
	return taken
}

// follow adapts the set to the present members of the other shards: it drops the words of members
// that left, and shares the room for words between those that are present. It returns how many
// words it dropped.
func (s *wordSet) follow(config *Config) (dropped int) {
	tellers := 0
	for shard := range config.Shards {
		if ledger.ShardID(shard) != config.Own {
			tellers += len(config.Members(ledger.ShardID(shard)))
		}
	}
	s.share = max(1, config.Bounds.Words/max(1, tellers))
	for member := range s.byMember {
		if !contains(config.Members(member.Shard), member.Index) &&
			s.fault != FaultCountDeparted {
			dropped += s.trim(member, 0)
			delete(s.byMember, member)
			continue
		}
		dropped += s.trim(member, s.share)
	}
	return dropped
}

// keys returns the verdicts with words in the set, each once, in canonical order.
func (s *wordSet) keys() (keys []Key) {
	for _, elements := range s.byID {
		first := len(keys)
		for _, element := range elements {
			if key := KeyOf(&element.Value.(*word).verdict); !slices.Contains(keys[first:], key) {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, Key.order)
	return keys
}
