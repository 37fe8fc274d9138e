package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/rdmanet"
)

var bad = ledger.Result{Code: ledger.InsufficientFunds, Item: 1}

// vouched is a scene in a vouched book. Shard 1 has the given members of the test, with their
// indexes in this order.
func vouched(t *testing.T, config VerdictsConfig, members ...int) *scene {
	t.Helper()
	config.Vouched = true
	s := newScene(t, config)
	s.change(1, members...)
	return s
}

// change changes the members of shard 1: to members 0, 1, ... of a list, but those that are -1.
func (s *scene) change(number uint64, members ...int) {
	s.t.Helper()
	indexes := map[ledger.MemberIndex]int{}
	for index, member := range members {
		if member >= 0 {
			indexes[ledger.MemberIndex(index)] = member
		}
	}
	if !s.verdicts.config.Directory.Learn(1, changed(number, indexes)) {
		s.t.Fatal("the members of shard 1 were not learned")
	}
}

// say passes on what a member of shard 1 says about transactions.
func (s *scene) say(member int, result ledger.Result, ids ...ledger.Hash) {
	s.t.Helper()
	said := make([]ledger.Verdict, len(ids))
	for i, id := range ids {
		said[i] = ledger.Verdict{ID: id, Shard: 1, Result: result}
	}
	peer, known := s.peers[member]
	if !known {
		peer = peerOf(s.t, member)
		s.peers[member] = peer
	}
	s.verdicts.receiveVerdicts(rdmanet.Peer{ID: peer}, encodeVerdicts(said))
}

// believes returns what the node believes about a transaction, and whether it does.
func (s *scene) believes(id ledger.Hash) (ledger.Result, bool) {
	s.verdicts.mu.Lock()
	defer s.verdicts.mu.Unlock()
	return s.verdicts.exchange.Believed(verdicts.Key{ID: id, Shard: 1})
}

// wait makes transactions wait for shard 1.
func (s *scene) wait(ids ...ledger.Hash) {
	s.chain.mu.Lock()
	defer s.chain.mu.Unlock()
	for _, id := range ids {
		s.chain.standing[id] = verdicts.Awaited
		s.chain.pending = append(s.chain.pending, state.Pending{ID: id, Height: 1,
			Waits: []ledger.ShardID{1}})
	}
}

// looked waits until the goroutine has looked at the chain after this call.
func (s *scene) looked() {
	s.t.Helper()
	looks := func() int {
		s.chain.mu.Lock()
		defer s.chain.mu.Unlock()
		return s.chain.looks
	}
	before := looks()
	s.verdicts.nudge()
	// The chain's height is read up to twice a turn.
	s.await("two turns", func() bool {
		s.verdicts.nudge()
		return looks() > before+4
	})
}

// quorum expects that a majority of the members is believed, and nothing less.
func quorum(t *testing.T, f faults) error {
	s := vouched(t, VerdictsConfig{faults: f}, 3, 4, 5)
	s.chain.set(name(1), verdicts.Awaited)
	s.say(3, good, name(1))
	s.say(4, bad, name(1))
	if result, believed := s.believes(name(1)); believed {
		return fmt.Errorf("%s is believed, as two members say different things", result)
	}
	s.say(5, good, name(1))
	if result, believed := s.believes(name(1)); !believed || result != good {
		return fmt.Errorf("a majority is not believed: %v, %v", result, believed)
	}
	s.await("it is to be proposed", func() bool { return s.has(name(1)) })
	if status := s.verdicts.Status(); status.Contradicted != 1 || status.Words != 0 ||
		status.Received != 3 {
		return fmt.Errorf("%+v", status)
	}
	s.say(4, bad, name(1))
	s.say(4, good, name(1))
	if contradicted := s.verdicts.Status().Contradicted; contradicted != 2 {
		return fmt.Errorf("%d contradictions, want 2", contradicted)
	}
	s.change(2, 3, 4, 5, 20)
	s.say(3, good, name(2))
	s.say(4, good, name(2))
	if _, believed := s.believes(name(2)); believed {
		return errors.New("half of the members are believed")
	}
	s.say(20, good, name(2))
	if _, believed := s.believes(name(2)); !believed {
		return errors.New("three of four members are not believed")
	}
	// The same code for another item is another verdict.
	other, before := bad, s.verdicts.Status().Contradicted
	other.Item++
	s.say(3, bad, name(3))
	s.say(4, bad, name(3))
	s.say(5, other, name(3))
	s.say(5, bad, name(3))
	if result, believed := s.believes(name(3)); believed {
		return fmt.Errorf("%v is believed, as two of four members said it", result)
	}
	if contradicted := s.verdicts.Status().Contradicted - before; contradicted != 1 {
		return fmt.Errorf("%d contradictions about an item, want 1", contradicted)
	}
	s.say(20, bad, name(3))
	if result, believed := s.believes(name(3)); !believed || result != bad {
		return fmt.Errorf("a majority is not believed: %v, %v", result, believed)
	}
	return nil
}

