package api

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func (s *Service) accountToProto(account *ledger.Account, height ledger.Height) *ledgerdv1.Account {
	shown := &ledgerdv1.Account{
		Shard:        uint32(s.backend.Store().Shard()),
		Account:      string(account.Path),
		Organisation: string(account.Path.Organisation()),
		Issuer:       account.Issuer,
		Alias:        account.Alias,
		OpenedHeight: uint64(account.Opened),
		Height:       uint64(height),
	}
	if standing := account.Standing; standing != nil {
		shown.Revision, shown.Guarded = standing.Revision, standing.Guarded
		shown.Terms = accountTermsToProto(&standing.AccountTerms)
	}
	for i := range account.Balances {
		balance := &account.Balances[i]
		shown.Balances = append(shown.Balances, &ledgerdv1.Balance{
			Asset: string(balance.Asset), Amount: balance.Amount.String(),
			SetAside: heldAmount(balance.SetAside), Incoming: heldAmount(balance.Incoming),
			Decimals: s.decimalsOf(balance.Asset),
		})
	}
	return shown
}

// heldAmount returns an amount as text, or "" if it is zero.
func heldAmount(amount ledger.Amount) string {
	if amount.Sign() == 0 {
		return ""
	}
	return amount.String()
}

// GetAccount returns an account with its balances.
func (s *Service) GetAccount(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	if len(request.Msg.GetCut()) > 0 {
		if request.Msg.GetAlias() != "" {
			return nil, invalid("alias: not at a cut")
		}
		at, err := s.ReachCut(ctx, request.Peer().Addr, request.Msg.GetCut())
		if err != nil {
			return nil, err
		}
		return s.AccountAtCut(ctx, request.Msg.GetAccount(), at)
	}
	text, err := s.aliased(request.Msg)
	if err != nil {
		return nil, err
	}
	account, height, err := s.account(ctx, text)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{Account: s.accountToProto(&account,
		height)}), nil
}

// GetAccountProof returns the proof of what an account has after the head.
func (s *Service) GetAccountProof(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAccountProofRequest]) (
	*connect.Response[ledgerdv1.GetAccountProofResponse], error) {
	path, err := ledger.ParseAccountPath(request.Msg.GetAccount())
	if err != nil {
		return nil, invalid("account: %w", err)
	}
	if err := s.livesHere(path.Organisation()); err != nil {
		return nil, err
	}
	opened := s.backend.Store()
	proof, err := opened.ProveAccount(path)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound("no account %s is open at height %d", path, opened.AppendedHeight())
	case errors.Is(err, store.ErrNoTree):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%w: the "+
			"operators have to raise the version of the chain first", err))
	case err != nil:
		return nil, s.failure(ctx, "proving an account", err)
	}
	header, err := ledger.DecodeHeader(proof.Header)
	if err != nil {
		return nil, s.failure(ctx, "proving an account", err)
	}
	hash := header.Hash()
	return connect.NewResponse(&ledgerdv1.GetAccountProofResponse{Encoded: proof.Encode(),
		Height: uint64(header.Height), BlockHash: hash[:], Shard: uint32(opened.Shard())}), nil
}

// account reads an account and the height of the head just before the read. The balances include
// all blocks up to that height, and may include later ones.
func (s *Service) account(ctx context.Context, text string) (ledger.Account, ledger.Height,
	error) {
	path, err := ledger.ParseAccountPath(text)
	if err != nil {
		return ledger.Account{}, 0, invalid("account: %w", err)
	}
	if err := s.livesHere(path.Organisation()); err != nil {
		return ledger.Account{}, 0, err
	}
	height := s.backend.Store().Head().Height
	account, err := s.backend.Store().Account(path)
	if errors.Is(err, store.ErrNotFound) {
		return ledger.Account{}, 0, notFound("no account %s is open at height %d", path, height)
	}
	if err != nil {
		return ledger.Account{}, 0, s.failure(ctx, "reading an account", err)
	}
	return account, height, nil
}

// The numbers of entries on a page if a request does not say.
const (
	AccountsPage = 100
	HistoryPage  = 50
)

