package mempool

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"pgregory.net/rapid"
)

func bundle(t testing.TB, lastValid ledger.Height, sequences ...uint64) (*ledger.Bundle, []byte) {
	t.Helper()
	var transactions []ledger.Transaction
	for _, sequence := range sequences {
		transactions = append(transactions, ledger.Transaction{Signer: "acme",
			Nonce: ledger.Nonce{Sequence: sequence}, LastValid: lastValid, Note: []byte("a note"),
			Records: []ledger.Record{{Key: "acme:key", Value: []byte("value")}}})
	}
	b, err := ledger.NewBundle(transactions...)
	if err != nil {
		t.Fatal(err)
	}
	return b, b.Encode()
}

// packed returns a packed bundle of as many transfers, and its encoding.
func packed(t testing.TB, sequence uint64, transfers int) (*ledger.Bundle, []byte) {
	t.Helper()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	client.Stream = sequence
	var transactions []ledger.Transaction
	for range transfers {
		transactions = append(transactions, client.Transfer("acme:a", "acme:b", 1))
	}
	b := client.Packed(transactions...)
	return b, b.Encode()
}

// A packed bundle that expires leaves the pool as a whole, and each of its transfers is remembered.
func TestPackedBundleExpires(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfers := []ledger.Transaction{client.Transfer("acme:a", "acme:b", 1),
		client.Transfer("acme:a", "acme:b", 1)}
	transfers[0].LastValid, transfers[1].LastValid = 3, 3
	b := client.Packed(transfers...)
	if err := p.Add(b, b.Encode(), nothingKnown); err != nil {
		t.Fatal(err)
	}
	if _, expired := p.Applied(block(3)); !slices.Equal(expired, b.IDs()) {
		t.Errorf("expired: %v", expired)
	}
	for _, id := range b.IDs() {
		if height, expired := p.Expired(id); !expired || height != 3 || p.Pending(id) {
			t.Errorf("%s: expired at %d: %v", id, height, expired)
		}
	}
	if transactions, bytes := p.Size(); transactions != 0 || bytes != 0 {
		t.Errorf("%d transactions and %d bytes are left", transactions, bytes)
	}
}

