package route

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// errOutOfOrder reports that a node of another shard answered with a page that does not go on.
var errOutOfOrder = errors.New("a page that does not go on")

// ListTransactions returns transactions of the named shard, or of all shards by time.
func (r *router) ListTransactions(ctx context.Context,
	request *connect.Request[ledgerdv1.ListTransactionsRequest]) (
	*connect.Response[ledgerdv1.ListTransactionsResponse], error) {
	here, err := inChain(ctx, r, request, r.Service.ListTransactions, client.ListTransactions)
	if err != nil || request.Msg.Shard != nil {
		return here, err
	}
	size, err := api.PageSize(request.Msg.GetPageSize(), api.TransactionsPage)
	if err != nil {
		return nil, err
	}
	after, err := api.ParseListedKey(request.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	list := listing{after: after, descending: !request.Msg.GetAscending()}
	shards := r.otherShards()
	others, failures := callAll(ctx, r.Options().MaxReadTime/3, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.ListTransactionsResponse], error) {
		asked := proto.CloneOf(request.Msg)
		number := uint32(shard)
		asked.Shard, asked.Once = &number, true
		return r.shards.Client(shard).ListTransactions(ctx, connect.NewRequest(asked))
	})
	if err := list.add(r.shards.Own(), here.Msg); err != nil {
		return nil, err
	}
	merged := &ledgerdv1.ListTransactionsResponse{}
	for i, shard := range shards {
		if failures[i] != nil || list.add(shard, others[i].Msg) != nil {
			merged.UnansweredShards = append(merged.UnansweredShards, uint32(shard))
		}
	}
	var next *api.ListedKey
	if merged.Transactions, next = list.page(size); next != nil {
		merged.NextPageToken, merged.ReachedTimeMs = next.Token(), uint64(next.Time)
	}
	return connect.NewResponse(merged), nil
}

// listing merges pages of transactions of several shards.
type listing struct {
	after      *api.ListedKey // the key after which the pages begin
	descending bool
	entries    []listedEntry
	end        *api.ListedKey // how far all pages are complete, if not to the end
}

type listedEntry struct {
	key    api.ListedKey
	listed *ledgerdv1.ListedTransaction
}

func (l *listing) compare(a, b api.ListedKey) int {
	if l.descending {
		a, b = b, a
	}
	return a.Compare(b)
}

// add adds a page of a shard. The member that answers may lie, but only about its own shard: its
// page must neither send the caller back nor show transactions as those of others.
func (l *listing) add(shard ledger.ShardID, page *ledgerdv1.ListTransactionsResponse) error {
	end, err := api.ParseListedKey(page.GetNextPageToken())
	if err != nil {
		return err
	}
	var entries []listedEntry
	for _, listed := range page.GetTransactions() {
		status := listed.GetTransaction().GetStatus()
		if status == nil {
			return errOutOfOrder
		}
		status.Shard = uint32(shard)
		key := api.KeyOfListed(listed, shard)
		if l.after != nil && l.compare(key, *l.after) <= 0 ||
			end != nil && l.compare(key, *end) > 0 {
			return errOutOfOrder
		}
		entries = append(entries, listedEntry{key, listed})
	}
	if end != nil {
		if end.Shard != shard || l.after != nil && l.compare(*end, *l.after) <= 0 {
			return errOutOfOrder
		}
		if l.end == nil || l.compare(*end, *l.end) < 0 {
			l.end = end
		}
	}
	l.entries = append(l.entries, entries...)
	return nil
}

// page returns the first transactions of all pages, and the key after which the next page begins,
// or nil if this is the last.
func (l *listing) page(size int) (page []*ledgerdv1.ListedTransaction, next *api.ListedKey) {
	slices.SortFunc(l.entries, func(a, b listedEntry) int { return l.compare(a.key, b.key) })
	next = l.end
	for i, entry := range l.entries {
		if l.end != nil && l.compare(entry.key, *l.end) > 0 {
			break
		}
		if len(page) == size {
			return page, &l.entries[i-1].key
		}
		page = append(page, entry.listed)
	}
	return page, next
}

// ListRecords returns records of the named shard, of the home of the prefix's organisation, or of
// all shards, by key.
func (r *router) ListRecords(ctx context.Context,
	request *connect.Request[ledgerdv1.ListRecordsRequest]) (
	*connect.Response[ledgerdv1.ListRecordsResponse], error) {
	if name, whole := organisationOf(request.Msg.GetPrefix()); whole && request.Msg.Shard == nil {
		if shard, elsewhere := r.home(name); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.ListRecords)
		}
		return r.Service.ListRecords(ctx, request)
	}
	here, err := inChain(ctx, r, request, r.Service.ListRecords, client.ListRecords)
	if err != nil || request.Msg.Shard != nil {
		return here, err
	}
	size, err := api.PageSize(request.Msg.GetPageSize(), api.RecordsPage)
	if err != nil {
		return nil, err
	}
	shards := r.otherShards()
	others, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.ListRecordsResponse], error) {
		asked := proto.CloneOf(request.Msg)
		number := uint32(shard)
		asked.Shard = &number
		return r.shards.Client(shard).ListRecords(ctx, connect.NewRequest(asked))
	})
	pages := []*ledgerdv1.ListRecordsResponse{here.Msg}
	merged := &ledgerdv1.ListRecordsResponse{}
	for i, shard := range shards {
		if failures[i] != nil || !goesOn(others[i].Msg, request.Msg.GetPageToken()) {
			merged.UnansweredShards = append(merged.UnansweredShards, uint32(shard))
		} else {
			pages = append(pages, others[i].Msg)
		}
	}
	merged.Records, merged.NextPageToken = mergeRecords(pages, size)
	return connect.NewResponse(merged), nil
}

// goesOn reports whether a page of another shard's member is after the one before, and complete up
// to its token.
func goesOn(page *ledgerdv1.ListRecordsResponse, after string) bool {
	end := page.GetNextPageToken()
	return (end == "" || end > after) && !slices.ContainsFunc(page.GetRecords(),
		func(each *ledgerdv1.ListedRecord) bool {
			key := each.GetRecord().GetKey()
			return key <= after || end != "" && key > end
		})
}

// mergeRecords merges pages by key. What is after the end of a page that goes on is left to the
// next one.
func mergeRecords(pages []*ledgerdv1.ListRecordsResponse, size int) (
	records []*ledgerdv1.ListedRecord, next string) {
	for _, page := range pages {
		records = append(records, page.GetRecords()...)
		if end := page.GetNextPageToken(); end != "" && (next == "" || end < next) {
			next = end
		}
	}
	slices.SortFunc(records, func(a, b *ledgerdv1.ListedRecord) int {
		return cmp.Compare(a.GetRecord().GetKey(), b.GetRecord().GetKey())
	})
	if next != "" {
		records = slices.DeleteFunc(records, func(each *ledgerdv1.ListedRecord) bool {
			return each.GetRecord().GetKey() > next
		})
	}
	if len(records) > size {
		records = records[:size]
		next = records[size-1].GetRecord().GetKey()
	}
	return records, next
}
