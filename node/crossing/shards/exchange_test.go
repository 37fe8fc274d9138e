package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// fakeChain returns the values that a test sets.
type fakeChain struct {
	mu         sync.Mutex
	blocks     []*ledger.Block
	standing   map[ledger.Hash]verdicts.Standing
	pending    []state.Pending
	looks      int // calls of AppendedHeight: the goroutine has looked at the chain
	onStanding func(id ledger.Hash)
}

// name makes an id on which the first members of each shard act.
func name(i int) ledger.Hash {
	var id ledger.Hash
	binary.BigEndian.PutUint32(id[8:], uint32(i))
	return id
}

var good = ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}

// add makes a block of transactions that are set aside.
func (c *fakeChain) add(ids ...ledger.Hash) *ledger.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	block := &ledger.Block{Header: ledger.Header{Height: ledger.Height(len(c.blocks))}}
	for _, id := range ids {
		block.Unpacked = append(block.Unpacked, ledger.Entry{ID: id, Decoded: &someTransaction,
			Result: good})
	}
	c.blocks = append(c.blocks, block)
	return block
}

func (c *fakeChain) set(id ledger.Hash, standing verdicts.Standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing[id] = standing
}

func (c *fakeChain) AppendedHeight() ledger.Height {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return ledger.Height(len(c.blocks) - 1)
}

func (c *fakeChain) OwnVerdicts(height ledger.Height) (own []state.OwnVerdict, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(height) >= len(c.blocks) {
		return nil, store.ErrNotFound
	}
	for i := range c.blocks[height].Unpacked {
		if verdict, made := ledger.VerdictOf(&c.blocks[height].Unpacked[i], 0); made {
			own = append(own, state.OwnVerdict{Verdict: verdict, To: []ledger.ShardID{1}})
		}
	}
	return own, nil
}

func (c *fakeChain) Awaiting() []state.Pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pending)
}

func (c *fakeChain) AwaitingCount() int { return len(c.Awaiting()) }

func (c *fakeChain) Standing(verdict *ledger.Verdict) (verdicts.Standing, error) {
	c.mu.Lock()
	standing, hook := c.standing[verdict.ID], c.onStanding
	c.mu.Unlock()
	if hook != nil {
		hook(verdict.ID)
	}
	return standing, nil
}

// Testimony testifies that this chain heard nothing.
func (c *fakeChain) Testimony(id ledger.Hash, asked ledger.Testimony, _ ledger.Height) (
	ledger.Verdict, bool, error) {
	return asked.Verdict(id, 0, false), true, nil
}

func (c *fakeChain) Verdict(id ledger.Hash, _ ledger.ShardID, upTo ledger.Height) (ledger.Verdict,
	bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for height := range min(int(upTo)+1, len(c.blocks)) {
		for _, entry := range c.blocks[height].Unpacked {
			if entry.ID == id {
				return ledger.Verdict{ID: id, Result: good}, true, nil
			}
		}
	}
	return ledger.Verdict{}, false, nil
}

// scene is member 0 of shard 0, under test, and the members of shard 1, which the test controls.
type scene struct {
	t        *testing.T
	chain    *fakeChain
	verdicts *Verdicts
	durable  atomic.Uint64
	ready    atomic.Int64
	others   [3]*other
	peers    map[int]rdmanet.PeerID // of the members that the test needs often
}

// other is a member of shard 1.
type other struct {
	control *wire.Datagrams
	peer    rdmanet.Peer
	mu      sync.Mutex
	heard   []ledger.Verdict
	groups  []int // the sizes of the groups that it heard
	asked   int
}

