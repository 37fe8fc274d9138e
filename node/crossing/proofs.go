package crossing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// errMoved reports that an organisation of a transaction has moved: a verdict may not be one for
// this shard, and the other shard's members have to say so (state.AnswersTo).
var errMoved = errors.New("an organisation of the transaction has moved")

// proofPatience bounds the wait for one member's proof. A member that lies may also be silent.
const proofPatience = time.Second

// errNoVerdict reports that a transaction is final in a shard's chain, and gets no verdict there:
// it took effect at once, or passed through.
var errNoVerdict = errors.New("the shard's chain has no verdict on the transaction")

// errOneIsEnough reports that the book does without certified proofs.
var errOneIsEnough = errors.New("crossings are not vouched for: a member's word is enough")

// proveOrHandOver does what is left to do for a verdict that another shard was asked for in vain.
// It returns the verdict if no organisation of the transaction ever moved, and crossings are
// vouched for. If one did, the other shard may never get the transaction, and this node hands it
// over.
func (b *book) proveOrHandOver(ctx context.Context, shard ledger.ShardID,
	id ledger.Hash) (ledger.Verdict, error) {
	if own := b.config.Node.Store(); own.HasMoves() {
		found, err := own.Transaction(id)
		if err != nil {
			return ledger.Verdict{}, err
		}
		if own.MovedBefore(found.Entry.Transaction()) {
			return ledger.Verdict{}, errors.Join(errMoved, b.handLate(ctx, shard, id))
		}
	}
	if !b.config.Genesis.VouchedCrossings {
		return ledger.Verdict{}, errOneIsEnough
	}
	return b.prove(ctx, shard, id)
}

// prove returns the verdict of another shard on a transaction, if a member of that shard has a
// certified proof of it: the transaction with its result in a block of the shard's chain, and the
// certificates that lead from the shard's genesis to that block. It believes nothing else. It asks
// one member after the other, the first one in turn, so that a member that lies keeps no proof
// away. Before Serve it waits. The error is that of the last member asked, or the context's.
func (b *book) prove(ctx context.Context, shard ledger.ShardID, id ledger.Hash) (ledger.Verdict,
	error) {
	genesis, err := b.directory.GenesisOf(shard)
	if err != nil {
		return ledger.Verdict{}, err
	}
	select {
	case <-b.serving:
	case <-ctx.Done():
		return ledger.Verdict{}, ctx.Err()
	}
	members, first := b.directory.Candidates(shard), b.proofs.Add(1)-1
	err = fmt.Errorf("shard %d: no member to ask for a proof", shard)
	for i := range members {
		if ctx.Err() != nil {
			return ledger.Verdict{}, ctx.Err()
		}
		member := members[(first+uint64(i))%uint64(len(members))]
		var verdict ledger.Verdict
		if verdict, err = b.proofOf(ctx, shard, member, id, genesis); err == nil {
			return verdict, nil
		}
		b.config.Logger.Debug("no proof of a verdict", "shard", shard, "peer", member,
			"transaction", id, "error", err)
	}
	return ledger.Verdict{}, err
}

// proofOf asks one member for the proof of a verdict, and checks it.
func (b *book) proofOf(ctx context.Context, shard ledger.ShardID, member rdmanet.PeerID,
	id ledger.Hash, genesis *ledger.Genesis) (verdict ledger.Verdict, err error) {
	ctx, cancel := context.WithTimeout(ctx, proofPatience)
	defer cancel()
	answer, err := clientOf(b.calls.TransportTo(shard, member), shard).GetProof(ctx,
		connect.NewRequest(&ledgerdv1.GetProofRequest{Id: id[:]}))
	if err != nil {
		return verdict, err
	}
	return provenVerdict(answer.Msg.GetProof(), shard, id, genesis)
}

// provenVerdict returns the verdict that a certified proof shows, with the genesis of the shard.
func provenVerdict(answer *ledgerdv1.Proof, shard ledger.ShardID, id ledger.Hash,
	genesis *ledger.Genesis) (verdict ledger.Verdict, err error) {
	if len(answer.GetFinality()) == 0 {
		return verdict, fmt.Errorf("%w: of the block of %s", ledger.ErrCertificate, id)
	}
	proof, err := ledger.DecodeProof(answer.GetEncoded())
	if err != nil {
		return verdict, err
	}
	if proof.ID != id {
		return verdict, fmt.Errorf("%w: of transaction %s, not of %s", ledger.ErrProof, proof.ID,
			id)
	}
	finality, err := ledger.DecodeFinality(answer.GetFinality())
	if err != nil {
		return verdict, err
	}
	if err := ledger.VerifyCertifiedProof(&ledger.CertifiedProof{Proof: proof,
		Finality: finality}, genesis); err != nil {
		return verdict, err
	}
	transaction, err := ledger.DecodeBody(proof.Body)
	if err != nil {
		return verdict, fmt.Errorf("%w: body: %w", ledger.ErrProof, err)
	}
	verdict, made := ledger.VerdictOf(&ledger.Entry{ID: id, Decoded: transaction,
		Body: proof.Body, Result: proof.Result}, shard)
	if !made {
		return ledger.Verdict{}, fmt.Errorf("%w: %s", errNoVerdict, proof.Result.Code)
	}
	return verdict, nil
}