// pageOfAccounts checks a request for a page of accounts, and returns how many it has at most.
func (s *Service) pageOfAccounts(request *ledgerdv1.ListAccountsRequest) (size int, err error) {
	if size, err = PageSize(request.GetPageSize(), AccountsPage); err != nil {
		return 0, err
	}
	prefix, after := request.GetPrefix(), request.GetPageToken()
	if len(prefix) > ledger.MaxAccountPath {
		return 0, invalid("prefix: at most %d characters", ledger.MaxAccountPath)
	}
	if request.GetWhereKey() == "" && request.GetWhereValue() != "" {
		return 0, invalid("where_value: without a where_key")
	}
	if len(after) > ledger.MaxAccountPath || !strings.HasPrefix(after, prefix) && after != "" {
		return 0, badToken()
	}
	return size, s.answersFor(request.Shard)
}

// ListAccounts returns accounts by path.
func (s *Service) ListAccounts(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	size, err := s.pageOfAccounts(request.Msg)
	if err != nil {
		return nil, err
	}
	if len(request.Msg.GetCut()) > 0 {
		if request.Msg.GetWhereKey() != "" {
			return nil, invalid("where_key: not at a cut")
		}
		at, err := s.ReachCut(ctx, request.Peer().Addr, request.Msg.GetCut())
		if err != nil {
			return nil, err
		}
		return s.AccountsAtCut(ctx, request.Msg, at)
	}
	if err := s.hasChanges(request.Msg.GetBookChanges()); err != nil {
		return nil, err
	}
	answer, err := s.accountsPage(request.Msg, size)
	if err != nil {
		return nil, s.failure(ctx, "reading the accounts", err)
	}
	// A change of the book that comes meanwhile may be in a part of the page only.
	for s.backend.Store().BookChanges() != answer.BookChanges {
		if answer, err = s.accountsPage(request.Msg, size); err != nil {
			return nil, s.failure(ctx, "reading the accounts", err)
		}
	}
	return connect.NewResponse(answer), nil
}

// accountsPage makes a page of accounts. The number of the book's changes is that before. So are
// the organisations on their way, since one that arrives meanwhile may have no accounts in the page
// yet.
func (s *Service) accountsPage(request *ledgerdv1.ListAccountsRequest, size int) (
	*ledgerdv1.ListAccountsResponse, error) {
	answer := &ledgerdv1.ListAccountsResponse{BookChanges: s.backend.Store().BookChanges(),
		MovingOrganisations: s.comingWith(request.GetPrefix())}
	list := s.accountsOf
	if request.GetWhereKey() != "" {
		list = s.accountsWhere
	}
	accounts, last, more, err := list(request, size)
	if err != nil {
		return nil, err
	}
	height := s.backend.Store().Head().Height
	for i := range accounts {
		if !s.backend.Store().LivesHere(accounts[i].Path.Organisation()) {
			continue // it has moved, or has not arrived yet
		}
		answer.Accounts = append(answer.Accounts, s.accountToProto(&accounts[i], height))
	}
	if more {
		answer.NextPageToken = string(last)
	}
	return answer, nil
}

// accountsOf lists the accounts of a page, and returns the last one's path, and whether there are
// accounts after that.
func (s *Service) accountsOf(request *ledgerdv1.ListAccountsRequest, size int) (
	page []ledger.Account, last ledger.AccountPath, more bool, err error) {
	page, more, err = s.accountsFrom(request.GetPrefix(),
		ledger.AccountPath(request.GetPageToken()), size)
	if len(page) > 0 {
		last = page[len(page)-1].Path
	}
	return page, last, more, err
}

// accountsFrom lists at most limit accounts with a prefix that come after a path, and reports
// whether there are more.
func (s *Service) accountsFrom(prefix string, after ledger.AccountPath,
	limit int) (found []ledger.Account, more bool, err error) {
	if after == "" && prefix != "" {
		// The store lists accounts after a path, and the prefix itself may be an account's path.
		exact, err := s.backend.Store().Account(ledger.AccountPath(prefix))
		if err == nil {
			found = append(found, exact)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, false, err
		}
		after = ledger.AccountPath(prefix)
	}
	page, err := s.backend.Store().Accounts(after, limit+1-len(found))
	if err != nil {
		return nil, false, err
	}
	for _, account := range page {
		if !strings.HasPrefix(string(account.Path), prefix) {
			break
		}
		found = append(found, account)
	}
	if len(found) > limit {
		return found[:limit], true, nil
	}
	return found, false, nil
}