// newScene sets every time that is 0 in the configuration to one so long that it does not matter.
func newScene(t *testing.T, config VerdictsConfig) *scene {
	t.Helper()
	network := memory.NewNetwork()
	s := &scene{t: t, chain: &fakeChain{standing: map[ledger.Hash]verdicts.Standing{}},
		peers: map[int]rdmanet.PeerID{}}
	s.chain.add()
	for i := range s.others {
		o := &other{peer: rdmanet.Peer{ID: peerOf(t, 3+i)}}
		_, o.control = controlOf(t, network, o.peer.ID)
		err := errors.Join(o.control.Register(wire.KindVerdicts, func(_ rdmanet.Peer,
			payload []byte) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if isGroup(payload) {
				group, err := decodeGroup(payload, 0)
				if err != nil {
					t.Error(err)
				}
				for i := range group.IDs {
					o.heard = append(o.heard, group.Verdict(i))
				}
				o.groups = append(o.groups, len(group.IDs))
				return
			}
			verdicts, err := decodeVerdicts(payload, 0)
			if err != nil {
				t.Error(err)
			}
			o.heard = append(o.heard, verdicts...)
		}), o.control.Register(wire.KindVerdictQuery, func(_ rdmanet.Peer, payload []byte) {
			if _, _, err := decodeQuery(payload); err != nil {
				t.Error(err)
			}
			o.mu.Lock()
			o.asked++
			o.mu.Unlock()
		}))
		if err != nil {
			t.Fatal(err)
		}
		s.others[i] = o
	}
	for _, each := range []*time.Duration{&config.AgainAfter, &config.AskAfter, &config.AskEvery} {
		if *each == 0 {
			*each = time.Hour
		}
	}
	config.Directory = directory(t, 0)
	_, config.Control = controlOf(t, network, peerOf(t, 0))
	config.Logger = quiet
	config.Durable = func() ledger.Height { return ledger.Height(s.durable.Load()) }
	config.Ready = func() { s.ready.Add(1) }
	if config.Store == nil {
		config.Store = func() Chain { return s.chain }
	}
	var err error
	if s.verdicts, err = NewVerdicts(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.verdicts.Close)
	return s
}