// A batch has no more packed transfers than nodes decode; the others go into the next one.
func TestBatchBoundsPackedTransfers(t *testing.T) {
	t.Parallel()
	p := pool(1 << 30)
	bundles := ledger.MaxBatchPacked/ledger.MaxBundleTransactions + 1
	for i := range bundles {
		b, encoded := packed(t, uint64(i), ledger.MaxBundleTransactions)
		if err := p.Add(b, encoded, nothingKnown); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{bundles - 1, 1} {
		if got, _ := taken(t, p, ledger.MaxBatchBytes); len(got) != want {
			t.Errorf("%d bundles, want %d", len(got), want)
		}
	}
}

func block(height ledger.Height, bundles ...*ledger.Bundle) *ledger.Block {
	b := &ledger.Block{Header: ledger.Header{Height: height}}
	for _, from := range bundles {
		if from.Packed() {
			b.AddPacked(from.Seal(nil))
			continue
		}
		for i := range from.Len() {
			b.Unpacked = append(b.Unpacked, ledger.Entry{ID: from.ID(i), Bundle: len(b.Bundles),
				Place: i})
		}
		b.Bundles = append(b.Bundles, from.Seal(nil))
	}
	return b
}

func nothingKnown(*ledger.Bundle) ([]bool, error) { return nil, nil }

func pool(bytes int) *Pool {
	return New(Config{BytesMax: bytes, Tip: func() Tip { return Tip{} }})
}

// taken returns the contents of the next payload, as bundles.
func taken(t testing.TB, p *Pool, maxBytes int) (bundles [][]byte, marks Marks) {
	t.Helper()
	payload := p.Next(maxBytes)
	if len(payload) > maxBytes {
		t.Fatalf("a payload of %d bytes, at most %d wanted", len(payload), maxBytes)
	}
	encoded, marks, err := SplitPayload(payload)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) == 0 {
		return nil, marks
	}
	batch, err := ledger.DecodeBatch(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return batch.Bundles, marks
}

// A block has a transaction once, also if its bundle has it twice. The bundle leaves the pool.
func TestBundleWithATransactionTwiceLeaves(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	once, _ := bundle(t, 0, 1)
	twice, encoded := bundle(t, 0, 1, 1)
	if err := p.Add(twice, encoded, nothingKnown); err != nil {
		t.Fatal(err)
	}
	p.Applied(block(1, once))
	if transactions, bytes := p.Size(); transactions != 0 || bytes != 0 {
		t.Fatalf("%d transactions and %d bytes are left", transactions, bytes)
	}
}

func TestBundleStaysUntilItIsInABlock(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	b, encoded := bundle(t, 0, 1, 2)
	if err := p.Add(b, encoded, nothingKnown); err != nil {
		t.Fatal(err)
	}
	if err := p.Add(b, encoded, nothingKnown); err != nil {
		t.Fatal(err)
	}
	if got, _ := taken(t, p, 1<<20); len(got) != 1 || string(got[0]) != string(encoded) {
		t.Fatalf("took %d bundles, want the one", len(got))
	}
	if got, _ := taken(t, p, 1<<20); got != nil {
		t.Fatal("a bundle under way was taken again")
	}
	p.Requeue()
	if got, _ := taken(t, p, 1<<20); len(got) != 1 {
		t.Fatal("after the group started anew the bundle did not leave again")
	}
	if !p.Pending(b.ID(0)) {
		t.Fatal("not pending")
	}
	if admitted, _ := p.Applied(block(1, b)); len(admitted) != 1 {
		t.Fatalf("%d admission times, want that of the bundle", len(admitted))
	}
	if transactions, bytes := p.Size(); transactions != 0 || bytes != 0 || p.Pending(b.ID(0)) {
		t.Fatalf("%d transactions and %d bytes are left", transactions, bytes)
	}
	p.Requeue()
	if got, _ := taken(t, p, 1<<20); got != nil {
		t.Fatal("what is in a block was taken again")
	}
}

func TestFullPoolRefuses(t *testing.T) {
	t.Parallel()
	first, encoded := bundle(t, 0, 1)
	p := pool(len(encoded) + 10)
	if err := p.Add(first, encoded, nothingKnown); err != nil {
		t.Fatal(err)
	}
	second, encodedSecond := bundle(t, 0, 2)
	if err := p.Add(second, encodedSecond, nothingKnown); !errors.Is(err, ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	if err := p.Add(first, encoded, nothingKnown); err != nil {
		t.Fatalf("a known bundle needs no room, got %v", err)
	}
	p.Applied(block(1, first))
	if err := p.Add(second, encodedSecond, nothingKnown); err != nil {
		t.Fatal(err)
	}
}

// A packed transfer takes as much memory as any other transaction, however few bytes it has. So a
// pool has room for about as many.
func TestPackedBundlesFillThePool(t *testing.T) {
	t.Parallel()
	p, first := pool(1<<20), (*ledger.Bundle)(nil)
	for sequence := uint64(1); ; sequence++ {
		b, encoded := packed(t, sequence, 1000)
		if err := p.Add(b, encoded, nothingKnown); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if transactions, _ := p.Size(); transactions > 1<<20/100 {
			t.Fatalf("a pool of %d bytes has %d transfers", p.config.BytesMax, transactions)
		}
	}
	before, _ := p.Size()
	p.Applied(block(1, first))
	if b, encoded := packed(t, 1000, 1000); p.Add(b, encoded, nothingKnown) != nil || before == 0 {
		t.Errorf("there is no room after a block, with %d transfers before", before)
	}
}

// TestLongNamesFillThePool: a name of a packed bundle takes its bytes in memory, however many it
// shares with the one before it. So the bound of the pool holds for the names of its bundles.
func TestLongNamesFillThePool(t *testing.T) {
	t.Parallel()
	p, client := pool(1<<20), ledgertest.NewClient(ledgertest.Genesis(), "acme")
	long, names := strings.Repeat("n", 110), 0
	account := func() ledger.AccountPath {
		names++
		return client.Account(fmt.Sprintf("%s-%06d", long, names))
	}
	taken, full := 0, false
	var first *ledger.Bundle
	for !full {
		var transfers []ledger.Transaction
		for range 100 {
			transfers = append(transfers, client.Transfer(account(), account(), 1))
		}
		b := client.Packed(transfers...)
		encoded := b.Encode()
		switch err := p.Add(b, encoded, nothingKnown); {
		case errors.Is(err, ErrFull):
			full = true
			continue
		case err != nil:
			t.Fatal(err)
		case first == nil:
			first = b
		}
		if taken += len(encoded) + b.Transfers().AccountBytes(); taken > p.config.BytesMax {
			t.Fatalf("a pool of %d bytes has bundles of %d", p.config.BytesMax, taken)
		}
	}
	_, before := p.Size()
	p.Applied(block(1, first))
	if _, after := p.Size(); before-after < first.Transfers().AccountBytes() {
		t.Errorf("%d bytes are free after a block with names of %d", before-after,
			first.Transfers().AccountBytes())
	}
}

// TestEmptyPoolTakesAnyBundle: the largest bundle counts for more than the least bound of a pool.
// It has its turn all the same, alone.
func TestEmptyPoolTakesAnyBundle(t *testing.T) {
	t.Parallel()
	p := pool(1)
	first, encodedFirst := packed(t, 1, 10)
	second, encodedSecond := packed(t, 2, 10)
	if err := p.Add(first, encodedFirst, nothingKnown); err != nil {
		t.Fatal(err)
	}
	if err := p.Add(second, encodedSecond, nothingKnown); !errors.Is(err, ErrFull) {
		t.Errorf("a second bundle: %v", err)
	}
	p.Applied(block(1, first))
	if err := p.Add(second, encodedSecond, nothingKnown); err != nil {
		t.Error(err)
	}
}

func TestExpiredIsDroppedAndRemembered(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	waits, encodedWaits := bundle(t, 5, 1)
	under, encodedUnder := bundle(t, 5, 2)
	if err := p.Add(under, encodedUnder, nothingKnown); err != nil {
		t.Fatal(err)
	}
	taken(t, p, 1<<20)
	if err := p.Add(waits, encodedWaits, nothingKnown); err != nil {
		t.Fatal(err)
	}
	p.Applied(block(4))
	if !p.Pending(waits.ID(0)) {
		t.Fatal("expired at 4, is valid until 5")
	}
	p.Applied(block(5))
	if height, ok := p.Expired(waits.ID(0)); !ok || height != 5 || p.Pending(waits.ID(0)) {
		t.Fatalf("expired %v at %d", ok, height)
	}
	if !p.Pending(under.ID(0)) {
		t.Fatal("what is under way may still be delivered")
	}
	p.Requeue()
	p.Applied(block(6))
	if _, ok := p.Expired(under.ID(0)); !ok {
		t.Fatal("not expired after its round was void")
	}
}

// A last valid block of another chain has no effect here.
func TestExpiresByAnotherChain(t *testing.T) {
	t.Parallel()
	p := New(Config{BytesMax: 1 << 20, Tip: func() Tip {
		return Tip{}
	}, Expires: func(transaction *ledger.Transaction) bool {
		return transaction.Nonce.Sequence%2 ==
			1
	}})
	here, encodedHere := bundle(t, 5, 1)
	elsewhere, encodedElsewhere := bundle(t, 5, 2)
	both, encodedBoth := bundle(t, 5, 3, 4)
	for made, encoded := range map[*ledger.Bundle][]byte{here: encodedHere,
		elsewhere: encodedElsewhere, both: encodedBoth} {
		if err := p.Add(made, encoded, nothingKnown); err != nil {
			t.Fatal(err)
		}
	}
	p.Applied(block(5))
	if !p.Pending(elsewhere.ID(0)) || !p.Pending(both.ID(0)) || !p.Pending(both.ID(1)) {
		t.Fatal("dropped what is not to expire here")
	}
	if _, expired := p.Expired(here.ID(0)); !expired {
		t.Fatal("kept what has expired")
	}
}

func TestMarkGoesOnceAndWithoutABatch(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	p.Regroup()
	p.Enter(Entrant{Server: 3, Ticket: 1 << 60})
	p.Enter(Entrant{Server: 3, Ticket: 1 << 60})
	p.Enter(Entrant{Server: 1, Ticket: 7})
	select {
	case <-p.Ready():
	default:
		t.Fatal("not ready")
	}
	if bundles, marks := taken(t, p, 1<<20); bundles != nil || !marks.Regroup ||
		!slices.Equal(marks.Entrants, []Entrant{{Server: 3, Ticket: 1 << 60},
			{Server: 1, Ticket: 7}}) {
		t.Fatalf("%d bundles, marks %+v", len(bundles), marks)
	}
	if p.Next(1<<20) != nil {
		t.Fatal("the mark went twice")
	}
	for range 2 * EntrantsMax {
		p.Enter(Entrant{Server: 1, Ticket: uint64(len(p.marks.Entrants))})
	}
	if _, marks := taken(t, p, 1<<20); len(marks.Entrants) != EntrantsMax || marks.Regroup {
		t.Fatalf("%+v", marks)
	}
	for _, wrong := range [][]byte{{1, 2, 1}, {1, 2, EntrantsMax + 1},
		append(make([]byte, 300), 0xff)} {
		if _, _, err := SplitPayload(wrong); !errors.Is(err, ErrPayload) {
			t.Fatalf("%x gives %v", wrong, err)
		}
	}
}

// Against a simple model: the order of admission is kept, nothing leaves twice within a generation,
// nothing is lost, the bounds hold.
func TestPoolAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := pool(4000)
		var waiting, underWay []*ledger.Bundle
		sequence, height := uint64(0), ledger.Height(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				sequence++
				b, encoded := bundle(t, 0, sequence)
				if rapid.Bool().Draw(rt, "packed") {
					b, encoded = packed(t, sequence, rapid.IntRange(1, 9).Draw(rt, "transfers"))
				}
				switch err := p.Add(b, encoded, nothingKnown); {
				case err == nil:
					waiting = append(waiting, b)
				case !errors.Is(err, ErrFull):
					rt.Fatal(err)
				}
			case 2:
				got, _ := taken(t, p, rapid.IntRange(400, 2000).Draw(rt, "room"))
				for _, encoded := range got {
					if len(waiting) == 0 || string(waiting[0].Encode()) != string(encoded) {
						rt.Fatal("a bundle left out of order")
					}
					underWay, waiting = append(underWay, waiting[0]), waiting[1:]
				}
			case 3:
				count := rapid.IntRange(0, len(underWay)).Draw(rt, "delivered")
				height++
				p.Applied(block(height, underWay[:count]...))
				underWay = underWay[count:]
			case 4:
				p.Requeue()
				waiting, underWay = append(append([]*ledger.Bundle{}, underWay...), waiting...), nil
			}
			transactions, bytes := p.Size()
			want := 0
			for _, b := range append(slices.Clone(waiting), underWay...) {
				want += b.Len()
				beyond := b.ID(b.Len() - 1)
				if beyond[31]++; !p.Pending(b.ID(b.Len()-1)) || p.Pending(beyond) ||
					len(p.Absent(b.IDs())) != 0 {
					rt.Fatal("the pool does not know which transactions it has")
				}
			}
			if transactions != want || bytes > 4000 {
				rt.Fatalf("%d transactions, %d bytes; want %d", transactions, bytes, want)
			}
		}
	})
}

