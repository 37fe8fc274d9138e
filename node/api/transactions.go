package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetTransaction shows a transaction and how far it has come.
func (s *service) GetTransaction(ctx context.Context, request *connect.Request[ledgerdv1.GetTransactionRequest]) (*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, err := hashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	status, err := s.backend.Status(id)
	if err != nil {
		return nil, s.failure(ctx, "looking for transaction "+id.String(), err)
	}
	if status.Outcome == OutcomeUnknown {
		return nil, notFound("no transaction %s is known to this node", id)
	}
	return s.transaction(ctx, status)
}

// WaitTransaction shows a transaction when it has reached a level, failed or expired.
func (s *service) WaitTransaction(ctx context.Context, request *connect.Request[ledgerdv1.WaitTransactionRequest]) (*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, err := hashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	level, err := wantedLevel(request.Msg.GetWait())
	if err != nil {
		return nil, err
	}
	waiting, cancel := s.waiting(ctx)
	defer cancel()
	statuses, err := s.wait(waiting, []ledger.Hash{id}, level)
	if err != nil {
		return nil, err
	}
	if statuses[0].Outcome == OutcomeUnknown {
		return nil, notFound("no transaction %s has become known to this node", id)
	}
	return s.transaction(ctx, statuses[0])
}

// transaction adds to a status what the block holds.
func (s *service) transaction(ctx context.Context, status Status) (*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	shown := &ledgerdv1.Transaction{Status: statusToProto(status, nil)}
	if status.Outcome == OutcomeExecuted || status.Outcome == OutcomeFailed {
		found, err := s.backend.Store().Transaction(status.ID)
		if err != nil {
			return nil, s.failure(ctx, "reading transaction "+status.ID.String(), err)
		}
		seal := &found.Block.Bundles[found.Entry.Bundle]
		hash := found.Block.Hash
		shown = &ledgerdv1.Transaction{
			Status:      statusToProto(status, found.Entry.Transaction),
			Body:        bodyToProto(found.Entry.Transaction),
			Signatures:  signaturesToProto(seal.Signatures),
			BlockHash:   hash[:],
			BlockTimeMs: uint64(found.Block.Header.Time),
			Canonical:   found.Entry.Body,
			BundleSize:  uint32(len(seal.IDs)),
		}
	}
	return connect.NewResponse(&ledgerdv1.GetTransactionResponse{Transaction: shown}), nil
}

// Domain prefixes of the hashes that a browser recomputes; see package ledger.
const (
	blockHashPrefix     = "ledgerd/block/1\x00"
	transactionIDPrefix = "ledgerd/transaction/1\x00"
	// transactionsRootOffset is where an encoded header holds the transactions' root.
	transactionsRootOffset = 65
)

// GetProof shows the path from a transaction to its block.
func (s *service) GetProof(ctx context.Context, request *connect.Request[ledgerdv1.GetProofRequest]) (*connect.Response[ledgerdv1.GetProofResponse], error) {
	id, err := hashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	found, err := s.backend.Store().Transaction(id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.noProof(ctx, id)
	}
	if err != nil {
		return nil, s.failure(ctx, "reading transaction "+id.String(), err)
	}
	proof := found.Block.Proof(found.Index)
	answer := &ledgerdv1.Proof{
		TransactionId:        id[:],
		LeafData:             id[:],
		LeafIndex:            uint64(proof.Index),
		TreeSize:             uint64(proof.Count),
		Path:                 proofSteps(uint64(proof.Index), uint64(proof.Count), proof.TransactionPath),
		TransactionsRoot:     found.Block.Header.TransactionsRoot[:],
		Header:               s.header(found.Block),
		RootOffset:           transactionsRootOffset,
		HashPrefix:           []byte(blockHashPrefix),
		CanonicalTransaction: proof.Body,
		IdPrefix:             []byte(transactionIDPrefix),
		Encoded:              proof.Encode(),
	}
	return connect.NewResponse(&ledgerdv1.GetProofResponse{Proof: answer}), nil
}

func (s *service) noProof(ctx context.Context, id ledger.Hash) error {
	status, err := s.backend.Status(id)
	if err != nil {
		return s.failure(ctx, "looking for transaction "+id.String(), err)
	}
	if status.Outcome == OutcomePending {
		return retryable(connect.CodeFailedPrecondition, errors.New("the transaction is in no block yet: wait for it first"), nil)
	}
	return notFound("no transaction %s is in a block of this node", id)
}

// proofSteps tells for each hash of an RFC 6962 inclusion path on which side it stands.
func proofSteps(index, size uint64, path []ledger.Hash) []*ledgerdv1.ProofStep {
	steps := make([]*ledgerdv1.ProofStep, 0, len(path))
	last := size - 1
	for ; last > 0 && len(steps) < len(path); index, last = index/2, last/2 {
		if index == last && index%2 == 0 {
			continue // without a sibling it moves up unchanged
		}
		sibling := path[len(steps)]
		steps = append(steps, &ledgerdv1.ProofStep{Sibling: sibling[:], SiblingIsLeft: index%2 == 1})
	}
	return steps
}
