package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// The numbers of elements on a page if a request does not say.
const (
	TransactionsPage = 50
	RecordsPage      = 100
)

// listedBytes bounds the values of a record on a page of transactions, but for the last one.
const listedBytes = 1 << 20

// ListedKey is the place of a transaction in the list of a book's transactions, which is ordered by
// the times of blocks.
type ListedKey struct {
	Time   ledger.Milliseconds
	Shard  ledger.ShardID
	Height ledger.Height
	Index  uint32
}

// Compare orders keys as an ascending list does.
func (k ListedKey) Compare(other ListedKey) int {
	return cmp.Or(cmp.Compare(k.Time, other.Time), cmp.Compare(k.Shard, other.Shard),
		cmp.Compare(k.Height, other.Height), cmp.Compare(k.Index, other.Index))
}

// Token returns the token of the page that goes on after a key.
func (k ListedKey) Token() string {
	return numberToken('e', uint64(k.Time), uint64(k.Shard), uint64(k.Height), uint64(k.Index))
}

// ParseListedKey reads a page token. It returns nil for the first page.
func ParseListedKey(token string) (*ListedKey, error) {
	if token == "" {
		return nil, nil
	}
	var time, shard, height, index uint64
	if err := parseNumberToken('e', token, &time, &shard, &height, &index); err != nil {
		return nil, err
	}
	if time > 1<<62 || shard >= ledger.MaxShards || height == 0 || height > 1<<62 ||
		index > ledger.MaxBlockTransactions {
		return nil, badToken()
	}
	return &ListedKey{ledger.Milliseconds(time), ledger.ShardID(shard), ledger.Height(height),
		uint32(index)}, nil
}

// KeyOfListed returns the place of a listed transaction of a shard.
func KeyOfListed(listed *ledgerdv1.ListedTransaction, shard ledger.ShardID) ListedKey {
	status := listed.GetTransaction().GetStatus()
	return ListedKey{ledger.Milliseconds(listed.GetTimeMs()), shard,
		ledger.Height(status.GetHeight()), status.GetIndex()}
}