// tell makes a member of shard 1 report that its part of transactions is good.
func (s *scene) tell(from int, ids ...ledger.Hash) {
	s.t.Helper()
	told := make([]ledger.Verdict, len(ids))
	for i, id := range ids {
		told[i] = ledger.Verdict{ID: id, Shard: 1, Result: good}
	}
	if err := s.others[from].control.Send(peerOf(s.t, 0), wire.KindVerdicts,
		encodeVerdicts(told)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) ask(from int, ids ...ledger.Hash) {
	s.t.Helper()
	if err := s.others[from].control.Send(peerOf(s.t, 0), wire.KindVerdictQuery,
		encodeQuery(ids, 0)); err != nil {
		s.t.Fatal(err)
	}
}

// times returns how often a member received a verdict.
func (o *other) times(id ledger.Hash) (count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, verdict := range o.heard {
		if verdict.ID == id {
			count++
		}
	}
	return count
}

// propose returns the single verdicts to propose.
func (s *scene) propose(room int) []ledger.Verdict {
	_, proposed := s.verdicts.Propose(room)
	return proposed
}

func (s *scene) await(what string, holds func() bool) {
	s.t.Helper()
	eventually(s.t, what, holds)
}

// has reports whether a transaction's verdict is to be proposed.
func (s *scene) has(id ledger.Hash) bool {
	s.verdicts.mu.Lock()
	defer s.verdicts.mu.Unlock()
	return s.verdicts.exchange.Awaits(verdicts.Key{ID: id, Shard: 1})
}

// durability expects that only verdicts of durable blocks are sent, on request or not.
func durability(t *testing.T, f faults) error {
	s := newScene(t, VerdictsConfig{faults: f})
	s.await("a first look", func() bool {
		s.chain.mu.Lock()
		defer s.chain.mu.Unlock()
		return s.chain.looks > 0
	})
	s.verdicts.Applied(s.chain.add(name(1)))
	s.durable.Store(1)
	s.verdicts.DurableTo(1)
	s.verdicts.Applied(s.chain.add(name(2)))
	s.await("the durable one is told to f+1", func() bool {
		return s.others[0].times(name(1)) > 0 && s.others[1].times(name(1)) > 0
	})
	// After the answer to the second query, all messages caused by the first one or the block have
	// been sent.
	for range 2 {
		before := s.others[0].times(name(1))
		s.ask(0, name(2), name(1))
		s.await("an answer", func() bool { return s.others[0].times(name(1)) > before })
	}
	if s.others[0].times(name(2)) > 0 {
		return errors.New("told before it was durable")
	}
	if count := s.others[2].times(name(1)); count > 0 {
		return fmt.Errorf("told to more than f+1, %d times", count)
	}
	s.verdicts.DurableTo(2)
	s.await("the other one is told when it is durable", func() bool {
		return s.others[0].times(name(2)) > 0
	})
	return nil
}

// candidates expects that unanswered queries go to every member in turn.
func candidates(t *testing.T, f faults) error {
	s := newScene(t, VerdictsConfig{AskAfter: time.Millisecond, AskEvery: time.Millisecond,
		faults: f})
	s.chain.mu.Lock()
	s.chain.pending = []state.Pending{{ID: name(1), Height: 1, Waits: []ledger.ShardID{1}}}
	s.chain.mu.Unlock()
	s.verdicts.Applied(s.chain.add(name(1)))
	var counts [3]int
	s.await("nine questions", func() bool {
		total := 0
		for i, o := range s.others {
			o.mu.Lock()
			counts[i] = o.asked
			o.mu.Unlock()
			total += counts[i]
		}
		return total >= 9
	})
	if slices.Contains(counts[:], 0) {
		return fmt.Errorf("questions went to %v", counts)
	}
	return nil
}

// early expects that a verdict that arrived before its transaction is available when the
// transaction arrives, without a query.
func early(t *testing.T, f faults) error {
	s := newScene(t, VerdictsConfig{faults: f})
	for i := 2; i <= 3; i++ {
		s.chain.set(name(i), verdicts.Awaited)
	}
	s.tell(0, name(1), name(2))
	s.await("the second is judged, and so the first", func() bool { return s.has(name(2)) })
	s.chain.set(name(1), verdicts.Awaited)
	s.verdicts.Applied(s.chain.add(name(1)))
	s.tell(0, name(3))
	s.await("the third is judged, and so the first again", func() bool { return s.has(name(3)) })
	if !s.has(name(1)) {
		return errors.New("it was forgotten")
	}
	if got := s.propose(10 * ledger.VerdictSize); len(got) != 3 {
		return fmt.Errorf("%d are proposed", len(got))
	}
	return nil
}

func TestWhatHoldsAndPlantedBugs(t *testing.T) {
	t.Parallel()
	for what, each := range map[string]struct {
		check func(*testing.T, faults) error
		bug   faults
	}{
		"told only when durable":           {durability, faults{notDurable: true}},
		"everybody is asked in turn":       {candidates, faults{sameCandidate: true}},
		"what comes too early is not lost": {early, faults{exchange: verdicts.FaultForgetEarly}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if err := each.check(t, faults{}); err != nil {
				t.Error(err)
			}
			if err := each.check(t, each.bug); err == nil {
				t.Error("the planted bug was not found")
			}
		})
	}
}

// If a transaction is executed while its verdict is judged, the verdict is not lost.
func TestJudgingBesideExecution(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{})
	once := sync.Once{}
	s.chain.onStanding = func(id ledger.Hash) {
		once.Do(func() {
			s.chain.set(id, verdicts.Awaited)
			s.verdicts.Applied(s.chain.add(id))
		})
	}
	s.tell(0, name(1))
	s.await("it is to be proposed", func() bool { return s.has(name(1)) })
}

