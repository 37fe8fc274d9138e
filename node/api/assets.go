package api

import (
	"context"
	"fmt"
	"strconv"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func (s *Service) assetToProto(asset *ledger.Asset, height ledger.Height) *ledgerdv1.Asset {
	shown := &ledgerdv1.Asset{Name: string(asset.Name), Number: asset.Number,
		Owner: string(asset.Owner), Revision: asset.Revision,
		RegisteredHeight: uint64(asset.Registered), Terms: termsToProto(&asset.AssetTerms),
		Height: uint64(height)}
	for i := range asset.Issuances {
		each := &asset.Issuances[i]
		shown.Issuances = append(shown.Issuances, &ledgerdv1.Issuance{
			Organisation: string(asset.Issuers[i].Organisation), Issued: each.Issued.String(),
			Redeemed: each.Redeemed.String(), Waiting: heldAmount(each.Waiting),
			Shard: uint32(s.backend.Store().Shard()), Arrived: each.Arrived})
	}
	SumAsset(shown)
	return shown
}

// SumAsset sets what was issued of an asset by all issuers, from the issuances.
func SumAsset(asset *ledgerdv1.Asset) {
	var issued, redeemed, waiting ledger.Amount
	add := func(to *ledger.Amount, text string) {
		more, err := ledger.ParseAmount(text)
		if err != nil {
			return // "", for nothing
		}
		if sum, err := to.Add(more); err == nil {
			*to = sum
		} else {
			*to = ledger.MaxAmount
		}
	}
	for _, each := range asset.GetIssuances() {
		add(&issued, each.GetIssued())
		add(&redeemed, each.GetRedeemed())
		add(&waiting, each.GetWaiting())
	}
	asset.Issued, asset.Redeemed, asset.Waiting = issued.String(), redeemed.String(),
		heldAmount(waiting)
	asset.Outstanding = issued.Minus(redeemed).String()
}

func termsToProto(terms *ledger.AssetTerms) *ledgerdv1.AssetTerms {
	shown := &ledgerdv1.AssetTerms{Decimals: uint32(terms.Decimals),
		Supply: terms.Supply.String(), Cap: heldAmount(terms.Cap), Closed: terms.Closed}
	for i := range terms.Issuers {
		issuer := &terms.Issuers[i]
		shown.Issuers = append(shown.Issuers, &ledgerdv1.AssetIssuer{
			Organisation: string(issuer.Organisation), Allowance: heldAmount(issuer.Allowance),
			Withdrawn: issuer.Withdrawn})
	}
	return shown
}

// TermsFromProto reads the terms of an asset. It checks the form of its parts, and
// AssetTerms.Validate checks the rest.
func TermsFromProto(message *ledgerdv1.AssetTerms) (terms ledger.AssetTerms, err error) {
	amount := func(text string) (ledger.Amount, error) {
		if text == "" {
			return ledger.Amount{}, nil
		}
		return ledger.ParseAmount(text)
	}
	if message.GetDecimals() > ledger.MaxDecimals {
		return terms, fmt.Errorf("%d decimals: at most %d", message.GetDecimals(),
			ledger.MaxDecimals)
	}
	terms = ledger.AssetTerms{Decimals: uint8(message.GetDecimals()), Closed: message.GetClosed()}
	if word := message.GetSupply(); word != "" {
		if err := terms.Supply.UnmarshalText([]byte(word)); err != nil {
			return terms, fmt.Errorf("supply: %w", err)
		}
	}
	if terms.Cap, err = amount(message.GetCap()); err != nil {
		return terms, fmt.Errorf("cap: %w", err)
	}
	for i, issuer := range message.GetIssuers() {
		allowance, err := amount(issuer.GetAllowance())
		if err != nil {
			return terms, fmt.Errorf("issuer %d: %w", i+1, err)
		}
		terms.Issuers = append(terms.Issuers, ledger.Issuer{
			Organisation: ledger.OrganisationName(issuer.GetOrganisation()), Allowance: allowance,
			Withdrawn: issuer.GetWithdrawn()})
	}
	return terms, nil
}

func assetChangeToProto(change *ledger.AssetChange) *ledgerdv1.AssetChange {
	if change == nil {
		return nil
	}
	return &ledgerdv1.AssetChange{Asset: string(change.Asset), Number: change.Number,
		Terms: termsToProto(&change.AssetTerms)}
}

// assetChangeFromProto reads a change of an asset, or nil if there is none.
func assetChangeFromProto(message *ledgerdv1.AssetChange) (*ledger.AssetChange, error) {
	if message == nil {
		return nil, nil
	}
	terms, err := TermsFromProto(message.GetTerms())
	if err != nil {
		return nil, fmt.Errorf("asset: %w", err)
	}
	return &ledger.AssetChange{Asset: ledger.AssetName(message.GetAsset()),
		Number: message.GetNumber(), AssetTerms: terms}, nil
}

// decimalsOf returns the decimals of an asset, 0 for one that is not registered.
func (s *Service) decimalsOf(name ledger.AssetName) uint32 {
	asset, known := s.backend.Store().Asset(name)
	if !known {
		return 0
	}
	return uint32(asset.Decimals)
}

// GetAsset returns a registered asset, with what was issued of it in this shard.
func (s *Service) GetAsset(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAssetRequest]) (
	*connect.Response[ledgerdv1.GetAssetResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	name := ledger.AssetName(request.Msg.GetName())
	if err := name.Validate(); err != nil {
		return nil, invalid("name: %w", err)
	}
	opened := s.backend.Store()
	if len(request.Msg.GetCut()) > 0 {
		if request.Msg.GetProve() {
			return nil, invalid("prove: not at a cut")
		}
		at, err := s.ReachCut(ctx, request.Peer().Addr, request.Msg.GetCut())
		if err != nil {
			return nil, err
		}
		return s.assetAtCut(ctx, name, at)
	}
	if !request.Msg.GetProve() {
		asset, known := opened.Asset(name)
		if !known {
			return nil, notRegistered(name)
		}
		return connect.NewResponse(&ledgerdv1.GetAssetResponse{
			Asset: s.assetToProto(&asset, opened.AppendedHeight())}), nil
	}
	if opened.Genesis().Sharded() && request.Msg.Shard == nil {
		return nil, invalid("prove: name the shard whose chain is to prove it")
	}
	proof, known := opened.ProveAsset(name)
	if !known {
		return nil, notRegistered(name)
	}
	asset, header, _, err := ledger.VerifyAssetProof(proof)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&ledgerdv1.GetAssetResponse{Proof: proof.Encode(),
		Asset: s.assetToProto(asset, header.Height)}), nil
}

