package ledger_test

import (
	"errors"
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
