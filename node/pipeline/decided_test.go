package pipeline

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// Each transaction counts once in a shard, where it is decided.
func TestDecidedCountsTransactionsOnce(t *testing.T) {
	t.Parallel()
	verdict := &ledger.Transaction{Verdict: &ledger.Verdict{}}
	client := &ledger.Transaction{}
	for _, c := range []struct {
		transaction *ledger.Transaction
		code        ledger.Code
		want        int
	}{
		{client, ledger.Applied, 1}, {client, ledger.InsufficientFunds, 1},
		{client, ledger.SetAside, 0}, {client, ledger.Relayed, 0},
		{verdict, ledger.Applied, 0}, {verdict, ledger.Settled, 1}, {verdict, ledger.Released, 1},
	} {
		block := &ledger.Block{Unpacked: []ledger.Entry{{Decoded: c.transaction,
			Result: ledger.Result{Code: c.code}}}}
		if got := decided(block); got != c.want {
			t.Errorf("%s, a verdict %v: %d", c.code, c.transaction.Verdict != nil, got)
		}
	}
}