func notRegistered(name ledger.AssetName) error {
	return notFound("asset %s is not registered: its amounts have no decimals, and any issuer "+
		"account may issue it", name)
}

// ListAssets returns registered assets in the order of their registrations, or those with some
// names.
func (s *Service) ListAssets(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAssetsRequest]) (
	*connect.Response[ledgerdv1.ListAssetsResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	size, err := PageSize(request.Msg.GetPageSize(), 100)
	if err != nil {
		return nil, err
	}
	after := uint64(0)
	if token := request.Msg.GetPageToken(); token != "" {
		if after, err = strconv.ParseUint(token, 10, 32); err != nil {
			return nil, badToken()
		}
	}
	if len(request.Msg.GetCut()) > 0 {
		at, err := s.ReachCut(ctx, request.Peer().Addr, request.Msg.GetCut())
		if err != nil {
			return nil, err
		}
		return s.assetsAtCut(ctx, request.Msg.GetNames(), uint32(after), size, at)
	}
	opened := s.backend.Store()
	height := opened.AppendedHeight()
	answer := &ledgerdv1.ListAssetsResponse{}
	for _, name := range request.Msg.GetNames() {
		if asset, known := opened.Asset(ledger.AssetName(name)); known {
			answer.Assets = append(answer.Assets, s.assetToProto(&asset, height))
		}
	}
	if len(request.Msg.GetNames()) > 0 {
		return connect.NewResponse(answer), nil
	}
	assets := opened.Assets(uint32(after), size+1)
	for i := range assets[:min(size, len(assets))] {
		answer.Assets = append(answer.Assets, s.assetToProto(&assets[i], height))
	}
	if len(assets) > size {
		answer.NextPageToken = strconv.Itoa(int(assets[size-1].Number))
	}
	return connect.NewResponse(answer), nil
}
