package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/report"
)

// manyStatuses returns a bundle of transfers and their statuses, in one block.
func manyStatuses(transfers int) (*ledger.Bundle, []report.Status) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transactions := make([]ledger.Transaction, transfers)
	for i := range transactions {
		transactions[i] = client.Transfer("acme:issuer", "acme:a", 1)
	}
	bundle := client.Bundle(transactions...)
	statuses := make([]report.Status, transfers)
	for i := range statuses {
		statuses[i] = report.Status{ID: bundle.ID(i), Outcome: report.OutcomeExecuted,
			Level: report.LevelDurable, Height: 7, Index: uint32(i)}
	}
	return bundle, statuses
}

// TestStatusesOfABundleAreThoseOfItsTransactions: converted together, statuses are the same as
// converted one by one, and name the shard if they are in a block.
func TestStatusesOfABundleAreThoseOfItsTransactions(t *testing.T) {
	t.Parallel()
	bundle, statuses := manyStatuses(5)
	statuses[1] = report.Status{ID: bundle.ID(1)}
	statuses[2].Outcome, statuses[2].Result = report.OutcomeFailed,
		ledger.Result{Code: ledger.InsufficientFunds}
	statuses[3] = report.Status{ID: bundle.ID(3), Outcome: report.OutcomeExpired}
	statuses[4].Outcome, statuses[4].Waits = report.OutcomeWaiting, []ledger.ShardID{4}
	for i, shown := range statusesToProto(bundle, statuses, 3, wholeNumbers) {
		want := statusToProto(statuses[i], bundle.Transaction(i), wholeNumbers)
		if statuses[i].InBlock() {
			want.Shard = 3
		}
		if !proto.Equal(shown, want) {
			t.Errorf("transaction %d is shown as %v, want %v", i, shown, want)
		}
	}
}

// The answer to a call that waits has time left to reach the caller: a fifth of a short time, and a
// second of a longer one.
func TestAnswersHaveTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock stands still
		s := &Service{options: Options{MaxWaitTime: time.Hour}, stopping: context.Background()}
		for left, want := range map[time.Duration]time.Duration{
			2 * time.Second: 400 * time.Millisecond, time.Minute: time.Second,
			2 * time.Hour: time.Hour,
		} {
			calling, cancel := context.WithTimeout(t.Context(), left)
			waiting, release := s.Waiting(calling)
			end, _ := waiting.Deadline()
			if got := left - time.Until(end); got != want {
				t.Errorf("of %v, %v are left for the answer, want %v", left, got, want)
			}
			release()
			cancel()
		}
	})
}

// BenchmarkStatuses converts the statuses of a bundle of 400 transfers.
func BenchmarkStatuses(b *testing.B) {
	bundle, statuses := manyStatuses(400)
	b.ReportAllocs()
	for b.Loop() {
		shown := statusesToProto(bundle, statuses, 0, wholeNumbers)
		if len(shown) != len(statuses) {
			b.Fatal(len(shown))
		}
	}
}

// wholeNumbers is decimalsFunc where no asset is registered.
func wholeNumbers(ledger.AssetName) uint32 { return 0 }
