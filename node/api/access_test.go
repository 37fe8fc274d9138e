package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/doors"
)

// bearer shows a token with every call.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	if b.token != "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(request)
}

// guarded returns a node of the bank's chain that serves identified callers only, and a client for
// each caller: bank, other, auditor, operator, stranger (a wrong token), nobody.
func guarded(t *testing.T, b *bank) (url string,
	as map[string]ledgerdv1connect.LedgerServiceClient) {
	t.Helper()
	url, tokens := guardedTokens(t, b)
	as = map[string]ledgerdv1connect.LedgerServiceClient{}
	over := overHTTP2(t).Transport
	for name, token := range tokens {
		as[name] = ledgerdv1connect.NewLedgerServiceClient(
			&http.Client{Transport: bearer{over, token}}, url)
	}
	return url, as
}

// guardedTokens is guarded, with the callers' tokens.
func guardedTokens(t *testing.T, b *bank) (url string, tokens map[string]string) {
	t.Helper()
	var file doors.Identities
	tokens = map[string]string{"nobody": "", "stranger": "ledgerd_wrong"}
	for name, role := range map[string]doors.Role{"bank": doors.RoleOrganisation,
		"other": doors.RoleOrganisation, "auditor": doors.RoleAuditor,
		"operator": doors.RoleOperator} {
		token, hash := doors.NewToken()
		identity := doors.Identity{Name: name, Role: role, TokenSHA256: hash}
		if role == doors.RoleOrganisation {
			identity.Organisation = name
		}
		file.Identities, tokens[name] = append(file.Identities, identity), token
	}
	text, err := json.Marshal(file)
	must(t, err)
	path := filepath.Join(t.TempDir(), "identities.json")
	must(t, os.WriteFile(path, text, 0o600))
	gates, err := doors.New(doors.Config{Identities: path,
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return apitest.Serve(t, b.cluster.Node(0), api.Options{Doors: gates}).URL, tokens
}

// TestAccess makes every call as every kind of caller.
func TestAccess(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	id := b.done(transfer("bank:mint", "bank:a", 12))[0]
	url, as := guarded(t, b)
	signed := b.sign(transfer("bank:a", "bank:b", 1))
	bundle, encoded := api.BundleToProto(signed), signed.Encode()
	all := "bank other auditor operator"
	type client = ledgerdv1connect.LedgerServiceClient
	calls := map[string]struct {
		call func(client) error
		may  string
	}{
		"Submit": {func(c client) error {
			_, err := c.Submit(b.context(), connect.NewRequest(
				&ledgerdv1.SubmitRequest{Bundle: bundle}))
			return err
		}, "bank operator"},
		"SubmitMany": {func(c client) error {
			_, err := c.SubmitMany(b.context(), connect.NewRequest(
				&ledgerdv1.SubmitManyRequest{Bundles: []*ledgerdv1.Bundle{bundle}}))
			return err
		}, "bank operator"},
		"DryRun": {func(c client) error {
			answer, err := c.DryRun(b.context(), connect.NewRequest(
				&ledgerdv1.DryRunRequest{Bundle: bundle}))
			if err == nil && len(answer.Msg.GetTransactions()[0].GetBalances()) != 2 &&
				!answer.Msg.GetTransactions()[0].GetOrdered() {
				return errors.New("no balances")
			}
			return err
		}, "bank auditor operator"},
		"SubmitStream": {func(c client) error {
			stream, err := opened(c.SubmitStream(b.context()))
			if err != nil {
				return err
			}
			defer stream.CloseResponse()
			if err := stream.Send(&ledgerdv1.SubmitStreamRequest{Bundle: encoded}); err != nil {
				return err
			}
			answers, err := stream.Receive()
			if refusal := answers.GetAnswers()[0].GetRefusal(); err == nil && refusal != nil {
				return connect.NewError(connect.Code(refusal.GetCode()),
					errors.New(refusal.GetReason()))
			}
			return err
		}, "bank operator"},
		"Prepare": {func(c client) error {
			_, err := c.Prepare(b.context(), connect.NewRequest(&ledgerdv1.PrepareRequest{
				Transactions: []*ledgerdv1.TransactionBody{{Signer: "bank",
					Nonce: &ledgerdv1.Nonce{Sequence: 99}, Note: "a note",
					Postings: []*ledgerdv1.Posting{{Account: "bank:a", Amount: "-1"},
						{Account: "bank:b", Amount: "1"}}}}}))
			return err
		}, all},
		"GetTransaction": {func(c client) error {
			_, err := c.GetTransaction(b.context(), connect.NewRequest(
				&ledgerdv1.GetTransactionRequest{Id: id[:]}))
			return err
		}, "bank auditor operator"},
		"WaitTransaction": {func(c client) error {
			_, err := c.WaitTransaction(b.context(), connect.NewRequest(
				&ledgerdv1.WaitTransactionRequest{Id: id[:]}))
			return err
		}, "bank auditor operator"},
		"WaitTransactions": {func(c client) error {
			_, err := c.WaitTransactions(b.context(), connect.NewRequest(
				&ledgerdv1.WaitTransactionsRequest{Ids: [][]byte{id[:]}}))
			return err
		}, all},
		"GetBlock": {func(c client) error {
			_, err := c.GetBlock(b.context(), connect.NewRequest(&ledgerdv1.GetBlockRequest{
				Block: &ledgerdv1.GetBlockRequest_Head{Head: true}}))
			return err
		}, all},
		"ListBlocks": {func(c client) error {
			_, err := c.ListBlocks(b.context(), connect.NewRequest(&ledgerdv1.ListBlocksRequest{}))
			return err
		}, all},
		"GetAccount": {func(c client) error {
			_, err := c.GetAccount(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "bank:a"}))
			return err
		}, "bank auditor operator"},
		"ListAccounts": {func(c client) error {
			_, err := c.ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Prefix: "bank:"}))
			return err
		}, "bank auditor operator"},
		"GetAccountProof": {func(c client) error {
			_, err := c.GetAccountProof(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountProofRequest{Account: "bank:a"}))
			if connect.CodeOf(err) == connect.CodeFailedPrecondition {
				return nil // it was let in: this chain has no tree of accounts
			}
			return err
		}, "bank auditor operator"},
		"ListHistory": {func(c client) error {
			_, err := c.ListHistory(b.context(), connect.NewRequest(
				&ledgerdv1.ListHistoryRequest{Account: "bank:a"}))
			return err
		}, "bank auditor operator"},
		"GetRecord": {func(c client) error {
			_, err := c.GetRecord(b.context(), connect.NewRequest(
				&ledgerdv1.GetRecordRequest{Key: "bank:r"}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil
			}
			return err
		}, "bank auditor operator"},
		"GetOrganisation": {func(c client) error {
			_, err := c.GetOrganisation(b.context(), connect.NewRequest(
				&ledgerdv1.GetOrganisationRequest{Name: "bank"}))
			return err
		}, all},
		"GetAsset": {func(c client) error {
			_, err := c.GetAsset(b.context(), connect.NewRequest(
				&ledgerdv1.GetAssetRequest{Name: "EUR"}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // it is not registered, and each caller may know
			}
			return err
		}, all},
		"ListAssets": {func(c client) error {
			_, err := c.ListAssets(b.context(), connect.NewRequest(
				&ledgerdv1.ListAssetsRequest{}))
			return err
		}, all},
		"GetHold": {func(c client) error {
			_, err := c.GetHold(b.context(), connect.NewRequest(
				&ledgerdv1.GetHoldRequest{HoldHex: id.String()}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // it is not open; TestHoldsConcern is about those that are
			}
			return err
		}, all},
		"GetKey": {func(c client) error {
			_, err := c.GetKey(b.context(), connect.NewRequest(
				&ledgerdv1.GetKeyRequest{Organisation: "bank", Key: "order 1"}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // no entry has it, which only its organisation may learn
			}
			return err
		}, "bank auditor operator"},
		"GetRefundable": {func(c client) error {
			_, err := c.GetRefundable(b.context(), connect.NewRequest(
				&ledgerdv1.GetRefundableRequest{Organisation: "bank", EntryHex: id.String()}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil
			}
			return err
		}, all},
		"ListHolds": {func(c client) error {
			_, err := c.ListHolds(b.context(), connect.NewRequest(
				&ledgerdv1.ListHoldsRequest{Organisation: "bank"}))
			return err
		}, "bank auditor operator"},
		"ListTransactions": {func(c client) error {
			_, err := c.ListTransactions(b.context(), connect.NewRequest(
				&ledgerdv1.ListTransactionsRequest{Organisation: "bank"}))
			return err
		}, "bank auditor operator"},
		"ListRecords": {func(c client) error {
			_, err := c.ListRecords(b.context(), connect.NewRequest(
				&ledgerdv1.ListRecordsRequest{Prefix: "bank:"}))
			return err
		}, "bank auditor operator"},
		"GetSchedule": {func(c client) error {
			_, err := c.GetSchedule(b.context(), connect.NewRequest(
				&ledgerdv1.GetScheduleRequest{ScheduleHex: id.String()}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // it is not open
			}
			return err
		}, all},
		"ListSchedules": {func(c client) error {
			_, err := c.ListSchedules(b.context(), connect.NewRequest(
				&ledgerdv1.ListSchedulesRequest{Organisation: "bank"}))
			return err
		}, "bank auditor operator"},
		"ListOrganisations": {func(c client) error {
			_, err := c.ListOrganisations(b.context(), connect.NewRequest(
				&ledgerdv1.ListOrganisationsRequest{}))
			return err
		}, all},
		"GetNonce": {func(c client) error {
			_, err := c.GetNonce(b.context(), connect.NewRequest(
				&ledgerdv1.GetNonceRequest{Organisation: "bank"}))
			return err
		}, "bank auditor operator"},
		"GetUse": {func(c client) error {
			_, err := c.GetUse(b.context(), connect.NewRequest(
				&ledgerdv1.GetUseRequest{Organisation: "bank"}))
			return err
		}, "bank auditor operator"},
		"GetCut": {func(c client) error {
			_, err := c.GetCut(b.context(), connect.NewRequest(&ledgerdv1.GetCutRequest{}))
			return err
		}, all},
		"GetPlace": {func(c client) error {
			_, err := c.GetPlace(b.context(), connect.NewRequest(
				&ledgerdv1.GetPlaceRequest{Latest: true}))
			return err
		}, all},
		"GetProof": {func(c client) error {
			_, err := c.GetProof(b.context(), connect.NewRequest(
				&ledgerdv1.GetProofRequest{Id: id[:]}))
			return err
		}, "bank auditor operator"},
		"GetCertificate": {func(c client) error {
			_, err := c.GetCertificate(b.context(), connect.NewRequest(
				&ledgerdv1.GetCertificateRequest{}))
			if connect.CodeOf(err) == connect.CodeFailedPrecondition {
				err = nil // nobody certified a block
			}
			return err
		}, all},
		"ListEvidence": {func(c client) error {
			_, err := c.ListEvidence(b.context(), connect.NewRequest(
				&ledgerdv1.ListEvidenceRequest{}))
			return err
		}, all},
		"GetFigures": {func(c client) error {
			_, err := c.GetFigures(b.context(), connect.NewRequest(
				&ledgerdv1.GetFiguresRequest{}))
			return err
		}, all},
		"Search": {func(c client) error {
			_, err := c.Search(b.context(), connect.NewRequest(
				&ledgerdv1.SearchRequest{Query: "bank"}))
			return err
		}, "auditor operator"},
		"GetNode": {func(c client) error {
			_, err := c.GetNode(b.context(), connect.NewRequest(&ledgerdv1.GetNodeRequest{}))
			return err
		}, all},
		"GetCluster": {func(c client) error {
			_, err := c.GetCluster(b.context(), connect.NewRequest(&ledgerdv1.GetClusterRequest{}))
			return err
		}, all},
		"GetTree": {func(c client) error {
			_, err := c.GetTree(b.context(), connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
			return err
		}, all},
		"GetGenesis": {func(c client) error {
			_, err := c.GetGenesis(b.context(), connect.NewRequest(&ledgerdv1.GetGenesisRequest{}))
			return err
		}, all},
		"ReadChain": {func(c client) error {
			_, err := c.ReadChain(b.context(), connect.NewRequest(
				&ledgerdv1.ReadChainRequest{FromHeight: 1}))
			return err
		}, "auditor operator"},
		"GetSnapshot": {func(c client) error {
			return first(c.GetSnapshot(b.context(), connect.NewRequest(
				&ledgerdv1.GetSnapshotRequest{})))
		}, "auditor operator"},
		"GetSeed": {func(c client) error {
			err := first(c.GetSeed(b.context(), connect.NewRequest(&ledgerdv1.GetSeedRequest{})))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // no shard was added
			}
			return err
		}, "auditor operator"},
		"Subscribe": {func(c client) error {
			return first(c.Subscribe(b.context(), connect.NewRequest(
				&ledgerdv1.SubscribeRequest{FromHeight: 1, WithTransactions: true})))
		}, "auditor operator"},
		"WatchCluster": {func(c client) error {
			return first(c.WatchCluster(b.context(), connect.NewRequest(
				&ledgerdv1.WatchClusterRequest{})))
		}, all},
		"WatchTree": {func(c client) error {
			return first(c.WatchTree(b.context(), connect.NewRequest(
				&ledgerdv1.WatchTreeRequest{})))
		}, all},
		"GetRounds": {func(c client) error {
			_, err := c.GetRounds(b.context(), connect.NewRequest(&ledgerdv1.GetRoundsRequest{}))
			return err
		}, "auditor operator"},
		"WatchRounds": {func(c client) error {
			return first(c.WatchRounds(b.context(), connect.NewRequest(
				&ledgerdv1.WatchRoundsRequest{})))
		}, "auditor operator"},
	}
	methods := ledgerdv1.File_ledgerd_v1_ledgerd_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		c, tried := calls[name]
		if !tried {
			t.Errorf("%s has no case: decide what each caller may do, and add it", name)
			continue
		}
		for caller, client := range as {
			err := c.call(client)
			want := connect.CodePermissionDenied
			switch {
			case contains(c.may, caller):
				if err != nil {
					t.Errorf("%s as %s: %v", name, caller, err)
				}
				continue
			case caller == "nobody" || caller == "stranger":
				want = connect.CodeUnauthenticated
			}
			if err == nil || connect.CodeOf(err) != want {
				t.Errorf("%s as %s: %v, want %v", name, caller, err, want)
			}
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 401,
		"/version": 401, "/": 200} {
		if code, _, text := ask(t, "GET", url+path, nil, ""); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, _, _ := ask(t, "GET", url+"/livez", map[string]string{"Authorization": "Bearer x"},
		""); code != 401 {
		t.Errorf("a wrong token gets %d", code)
	}
}

// first receives the first message of a stream.
func first[T any](stream *connect.ServerStreamForClient[T], err error) error {
	if err != nil {
		return err
	}
	defer stream.Close()
	stream.Receive()
	return stream.Err()
}

// An organisation sees others' transactions neither in blocks nor by a prefix.
func TestAccessToBlocks(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.done(transfer("bank:mint", "bank:a", 12))
	_, as := guarded(t, b)
	for caller, want := range map[string]int{"bank": 1, "other": 0, "auditor": 1} {
		answer, err := as[caller].GetBlock(b.context(), connect.NewRequest(
			&ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Head{Head: true}}))
		must(t, err)
		if got := len(answer.Msg.GetBlock().GetTransactions()); got != want {
			t.Errorf("%s sees %d transactions", caller, got)
		}
	}
	for _, prefix := range []string{"", "ban", "bank", "bank2:", "other:"} {
		_, err := as["bank"].ListAccounts(b.context(), connect.NewRequest(
			&ledgerdv1.ListAccountsRequest{Prefix: prefix}))
		codeIs(t, err, connect.CodePermissionDenied)
	}
	// A second organisation's signature does not make a bundle of the first one's its own.
	bundle := b.sign(ledger.Transaction{Postings: transfer("bank:a", "bank:b", 1).Postings})
	_, err := as["other"].Submit(b.context(), connect.NewRequest(
		&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle)}))
	codeIs(t, err, connect.CodePermissionDenied)
}

// contains reports whether a word is in a list.
func contains(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
