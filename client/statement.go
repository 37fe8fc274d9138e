package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// History iterates over the changes of an account.
func (c *Client) History(ctx context.Context, path ledger.AccountPath,
	ascending bool) iter.Seq2[*ledgerdv1.HistoryEntry, error] {
	return c.HistoryOf(ctx, &ledgerdv1.ListHistoryRequest{Account: string(path),
		Ascending: ascending})
}

// HistoryOf iterates over the changes of an account in a period that match filters, which the query
// has. It returns an error if it has some and the node is of a version that ignores them.
func (c *Client) HistoryOf(ctx context.Context,
	query *ledgerdv1.ListHistoryRequest) iter.Seq2[*ledgerdv1.HistoryEntry, error] {
	return pages(func(token string) ([]*ledgerdv1.HistoryEntry, string, error) {
		answer, err := c.historyPage(ctx, query, token)
		return answer.GetEntries(), answer.GetNextPageToken(), err
	})
}

// errNoPeriods reports a node of a version before periods and filters.
var errNoPeriods = errors.New("client: this node or one that it asked is of a version that does " +
	"not know periods and filters of histories: update it, or ask another node")

func (c *Client) historyPage(ctx context.Context, query *ledgerdv1.ListHistoryRequest,
	token string) (*ledgerdv1.ListHistoryResponse, error) {
	plain := proto.Equal(query, &ledgerdv1.ListHistoryRequest{Account: query.GetAccount(),
		Ascending: query.GetAscending()})
	query = proto.CloneOf(query)
	query.PageSize, query.PageToken = iteratorPage, token
	answer, err := call(ctx, c, true, query, service.ListHistory)
	if err == nil && !plain && !answer.GetHasBalances() {
		err = errNoPeriods
	}
	return answer, err
}

// Statement says what an account had at the beginning of a period, what changed it, and what it had
// at the end. Balances are whole: what waiting transactions set aside is in them.
type Statement struct {
	Account          ledger.AccountPath
	Opening, Closing []*ledgerdv1.Balance // by asset, without assets of 0
	Entries          []*ledgerdv1.HistoryEntry
	Totals           []StatementTotal // by asset
	// Height and Time are those of the chain's head when the last page was read. If the period ends
	// later, the statement is not complete yet.
	Height ledger.Height
	Time   ledger.Milliseconds
	// Homes are the shards in whose chains the entries are, in order: the one that the account's
	// organisation lived in first, and so on.
	Homes []StatementHome
}

// StatementHome is a part of a statement's entries.
type StatementHome struct {
	Earlier *uint32 // the shard, if it is an earlier home
	Entries int
}

// StatementTotal is the sum of what came in and what went out. Each change of an entry counts as a
// whole.
type StatementTotal struct {
	Asset   ledger.AssetName
	In, Out *big.Int
	// Decimals are those with which the sums are written, as the node says.
	Decimals int
}

// MaxStatementEntries bounds a statement, which is in memory as a whole.
const MaxStatementEntries = 1_000_000