// ListTransactions returns transactions of this shard's chain.
func (s *Service) ListTransactions(ctx context.Context,
	request *connect.Request[ledgerdv1.ListTransactionsRequest]) (
	*connect.Response[ledgerdv1.ListTransactionsResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	size, err := PageSize(request.Msg.GetPageSize(), TransactionsPage)
	if err != nil {
		return nil, err
	}
	after, err := ParseListedKey(request.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	filter, err := newListingFilter(request.Msg)
	if err != nil {
		return nil, err
	}
	from, upTo, err := s.listedFrom(request.Msg, after)
	if err != nil {
		return nil, s.failure(ctx, "looking for a moment", err)
	}
	bounded, cancel := s.forPage(ctx)
	defer cancel()
	effort, done := s.effort(request.Peer().Addr)
	defer done()
	page := listing{service: s, filter: filter, size: size, upTo: upTo,
		ascending: request.Msg.GetAscending(), answer: &ledgerdv1.ListTransactionsResponse{}}
	err = s.backend.Store().EachEntry(bounded, from, upTo, !page.ascending, effort, page.visit)
	if err != nil && page.looked && tookTooMuch(ctx, bounded, err) {
		err, page.more = nil, true // the next page goes on
	}
	if err != nil {
		return nil, s.failure(ctx, "reading the transactions", err)
	}
	if page.more {
		page.answer.NextPageToken = page.last.Token()
		page.answer.ReachedTimeMs = uint64(page.last.Time)
	}
	return connect.NewResponse(page.answer), nil
}

// listedFrom returns the place where a page begins, and the last block that it may reach.
func (s *Service) listedFrom(request *ledgerdv1.ListTransactionsRequest, after *ListedKey) (
	from store.Place, upTo ledger.Height, err error) {
	opened := s.backend.Store()
	first, last := opened.Absent()+1, opened.AppendedHeight()
	if begin := request.GetFromTimeMs(); begin != 0 {
		height, err := opened.HeightBefore(ledger.Milliseconds(begin))
		if err != nil {
			return from, 0, err
		}
		first = max(first, height+1)
	}
	if end := request.GetToTimeMs(); end != 0 {
		height, err := opened.HeightBefore(ledger.Milliseconds(end))
		if err != nil {
			return from, 0, err
		}
		last = min(last, height)
	}
	ascending := request.GetAscending()
	from, upTo = store.Place{Height: last}, first
	if ascending {
		from, upTo = store.Place{Height: first - 1}, last
	}
	if after == nil {
		return from, upTo, nil
	}
	// What has the key's time comes after it in this shard's chain, in the order of the list, if
	// this shard comes after the key's.
	own, place := opened.Shard(), store.Place{}
	switch {
	case own == after.Shard && ascending:
		place = store.Place{Height: after.Height - 1, Entries: after.Index + 1}
	case own == after.Shard:
		place = store.Place{Height: after.Height - 1, Entries: after.Index}
	case own > after.Shard:
		place.Height, err = opened.HeightBefore(after.Time)
	default:
		place.Height, err = opened.HeightBefore(after.Time + 1)
	}
	if ascending == (place.Compare(from) > 0) {
		from = place
	}
	return from, upTo, err
}

// listing makes a page of transactions.
type listing struct {
	service   *Service
	filter    *listingFilter
	size      int
	ascending bool
	upTo      ledger.Height
	answer    *ledgerdv1.ListTransactionsResponse
	bytes     int
	// last is the place of the last transaction that the page looked at, if it looked at any.
	last         ListedKey
	looked, more bool
}

// visit adds an entry that matches, and reports whether there is room for more.
func (l *listing) visit(block *ledger.Block, index int) bool {
	opened := l.service.backend.Store()
	header := &block.Header
	l.last = ListedKey{header.Time, opened.Shard(), header.Height, uint32(index)}
	l.looked = true
	entry := block.Entry(index)
	if !l.filter.matches(&entry) || !l.filter.isListed(opened, block, index, &entry) {
		return true
	}
	status := l.service.statusOfEntry(&entry, header.Height, index,
		l.service.levelOf(header.Height))
	if !l.filter.hasStatus(&status) {
		return true
	}
	listed := &ledgerdv1.ListedTransaction{Transaction: l.service.summaryOf(&entry, status),
		TimeMs: uint64(header.Time), Value: l.filter.valueIn(&entry)}
	listed.Transaction.Status.Shard = uint32(opened.Shard())
	l.answer.Transactions = append(l.answer.Transactions, listed)
	l.bytes += len(listed.GetValue())
	isEnd := header.Height == l.upTo && index == 0
	if l.ascending {
		isEnd = header.Height == l.upTo && index == block.Len()-1
	}
	isFull := len(l.answer.Transactions) >= l.size || l.bytes > listedBytes
	l.more = isFull && !isEnd
	return !isFull
}

// listedKinds are the kinds of transactions in a list.
var listedKinds = map[string]func(t *ledger.Transaction) bool{
	"payment":       func(t *ledger.Transaction) bool { return len(t.Postings) > 0 },
	"records":       func(t *ledger.Transaction) bool { return len(t.Records) > 0 },
	"opening":       func(t *ledger.Transaction) bool { return len(t.Openings) > 0 },
	"registration":  func(t *ledger.Transaction) bool { return len(t.Registrations) > 0 },
	"hold":          func(t *ledger.Transaction) bool { return t.Hold != nil },
	"hold_end":      func(t *ledger.Transaction) bool { return t.HoldEnd != nil },
	"schedule":      func(t *ledger.Transaction) bool { return t.Schedule != nil },
	"schedule_end":  func(t *ledger.Transaction) bool { return t.ScheduleEnd != nil },
	"occurrence":    func(t *ledger.Transaction) bool { return t.Occurrence != nil },
	"asset":         func(t *ledger.Transaction) bool { return t.Asset != nil },
	"account_terms": func(t *ledger.Transaction) bool { return t.Account != nil },
	"policy":        func(t *ledger.Transaction) bool { return t.Policy != nil },
	"operators":     func(t *ledger.Transaction) bool { return t.Charter != nil },
	"members":       func(t *ledger.Transaction) bool { return t.Change != nil },
	"book":          func(t *ledger.Transaction) bool { return t.Book != nil },
	"cancellation":  func(t *ledger.Transaction) bool { return t.Cancellation != nil },
	"verdict":       func(t *ledger.Transaction) bool { return t.Verdict != nil },
	"arrival":       func(t *ledger.Transaction) bool { return t.Arrival != nil },
}

// listingFilter chooses transactions. What is empty matches any.
type listingFilter struct {
	kind         func(t *ledger.Transaction) bool
	status       string
	organisation ledger.OrganisationName
	asset        ledger.AssetName
	least, most  *ledger.Amount
	note         string // in small letters
	record       ledger.RecordKey
	hold         *ledger.Hash
	once         bool
	verdicts     bool
	crossings    bool
	with         *ledger.ShardID
}

// newListingFilter returns the filter of a request.
func newListingFilter(request *ledgerdv1.ListTransactionsRequest) (*listingFilter, error) {
	filter := &listingFilter{status: request.GetStatus(),
		organisation: ledger.OrganisationName(request.GetOrganisation()),
		asset:        ledger.AssetName(request.GetAsset()),
		note:         strings.ToLower(request.GetNote()),
		record:       ledger.RecordKey(request.GetRecord()),
		once:         request.GetOnce() || request.Shard == nil}
	if request.WithShard != nil {
		shard := ledger.ShardID(min(request.GetWithShard(), ledger.MaxShards))
		filter.with = &shard
	}
	switch kind := request.GetKind(); kind {
	case "":
	case "crossing":
		filter.crossings = true
	default:
		if filter.kind = listedKinds[kind]; filter.kind == nil {
			return nil, invalid("kind: there is no kind %.40q of transactions", kind)
		}
		filter.verdicts = kind == "verdict" || kind == "arrival"
	}
	switch filter.status {
	case "", "applied", "failed", "waiting":
	default:
		return nil, invalid("status: applied, failed or waiting, not %.40q", filter.status)
	}
	for _, part := range []struct {
		name  string
		empty bool
		check func() error
	}{{"organisation", filter.organisation == "", filter.organisation.Validate},
		{"asset", filter.asset == "", filter.asset.Validate},
		{"record", filter.record == "", filter.record.Validate}} {
		if part.empty {
			continue
		}
		if err := part.check(); err != nil {
			return nil, invalid("%s: %w", part.name, err)
		}
	}
	if len(filter.note) > ledger.MaxNote {
		return nil, invalid("note: at most %d bytes", ledger.MaxNote)
	}
	var err error
	if filter.least, err = parseBound("min_amount", request.GetMinAmount()); err != nil {
		return nil, err
	}
	if filter.most, err = parseBound("max_amount", request.GetMaxAmount()); err != nil {
		return nil, err
	}
	if hex := request.GetHoldHex(); hex != "" {
		id, err := ledger.ParseHash(hex)
		if err != nil {
			return nil, invalid("hold_hex: %w", err)
		}
		filter.hold = &id
	}
	return filter, nil
}

// parseBound reads a bound of amounts without their signs, or returns nil for none.
func parseBound(name, text string) (*ledger.Amount, error) {
	if text == "" {
		return nil, nil
	}
	amount, err := ledger.ParseAmount(text)
	if err == nil && amount.Sign() < 0 {
		return nil, invalid("%s: amounts are compared without their signs", name)
	}
	if err != nil {
		return nil, invalid("%s: %w", name, err)
	}
	return &amount, nil
}

// isListed reports whether an entry belongs into the list: what users signed, and of several
// shards' entries of a transaction the one of the lowest shard; with the wanted shard, if there is
// one.
func (f *listingFilter) isListed(opened *store.Store, block *ledger.Block, index int,
	entry *ledger.Entry) bool {
	if entry.Result.Code == ledger.Relayed {
		return false
	}
	t := entry.Transaction()
	if t.Verdict != nil || t.Arrival != nil {
		return f.verdicts && (f.with == nil || t.Verdict != nil && t.Verdict.Shard == *f.with)
	}
	if !f.once && !f.crossings && f.with == nil {
		return true
	}
	shards := []ledger.ShardID{opened.Shard()}
	if opened.ShardTree() != nil {
		shards = opened.Destinations(block, index)
	}
	return !(f.once && slices.Min(append(shards, ledger.MaxShards)) != opened.Shard()) &&
		!(f.crossings && len(shards) < 2) &&
		(f.with == nil || slices.Contains(shards, *f.with))
}

// hasStatus reports whether a status is the wanted one.
func (f *listingFilter) hasStatus(status *report.Status) bool {
	switch f.status {
	case "applied":
		return status.Outcome == report.OutcomeExecuted
	case "failed":
		return status.Outcome == report.OutcomeFailed
	case "waiting":
		return status.Outcome == report.OutcomeWaiting
	}
	return true
}

// matches reports whether an entry's transaction matches.
func (f *listingFilter) matches(entry *ledger.Entry) bool {
	t := entry.Transaction()
	return (f.kind == nil || f.kind(t)) &&
		(f.hold == nil || entry.ID == *f.hold || t.HoldEnd != nil && t.HoldEnd.Hold == *f.hold) &&
		(f.record == "" || slices.ContainsFunc(t.Records, func(record ledger.Record) bool {
			return record.Key == f.record
		})) &&
		(f.organisation == "" || listedConcerns(f.organisation, t)) && f.matchesAmount(t) &&
		(f.note == "" || strings.Contains(strings.ToLower(string(t.Note)), f.note))
}

// matchesAmount reports whether a posting or a hold of the asset is within the bounds.
func (f *listingFilter) matchesAmount(t *ledger.Transaction) bool {
	if f.asset == "" && f.least == nil && f.most == nil {
		return true
	}
	within := func(asset ledger.AssetName, amount ledger.Amount) bool {
		if amount.Sign() < 0 {
			amount = ledger.Amount{}.Minus(amount)
		}
		return (f.asset == "" || asset == f.asset) &&
			(f.least == nil || amount.Compare(*f.least) >= 0) &&
			(f.most == nil || amount.Compare(*f.most) <= 0)
	}
	return t.Hold != nil && within(t.Hold.Asset, t.Hold.Amount) ||
		slices.ContainsFunc(t.Postings, func(posting ledger.Posting) bool {
			return within(posting.Asset, posting.Amount)
		})
}

// listedConcerns reports whether an organisation signs a transaction first, or something of it is
// concerned: an account, a record, a hold, or terms that it guards.
func listedConcerns(name ledger.OrganisationName, t *ledger.Transaction) bool {
	return transactionConcerns(string(name), t) ||
		slices.ContainsFunc(t.Openings, func(opening ledger.Opening) bool {
			return opening.Account.Organisation() == name
		}) || slices.ContainsFunc(t.Records, func(record ledger.Record) bool {
		return record.Key.Organisation() == name
	}) || slices.ContainsFunc(t.Registrations, func(one ledger.Registration) bool {
		return one.Name == name
	})
}

// valueIn returns what an entry writes to the record that the filter names.
func (f *listingFilter) valueIn(entry *ledger.Entry) []byte {
	if f.record == "" {
		return nil
	}
	for _, record := range slices.Backward(entry.Transaction().Records) {
		if record.Key == f.record {
			return record.Value
		}
	}
	return nil
}

// ListRecords returns records of this shard by their keys.
func (s *Service) ListRecords(ctx context.Context,
	request *connect.Request[ledgerdv1.ListRecordsRequest]) (
	*connect.Response[ledgerdv1.ListRecordsResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	size, err := PageSize(request.Msg.GetPageSize(), RecordsPage)
	if err != nil {
		return nil, err
	}
	prefix, after := request.Msg.GetPrefix(), request.Msg.GetPageToken()
	if len(prefix) > ledger.MaxAccountPath {
		return nil, invalid("prefix: at most %d characters", ledger.MaxAccountPath)
	}
	if len(after) > ledger.MaxAccountPath || !strings.HasPrefix(after, prefix) && after != "" {
		return nil, badToken()
	}
	opened := s.backend.Store()
	records, next, more, err := opened.Records(prefix, ledger.RecordKey(after), size)
	if err != nil {
		return nil, s.failure(ctx, "reading the records", err)
	}
	answer := &ledgerdv1.ListRecordsResponse{}
	for i := range records {
		record := &records[i]
		if !opened.LivesHere(record.Key.Organisation()) {
			continue // it has moved, or has not arrived yet
		}
		answer.Records = append(answer.Records, &ledgerdv1.ListedRecord{
			Record: &ledgerdv1.Record{Key: string(record.Key), Value: record.Value},
			Height: uint64(record.Height), TimeMs: uint64(record.Time),
			TransactionIdHex: record.ID.String(), Shard: uint32(opened.Shard())})
	}
	if more {
		answer.NextPageToken = string(next)
	}
	return connect.NewResponse(answer), nil
}
