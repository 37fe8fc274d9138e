package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetNode returns the state of a node of the named shard.
func (r *router) GetNode(ctx context.Context, request *connect.Request[ledgerdv1.GetNodeRequest]) (
	*connect.Response[ledgerdv1.GetNodeResponse], error) {
	return inChain(ctx, r, request, r.Service.GetNode, client.GetNode)
}

// GetCluster returns the named shard as one of its nodes sees it.
func (r *router) GetCluster(ctx context.Context,
	request *connect.Request[ledgerdv1.GetClusterRequest]) (
	*connect.Response[ledgerdv1.GetClusterResponse], error) {
	return inChain(ctx, r, request, r.Service.GetCluster, client.GetCluster)
}

// GetGenesis returns the genesis of the named shard's chain.
func (r *router) GetGenesis(ctx context.Context,
	request *connect.Request[ledgerdv1.GetGenesisRequest]) (
	*connect.Response[ledgerdv1.GetGenesisResponse], error) {
	return inChain(ctx, r, request, r.Service.GetGenesis, client.GetGenesis)
}

// GetCertificate returns a certificate of the named shard's chain.
func (r *router) GetCertificate(ctx context.Context,
	request *connect.Request[ledgerdv1.GetCertificateRequest]) (
	*connect.Response[ledgerdv1.GetCertificateResponse], error) {
	return inChain(ctx, r, request, r.Service.GetCertificate, client.GetCertificate)
}

// ListEvidence returns what a node of the named shard keeps against members of that shard.
func (r *router) ListEvidence(ctx context.Context,
	request *connect.Request[ledgerdv1.ListEvidenceRequest]) (
	*connect.Response[ledgerdv1.ListEvidenceResponse], error) {
	return inChain(ctx, r, request, r.Service.ListEvidence, client.ListEvidence)
}

// GetFigures returns what the entries of the named shard's chain are.
func (r *router) GetFigures(ctx context.Context,
	request *connect.Request[ledgerdv1.GetFiguresRequest]) (
	*connect.Response[ledgerdv1.GetFiguresResponse], error) {
	return inChain(ctx, r, request, r.Service.GetFigures, client.GetFigures)
}

// GetSnapshot streams a snapshot of this node's shard. Streams are not passed on.
func (r *router) GetSnapshot(ctx context.Context,
	request *connect.Request[ledgerdv1.GetSnapshotRequest],
	stream *connect.ServerStream[ledgerdv1.GetSnapshotResponse]) error {
	err := r.Service.GetSnapshot(ctx, request, stream)
	if shard, named := otherShard(err); named {
		return connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("this node is of another shard: ask a node of shard %d itself (GetTree "+
				"names them)", shard))
	}
	return err
}

// GetSeed streams the directory with which the chain of an added shard begins. Streams are not
// passed on.
func (r *router) GetSeed(ctx context.Context, request *connect.Request[ledgerdv1.GetSeedRequest],
	stream *connect.ServerStream[ledgerdv1.GetSeedResponse]) error {
	return r.Service.GetSeed(ctx, request, stream)
}

// ListBlocks returns headers of the named shard's chain.
func (r *router) ListBlocks(ctx context.Context,
	request *connect.Request[ledgerdv1.ListBlocksRequest]) (
	*connect.Response[ledgerdv1.ListBlocksResponse], error) {
	return inChain(ctx, r, request, r.Service.ListBlocks, client.ListBlocks)
}

// ReadChain returns whole blocks of the named shard's chain.
func (r *router) ReadChain(ctx context.Context,
	request *connect.Request[ledgerdv1.ReadChainRequest]) (
	*connect.Response[ledgerdv1.ReadChainResponse], error) {
	return inChain(ctx, r, request, r.Service.ReadChain, client.ReadChain)
}

// GetBlock returns a block of the named shard's chain. A hash without a shard may be that of a
// block in any chain.
func (r *router) GetBlock(ctx context.Context,
	request *connect.Request[ledgerdv1.GetBlockRequest]) (
	*connect.Response[ledgerdv1.GetBlockResponse], error) {
	answer, err := inChain(ctx, r, request, r.Service.GetBlock, client.GetBlock)
	if connect.CodeOf(err) == connect.CodeNotFound && request.Msg.Shard == nil &&
		len(request.Msg.GetHash())+len(request.Msg.GetHashHex()) > 0 {
		if found := r.blockElsewhere(ctx, request.Msg); found != nil {
			return connect.NewResponse(found), nil
		}
	}
	return answer, err
}