func FuzzSplitPayload(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1})
	f.Add(appendMarks([]byte{7}, Marks{Regroup: true,
		Entrants: []Entrant{{Server: 1, Ticket: 2}, {Server: 3, Ticket: 4}}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		batch, marks, err := SplitPayload(payload)
		if err == nil && len(payload) > 0 && !bytes.Equal(appendMarks(bytes.Clone(batch), marks),
			payload) {
			t.Fatalf("%x was taken and means %x and %+v", payload, batch, marks)
		}
	})
}

func BenchmarkAddNextApplied(b *testing.B) {
	p := pool(1 << 30)
	var bundles []*ledger.Bundle
	var encodings [][]byte
	for i := range 1000 {
		made, encoded := bundle(b, 0, uint64(i))
		bundles, encodings = append(bundles, made), append(encodings, encoded)
	}
	b.ReportAllocs()
	for height := range b.N {
		for i := range bundles {
			if err := p.Add(bundles[i], encodings[i], nothingKnown); err != nil {
				b.Fatal(err)
			}
		}
		if p.Next(1<<20) == nil {
			b.Fatal("nothing to take")
		}
		p.Applied(block(ledger.Height(height), bundles...))
	}
	b.ReportMetric(float64(b.N*len(bundles))/b.Elapsed().Seconds(), "bundles/s")
}