// repeats expects that a member counts once, however often it says something.
func repeats(t *testing.T, f faults) error {
	s := vouched(t, VerdictsConfig{faults: f}, 3, 4, 5)
	s.say(3, good, name(1), name(1))
	s.say(3, good, name(1))
	if _, believed := s.believes(name(1)); believed {
		return errors.New("a member that repeats itself is believed")
	}
	if status := s.verdicts.Status(); status.Words != 1 || status.Contradicted != 0 {
		return fmt.Errorf("%+v", status)
	}
	s.say(4, good, name(1))
	if _, believed := s.believes(name(1)); !believed {
		return errors.New("a majority is not believed")
	}
	return nil
}

// departed expects that a member that left does not count, also not while the goroutine does not
// know yet that the members changed.
func departed(t *testing.T, f faults) error {
	s := vouched(t, VerdictsConfig{faults: f}, 3, 4, 5)
	s.say(3, good, name(1), name(2))
	s.change(2, -1, 4, 5, 20)
	s.say(4, good, name(1))
	if _, believed := s.believes(name(1)); believed {
		return errors.New("a member that left is counted")
	}
	s.say(3, good, name(3))
	s.looked()
	s.say(5, good, name(2))
	if _, believed := s.believes(name(2)); believed {
		return errors.New("a member that left is counted later")
	}
	if words := s.verdicts.Status().Words; words != 2 {
		return fmt.Errorf("%d words wait, want those of two members that are present", words)
	}
	s.say(20, good, name(1))
	if _, believed := s.believes(name(1)); !believed {
		return errors.New("a majority of the present members is not believed")
	}
	return nil
}

// firstWord expects that a member cannot take back what it said.
func firstWord(t *testing.T, f faults) error {
	s := vouched(t, VerdictsConfig{faults: f}, 3, 4, 5, 20, 21)
	s.say(3, good, name(1))
	s.say(3, bad, name(1))
	if contradicted := s.verdicts.Status().Contradicted; contradicted != 1 {
		return fmt.Errorf("%d contradictions, want 1", contradicted)
	}
	s.say(4, bad, name(1))
	s.say(5, bad, name(1))
	if result, believed := s.believes(name(1)); believed {
		return fmt.Errorf("%s is believed", result)
	}
	s.say(20, bad, name(1))
	if result, believed := s.believes(name(1)); !believed || result != bad {
		return fmt.Errorf("a majority is not believed: %v, %v", result, believed)
	}
	if contradicted := s.verdicts.Status().Contradicted; contradicted != 2 {
		return fmt.Errorf("%d contradictions, want 2", contradicted)
	}
	return nil
}

func TestWordsAndPlantedBugs(t *testing.T) {
	t.Parallel()
	for what, each := range map[string]struct {
		check func(*testing.T, faults) error
		bugs  []faults
	}{
		"a majority is believed": {quorum, []faults{{exchange: verdicts.FaultQuorumOfOne}}},
		"a member counts once":   {repeats, []faults{{exchange: verdicts.FaultCountTwice}}},
		"a member that left does not count": {departed,
			[]faults{{exchange: verdicts.FaultCountDeparted},
				{exchange: verdicts.FaultQuorumOfOne}}},
		"the first word stays": {firstWord, []faults{{exchange: verdicts.FaultOverwriteWord}}},
		"a minority does not matter": {minorities, []faults{{exchange: verdicts.FaultQuorumOfOne},
			{exchange: verdicts.FaultCountTwice}, {exchange: verdicts.FaultCountDeparted}}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if err := each.check(t, faults{}); err != nil {
				t.Error(err)
			}
			for _, bug := range each.bugs {
				if err := each.check(t, bug); err == nil {
					t.Errorf("the planted bug was not found: %+v", bug)
				}
			}
		})
	}
}