// blockElsewhere returns the block with a hash from another shard's chain, or nil if no shard has
// it.
func (r *router) blockElsewhere(ctx context.Context,
	request *ledgerdv1.GetBlockRequest) *ledgerdv1.GetBlockResponse {
	found, failures := callAll(ctx, askTime, r.otherShards(), func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.GetBlockResponse], error) {
		return r.shards.Client(shard).GetBlock(ctx, connect.NewRequest(request))
	})
	for i := range found {
		if failures[i] == nil {
			return found[i].Msg
		}
	}
	return nil
}

// GetAccount returns an account from its organisation's home.
func (r *router) GetAccount(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	cut := request.Msg.GetCut()
	if len(cut) == 0 {
		if name := ledger.OrganisationName(request.Msg.GetOrganisation()); name.Validate() == nil {
			if shard, elsewhere := r.home(name); elsewhere {
				return passOn(ctx, r, shard, request.Msg, client.GetAccount)
			}
		} else if shard, elsewhere := r.homeOfPath(request.Msg.GetAccount()); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.GetAccount)
		}
		return r.Service.GetAccount(ctx, request)
	}
	// The home may be known only once this chain is there.
	at, err := r.ReachCut(ctx, request.Peer().Addr, cut)
	if err != nil {
		return nil, err
	}
	path, err := ledger.ParseAccountPath(request.Msg.GetAccount())
	if err != nil || path.Organisation() == ledger.Operator {
		return r.AccountAtCut(ctx, request.Msg.GetAccount(), at) // says what is wrong
	}
	err = connect.NewError(connect.CodeNotFound, fmt.Errorf("no account %s is open at the cut: "+
		"its shard was added to the book later", path))
	for _, shard := range r.HomesAtCut(path.Organisation(), at) {
		if !atCut(shard, cut) {
			continue
		}
		var answer *connect.Response[ledgerdv1.GetAccountResponse]
		if answer, err = r.accountAtCut(ctx, shard, request.Msg, at); connect.CodeOf(err) !=
			connect.CodeNotFound {
			return answer, err
		}
	}
	return nil, err
}

// accountAtCut returns an account from a shard where its organisation may have lived at a cut.
func (r *router) accountAtCut(ctx context.Context, shard ledger.ShardID,
	request *ledgerdv1.GetAccountRequest, at api.Reached) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	if shard == r.shards.Own() {
		return r.AccountAtCut(ctx, request.GetAccount(), at)
	}
	answer, err := passOn(ctx, r, shard, request, client.GetAccount)
	if err == nil && !answer.Msg.GetAtCut() {
		return nil, knowsNoCuts(shard)
	}
	return answer, err
}

// GetAccountProof returns the proof of what an account has from its organisation's home.
func (r *router) GetAccountProof(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAccountProofRequest]) (
	*connect.Response[ledgerdv1.GetAccountProofResponse], error) {
	if shard, elsewhere := r.homeOfPath(request.Msg.GetAccount()); elsewhere {
		return passOn(ctx, r, shard, request.Msg, client.GetAccountProof)
	}
	return r.Service.GetAccountProof(ctx, request)
}

// ListHistory returns the changes of an account from its organisation's home.
func (r *router) ListHistory(ctx context.Context,
	request *connect.Request[ledgerdv1.ListHistoryRequest]) (
	*connect.Response[ledgerdv1.ListHistoryResponse], error) {
	if _, err := api.PageSize(request.Msg.GetPageSize(), api.HistoryPage); err != nil {
		return nil, err
	}
	if request.Msg.Shard != nil {
		return inChain(ctx, r, request, r.Service.ListHistory, client.ListHistory)
	}
	if shard, elsewhere := r.homeOfPath(request.Msg.GetAccount()); elsewhere {
		return passOn(ctx, r, shard, request.Msg, client.ListHistory)
	}
	return r.Service.ListHistory(ctx, request)
}

// GetRecord returns a record's value from its organisation's home.
func (r *router) GetRecord(ctx context.Context,
	request *connect.Request[ledgerdv1.GetRecordRequest]) (
	*connect.Response[ledgerdv1.GetRecordResponse], error) {
	if key := ledger.RecordKey(request.Msg.GetKey()); key.Validate() == nil {
		if shard, elsewhere := r.home(key.Organisation()); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.GetRecord)
		}
	}
	return r.Service.GetRecord(ctx, request)
}

