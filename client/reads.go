package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

type service = ledgerdv1connect.LedgerServiceClient

// Node returns the node's state.
func (c *Client) Node(ctx context.Context) (*ledgerdv1.NodeState, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetNodeRequest{}, service.GetNode)
	return answer.GetNode(), err
}

// Cluster returns the state of the node's shard as the node sees it.
func (c *Client) Cluster(ctx context.Context) (*ledgerdv1.ClusterState, error) {
	return c.ClusterOf(ctx, nil)
}

// ClusterOf returns the state of a shard, as a node of that shard sees it; nil means the asked
// node's own.
func (c *Client) ClusterOf(ctx context.Context, shard *uint32) (*ledgerdv1.ClusterState, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetClusterRequest{Shard: shard},
		service.GetCluster)
	return answer.GetCluster(), err
}

// Tree returns the tree of the book's shards, and the state of each as far as the node knows it.
func (c *Client) Tree(ctx context.Context) (*ledgerdv1.Tree, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetTreeRequest{}, service.GetTree)
	return answer.GetTree(), err
}

// Genesis returns the identity of the nodes' ledger: its genesis hash, or the book's if that has
// several shards. Every transaction names it, except a change of the members. The client asks for
// it once.
func (c *Client) Genesis(ctx context.Context) (ledger.Hash, error) {
	c.mutex.Lock()
	genesis := c.genesis
	c.mutex.Unlock()
	if !genesis.IsZero() {
		return genesis, nil
	}
	cluster, err := c.Cluster(ctx)
	if err != nil {
		return ledger.Hash{}, err
	}
	identity := cluster.GetBook()
	if len(identity) == 0 {
		identity = cluster.GetGenesisHash()
	}
	if copy(genesis[:], identity) != len(genesis) {
		return ledger.Hash{}, errNoGenesis
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.genesis = genesis
	c.rules = rulesOf(cluster)
	return genesis, nil
}

// errNoGenesis means that an answer lacks the genesis hash, which every ledger has.
var errNoGenesis = errors.New("client: the node returned no genesis hash: is it a ledgerd node?")

// chain returns the genesis hash of the chain of the node's shard, which a change of its members
// names.
func (c *Client) chain(ctx context.Context) (genesis ledger.Hash, err error) {
	cluster, err := c.Cluster(ctx)
	if err != nil {
		return genesis, err
	}
	if copy(genesis[:], cluster.GetGenesisHash()) != len(genesis) {
		return genesis, errNoGenesis
	}
	return genesis, nil
}

// ChainGenesis returns the genesis of the node's chain, after checking its hash.
func (c *Client) ChainGenesis(ctx context.Context) (*ledger.Genesis, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetGenesisRequest{}, service.GetGenesis)
	if err != nil {
		return nil, err
	}
	return checkGenesis(answer)
}

// checkGenesis decodes a genesis that a node sent, and checks its hash.
func checkGenesis(answer *ledgerdv1.GetGenesisResponse) (*ledger.Genesis, error) {
	genesis, err := ledger.DecodeGenesis(answer.GetCanonical())
	if err != nil {
		return nil, fmt.Errorf("client: the node's genesis: %w", err)
	}
	if hash := genesis.Hash(); !bytes.Equal(hash[:], answer.GetHash()) {
		return nil, fmt.Errorf("client: the node's genesis has hash %s, but the node says %x", hash,
			answer.GetHash())
	}
	return genesis, nil
}

// ShardGenesis returns the genesis of a shard's chain, as the node says, after checking its hash.
func (c *Client) ShardGenesis(ctx context.Context, shard ledger.ShardID) (*ledger.Genesis, error) {
	number := uint32(shard)
	answer, err := call(ctx, c, false, &ledgerdv1.GetGenesisRequest{Shard: &number},
		service.GetGenesis)
	if err != nil {
		return nil, err
	}
	return checkGenesis(answer)
}

// Seed returns the directory with which the chain of an added shard begins, after checking it
// against the shard's genesis.
func (c *Client) Seed(ctx context.Context, genesis *ledger.Genesis) ([]byte, error) {
	if len(genesis.Grown) == 0 {
		return nil, fmt.Errorf("client: shard %d was not added while the book ran", genesis.Shard)
	}
	at := c.at(0)
	stream, err := c.services[at].GetSeed(ctx,
		connect.NewRequest(&ledgerdv1.GetSeedRequest{Shard: uint32(genesis.Shard)}))
	if err != nil {
		return nil, c.explain(ctx, c.urls[at], err)
	}
	defer func() { _ = stream.Close() }() // all of it was read, or reading failed
	var seed []byte
	for stream.Receive() {
		seed = append(seed, stream.Msg().GetPart()...)
	}
	if err := stream.Err(); err != nil {
		return nil, c.explain(ctx, c.urls[at], err)
	}
	if hash, want := ledger.SeedHash(seed), genesis.Grown[len(genesis.Grown)-1].Directory; hash !=
		want {
		return nil, fmt.Errorf("client: the node's directory of shard %d has hash %s, and its "+
			"genesis names %s: ask another node", genesis.Shard, hash, want)
	}
	return seed, nil
}

