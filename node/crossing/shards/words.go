package shards

import (
	"container/list"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

const (
	// wordsMax bounds the words that wait for others. Each member of another shard has an equal
	// share of it, so that no member can push out the words of another one.
	wordsMax = 1 << 18
	// believedMax bounds the believed verdicts that a node remembers.
	believedMax = state.MaxWaiting
	// contradictionEvery is the minimum time between two log lines about contradictions of a
	// member.
	contradictionEvery = 10 * time.Second
)

// memberKey identifies a member of any shard.
type memberKey struct {
	shard ledger.ShardID
	index ledger.MemberIndex
}

// word is a verdict as one member tells it. The member is one of the verdict's shard.
type word struct {
	member  memberKey
	verdict ledger.Verdict
}

// wordSet holds words on verdicts that are not believed yet. It holds at most one word of each
// member on a verdict, and of each member at most its share, the latest. It is not safe for
// concurrent use.
type wordSet struct {
	share    int
	byID     map[ledger.Hash][]*list.Element
	byMember map[memberKey]*list.List // of *word, in the order of their arrival
	count    int
	faults   faults
}

func newWordSet(faults faults) *wordSet {
	return &wordSet{share: 1, byID: map[ledger.Hash][]*list.Element{},
		byMember: map[memberKey]*list.List{}, faults: faults}
}

// said returns a member's word on a verdict.
func (s *wordSet) said(member memberKey, key verdictKey) (w *word, known bool) {
	for _, element := range s.byID[key.id] {
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
	if before, known := s.said(w.member, keyOf(&w.verdict)); known && !s.faults.countTwice {
		if before.verdict.Result == w.verdict.Result {
			return 0, nil
		}
		if s.faults.overwriteWord {
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
func (s *wordSet) trim(member memberKey, most int) (dropped int) {
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
func (s *wordSet) majority(key verdictKey, present []Member) (ledger.Verdict, bool) {
	type votes struct {
		result ledger.Result
		count  int
	}
	if 2*len(s.byID[key.id]) <= len(present) && !s.faults.quorumOfOne {
		return ledger.Verdict{}, false
	}
	var tally []votes
	for _, element := range s.byID[key.id] {
		w := element.Value.(*word)
		if w.verdict.Shard != key.shard || !s.faults.countDeparted &&
			!contains(present, w.member.index) {
			continue
		}
		at := slices.IndexFunc(tally, func(v votes) bool { return v.result == w.verdict.Result })
		if at < 0 {
			at, tally = len(tally), append(tally, votes{result: w.verdict.Result})
		}
		tally[at].count++
		if 2*tally[at].count > len(present) || s.faults.quorumOfOne {
			return w.verdict, true
		}
	}
	return ledger.Verdict{}, false
}

// contains reports whether a list of members in the order of their indexes has an index.
func contains(members []Member, index ledger.MemberIndex) bool {
	_, found := slices.BinarySearchFunc(members, index,
		func(m Member, index ledger.MemberIndex) int { return int(m.Index) - int(index) })
	return found
}

// take removes and returns the words on a verdict.
func (s *wordSet) take(key verdictKey) []word {
	return s.takeIf(key.id, func(shard ledger.ShardID) bool { return shard == key.shard })
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
		if !of(w.member.shard) {
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

// follow adapts the set to the present members: it drops the words of members that left, and
// shares the room between those that are present. It returns how many words it dropped.
func (s *wordSet) follow(directory *Directory) (dropped int) {
	tellers := 0
	for shard := range directory.Tree().Shards() {
		if ledger.ShardID(shard) != directory.Own() {
			_, present := directory.Members(ledger.ShardID(shard))
			tellers += len(present)
		}
	}
	s.share = max(1, wordsMax/max(1, tellers))
	for member := range s.byMember {
		_, present := directory.Members(member.shard)
		if !contains(present, member.index) && !s.faults.countDeparted {
			dropped += s.trim(member, 0)
			delete(s.byMember, member)
			continue
		}
		dropped += s.trim(member, s.share)
	}
	return dropped
}

// keys returns the verdicts with words in the set, each once, in no order.
func (s *wordSet) keys() (keys []verdictKey) {
	for _, elements := range s.byID {
		first := len(keys)
		for _, element := range elements {
			if key := keyOf(&element.Value.(*word).verdict); !slices.Contains(keys[first:], key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// contradiction is a word that differs from what is believed, or from the member's own word before.
type contradiction struct {
	word
	against ledger.Result
}

// contradict counts contradictions and returns those to log: at most one of each member in
// contradictionEvery. The caller holds the lock.
func (v *Verdicts) contradict(found []contradiction) (logged []contradiction) {
	v.status.Contradicted += uint64(len(found))
	for _, each := range found {
		if at, known := v.exposed[each.member]; known && time.Since(at) < contradictionEvery {
			continue
		}
		v.exposed[each.member] = time.Now()
		logged = append(logged, each)
	}
	return logged
}

// log logs contradictions. The caller does not hold the lock.
func (v *Verdicts) log(found []contradiction) {
	for _, each := range found {
		v.config.Logger.Error("a member's verdict contradicts others; the member or its disk is "+
			"at fault", "shard", each.member.shard, "member", each.member.index, "transaction",
			each.verdict.ID, "said", each.verdict.Result, "against", each.against)
	}
}

// hear adds the words of a message of one member, and queues the verdicts that are believed now
// for the goroutine to judge. It reports whether there are any.
func (v *Verdicts) hear(member memberKey, verdicts []ledger.Verdict) (more bool) {
	v.mu.Lock()
	before := len(v.inbox)
	var found []contradiction
	_, present := v.config.Directory.Members(member.shard)
	for i := range verdicts {
		key, w := keyOf(&verdicts[i]), word{member: member, verdict: verdicts[i]}
		if result, believed := v.believed.get(key); believed {
			if result != w.verdict.Result {
				found = append(found, contradiction{w, result})
			}
			continue
		}
		if v.settled.has(key) {
			continue
		}
		dropped, contradicted := v.words.add(w)
		v.status.Dropped += uint64(dropped)
		if contradicted != nil {
			found = append(found, contradiction{w, contradicted.verdict.Result})
		}
		if verdict, enough := v.words.majority(key, present); enough {
			found = append(found, v.believe(&verdict)...)
		}
	}
	v.status.Received += uint64(len(verdicts))
	more = len(v.inbox) > before
	found = v.contradict(found)
	v.mu.Unlock()
	v.log(found)
	return more
}

// Contradictions returns how many of the verdicts contradict what this node believes. Verdicts on
// which nothing is believed here, or not any more, do not count.
func (v *Verdicts) Contradictions(verdicts []ledger.Verdict) (count uint64) {
	if len(verdicts) == 0 {
		return 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range verdicts {
		if result, believed := v.believed.get(keyOf(&verdicts[i])); believed &&
			result != verdicts[i].Result {
			count++
		}
	}
	return count
}

// believe queues a verdict for the goroutine to judge, and returns the words against it. The caller
// holds the lock.
func (v *Verdicts) believe(verdict *ledger.Verdict) []contradiction {
	key := keyOf(verdict)
	against := v.end(verdict)
	if v.believed.has(key) {
		return against
	}
	v.believed.put(key, verdict.Result)
	v.enqueue(*verdict)
	return against
}

// end drops the words on a verdict that is known now, and returns those against it. The caller
// holds the lock.
func (v *Verdicts) end(verdict *ledger.Verdict) (against []contradiction) {
	for _, w := range v.words.take(keyOf(verdict)) {
		if w.verdict.Result != verdict.Result {
			against = append(against, contradiction{w, verdict.Result})
		}
	}
	return against
}

// enqueue queues a verdict for the goroutine to judge. If there is no room it is asked for later.
// The caller holds the lock.
func (v *Verdicts) enqueue(verdict ledger.Verdict) {
	if len(v.inbox) >= inboxMax {
		v.status.Dropped++
		return
	}
	v.inbox = append(v.inbox, verdict)
}

// recount counts all words anew after a change of any shard's members: those of members that left
// count no more, and fewer may be enough now.
func (v *Verdicts) recount() {
	v.mu.Lock()
	var found []contradiction
	v.status.Dropped += uint64(v.words.follow(v.config.Directory))
	for _, key := range v.words.keys() {
		_, present := v.config.Directory.Members(key.shard)
		if verdict, enough := v.words.majority(key, present); enough {
			found = append(found, v.believe(&verdict)...)
		}
	}
	for member := range v.exposed {
		if _, present := v.config.Directory.Members(member.shard); !contains(present,
			member.index) {
			delete(v.exposed, member)
		}
	}
	found = v.contradict(found)
	v.mu.Unlock()
	v.log(found)
}
