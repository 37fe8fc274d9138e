package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// Bounds of a search. An answer has at most MaxHits hits.
const (
	MaxHits                  = 10
	maxQuery                 = 256
	maxSearchedOrganisations = 256
)

// hits collects the results of a search, each once.
type hits struct {
	list []*ledgerdv1.SearchHit
	seen map[string]bool
}

func (h *hits) full() bool { return len(h.list) >= MaxHits }

func (h *hits) add(kind, key, label string) {
	if h.full() || h.seen[kind+" "+key] {
		return
	}
	h.seen[kind+" "+key] = true
	h.list = append(h.list, &ledgerdv1.SearchHit{Kind: kind, Key: key, Label: label})
}

func (h *hits) addAccount(account *ledger.Account) {
	label := string(account.Path)
	if account.Alias != "" && account.Alias != strings.TrimPrefix(label,
		string(account.Path.Organisation())+":") {
		label += " (" + account.Alias + ")"
	}
	h.add("account", string(account.Path), label)
}

// Search finds what a person typed. Exact matches come first: a height, a hash, an account, an
// organisation. Then come accounts by their name without the organisation, then names that begin
// with the query.
func (s *Service) Search(_ context.Context, request *connect.Request[ledgerdv1.SearchRequest]) (
	*connect.Response[ledgerdv1.SearchResponse], error) {
	query := strings.TrimSpace(request.Msg.GetQuery())
	if query == "" || len(query) > maxQuery {
		return nil, invalid("query: type a height, a hash, an id, an account or an "+
			"organisation, at most %d characters", maxQuery)
	}
	found := &hits{seen: make(map[string]bool)}
	s.searchHeight(found, query)
	s.searchHash(found, query)
	s.searchAccount(found, query)
	s.searchOrganisation(found, query)
	answer := &ledgerdv1.SearchResponse{Hits: found.list}
	for _, hit := range answer.Hits {
		hit.Shard = uint32(s.backend.Store().Shard())
		if hit.GetKind() == "organisation" && s.backend.Store().ShardTree() != nil {
			hit.Shard = uint32(s.backend.Store().HomeShard(ledger.OrganisationName(hit.GetKey())))
			hit.Label = fmt.Sprintf("Organisation of shard %d", hit.Shard)
		}
	}
	return connect.NewResponse(answer), nil
}

func (s *Service) searchHeight(found *hits, query string) {
	digits := strings.NewReplacer(",", "", "_", "", "'", "", " ",
		"").Replace(strings.TrimPrefix(query, "#"))
	height, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || height > uint64(s.backend.Store().Head().Height) {
		return
	}
	found.add("block", strconv.FormatUint(height, 10), fmt.Sprintf("Block %d", height))
}

func (s *Service) searchHash(found *hits, query string) {
	hash, err := ledger.ParseHash(strings.TrimPrefix(strings.ToLower(query), "0x"))
	if err != nil {
		return
	}
	if status, err := s.backend.Status(hash); err == nil &&
		status.Outcome != report.OutcomeUnknown {
		label := "Transaction"
		if status.Height > 0 {
			label = fmt.Sprintf("Transaction in block %d", status.Height)
		}
		found.add("transaction", hash.String(), label)
	}
	if block, err := s.backend.Store().BlockByHash(hash); err == nil {
		found.add("block", strconv.FormatUint(uint64(block.Header.Height), 10),
			fmt.Sprintf("Block %d", block.Header.Height))
	}
}

func (s *Service) searchAccount(found *hits, query string) {
	path, err := ledger.ParseAccountPath(query)
	if err != nil {
		return
	}
	if account, err := s.backend.Store().Account(path); err == nil {
		found.addAccount(&account)
	}
}

// searchOrganisation finds organisations, accounts by their name within any organisation, and names
// that begin with the query.
func (s *Service) searchOrganisation(found *hits, query string) {
	organisations := s.organisations()
	if len(organisations) > maxSearchedOrganisations {
		organisations = organisations[:maxSearchedOrganisations]
	}
	if organisation, known := s.backend.Store().Organisation(
		ledger.OrganisationName(query)); known {
		found.add("organisation", query, fmt.Sprintf("Organisation registered in block %d",
			organisation.Registered))
	}
	for i := range organisations {
		path := ledger.AccountPath(string(organisations[i].Name) + ":" + query)
		if account, err := s.backend.Store().Account(path); err == nil {
			found.addAccount(&account)
		}
	}
	for i := range organisations {
		if name := string(organisations[i].Name); strings.HasPrefix(strings.ToLower(name),
			strings.ToLower(query)) {
			found.add("organisation", name, fmt.Sprintf("Organisation registered in block %d",
				organisations[i].Registered))
		}
	}
	s.searchPrefix(found, query)
	for i := range organisations {
		if found.full() {
			return
		}
		s.searchPrefix(found, string(organisations[i].Name)+":"+query)
	}
}

func (s *Service) searchPrefix(found *hits, prefix string) {
	if found.full() || len(prefix) > ledger.MaxAccountPath {
		return
	}
	accounts, _, _ := s.accountsFrom(prefix, "", MaxHits)
	for i := range accounts {
		found.addAccount(&accounts[i])
	}
}