// Statement reads a statement. The query has the account and the period, and may have an asset; its
// other filters are ignored. If the organisation moved between shards, a period of moments has the
// entries from all of its homes. A period with heights is one of the present home, or of the shard
// that the query names. Statement checks that opening balances and entries make up the closing
// ones, and each balance in between.
func (c *Client) Statement(ctx context.Context,
	query *ledgerdv1.ListHistoryRequest) (*Statement, error) {
	query = &ledgerdv1.ListHistoryRequest{Account: query.GetAccount(), Ascending: true,
		FromHeight: query.GetFromHeight(), ToHeight: query.GetToHeight(),
		FromTimeMs: query.GetFromTimeMs(), ToTimeMs: query.GetToTimeMs(),
		Asset: query.GetAsset(), Shard: query.Shard}
	path, err := ledger.ParseAccountPath(query.GetAccount())
	if err != nil {
		return nil, fmt.Errorf("client: account: %w", err)
	}
	whole, since, err := c.statementPart(ctx, query)
	if err != nil {
		return nil, err
	}
	homes, err := c.earlierHomes(ctx, path, query, since)
	if err != nil {
		return nil, err
	}
	counts := query.GetToTimeMs() == 0 || query.GetToTimeMs() > since
	for _, home := range slices.Backward(homes) {
		earlier := proto.CloneOf(query)
		earlier.Shard = &home.Shard
		part, before, err := c.statementPart(ctx, earlier)
		if CodeOf(err) == connect.CodeNotFound {
			break // it was opened after the move
		}
		if err != nil {
			return nil, fmt.Errorf("reading the history of %s in shard %d, an earlier home: %w",
				path, home.Shard, err)
		}
		part.Height, part.Time = whole.Height, whole.Time
		if counts {
			if err := part.join(whole); err != nil {
				return nil, err
			}
		}
		whole, since = part, before
		if counts = query.GetToTimeMs() == 0 || query.GetToTimeMs() > since; counts &&
			query.GetFromTimeMs() >= since {
			break
		}
	}
	whole.Account = path
	return whole, whole.check()
}

// earlierHomes returns the earlier homes of an account's organisation, if a query needs them. The
// account is in the present home since a moment.
func (c *Client) earlierHomes(ctx context.Context, path ledger.AccountPath,
	query *ledgerdv1.ListHistoryRequest, since uint64) ([]*ledgerdv1.EarlierHome, error) {
	if query.Shard != nil || query.GetFromHeight() != 0 || query.GetToHeight() != 0 ||
		query.GetFromTimeMs() >= since {
		return nil, nil
	}
	organisation, err := c.Organisation(ctx, path.Organisation())
	return organisation.GetEarlierHomes(), err
}

// statementPart reads a statement from one shard. It also returns the moment since which the shard
// has the account.
func (c *Client) statementPart(ctx context.Context, query *ledgerdv1.ListHistoryRequest) (
	part *Statement, since uint64, err error) {
	part = &Statement{}
	for token, first := "", true; ; first = false {
		answer, err := c.historyPage(ctx, query, token)
		if err != nil {
			return nil, 0, err
		}
		if answer.GetBalancesTooFar() {
			return nil, 0, fmt.Errorf("client: finding the balances of %s there takes too much "+
				"work, because so much happened since: ask for a period near the end or the "+
				"beginning, or list the history, which has the changes", query.GetAccount())
		}
		opening := only(query.GetAsset(), answer.GetOpeningBalances())
		if first {
			part.Opening = opening
		} else if !equalBalances(opening, part.Closing) {
			return nil, 0, errors.New("client: the pages of a history do not join: ask again")
		}
		part.Closing = only(query.GetAsset(), answer.GetClosingBalances())
		for _, entry := range answer.GetEntries() {
			entry.Changes = only(query.GetAsset(), entry.GetChanges())
			entry.BalancesAfter = only(query.GetAsset(), entry.GetBalancesAfter())
			part.Entries = append(part.Entries, entry)
		}
		if len(part.Entries) > MaxStatementEntries {
			return nil, 0, fmt.Errorf("client: the period has more than %d entries: ask for a "+
				"shorter one, or list the history page by page", MaxStatementEntries)
		}
		part.Height = ledger.Height(answer.GetHeight())
		part.Time = ledger.Milliseconds(answer.GetTimeMs())
		if token = answer.GetNextPageToken(); token == "" {
			part.Homes = []StatementHome{{Earlier: query.Shard, Entries: len(part.Entries)}}
			return part, answer.GetOpenedTimeMs(), nil
		}
	}
}