// minorities expects the same of many shards with members at random.
func minorities(t *testing.T, f faults) error {
	for seed := range uint64(12) {
		if err := minority(t, f, seed); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return nil
}

// minority expects that a minority of liars, silent members and members that repeat or contradict
// themselves changes nothing: each true verdict is believed, and nothing else. Liars leave on the
// way, and others join.
func minority(t *testing.T, f faults, seed uint64) error {
	const transactions = 40
	random := rand.New(rand.NewPCG(seed, 7))
	count := 3 + random.IntN(7)
	faulty := random.IntN((count-1)/2 + 1)
	list := make([]int, count)
	for i := range list {
		list[i] = 20 + i
	}
	random.Shuffle(count, func(i, j int) { list[i], list[j] = list[j], list[i] })
	s := vouched(t, VerdictsConfig{faults: f}, list...)
	defer s.verdicts.Close()
	truth := func(i int) ledger.Result {
		if i%3 == 0 {
			return bad
		}
		return good
	}
	lie := func(i int) ledger.Result {
		if i%3 == 0 {
			return good
		}
		return bad
	}
	type event struct {
		member int
		result ledger.Result
		id     ledger.Hash
		change []int // then the members of shard 1
	}
	var events []event
	say := func(member int, result func(int) ledger.Result, beyond int) {
		for i := range transactions + beyond {
			events = append(events, event{member: member, result: result(i), id: name(i)})
		}
	}
	for _, member := range list[:faulty] {
		switch random.IntN(4) {
		case 0: // silent
		case 1: // invents transactions too, and repeats itself
			for range 5 {
				say(member, lie, 20)
			}
		case 2: // says this and that
			say(member, lie, 0)
			say(member, truth, 0)
		case 3:
			say(member, lie, 20)
		}
	}
	for _, member := range list[faulty:] {
		for range 1 + random.IntN(2) {
			say(member, truth, 0)
		}
	}
	random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	if faulty > 0 {
		// A faulty member leaves and another one joins, which lies and leaves too. All of them
		// together would be enough.
		at, last := random.IntN(len(events)/4), 0
		for joining := 50; len(list) < 16; joining++ {
			members := append(slices.Clone(list), joining)
			members[last] = -1
			list, last = members, len(list)
			churn := []event{{change: members}}
			for i := range transactions {
				churn = append(churn, event{member: joining, result: lie(i), id: name(i)})
			}
			events = slices.Insert(events, at, churn...)
			at = min(at+len(churn)+random.IntN(10), len(events))
		}
	}
	for i := range transactions {
		s.chain.set(name(i), verdicts.Awaited)
	}
	number := uint64(1)
	for _, each := range events {
		if each.change != nil {
			number++
			s.change(number, each.change...)
			continue
		}
		s.say(each.member, each.result, each.id)
	}
	for i := range transactions + 20 {
		result, believed := s.believes(name(i))
		if believed != (i < transactions) || believed && result != truth(i) {
			return fmt.Errorf("%d members, %d faulty, transaction %d: %v, %v", count, faulty, i,
				result, believed)
		}
	}
	s.await("all are to be proposed", func() bool {
		return s.verdicts.Status().Awaited == transactions
	})
	proposed := s.propose(1 << 20)
	for i := range transactions {
		if want := (ledger.Verdict{ID: name(i), Shard: 1, Result: truth(i)}); proposed[i] != want {
			return fmt.Errorf("%+v is proposed, want %+v", proposed[i], want)
		}
	}
	return nil
}

// When members leave, fewer words may be enough.
func TestWordsAreRecounted(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5, 20, 21)
	s.chain.set(name(1), verdicts.Awaited)
	s.say(3, good, name(1), name(2))
	s.say(4, good, name(1))
	s.say(5, bad, name(1))
	if _, believed := s.believes(name(1)); believed {
		t.Fatal("two of five are believed")
	}
	s.change(2, 3, 4, 5)
	s.await("two of three are believed", func() bool { return s.has(name(1)) })
	if status := s.verdicts.Status(); status.Contradicted != 1 || status.Words != 1 {
		t.Errorf("%+v", status)
	}
}

