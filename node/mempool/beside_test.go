package mempool

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// neighbours always have more for this shard than fits: entries of one size, or verdicts if the
// size is 0. If silent, they have nothing.
type neighbours struct {
	t      testing.TB
	pool   *Pool
	entry  int
	silent bool
	greedy bool // proposes more than there is room for
	last   uint64
	// vouched goes with what is proposed.
	vouched []ledger.Vouched
	// bundles is how many bundles of clients wait, in TestInputIsVouchedFor.
	bundles int
}

func (n *neighbours) Propose(room int, use func(Input)) {
	n.pool.Pending(ledger.Hash{}) // the pool holds no lock
	n.pool.Wake()
	if n.silent || room < 0 {
		return
	}
	if n.greedy {
		room += 1 << 20
	}
	var carried []ledger.Carried
	var verdicts []ledger.Verdict
	memory := bytes.Repeat([]byte{7}, n.entry)
	for n.entry > 0 && ledger.CarriedSize(n.entry) <= room {
		n.last++
		room -= ledger.CarriedSize(n.entry)
		carried = append(carried, ledger.Carried{Number: n.last, Bundle: memory})
	}
	for n.entry == 0 && ledger.VerdictSize <= room && len(verdicts) < 1<<16 {
		room -= ledger.VerdictSize
		verdicts = append(verdicts, ledger.Verdict{ID: sha256.Sum256([]byte{byte(len(verdicts))}),
			Shard: 1, Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}})
	}
	use(Input{Carried: carried, Verdicts: verdicts, Vouched: n.vouched})
	use(Input{Carried: carried, Verdicts: verdicts}) // a second call must have no effect
	clear(memory)                                    // the ring's memory is reused
}

func besidePool(t testing.TB, n *neighbours) *Pool {
	n.t = t
	n.pool = New(Config{BytesMax: 1 << 30, Tip: func() Tip { return Tip{} }, Beside: n})
	return n.pool
}

// large returns a bundle of about so many bytes.
func large(t testing.TB, sequence uint64, size int) (*ledger.Bundle, []byte) {
	t.Helper()
	var transactions []ledger.Transaction
	for left, place := size-150, uint32(0); left > 0; place++ {
		value := min(left, 4000)
		transactions = append(transactions, ledger.Transaction{Signer: "acme",
			Nonce:   ledger.Nonce{Stream: uint64(place), Sequence: sequence},
			Records: []ledger.Record{{Key: "acme:key", Value: make([]byte, value)}}})
		left -= value + 100
	}
	b, err := ledger.NewBundle(transactions...)
	if err != nil {
		t.Fatal(err)
	}
	return b, b.Encode()
}

// shares takes some batches while clients and neighbours always want more, and returns the bytes of
// each side.
func shares(t testing.TB, p *Pool, n *neighbours, bundle, maxBytes, batches int) (clients,
	beside int) {
	sequence, added := uint64(0), 0
	for range batches {
		for added < clients+maxBytes+bundle {
			sequence++
			b, encoded := large(t, sequence, bundle)
			if err := p.Add(b, encoded, nothingKnown); err != nil {
				t.Fatal(err)
			}
			added += len(encoded)
		}
		payload := p.Next(maxBytes)
		if len(payload) > maxBytes {
			t.Fatalf("a payload of %d bytes, at most %d wanted", len(payload), maxBytes)
		}
		encoded, _, err := SplitPayload(payload)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := ledger.DecodeBatch(encoded)
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range batch.Bundles {
			clients += ledger.BatchSize(len(each))
		}
		for _, each := range batch.Carried {
			if len(each.Bundle) != n.entry || each.Bundle[0] != 7 {
				t.Fatal("the memory of a ring was kept")
			}
			beside += ledger.CarriedSize(len(each.Bundle))
		}
		beside += ledger.VerdictSize * len(batch.Verdicts)
	}
	return clients, beside
}