// join appends a later part.
func (s *Statement) join(later *Statement) error {
	if !equalBalances(s.Closing, later.Opening) {
		return errors.New("client: the history before a move of the organisation does not join " +
			"the one after it: the clocks of the two shards overlap at the period's end, so take " +
			"one a little longer or shorter")
	}
	s.Entries, s.Closing = append(s.Entries, later.Entries...), later.Closing
	s.Homes = append(s.Homes, later.Homes...)
	if len(s.Entries) > MaxStatementEntries {
		return fmt.Errorf("client: the period has more than %d entries: ask for a shorter one",
			MaxStatementEntries)
	}
	return nil
}

// only returns the balances of an asset, or all if it is "".
func only(asset string, balances []*ledgerdv1.Balance) []*ledgerdv1.Balance {
	if asset == "" {
		return balances
	}
	return slices.DeleteFunc(balances, func(balance *ledgerdv1.Balance) bool {
		return balance.GetAsset() != asset
	})
}

func equalBalances(a, b []*ledgerdv1.Balance) bool {
	return slices.EqualFunc(a, b, func(a, b *ledgerdv1.Balance) bool {
		return a.GetAsset() == b.GetAsset() && a.GetAmount() == b.GetAmount()
	})
}

// check checks the balances against the entries, and sums up what came in and went out.
func (s *Statement) check() error {
	sums, totals := make(map[string]*big.Int), make(map[string]*StatementTotal)
	for _, balance := range s.Opening {
		amount, err := amountOf(balance)
		if err != nil {
			return err
		}
		sums[balance.GetAsset()] = amount
	}
	for _, entry := range s.Entries {
		if len(entry.GetChanges()) != len(entry.GetBalancesAfter()) {
			return fmt.Errorf("client: transaction %s has %d changes and %d balances",
				entry.GetTransactionIdHex(), len(entry.GetChanges()),
				len(entry.GetBalancesAfter()))
		}
		for i, change := range entry.GetChanges() {
			after := entry.GetBalancesAfter()[i]
			amount, err := amountOf(change)
			if err != nil {
				return err
			}
			asset := change.GetAsset()
			if sums[asset] == nil {
				sums[asset] = new(big.Int)
			}
			sums[asset].Add(sums[asset], amount)
			if after.GetAsset() != asset || after.GetAmount() != sums[asset].String() {
				return fmt.Errorf("client: the balance of %s after transaction %s does not follow "+
					"from the one before: do not trust this node", asset,
					entry.GetTransactionIdHex())
			}
			total := totals[asset]
			if total == nil {
				total = &StatementTotal{Asset: ledger.AssetName(asset), In: new(big.Int),
					Out: new(big.Int)}
				totals[asset] = total
			}
			if err := checkDecimals(change.GetDecimals()); err != nil {
				return err
			}
			total.Decimals = max(total.Decimals, int(change.GetDecimals()))
			if amount.Sign() < 0 {
				total.Out.Sub(total.Out, amount)
			} else {
				total.In.Add(total.In, amount)
			}
		}
	}
	for _, balance := range s.Closing {
		if sum := sums[balance.GetAsset()]; sum == nil || sum.String() != balance.GetAmount() {
			return fmt.Errorf("client: the closing balance of %s does not follow from the "+
				"entries: do not trust this node", balance.GetAsset())
		}
		delete(sums, balance.GetAsset())
	}
	for asset, sum := range sums {
		if sum.Sign() != 0 {
			return fmt.Errorf("client: the closing balance of %s is missing: do not trust this "+
				"node", asset)
		}
	}
	for _, total := range totals {
		s.Totals = append(s.Totals, *total)
	}
	slices.SortFunc(s.Totals, func(a, b StatementTotal) int {
		return cmp.Compare(a.Asset, b.Asset)
	})
	return nil
}

func amountOf(balance *ledgerdv1.Balance) (*big.Int, error) {
	if _, err := ledger.ParseAmount(balance.GetAmount()); err != nil {
		return nil, fmt.Errorf("client: an amount of %s: %w", balance.GetAsset(), err)
	}
	amount, _ := new(big.Int).SetString(balance.GetAmount(), 10)
	return amount, nil
}
