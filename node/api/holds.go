package api

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// HoldsPage is the size of a page of holds, unless the request says another one.
const HoldsPage = 100

func holdToProto(hold *ledger.Hold) *ledgerdv1.Hold {
	if hold == nil {
		return nil
	}
	shown := &ledgerdv1.Hold{Account: string(hold.From), Asset: string(hold.Asset),
		Amount: hold.Amount.String(), Poster: string(hold.Poster), ExpiresMs: uint64(hold.Expires)}
	for _, to := range hold.To {
		shown.To = append(shown.To, string(to))
	}
	return shown
}

// HoldFromProto reads a hold, or nil if there is none. It checks the form of its parts, and
// Hold.Validate checks the rest.
func HoldFromProto(message *ledgerdv1.Hold) (*ledger.Hold, error) {
	if message == nil {
		return nil, nil
	}
	amount, err := ledger.ParseAmount(message.GetAmount())
	if err != nil {
		return nil, fmt.Errorf("the amount of the hold: %w", err)
	}
	if message.GetExpiresMs() > 1<<63-1 {
		return nil, fmt.Errorf("the hold expires at %d ms, which is no time",
			message.GetExpiresMs())
	}
	hold := &ledger.Hold{From: ledger.AccountPath(message.GetAccount()),
		Asset: ledger.AssetName(message.GetAsset()), Amount: amount,
		Poster:  ledger.OrganisationName(message.GetPoster()),
		Expires: ledger.Milliseconds(message.GetExpiresMs())}
	if hold.Asset == "" {
		hold.Asset = ledger.DefaultAsset
	}
	for _, to := range message.GetTo() {
		hold.To = append(hold.To, ledger.AccountPath(to))
	}
	return hold, nil
}

func holdEndToProto(end *ledger.HoldEnd) *ledgerdv1.HoldEnd {
	if end == nil {
		return nil
	}
	return &ledgerdv1.HoldEnd{HoldHex: end.Hold.String(), Account: string(end.From)}
}

func holdEndFromProto(message *ledgerdv1.HoldEnd) (*ledger.HoldEnd, error) {
	if message == nil {
		return nil, nil
	}
	id, err := ledger.ParseHash(message.GetHoldHex())
	if err != nil {
		return nil, fmt.Errorf("the hold that it ends: %w", err)
	}
	return &ledger.HoldEnd{Hold: id, From: ledger.AccountPath(message.GetAccount())}, nil
}

// holdConcerns reports whether a hold is on an account of an organisation, may be posted to one, or
// may be posted by it.
func holdConcerns(organisation string, hold *ledgerdv1.Hold) bool {
	return hold.GetPoster() == organisation || owns(organisation, hold.GetAccount()) == nil ||
		slices.ContainsFunc(hold.GetTo(), func(to string) bool {
			return owns(organisation, to) == nil
		})
}

func (s *Service) openHoldToProto(held *store.OpenHold) *ledgerdv1.OpenHold {
	shown := &ledgerdv1.OpenHold{HoldHex: held.ID.String(), Hold: holdToProto(&held.Hold),
		Shard: uint32(s.backend.Store().Shard()), Decimals: s.decimalsOf(held.Asset)}
	if held.Ending != (ledger.Hash{}) {
		shown.EndingHex, shown.Posted = held.Ending.String(), heldAmount(held.Posted)
	}
	return shown
}

// isHere reports whether a hold lives in this shard. An old home of an organisation that moved
// keeps its holds as they were.
func (s *Service) isHere(held *store.OpenHold) bool {
	opened := s.backend.Store()
	return !opened.Genesis().Sharded() ||
		opened.HomeShard(held.From.Organisation()) == opened.Shard()
}

// GetHold returns a hold that is open in this shard.
func (s *Service) GetHold(_ context.Context,
	request *connect.Request[ledgerdv1.GetHoldRequest]) (
	*connect.Response[ledgerdv1.GetHoldResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	id, err := ledger.ParseHash(request.Msg.GetHoldHex())
	if err != nil {
		return nil, invalid("hold_hex: %w", err)
	}
	opened := s.backend.Store()
	height := opened.AppendedHeight()
	held, open := opened.FindHold(id)
	if !open || !s.isHere(&held) {
		return nil, NoHold(id)
	}
	return connect.NewResponse(&ledgerdv1.GetHoldResponse{Hold: s.openHoldToProto(&held),
		Height: uint64(height)}), nil
}

// NoHold is the error that a hold is not open.
func NoHold(id ledger.Hash) error {
	return notFound("no hold %s is open: it was posted, voided or has expired, or there never was "+
		"one; the history of its account tells", id)
}

// ListHolds returns holds that are open in this shard.
func (s *Service) ListHolds(ctx context.Context,
	request *connect.Request[ledgerdv1.ListHoldsRequest]) (
	*connect.Response[ledgerdv1.ListHoldsResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	size, err := PageSize(request.Msg.GetPageSize(), HoldsPage)
	if err != nil {
		return nil, err
	}
	after, err := HoldToken(request.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	wanted, err := newHoldFilter(request.Msg)
	if err != nil {
		return nil, err
	}
	matches := func(held *store.OpenHold) bool { return wanted.matches(held) && s.isHere(held) }
	found, next, more, err := s.backend.Store().OpenHolds(after, size, matches)
	if err != nil {
		return nil, s.failure(ctx, "reading holds", err)
	}
	answer := &ledgerdv1.ListHoldsResponse{}
	for i := range found {
		answer.Holds = append(answer.Holds, s.openHoldToProto(&found[i]))
	}
	if more {
		answer.NextPageToken = next.String()
	}
	return connect.NewResponse(answer), nil
}

// HoldToken returns the id after which a page begins, or nil for the first page.
func HoldToken(token string) (*ledger.Hash, error) {
	if token == "" {
		return nil, nil
	}
	id, err := ledger.ParseHash(token)
	if err != nil {
		return nil, badToken()
	}
	return &id, nil
}

// holdFilter chooses holds. What is empty matches any.
type holdFilter struct {
	organisation, poster ledger.OrganisationName
	account              ledger.AccountPath
}

func newHoldFilter(request *ledgerdv1.ListHoldsRequest) (filter holdFilter, err error) {
	filter = holdFilter{ledger.OrganisationName(request.GetOrganisation()),
		ledger.OrganisationName(request.GetPoster()), ledger.AccountPath(request.GetAccount())}
	for _, part := range []struct {
		name, text string
		validate   func() error
	}{{"organisation", request.GetOrganisation(), filter.organisation.Validate},
		{"poster", request.GetPoster(), filter.poster.Validate},
		{"account", request.GetAccount(), filter.account.Validate}} {
		if part.text == "" {
			continue
		}
		if err := part.validate(); err != nil {
			return filter, invalid("%s: %w", part.name, err)
		}
	}
	return filter, nil
}

func (f *holdFilter) matches(held *store.OpenHold) bool {
	return (f.organisation == "" || held.From.Organisation() == f.organisation) &&
		(f.poster == "" || held.Poster == f.poster) &&
		(f.account == "" || held.From == f.account)
}
