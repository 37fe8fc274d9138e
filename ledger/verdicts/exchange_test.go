package verdicts

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// said is a member's word on a verdict.
type said struct {
	member Member
	result ledger.Result
}

// exchangeModel is a vouched exchange with room for everything, as plain maps.
type exchangeModel struct {
	present  map[ledger.ShardID][]ledger.MemberIndex
	words    map[Key][]said
	believed map[Key]ledger.Result
	settled  map[Key]bool
	early    map[Key]ledger.Result
	awaited  map[Key]ledger.Result
	received []ledger.Verdict
	found    int // contradictions
}

func (m *exchangeModel) hear(member Member, verdict ledger.Verdict) {
	key := KeyOf(&verdict)
	if result, known := m.believed[key]; known {
		if result != verdict.Result {
			m.found++
		}
		return
	}
	if m.settled[key] {
		return
	}
	at := slices.IndexFunc(m.words[key], func(s said) bool { return s.member == member })
	switch {
	case at < 0:
		m.words[key] = append(m.words[key], said{member, verdict.Result})
	case m.words[key][at].result != verdict.Result:
		m.found++
	}
	m.count(key)
}

// count believes a verdict that enough present members said.
func (m *exchangeModel) count(key Key) {
	votes := map[ledger.Result]int{}
	for _, s := range m.words[key] {
		if slices.Contains(m.present[key.Shard], s.member.Index) {
			votes[s.result]++
		}
	}
	for result, count := range votes {
		if 2*count > len(m.present[key.Shard]) {
			m.believe(key, result)
		}
	}
}

func (m *exchangeModel) believe(key Key, result ledger.Result) {
	for _, s := range m.words[key] {
		if s.result != result {
			m.found++
		}
	}
	delete(m.words, key)
	if _, known := m.believed[key]; !known {
		m.believed[key] = result
		m.received = append(m.received, ledger.Verdict{ID: key.ID, Shard: key.Shard,
			Result: result})
	}
}

// applied takes a block with one transaction, or with one verdict.
func (m *exchangeModel) applied(id ledger.Hash, verdict *ledger.Verdict, code ledger.Code) {
	if verdict == nil {
		for _, key := range ofTransaction(m.early, id) {
			m.received = append(m.received, ledger.Verdict{ID: id, Shard: key.Shard,
				Result: m.early[key]})
			delete(m.early, key)
		}
		return
	}
	key := KeyOf(verdict)
	if m.knows(key) {
		m.settled[key] = true
	}
	for _, s := range m.words[key] {
		if s.result != verdict.Result {
			m.found++
		}
	}
	delete(m.words, key)
	delete(m.awaited, key)
	if code != ledger.Applied {
		maps.DeleteFunc(m.words, func(k Key, _ []said) bool { return k.ID == key.ID })
		maps.DeleteFunc(m.awaited, func(k Key, _ ledger.Result) bool { return k.ID == key.ID })
	}
}

// knows reports whether the exchange has heard of a verdict. Those of which it has not, and that a
// block has, are mostly of groups, and it does not remember them.
func (m *exchangeModel) knows(key Key) bool {
	_, believed := m.believed[key]
	_, early := m.early[key]
	_, awaited := m.awaited[key]
	return believed || early || awaited || m.settled[key] || len(m.words[key]) > 0
}

