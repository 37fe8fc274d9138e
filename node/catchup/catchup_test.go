package catchup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	source, forked := newChain(t, 40, 40, 0), newChain(t, 30, 20, 7)
	for _, c := range []struct {
		name          string
		after         Point
		to            ledger.Height
		pieceBytes    int
		pieceBlocks   int
		want          error
		last          ledger.Height // of the blocks that arrive, if an error does
		theirs        Point
		headInBehinds ledger.Height
	}{
		{name: "whole chain", after: source.point(0), to: 40},
		{name: "from the middle", after: source.point(17), to: 40},
		{name: "to the middle", after: source.point(3), to: 23},
		{name: "one block", after: source.point(39), to: 40},
		{name: "nothing wanted", after: source.point(9), to: 9},
		{name: "block by block", after: source.point(0), to: 40, pieceBlocks: 1},
		{name: "blocks in parts", after: source.point(0), to: 40, pieceBytes: PieceBytesMin},
		{name: "small pieces", after: source.point(5), to: 40, pieceBytes: 2500, pieceBlocks: 7},
		{name: "the peer runs out", after: source.point(12), to: math.MaxUint64, want: ErrBehind,
			last: 40, headInBehinds: 40},
		{name: "as far as the peer", after: source.point(40), to: 41, want: ErrBehind, last: 40,
			headInBehinds: 40},
		{name: "further than the peer", after: Point{Height: 50}, to: 51, want: ErrBehind, last: 50,
			headInBehinds: 40},
		{name: "fork", after: forked.point(25), to: 40, want: ErrFork, last: 25,
			theirs: source.point(25)},
		{name: "another genesis", after: Point{}, to: 40, want: ErrFork, theirs: source.point(0)},
		{name: "fork at the peer's head", after: Point{Height: 40}, to: 41, want: ErrFork, last: 40,
			theirs: source.point(40)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			sized := func(config *Config) {
				config.PieceBytes, config.PieceBlocks = c.pieceBytes, c.pieceBlocks
			}
			a, b := f.exchange("a", nil, sized), f.exchange("b", source, sized)
			var got collector
			err := a.Fetch(t.Context(), "b", c.after, c.to, got.add)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			last := c.to
			if c.want != nil {
				last = c.last
			}
			got.check(t, source, c.after.Height, last)
			var fork *ForkError
			if errors.As(err, &fork) && (fork.Theirs != c.theirs || fork.Ours != c.after ||
				fork.Head != 40 || fork.Peer != "b") {
				t.Errorf("the fork: %+v", fork)
			}
			var behind *BehindError
			if errors.As(err, &behind) && (behind.Head != c.headInBehinds ||
				behind.After.Height != last) {
				t.Errorf("behind: %+v", behind)
			}
			if b.large.encoded != nil {
				t.Errorf("block %s is still kept in parts", b.large.hash)
			}
		})
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	open := func(name string) *store.Store {
		opened, err := store.Open(filepath.Join(t.TempDir(), name), genesis,
			store.Options{MemTableBytes: 8 << 20, ReserveBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		})
		return opened
	}
	source, target := open("source"), open("target")
	for i, batch := range batches(genesis, 100, 100, 0) {
		if _, err := source.Apply(1, ledger.Round(i+1), [][]byte{batch}); err != nil {
			t.Fatal(err)
		}
	}
	f := newFabric(t)
	a := f.exchange("a", target, nil)
	f.exchange("b", source, func(config *Config) { config.PieceBytes = 3000 })
	head := target.Head()
	err := a.Fetch(t.Context(), "b", Point{Height: head.Height, Hash: head.Hash},
		source.AppendedHeight(), target.Append)
	if err != nil {
		t.Fatal(err)
	}
	if target.Head() != source.Head() {
		t.Errorf("the heads are %+v and %+v", target.Head(), source.Head())
	}
}

