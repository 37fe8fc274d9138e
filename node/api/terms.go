package api

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func accountTermsToProto(terms *ledger.AccountTerms) *ledgerdv1.AccountTerms {
	shown := &ledgerdv1.AccountTerms{NoDebits: terms.NoDebits, NoCredits: terms.NoCredits,
		Closed: terms.Closed, Guardian: string(terms.Guardian)}
	if terms.Freeze != ledger.FreezeNone {
		shown.Freeze = terms.Freeze.String()
	}
	text := func(amount *ledger.Amount) string {
		if amount == nil {
			return ""
		}
		return amount.String()
	}
	for i := range terms.Limits {
		limit := &terms.Limits[i]
		of := &ledgerdv1.AccountLimit{Asset: string(limit.Asset), Floor: text(limit.Floor),
			Ceiling: text(limit.Ceiling)}
		if limit.Velocity != nil {
			of.Velocity = limit.Velocity.Amount.String()
			of.VelocitySeconds = limit.Velocity.Seconds
		}
		shown.Limits = append(shown.Limits, of)
	}
	for i := range terms.Metadata {
		m := &terms.Metadata[i]
		shown.Metadata = append(shown.Metadata, &ledgerdv1.Metadatum{Key: m.Key, Value: m.Value,
			Indexed: m.Indexed})
	}
	return shown
}

// AccountTermsFromProto reads the terms of an account. It checks the form of its parts, and
// AccountTerms.Validate checks the rest.
func AccountTermsFromProto(message *ledgerdv1.AccountTerms) (terms ledger.AccountTerms, err error) {
	terms = ledger.AccountTerms{NoDebits: message.GetNoDebits(), NoCredits: message.GetNoCredits(),
		Closed: message.GetClosed(), Guardian: ledger.OrganisationName(message.GetGuardian())}
	if word := message.GetFreeze(); word != "" {
		if err := terms.Freeze.UnmarshalText([]byte(word)); err != nil {
			return terms, fmt.Errorf("freeze: %w", err)
		}
	}
	amount := func(text string) (*ledger.Amount, error) {
		if text == "" {
			return nil, nil
		}
		parsed, err := ledger.ParseAmount(text)
		return &parsed, err
	}
	for i, each := range message.GetLimits() {
		limit := ledger.AccountLimit{Asset: ledger.AssetName(each.GetAsset())}
		if limit.Floor, err = amount(each.GetFloor()); err != nil {
			return terms, fmt.Errorf("limit %d: floor: %w", i+1, err)
		}
		if limit.Ceiling, err = amount(each.GetCeiling()); err != nil {
			return terms, fmt.Errorf("limit %d: ceiling: %w", i+1, err)
		}
		most, err := amount(each.GetVelocity())
		if err != nil {
			return terms, fmt.Errorf("limit %d: velocity: %w", i+1, err)
		}
		if most != nil {
			limit.Velocity = &ledger.Velocity{Amount: *most, Seconds: each.GetVelocitySeconds()}
		}
		terms.Limits = append(terms.Limits, limit)
	}
	for _, each := range message.GetMetadata() {
		terms.Metadata = append(terms.Metadata, ledger.Metadatum{Key: each.GetKey(),
			Value: each.GetValue(), Indexed: each.GetIndexed()})
	}
	return terms, nil
}

func accountChangeToProto(change *ledger.AccountChange) *ledgerdv1.AccountChange {
	if change == nil {
		return nil
	}
	return &ledgerdv1.AccountChange{Account: string(change.Account), Number: change.Number,
		Alias: change.Alias, Terms: accountTermsToProto(&change.AccountTerms)}
}

// accountChangeFromProto reads a change of the terms of an account, or nil if there is none.
func accountChangeFromProto(message *ledgerdv1.AccountChange) (*ledger.AccountChange, error) {
	if message == nil {
		return nil, nil
	}
	terms, err := AccountTermsFromProto(message.GetTerms())
	if err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	return &ledger.AccountChange{Account: ledger.AccountPath(message.GetAccount()),
		Number: message.GetNumber(), Alias: message.GetAlias(), AccountTerms: terms}, nil
}

// aliased returns the path of the account that a request names, or the account of an organisation
// with an alias.
func (s *Service) aliased(request *ledgerdv1.GetAccountRequest) (string, error) {
	if request.GetAlias() == "" && request.GetOrganisation() == "" {
		return request.GetAccount(), nil
	}
	owner := ledger.OrganisationName(request.GetOrganisation())
	if err := owner.Validate(); err != nil {
		return "", invalid("organisation: %w", err)
	}
	if request.GetAccount() != "" || request.GetAlias() == "" {
		return "", invalid("alias: an account, or an organisation and an alias")
	}
	if err := s.livesHere(owner); err != nil {
		return "", err
	}
	path, known := s.backend.Store().Aliased(owner, request.GetAlias())
	if !known {
		return "", notFound("no account of %s has the alias %.150q", owner, request.GetAlias())
	}
	return string(path), nil
}

// accountsWhere lists at most size accounts whose terms have an indexed metadatum. It returns the
// path up to which it looked, and whether there may be accounts after that.
func (s *Service) accountsWhere(request *ledgerdv1.ListAccountsRequest, size int) (
	found []ledger.Account, after ledger.AccountPath, more bool, err error) {
	return s.backend.Store().AccountsWhere(request.GetWhereKey(), request.GetWhereValue(),
		request.GetPrefix(), ledger.AccountPath(request.GetPageToken()), size)
}