func ofTransaction(set map[Key]ledger.Result, id ledger.Hash) (keys []Key) {
	for key := range set {
		if key.ID == id {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, Key.order)
	return keys
}

// TestExchangeIsAsItsModel: with room for everything, an exchange does what plain maps do.
func TestExchangeIsAsItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &exchangeModel{present: map[ledger.ShardID][]ledger.MemberIndex{
			0: {0}, 1: {0, 1, 2}, 2: {0, 1, 2, 3}}, words: map[Key][]said{},
			believed: map[Key]ledger.Result{}, settled: map[Key]bool{},
			early: map[Key]ledger.Result{}, awaited: map[Key]ledger.Result{}}
		x := New(Config{Vouched: true, Shards: func() int { return 3 }, Bounds: DefaultBounds(),
			Members: func(shard ledger.ShardID) []ledger.MemberIndex { return m.present[shard] }})
		found := 0
		shard := rapid.SampledFrom([]ledger.ShardID{1, 2})
		result := rapid.SampledFrom([]ledger.Result{good, good, good,
			{Code: ledger.InsufficientFunds}})
		draw := func() ledger.Verdict {
			return ledger.Verdict{ID: name(rapid.IntRange(0, 4).Draw(t, "id")),
				Shard: shard.Draw(t, "shard"), Result: result.Draw(t, "result")}
		}
		index := rapid.IntRange(0, 3)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			v := draw()
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				member := Member{v.Shard, ledger.MemberIndex(index.Draw(t, "member"))}
				m.hear(member, v)
				found += len(x.Hear(member, []ledger.Verdict{v}))
			case 5:
				m.believe(KeyOf(&v), v.Result)
				found += len(x.Believe(&v))
			case 6, 7:
				for _, verdict := range x.TakeReceived(rapid.IntRange(0, 3).Draw(t, "most")) {
					at := slices.Index(m.received, verdict)
					if at < 0 {
						t.Fatalf("%v is to be judged", verdict)
					}
					m.received = slices.Delete(m.received, at, at+1)
					key := KeyOf(&verdict)
					_, early := m.early[key]
					_, awaited := m.awaited[key]
					if x.Knows(key) != (m.settled[key] || early || awaited) {
						t.Fatalf("%v is known: %v", verdict, x.Knows(key))
					}
					if x.Knows(key) {
						continue
					}
					switch standing := Standing(rapid.IntRange(0, 2).Draw(t, "standing")); {
					case x.Place(&verdict, standing, x.Blocks()) != (standing == Awaited):
						t.Fatalf("%v is placed wrong", verdict)
					case standing == Early:
						m.early[key] = verdict.Result
					case standing == Awaited:
						m.awaited[key] = verdict.Result
					default:
						m.settled[key] = true
					}
				}
			case 8:
				entry := ledger.Entry{ID: v.ID, Decoded: &ledger.Transaction{}, Result: good}
				var verdict *ledger.Verdict
				if rapid.Bool().Draw(t, "verdict") {
					verdict = &v
					entry.Decoded.Verdict = verdict
					entry.Result.Code = rapid.SampledFrom([]ledger.Code{ledger.Applied,
						ledger.Settled, ledger.Released}).Draw(t, "code")
				}
				m.applied(v.ID, verdict, entry.Result.Code)
				found += len(x.Applied(&ledger.Block{Unpacked: []ledger.Entry{entry}}))
			case 9:
				if rapid.Bool().Draw(t, "reset") {
					for _, set := range []map[Key]ledger.Result{m.awaited, m.early} {
						for key, result := range set {
							m.received = append(m.received, ledger.Verdict{ID: key.ID,
								Shard: key.Shard, Result: result})
						}
						clear(set)
					}
					clear(m.settled)
					x.Reset()
					break
				}
				m.present[1] = rapid.SampledFrom([][]ledger.MemberIndex{{0, 1, 2}, {1, 3}, {2}}).
					Draw(t, "present")
				for key, words := range m.words {
					m.words[key] = slices.DeleteFunc(words, func(s said) bool {
						return !slices.Contains(m.present[key.Shard], s.member.Index)
					})
					m.count(key)
				}
				found += len(x.Recount())
			}
			compareWithModel(t, x, m, found)
		}
	})
}

// compareWithModel compares all that an exchange shows.
func compareWithModel(t *rapid.T, x *Exchange, m *exchangeModel, found int) {
	words := 0
	for _, each := range m.words {
		words += len(each)
	}
	if got, want := x.Counts(), (Counts{Awaited: len(m.awaited), Early: len(m.early),
		Received: len(m.received), Words: words, Dropped: x.dropped}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	if found != m.found {
		t.Fatalf("%d contradictions, want %d", found, m.found)
	}
	for i := range 5 {
		for shard := range ledger.ShardID(3) {
			key := Key{ID: name(i), Shard: shard}
			result, believed := x.Believed(key)
			if want, known := m.believed[key]; believed != known || believed && result != want {
				t.Fatalf("%v is believed: %v, %v", key, believed, result)
			}
			if _, awaited := m.awaited[key]; x.Awaits(key) != awaited ||
				x.Settled(key) != m.settled[key] {
				t.Fatalf("%v is awaited: %v, settled: %v", key, x.Awaits(key), x.Settled(key))
			}
		}
	}
	var told []ledger.Verdict
	want := uint64(0)
	for range rapid.IntRange(0, 6).Draw(t, "told") {
		verdict := ledger.Verdict{ID: name(rapid.IntRange(0, 4).Draw(t, "id")), Shard: 1,
			Result: good}
		told = append(told, verdict)
		if result, known := m.believed[KeyOf(&verdict)]; known && result != good {
			want++
		}
	}
	for range 2 { // as they come, and in order
		if got := x.Against(told); got != want {
			t.Fatalf("%d of %v against what is believed, want %d", got, told, want)
		}
		slices.SortFunc(told, func(a, b ledger.Verdict) int {
			return KeyOf(&a).order(KeyOf(&b))
		})
	}
	for _, verdict := range x.Propose(len(m.awaited)+1, 0, 0) {
		if result, known := m.awaited[KeyOf(&verdict)]; !known || result != verdict.Result {
			t.Fatalf("%v is proposed", verdict)
		}
	}
	held := make(map[Key]bool)
	for key := range m.settled {
		held[key] = true
	}
	for key, list := range m.words {
		held[key] = held[key] || len(list) > 0
	}
	for _, set := range []map[Key]ledger.Result{m.believed, m.early, m.awaited} {
		for key := range set {
			held[key] = true
		}
	}
	maps.DeleteFunc(held, func(_ Key, is bool) bool { return !is })
	if got := factsIn(t, &x.facts); got != len(held) {
		t.Fatalf("%d facts, want %d", got, len(held))
	}
}
