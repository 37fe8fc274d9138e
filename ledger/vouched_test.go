package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func vouchedSeed() *ledger.Batch {
	crossing := crossingSeed()
	batch := &ledger.Batch{
		Carried:  []ledger.Carried{{Number: 7, Bundle: crossing.CarriedBundle(1)}},
		Verdicts: []ledger.Verdict{*crossing.Unpacked[0].Transaction().Verdict},
	}
	batch.Vouch(ledgertest.Key("node-0"), ledger.Hash{1}, []ledger.Vouched{
		{Number: 7, Hash: ledger.CarriedHash(batch.Carried[0].Bundle)},
		{Number: 9, Hash: ledger.Hash{9}}})
	return batch
}

// stream returns this many entries of a voucher.
func stream(count int) []ledger.Vouched {
	entries := make([]ledger.Vouched, count)
	for i := range entries {
		entries[i].Number = uint64(i + 1)
	}
	return entries
}

// Other programs can verify vouchers: what is hashed and signed is as documented. No other message
// of a member's key begins like it.
func TestVouchedDomains(t *testing.T) {
	t.Parallel()
	if got, want := ledger.CarriedHash([]byte("bundle")),
		ledger.Hash(sha256.Sum256([]byte("ledgerd/carried/1\x00bundle"))); got != want {
		t.Errorf("the hash of an entry is %s, want %s", got, want)
	}
	batch := new(ledger.Batch)
	batch.Vouch(ledgertest.Key("node-0"), ledger.Hash{1},
		[]ledger.Vouched{{Number: 3, Hash: ledger.Hash{4}}})
	said := sha256.Sum256(append(append(append([]byte{1, 3}, 4), make([]byte, 31)...), 0))
	message := append([]byte("ledgerd/vouched/1\x00\x01"), make([]byte, 31)...)
	if key := ledgertest.PublicKey("node-0"); batch.Voucher.Key != key ||
		!ed25519.Verify(key[:], append(message, said[:]...), batch.Voucher.Signature[:]) {
		t.Error("the voucher signs something else")
	}
}