// BenchmarkPacked passes bundles of 400 transactions through the pool, 16 a block. The unit is a
// block.
func BenchmarkPacked(b *testing.B) {
	p := pool(1 << 30)
	var bundles []*ledger.Bundle
	var encodings [][]byte
	for i := range uint64(16) {
		var sequences []uint64
		for j := range uint64(400) {
			sequences = append(sequences, 400*i+j)
		}
		_, encoded := bundle(b, 0, sequences...)
		decoded, err := ledger.DecodeBundle(encoded)
		if err != nil {
			b.Fatal(err)
		}
		bundles, encodings = append(bundles, decoded), append(encodings, encoded)
	}
	whole := block(0, bundles...)
	b.ReportAllocs()
	for b.Loop() {
		for i := range bundles {
			if err := p.Add(bundles[i], encodings[i], nothingKnown); err != nil {
				b.Fatal(err)
			}
		}
		payload := p.Next(ledger.MaxBatchBytes)
		batch, _, _ := SplitPayload(payload)
		if verified, err := ledger.VerifyBatchWith(batch, p.Bundle); err != nil ||
			verified.Proposals[15].Bundle != bundles[15] {
			b.Fatal(err)
		}
		p.Applied(whole)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*whole.Len()), "ns/tx")
}

func ExampleSplitPayload() {
	batch, marks, _ := SplitPayload([]byte{7, 7, 0x80})
	fmt.Println(len(batch), marks.Regroup)
	// Output: 2 true
}
