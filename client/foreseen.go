package client

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// orForeseen returns the answer to a submission. If the node refused the bundle because all of its
// transactions are certain to fail, for one reason, that is their outcome: each has failed, in no
// block (its height is 0), and no block can apply it any more. That also holds if another node had
// taken the bundle before.
func orForeseen(bundle *ledger.Bundle, statuses []*ledgerdv1.TransactionStatus, err error) (
	[]*ledgerdv1.TransactionStatus, error) {
	refused := (*connect.Error)(nil)
	if err == nil || connect.CodeOf(err) != connect.CodeFailedPrecondition ||
		!errors.As(err, &refused) {
		return statuses, err
	}
	code, foreseen := api.Foreseen(refused.Meta().Get(api.HeaderReason))
	if !foreseen {
		return statuses, err
	}
	statuses = make([]*ledgerdv1.TransactionStatus, bundle.Len())
	for i, id := range bundle.IDs() {
		statuses[i] = &ledgerdv1.TransactionStatus{Id: id[:], IdHex: id.String(),
			State:      ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
			ReasonCode: api.ReasonCode(code), Reason: refused.Message()}
	}
	return statuses, nil
}