// A verdict that was judged over, because its transaction came into the chain between two reads, is
// accepted when it arrives again.
func TestWhatIsWaitedForIsNotOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{AskAfter: 20 * time.Millisecond,
		AskEvery: 20 * time.Millisecond})
	s.chain.set(name(1), verdicts.Over)
	s.tell(0, name(1))
	s.await("it is taken for over", func() bool {
		s.verdicts.mu.Lock()
		defer s.verdicts.mu.Unlock()
		return s.verdicts.exchange.Settled(verdicts.Key{ID: name(1), Shard: 1})
	})
	s.chain.set(name(1), verdicts.Awaited)
	s.chain.mu.Lock()
	s.chain.pending = []state.Pending{{ID: name(1), Waits: []ledger.ShardID{1}}}
	s.chain.mu.Unlock()
	s.verdicts.Applied(s.chain.add(name(1)))
	s.await("it is asked for", func() bool {
		o := s.others[0]
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.asked > 0
	})
	s.tell(1, name(1))
	s.await("it is to be proposed", func() bool { return s.has(name(1)) })
}

// A node that starts does not know yet which blocks are durable. Once it does, it tells no more
// than the verdicts of the last blocks.
func TestAStartTellsTheLastBlocksOnly(t *testing.T) {
	t.Parallel()
	chain := &fakeChain{standing: map[ledger.Hash]verdicts.Standing{}}
	chain.add()
	const height = 100
	for i := range height {
		chain.add(name(i))
	}
	s := newScene(t, VerdictsConfig{Store: func() Chain { return chain }})
	s.await("it has looked", func() bool {
		chain.mu.Lock()
		defer chain.mu.Unlock()
		return chain.looks > 1
	})
	s.verdicts.DurableTo(height)
	s.await("the last block is told", func() bool { return s.others[0].times(name(height-1)) > 0 })
	for i := range height {
		if told, want := s.others[0].times(name(i)), i >= height-pushAgain; (told > 0) != want {
			t.Errorf("block %d of %d is told %d times", i+1, height, told)
		}
	}
}

func TestProposedAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	const again = 50 * time.Millisecond
	s := newScene(t, VerdictsConfig{AgainAfter: again})
	ids := []ledger.Hash{name(1), name(2), name(3)}
	for _, id := range ids {
		s.chain.set(id, verdicts.Awaited)
	}
	s.tell(0, ids...)
	s.tell(1, ids...)
	s.await("all are there", func() bool {
		return s.verdicts.Status().Awaited == 3 && s.ready.Load() > 0
	})
	if got := s.propose(ledger.VerdictSize - 1); len(got) != 0 {
		t.Fatalf("%d fit into too little room", len(got))
	}
	start := time.Now()
	if got := s.propose(2 * ledger.VerdictSize); len(got) != 2 {
		t.Fatalf("%d were proposed", len(got))
	}
	if got := s.propose(1 << 20); len(got) != 1 && time.Since(start) < again {
		t.Fatalf("%d were proposed again at once", len(got))
	}
	ready := s.ready.Load()
	s.await("it is said that they are to be proposed again", func() bool {
		return s.ready.Load() > ready
	})
	if time.Since(start) < again {
		t.Error("too early")
	}
	s.await("all are proposed again", func() bool {
		return s.verdicts.Pending() && len(s.propose(1<<20)) > 0
	})

	// One is recorded, the transactions of the others are settled and released: nothing is left.
	block := s.chain.add()
	for i, code := range []ledger.Code{ledger.Applied, ledger.Settled, ledger.Released} {
		verdict := ledger.Verdict{ID: ids[i], Shard: 1, Result: good}
		block.Unpacked = append(block.Unpacked,
			ledger.Entry{Decoded: &ledger.Transaction{Verdict: &verdict},
				Result: ledger.Result{Code: code}})
	}
	s.verdicts.Applied(block)
	if status := s.verdicts.Status(); status.Awaited != 0 || s.verdicts.Pending() {
		t.Errorf("%+v", status)
	}
	received := s.verdicts.Status().Received
	s.tell(2, ids...)
	s.await("they come once more", func() bool { return s.verdicts.Status().Received > received })
	s.verdicts.mu.Lock()
	defer s.verdicts.mu.Unlock()
	if s.verdicts.exchange.Counts().Received > 0 {
		t.Error("what is settled is judged again")
	}
}