// GetRecord returns a record's value.
func (s *Service) GetRecord(ctx context.Context,
	request *connect.Request[ledgerdv1.GetRecordRequest]) (
	*connect.Response[ledgerdv1.GetRecordResponse], error) {
	key := ledger.RecordKey(request.Msg.GetKey())
	if err := key.Validate(); err != nil {
		return nil, invalid("key: %w", err)
	}
	if err := s.livesHere(key.Organisation()); err != nil {
		return nil, err
	}
	record, err := s.backend.Store().Record(key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("there is no record %s", key)
	}
	if err != nil {
		return nil, s.failure(ctx, "reading a record", err)
	}
	return connect.NewResponse(&ledgerdv1.GetRecordResponse{
		Record: &ledgerdv1.Record{Key: string(key), Value: record.Value},
		Height: uint64(record.Height),
		Shard:  uint32(s.backend.Store().Shard()),
	}), nil
}

func (s *Service) organisationToProto(organisation *ledger.Organisation) *ledgerdv1.Organisation {
	shard := organisation.Shard
	if s.backend.Store().ShardTree() != nil {
		shard = s.backend.Store().HomeShard(organisation.Name)
	}
	policy := organisation.PresentPolicy()
	moving, earlier := s.movesOf(organisation.Name)
	return &ledgerdv1.Organisation{
		Moving: moving, EarlierHomes: earlier,
		Policy:           policyToProto(&policy),
		Name:             string(organisation.Name),
		PublicKeys:       keysToProto(organisation.Keys),
		Shard:            uint32(shard),
		Pinned:           organisation.Pinned,
		RegisteredHeight: uint64(organisation.Registered),
	}
}

// GetOrganisation returns an organisation.
func (s *Service) GetOrganisation(_ context.Context,
	request *connect.Request[ledgerdv1.GetOrganisationRequest]) (
	*connect.Response[ledgerdv1.GetOrganisationResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetName())
	if err := name.Validate(); err != nil {
		return nil, invalid("name: %w", err)
	}
	organisation, known := s.backend.Store().Organisation(name)
	if !known {
		return nil, notFound("no organisation %s is registered", name)
	}
	return connect.NewResponse(&ledgerdv1.GetOrganisationResponse{
		Organisation: s.organisationToProto(&organisation)}), nil
}

// organisations lists all organisations by name.
func (s *Service) organisations() []ledger.Organisation {
	all := append([]ledger.Organisation(nil), s.backend.Store().Organisations()...)
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// ListOrganisations returns organisations by name.
func (s *Service) ListOrganisations(_ context.Context,
	request *connect.Request[ledgerdv1.ListOrganisationsRequest]) (
	*connect.Response[ledgerdv1.ListOrganisationsResponse], error) {
	size, err := PageSize(request.Msg.GetPageSize(), 100)
	if err != nil {
		return nil, err
	}
	all := s.organisations()
	after := ledger.OrganisationName(request.Msg.GetPageToken())
	begin := 0
	if after != "" {
		if after.Validate() != nil {
			return nil, badToken()
		}
		begin = sort.Search(len(all), func(i int) bool { return all[i].Name > after })
	}
	end := min(begin+size, len(all))
	answer := &ledgerdv1.ListOrganisationsResponse{}
	for i := begin; i < end; i++ {
		answer.Organisations = append(answer.Organisations, s.organisationToProto(&all[i]))
	}
	if end < len(all) {
		answer.NextPageToken = string(all[end-1].Name)
	}
	return connect.NewResponse(answer), nil
}

// GetNonce returns the next sequence number of a nonce stream, as of the head of the organisation's
// home.
func (s *Service) GetNonce(_ context.Context,
	request *connect.Request[ledgerdv1.GetNonceRequest]) (
	*connect.Response[ledgerdv1.GetNonceResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if err := name.Validate(); err != nil && name != ledger.Operator {
		return nil, invalid("organisation: %w", err)
	}
	if err := s.livesHere(name); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetNonceResponse{
		NextSequence: s.backend.Store().NextSequence(name, request.Msg.GetStream()),
	}), nil
}

// GetUse returns what an organisation keeps in this shard, and the quotas.
func (s *Service) GetUse(_ context.Context, request *connect.Request[ledgerdv1.GetUseRequest]) (
	*connect.Response[ledgerdv1.GetUseResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if err := name.Validate(); err != nil {
		return nil, invalid("organisation: %w", err)
	}
	if err := s.livesHere(name); err != nil {
		return nil, err
	}
	opened := s.backend.Store()
	return connect.NewResponse(&ledgerdv1.GetUseResponse{Use: quotasToProto(opened.Use(name)),
		Quotas: quotasToProto(opened.Charter().Quotas)}), nil
}
