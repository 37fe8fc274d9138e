package store

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
)

// shardGenesis returns the genesis of shard 1. The root, shard 0, is above it, and shard 2 is below
// it.
func shardGenesis() *ledger.Genesis {
	genesis, err := ledgertest.ShardedGenesis(1, 0, 0, 1).ForShard(1)
	if err != nil {
		panic(err)
	}
	return genesis
}

// shardBook makes rounds of shard 1. They have bundles of its clients, entries of the stream of a
// root in memory that is always the same, and verdicts that depend only on the transaction's id.
type shardBook struct {
	root    *state.State
	parent  state.Parent
	stream  []ledger.Carried
	above   [3]*ledgertest.Client
	clients [3]*ledgertest.Client
	round   int
}

// newShardBook returns a book whose clients of shard 1 use their own stream of nonces.
func newShardBook(stream uint64) *shardBook { return newShardBookOf(shardGenesis(), stream) }

// newShardBookOf is newShardBook with another genesis of shard 1.
func newShardBookOf(of *ledger.Genesis, stream uint64) *shardBook {
	genesis, err := of.ForShard(0)
	if err != nil {
		panic(err)
	}
	b := &shardBook{root: state.New(genesis),
		parent: state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}}
	for shard := range b.clients {
		name := ledger.OrganisationName(fmt.Sprintf("org%d", shard))
		b.above[shard], b.clients[shard] = ledgertest.NewClient(genesis, name),
			ledgertest.NewClient(genesis, name)
		b.above[shard].Stream, b.clients[shard].Stream = 1<<32, stream
	}
	return b
}

// signed returns a bundle with the signatures of all organisations.
func (b *shardBook) signed(transactions ...ledger.Transaction) []byte {
	bundle, err := ledger.NewBundle(transactions...)
	for _, client := range b.clients {
		if err == nil {
			err = bundle.Sign(client.Organisation,
				ed25519.PrivateKey(ledgertest.Key(string(client.Organisation))))
		}
	}
	if err != nil {
		panic(err)
	}
	return bundle.Encode()
}

// grow makes blocks of the root until its stream to shard 1 has this number of entries. It starts
// with registrations and openings, followed by transfers in all directions.
func (b *shardBook) grow(entries int) {
	for len(b.stream) < entries {
		b.round++
		var transactions []ledger.Transaction
		if b.round == 1 {
			for shard, client := range b.above {
				registration := client.Register()
				registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
					ledger.ShardID(shard)
				transactions = append(transactions, registration)
			}
		} else {
			for pair := range 6 {
				from, to := pair%3, (pair+1+pair/3)%3
				transfer := b.above[from].Transfer(b.above[from].Account("issuer"),
					b.above[to].Account("a"), int64(b.round))
				if pair%2 == 0 {
					transfer.Records = []ledger.Record{{Key: "org1:record",
						Value: fmt.Appendf(nil, "%d of %d", pair, b.round)}}
				}
				transactions = append(transactions, transfer)
			}
		}
		batch := &ledger.Batch{Header: ledger.BatchHeader{Time: ledger.Milliseconds(b.round)},
			Bundles: [][]byte{b.signed(transactions...)}}
		if b.round == 2 {
			opening := b.above[0].Next()
			opening.Openings = []ledger.Opening{{Account: "org0:issuer", Issuer: true},
				{Account: "org0:a"}}
			batch.Bundles = [][]byte{b.signed(opening), batch.Bundles[0]}
		}
		b.order(batch)
	}
}

// order makes a block of the root.
func (b *shardBook) order(batch *ledger.Batch) {
	draft := b.root.Seal(b.parent, 1, ledger.Round(b.round),
		ledger.VerifyBatches([][]byte{batch.Encode()}), func(ledger.Hash,
			*ledger.Transaction) bool {
			return false
		})
	block, changes := b.root.Execute(draft)
	b.parent = state.Parent{Header: block.Header, Hash: block.Hash, Members: b.root.Membership}
	for _, forward := range changes.Forwards {
		b.stream = append(b.stream, ledger.Carried{Number: forward.Number,
			Bundle: block.CarriedBundle(int(forward.Bundle))})
	}
}

