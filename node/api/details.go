package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func detailsToProto(d *ledger.Details) *ledgerdv1.Details {
	if d == nil {
		return nil
	}
	shown := &ledgerdv1.Details{EffectiveMs: uint64(d.Effective), IdempotencyKey: d.Key,
		RefundableUntilMs: uint64(d.Refundable)}
	if d.Refund != nil {
		shown.Refund = &ledgerdv1.Refund{EntryHex: d.Refund.Entry.String(),
			Organisation: string(d.Refund.Organisation)}
	}
	return shown
}

func detailsFromProto(message *ledgerdv1.Details) (*ledger.Details, error) {
	if message == nil {
		return nil, nil
	}
	if message.GetEffectiveMs() > 1<<63-1 || message.GetRefundableUntilMs() > 1<<63-1 {
		return nil, fmt.Errorf("the details name %d and %d ms, and one of them is no time",
			message.GetEffectiveMs(), message.GetRefundableUntilMs())
	}
	d := &ledger.Details{Effective: ledger.Milliseconds(message.GetEffectiveMs()),
		Key:        message.GetIdempotencyKey(),
		Refundable: ledger.Milliseconds(message.GetRefundableUntilMs())}
	if refund := message.GetRefund(); refund != nil {
		entry, err := ledger.ParseHash(refund.GetEntryHex())
		if err != nil {
			return nil, fmt.Errorf("the entry that it refunds: %w", err)
		}
		d.Refund = &ledger.Refund{Entry: entry,
			Organisation: ledger.OrganisationName(refund.GetOrganisation())}
	}
	return d, nil
}

// GetKey returns the entry that has an idempotency key of an organisation of this shard.
func (s *Service) GetKey(_ context.Context, request *connect.Request[ledgerdv1.GetKeyRequest]) (
	*connect.Response[ledgerdv1.GetKeyResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if err := name.Validate(); err != nil {
		return nil, invalid("organisation: %w", err)
	}
	if !ledger.ValidIdempotencyKey(request.Msg.GetKey()) {
		return nil, invalid("key: 1 to %d characters of printable ASCII", ledger.MaxIdempotencyKey)
	}
	opened := s.backend.Store()
	found, known := opened.FindKey(name, request.Msg.GetKey())
	if !known {
		return nil, notFound("no entry of %s has this key: none was posted with it, or it is more "+
			"than 7 days ago", name)
	}
	return connect.NewResponse(&ledgerdv1.GetKeyResponse{EntryHex: found.Entry.String(),
		ExpiresMs: uint64(found.Expires), Waits: found.Waits, Shard: uint32(opened.Shard())}), nil
}

// GetRefundable returns what is left of an entry of an organisation of this shard.
func (s *Service) GetRefundable(_ context.Context,
	request *connect.Request[ledgerdv1.GetRefundableRequest]) (
	*connect.Response[ledgerdv1.GetRefundableResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if err := name.Validate(); err != nil {
		return nil, invalid("organisation: %w", err)
	}
	entry, err := ledger.ParseHash(request.Msg.GetEntryHex())
	if err != nil {
		return nil, invalid("entry_hex: %w", err)
	}
	opened := s.backend.Store()
	found, known := opened.FindRefundable(entry)
	if !known || found.Organisation != name {
		return nil, notFound("entry %s of %s cannot be refunded: it never could, its time is "+
			"over, or all of it was refunded", entry, name)
	}
	answer := &ledgerdv1.GetRefundableResponse{UntilMs: uint64(found.Until),
		Shard: uint32(opened.Shard())}
	if found.Waits != (ledger.Hash{}) {
		answer.WaitsHex = found.Waits.String()
	}
	for _, left := range found.Left {
		answer.Left = append(answer.Left, &ledgerdv1.LeftOfPosting{Account: string(left.Account),
			Asset: string(left.Asset), Amount: left.Amount.String()})
	}
	return connect.NewResponse(answer), nil
}
