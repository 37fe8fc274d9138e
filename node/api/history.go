package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ListHistory returns the changes of an account.
func (s *Service) ListHistory(ctx context.Context,
	request *connect.Request[ledgerdv1.ListHistoryRequest]) (
	*connect.Response[ledgerdv1.ListHistoryResponse], error) {
	size, err := PageSize(request.Msg.GetPageSize(), HistoryPage)
	if err != nil {
		return nil, err
	}
	query := store.StatementQuery{Limit: size, NewestFirst: !request.Msg.GetAscending(),
		Period: store.Period{First: ledger.Height(request.Msg.GetFromHeight()),
			Last:   ledger.Height(request.Msg.GetToHeight()),
			From:   ledger.Milliseconds(request.Msg.GetFromTimeMs()),
			Before: ledger.Milliseconds(request.Msg.GetToTimeMs())}}
	if token := request.Msg.GetPageToken(); token != "" {
		if err := parseNumberToken('h', token, &query.Cursor); err != nil {
			return nil, err
		}
	}
	path, err := ledger.ParseAccountPath(request.Msg.GetAccount())
	if err != nil {
		return nil, invalid("account: %w", err)
	}
	filter, err := newHistoryFilter(path, request.Msg)
	if err != nil {
		return nil, err
	}
	if filter != nil {
		query.Match = filter.matches
	}
	if err := s.hasHistory(path.Organisation(), request.Msg.Shard); err != nil {
		return nil, err
	}
	bounded, cancel := s.forPage(ctx)
	defer cancel()
	effort, done := s.effort(request.Peer().Addr)
	defer done()
	// The page has at least the blocks up to the head of before.
	head := s.backend.Store().Head()
	page, err := s.backend.Store().Statement(bounded, path, query, effort)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound("no account %s is open at height %d", path, head.Height)
	case tookTooMuch(ctx, bounded, err):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("reading the "+
			"history of %s there takes too much work: ask for a shorter or a later period", path))
	case err != nil:
		return nil, s.failure(ctx, "reading an account's history", err)
	}
	answer := &ledgerdv1.ListHistoryResponse{HasBalances: true,
		BalancesTooFar: page.TooFar, Height: uint64(head.Height),
		TimeMs: uint64(head.Time), OpenedTimeMs: uint64(page.Opened),
		OpeningBalances: s.wholeBalances(page.Opening),
		ClosingBalances: s.wholeBalances(page.Closing)}
	for i := range page.Items {
		answer.Entries = append(answer.Entries, s.historyEntry(&page.Items[i]))
	}
	if page.More {
		answer.NextPageToken = numberToken('h', page.Next)
	}
	return connect.NewResponse(answer), nil
}

// hasHistory returns an error if this shard does not have an organisation's history: that of the
// present home, unless the request names this shard, which may be an earlier one.
func (s *Service) hasHistory(name ledger.OrganisationName, asked *uint32) error {
	if asked == nil {
		return s.livesHere(name)
	}
	return s.answersFor(asked)
}

// wholeBalances converts balances of which nothing is set aside or incoming.
func (s *Service) wholeBalances(balances []ledger.Balance) (shown []*ledgerdv1.Balance) {
	for i := range balances {
		shown = append(shown, &ledgerdv1.Balance{Asset: string(balances[i].Asset),
			Amount: balances[i].Amount.String(), Decimals: s.decimalsOf(balances[i].Asset)})
	}
	return shown
}

func (s *Service) historyEntry(item *store.HistoryItem) *ledgerdv1.HistoryEntry {
	shown := &ledgerdv1.HistoryEntry{
		TransactionId:    item.Entry.ID[:],
		TransactionIdHex: item.Entry.ID.String(),
		Height:           uint64(item.Height),
		Index:            uint32(item.Index),
		TimeMs:           uint64(item.Time),
		Note:             shorten(noteToProto(item.Entry.Transaction().Note), summaryNoteBytes),
		Changes:          s.wholeBalances(item.Changes),
		BalancesAfter:    s.wholeBalances(item.Balances),
	}
	if d := item.Entry.Transaction().Details; d != nil {
		shown.EffectiveMs = uint64(d.Effective)
	}
	return shown
}

// historyFilter chooses entries of an account's history.
type historyFilter struct {
	path         ledger.AccountPath
	asset        ledger.AssetName
	least, most  *ledger.Amount
	counterparty string
	note         string // in small letters
	metadata     []metadatum
}

// newHistoryFilter returns the filter of a request, or nil if it has none.
func newHistoryFilter(path ledger.AccountPath, request *ledgerdv1.ListHistoryRequest) (
	*historyFilter, error) {
	filter := historyFilter{path: path, asset: ledger.AssetName(request.GetAsset()),
		counterparty: request.GetCounterparty(), note: strings.ToLower(request.GetNote())}
	if filter.asset != "" {
		if err := filter.asset.Validate(); err != nil {
			return nil, invalid("asset: %w", err)
		}
	}
	var err error
	if filter.least, err = parseBound("min_amount", request.GetMinAmount()); err != nil {
		return nil, err
	}
	if filter.most, err = parseBound("max_amount", request.GetMaxAmount()); err != nil {
		return nil, err
	}
	if len(filter.counterparty) > ledger.MaxAccountPath {
		return nil, invalid("counterparty: at most %d characters", ledger.MaxAccountPath)
	}
	if len(filter.note) > ledger.MaxNote {
		return nil, invalid("note: at most %d bytes", ledger.MaxNote)
	}
	if filter.metadata, err = parseMetadata(request.GetMetadata()); err != nil {
		return nil, err
	}
	none := filter.asset == "" && filter.least == nil && filter.most == nil &&
		filter.counterparty == "" && filter.note == "" && len(filter.metadata) == 0
	if none {
		return nil, nil
	}
	return &filter, nil
}

// matches reports whether an entry matches.
func (f *historyFilter) matches(item *store.HistoryItem) bool {
	changes := f.asset == "" && f.least == nil && f.most == nil ||
		slices.ContainsFunc(item.Changes, f.matchesChange)
	transaction := item.Entry.Transaction()
	return changes &&
		(f.counterparty == "" || slices.ContainsFunc(transaction.Postings, f.matchesOther)) &&
		(f.note == "" || strings.Contains(strings.ToLower(string(transaction.Note)), f.note)) &&
		hasMetadata(transaction.Note, f.metadata)
}

func (f *historyFilter) matchesChange(change ledger.Balance) bool {
	amount := change.Amount
	if amount.Sign() < 0 {
		amount = ledger.Amount{}.Minus(amount)
	}
	return (f.asset == "" || change.Asset == f.asset) &&
		(f.least == nil || amount.Compare(*f.least) >= 0) &&
		(f.most == nil || amount.Compare(*f.most) <= 0)
}

// matchesOther reports whether a posting is one of a counterparty.
func (f *historyFilter) matchesOther(posting ledger.Posting) bool {
	if posting.Account == f.path || f.asset != "" && posting.Asset != f.asset {
		return false
	}
	switch {
	case !strings.Contains(f.counterparty, ":"):
		return string(posting.Account.Organisation()) == f.counterparty
	case strings.HasSuffix(f.counterparty, ":"):
		return strings.HasPrefix(string(posting.Account), f.counterparty)
	}
	return string(posting.Account) == f.counterparty
}