// GetNonce returns the next sequence number of a nonce stream from the organisation's home.
func (r *router) GetNonce(ctx context.Context,
	request *connect.Request[ledgerdv1.GetNonceRequest]) (
	*connect.Response[ledgerdv1.GetNonceResponse], error) {
	if name := ledger.OrganisationName(request.Msg.GetOrganisation()); name.Validate() == nil {
		if shard, elsewhere := r.home(name); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.GetNonce)
		}
	}
	return r.Service.GetNonce(ctx, request)
}

// GetOrganisation returns an organisation. All shards know it. Only its home knows whether it has
// arrived, if it moved; if that does not answer, the rest is the answer.
func (r *router) GetOrganisation(ctx context.Context,
	request *connect.Request[ledgerdv1.GetOrganisationRequest]) (
	*connect.Response[ledgerdv1.GetOrganisationResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetName())
	if name.Validate() == nil && len(r.backend.Store().Moves(name)) > 0 {
		if shard, elsewhere := r.home(name); elsewhere {
			return r.organisationThatMoved(ctx, shard, request)
		}
	}
	return r.Service.GetOrganisation(ctx, request)
}

// organisationThatMoved returns an organisation whose home is another shard, to which it moved.
func (r *router) organisationThatMoved(ctx context.Context, home ledger.ShardID,
	request *connect.Request[ledgerdv1.GetOrganisationRequest]) (
	*connect.Response[ledgerdv1.GetOrganisationResponse], error) {
	answer, err := r.Service.GetOrganisation(ctx, request)
	if err != nil {
		return nil, err
	}
	known := answer.Msg.GetOrganisation()
	known.ArrivalUnknown = true
	if r.allHeard([]ledger.ShardID{home}) != nil {
		return answer, nil
	}
	bounded, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	there, err := r.shards.Client(home).GetOrganisation(bounded, connect.NewRequest(request.Msg))
	if failed := api.ContextError(ctx); failed != nil {
		return nil, failed
	}
	if told := there; err == nil && told.Msg.GetOrganisation().GetShard() == uint32(home) {
		known.Moving, known.ArrivalUnknown = told.Msg.GetOrganisation().GetMoving(), false
	}
	return answer, nil
}

// GetUse returns what an organisation keeps at its home.
func (r *router) GetUse(ctx context.Context, request *connect.Request[ledgerdv1.GetUseRequest]) (
	*connect.Response[ledgerdv1.GetUseResponse], error) {
	if name := ledger.OrganisationName(request.Msg.GetOrganisation()); name.Validate() == nil {
		if shard, elsewhere := r.home(name); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.GetUse)
		}
	}
	return r.Service.GetUse(ctx, request)
}

// ListAccounts returns accounts of the named shard, or of all shards.
func (r *router) ListAccounts(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	if len(request.Msg.GetCut()) > 0 {
		return r.accountsAtCut(ctx, request)
	}
	here, err := inChain(ctx, r, request, r.Service.ListAccounts, client.ListAccounts)
	if err != nil || request.Msg.Shard != nil {
		return here, err
	}
	size, err := api.PageSize(request.Msg.GetPageSize(), api.AccountsPage)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(r.accountsEverywhere(ctx, request.Msg, here.Msg, size)), nil
}

// shardsOfPrefix returns the shards that may have accounts with a prefix, this one first.
func (r *router) shardsOfPrefix(prefix string) []ledger.ShardID {
	if name, whole := organisationOf(prefix); whole {
		return []ledger.ShardID{r.backend.Store().HomeShard(name)}
	}
	return append([]ledger.ShardID{r.shards.Own()}, r.otherShards()...)
}

// shardsAtCut is shardsOfPrefix for a list at a cut.
func (r *router) shardsAtCut(prefix string, at api.Reached) []ledger.ShardID {
	if name, whole := organisationOf(prefix); whole {
		homes := r.HomesAtCut(name, at)
		slices.Sort(homes)
		return slices.Compact(homes)
	}
	return r.shardsOfPrefix(prefix)
}

