package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// GetTransaction returns a transaction and how far it has come.
func (s *Service) GetTransaction(ctx context.Context,
	request *connect.Request[ledgerdv1.GetTransactionRequest]) (
	*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, err := HashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	if err := s.hasChanges(request.Msg.GetBookChanges()); err != nil {
		return nil, err
	}
	status, err := s.backend.Status(id)
	if err != nil {
		return nil, s.failure(ctx, "looking for transaction "+id.String(), err)
	}
	return s.transaction(ctx, status, "is known")
}

// WaitTransaction returns a transaction once it has reached a level, failed or expired.
func (s *Service) WaitTransaction(ctx context.Context,
	request *connect.Request[ledgerdv1.WaitTransactionRequest]) (
	*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	id, level, err := ReadWaitTransaction(request.Msg)
	if err != nil {
		return nil, err
	}
	waiting, cancel := s.Waiting(ctx)
	defer cancel()
	statuses, err := s.wait(waiting, []ledger.Hash{id}, level)
	if err != nil {
		return nil, err
	}
	return s.transaction(ctx, statuses[0], "has become known")
}

// transaction returns the transaction with a status.
func (s *Service) transaction(ctx context.Context, status report.Status,
	known string) (*connect.Response[ledgerdv1.GetTransactionResponse], error) {
	if status.Outcome == report.OutcomeUnknown {
		return nil, notFound("no transaction %s %s to this node", status.ID, known)
	}
	shown, err := s.shown(ctx, status)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetTransactionResponse{Transaction: shown}), nil
}

// shown adds the content of this shard's block to a status.
func (s *Service) shown(ctx context.Context, status report.Status) (*ledgerdv1.Transaction, error) {
	if !status.InBlock() {
		return &ledgerdv1.Transaction{Status: statusToProto(status, nil, s.decimalsOf)}, nil
	}
	opened := s.backend.Store()
	crossing, err := opened.Crossing(status.ID)
	if err != nil {
		return nil, s.failure(ctx, "reading transaction "+status.ID.String(), err)
	}
	if status.Outcome == report.OutcomeWaiting {
		s.settle(&status, &crossing) // it may have ended its wait meanwhile
	}
	seal := &crossing.Block.Bundles[crossing.Entry.Bundle]
	hash := crossing.Block.Hash
	shown := &ledgerdv1.Transaction{
		Status:      statusToProto(status, crossing.Entry.Transaction(), s.decimalsOf),
		Body:        bodyToProto(crossing.Entry.Transaction()),
		Signatures:  signaturesToProto(seal.Signatures),
		BlockHash:   hash[:],
		BlockTimeMs: uint64(crossing.Block.Header.Time),
		Canonical:   crossing.Block.Body(crossing.Index),
		BundleSize:  uint32(seal.Len()),
	}
	if verdict := crossing.Entry.Transaction().Verdict; verdict != nil {
		shown.VerdictTransactionHex, shown.VerdictShard, shown.Verdict = verdict.ID.String(),
			uint32(verdict.Shard), verdictWord(verdict)
	}
	if arrival := crossing.Entry.Transaction().Arrival; arrival != nil {
		shown.ArrivalOf = arrival.Move
	}
	if c := crossing.Entry.Transaction().Cancellation; c != nil &&
		crossing.Entry.Result.Code != ledger.Relayed {
		shown.CancelledPlace = s.cancelledPlace(c)
	}
	if opened.ShardTree() != nil {
		shown.Status.Shard = uint32(opened.Shard())
		shown.Places = []*ledgerdv1.ShardPlace{s.place(&crossing)}
	}
	return shown, nil
}

// Domain prefixes of the hashes that a browser recomputes; see package ledger.
const (
	blockHashPrefix     = "ledgerd/block/1\x00"
	transactionIDPrefix = "ledgerd/transaction/1\x00"
	// transactionsRootOffset is the offset of the transactions' root in an encoded header.
	transactionsRootOffset = 65
)

// GetProof returns the path from a transaction to its block.
func (s *Service) GetProof(ctx context.Context,
	request *connect.Request[ledgerdv1.GetProofRequest]) (
	*connect.Response[ledgerdv1.GetProofResponse], error) {
	id, err := HashFrom(request.Msg.GetId(), request.Msg.GetIdHex(), "transaction id")
	if err != nil {
		return nil, err
	}
	if err := s.answersFor(request.Msg.Shard); err != nil {
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
		TransactionId: id[:],
		LeafData:      id[:],
		LeafIndex:     uint64(proof.Index),
		TreeSize:      uint64(proof.Count),
		Path: proofSteps(uint64(proof.Index), uint64(proof.Count),
			proof.TransactionPath),
		TransactionsRoot:     found.Block.Header.TransactionsRoot[:],
		Header:               s.header(found.Block),
		RootOffset:           transactionsRootOffset,
		HashPrefix:           []byte(blockHashPrefix),
		CanonicalTransaction: proof.Body,
		Encoded:              proof.Encode(),
		Shard:                uint32(s.backend.Store().Shard()),
	}
	if !found.Block.Bundles[found.Entry.Bundle].Packed() {
		answer.IdPrefix = []byte(transactionIDPrefix)
	}
	if placing := proof.Placing; placing != nil {
		// The path of the bundle. What leads from the transaction to it is in the encoded proof.
		answer.LeafData = proof.BundleLeaf()
		answer.LeafIndex, answer.TreeSize = uint64(placing.Bundle), uint64(placing.Bundles)
		answer.Path = proofSteps(answer.LeafIndex, answer.TreeSize, placing.TransactionPath)
	}
	finality, err := s.backend.Store().Finality(found.Block.Header.Height)
	switch {
	case err == nil:
		answer.Finality = finality.Encode()
	case !errors.Is(err, store.ErrUncertified):
		return nil, s.failure(ctx, "reading certificates", err)
	}
	return connect.NewResponse(&ledgerdv1.GetProofResponse{Proof: answer}), nil
}

func (s *Service) noProof(ctx context.Context, id ledger.Hash) error {
	status, err := s.backend.Status(id)
	if err != nil {
		return s.failure(ctx, "looking for transaction "+id.String(), err)
	}
	if status.Outcome == report.OutcomePending {
		return Retryable(connect.CodeFailedPrecondition,
			errors.New("the transaction is in no block yet: wait for it first"), nil)
	}
	return notFound("no transaction %s is in a block of this node", id)
}

// proofSteps returns each hash of an RFC 6962 inclusion path with the side on which it stands.
func proofSteps(index, size uint64, path []ledger.Hash) []*ledgerdv1.ProofStep {
	steps := make([]*ledgerdv1.ProofStep, 0, len(path))
	last := size - 1
	for ; last > 0 && len(steps) < len(path); index, last = index/2, last/2 {
		if index == last && index%2 == 0 {
			continue // without a sibling the node moves up unchanged
		}
		sibling := path[len(steps)]
		steps = append(steps, &ledgerdv1.ProofStep{Sibling: sibling[:],
			SiblingIsLeft: index%2 == 1})
	}
	return steps
}