// Snapshot returns a snapshot of the node's store, for store.Restore. The caller closes it.
func (c *Client) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	at := c.at(0)
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.services[at].GetSnapshot(ctx,
		connect.NewRequest(&ledgerdv1.GetSnapshotRequest{}))
	if err != nil {
		cancel()
		return nil, c.explain(ctx, c.urls[at], err)
	}
	return &snapshot{client: c, ctx: ctx, cancel: cancel, address: c.urls[at], stream: stream}, nil
}

// snapshot reads a stream of parts.
type snapshot struct {
	client  *Client
	ctx     context.Context
	cancel  context.CancelFunc
	address string
	stream  *connect.ServerStreamForClient[ledgerdv1.GetSnapshotResponse]
	rest    []byte
}

// Read implements io.Reader.
func (s *snapshot) Read(to []byte) (int, error) {
	for len(s.rest) == 0 {
		if !s.stream.Receive() {
			if err := s.stream.Err(); err != nil {
				return 0, s.client.explain(s.ctx, s.address, err)
			}
			return 0, io.EOF
		}
		s.rest = s.stream.Msg().GetPart()
	}
	count := copy(to, s.rest)
	s.rest = s.rest[count:]
	return count, nil
}

// Close implements io.Closer.
func (s *snapshot) Close() error {
	s.cancel()
	_ = s.stream.Close() // Read has returned its error already
	return nil
}

// Membership returns the members of the chain as of the node's head, with the whole state of the
// shard that the node reports.
func (c *Client) Membership(ctx context.Context) (ledger.Membership, *ledgerdv1.ClusterState,
	error) {
	return c.MembershipOf(ctx, nil)
}

// MembershipOf is Membership for a shard's chain; nil means the asked node's own.
func (c *Client) MembershipOf(ctx context.Context, shard *uint32) (ledger.Membership,
	*ledgerdv1.ClusterState, error) {
	cluster, err := c.ClusterOf(ctx, shard)
	if err != nil {
		return ledger.Membership{}, nil, err
	}
	membership, err := api.MembershipFromProto(cluster)
	if err != nil {
		return ledger.Membership{}, nil,
			fmt.Errorf("client: the node returned no valid members: %w: is its release older?", err)
	}
	return membership, cluster, nil
}

// Transaction returns a transaction by id.
func (c *Client) Transaction(ctx context.Context, id ledger.Hash) (*ledgerdv1.Transaction, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetTransactionRequest{Id: id[:]},
		service.GetTransaction)
	return answer.GetTransaction(), err
}

// Wait returns a transaction once it has reached a level, failed or expired. It asks again until
// ctx ends.
func (c *Client) Wait(ctx context.Context, id ledger.Hash,
	level ledgerdv1.Level) (*ledgerdv1.Transaction, error) {
	for {
		answer, err := callFor(ctx, c, c.options.WaitTime, true,
			&ledgerdv1.WaitTransactionRequest{Id: id[:], Wait: level}, service.WaitTransaction)
		if err != nil {
			return nil, err
		}
		if Reached(answer.GetTransaction().GetStatus(), level) {
			return answer.GetTransaction(), nil
		}
		if err := ctx.Err(); err != nil {
			return answer.GetTransaction(), err
		}
	}
}

// WaitAll waits until transactions have reached a level, failed or expired, and returns their
// statuses in the order of the ids. It asks one node, once: a transaction that this node does not
// know in time has no state, and others may not have reached the level. See Reached.
func (c *Client) WaitAll(ctx context.Context, ids []ledger.Hash,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	request := &ledgerdv1.WaitTransactionsRequest{Wait: level, Ids: make([][]byte, len(ids))}
	for i := range ids {
		request.Ids[i] = ids[i][:]
	}
	answer, _, err := once(ctx, c, c.options.WaitTime, request, service.WaitTransactions)
	if err != nil {
		return nil, err
	}
	if len(answer.GetTransactions()) != len(ids) {
		return nil, fmt.Errorf("client: the node answered %d statuses for %d transactions",
			len(answer.GetTransactions()), len(ids))
	}
	return answer.GetTransactions(), nil
}

