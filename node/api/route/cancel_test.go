package route_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// cancels submits a cancellation at a door, and returns it as any door shows it then.
func (b *book) cancels(door, by int, id ledger.Hash, deadline ledger.Milliseconds,
	shard ledger.ShardID) *ledgerdv1.Transaction {
	b.T.Helper()
	bundle := b.orgs[by].Bundle(b.orgs[by].Cancel(id, deadline, shard))
	first := b.submit(door, ledgerdv1.Level_LEVEL_DURABLE, bundle)
	var shown *ledgerdv1.Transaction
	for other := range b.clients {
		hash := bundle.ID(0)
		answer, err := b.clients[other].GetTransaction(b.context(), connect.NewRequest(
			&ledgerdv1.GetTransactionRequest{Id: hash[:]}))
		if err != nil {
			b.T.Fatal(err)
		}
		shown = answer.Msg.GetTransaction()
		if shown.GetStatus().GetState() != first.GetState() ||
			shown.GetStatus().GetShard() != uint32(shard) ||
			shown.GetBody().GetCancellation().GetTransactionHex() != id.String() {
			b.T.Errorf("door %d shows %v, submitted as %v", other, shown, first)
		}
	}
	return shown
}

// A signer cancels a transaction at a shard that stands still for what comes down the tree, at any
// door. The shard that has agreed says that it is too late there, and lets go once the other one
// refuses. One that took effect cannot be cancelled.
func TestCancel(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.CancelVersion
	b := newBookFrom(t, genesis)
	crossing := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	crossing.Deadline = genesis.Time + 60_000
	bundle := b.signed(crossing)
	id := bundle.ID(0)
	early := b.cancels(0, 1, id, crossing.Deadline, 2)
	if early.GetStatus().GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE ||
		early.GetCancelledPlace().GetState() != "absent" {
		t.Errorf("%v", early)
	}
	if status := b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, bundle); status.GetReasonCode() !=
		"cancelled" {
		t.Errorf("%v", status)
	}
	shown := b.everywhere(id, "0 passed", "1 refused", "2 refused")
	if places := shown.GetPlaces(); places[1].GetVerdict() != "good" ||
		places[2].GetVerdict() != "cancelled" {
		t.Errorf("%v", places)
	}

	second := b.orgs[1].Transfer("org1:mint", "org2:a", 6)
	second.Deadline = crossing.Deadline
	bundle = b.signed(second)
	b.settled(b.submit(2, ledgerdv1.Level_LEVEL_DURABLE, bundle), 1)
	late := b.cancels(2, 1, bundle.ID(0), second.Deadline, 1)
	if late.GetCancelledPlace().GetState() != "settled" {
		t.Errorf("%v", late)
	}
	wrong := b.orgs[1].Bundle(b.orgs[1].Cancel(id, crossing.Deadline, 3))
	_, err := b.clients[0].Submit(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(wrong)}))
	codeIs(t, err, connect.CodeInvalidArgument)
}
