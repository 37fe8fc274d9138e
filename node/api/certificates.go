package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetCertificate returns the certificate of a block, or of the first certified block after it.
func (s *Service) GetCertificate(ctx context.Context,
	request *connect.Request[ledgerdv1.GetCertificateRequest]) (
	*connect.Response[ledgerdv1.GetCertificateResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	opened := s.backend.Store()
	height := ledger.Height(request.Msg.GetHeight())
	if height == 0 {
		height = max(opened.CertifiedHeight(), 1)
	}
	if head := opened.AppendedHeight(); height > head {
		return nil, notFound("no block %d, the last one is %d", height, head)
	}
	finality, err := opened.Finality(height)
	switch {
	case errors.Is(err, store.ErrUncertified):
		return nil, Retryable(connect.CodeFailedPrecondition, errors.New("no majority of the "+
			"members has certified this block or one soon after it: ask again later"), nil)
	case err != nil:
		return nil, s.failure(ctx, "reading certificates", err)
	}
	return connect.NewResponse(&ledgerdv1.GetCertificateResponse{
		Certificate: certificateToProto(opened, finality.Certificate), Finality: finality.Encode(),
		Members: uint32(len(opened.MembersAt(finality.Certificate.Height).Keys)),
	}), nil
}

// ListEvidence returns the evidence against members.
func (s *Service) ListEvidence(ctx context.Context,
	request *connect.Request[ledgerdv1.ListEvidenceRequest]) (
	*connect.Response[ledgerdv1.ListEvidenceResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	opened := s.backend.Store()
	kept, err := opened.Evidence()
	if err != nil {
		return nil, s.failure(ctx, "reading evidence", err)
	}
	answer := &ledgerdv1.ListEvidenceResponse{CertifiedHeight: uint64(opened.CertifiedHeight())}
	for _, e := range kept {
		shown := &ledgerdv1.Evidence{Height: uint64(e.Height()),
			First:  certificateToProto(opened, e.First),
			Second: certificateToProto(opened, e.Second), Encoded: e.Encode()}
		for _, member := range e.Members() {
			shown.Members = append(shown.Members, uint32(member))
			shown.Names = append(shown.Names, memberName(opened, member))
		}
		answer.Evidence = append(answer.Evidence, shown)
	}
	return connect.NewResponse(answer), nil
}

func certificateToProto(opened *store.Store, c *ledger.Certificate) *ledgerdv1.Certificate {
	shown := &ledgerdv1.Certificate{Height: uint64(c.Height), Hash: c.Hash[:],
		HashHex: c.Hash.String(), Epoch: uint64(c.Epoch), Encoded: c.Encode()}
	for i := range c.Seals {
		shown.Seals = append(shown.Seals, &ledgerdv1.Seal{Member: uint32(c.Seals[i].Member),
			Name: memberName(opened, c.Seals[i].Member), Signature: c.Seals[i].Signature[:]})
	}
	return shown
}

// memberName returns the name of a present or former member, or "".
func memberName(opened *store.Store, index ledger.MemberIndex) string {
	membership := opened.Membership()
	if member, is := membership.Find(index); is {
		return member.Name
	}
	for _, former := range opened.FormerMembers() {
		if former.Index == index {
			return former.Name
		}
	}
	return ""
}
