package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/verification"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/order"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a pipeline of the first of three members.
type fixture struct {
	t        testing.TB
	store    *store.Store
	pool     *mempool.Pool
	pipeline *pipeline.Pipeline
	client   *ledgertest.Client
	round    order.Round
	free     atomic.Uint64
	failed   chan error
	genesis  *ledger.Genesis
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return fixtureOf(t, ledgertest.Genesis(), mempool.Config{}, pipeline.Config{})
}

// fixtureOf is a fixture of another book, with the given settings of pool and pipeline.
func fixtureOf(t testing.TB, genesis *ledger.Genesis, pool mempool.Config,
	config pipeline.Config) *fixture {
	t.Helper()
	f := &fixture{t: t, genesis: genesis, failed: make(chan error, 1),
		client: ledgertest.NewClient(genesis, "acme")}
	f.free.Store(1 << 40)
	f.store = f.open()
	pool.BytesMax, pool.Tip = 1<<20, func() mempool.Tip { return f.pipeline.Tip() }
	f.pool = mempool.New(pool)
	config.Pool, config.Self, config.Failed = f.pool, 0, func(err error) { f.failed <- err }
	config.Verification = verification.New()
	f.pipeline = pipeline.New(config, f.store)
	t.Cleanup(func() {
		f.pipeline.Close()
		config.Verification.Close()
		if err := f.pipeline.Store().Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	f.begin(1)
	return f
}

func (f *fixture) open() *store.Store {
	f.t.Helper()
	opened, err := store.Open(f.t.TempDir(), f.genesis, store.Options{
		MemTableBytes: 4 << 20, ReserveBytes: 1 << 20, FreeSpace: func(string) (uint64, error) {
			return f.free.Load(), nil
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return opened
}

func (f *fixture) begin(number uint64) {
	f.t.Helper()
	f.pipeline.Begin(pipeline.Run{Number: number, First: f.round + 1,
		Members: []order.ServerID{0, 1, 2},
		Shard:   generation.Membership{Members: []order.ServerID{0, 1, 2}}})
}

// next returns a bundle with one transaction, which fails and changes no account.
func (f *fixture) next() *ledger.Bundle { return f.client.Bundle(f.client.Next()) }

// payload returns a round message of member 1.
func (f *fixture) payload(marks byte, header ledger.BatchHeader, bundles ...*ledger.Bundle) []byte {
	encoded := make([][]byte, len(bundles))
	for i, bundle := range bundles {
		encoded[i] = bundle.Encode()
	}
	if len(bundles) == 0 {
		return []byte{marks}
	}
	return append(ledger.EncodeBatch(header, encoded), marks)
}

func (f *fixture) genesisHeader() ledger.BatchHeader {
	return ledger.BatchHeader{Time: 1, Tip: f.store.GenesisHash()}
}

func (f *fixture) deliver(payloads ...[]byte) {
	f.t.Helper()
	f.deliverOf(1, payloads...)
}

// deliverOf delivers rounds with one message of a member each.
func (f *fixture) deliverOf(origin order.ServerID, payloads ...[]byte) {
	f.t.Helper()
	var deliveries []order.Delivery
	for _, payload := range payloads {
		f.round++
		deliveries = append(deliveries, order.Delivery{Round: f.round,
			Messages: []order.Message{{Origin: origin, Payload: payload}}})
	}
	if err := f.pipeline.Deliver(f.t.Context(), deliveries); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) barrier() {
	f.t.Helper()
	if err := f.pipeline.Barrier(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			heights, _ := f.pipeline.Heights()
			f.t.Fatalf("not in time: %s; heights %+v", what, heights)
		}
	}
}

func TestWaitAtEachLevel(t *testing.T) {
	t.Parallel()
	for _, level := range []report.Level{report.LevelAdmitted, report.LevelOrdered,
		report.LevelStored, report.LevelDurable} {
		f := newFixture(t)
		bundle := f.next()
		if err := f.pool.Add(bundle, bundle.Encode(), func(*ledger.Bundle) ([]bool, error) {
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		ids := []ledger.Hash{bundle.ID(0), bundle.ID(0)} // twice: answered twice
		type answer struct {
			statuses []report.Status
			err      error
		}
		done := make(chan answer, 1)
		go func() {
			statuses, err := f.pipeline.Wait(t.Context(), ids, level)
			done <- answer{statuses, err}
		}()
		if level == report.LevelAdmitted {
			if a := <-done; a.err != nil || a.statuses[0].Outcome != report.OutcomePending ||
				a.statuses[1].ID != ids[1] {
				t.Fatalf("admitted: %+v", a)
			}
			continue
		}
		f.deliver(f.payload(0, f.genesisHeader(), bundle))
		if level == report.LevelDurable {
			f.eventually("stored", func() bool {
				h, _ := f.pipeline.Heights()
				return h.Stored == 1
			})
			select {
			case a := <-done:
				t.Fatalf("durable on one disk of three: %+v", a)
			case <-time.After(20 * time.Millisecond):
			}
			f.pipeline.PeerStored(7, 1, 1) // of another generation: does not count
			if h, _ := f.pipeline.Heights(); h.Durable != 0 {
				t.Fatalf("durable by another generation's word: %+v", h)
			}
			f.pipeline.PeerStored(1, 2, 1)
		}
		a := <-done
		if a.err != nil || len(a.statuses) != 2 || a.statuses[1].Level < level ||
			a.statuses[0].Height != 1 {
			t.Fatalf("%v: %+v", level, a)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	known, unknown := f.next(), f.next()
	f.deliver(f.payload(0, f.genesisHeader(), known))
	f.barrier()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	statuses, err := f.pipeline.Wait(ctx, []ledger.Hash{unknown.ID(0), known.ID(0)},
		report.LevelOrdered)
	if !errors.Is(err, context.DeadlineExceeded) || len(statuses) != 2 ||
		statuses[0].Outcome != report.OutcomeUnknown || statuses[1].Height != 1 {
		t.Fatalf("%+v, %v", statuses, err)
	}
	// A transaction that is unknown now may come later.
	done := make(chan error, 1)
	go func() {
		_, err := f.pipeline.Wait(t.Context(), []ledger.Hash{unknown.ID(0)}, report.LevelStored)
		done <- err
	}()
	f.deliver(f.payload(0, f.genesisHeader(), unknown))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWaitHearsOfExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	transaction := f.client.Next()
	transaction.LastValid = 1
	bundle := f.client.Bundle(transaction)
	if err := f.pool.Add(bundle, bundle.Encode(), func(*ledger.Bundle) ([]bool, error) {
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan []report.Status, 1)
	go func() {
		statuses, _ := f.pipeline.Wait(t.Context(), []ledger.Hash{bundle.ID(0)},
			report.LevelDurable)
		done <- statuses
	}()
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	if statuses := <-done; statuses[0].Outcome != report.OutcomeExpired {
		t.Fatalf("%+v", statuses)
	}
}

// Results from a chain that was set aside do not count: another block reaches the same height
// again.
func TestWaitStartsAnewWithAnotherChain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lost, other := f.next(), f.next()
	f.deliver(f.payload(0, f.genesisHeader(), lost))
	f.barrier()
	done := make(chan []report.Status, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		statuses, _ := f.pipeline.Wait(ctx, []ledger.Hash{lost.ID(0)}, report.LevelDurable)
		done <- statuses
	}()
	f.eventually("stored", func() bool { h, _ := f.pipeline.Heights(); return h.Stored == 1 })
	if err := f.pipeline.Exchange(func(old *store.Store) (*store.Store, error) {
		return f.open(), old.Close()
	}); err != nil {
		t.Fatal(err)
	}
	f.begin(2)
	f.deliver(f.payload(0, f.genesisHeader(), other))
	f.barrier()
	f.pipeline.PeerStored(2, 1, 1)
	f.pipeline.PeerStored(2, 2, 1)
	f.eventually("the other block is durable", func() bool {
		h, _ := f.pipeline.Heights()
		return h.Durable == 1
	})
	select {
	case statuses := <-done:
		t.Fatalf("a transaction that is in no block: %+v", statuses)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if statuses := <-done; statuses[0].Outcome != report.OutcomeUnknown {
		t.Fatalf("%+v", statuses)
	}
}

// A majority stored block 1 of the run, beyond this head. The member leaves the run and fetches
// another block 1. No node knows that one to be durable.
func TestDurableBeyondTheHead(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	transaction := other.next()
	other.deliver(other.payload(0, other.genesisHeader(), transaction))
	other.barrier()
	block, err := other.store.Block(1)
	if err != nil {
		t.Fatal(err)
	}
	f.pipeline.PeerStored(1, 1, 1)
	f.pipeline.PeerStored(1, 2, 1)
	if err := f.pipeline.Append(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.pipeline.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if heights, _ := f.pipeline.Heights(); heights.Durable != 0 ||
		f.pipeline.Store().KnownDurable() != 0 {
		t.Errorf("a fetched block counts as durable: %+v, known %d", heights,
			f.pipeline.Store().KnownDurable())
	}
}

// Blocks from a peer are not those that the members of the last generation stored at these heights.
func TestStoredHeightsOfAnEarlierChainCountNoMore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := newFixture(t)
	other.deliver(other.payload(0, other.genesisHeader(), other.next()))
	other.barrier()
	block, err := other.store.Block(1)
	if err != nil {
		t.Fatal(err)
	}
	f.pipeline.PeerStored(1, 1, 1) // another block 1
	if err := f.pipeline.Append(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	f.eventually("stored", func() bool { h, _ := f.pipeline.Heights(); return h.Stored == 1 })
	f.pipeline.PeerStored(1, 2, 1)
	if h, _ := f.pipeline.Heights(); h.Durable != 0 {
		t.Fatalf("%+v", h)
	}
	f.pipeline.PeerDurable(1)
	if h, _ := f.pipeline.Heights(); h.Durable != 1 {
		t.Fatalf("%+v", h)
	}
}

func TestForkAlarm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	f.barrier()
	f.deliver(f.payload(0, ledger.BatchHeader{Time: 1, Height: 1, Tip: ledger.Hash{1}}, f.next()))
	if err := <-f.failed; !errors.Is(err, pipeline.ErrFork) {
		t.Fatal(err)
	}
	if f.pipeline.Tip().Height != 1 || f.pipeline.Stalled() == "" {
		t.Fatalf("executed after the alarm: %+v, %q", f.pipeline.Tip(), f.pipeline.Stalled())
	}
}

func TestMarksAndRounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entrant := f.payload(0, f.genesisHeader(), f.next())
	entrant = entrant[:len(entrant)-1] // the marks of the payload without its last byte
	entrant = append(entrant, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0)
	entrant = append(append(entrant, make([]byte, 16)...), 1)
	f.deliver(f.payload(0, f.genesisHeader(), f.next()), entrant,
		f.payload(0x80, f.genesisHeader()))
	f.barrier()
	marks := f.pipeline.Marks()
	if f.pipeline.Tip().Height != 2 || f.pipeline.Round() != 3 || !marks.Regroup ||
		len(marks.Entrants) != 1 || marks.Entrants[0] != (mempool.Entrant{Server: 2, Ticket: 7}) {
		t.Fatalf("height %d, round %d, marks %+v", f.pipeline.Tip().Height, f.pipeline.Round(),
			marks)
	}
	f.begin(2)
	if marks := f.pipeline.Marks(); marks.Any() {
		t.Fatalf("marks of an earlier run: %+v", marks)
	}
	replayed := order.Delivery{Epoch: 9, Round: 17,
		Messages: []order.Message{{Origin: 1, Payload: f.payload(0, f.genesisHeader(), f.next())}}}
	if err := f.pipeline.Replay(t.Context(), replayed, 0); err != nil {
		t.Fatal(err)
	}
	if head := f.store.Head(); head.Height != 3 || head.Epoch != 9 || head.Round != 17 ||
		f.pipeline.Round() != 17 {
		t.Fatalf("replayed: %+v, round %d", head, f.pipeline.Round())
	}
	f.round = 17
	f.begin(3)
	if epoch := f.pipeline.ChainEpoch(1); epoch != 10 {
		t.Fatalf("the first epoch after 9 is %d", epoch)
	}
}

func TestFullDiskHoldsTheRoundBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.free.Store(0)
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	f.eventually("execution waits", func() bool { return f.pipeline.Stalled() != "" })
	f.free.Store(1 << 40)
	f.barrier()
	if f.pipeline.Tip().Height != 1 || f.pipeline.Stalled() != "" {
		t.Fatalf("height %d, %q", f.pipeline.Tip().Height, f.pipeline.Stalled())
	}
}

func TestCloseWhileBlocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.free.Store(0)
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	f.eventually("execution waits", func() bool { return f.pipeline.Stalled() != "" })
	done := make(chan error, 3)
	go func() { done <- f.pipeline.Barrier(t.Context()) }()
	go func() {
		_, err := f.pipeline.Wait(t.Context(), []ledger.Hash{{1}}, report.LevelDurable)
		done <- err
	}()
	go func() {
		for {
			if err := f.pipeline.Deliver(t.Context(), nil); err != nil {
				done <- err
				return
			}
		}
	}()
	f.pipeline.Close()
	for range 3 {
		if err := <-done; !errors.Is(err, pipeline.ErrStopping) {
			t.Fatal(err)
		}
	}
}

func BenchmarkDeliverToOrdered(b *testing.B) {
	f := newFixture(b)
	const batch = 10
	payloads := make([][]byte, b.N)
	for i := range payloads {
		bundles := make([]*ledger.Bundle, batch)
		for k := range bundles {
			bundles[k] = f.next()
		}
		payloads[i] = f.payload(0, f.genesisHeader(), bundles...)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, payload := range payloads {
		f.deliver(payload)
	}
	f.barrier()
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "tx/s")
}

// Durable blocks stay durable after a restart, before any peer has reported anything.
func TestDurableHeightSurvivesARestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	options := store.Options{MemTableBytes: 4 << 20, ReserveBytes: 1 << 20}
	for restart := range 3 {
		opened, err := store.Open(dir, f.genesis, options)
		if err != nil {
			t.Fatal(err)
		}
		pool := mempool.New(mempool.Config{BytesMax: 1 << 20, Tip: func() mempool.Tip {
			return mempool.Tip{}
		}})
		verifying := verification.New()
		p := pipeline.New(pipeline.Config{Pool: pool, Self: 0, Failed: func(err error) {
			t.Error(err)
		}, Verification: verifying}, opened)
		height := ledger.Height(2 * restart)
		if heights, _ := p.Heights(); heights.Durable != max(height, 1)-1 ||
			heights.Ordered != height {
			t.Fatalf("after %d restarts the heights are %+v", restart, heights)
		}
		p.Begin(pipeline.Run{Number: uint64(restart + 1), First: order.Round(height) + 1,
			Members: []order.ServerID{0, 1, 2},
			Shard:   generation.Membership{Members: []order.ServerID{0, 1, 2}}})
		for range 2 {
			height++
			header := ledger.BatchHeader{Time: 1, Tip: opened.GenesisHash()}
			message := order.Message{Origin: 1, Payload: f.payload(0, header, f.next())}
			round := order.Delivery{Round: order.Round(height), Messages: []order.Message{message}}
			if err := p.Deliver(t.Context(), []order.Delivery{round}); err != nil {
				t.Fatal(err)
			}
			if err := p.Barrier(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Sync(); err != nil {
			t.Fatal(err)
		}
		p.PeerStored(uint64(restart+1), 1, height-1)
		if heights, _ := p.Heights(); heights.Durable != height-1 {
			t.Fatalf("before restart %d the heights are %+v", restart+1, heights)
		}
		p.Close()
		verifying.Close()
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Heights that members store before this node has executed them count once they are executed here,
// and the store gets them.
func TestDurableAheadOfTheHeadIsRemembered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pipeline.PeerStored(1, 1, 1)
	f.pipeline.PeerStored(1, 2, 1)
	if h, _ := f.pipeline.Heights(); h.Durable != 0 || h.Ordered != 0 {
		t.Fatalf("%+v", h)
	}
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	f.barrier()
	if h, _ := f.pipeline.Heights(); h.Durable != 1 {
		t.Fatalf("executed: %+v", h)
	}
	if err := f.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	if known := f.pipeline.Store().KnownDurable(); known != 1 {
		t.Fatalf("the store knows height %d to be durable; want 1", known)
	}
}

// If another chain and another run come during a sync, that run's members get no stored height of
// the chain before.
func TestStoredHeightIsOfTheRunThatWasSynced(t *testing.T) {
	t.Parallel()
	type said struct {
		run    uint64
		height ledger.Height
	}
	var mu sync.Mutex
	var stored []said
	held, release := make(chan struct{}), make(chan struct{})
	config := pipeline.Config{
		Stored: func(now pipeline.Stored) {
			mu.Lock()
			defer mu.Unlock()
			stored = append(stored, said{now.Run, now.Height})
		},
		DurableTo: func(ledger.Height) { close(held); <-release },
	}
	f := fixtureOf(t, ledgertest.Genesis(), mempool.Config{}, config)
	f.pipeline.PeerStored(1, 1, 1)
	f.deliver(f.payload(0, f.genesisHeader(), f.next()))
	<-held // the disk has block 1, and no member was told yet
	var others sync.WaitGroup
	others.Go(func() {
		if err := f.pipeline.Exchange(func(old *store.Store) (*store.Store, error) {
			return f.open(), old.Close()
		}); err != nil {
			t.Error(err)
		}
	})
	f.eventually("the other chain", func() bool {
		h, _ := f.pipeline.Heights()
		return h.Stored == 0
	})
	others.Go(func() {
		members := []order.ServerID{0, 1, 2}
		f.pipeline.Begin(pipeline.Run{Number: 2, First: 6, Members: members,
			Shard: generation.Membership{Members: members}})
	})
	f.eventually("run 2", func() bool { return f.pipeline.Round() == 5 })
	close(release)
	others.Wait()
	f.pipeline.Close()
	mu.Lock()
	defer mu.Unlock()
	for _, s := range stored {
		if s.run == 2 && s.height > 0 {
			t.Errorf("the members of run %d were told that this disk holds block %d", s.run,
				s.height)
		}
	}
}

// TestForgedBundles: a round's forged bundles are in no block, and their proposer is named. The
// other bundles of the round stay.
func TestForgedBundles(t *testing.T) {
	t.Parallel()
	type found struct {
		run     uint64
		member  order.ServerID
		bundles int
	}
	var mu sync.Mutex
	var all []found
	f := fixtureOf(t, ledgertest.Genesis(), mempool.Config{}, pipeline.Config{
		Forged: func(run uint64, member order.ServerID, bundles int, err error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found{run, member, bundles})
			if !errors.Is(err, ledger.ErrSignature) {
				t.Errorf("forged because of %v", err)
			}
		}})
	register := f.client.Bundle(f.client.Register("issuer", "a"))
	forged := bytes.Clone(f.client.Bundle(f.client.Transfer("acme:issuer", "acme:a", 7)).Encode())
	forged[len(forged)-1] ^= 1
	header := ledger.BatchHeader{Time: 1, Tip: f.genesis.Hash()}
	f.deliver(append(ledger.EncodeBatch(header, [][]byte{register.Encode()}), 0),
		append(ledger.EncodeBatch(header, [][]byte{forged, forged}), 0))
	f.deliver(append(ledger.EncodeBatch(header, [][]byte{forged}), 0))
	if err := f.pipeline.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []found{{1, 1, 2}, {1, 1, 1}}; !slices.Equal(all, want) {
		t.Errorf("found %v, want %v", all, want)
	}
	if head := f.pipeline.Store().Head(); head.Height != 1 || head.Total != 1 {
		t.Errorf("the head is block %d with %d transactions", head.Height, head.Total)
	}
}

// TestStoredNamesProposers: syncs name the members that proposed something in the blocks since the
// last one, each once, and a sync without new blocks names nobody.
func TestStoredNamesProposers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var stored []pipeline.Stored
	f := fixtureOf(t, ledgertest.Genesis(), mempool.Config{}, pipeline.Config{
		Stored: func(now pipeline.Stored) {
			mu.Lock()
			defer mu.Unlock()
			stored = append(stored, now)
		},
	})
	named := func() map[order.ServerID]int {
		mu.Lock()
		defer mu.Unlock()
		times := map[order.ServerID]int{}
		for i := range stored {
			for k, member := range stored[i].Proposers {
				times[member]++
				if slices.Contains(stored[i].Proposers[:k], member) {
					t.Errorf("member %d twice at once", member)
				}
			}
		}
		return times
	}
	for _, origin := range []order.ServerID{1, 0, 1, 2} {
		f.deliverOf(origin, f.payload(0, f.genesisHeader(), f.next()))
	}
	f.eventually("syncs name all", func() bool {
		times := named()
		return times[0] == 1 && times[1] > 0 && times[2] == 1
	})
	before := named()
	if err := f.pipeline.Sync(); err != nil {
		t.Fatal(err)
	}
	if after := named(); !maps.Equal(after, before) || before[1] > 2 {
		t.Errorf("named %v, and %v after a sync without new blocks", before, after)
	}
}