func TestManyFetchers(t *testing.T) {
	t.Parallel()
	source := newChain(t, 60, 60, 0)
	f := newFabric(t)
	small := func(config *Config) { config.PieceBytes = 2000 }
	all := []*Exchange{f.exchange("a", source, small), f.exchange("b", source, small),
		f.exchange("c", source, small)}
	var group sync.WaitGroup
	for i, x := range all {
		for _, peer := range members {
			if peer == members[i] {
				continue
			}
			for k := range 3 * SlotsPerPeer {
				group.Go(func() {
					after := ledger.Height(k)
					var got collector
					if err := x.Fetch(t.Context(), peer, source.point(after),
						60, got.add); err != nil {
						t.Error(err)
						return
					}
					got.check(t, source, after, 60)
				})
			}
		}
	}
	group.Wait()
	for _, x := range all {
		for _, peer := range members {
			if n := len(x.peer(peer).slots); n != 0 {
				t.Errorf("%d requests of %s are left", n, peer)
			}
		}
		if n := x.requests.Status().Asking; n != 0 {
			t.Errorf("%d requests are left", n)
		}
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	source := newChain(t, 20, 20, 0)
	damaged := &chain{blocks: source.blocks, onBlock: func(height ledger.Height) error {
		if height == 9 {
			return &store.DamageError{Height: 9, Reason: "a bit flipped"}
		}
		return nil
	}}
	unreadable := &chain{blocks: source.blocks, onHeader: func(ledger.Height) error {
		return store.ErrClosed
	}}
	torn := &chain{blocks: append(append([]*ledger.Block{}, source.blocks[:6]...),
		newChain(t, 20, 2, 5).blocks[6:]...)}
	for _, c := range []struct {
		name  string
		peer  rdmanet.PeerID
		serve Chain
		last  ledger.Height
		cause error
	}{
		{name: "no chain", peer: "b"},
		{name: "a damaged block", peer: "b", serve: damaged, last: 8},
		{name: "a closed store", peer: "b", serve: unreadable},
		{name: "blocks that do not follow", peer: "b", serve: torn, last: 5},
		{name: "a stranger", peer: "x", cause: rdmanet.ErrNotMember},
		{name: "nobody there", peer: "c", cause: errTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			a := f.exchange("a", nil, func(config *Config) {
				if c.cause != nil {
					config.Timeout = 50 * time.Millisecond
				}
			})
			f.exchange("b", c.serve, nil)
			var got collector
			err := a.Fetch(t.Context(), c.peer, source.point(0), 20, got.add)
			if !errors.Is(err, ErrUnavailable) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Fatalf("got %v", err)
			}
			if errors.Is(err, errAnswer) {
				t.Errorf("the server did not see it: %v", err)
			}
			got.check(t, source, 0, c.last)
		})
	}
}

func TestPeerDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		timeout time.Duration
		mend    time.Duration
		again   bool
		cause   error
	}{
		{name: "silence", timeout: 2 * time.Second, mend: time.Minute, cause: errTimeout},
		{name: "its lane breaks", timeout: time.Minute, mend: 50 * time.Millisecond,
			cause: rdmanet.ErrUnreachable},
		{name: "it restarts", timeout: time.Minute, mend: time.Minute, again: true,
			cause: rdmanet.ErrReset},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, memory.Options{MendTimeout: c.mend})
			a := f.exchange("a", nil, func(config *Config) {
				config.Timeout, config.PieceBlocks = c.timeout, 4
			})
			reached, goOn := make(chan struct{}), make(chan struct{})
			source := newChain(t, 20, 20, 0)
			serves := &chain{blocks: source.blocks, onHeader: func(height ledger.Height) error {
				if height == 8 {
					close(reached)
					<-goOn
				}
				return nil
			}}
			f.exchange("b", serves, nil)
			t.Cleanup(func() { close(goOn) })
			var got collector
			result := make(chan error, 1)
			go func() { result <- a.Fetch(t.Context(), "b", source.point(0), 20, got.add) }()
			select {
			case <-reached:
			case err := <-result:
				t.Fatalf("before anything happened: %v", err)
			}
			f.network.Kill("b")
			if c.again {
				// The lane from the second life announces it.
				lane, err := f.host("b").Lane("a", LaneName)
				if err == nil {
					_, err = lane.TrySend([]byte{0})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-result:
				if !errors.Is(err, ErrUnavailable) || !errors.Is(err, c.cause) {
					t.Fatalf("got %v, want %v", err, c.cause)
				}
			case <-time.After(patience):
				t.Fatal("it goes on waiting")
			}
			got.check(t, source, 0, 8)
		})
	}
}

