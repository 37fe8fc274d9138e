package ledger_test

import (
	"bytes"
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
		Verdicts: []ledger.Verdict{*crossing.Entries[0].Transaction.Verdict},
	}
	batch.Vouch(ledgertest.Key("node-0"), ledger.Hash{1}, []ledger.Vouched{
		{Number: 7, Hash: ledger.CarriedHash(batch.Carried[0].Bundle)},
		{Number: 9, Hash: ledger.Hash{9}}})
	return batch
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
	unordered := vouchedSeed()
	unordered.Voucher.Stream[1].Number = 7
	if _, err := ledger.DecodeBatch(unordered.Encode()); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("an entry twice: %v", err)
	}
	batch := vouchedSeed()
	batch.Voucher = nil
	without := len(batch.Encode())
	if size := len(vouchedSeed().Encode()); size > without+ledger.VoucherSize(2)+1 {
		t.Errorf("the voucher adds %d bytes, at most %d", size-without, ledger.VoucherSize(2))
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
	for _, version := range []byte{7, 9} {
		encoded := ledgertest.ShardedGenesis(2, 0, 0).Encode()
		encoded[0] = version
		if _, err := ledger.DecodeGenesis(encoded); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
