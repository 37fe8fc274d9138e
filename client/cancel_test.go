package client_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// What a cancellation did follows from its own outcome only if the other transaction is absent. One
// that failed is remembered by no shard.
func TestCancelledWithdrawn(t *testing.T) {
	t.Parallel()
	const durable = ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
	const failed = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
	for _, each := range []struct {
		place string
		state ledgerdv1.TransactionState
		code  ledger.Code
		want  client.Withdrawn
	}{
		{api.PlaceAbsent, durable, ledger.Applied, client.WithdrawnInTime},
		{api.PlaceAbsent, failed, ledger.DeadlinePassed, client.WithdrawnExpired},
		{api.PlaceAbsent, failed, ledger.DeadlineTooFar, client.WithdrawnUnknown},
		{api.PlaceAbsent, failed, ledger.TooManyCancelled, client.WithdrawnUnknown},
		{api.PlaceRefused, failed, ledger.DeadlinePassed, client.WithdrawnInTime},
		{api.PlaceWaiting, failed, ledger.CancelledTooLate, client.WithdrawnUndecided},
		{api.PlaceSettled, durable, ledger.Applied, client.WithdrawnTooLate},
		{api.PlacePassed, durable, ledger.Applied, client.WithdrawnUnknown},
		{api.PlaceUnanswered, durable, ledger.Applied, client.WithdrawnUnknown},
	} {
		got := &client.Cancelled{
			Place: &ledgerdv1.ShardPlace{State: each.place},
			Status: &ledgerdv1.TransactionStatus{State: each.state,
				ReasonCode: api.ReasonCode(each.code)},
		}
		if got.Withdrawn() != each.want {
			t.Errorf("%s, %v, %v: %d; want %d", each.place, each.state, each.code, got.Withdrawn(),
				each.want)
		}
	}
}