// Block returns a block with the first page of its transactions.
func (c *Client) Block(ctx context.Context,
	request *ledgerdv1.GetBlockRequest) (*ledgerdv1.GetBlockResponse, error) {
	return call(ctx, c, false, request, service.GetBlock)
}

// Account returns an account.
func (c *Client) Account(ctx context.Context, path ledger.AccountPath) (*ledgerdv1.Account, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetAccountRequest{Account: string(path)},
		service.GetAccount)
	if err == nil {
		err = checkBalances(answer.GetAccount())
	}
	return answer.GetAccount(), err
}

// AccountByAlias returns the account of an organisation that has an alias. The code of the error is
// NotFound if there is none, or it never had terms.
func (c *Client) AccountByAlias(ctx context.Context, owner ledger.OrganisationName,
	alias string) (*ledgerdv1.Account, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetAccountRequest{Organisation: string(owner),
		Alias: alias}, service.GetAccount)
	found := answer.GetAccount()
	if err == nil {
		err = checkBalances(found)
	}
	if err == nil && (found.GetAlias() != alias || found.GetOrganisation() != string(owner)) {
		err = fmt.Errorf("client: the node answers with %.150q, which has another alias",
			found.GetAccount())
	}
	return found, err
}

// Organisation returns an organisation.
func (c *Client) Organisation(ctx context.Context,
	name ledger.OrganisationName) (*ledgerdv1.Organisation, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetOrganisationRequest{Name: string(name)},
		service.GetOrganisation)
	return answer.GetOrganisation(), err
}

// Home returns the shard where an organisation lives. The code of the error is NotFound if the
// organisation is not registered.
func (c *Client) Home(ctx context.Context, name ledger.OrganisationName) (ledger.ShardID, error) {
	found, err := c.Organisation(ctx, name)
	return ledger.ShardID(found.GetShard()), err
}

// Asset returns a registered asset, with what was issued of it in all shards. The code of the error
// is NotFound for one that is not registered.
func (c *Client) Asset(ctx context.Context, name ledger.AssetName) (*ledgerdv1.Asset, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetAssetRequest{Name: string(name)},
		service.GetAsset)
	if err == nil {
		err = checkDecimals(answer.GetAsset().GetTerms().GetDecimals())
	}
	return answer.GetAsset(), err
}

// AssetAt is Asset as of a cut: the terms of then, and what each chain had issued at the height of
// its place. TermsAtCut is false if the node does not know that; then all is that of the present.
func (c *Client) AssetAt(ctx context.Context, name ledger.AssetName,
	cut []*ledgerdv1.Place) (*ledgerdv1.Asset, error) {
	answer, err := call(ctx, c, true, &ledgerdv1.GetAssetRequest{Name: string(name), Cut: cut},
		service.GetAsset)
	if err == nil {
		err = checkDecimals(answer.GetAsset().GetTerms().GetDecimals())
	}
	if err == nil && !answer.GetAtCut() {
		err = errNoPastAssets
	}
	return answer.GetAsset(), err
}

// errNoPastAssets reports a node of a version before assets at cuts. It would answer with those of
// now.
var errNoPastAssets = errors.New("client: this node or one that it asked is of a version that " +
	"does not know assets at cuts: update it, or ask another node")

// Record returns a record's value and the height of the block that wrote it.
func (c *Client) Record(ctx context.Context, key ledger.RecordKey) (*ledgerdv1.GetRecordResponse,
	error) {
	return call(ctx, c, false, &ledgerdv1.GetRecordRequest{Key: string(key)}, service.GetRecord)
}

// NextSequence returns the next sequence number of a nonce stream.
func (c *Client) NextSequence(ctx context.Context, organisation ledger.OrganisationName,
	stream uint64) (uint64, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetNonceRequest{
		Organisation: string(organisation), Stream: stream}, service.GetNonce)
	return answer.GetNextSequence(), err
}

// Use returns what an organisation keeps in its shard, and how much of it the quotas allow.
func (c *Client) Use(ctx context.Context, organisation ledger.OrganisationName) (use,
	quotas ledger.Quotas, err error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetUseRequest{
		Organisation: string(organisation)}, service.GetUse)
	return api.QuotasFromProto(answer.GetUse()), api.QuotasFromProto(answer.GetQuotas()), err
}

// Search returns the matches for a query that a person typed.
func (c *Client) Search(ctx context.Context, query string) ([]*ledgerdv1.SearchHit, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.SearchRequest{Query: query}, service.Search)
	return answer.GetHits(), err
}