// batch returns the next round of a store: some entries of the stream, most of the verdicts that it
// waits for, and transactions of its clients.
func (b *shardBook) batch(s *Store, count int, random *rand.Rand) *ledger.Batch {
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: ledger.Milliseconds(s.Head().Height)}}
	carried := int(s.Carried())
	b.grow(carried + 2)
	batch.Carried = b.stream[carried : carried+1+random.IntN(2)]
	for _, waits := range s.Pending() {
		for _, shard := range waits.Waits {
			if random.IntN(4) == 0 {
				continue
			}
			verdict := ledger.Verdict{ID: waits.ID, Shard: shard,
				Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}
			if waits.ID[0]%4 == 0 {
				verdict.Result.Code = ledger.InsufficientFunds
			}
			batch.Verdicts = append(batch.Verdicts, verdict)
		}
	}
	client := b.clients[1]
	var transactions []ledger.Transaction
	if s.AccountCount() == 0 {
		opening := client.Next()
		opening.Openings = []ledger.Opening{{Account: "org1:issuer", Issuer: true},
			{Account: "org1:a"}, {Account: "org1:b"}}
		transactions = append(transactions, opening)
	}
	for i := range count {
		switch i % 3 {
		case 0:
			transactions = append(transactions, client.Transfer("org1:issuer", "org1:a",
				int64(i+5)))
		case 1:
			transactions = append(transactions, client.Transfer("org1:a", "org2:a", int64(50*i)))
		default:
			transactions = append(transactions, client.Transfer("org2:issuer", "org1:b", int64(i)))
		}
	}
	if len(transactions) > 0 {
		batch.Bundles = [][]byte{b.signed(transactions...)}
	}
	return batch
}

func (b *shardBook) apply(t testing.TB, s *Store, count int, random *rand.Rand) *ledger.Block {
	t.Helper()
	block, err := s.Apply(1, ledger.Round(s.Head().Height+1),
		[][]byte{b.batch(s, count, random).Encode()})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return block
}

// readShards reads everything that a store serves to other shards.
func readShards(s *Store, text io.Writer) error {
	if !s.genesis.Sharded() {
		return nil
	}
	fmt.Fprintf(text, "%d %+v\n", s.Carried(), s.Pending())
	for _, child := range s.Fed() {
		for from, _, more := s.FirstUntaken(child, 0); more; from, _, more = s.FirstUntaken(child,
			from-1) {
			page, err := s.Stream(child, from, 7, s.AppendedHeight())
			if err != nil {
				return err
			}
			for _, carried := range page {
				if carried.Number != from {
					return fmt.Errorf("entry %d of the stream is number %d", from, carried.Number)
				}
				fmt.Fprintf(text, "%d %x\n", carried.Number, carried.Bundle)
				from++
			}
		}
	}
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			return err
		}
		for i := range block.Len() {
			crossing, err := s.Crossing(block.Entry(i).ID)
			if err != nil {
				return err
			}
			fmt.Fprintf(text, "%d %v %v %v\n", crossing.Outcome, crossing.Destinations,
				crossing.Waits, crossing.Said)
			if crossing.Settled != nil {
				fmt.Fprintf(text, "%d %d\n", crossing.Settled.Height, crossing.Settled.Index)
			}
		}
	}
	record, err := s.Record("org1:record")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	fmt.Fprintf(text, "%q %d\n", record.Value, record.Height)
	return nil
}