func TestChainExchanged(t *testing.T) {
	t.Parallel()
	first, second := newChain(t, 20, 10, 0), newChain(t, 20, 10, 3)
	var current atomic.Pointer[chain]
	current.Store(first)
	f := newFabric(t)
	a := f.exchange("a", nil, func(config *Config) { config.PieceBlocks = 5 })
	f.exchange("b", nil, func(config *Config) {
		config.Chain = func() Chain { return current.Load() }
	})
	var got collector
	err := a.Fetch(t.Context(), "b", first.point(0), 20, func(block *ledger.Block) error {
		if block.Header.Height == 15 {
			current.Store(second)
		}
		return got.add(block)
	})
	var fork *ForkError
	if !errors.As(err, &fork) || fork.Ours != first.point(15) || fork.Theirs != second.point(15) {
		t.Fatalf("got %v", err)
	}
	got.check(t, first, 0, 15)
}

func TestCallerStops(t *testing.T) {
	t.Parallel()
	source := newChain(t, 5, 5, 0)
	f := newFabric(t)
	asked := make(chan struct{}, 10)
	a := f.exchange("a", nil, nil)
	f.exchange("b", source, nil)
	f.raw("c", func(ctx context.Context, _ *wire.Served) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})

	full := errors.New("full")
	if err := a.Fetch(t.Context(), "b", source.point(0), 5, func(*ledger.Block) error {
		return full
	}); !errors.Is(err, full) {
		t.Errorf("add's error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := a.Fetch(ctx, "c", source.point(0), 5, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	go func() { <-asked; a.Close() }()
	if err := a.Fetch(t.Context(), "c", source.point(0), 5, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := a.Fetch(t.Context(), "b", source.point(0), 5, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	a.Close()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	none := func() Chain { return nil }
	host := f.host("a")
	for i, config := range []Config{
		{Chain: none}, {Host: host}, {Host: host, Chain: none, Timeout: -1},
		{Host: host, Chain: none, PieceBytes: PieceBytesMin - 1},
		{Host: host, Chain: none, PieceBytes: PieceBytesMax + 1},
		{Host: host, Chain: none, PieceBlocks: -1},
		{Host: host, Chain: none, PieceBlocks: PieceBlocksMax + 1},
	} {
		if x, err := New(config); err == nil {
			x.Close()
			t.Errorf("configuration %d was taken", i)
		}
	}
	x, err := New(Config{Host: host, Chain: none})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := New(Config{Host: host, Chain: none}); !errors.Is(err, rdmanet.ErrDuplicate) {
		t.Errorf("a second exchange: %v", err)
	}
}

func BenchmarkFetch(b *testing.B) {
	source := newChain(b, 1000, 1000, 0)
	size := 0
	for _, block := range source.blocks[1:] {
		size += len(block.Encode())
	}
	f := newFabric(b)
	a := f.exchange("a", nil, nil)
	f.exchange("b", source, nil)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Fetch(b.Context(), "b", source.point(0), 1000, func(*ledger.Block) error {
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "blocks/s")
}

func ExampleForkError() {
	err := fmt.Errorf("fetch: %w", &ForkError{Peer: "b", Ours: Point{Height: 7},
		Theirs: Point{Height: 7, Hash: ledger.Hash{1}}, Head: 9})
	var fork *ForkError
	fmt.Println(errors.Is(err, ErrFork), errors.As(err, &fork), fork.Theirs.Height, fork.Head)
	// Output: true true 7 9
}

// A peer that began with a snapshot serves the blocks that it has, and reports from which height on
// it has them.
func TestFetchFromAPeerThatBeganWithASnapshot(t *testing.T) {
	t.Parallel()
	source := newChain(t, 20, 20, 0)
	f := newFabric(t)
	served := &chain{blocks: source.blocks, absent: 12, onBlock: func(height ledger.Height) error {
		if height <= 12 {
			t.Errorf("block %d was read", height)
		}
		return nil
	}}
	a := f.exchange("a", nil, nil)
	f.exchange("b", served, nil)
	for _, c := range []struct {
		after, to, absent ledger.Height
	}{{0, 20, 12}, {11, 20, 12}, {11, 12, 12}, {12, 20, 0}, {15, 18, 0}} {
		var got collector
		err := a.Fetch(t.Context(), "b", source.point(c.after), c.to, got.add)
		if c.absent == 0 {
			if err != nil {
				t.Fatal(err)
			}
			got.check(t, source, c.after, c.to)
			continue
		}
		var absent *AbsentError
		if !errors.Is(err, ErrAbsent) || !errors.Is(err, ErrUnavailable) ||
			!errors.As(err, &absent) ||
			absent.Absent != c.absent || absent.After != source.point(c.after) ||
			absent.Peer != "b" {
			t.Errorf("after %d: %v", c.after, err)
		}
		got.check(t, source, c.after, c.after)
	}
}

// A store that began with a snapshot is filled with a peer's true blocks, and with none that a peer
// made up.
func TestFillFromPeers(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	options := store.Options{MemTableBytes: 8 << 20, ReserveBytes: 1 << 20}
	open := func(dir string) *store.Store {
		opened, err := store.Open(dir, genesis, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		})
		return opened
	}
	source := open(filepath.Join(t.TempDir(), "source"))
	for i, batch := range batches(genesis, 60, 60, 0) {
		if _, err := source.Apply(1, ledger.Round(i+1), [][]byte{batch}); err != nil {
			t.Fatal(err)
		}
	}
	reading, writing := io.Pipe()
	go func() {
		_, err := source.WriteSnapshot(t.Context(), writing)
		writing.CloseWithError(err)
	}()
	dir := filepath.Join(t.TempDir(), "filled")
	trust := func(ledger.Height, ledger.Hash, bool) error { return nil }
	if _, err := store.Restore(t.Context(), dir, genesis, options, reading, trust); err != nil {
		t.Fatal(err)
	}
	filled := open(dir)
	f := newFabric(t)
	a := f.exchange("a", filled, nil)
	f.exchange("b", source, nil)
	// c answers with the right block, followed by another chain's.
	forked := newChain(t, 60, 50, 7)
	f.exchange("c", &lying{chain: forked, truth: source}, nil)
	fill := func(from rdmanet.PeerID, first ledger.Height) error {
		last := filled.Absent()
		_, before, err := filled.Header(first - 1)
		if err != nil {
			t.Fatal(err)
		}
		return filled.Fill(first, func(add func(*ledger.Block) (int, error)) error {
			return a.Fetch(t.Context(), from, Point{Height: first - 1, Hash: before},
				last, func(block *ledger.Block) error {
					_, err := add(block)
					return err
				})
		})
	}
	if err := fill("c", 40); !errors.Is(err, store.ErrMismatch) || filled.Absent() != 60 {
		t.Errorf("absent to %d: %v", filled.Absent(), err)
	}
	for filled.Absent() > 0 {
		if err := fill("b", max(8, filled.Absent())-7); err != nil {
			t.Fatal(err)
		}
	}
	if err := filled.Index(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for height := ledger.Height(1); height <= 60; height++ {
		block, err := filled.Block(height)
		if original, _ := source.Block(height); err != nil || block.Hash != original.Hash {
			t.Errorf("block %d: %v", height, err)
		}
	}
}

// lying is a chain that claims to be the true one, and serves another's blocks.
type lying struct {
	*chain
	truth *store.Store
}

func (l *lying) Header(height ledger.Height) (ledger.Header, ledger.Hash, error) {
	return l.truth.Header(height)
}

// BenchmarkFetchFromStore fetches from a store, which reads and checks its blocks as it serves
// them.
func BenchmarkFetchFromStore(b *testing.B) {
	genesis := ledgertest.Genesis()
	source, err := store.Open(filepath.Join(b.TempDir(), "source"), genesis,
		store.Options{MemTableBytes: 8 << 20, ReserveBytes: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = source.Close() })
	size := 0
	for i, batch := range batches(genesis, 1000, 1000, 0) {
		if _, err := source.Apply(1, ledger.Round(i+1), [][]byte{batch}); err != nil {
			b.Fatal(err)
		}
		block, err := source.Block(ledger.Height(i + 1))
		if err != nil {
			b.Fatal(err)
		}
		size += len(block.Encode())
	}
	f := newFabric(b)
	a := f.exchange("a", nil, nil)
	f.exchange("b", source, nil)
	from := Point{Hash: genesis.Block().Hash}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Fetch(b.Context(), "b", from, 1000, func(*ledger.Block) error {
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