// A new store judges for itself.
func TestReset(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{})
	s.chain.set(name(1), verdicts.Awaited)
	s.chain.set(name(2), verdicts.Awaited)
	s.tell(0, name(1), name(2), name(3))
	s.await("two are awaited, one is early", func() bool {
		status := s.verdicts.Status()
		return status.Awaited == 2 && status.Early == 1
	})
	s.chain.set(name(1), verdicts.Over)
	s.chain.set(name(2), verdicts.Early)
	s.chain.set(name(3), verdicts.Awaited)
	s.verdicts.Reset()
	s.await("it is the other way round", func() bool {
		status := s.verdicts.Status()
		return status.Awaited == 1 && status.Early == 1 && s.has(name(3))
	})
}

// A look at the waiting transactions corrects the effects of a missing call of Applied.
func TestLooksMend(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{AskAfter: time.Millisecond, AskEvery: time.Hour})
	s.chain.set(name(1), verdicts.Awaited)
	s.tell(0, name(1), name(2))
	s.await("one is awaited, one is early", func() bool {
		status := s.verdicts.Status()
		return status.Awaited == 1 && status.Early == 1
	})
	s.chain.set(name(1), verdicts.Over)
	s.chain.set(name(2), verdicts.Awaited)
	s.chain.mu.Lock()
	s.chain.pending = []state.Pending{{ID: name(2), Waits: []ledger.ShardID{1}}}
	s.chain.mu.Unlock()
	s.verdicts.Applied(s.chain.add(name(7)))
	s.await("both are where they belong", func() bool {
		status := s.verdicts.Status()
		return status.Awaited == 1 && status.Early == 0 && s.has(name(2))
	})
}

// Whatever arrives, memory is bounded and no sender is blocked.
func TestBounds(t *testing.T) {
	t.Parallel()
	bounds := verdicts.DefaultBounds()
	bounds.Early = 100
	s := newScene(t, VerdictsConfig{bounds: bounds})
	gate := make(chan struct{})
	s.chain.onStanding = func(ledger.Hash) { <-gate }
	v, next := s.verdicts, 0
	for range (bounds.Received + bounds.Received/4) / verdictsMax {
		told := make([]ledger.Verdict, verdictsMax)
		for i := range told {
			next++
			told[i] = ledger.Verdict{ID: name(next), Shard: 1, Result: good}
		}
		v.receiveVerdicts(s.others[0].peer, encodeVerdicts(told))
		v.receiveQuery(s.others[0].peer, encodeQuery([]ledger.Hash{name(next)}, 0))
	}
	v.mu.Lock()
	if counts := v.exchange.Counts(); counts.Received > bounds.Received || counts.Dropped == 0 ||
		len(v.queries) > queriesPerPeer {
		t.Errorf("%+v, %d questions", counts, len(v.queries))
	}
	v.mu.Unlock()
	close(gate)
	s.await("all are judged", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		counts := v.exchange.Counts()
		return counts.Received == 0 && counts.Early == bounds.Early
	})
}

// Verdicts are accepted only from members of their own shard.
func TestWhoIsHeard(t *testing.T) {
	t.Parallel()
	s := newScene(t, VerdictsConfig{})
	v := s.verdicts
	ofShard := func(shard ledger.ShardID) []byte {
		return encodeVerdicts([]ledger.Verdict{{ID: name(1), Shard: shard, Result: good}})
	}
	v.receiveVerdicts(rdmanet.Peer{ID: "stranger"}, ofShard(1))
	v.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, 1)}, ofShard(0))
	v.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, 6)}, ofShard(1))
	v.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, 3)}, []byte{1})
	v.receiveQuery(rdmanet.Peer{ID: "stranger"}, encodeQuery([]ledger.Hash{name(1)}, 0))
	v.receiveQuery(rdmanet.Peer{ID: peerOf(t, 3)}, nil)
	v.Close()
	v.receiveVerdicts(rdmanet.Peer{ID: peerOf(t, 3)}, ofShard(1))
	if status := v.Status(); status.Received != 0 || len(v.queries) != 0 ||
		s.propose(1<<20) != nil {
		t.Errorf("%+v, %d questions", status, len(v.queries))
	}
}