// The chain of a shard reads the same after it is reopened, can be replayed by itself, becomes the
// same chain when another node appends its blocks, and continues from a snapshot.
func TestShardIsKept(t *testing.T) {
	t.Parallel()
	genesis, random := shardGenesis(), rand.New(rand.NewPCG(3, 3))
	dir := t.TempDir()
	s := openBook(t, filepath.Join(dir, "one"), genesis, small())
	other := openBook(t, filepath.Join(dir, "two"), genesis, small())
	b := newShardBook(1)
	codes := map[ledger.Code]int{}
	for range 40 {
		block := b.apply(t, s, random.IntN(12), random)
		for i := range block.Len() {
			codes[block.Entry(i).Result.Code]++
		}
		decoded, err := ledger.DecodeBlock(block.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Append(decoded); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []ledger.Code{ledger.Applied, ledger.SetAside, ledger.Relayed,
		ledger.Settled, ledger.Released, ledger.InsufficientFunds} {
		if codes[code] < 3 {
			t.Errorf("%d transactions are %s", codes[code], code)
		}
	}
	before := mustReadAll(t, s)
	if mustReadAll(t, other) != before {
		t.Error("the other node's store reads differently")
	}
	snapshot, head := snapshotOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openBook(t, filepath.Join(dir, "one"), genesis, small())
	if mustReadAll(t, s) != before {
		t.Error("the store that was opened again reads differently")
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := Restore(t.Context(), filepath.Join(dir, "three"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	third := openBook(t, filepath.Join(dir, "three"), genesis, small())
	first, firstSince, _, err := s.OldestPending()
	again, againSince, waits, errAgain := third.OldestPending()
	if err != nil || errAgain != nil || !waits || again.ID != first.ID || againSince != firstSince {
		t.Errorf("the oldest is %+v since %d after the snapshot, not %+v since %d: %v", again,
			againSince, first, firstSince, errors.Join(err, errAgain))
	}
	if third.Head() != head || third.Carried() != s.Carried() ||
		third.PendingCount() != s.PendingCount() || s.PendingCount() == 0 {
		t.Fatalf("restored %+v", third.Head())
	}
	if _, err := third.Stream(2, 1, 10, third.AppendedHeight()); !errors.Is(err, ErrAbsent) {
		t.Errorf("a stream from before the snapshot: %v", err)
	}
	compareVerdicts(t, s, third)
	snapshot, _ = snapshotOf(t, third)
	if _, err := Restore(t.Context(), filepath.Join(dir, "four"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	fourth := openBook(t, filepath.Join(dir, "four"), genesis, small())
	if err := fillFrom(fourth, s, 15); err != nil {
		t.Fatal(err)
	}
	compareVerdicts(t, s, fourth)
	for range 10 {
		batch, round := b.batch(s, 6, random).Encode(), ledger.Round(s.Head().Height+1)
		for _, each := range []*Store{s, third} {
			if _, err := each.Apply(1, round, [][]byte{batch}); err != nil {
				t.Fatal(err)
			}
		}
		if s.Head().Hash != third.Head().Hash {
			t.Fatal("the restored store goes on differently")
		}
	}
	if page, err := third.Stream(2, third.Streamed(2), 10, third.AppendedHeight()); err != nil ||
		len(page) != 1 {
		t.Errorf("the stream after the snapshot: %d entries, %v", len(page), err)
	}
}

// A sealed round with a transaction out of place, which only a bug can make, stops the store before
// the block can be read, written or sent.
func TestRoundOutOfPlaceStopsTheStore(t *testing.T) {
	t.Parallel()
	genesis, random := shardGenesis(), rand.New(rand.NewPCG(3, 3))
	dir := t.TempDir()
	s := openBook(t, filepath.Join(dir, "one"), genesis, small())
	twin := openBook(t, filepath.Join(dir, "two"), genesis, small())
	b := newShardBook(1)
	for range 5 {
		if err := twin.Append(b.apply(t, s, 3, random)); err != nil {
			t.Fatal(err)
		}
	}
	head, batch := s.Head(), b.batch(s, 3, random)
	sealed, err := twin.Apply(1, ledger.Round(head.Height+1), [][]byte{batch.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	draft := *sealed
	draft.Bundles = slices.Clone(draft.Bundles)
	carried := slices.IndexFunc(draft.Bundles, func(seal ledger.BundleSeal) bool {
		return seal.Number > 0
	})
	draft.Bundles[carried].Number += 10 // as if the entries before it had been lost
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	block, err := s.executeSealed(state.Redraft(&draft))
	if block != nil || !errors.Is(err, ErrFailed) {
		t.Errorf("a block with a transaction out of place: %v", err)
	}
	if s.Head() != head {
		t.Errorf("the head is %+v, not %+v", s.Head(), head)
	}
	if _, err := s.Block(head.Height + 1); err == nil {
		t.Error("the block can be read")
	}
	if _, err := s.Apply(1, ledger.Round(head.Height+1), [][]byte{batch.Encode()}); !errors.Is(err,
		ErrFailed) {
		t.Errorf("the next round: %v", err)
	}
	_ = s.Close()
	s = openBook(t, filepath.Join(dir, "one"), genesis, small())
	if s.Head() != head {
		t.Errorf("after a start the head is %+v, not %+v", s.Head(), head)
	}
	b.apply(t, s, 3, random)
}

// otherShard returns another shard that an entry of a block concerns, or else shard 0.
func otherShard(s *Store, block *ledger.Block, index int) ledger.ShardID {
	entry := block.Entry(index)
	t := entry.Transaction()
	if t.Verdict != nil || t.Change != nil {
		return 0
	}
	for _, shard := range s.Concerned(t, block.Header.Height) {
		if shard != s.Shard() {
			return shard
		}
	}
	return 0
}

// compareVerdicts checks that a store that began with a snapshot gives the same verdicts as one
// that has all blocks. No other node may have the blocks any more when a shard asks.
func compareVerdicts(t *testing.T, whole, began *Store) {
	t.Helper()
	good, bad, durable := 0, 0, whole.AppendedHeight()
	for height := ledger.Height(1); height <= durable; height++ {
		block, err := whole.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			id, asks := block.Entry(i).ID, otherShard(whole, block, i)
			want, wantMade, err := whole.Verdict(id, asks, durable)
			if err != nil {
				t.Fatal(err)
			}
			verdict, made, err := began.Verdict(id, asks, durable)
			if errors.Is(err, ErrAbsent) && wantMade && want.Good() && refusedElsewhere(t, whole,
				id) {
				continue // nobody needs it
			}
			if err != nil || made != wantMade || verdict != want {
				t.Errorf("block %d, transaction %d: %+v %v %v, want %+v %v", height, i, verdict,
					made, err, want, wantMade)
			}
			if _, made, err := began.Verdict(id, asks, height-1); err != nil || made {
				t.Errorf("a verdict of block %d, which is not durable: %v", height, err)
			}
			if made && verdict.Good() {
				good++
			} else if made {
				bad++
			}
		}
	}
	if good < 3 || bad < 3 {
		t.Errorf("%d good and %d bad verdicts were compared", good, bad)
	}
	if _, made, err := began.Verdict(ledger.Hash{1}, 0, durable); err != nil || made {
		t.Errorf("a verdict on a transaction that is not there: %v", err)
	}
}

// refusedElsewhere reports whether another shard refused a transaction that this one agreed to.
func refusedElsewhere(t *testing.T, s *Store, id ledger.Hash) bool {
	t.Helper()
	crossing, err := s.Crossing(id)
	if err != nil {
		t.Fatal(err)
	}
	return crossing.Settled != nil && crossing.Settled.Entry.Result.Code == ledger.Released
}

// A shard answers requests for verdicts, and classifies the verdicts that it receives.
func TestVerdictsAskedAndTold(t *testing.T) {
	t.Parallel()
	s := openBook(t, t.TempDir(), shardGenesis(), small())
	b, random := newShardBook(1), rand.New(rand.NewPCG(1, 1))
	for s.PendingCount() < 2 {
		b.apply(t, s, 3, random)
	}
	waits := s.Pending()[0]
	header, _, err := s.Header(waits.Height)
	if err != nil {
		t.Fatal(err)
	}
	if oldest, since, found, err := s.OldestPending(); err != nil || !found ||
		oldest.ID != waits.ID || since != header.Time {
		t.Errorf("the oldest is %+v since %d: %v %v", oldest, since, found, err)
	}
	block, err := s.Block(waits.Height)
	if err != nil {
		t.Fatal(err)
	}
	asks := otherShard(s, block, int(waits.Index))
	verdict, made, err := s.Verdict(waits.ID, asks, waits.Height)
	if err != nil || !made || !verdict.Good() || verdict.Shard != 1 {
		t.Fatalf("%+v %v %v", verdict, made, err)
	}
	if _, made, err := s.Verdict(waits.ID, asks, waits.Height-1); made || err != nil {
		t.Errorf("a verdict of a block that is not durable yet: %v", err)
	}
	grown := 0
	for height := range s.AppendedHeight() + 1 {
		stream, err := s.Stream(2, 1, 1000, height)
		if err != nil || len(stream) < grown || height == 0 && len(stream) > 0 ||
			height == s.AppendedHeight() && len(stream) == grown {
			t.Errorf("%d entries of the stream up to block %d, %d before it: %v", len(stream),
				height, grown, err)
		}
		grown = len(stream)
	}
	if uint64(grown) != s.Streamed(2) {
		t.Errorf("%d entries of the stream of %d", grown, s.Streamed(2))
	}
	crossing, err := s.Crossing(waits.ID)
	if err != nil || crossing.Outcome != Waiting ||
		len(crossing.Waits)+len(crossing.Said)+1 != len(crossing.Destinations) {
		t.Fatalf("%+v %v", crossing, err)
	}
	told := ledger.Verdict{ID: waits.ID, Shard: waits.Waits[0],
		Result: ledger.Result{Code: ledger.Expired, Item: ledger.NoItem}}
	foreign, early := told, told
	foreign.Shard, early.ID = 1, ledger.Hash{1}
	for verdict, want := range map[*ledger.Verdict]verdicts.Standing{&told: verdicts.Awaited,
		&foreign: verdicts.Over, &early: verdicts.Early} {
		if standing, err := s.Standing(verdict); err != nil || standing != want {
			t.Errorf("%+v: %d %v, want %d", verdict, standing, err, want)
		}
	}
	if _, err := s.Apply(1, 1000,
		[][]byte{(&ledger.Batch{Verdicts: []ledger.Verdict{told,
			early, foreign}}).Encode()}); err != nil {
		t.Fatal(err)
	}
	if standing, err := s.Standing(&told); err != nil || standing != verdicts.Over {
		t.Errorf("%d %v", standing, err)
	}
	crossing, err = s.Crossing(waits.ID)
	if err != nil || crossing.Outcome != Refused || crossing.Settled == nil ||
		*crossing.Settled.Entry.Transaction().Verdict != told {
		t.Fatalf("%+v %v", crossing, err)
	}
	if _, made, err := s.Verdict(ledger.Hash{1}, 0, s.AppendedHeight()); made || err != nil {
		t.Errorf("a verdict on what is not there: %v", err)
	}
}

// The end of a wait is found, also by a verdict that is good in another form than correct shards
// give it, and after a restart.
func TestEndOfWaitIsFound(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]uint32{"by its id": ledger.NoItem, "by its row": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, genesis := t.TempDir(), shardGenesis()
			s := openBook(t, dir, genesis, small())
			b, random := newShardBook(1), rand.New(rand.NewPCG(7, 7))
			for s.PendingCount() == 0 {
				b.apply(t, s, 3, random)
			}
			waits := s.Pending()[0]
			var told []ledger.Verdict
			for _, shard := range waits.Waits {
				told = append(told, ledger.Verdict{ID: waits.ID, Shard: shard,
					Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}})
			}
			last := &told[len(told)-1]
			last.Result.Item = item
			if _, err := s.Apply(1, 1000,
				[][]byte{(&ledger.Batch{Verdicts: told}).Encode()}); err != nil {
				t.Fatal(err)
			}
			find := func() {
				t.Helper()
				crossing, err := s.Crossing(waits.ID)
				if err != nil || crossing.Outcome != TookEffect || crossing.Settled == nil ||
					*crossing.Settled.Entry.Transaction().Verdict != *last {
					t.Fatalf("%+v %v", crossing, err)
				}
			}
			find()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			rows := 0
			s = openBook(t, dir, genesis, small())
			if err := s.eachRow(rowSettled, func(key, _ []byte) error {
				if bytes.Equal(key, settledKey(waits.ID)) {
					rows++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := rows == 1; want != (item != ledger.NoItem) {
				t.Errorf("%d rows", rows)
			}
			find()
			if err := s.verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// Reads run while a shard grows.
func TestShardIsReadWhileItGrows(t *testing.T) {
	t.Parallel()
	s := openBook(t, t.TempDir(), shardGenesis(), small())
	b, random := newShardBook(1), rand.New(rand.NewPCG(9, 9))
	for s.PendingCount() == 0 {
		b.apply(t, s, 3, random)
	}
	crossing, err := ledger.DecodeBundle(b.signed(b.clients[1].Transfer("org1:a", "org2:a", 1),
		b.clients[1].Transfer("org1:issuer", "org1:a", 1)))
	if err != nil {
		t.Fatal(err)
	}
	over, readers := make(chan struct{}), make(chan error, 3)
	for _, read := range []func() error{
		func() error {
			_, err := s.Stream(2, max(1, s.Streamed(2)-3), 10, s.AppendedHeight())
			return err
		},
		func() error {
			s.BundleEntry(crossing)
			return nil
		},
		func() error {
			for _, waits := range s.Pending() {
				if _, err := s.Crossing(waits.ID); err != nil {
					return err
				}
				if _, _, err := s.Verdict(waits.ID, 0, s.AppendedHeight()); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		go func() {
			for {
				select {
				case <-over:
					readers <- nil
					return
				default:
					if err := read(); err != nil {
						readers <- err
						return
					}
				}
			}
		}()
	}
	for range 20 {
		b.apply(t, s, random.IntN(8), random)
	}
	close(over)
	for range 3 {
		if err := <-readers; err != nil {
			t.Error(err)
		}
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A registration has no nonce, but its second copy is still dropped. The same holds for
// transactions that pass through, and after the store was reopened.
func TestCopiesFromTheStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	genesis, err := shardGenesis().ForShard(0)
	if err != nil {
		t.Fatal(err)
	}
	s := openBook(t, dir, genesis, small())
	b := newShardBook(1)
	registration := b.clients[1].Register()
	other := b.clients[2].Register()
	bundles := [][]byte{b.signed(registration), b.signed(other),
		b.signed(b.clients[1].Transfer("org1:a", "org2:a", 1))}
	payload := ledger.EncodeBatch(ledger.BatchHeader{Time: 1}, bundles)
	for range 2 {
		for range 2 {
			if _, err := s.Apply(1, ledger.Round(s.Head().Height+1),
				[][]byte{payload, payload}); err != nil {
				t.Fatal(err)
			}
		}
		if s.Head().Height != 1 || s.Head().Total != 3 {
			t.Fatalf("%+v", s.Head())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openBook(t, dir, genesis, small())
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// What was only relayed here is a duplicate the next time, although it used no nonce of this chain:
// in the same block, while the block waits for the disk, from the disk, in a store that is opened
// again, and in one that began with a snapshot.
func TestRelayedIsRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	genesis, err := shardGenesis().ForShard(0)
	if err != nil {
		t.Fatal(err)
	}
	s := openBook(t, filepath.Join(dir, "one"), genesis, small())
	b := newShardBook(1)
	var registrations []ledger.Transaction
	for shard := 1; shard <= 2; shard++ {
		registration := b.clients[shard].Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		registrations = append(registrations, registration)
	}
	apply := func(s *Store, bundle []byte) *ledger.Block {
		t.Helper()
		block, err := s.Apply(1, ledger.Round(s.Head().Height+1),
			[][]byte{ledger.EncodeBatch(ledger.BatchHeader{Time: 1}, [][]byte{bundle, bundle})})
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	apply(s, b.signed(registrations...))
	relayed := b.signed(b.clients[1].Transfer("org1:a", "org2:a", 1))
	block := apply(s, relayed)
	if block.Len() != 1 || block.Entry(0).Result.Code != ledger.Relayed {
		t.Fatalf("a block of %d transactions, the first is %s", block.Len(), block.Entry(0).Result)
	}
	again := func(when string, s *Store) {
		t.Helper()
		if block := apply(s, relayed); block != nil {
			t.Fatalf("%s: %d transactions are taken again, as %s", when, block.Len(),
				block.Entry(0).Result)
		}
	}
	again("the head", s)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	again("on disk", s)
	snapshot, _ := snapshotOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again("opened again", openBook(t, filepath.Join(dir, "one"), genesis, small()))
	if _, err := Restore(t.Context(), filepath.Join(dir, "two"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	again("a snapshot", openBook(t, filepath.Join(dir, "two"), genesis, small()))
}

// Damage to a shard's store is reported: missing or foreign rows, and flipped bits.
func TestDamagedShard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	genesis, random := shardGenesis(), rand.New(rand.NewPCG(5, 3))
	s := openBook(t, dir, genesis, small())
	b := newShardBook(1)
	for range 25 {
		b.apply(t, s, random.IntN(10), random)
	}
	text := mustReadAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := readFolder(t, dir)
	for _, kind := range []byte{rowStream, rowSettled, rowEntries, rowSteps} {
		for _, damage := range []string{"missing", "empty", "of another key"} {
			dir := t.TempDir()
			whole.write(t, dir)
			tamper(t, dir, kind, damage)
			if _, err := reopenBook(t, dir, genesis); !errors.Is(err, ErrDamaged) {
				t.Errorf("%c %s: %v", kind, damage, err)
			}
		}
	}
	told := 0
	count := min(14, *flips)
	if testing.Short() {
		count = 4
	}
	for i := range count {
		names := whole.names()
		name := names[i%len(names)]
		if len(whole[name].data) == 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		whole.write(t, dir)
		flip(t, filepath.Join(dir, name), random.IntN(len(whole[name].data)), random.IntN(8))
		switch got, err := reopenBook(t, dir, genesis); {
		case errors.Is(err, ErrDamaged):
			told++
		case err != nil || got != text:
			t.Errorf("flip %d in %s: the store reads wrong: %v", i, name, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if told == 0 && !testing.Short() {
		t.Error("no flip did any harm: the test tests nothing")
	}
}