// Each member's words have a bound, so that one member cannot push out those of another one.
func TestWordsAreBounded(t *testing.T) {
	t.Parallel()
	bounds := verdicts.DefaultBounds()
	bounds.Words = 60 // of which each of six members has a share
	s := vouched(t, VerdictsConfig{bounds: bounds}, 3, 4, 5)
	v := s.verdicts
	s.looked()
	s.say(4, good, name(1), name(2))
	for i := range 1000 {
		s.say(3, bad, name(i))
	}
	if status := v.Status(); status.Words != 12 || status.Dropped != 990 {
		t.Errorf("%+v", status)
	}
	s.say(5, good, name(1), name(2))
	s.say(4, bad, name(990))
	s.say(5, bad, name(999))
	for id, want := range map[int]bool{1: true, 2: true, 989: false, 990: true, 999: true} {
		if _, believed := s.believes(name(id)); believed != want {
			t.Errorf("transaction %d: believed %v", id, believed)
		}
	}
	if words := v.Status().Words; words != 8 {
		t.Errorf("%d words", words)
	}
}

// Members of different shards count for the verdict of their own shard only.
func TestShardsAreCountedApart(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5)
	second := func(member int) {
		s.verdicts.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, member)},
			encodeVerdicts([]ledger.Verdict{{ID: name(1), Shard: 2, Result: good}}))
	}
	believed := func() (shards []ledger.ShardID) {
		s.verdicts.mu.Lock()
		defer s.verdicts.mu.Unlock()
		for shard := range ledger.ShardID(3) {
			if _, believed := s.verdicts.exchange.Believed(verdicts.Key{ID: name(1),
				Shard: shard}); believed {
				shards = append(shards, shard)
			}
		}
		return shards
	}
	s.say(3, good, name(1))
	if second(7); believed() != nil {
		t.Errorf("one member of each of two shards is believed, for shards %d", believed())
	}
	if second(8); !slices.Equal(believed(), []ledger.ShardID{2}) {
		t.Errorf("shards %d are believed, want shard 2", believed())
	}
	if words := s.verdicts.Status().Words; words != 1 {
		t.Errorf("%d words wait, want that of shard 1", words)
	}
}

// Words on verdicts that the chain has are dropped.
func TestWordsEndWithTheChain(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5)
	s.say(3, bad, name(1), name(2))
	s.say(4, good, name(3), name(4))
	s.verdicts.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, 6)},
		encodeVerdicts([]ledger.Verdict{{ID: name(2), Shard: 2, Result: good}}))
	block := s.chain.add()
	for i, code := range []ledger.Code{ledger.Applied, ledger.Settled, ledger.Released} {
		block.Unpacked = append(block.Unpacked, ledger.Entry{Decoded: &ledger.Transaction{
			Verdict: &ledger.Verdict{ID: name(i + 1), Shard: 1, Result: good}},
			Result: ledger.Result{Code: code}})
	}
	s.verdicts.Applied(block)
	if status := s.verdicts.Status(); status.Words != 1 || status.Contradicted != 2 {
		t.Errorf("%+v", status)
	}
	s.say(5, bad, name(1), name(2), name(3))
	if words := s.verdicts.Status().Words; words != 1 {
		t.Errorf("%d words", words)
	}
}

// The log has at most one line about a member in a while.
func TestContradictionsDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5)
	v := s.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	of := func(index ledger.MemberIndex) verdicts.Contradiction {
		return verdicts.Contradiction{Member: verdicts.Member{Shard: 1, Index: index}}
	}
	if logged := v.contradict([]verdicts.Contradiction{of(0), of(0), of(1),
		of(0)}); len(logged) != 2 {
		t.Errorf("%d lines", len(logged))
	}
	if logged := v.contradict([]verdicts.Contradiction{of(0)}); len(logged) != 0 {
		t.Errorf("%d lines again", len(logged))
	}
	v.exposed[verdicts.Member{Shard: 1}] = time.Now().Add(-contradictionEvery)
	if logged := v.contradict([]verdicts.Contradiction{of(0), of(1)}); len(logged) != 1 {
		t.Errorf("%d lines later", len(logged))
	}
	if v.status.Contradicted != 7 {
		t.Errorf("%d contradictions", v.status.Contradicted)
	}
}