// organisationOf returns the organisation of a prefix that has its whole name. Such a prefix
// concerns its home only.
func organisationOf(prefix string) (name ledger.OrganisationName, whole bool) {
	text, _, whole := strings.Cut(prefix, ":")
	name = ledger.OrganisationName(text)
	return name, whole && name.Validate() == nil
}

// accountsEverywhere lists accounts of all shards that may have some with the prefix, and names the
// shards that did not answer. It merges this shard's page with those of the others.
func (r *router) accountsEverywhere(ctx context.Context, request *ledgerdv1.ListAccountsRequest,
	here *ledgerdv1.ListAccountsResponse, size int) *ledgerdv1.ListAccountsResponse {
	shards := r.shardsOfPrefix(request.GetPrefix())
	pages, failures := callAll(ctx, askTime,
		shards, func(ctx context.Context, shard ledger.ShardID) (*ledgerdv1.ListAccountsResponse,
			error) {
			if shard == r.shards.Own() {
				return here, nil
			}
			return r.accountsOf(ctx, shard, request)
		})
	changes := r.catchUp(ctx, request, shards, pages, failures)
	if name, whole := organisationOf(request.GetPrefix()); whole &&
		r.backend.Store().HomeShard(name) != shards[0] {
		failures[0] = errBehind // this chain learned only now that it has moved away from there
	}
	var unanswered []uint32
	var answered []*ledgerdv1.ListAccountsResponse
	for i, page := range pages {
		if failures[i] != nil {
			unanswered = append(unanswered, uint32(shards[i]))
			continue
		}
		answered = append(answered, page)
	}
	for _, shard := range r.shardsOfPrefix(request.GetPrefix()) {
		if !slices.Contains(shards, shard) {
			unanswered = append(unanswered, uint32(shard)) // it is new, and was not asked
		}
	}
	answer := mergeAccounts(answered, size)
	slices.Sort(unanswered)
	answer.UnansweredShards, answer.BookChanges = unanswered, changes
	return answer
}

// errBehind reports that this node does not know all changes of the book that another one knows.
var errBehind = errors.New("this node's chain is behind")

// catchUpTime is how long a list waits for this node's own chain, which others may be ahead of for
// a moment.
const catchUpTime = 300 * time.Millisecond

// catchUp asks the shards again whose pages are of chains with fewer changes of the book than this
// node's. Otherwise an organisation could be missing without a word that has left one shard as its
// chain says, and of which the other one has not heard. A shard that has fewer does not answer, and
// neither does one that has more: its page may lack what this node looks for elsewhere. So a member
// that makes up a number cuts short its own shard only. catchUp returns the number that counts.
func (r *router) catchUp(ctx context.Context, request *ledgerdv1.ListAccountsRequest,
	shards []ledger.ShardID, pages []*ledgerdv1.ListAccountsResponse, failures []error) uint64 {
	claimed := uint64(0)
	for i := range pages {
		if failures[i] == nil {
			claimed = max(claimed, pages[i].GetBookChanges())
		}
	}
	most := r.changesBy(ctx, claimed)
	for i := range pages {
		if failures[i] == nil && pages[i].GetBookChanges() > most {
			failures[i] = errBehind
		}
	}
	var behind []ledger.ShardID
	for i, shard := range shards {
		if failures[i] == nil && pages[i].GetBookChanges() < most {
			behind = append(behind, shard)
		}
	}
	again := &ledgerdv1.ListAccountsRequest{Prefix: request.GetPrefix(),
		PageSize: request.GetPageSize(), PageToken: request.GetPageToken(), BookChanges: most}
	newer, failed := callAll(ctx, askTime, behind, func(ctx context.Context,
		shard ledger.ShardID) (*ledgerdv1.ListAccountsResponse, error) {
		if shard != r.shards.Own() {
			return r.accountsOf(ctx, shard, again)
		}
		answer, err := r.Service.ListAccounts(ctx, connect.NewRequest(again))
		if err != nil {
			return nil, err
		}
		return answer.Msg, nil
	})
	for i, shard := range behind {
		at := slices.Index(shards, shard)
		pages[at], failures[at] = newer[i], failed[i]
	}
	return most
}

// changesBy returns how many changes of the book this node's chain has, once it has so many, or
// after catchUpTime.
func (r *router) changesBy(ctx context.Context, claimed uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	for {
		changes := r.backend.Store().BookChanges()
		if changes >= claimed {
			return changes
		}
		select {
		case <-ctx.Done():
			return changes
		case <-time.After(catchUpTime / 20):
		}
	}
}

