package sink

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// behind is a source whose node does not have a transaction yet.
type behind struct{ Source }

func (behind) TransactionIn(context.Context, ledger.ShardID,
	ledger.Hash) (*ledger.Transaction, error) {
	return nil, &client.Failure{Code: connect.CodeNotFound, Message: "no such transaction"}
}

func (behind) Rotate() {}

// A node that does not know a shard yet, which was added just now, ends nothing, and neither does
// one that is too old. What is wrong with a shard of the beginning does.
func TestFinal(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		code         connect.Code
		added, final bool
	}{
		{connect.CodeInvalidArgument, true, false}, {connect.CodeInvalidArgument, false, true},
		{connect.CodeUnimplemented, true, false}, {connect.CodeUnimplemented, false, false},
		{connect.CodePermissionDenied, true, true}, {connect.CodeUnavailable, false, false},
	} {
		f := &follower{added: each.added}
		if got := f.final(&client.Failure{Code: each.code}); got != each.final {
			t.Errorf("%v, added %v: %v", each.code, each.added, got)
		}
	}
}

// A verdict that settles or releases has its transaction before it in the chain, so a node that
// does not know that transaction is behind: the verdict is not dropped. Another verdict may have
// come before its transaction.
func TestVerdictOfANodeThatIsBehind(t *testing.T) {
	t.Parallel()
	f := &follower{source: behind{}, options: &Options{CallTime: time.Minute,
		Filter: Filter{Assets: []ledger.AssetName{"EUR"}}}}
	verdict := &ledger.Transaction{Verdict: &ledger.Verdict{ID: ledger.Hash{1}}}
	for code, dropped := range map[ledger.Code]bool{ledger.Settled: false, ledger.Released: false,
		ledger.Applied: true} {
		entry := &ledger.Entry{Result: ledger.Result{Code: code}}
		streamed, err := f.streams(t.Context(), entry, verdict)
		if streamed || (err == nil) != dropped || err != nil && f.final(err) {
			t.Errorf("%v: %v %v", code, streamed, err)
		}
	}
}