// In a vouched book, each member tells and asks all members of the other shard.
func TestVouchedTellsAndAsksAll(t *testing.T) {
	t.Parallel()
	const transactions = 6
	s := vouched(t, VerdictsConfig{AskAfter: time.Millisecond}, 3, 4, 5)
	s.looked()
	var ids []ledger.Hash
	for i := range transactions {
		id := name(i)
		id[0], id[4] = byte(i), byte(i/2) // others act on these in other books
		ids = append(ids, id)
	}
	s.verdicts.Applied(s.chain.add(ids...))
	s.verdicts.DurableTo(1)
	s.await("all are told all", func() bool {
		for _, o := range s.others {
			for _, id := range ids {
				if o.times(id) != 1 {
					return false
				}
			}
		}
		return true
	})
	s.wait(ids[0])
	s.verdicts.Applied(s.chain.add(ids[0]))
	s.await("all are asked at once", func() bool {
		for _, o := range s.others {
			o.mu.Lock()
			asked := o.asked
			o.mu.Unlock()
			if asked != 1 {
				return false
			}
		}
		return s.verdicts.Status().Asked == 1
	})
}

// In a vouched book, each batch restates all verdicts in order, and the pool is woken only for
// something new.
func TestVouchedRestates(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5)
	s.looked()
	s.chain.set(name(1), verdicts.Awaited)
	s.chain.set(name(2), verdicts.Awaited)
	s.chain.set(name(3), verdicts.Awaited)
	tell := func(id int) {
		ready := s.ready.Load()
		s.say(4, good, name(id))
		s.say(5, good, name(id))
		s.await("it is to be proposed, and the pool is woken", func() bool {
			return s.has(name(id)) && s.ready.Load() > ready
		})
	}
	tell(3)
	tell(1)
	tell(2)
	for range 3 {
		got := s.propose(1 << 20)
		if len(got) != 3 || got[0].ID != name(1) || got[1].ID != name(2) || got[2].ID != name(3) {
			t.Fatalf("%v are proposed", got)
		}
		if got := s.propose(2*ledger.VerdictSize + 1); len(got) != 2 ||
			got[0].ID != name(1) || got[1].ID != name(2) {
			t.Fatalf("%v are proposed first", got)
		}
		s.say(3, good, name(1), name(2), name(3))
		s.looked()
	}
	if ready := s.ready.Load(); ready != 3 || !s.verdicts.Pending() {
		t.Errorf("the pool was woken %d times for three verdicts", ready)
	}
}

// A verdict that the chain does not take wakes the pool again after a while.
func TestVouchedWakesAgain(t *testing.T) {
	t.Parallel()
	const again = 50 * time.Millisecond
	s := vouched(t, VerdictsConfig{AgainAfter: again}, 3, 4, 5)
	s.looked()
	s.chain.set(name(1), verdicts.Awaited)
	start := time.Now()
	s.say(3, good, name(1))
	s.say(4, good, name(1))
	s.await("the pool is woken", func() bool { return s.ready.Load() > 0 })
	for range 3 {
		s.propose(1 << 20)
		ready := s.ready.Load()
		s.await("the pool is woken again", func() bool { return s.ready.Load() > ready })
	}
	if ready := s.ready.Load(); ready > int64(time.Since(start)/again)+1 {
		t.Errorf("the pool was woken %d times in %s", ready, time.Since(start))
	}
}

// A believed verdict that was dropped for lack of room is judged again when its transaction waits,
// without any word.
func TestBeliefsOutlastTheirSets(t *testing.T) {
	t.Parallel()
	bounds := verdicts.DefaultBounds()
	bounds.Early = 1
	s := vouched(t, VerdictsConfig{bounds: bounds, AskAfter: time.Millisecond,
		AskEvery: time.Millisecond}, 3, 4, 5)
	for i := range 2 {
		s.say(3+i, good, name(1), name(2))
	}
	s.await("the first is dropped", func() bool {
		s.verdicts.mu.Lock()
		defer s.verdicts.mu.Unlock()
		return s.verdicts.exchange.Knows(verdicts.Key{ID: name(2), Shard: 1})
	})
	s.wait(name(1))
	s.verdicts.Applied(s.chain.add(name(1)))
	s.await("it is to be proposed", func() bool { return s.has(name(1)) })
}

// A new store judges what is believed, and words that wait are kept.
func TestVouchedReset(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{}, 3, 4, 5)
	s.chain.set(name(1), verdicts.Over)
	s.say(3, good, name(1), name(2))
	s.say(4, good, name(1))
	s.await("it is over", func() bool {
		s.verdicts.mu.Lock()
		defer s.verdicts.mu.Unlock()
		return s.verdicts.exchange.Settled(verdicts.Key{ID: name(1), Shard: 1})
	})
	s.wait(name(1), name(2))
	s.verdicts.Reset()
	s.await("the first is to be proposed", func() bool { return s.has(name(1)) })
	s.say(5, good, name(2))
	s.await("the second is to be proposed", func() bool { return s.has(name(2)) })
}