// A voucher survives its encoding, with and without clocks, and its signature covers the chain, the
// entries and the verdicts.
func TestVoucher(t *testing.T) {
	t.Parallel()
	check := func(spoil func(*ledger.Batch)) error {
		batch := vouchedSeed()
		spoil(batch)
		verified, err := ledger.VerifyBatch(batch.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if forged, first := verified.Forged(); (forged == 1) != (verified.VoucherErr != nil) ||
			!errors.Is(first, verified.VoucherErr) {
			t.Errorf("%d forged, %v, want %v", forged, first, verified.VoucherErr)
		}
		if !reflect.DeepEqual(verified.Voucher, batch.Voucher) ||
			verified.StreamHashes[0] != ledger.CarriedHash(batch.Carried[0].Bundle) {
			t.Error("the voucher does not survive its encoding")
		}
		return verified.VoucherErr
	}
	for name, spoil := range map[string]func(*ledger.Batch){
		"as it is":      func(*ledger.Batch) {},
		"other bundles": func(b *ledger.Batch) { b.Bundles = [][]byte{{1}} },
		"clocks": func(b *ledger.Batch) {
			b.Clocks = []ledger.MemberClock{{Member: 1, Offset: 3}}
		},
	} {
		if err := check(spoil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func(*ledger.Batch){
		"chain":     func(b *ledger.Batch) { b.Voucher.Chain[0]++ },
		"key":       func(b *ledger.Batch) { b.Voucher.Key = ledgertest.PublicKey("node-1") },
		"number":    func(b *ledger.Batch) { b.Voucher.Stream[1].Number++ },
		"hash":      func(b *ledger.Batch) { b.Voucher.Stream[1].Hash[0]++ },
		"no entry":  func(b *ledger.Batch) { b.Voucher.Stream = b.Voucher.Stream[:1] },
		"verdict":   func(b *ledger.Batch) { b.Verdicts[0].ID[0]++ },
		"twice":     func(b *ledger.Batch) { b.Verdicts = append(b.Verdicts, b.Verdicts[0]) },
		"none":      func(b *ledger.Batch) { b.Verdicts = nil },
		"signature": func(b *ledger.Batch) { b.Voucher.Signature[63] ^= 1 },
	} {
		if err := check(spoil); !errors.Is(err, ledger.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func([]byte, *ledger.Batch) []byte{
		"an entry twice": func(_ []byte, b *ledger.Batch) []byte {
			b.Voucher.Stream[1].Number = 7
			return b.Encode()
		},
		"entry 0": func(_ []byte, b *ledger.Batch) []byte {
			b.Voucher.Stream[0].Number = 0
			return b.Encode()
		},
		"too many entries": func(_ []byte, b *ledger.Batch) []byte {
			b.Voucher.Stream = stream(ledger.MaxBatchVouched + 1)
			return b.Encode()
		},
		"version 0": func(encoded []byte, _ *ledger.Batch) []byte {
			encoded[0] = 0
			return encoded
		},
		"version 6": func(encoded []byte, _ *ledger.Batch) []byte {
			encoded[0] = 6
			return encoded
		},
	} {
		batch := vouchedSeed()
		if _, err := ledger.DecodeBatch(spoil(batch.Encode(), batch)); !errors.Is(err,
			ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A voucher alone, and the largest one.
	for _, count := range []int{0, 1, ledger.MaxBatchVouched} {
		alone := new(ledger.Batch)
		alone.Vouch(ledgertest.Key("node-0"), ledger.Hash{1}, stream(count))
		verified, err := ledger.VerifyBatch(alone.Encode())
		if err != nil || verified.VoucherErr != nil || verified.Voucher == nil ||
			len(verified.Voucher.Stream) != count {
			t.Errorf("a voucher for %d entries: %+v, %v", count, verified, err)
		}
	}
	// Each entry has its own hash.
	two := vouchedSeed()
	two.Carried = append(two.Carried, ledger.Carried{Number: 8, Bundle: []byte{8}})
	verified, err := ledger.VerifyBatch(two.Encode())
	if err != nil || len(verified.StreamHashes) != 2 ||
		verified.StreamHashes[0] != ledger.CarriedHash(two.Carried[0].Bundle) ||
		verified.StreamHashes[1] != ledger.CarriedHash(two.Carried[1].Bundle) {
		t.Errorf("two entries: %+v, %v", verified, err)
	}
	batch := vouchedSeed()
	batch.Voucher = nil
	without := len(batch.Encode())
	if size := len(vouchedSeed().Encode()); size > without+ledger.VoucherSize(2)+1 {
		t.Errorf("the voucher adds %d bytes, at most %d", size-without, ledger.VoucherSize(2))
	}
}

// Each batch has one encoding: the earliest version that can have all of it.
func TestBatchVersionsAreCanonical(t *testing.T) {
	t.Parallel()
	clocks := []ledger.MemberClock{{Member: 1, Offset: 3}}
	clocked := &ledger.Batch{Clocks: clocks}
	for version, encoded := range map[byte][]byte{
		2: clocked.Encode()[:len(clocked.Encode())-3],
		3: append(clocked.Encode()[:len(clocked.Encode())-3], 0),
		5: append(vouchedSeed().Encode(), 0),
		6: clocked.Encode(),
	} {
		encoded[0] = version
		if _, err := ledger.DecodeBatch(encoded); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %d, which has nothing new: %v", version, err)
		}
	}
	for version, batch := range map[byte]*ledger.Batch{1: {}, 2: {Carried: vouchedSeed().Carried},
		3: {Carried: vouchedSeed().Carried, Clocks: clocks}, 4: vouchedSeed(),
		5: groupedSeed()} {
		encoded := batch.Encode()
		decoded, err := ledger.DecodeBatch(encoded)
		if err != nil || encoded[0] != version || !bytes.Equal(decoded.Encode(), encoded) {
			t.Errorf("version %d, want %d: %v", encoded[0], version, err)
		}
	}
}

// A book with vouched crossings has several shards, and members with keys to vouch with. Its
// genesis is another one than without.
func TestVouchedGenesis(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(2, 0, 0)
	plain := genesis.Hash()
	genesis.VouchedCrossings = true
	for range 2 {
		decoded, err := ledger.DecodeGenesis(genesis.Encode())
		if err != nil || !reflect.DeepEqual(decoded, genesis) {
			t.Fatalf("it does not survive its encoding: %v", err)
		}
		text, err := json.Marshal(genesis)
		if err != nil || !bytes.Contains(text, []byte(`"vouched_crossings":true`)) {
			t.Fatalf("%s: %v", text, err)
		}
		genesis.Quotas = ledger.DefaultQuotas()
	}
	if genesis.Quotas = (ledger.Quotas{}); genesis.Hash() == plain {
		t.Error("the genesis hash does not cover the field")
	}
	alone := ledgertest.OperatedGenesis(2)
	alone.VouchedCrossings = true
	genesis.Shards[1][1].Key = []byte("key")
	for name, wrong := range map[string]*ledger.Genesis{"one shard": alone, "key": genesis} {
		if err := wrong.Validate(); !errors.Is(err, ledger.ErrGenesis) {
			t.Errorf("%s: %v", name, err)
		}
	}
	single, several := ledgertest.OperatedGenesis(2), ledgertest.ShardedGenesis(2, 0, 0)
	single.Quotas, several.Quotas = ledger.DefaultQuotas(), ledger.DefaultQuotas()
	for version, base := range map[byte]*ledger.Genesis{0: single, 7: single, 9: single,
		10: several} {
		encoded := base.Encode()
		encoded[0] = version
		if _, err := ledger.DecodeGenesis(encoded); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