func TestRoomIsShared(t *testing.T) {
	t.Parallel()
	const smallest, usual, full = ledger.MaxBundleBytes + 4096, 2 << 20, ledger.MaxBundleBytes
	for i, c := range []struct {
		name                    string
		entry, bundle, maxBytes int
	}{
		{"small of both", 5000, 4000, usual},
		{"verdicts", 0, 4000, usual},
		{"full entries", full, 4000, usual},
		{"full bundles", 5000, full - 20_000, usual},
		{"full of both", full, full - 20_000, usual},
		{"the smallest room", full, full - 20_000, smallest},
		{"the smallest room and small bundles", full, 4000, smallest},
		{"the smallest room and verdicts", 0, full - 20_000, smallest},
	} {
		n := &neighbours{entry: c.entry, greedy: i%2 == 1}
		p := besidePool(t, n)
		const batches = 2 // one for each side's turn
		clients, beside := shares(t, p, n, c.bundle, c.maxBytes, batches)
		// Half of the room each, except one item that did not fit in, and the header's room.
		half := batches * c.maxBytes / 2
		slack := batches * min(max(c.bundle, c.entry)+1000, c.maxBytes/40)
		if clients < half-slack || beside < half-slack {
			t.Errorf("%s: clients %d, beside %d of %d bytes", c.name, clients, beside, 2*half)
		}
	}
}

// A single side gets all of the room.
func TestRoomOfOneAlone(t *testing.T) {
	t.Parallel()
	const maxBytes = 2 << 20
	n := &neighbours{silent: true}
	p := besidePool(t, n)
	if p.Next(maxBytes) != nil {
		t.Fatal("a payload of nothing")
	}
	if clients, beside := shares(t, p, n, 4000, maxBytes, 3); clients < 3*maxBytes*98/100 ||
		beside != 0 {
		t.Errorf("clients alone have %d bytes", clients)
	}
	n = &neighbours{entry: 5000}
	p = besidePool(t, n)
	for range 3 {
		if payload := p.Next(maxBytes); len(payload) < maxBytes*98/100 || len(payload) > maxBytes {
			t.Errorf("what is beside has %d bytes alone", len(payload))
		}
	}
	select {
	case <-p.Ready():
	default:
		t.Error("not ready after Wake")
	}
	if payload := p.Next(10); payload != nil {
		t.Errorf("%d bytes into no room", len(payload))
	}
}

// A bundle that no block took leaves the pool. The part that routes it again may add it again.
func TestLeftOutIsHandedOver(t *testing.T) {
	t.Parallel()
	var handed []*ledger.Bundle
	var p *Pool
	p = New(Config{BytesMax: 1 << 20, Tip: func() Tip {
		return Tip{}
	}, Misplaced: func(b *ledger.Bundle) {
		handed = append(handed, b)
		if p.Pending(b.ID(0)) {
			t.Error("still pending")
		}
	}})
	taken1, encoded1 := bundle(t, 0, 1)
	part, encoded2 := bundle(t, 0, 2, 3)
	left, encoded3 := bundle(t, 9, 4)
	for b, encoded := range map[*ledger.Bundle][]byte{taken1: encoded1, part: encoded2,
		left: encoded3} {
		if err := p.Add(b, encoded, nothingKnown); err != nil {
			t.Fatal(err)
		}
	}
	bundles, _ := taken(t, p, 1<<20)
	some := block(1, taken1)
	some.Unpacked = append(some.Unpacked, ledger.Entry{ID: part.ID(1)})
	p.Requeue() // the group restarted; the round comes all the same
	p.Applied(some)
	p.HandOverUnplaced(append(bundles, []byte("of another node"), encoded1))
	if transactions, size := p.Size(); len(handed) != 2 || transactions != 0 || size != 0 ||
		len(p.prints) != 0 {
		t.Fatalf("%d handed over, %d transactions and %d bytes stay", len(handed), transactions,
			size)
	}
	if p.HandOverUnplaced(bundles); len(handed) != 2 {
		t.Error("handed over twice")
	}
	if got, _ := taken(t, p, 1<<20); got != nil {
		t.Error("left again")
	}
	if err := p.Add(left, encoded3, nothingKnown); err != nil || !p.Pending(left.ID(0)) {
		t.Fatal(err)
	}
	p.Applied(block(9))
	if len(p.prints) != 0 {
		t.Error("an expired bundle is kept")
	}
}

