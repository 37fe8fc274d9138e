package route

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// The new home of an organisation that moved knows which nonces were used before, but not by which
// transactions. So it fails a copy of a transaction that took effect at an old home: its nonce is
// stale, or its deadline has passed. That is not the transaction's outcome, and a client that
// believed it would sign and pay again. So the old homes are asked before a failure is passed on.

// askEarlierHomes replaces failures in statuses that are not the outcome, given the signer of each
// transaction.
func (r *router) askEarlierHomes(ctx context.Context, statuses []*ledgerdv1.TransactionStatus,
	signer func(i int) ledger.OrganisationName) {
	if !r.backend.Store().HasMoves() {
		return
	}
	for i, status := range statuses {
		if instead := r.askEarlierHome(ctx, status, signer(i)); instead != nil {
			statuses[i] = instead
		}
	}
}

// askFailed is askEarlierHomes if the signers are not known, given the shard that each status is
// from.
func (r *router) askFailed(ctx context.Context, statuses []*ledgerdv1.TransactionStatus,
	at []ledger.ShardID) {
	if !r.backend.Store().HasMoves() {
		return
	}
	for i, status := range statuses {
		if !failed(status) {
			continue
		}
		shown, err := r.transactionAt(ctx, at[i], status.GetId(), 0)
		if err != nil {
			statuses[i] = waitsFor(status, at[i])
			continue
		}
		signer := ledger.OrganisationName(shown.GetBody().GetSigner())
		if instead := r.askEarlierHome(ctx, status, signer); instead != nil {
			statuses[i] = instead
		}
	}
}

// failed reports whether a status is that of a transaction that failed or expired.
func failed(status *ledgerdv1.TransactionStatus) bool {
	state := status.GetState()
	return state == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
		state == ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED
}

// waitsFor returns the status of a transaction whose outcome only a shard that does not answer can
// tell.
func waitsFor(status *ledgerdv1.TransactionStatus,
	shard ledger.ShardID) *ledgerdv1.TransactionStatus {
	return &ledgerdv1.TransactionStatus{Id: status.GetId(), IdHex: status.GetIdHex(),
		State:    ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING,
		WaitsFor: []uint32{uint32(shard)}}
}

// askEarlierHome returns the outcome of a transaction that failed, at an old home of its signer. It
// returns nil if none has another one. While one does not answer, the outcome is not known, and the
// transaction is pending.
func (r *router) askEarlierHome(ctx context.Context, status *ledgerdv1.TransactionStatus,
	signer ledger.OrganisationName) *ledgerdv1.TransactionStatus {
	if !failed(status) {
		return nil
	}
	told, silent, lost := r.earlier(ctx, status.GetId(), signer)
	switch silent = append(silent, lost...); {
	case told != nil:
		return told.GetStatus()
	case len(silent) > 0:
		return waitsFor(status, silent[0])
	}
	return nil
}

// earlier returns a transaction as an old home of its signer has it, unless it failed there, too,
// and which old homes do not answer, or are lost and never will.
func (r *router) earlier(ctx context.Context, id []byte, signer ledger.OrganisationName) (
	told *ledgerdv1.Transaction, silent, lost []ledger.ShardID) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	opened := r.backend.Store()
	for _, each := range slices.Backward(opened.Moves(signer)) {
		if opened.Lost(each.From) {
			lost = append(lost, each.From)
			continue
		}
		told, err := r.transactionAt(ctx, each.From, id, each.Number)
		switch {
		case err != nil && connect.CodeOf(err) == connect.CodeNotFound:
		case err != nil:
			silent = append(silent, each.From)
		case !failed(told.GetStatus()):
			return told, nil, nil
		}
	}
	return nil, silent, lost
}

// earlierOf returns a transaction that failed in a chain as it is after all, if an old home of its
// signer has it. If only homes that are lost could have it, it failed, and the reason says so.
func (r *router) earlierOf(ctx context.Context,
	shown *ledgerdv1.Transaction) *ledgerdv1.Transaction {
	status, signer := shown.GetStatus(), ledger.OrganisationName(shown.GetBody().GetSigner())
	if !failed(status) {
		return shown
	}
	told, silent, lost := r.earlier(ctx, status.GetId(), signer)
	switch {
	case told != nil:
		return told
	case len(silent) > 0:
		shown.Status = waitsFor(status, silent[0])
	case len(lost) > 0:
		status.Reason += fmt.Sprintf("; shard %d, where %s lived before, is lost, and nobody can "+
			"say whether the transaction took effect there: look at the nonces and balances of %s "+
			"before you sign it again", lost[0], signer, signer)
	}
	return shown
}

// transactionAt returns a transaction as a shard's own chain has it. If changes is above 0, a node
// answers whose chain has so many changes of the book.
func (r *router) transactionAt(ctx context.Context, shard ledger.ShardID, id []byte,
	changes uint64) (*ledgerdv1.Transaction, error) {
	request := connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id, BookChanges: changes})
	var answer *connect.Response[ledgerdv1.GetTransactionResponse]
	var err error
	if shard == r.shards.Own() {
		answer, err = r.Service.GetTransaction(ctx, request)
	} else {
		answer, err = r.shards.Client(shard).GetTransaction(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	return answer.Msg.GetTransaction(), nil
}