// pages iterates over a list to its end: ask takes a page's token and returns its items and the
// next page's token.
func pages[Item any](ask func(token string) ([]Item, string, error)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for token := ""; ; {
			items, next, err := ask(token)
			if err != nil {
				var none Item
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// iteratorPage is the page size of iterators.
const iteratorPage = 500

// Blocks iterates over the headers from a height on. 0 means the head, or block 1 if ascending.
func (c *Client) Blocks(ctx context.Context, from ledger.Height,
	ascending bool) iter.Seq2[*ledgerdv1.BlockHeader, error] {
	return c.BlocksOf(ctx, nil, from, ascending)
}

// BlocksOf is Blocks for a shard's chain; nil means the asked node's own.
func (c *Client) BlocksOf(ctx context.Context, shard *uint32, from ledger.Height,
	ascending bool) iter.Seq2[*ledgerdv1.BlockHeader, error] {
	return pages(func(token string) ([]*ledgerdv1.BlockHeader, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListBlocksRequest{
			FromHeight: uint64(from), Ascending: ascending, PageSize: iteratorPage,
			PageToken: token, Shard: shard,
		}, service.ListBlocks)
		return answer.GetBlocks(), answer.GetNextPageToken(), err
	})
}

// BlockTransactions iterates over the transactions of a block.
func (c *Client) BlockTransactions(ctx context.Context,
	height ledger.Height) iter.Seq2[*ledgerdv1.TransactionSummary, error] {
	return c.BlockTransactionsOf(ctx, nil, height)
}

// BlockTransactionsOf is BlockTransactions for a block in a shard's chain; nil means the asked
// node's own.
func (c *Client) BlockTransactionsOf(ctx context.Context, shard *uint32,
	height ledger.Height) iter.Seq2[*ledgerdv1.TransactionSummary, error] {
	return pages(func(token string) ([]*ledgerdv1.TransactionSummary, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.GetBlockRequest{
			Block:    &ledgerdv1.GetBlockRequest_Height{Height: uint64(height)},
			PageSize: iteratorPage, PageToken: token, Shard: shard,
		}, service.GetBlock)
		return answer.GetBlock().GetTransactions(), answer.GetNextPageToken(), err
	})
}

// Accounts iterates over the accounts of all shards whose path begins with a prefix, by path. It
// returns an error if a shard does not answer, or an organisation is on its way to another one.
func (c *Client) Accounts(ctx context.Context, prefix string) iter.Seq2[*ledgerdv1.Account, error] {
	return c.AccountsOf(ctx, nil, prefix, nil)
}

// AccountsOf is Accounts for one shard; nil means all. The accounts of shards that do not answer,
// and of organisations that are on their way to another shard, are left out. Then missing gets
// which; if it is nil, that is an error.
func (c *Client) AccountsOf(ctx context.Context, shard *uint32, prefix string,
	missing func(shards []uint32, moving []string)) iter.Seq2[*ledgerdv1.Account, error] {
	return c.AccountsWhere(ctx, shard, prefix, "", "", missing)
}

// AccountsWhere is AccountsOf for the accounts with an indexed metadatum in their terms. The nodes
// look at all accounts with the prefix for it. An empty key selects all of them.
func (c *Client) AccountsWhere(ctx context.Context, shard *uint32, prefix, key, value string,
	missing func(shards []uint32, moving []string)) iter.Seq2[*ledgerdv1.Account, error] {
	return pages(func(token string) ([]*ledgerdv1.Account, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListAccountsRequest{Prefix: prefix,
			PageSize: iteratorPage, PageToken: token, Shard: shard, WhereKey: key,
			WhereValue: value}, service.ListAccounts)
		err = cmp.Or(err, checkBalances(answer.GetAccounts()...))
		unanswered, moving := answer.GetUnansweredShards(), answer.GetMovingOrganisations()
		switch {
		case err != nil || len(unanswered)+len(moving) == 0:
		case missing != nil:
			missing(unanswered, moving)
		case len(unanswered) > 0:
			return nil, "", fmt.Errorf("client: no node of %s answers, so accounts are missing: "+
				"try again", ShardNames(unanswered))
		default:
			return nil, "", fmt.Errorf("client: %s: on the way to another shard, so accounts are "+
				"missing: try again", strings.Join(moving, ", "))
		}
		return withMetadatum(answer.GetAccounts(), key, value), answer.GetNextPageToken(), err
	})
}