func BenchmarkNextBeside(b *testing.B) {
	n := &neighbours{entry: 5000}
	p := besidePool(b, n)
	made, encoded := bundle(b, 0, 1)
	b.ReportAllocs()
	for range b.N {
		if err := p.Add(made, encoded, nothingKnown); err != nil {
			b.Fatal(err)
		}
		if p.Next(1<<20) == nil {
			b.Fatal("nothing to take")
		}
		p.Applied(block(1, made))
	}
}

// In a book with vouched crossings, this member signs all input from other shards that goes into a
// batch, after it was cut to the room. The largest entry has room beside its voucher.
func TestInputIsVouchedFor(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	entries := make([]ledger.Vouched, ledger.MaxBatchVouched+1)
	for i := range entries {
		entries[i].Number = uint64(i + 1)
	}
	decoded := func(n *neighbours, room int) *ledger.VerifiedBatch {
		n.t = t
		n.pool = New(Config{BytesMax: 1 << 30, Tip: func() Tip { return Tip{} }, Beside: n,
			Vouch: func(b *ledger.Batch, stream []ledger.Vouched) {
				b.Vouch(key, ledger.Hash{1}, stream)
			}})
		for i := range n.bundles {
			b, encoded := large(t, uint64(i), 400)
			if err := n.pool.Add(b, encoded, nothingKnown); err != nil {
				t.Fatal(err)
			}
		}
		payload := n.pool.Next(room)
		if len(payload) > room {
			t.Fatalf("a payload of %d bytes, at most %d wanted", len(payload), room)
		}
		encoded, _, err := SplitPayload(payload)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) == 0 {
			return nil
		}
		batch, err := ledger.VerifyBatch(encoded)
		if err != nil || batch.VoucherErr != nil {
			t.Fatal(err, batch.VoucherErr)
		}
		return batch
	}
	least := ledger.MaxBundleBytes + 4096
	for name, c := range map[string]struct {
		neighbours
		room, carried, vouched int
	}{
		"the largest entry": {neighbours{entry: ledger.MaxBundleBytes, greedy: true,
			vouched: entries[:16]}, least, 1, 16},
		"the largest entry beside bundles": {neighbours{entry: ledger.MaxBundleBytes,
			vouched: entries[:16], bundles: 50}, least, 1, 16},
		"no room": {neighbours{greedy: true, vouched: entries[:2]}, headerRoom + 50, 0,
			-1},
		"entries":           {neighbours{entry: 100 << 10, vouched: entries[:9]}, least, 10, 9},
		"too many vouchers": {neighbours{entry: 1 << 20, vouched: entries}, 20 << 10, 0, 470},
		"most vouchers": {neighbours{entry: 1 << 20, vouched: entries}, least, 0,
			ledger.MaxBatchVouched},
		"verdicts": {neighbours{vouched: entries[:2]}, 8 << 10, 0, 2},
		"nothing":  {neighbours{silent: true}, least, 0, -1},
	} {
		batch := decoded(&c.neighbours, c.room)
		switch {
		case c.vouched < 0:
			if batch != nil {
				t.Errorf("%s: %+v", name, batch)
			}
		case batch == nil || batch.Voucher == nil:
			t.Errorf("%s: no voucher", name)
		case len(batch.Carried) != c.carried || len(batch.Voucher.Stream) != c.vouched:
			t.Errorf("%s: %d entries, %d vouched for", name, len(batch.Carried),
				len(batch.Voucher.Stream))
		case name == "verdicts" && len(batch.Verdicts) == 0:
			t.Errorf("%s: none", name)
		}
	}
	// Without a key there is nothing to vouch for, and no batch of nothing.
	n := &neighbours{entry: 1 << 20, vouched: entries[:2]}
	if payload := besidePool(t, n).Next(20 << 10); payload != nil {
		t.Errorf("a batch without input: %d bytes", len(payload))
	}
}

