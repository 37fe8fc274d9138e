package ledger_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestBatchBoundsPackedTransfers: the packed bundles of a batch are decoded as long as they have at
// most MaxBatchPacked transfers, also if the node has some of them decoded already. Other bundles
// do not count.
func TestBatchBoundsPackedTransfers(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	packed := func(count int) *ledger.Bundle {
		transfers := make([]ledger.Transaction, count)
		for i := range transfers {
			transfers[i] = client.Transfer("acme:a", "acme:b", 1)
		}
		return client.Packed(transfers...)
	}
	plain := func() *ledger.Bundle { return client.Bundle(client.Transfer("acme:a", "acme:b", 1)) }
	bundles := []*ledger.Bundle{plain()}
	for range ledger.MaxBatchPacked/ledger.MaxBundleTransactions - 1 {
		bundles = append(bundles, packed(ledger.MaxBundleTransactions))
	}
	bundles = append(bundles, packed(ledger.MaxBundleTransactions-1), packed(1), plain())
	good := len(bundles)
	bundles = append(bundles, packed(1), plain(), packed(1))
	for name, find := range map[string]func([]byte) *ledger.Bundle{"from bytes": nil,
		"decoded before": func(encoded []byte) *ledger.Bundle {
			bundle, err := ledger.DecodeBundle(encoded)
			if err != nil {
				t.Error(err)
			}
			return bundle
		}} {
		verified, err := ledger.VerifyBatchWith(ledgertest.Batch(5, bundles...), find)
		if err != nil {
			t.Fatal(err)
		}
		for i := range verified.Proposals {
			err := verified.Proposals[i].Err
			if left := i >= good && bundles[i].Packed(); left != errors.Is(err,
				ledger.ErrBundleSize) || !left && err != nil {
				t.Errorf("%s: bundle %d: %v", name, i, err)
			}
		}
	}
}

// TestPackedMemory: what decoded packed bundles take in a block is known from their encoding,
// within a factor of two. A head that lies about the transfers counts for little, and other bundles
// for nothing.
func TestPackedMemory(t *testing.T) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfers := make([]ledger.Transaction, ledger.MaxBundleTransactions)
	for i := range transfers {
		transfers[i] = client.Transfer("acme:a", "acme:b", 1)
	}
	packed := client.Packed(transfers...).Encode()
	failed := make([]ledger.Result, len(transfers))
	failed[7] = ledger.Result{Code: ledger.InsufficientFunds}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	bundle, err := ledger.DecodeBundle(packed)
	if err != nil {
		t.Fatal(err)
	}
	seal := bundle.Seal(nil)
	seal.SetResults(failed)
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(seal)
	said, taken := ledger.PackedMemory(packed), int(after.TotalAlloc-before.TotalAlloc)
	if said > 2*taken || said < taken/2 {
		t.Errorf("it says %d bytes, and takes %d", said, taken)
	}
	body := client.Bundle(client.Transfer("acme:a", "acme:b", 1))
	if got := ledger.PackedMemory(body.Encode()); got != 0 {
		t.Errorf("a bundle of bodies counts for %d bytes", got)
	}
	for size := range packed[:100] {
		if got := ledger.PackedMemory(packed[:size]); got > 200*size {
			t.Errorf("%d bytes of it count for %d", size, got)
		}
	}
	batch := ledger.EncodeBatch(ledger.BatchHeader{Time: 5},
		[][]byte{packed, body.Encode(), packed})
	if got := ledger.PackedBatchMemory(batch); got != 2*said {
		t.Errorf("a batch of two counts for %d bytes, want %d", got, 2*said)
	}
	for size := range batch[:200] {
		ledger.PackedBatchMemory(batch[:size]) // does not panic
	}
	many := make([][]byte, 3*ledger.MaxBatchPacked/ledger.MaxBundleTransactions)
	for i := range many {
		many[i] = packed
	}
	batch = ledger.EncodeBatch(ledger.BatchHeader{Time: 5}, many)
	if got := ledger.PackedBatchMemory(batch); got != said*(ledger.MaxBatchPacked/len(transfers)) {
		t.Errorf("a batch with too many counts for %d bytes", got)
	}
}