// Cut returns one place in the chain of each shard, for AccountAt and AccountsAt: the end of a
// block of the root's chain, and what belongs to it in the others. With nil, the cut has everything
// that is durable at the nodes that are asked. All shards have to answer.
func (c *Client) Cut(ctx context.Context, height *uint64) (*ledgerdv1.GetCutResponse, error) {
	answer, err := call(ctx, c, true, &ledgerdv1.GetCutRequest{Height: height}, service.GetCut)
	if CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("%w: %w", errNoCuts, err)
	}
	return answer, err
}

// CutBefore is Cut for a moment: it has what is durable in blocks with an earlier time. A
// transaction that crosses shards counts in all of them or in none.
func (c *Client) CutBefore(ctx context.Context,
	moment ledger.Milliseconds) (*ledgerdv1.GetCutResponse, error) {
	answer, err := call(ctx, c, true, &ledgerdv1.GetCutRequest{BeforeMs: uint64(moment)},
		service.GetCut)
	if CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("%w: %w", errNoCuts, err)
	}
	if err == nil && answer.GetBeforeMs() != uint64(moment) {
		err = errors.New("client: this node is of a version that does not know cuts of moments: " +
			"update it, ask another node, or name a block")
	}
	return answer, err
}

// errNoCuts reports a node of a version before cuts. It would answer with the balances of now.
var errNoCuts = errors.New("client: this node or one that it asked is of a version that does not " +
	"know cuts: update it, or ask another node")

// AccountAt is Account with the balances at a cut, and the terms and the alias of then. TermsAtCut
// is false if the node does not know those; then they are those of the present.
func (c *Client) AccountAt(ctx context.Context, path ledger.AccountPath,
	cut []*ledgerdv1.Place) (*ledgerdv1.Account, error) {
	answer, err := call(ctx, c, true, &ledgerdv1.GetAccountRequest{Account: string(path), Cut: cut},
		service.GetAccount)
	if err == nil && !answer.GetAtCut() {
		err = errNoCuts
	}
	return answer.GetAccount(), err
}

// AccountsAt is Accounts as AccountAt returns them, at a cut given by the places in the chains.
// So the balances of all accounts add up to zero for each asset, and they are the same at any node
// and at any time.
func (c *Client) AccountsAt(ctx context.Context, prefix string,
	cut []*ledgerdv1.Place) iter.Seq2[*ledgerdv1.Account, error] {
	return pages(func(token string) ([]*ledgerdv1.Account, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListAccountsRequest{Prefix: prefix,
			PageSize: iteratorPage, PageToken: token, Cut: cut}, service.ListAccounts)
		err = cmp.Or(err, checkBalances(answer.GetAccounts()...))
		if err == nil && !answer.GetAtCut() {
			err = errNoCuts
		}
		return answer.GetAccounts(), answer.GetNextPageToken(), err
	})
}

// ShardNames names shards in words, such as "shard 2" or "shards 1, 2".
func ShardNames(shards []uint32) string {
	text := "shard "
	if len(shards) > 1 {
		text = "shards "
	}
	for i, shard := range shards {
		if i > 0 {
			text += ", "
		}
		text += strconv.FormatUint(uint64(shard), 10)
	}
	return text
}

// Organisations iterates over the organisations by name.
func (c *Client) Organisations(ctx context.Context) iter.Seq2[*ledgerdv1.Organisation, error] {
	return pages(func(token string) ([]*ledgerdv1.Organisation, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListOrganisationsRequest{
			PageSize: iteratorPage, PageToken: token}, service.ListOrganisations)
		return answer.GetOrganisations(), answer.GetNextPageToken(), err
	})
}

// Assets iterates over the registered assets in the order of their registrations, with what was
// issued of them in all shards.
func (c *Client) Assets(ctx context.Context) iter.Seq2[*ledgerdv1.Asset, error] {
	return c.AssetsAt(ctx, nil)
}

// AssetsAt is Assets as of a cut, of those that were registered there, as AssetAt returns them.
func (c *Client) AssetsAt(ctx context.Context,
	cut []*ledgerdv1.Place) iter.Seq2[*ledgerdv1.Asset, error] {
	return pages(func(token string) ([]*ledgerdv1.Asset, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListAssetsRequest{PageSize: iteratorPage,
			PageToken: token, Cut: cut}, service.ListAssets)
		for _, asset := range answer.GetAssets() {
			err = cmp.Or(err, checkDecimals(asset.GetTerms().GetDecimals()))
		}
		if err == nil && len(cut) > 0 && !answer.GetAtCut() {
			err = errNoPastAssets
		}
		return answer.GetAssets(), answer.GetNextPageToken(), err
	})
}