// stubborn repeats the same verdicts, if it has any.
type stubborn struct{ verdicts []ledger.Verdict }

func (s *stubborn) Propose(_ int, use func(Input)) {
	if len(s.verdicts) > 0 {
		use(Input{Verdicts: s.verdicts})
	}
}

// What Beside repeats goes into the same rounds at all members, and begins few rounds.
func TestMeetings(t *testing.T) {
	t.Parallel()
	beside := &stubborn{[]ledger.Verdict{{Shard: 1,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}}}
	p := New(Config{BytesMax: 1 << 20, Tip: func() Tip { return Tip{} }, Beside: beside,
		Vouch: func(*ledger.Batch, []ledger.Vouched) {}})
	round := uint64(0)
	// rounds checks what ten rounds have: nothing (-), input from Beside (i), bundles (b) or both
	// (B), or a payload without a batch (.).
	rounds := func(what string, due bool, want string) {
		t.Helper()
		got := ""
		for round = 1; round <= 10; round++ {
			payload := p.NextIn(func() uint64 { return round }, func() bool { return due }, 1<<20)
			encoded, _, err := SplitPayload(payload)
			if err != nil {
				t.Fatal(err)
			}
			switch batch, err := ledger.DecodeBatch(encoded); {
			case len(payload) == 0:
				got += "-"
			case len(encoded) == 0:
				got += "."
			case err != nil:
				t.Fatal(err)
			case len(batch.Verdicts) == 0:
				got += "b"
			case len(batch.Bundles) == 0:
				got += "i"
			default:
				got += "B"
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	sequence := uint64(0)
	add := func() {
		t.Helper()
		sequence++
		bundle, encoded := large(t, sequence, 1000)
		if err := p.Add(bundle, encoded, nothingKnown); err != nil {
			t.Fatal(err)
		}
	}
	rounds("nothing is known", true, "----------")
	p.Wake()
	rounds("woken", false, "...i------")
	rounds("others make rounds", true, "---i---i--")
	rounds("quiet", false, "----------")
	add()
	rounds("a bundle", false, "b---------")
	p.Wake()
	add()
	rounds("a bundle, woken", false, "b..i------")

	p.Applied(&ledger.Block{Bundles: []ledger.BundleSeal{{}}})
	rounds("a block of clients", false, "----------")
	p.Applied(&ledger.Block{Bundles: []ledger.BundleSeal{{Number: 1}}})
	rounds("a block took an entry", false, "...i------")
	p.Applied(&ledger.Block{Unpacked: []ledger.Entry{{Decoded: &ledger.Transaction{
		Verdict: &beside.verdicts[0]}}}})
	rounds("a block took a verdict", false, "...i------")
	p.Requeue()
	rounds("the group restarted", false, "b..i------")

	beside.verdicts = nil
	rounds("others make rounds for nothing", true, "----------")
	p.Applied(&ledger.Block{Bundles: []ledger.BundleSeal{{Number: 2}}})
	rounds("nothing is left", false, "----------")

	beside.verdicts = []ledger.Verdict{{Shard: 1,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}}
	p = New(Config{BytesMax: 1 << 20, Tip: func() Tip { return Tip{} }, Beside: beside,
		Vouch: func(*ledger.Batch, []ledger.Vouched) {}})
	p.Meet(7)
	p.Wake()
	rounds("meetings are further apart", false, "......i---")
}