// accountsOf returns a page of accounts of another shard. The member that answers may lie, but only
// about accounts of its own shard: its page must not send the caller back, nor cut others short.
func (r *router) accountsOf(ctx context.Context, shard ledger.ShardID,
	request *ledgerdv1.ListAccountsRequest) (*ledgerdv1.ListAccountsResponse, error) {
	answer, err := r.shards.Client(shard).ListAccounts(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	next := answer.Msg.GetNextPageToken()
	if next == "" {
		return answer.Msg, nil
	}
	last := request.GetPageToken()
	for _, account := range answer.Msg.GetAccounts() {
		last = max(last, account.GetAccount())
	}
	if next < last || next == request.GetPageToken() {
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("a node of shard %d "+
			"answered with accounts up to %s, and says that it ended with %s: ask another node",
			shard, last, next))
	}
	return answer.Msg, nil
}

// mergeAccounts merges pages of accounts of different shards, and returns the first accounts. A
// page with a token is complete up to the path that is its token.
func mergeAccounts(pages []*ledgerdv1.ListAccountsResponse,
	size int) *ledgerdv1.ListAccountsResponse {
	answer := &ledgerdv1.ListAccountsResponse{}
	last := "" // the path up to which all pages are complete, if not to the end
	for _, page := range pages {
		answer.Accounts = append(answer.Accounts, page.GetAccounts()...)
		answer.MovingOrganisations = append(answer.MovingOrganisations,
			page.GetMovingOrganisations()...)
		if token := page.GetNextPageToken(); token != "" && (last == "" || token < last) {
			last = token
		}
	}
	slices.SortFunc(answer.Accounts, func(a, b *ledgerdv1.Account) int {
		return strings.Compare(a.GetAccount(), b.GetAccount())
	})
	if last != "" {
		answer.Accounts = slices.DeleteFunc(answer.Accounts, func(a *ledgerdv1.Account) bool {
			return a.GetAccount() > last
		})
	}
	if len(answer.Accounts) > size {
		answer.Accounts = answer.Accounts[:size]
		last = answer.Accounts[size-1].GetAccount()
	}
	answer.NextPageToken = last
	slices.Sort(answer.MovingOrganisations)
	answer.MovingOrganisations = slices.Compact(answer.MovingOrganisations)
	answer.MovingOrganisations = answer.MovingOrganisations[:min(len(answer.MovingOrganisations),
		api.MaxMovingNamed)]
	return answer
}

// Search finds what a person typed, in all shards: first the best hit of each shard, then the
// second, and so on. It names the shards that did not answer.
func (r *router) Search(ctx context.Context, request *connect.Request[ledgerdv1.SearchRequest]) (
	*connect.Response[ledgerdv1.SearchResponse], error) {
	here, err := r.Service.Search(ctx, request)
	if err != nil {
		return nil, err
	}
	shards := r.otherShards()
	told, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.SearchResponse], error) {
		return r.shards.Client(shard).Search(ctx, connect.NewRequest(request.Msg))
	})
	answer := &ledgerdv1.SearchResponse{}
	lists := [][]*ledgerdv1.SearchHit{here.Msg.GetHits()}
	for i, shard := range shards {
		if failures[i] != nil {
			answer.UnansweredShards = append(answer.UnansweredShards, uint32(shard))
			continue
		}
		lists = append(lists, told[i].Msg.GetHits())
	}
	answer.Hits = mergeHits(lists)
	return connect.NewResponse(answer), nil
}

// mergeHits takes hits from the lists in turn, each once.
func mergeHits(lists [][]*ledgerdv1.SearchHit) (hits []*ledgerdv1.SearchHit) {
	seen := make(map[string]bool)
	for place := range api.MaxHits {
		for _, list := range lists {
			if place >= len(list) || len(hits) == api.MaxHits {
				continue
			}
			hit := list[place]
			key := hit.GetKind() + " " + hit.GetKey()
			if hit.GetKind() == "block" { // each chain has a block of this height
				key = fmt.Sprint(hit.GetShard(), " ", key)
				hit.Label += fmt.Sprintf(" of shard %d", hit.GetShard())
			}
			if !seen[key] {
				seen[key] = true
				hits = append(hits, hit)
			}
		}
	}
	return hits
}