// A verdict that nobody tells is proved, after the members were asked in vain.
func TestProofs(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[ledger.Hash]int{}
	var running atomic.Int32
	s := vouched(t, VerdictsConfig{AskAfter: time.Millisecond, AskEvery: time.Millisecond,
		Prove: func(ctx context.Context, shard ledger.ShardID, id ledger.Hash) (ledger.Verdict,
			error) {
			if running.Add(1) > 1 {
				t.Error("two proofs at a time")
			}
			defer running.Add(-1)
			deadline, set := ctx.Deadline()
			if !set || shard != 1 || time.Until(deadline) > proofTimeout {
				t.Errorf("shard %d, deadline %v", shard, deadline)
			}
			mu.Lock()
			defer mu.Unlock()
			calls[id]++
			verdict := ledger.Verdict{ID: id, Shard: 1, Result: bad}
			switch {
			case id == name(2) && calls[id] == 1:
				return ledger.Verdict{}, errors.New("no member answers")
			case id == name(3):
				verdict.ID = name(4)
			case id == name(5):
				verdict.Result.Code = ledger.Settled
			case id == name(6):
				verdict.Shard = 2
			}
			return verdict, nil
		}}, 3, 4, 5)
	s.chain.set(name(4), verdicts.Awaited)
	s.say(3, good, name(1))
	s.wait(name(1), name(2), name(3), name(5), name(6))
	s.verdicts.Applied(s.chain.add(name(1)))
	s.await("two are proved", func() bool { return s.has(name(1)) && s.has(name(2)) })
	s.await("the others are tried repeatedly", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return calls[name(3)] > 1 && calls[name(5)] > 1 && calls[name(6)] > 1
	})
	for _, i := range []int{3, 4, 5, 6} {
		if _, believed := s.believes(name(i)); believed {
			t.Errorf("a wrong proof for transaction %d is believed", i)
		}
	}
	if result, believed := s.believes(name(1)); !believed || result != bad {
		t.Errorf("%v, %v", result, believed)
	}
	if status := s.verdicts.Status(); status.Proved != 2 || status.Contradicted != 1 {
		t.Errorf("%+v", status)
	}
	mu.Lock()
	defer mu.Unlock()
	if calls[name(1)] != 1 || calls[name(2)] != 2 {
		t.Errorf("%d and %d proofs", calls[name(1)], calls[name(2)])
	}
}

// The verdicts that wait for a proof have a bound, and each waits once.
func TestWantedProofsAreBounded(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{Prove: func(context.Context, ledger.ShardID, ledger.Hash) (
		ledger.Verdict, error) {
		return ledger.Verdict{}, errors.New("none")
	}}, 3, 4, 5)
	v := s.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, want := range []int{1, 1, proofsMax} {
		for n := range []int{1, 1, 2 * proofsMax}[i] {
			v.wantProof(verdicts.Key{ID: name(n), Shard: 1})
		}
		if len(v.unproved) != want {
			t.Errorf("%d verdicts wait for a proof, want %d", len(v.unproved), want)
		}
	}
}

// Close ends a proof that takes long. There is no other proof beside it.
func TestCloseEndsProofs(t *testing.T) {
	t.Parallel()
	var s *scene
	started := make(chan struct{}, 10)
	s = vouched(t, VerdictsConfig{AskAfter: time.Millisecond, AskEvery: time.Millisecond,
		Prove: func(ctx context.Context, _ ledger.ShardID, _ ledger.Hash) (ledger.Verdict, error) {
			if asked := s.verdicts.Status().Asked; asked < 2*proofAfter {
				t.Errorf("a proof after %d questions", asked)
			}
			started <- struct{}{}
			<-ctx.Done()
			return ledger.Verdict{}, ctx.Err()
		}}, 3, 4, 5)
	s.wait(name(1), name(2))
	s.verdicts.Applied(s.chain.add(name(1)))
	<-started
	asked := s.verdicts.Status().Asked
	s.await("more questions", func() bool { return s.verdicts.Status().Asked > asked+20 })
	start := time.Now()
	s.verdicts.Close()
	if took := time.Since(start); took > proofTimeout/2 {
		t.Errorf("it took %s", took)
	}
	if len(started) > 0 {
		t.Errorf("%d other proofs were tried", len(started))
	}
}
