package route_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// book is a book of three shards, where 1 and 2 are children of 0. Each shard has a pinned
// organisation (org0, org1, org2) with an issuer "mint" and an account "a".
type book struct {
	*testing.T
	*apitest.Book
	clients [3]ledgerdv1connect.LedgerServiceClient // of a node of each shard
	orgs    [3]*ledgertest.Client
}

func newBook(t *testing.T) *book {
	t.Helper()
	return newBookOf(t, 0, 0, 0)
}

// newBookOf is newBook with another tree.
func newBookOf(t *testing.T, parents ...ledger.ShardID) *book {
	t.Helper()
	return newBookFrom(t, ledgertest.ShardedGenesis(1, parents...))
}

// newBookFrom is newBook with another genesis.
func newBookFrom(t *testing.T, genesis *ledger.Genesis) *book {
	t.Helper()
	return newBookWith(t, genesis, api.Options{})
}

// newBookWith is newBookFrom with options of the API.
func newBookWith(t *testing.T, genesis *ledger.Genesis, options api.Options) *book {
	t.Helper()
	b := &book{T: t, Book: apitest.NewBook(t, genesis, options)}
	for shard := range b.clients {
		b.clients[shard] = ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient,
			b.Door(ledger.ShardID(shard)).URL)
		b.orgs[shard] = ledgertest.NewClient(b.Shard(0).Genesis(),
			ledger.OrganisationName(fmt.Sprintf("org%d", shard)))
	}
	for shard, org := range b.orgs {
		registration := org.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		b.settled(b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, b.signed(registration)), 1)
		opening := org.Next()
		opening.Openings = []ledger.Opening{{Account: org.Account("mint"), Issuer: true},
			{Account: org.Account("a")}}
		b.settled(b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, b.signed(opening)), shard)
	}
	return b
}

func (b *book) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.Cleanup(cancel)
	return ctx
}

// signed makes a bundle with the signatures of all organisations in it.
func (b *book) signed(transactions ...ledger.Transaction) *ledger.Bundle {
	b.Helper()
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		b.Fatal(err)
	}
	for _, org := range b.orgs {
		if slices.ContainsFunc(transactions, func(t ledger.Transaction) bool {
			return t.Signer == org.Organisation ||
				slices.ContainsFunc(t.Postings, func(p ledger.Posting) bool {
					return p.Account.Organisation() == org.Organisation && p.Amount.Sign() < 0
				})
		}) {
			if err := bundle.Sign(org.Organisation,
				ed25519.PrivateKey(ledgertest.Key(string(org.Organisation)))); err != nil {
				b.Fatal(err)
			}
		}
	}
	return bundle
}

func (b *book) submit(door int, level ledgerdv1.Level,
	bundle *ledger.Bundle) *ledgerdv1.TransactionStatus {
	b.Helper()
	answer, err := b.clients[door].Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
			Wait: level}))
	if err != nil {
		b.Fatalf("submitting: %v", err)
	}
	return answer.Msg.GetTransactions()[0]
}

// settled checks that a transaction took effect, durably, according to a shard.
func (b *book) settled(status *ledgerdv1.TransactionStatus, shard int) {
	b.Helper()
	if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE ||
		int(status.GetShard()) != shard || status.GetHeight() == 0 {
		b.Fatalf("status %v, durable in shard %d wanted", status, shard)
	}
}

func (b *book) transaction(door int, id ledger.Hash) *ledgerdv1.Transaction {
	b.Helper()
	answer, err := b.clients[door].GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: id[:]}))
	if err != nil {
		b.Fatalf("transaction %s at shard %d: %v", id, door, err)
	}
	return answer.Msg.GetTransaction()
}

// everywhere waits until all chains have decided on a transaction, and checks that a node of each
// shard shows the same.
func (b *book) everywhere(id ledger.Hash, states ...string) *ledgerdv1.Transaction {
	b.Helper()
	var shown *ledgerdv1.Transaction
	for door := range b.clients {
		var got []string
		for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			shown, got = b.transaction(door, id), nil
			for _, place := range shown.GetPlaces() {
				got = append(got, fmt.Sprintf("%d %s", place.GetShard(), place.GetState()))
			}
			if slices.Equal(got, states) {
				break
			}
			if time.Since(begin) > patience/4 {
				b.Fatalf("at shard %d: %v, want %v", door, got, states)
			}
		}
	}
	return shown
}

func (b *book) balance(door int, path ledger.AccountPath) *ledgerdv1.Balance {
	b.Helper()
	answer, err := b.clients[door].GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: string(path)}))
	if err != nil {
		b.Fatalf("account %s at shard %d: %v", path, door, err)
	}
	if balances := answer.Msg.GetAccount().GetBalances(); len(balances) > 0 {
		return balances[0]
	}
	return new(ledgerdv1.Balance)
}

// A payment from one shard to another can be submitted to any node. The signer's home decides it,
// and all nodes show the same.
func TestPaymentAcrossShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	for door := range b.clients {
		payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
		status := b.submit(door, ledgerdv1.Level_LEVEL_DURABLE, payment)
		b.settled(status, 1)
		if !slices.Equal(status.GetDestinations(), []uint32{1, 2}) ||
			status.GetSettledHeight() <= status.GetHeight() || len(status.GetWaitsFor()) > 0 {
			t.Errorf("status %v", status)
		}
		shown := b.everywhere(payment.ID(0), "0 passed", "1 settled", "2 settled")
		root, home, other := shown.GetPlaces()[0], shown.GetPlaces()[1], shown.GetPlaces()[2]
		if !root.GetEntry() || root.GetStreamNumber() != 0 || root.GetHome() || !home.GetHome() ||
			home.GetEntry() || home.GetStreamNumber() == 0 || other.GetHome() ||
			home.GetVerdict() != "good" || other.GetVerdict() != "good" ||
			root.GetVerdict() != "" || other.GetSettledHeight() == 0 ||
			len(other.GetBlockHashHex()) != 64 {
			t.Errorf("places %v", shown.GetPlaces())
		}
		if got := b.submit(2-door, ledgerdv1.Level_LEVEL_DURABLE,
			payment); got.GetHeight() != status.GetHeight() ||
			got.GetSettledHeight() != status.GetSettledHeight() {
			t.Errorf("submitted again: %v, first %v", got, status)
		}
	}
	if got := b.balance(0, "org2:a").GetAmount(); got != "15" {
		t.Errorf("balance %s after three payments of 5", got)
	}
	if got := b.balance(2, "org1:mint").GetAmount(); got != "-15" {
		t.Errorf("issued %s", got)
	}
	// A payment within one shard goes there directly.
	local := b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))
	b.settled(b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, local), 2)
	if shown := b.everywhere(local.ID(0), "2 settled"); !shown.GetPlaces()[0].GetEntry() ||
		!shown.GetPlaces()[0].GetHome() || len(shown.GetStatus().GetDestinations()) > 0 {
		t.Errorf("%v", shown.GetPlaces())
	}
	// Proofs come from the home's chain, or from the requested chain.
	id := local.ID(0)
	proof, err := b.clients[1].GetProof(b.context(),
		connect.NewRequest(&ledgerdv1.GetProofRequest{Id: id[:]}))
	if err != nil || proof.Msg.GetProof().GetShard() != 2 ||
		proof.Msg.GetProof().GetHeader().GetShard() != 2 {
		t.Errorf("proof %v %v", proof, err)
	}
	_, err = b.clients[1].GetProof(b.context(),
		connect.NewRequest(&ledgerdv1.GetProofRequest{Id: id[:], Shard: new(uint32)}))
	codeIs(t, err, connect.CodeNotFound)
}

// In a chain of shards a payment enters at the lowest common ancestor of its shards, which may be
// one of them. The shards above do not know it.
func TestPaymentDownAChain(t *testing.T) {
	t.Parallel()
	b := newBookOf(t, 0, 0, 1)
	for _, way := range []struct {
		from, to int
		states   []string
	}{{2, 1, []string{"1 settled", "2 settled"}},
		{2, 0, []string{"0 settled", "1 passed", "2 settled"}},
		{0, 1, []string{"0 settled", "1 settled"}}, {2, 2, []string{"2 settled"}}} {
		from, to := b.orgs[way.from], b.orgs[way.to]
		payment := b.signed(from.Transfer(from.Account("mint"), to.Account("a"), 5))
		b.settled(b.submit(way.to, ledgerdv1.Level_LEVEL_DURABLE, payment), way.from)
		for i, place := range b.everywhere(payment.ID(0), way.states...).GetPlaces() {
			if place.GetEntry() != (i == 0) ||
				place.GetHome() != (int(place.GetShard()) == way.from) {
				t.Errorf("from %d to %d: %v", way.from, way.to, place)
			}
		}
	}
}

// A payment that one shard refuses changes nothing in any shard, and reports the reason.
func TestRefusedAcrossShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:nobody", 5))
	status := b.submit(2, ledgerdv1.Level_LEVEL_DURABLE, payment)
	if status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
		status.GetReasonCode() != "unknown_account" || status.GetShard() != 1 {
		t.Errorf("status %v", status)
	}
	shown := b.everywhere(payment.ID(0), "0 passed", "1 refused", "2 refused")
	if places := shown.GetPlaces(); places[1].GetVerdict() != "good" ||
		places[2].GetVerdict() != "unknown_account" || places[1].GetSettledHeight() == 0 {
		t.Errorf("places %v", places)
	}
	if got := b.balance(0, "org1:mint"); got.GetAmount() != "" && got.GetAmount() != "0" ||
		got.GetSetAside() != "" {
		t.Errorf("balance %v", got)
	}
}

// patience bounds a call on a machine that runs many other tests at the same time.
const patience = 2 * time.Minute

func codeIs(t *testing.T, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Fatalf("error %v, want code %v", err, want)
	}
}

func asConnect(err error, target **connect.Error) bool { return errors.As(err, target) }

func ref(shard uint32) *uint32 { return &shard }

// Many bundles go to their shards. In order, the admitted bundles are a prefix.
func TestManyAcrossShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	make5 := func() (bundles []*ledger.Bundle) {
		for _, pair := range [][2]int{{1, 1}, {1, 2}, {0, 0}, {2, 2}, {2, 1}} {
			from, to := b.orgs[pair[0]], b.orgs[pair[1]]
			bundles = append(bundles, b.signed(from.Transfer(from.Account("mint"), to.Account("a"),
				1), from.Transfer(from.Account("mint"), to.Account("a"), 1)))
		}
		return bundles
	}
	var last []byte
	for _, inOrder := range []bool{false, true} {
		request := &ledgerdv1.SubmitManyRequest{InOrder: inOrder}
		if inOrder {
			request.After = last
		}
		for _, bundle := range make5() {
			request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
			id := bundle.ID(1)
			last = id[:]
		}
		answer, err := b.clients[2].SubmitMany(b.context(), connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		for i, shard := range []int{1, 1, 0, 2, 2} {
			outcome := answer.Msg.GetOutcomes()[i]
			if outcome.GetRefused() != "" || len(outcome.GetTransactions()) != 2 {
				t.Fatalf("bundle %d: %v", i, outcome)
			}
			for _, status := range outcome.GetTransactions() {
				b.settled(status, shard)
			}
		}
	}
	request := &ledgerdv1.SubmitManyRequest{InOrder: true, Wait: ledgerdv1.Level_LEVEL_ADMITTED,
		After: last}
	for _, bundle := range make5() {
		request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
	}
	request.Bundles[2].Signatures[0].Signature[0] ^= 1
	answer, err := b.clients[1].SubmitMany(b.context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	for i, outcome := range answer.Msg.GetOutcomes() {
		if refused := outcome.GetRefused() != ""; refused != (i >= 2) || i > 2 &&
			!outcome.GetRetry() {
			t.Errorf("bundle %d: %v", i, outcome)
		}
	}
	request.After = make([]byte, 32)
	if answer, err = b.clients[1].SubmitMany(b.context(),
		connect.NewRequest(request)); err != nil ||
		answer.Msg.GetOutcomes()[0].GetRefused() == "" || !answer.Msg.GetOutcomes()[0].GetRetry() {
		t.Errorf("after what nobody knows: %v %v", answer, err)
	}
	b.Silence(0, true)
	// In order, a bundle after one that was not admitted is not admitted either, even if it enters
	// elsewhere.
	request.After, request.Bundles[2].Signatures[0].Signature[0] = nil,
		request.Bundles[2].Signatures[0].Signature[0]^1
	if answer, err = b.clients[2].SubmitMany(b.context(), connect.NewRequest(request)); err != nil {
		t.Fatal(err)
	}
	for i, outcome := range answer.Msg.GetOutcomes() {
		if (outcome.GetRefused() != "") != (i > 0) {
			t.Errorf("bundle %d, in order, while the root is silent: %v", i, outcome)
		}
	}
	if status, err := b.Shard(2).Node(0).Status(transactionID(t, request.Bundles[3])); err != nil ||
		status.Outcome != report.OutcomeUnknown {
		t.Errorf("a bundle that was refused: %v %v", status, err)
	}
	request.InOrder = false
	request.Bundles[2].Signatures[0].Signature[0] ^= 1
	if answer, err = b.clients[2].SubmitMany(b.context(), connect.NewRequest(request)); err != nil {
		t.Fatal(err)
	}
	for i, refused := range []bool{false, true, true, false, true} {
		if outcome := answer.Msg.GetOutcomes()[i]; (outcome.GetRefused() != "") != refused ||
			refused && !outcome.GetRetry() {
			t.Errorf("bundle %d, while the root is silent: %v", i, outcome)
		}
	}
}

func transactionID(t *testing.T, bundle *ledgerdv1.Bundle) ledger.Hash {
	t.Helper()
	decoded, err := ledger.DecodeBody(bundle.GetTransactions()[0])
	if err != nil {
		t.Fatal(err)
	}
	made, err := ledger.NewBundle(*decoded)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID(0)
}

// Bundles that cannot work in a book of several shards are refused before anything happens.
func TestMisuseOfShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	beside, across := b.orgs[0].Register("x"), b.orgs[1].Transfer("org1:mint", "org2:a", 1)
	across.Openings = []ledger.Opening{{Account: "org1:new"}}
	expires := b.orgs[0].Register()
	expires.LastValid = 1000
	book := b.Shard(0).Genesis().Book()
	verdict := ledger.Transaction{Ledger: book, Verdict: &ledger.Verdict{ID: ledger.Hash{1},
		Shard: 1, Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}}
	for name, transaction := range map[string]ledger.Transaction{
		"a registration beside openings": beside, "a registration that expires": expires,
		"an opening across shards": across, "a verdict": verdict} {
		bundle, err := ledger.NewBundle(transaction)
		if err != nil {
			continue // it cannot even be made
		}
		if transaction.Verdict == nil {
			bundle = b.signed(transaction)
		}
		_, err = b.clients[1].Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle)}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Any node answers each read, through a node of the shard that owns the subject.
func TestReadsAcrossShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	for shard, org := range b.orgs {
		write := org.Next()
		write.Records = []ledger.Record{{Key: ledger.RecordKey(org.Account("key")),
			Value: []byte{byte(shard)}}}
		b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
			b.signed(write, org.Transfer(org.Account("mint"), org.Account("a"), 7))), shard)
	}
	for door, client := range b.clients {
		for shard, org := range b.orgs {
			record, err := client.GetRecord(b.context(),
				connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: string(org.Account("key"))}))
			if err != nil || record.Msg.GetRecord().GetValue()[0] != byte(shard) ||
				record.Msg.GetShard() != uint32(shard) {
				t.Errorf("record of shard %d at %d: %v %v", shard, door, record, err)
			}
			nonce, err := client.GetNonce(b.context(),
				connect.NewRequest(&ledgerdv1.GetNonceRequest{
					Organisation: string(org.Organisation), Stream: org.Stream}))
			if err != nil || nonce.Msg.GetNextSequence() < 4 {
				t.Errorf("nonce of shard %d at %d: %v %v", shard, door, nonce, err)
			}
			use, err := client.GetUse(b.context(), connect.NewRequest(&ledgerdv1.GetUseRequest{
				Organisation: string(org.Organisation)}))
			if err != nil || use.Msg.GetUse().GetRecords() != 1 {
				t.Errorf("use of shard %d at %d: %v %v", shard, door, use, err)
			}
			history, err := client.ListHistory(b.context(),
				connect.NewRequest(&ledgerdv1.ListHistoryRequest{
					Account: string(org.Account("a"))}))
			if err != nil || len(history.Msg.GetEntries()) == 0 ||
				history.Msg.GetEntries()[0].GetChanges()[0].GetAmount() != "7" {
				t.Errorf("history of shard %d at %d: %v %v", shard, door, history, err)
			}
			known, err := client.GetOrganisation(b.context(),
				connect.NewRequest(&ledgerdv1.GetOrganisationRequest{
					Name: string(org.Organisation)}))
			if err != nil || known.Msg.GetOrganisation().GetShard() != uint32(shard) ||
				!known.Msg.GetOrganisation().GetPinned() {
				t.Errorf("organisation of shard %d at %d: %v %v", shard, door, known, err)
			}
			cluster, err := client.GetCluster(b.context(),
				connect.NewRequest(&ledgerdv1.GetClusterRequest{Shard: ref(uint32(shard))}))
			if state := cluster.Msg.GetCluster(); err != nil || state.GetShard() != uint32(shard) ||
				state.GetShardCount() != 3 || state.GetNode().GetShard() != uint32(shard) ||
				len(state.GetBook()) != 32 {
				t.Errorf("cluster of shard %d at %d: %v %v", shard, door, cluster, err)
			}
			genesis, err := client.GetGenesis(b.context(),
				connect.NewRequest(&ledgerdv1.GetGenesisRequest{Shard: ref(uint32(shard))}))
			if err != nil || genesis.Msg.GetHashHex() !=
				b.Shard(ledger.ShardID(shard)).Genesis().Hash().String() {
				t.Errorf("genesis of shard %d at %d: %v %v", shard, door, genesis, err)
			}
			node, err := client.GetNode(b.context(),
				connect.NewRequest(&ledgerdv1.GetNodeRequest{Shard: ref(uint32(shard))}))
			if err != nil || node.Msg.GetNode().GetShard() != uint32(shard) {
				t.Errorf("node of shard %d at %d: %v %v", shard, door, node, err)
			}
			blocks, err := client.ListBlocks(b.context(),
				connect.NewRequest(&ledgerdv1.ListBlocksRequest{Shard: ref(uint32(shard)),
					PageSize: 1}))
			if err != nil || blocks.Msg.GetBlocks()[0].GetShard() != uint32(shard) {
				t.Fatalf("blocks of shard %d at %d: %v %v", shard, door, blocks, err)
			}
			byHash, err := client.GetBlock(b.context(),
				connect.NewRequest(&ledgerdv1.GetBlockRequest{
					Block: &ledgerdv1.GetBlockRequest_HashHex{
						HashHex: blocks.Msg.GetBlocks()[0].GetHashHex()}}))
			if err != nil || byHash.Msg.GetBlock().GetHeader().GetShard() != uint32(shard) {
				t.Errorf("the block of a hash of shard %d at %d: %v %v", shard, door, byHash, err)
			}
			found, err := client.Search(b.context(),
				connect.NewRequest(&ledgerdv1.SearchRequest{Query: string(org.Account("a"))}))
			if err != nil || len(found.Msg.GetHits()) == 0 ||
				found.Msg.GetHits()[0].GetKey() != string(org.Account("a")) ||
				found.Msg.GetHits()[0].GetShard() != uint32(shard) {
				t.Errorf("search of shard %d at %d: %v %v", shard, door, found, err)
			}
		}
		heights, err := client.Search(b.context(),
			connect.NewRequest(&ledgerdv1.SearchRequest{Query: "1"}))
		if err != nil || len(heights.Msg.GetHits()) < 3 ||
			heights.Msg.GetHits()[0].GetShard() != uint32(door) {
			t.Errorf("block 1 of each shard, at %d: %v %v", door, heights, err)
		}
		_, err = client.GetBlock(b.context(),
			connect.NewRequest(&ledgerdv1.GetBlockRequest{
				Block: &ledgerdv1.GetBlockRequest_Head{Head: true}, Shard: ref(3)}))
		codeIs(t, err, connect.CodeInvalidArgument)
		b.listed(client, 1, "org0:a org0:mint org1:a org1:mint org2:a org2:mint")
		b.listed(client, 4, "org0:a org0:mint org1:a org1:mint org2:a org2:mint")
		b.listed(client, 100, "org0:a org0:mint org1:a org1:mint org2:a org2:mint")
	}
	b.Silence(2, true)
	_, err := b.clients[1].Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{
			Bundle: api.BundleToProto(b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1)))}))
	codeIs(t, err, connect.CodeUnavailable)
	if coded := (*connect.Error)(nil); !asConnect(err, &coded) ||
		coded.Meta().Get(api.HeaderUnsure) != "true" ||
		coded.Meta().Get(api.HeaderRetry) != "true" {
		t.Errorf("a submission to a shard that does not answer: %v, want it to say that it may "+
			"have been taken and may be sent again", err)
	}
	_, err = b.clients[1].GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a"}))
	codeIs(t, err, connect.CodeUnavailable)
	if coded := (*connect.Error)(nil); !asConnect(err, &coded) ||
		coded.Meta().Get(api.HeaderRetry) != "true" {
		t.Errorf("a shard that does not answer: %v, want it to say that it may be tried again", err)
	}
	part, err := b.clients[1].ListAccounts(b.context(),
		connect.NewRequest(&ledgerdv1.ListAccountsRequest{}))
	if err != nil || len(part.Msg.GetAccounts()) != 4 ||
		!slices.Equal(part.Msg.GetUnansweredShards(), []uint32{2}) {
		t.Errorf("accounts without shard 2: %v %v", part, err)
	}
	hits, err := b.clients[1].Search(b.context(),
		connect.NewRequest(&ledgerdv1.SearchRequest{Query: "a"}))
	if err != nil || len(hits.Msg.GetHits()) != 2 ||
		!slices.Equal(hits.Msg.GetUnansweredShards(), []uint32{2}) {
		t.Errorf("search without shard 2: %v %v", hits, err)
	}
}

// listed checks the pages of a list of all accounts.
func (b *book) listed(client ledgerdv1connect.LedgerServiceClient, size uint32, want string) {
	b.Helper()
	got, token := "", ""
	for {
		page, err := client.ListAccounts(b.context(),
			connect.NewRequest(&ledgerdv1.ListAccountsRequest{PageSize: size, PageToken: token}))
		if err != nil {
			b.Fatal(err)
		}
		for _, account := range page.Msg.GetAccounts() {
			if got != "" {
				got += " "
			}
			got += account.GetAccount()
			if fmt.Sprint("org", account.GetShard()) != account.GetOrganisation() {
				b.Errorf("%s lives in shard %d", account.GetAccount(), account.GetShard())
			}
		}
		if token = page.Msg.GetNextPageToken(); token == "" {
			break
		}
	}
	if got != want {
		b.Errorf("in pages of %d: %s", size, got)
	}
}

// The tree shows the state of each shard.
func TestTreeOfShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE,
		b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5)))
	b.Silence(2, true)
	answer, err := b.clients[1].GetTree(b.context(),
		connect.NewRequest(&ledgerdv1.GetTreeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	tree := answer.Msg.GetTree()
	if tree.GetShape() != "0(1,2)" || tree.GetOwn() != 1 || len(tree.GetShards()) != 3 {
		t.Fatalf("tree %v", tree)
	}
	root, own, silent := tree.GetShards()[0], tree.GetShards()[1], tree.GetShards()[2]
	if !root.GetRoot() || root.GetSelf() || root.GetMode() != "ordering" ||
		len(root.GetStreams()) != 2 || root.GetStreams()[0].GetStreamed() != 4 ||
		root.GetStreams()[0].GetCarried() != own.GetCarried() {
		t.Errorf("root %v", root)
	}
	if own.GetRoot() || !own.GetSelf() || own.GetAccountsTotal() != 2 || own.GetHeight() == 0 ||
		own.GetCarried() != 4 || !own.GetMembers()[0].GetSelf() {
		t.Errorf("own %v", own)
	}
	if silent.GetMode() != "silent" || silent.GetLastHeardMs() != 0 ||
		silent.GetMembers()[0].GetMode() != "silent" {
		t.Errorf("silent %v", silent)
	}
	ctx, cancel := context.WithCancel(b.context())
	defer cancel()
	stream, err := b.clients[0].WatchTree(ctx, connect.NewRequest(&ledgerdv1.WatchTreeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		for begin := time.Now(); ; {
			if !stream.Receive() {
				t.Fatalf("the stream ended: %v", stream.Err())
			}
			if mode := stream.Msg().GetTree().GetShards()[2].GetMode(); mode == []string{"silent",
				"ordering"}[want] {
				break
			}
			if time.Since(begin) > patience/4 {
				t.Fatal("the change was not told")
			}
		}
		b.Silence(2, false)
	}
}

// A call that another shard's node passed on is answered here or not at all.
func TestForwardedIsNotForwarded(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	direct := b.Shards(0).Client(1)
	account, err := direct.GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org1:a"}))
	if err != nil || account.Msg.GetAccount().GetShard() != 1 {
		t.Errorf("%v %v", account, err)
	}
	_, err = direct.GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a"}))
	codeIs(t, err, connect.CodeUnavailable) // the other node may know of a move to this shard
	_, err = direct.GetCluster(b.context(),
		connect.NewRequest(&ledgerdv1.GetClusterRequest{Shard: ref(2)}))
	codeIs(t, err, connect.CodeUnavailable)
}

// Bad input gets its error from the node that was asked, even if the shard that it names or
// concerns does not answer.
func TestBadInputCostsNoHop(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.Silence(2, true)
	const many = 1 << 20
	_, err := b.clients[1].GetBlock(b.context(), connect.NewRequest(&ledgerdv1.GetBlockRequest{
		Block: &ledgerdv1.GetBlockRequest_Head{Head: true}, PageSize: many, Shard: ref(2)}))
	codeIs(t, err, connect.CodeInvalidArgument)
	_, err = b.clients[1].ListBlocks(b.context(),
		connect.NewRequest(&ledgerdv1.ListBlocksRequest{PageSize: many, Shard: ref(2)}))
	codeIs(t, err, connect.CodeInvalidArgument)
	_, err = b.clients[1].ListAccounts(b.context(),
		connect.NewRequest(&ledgerdv1.ListAccountsRequest{PageSize: many, Shard: ref(2)}))
	codeIs(t, err, connect.CodeInvalidArgument)
	_, err = b.clients[1].ListHistory(b.context(),
		connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "org2:a", PageSize: many}))
	codeIs(t, err, connect.CodeInvalidArgument)
	_, err = b.clients[1].GetProof(b.context(),
		connect.NewRequest(&ledgerdv1.GetProofRequest{IdHex: "no id", Shard: ref(2)}))
	codeIs(t, err, connect.CodeInvalidArgument)
	_, err = b.clients[1].GetRecord(b.context(),
		connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: "no key"}))
	codeIs(t, err, connect.CodeInvalidArgument)
	snapshot, err := b.clients[1].GetSnapshot(b.context(),
		connect.NewRequest(&ledgerdv1.GetSnapshotRequest{Shard: ref(2)}))
	if err == nil {
		for snapshot.Receive() {
		}
		err = snapshot.Err()
	}
	codeIs(t, err, connect.CodeFailedPrecondition)
}

// A registered organisation can be used at any node, even if its registration has not arrived there
// yet.
func TestRegistrationOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	late := ledgertest.NewClient(b.Shard(0).Genesis(), "late")
	registration := late.Register()
	registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, 2
	sign := func(transaction ledger.Transaction) *ledger.Bundle {
		bundle, err := ledger.NewBundle(transaction)
		if err == nil {
			err = bundle.Sign("late", ed25519.PrivateKey(ledgertest.Key("late")))
		}
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
	opening := late.Next()
	opening.Openings = []ledger.Opening{{Account: "late:a"}}
	open := api.BundleToProto(sign(opening))
	_, err := b.clients[1].Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: open}))
	codeIs(t, err, connect.CodeFailedPrecondition)
	many, err := b.clients[1].SubmitMany(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitManyRequest{Bundles: []*ledgerdv1.Bundle{open}}))
	if err != nil || !strings.Contains(many.Msg.GetOutcomes()[0].GetRefused(),
		"register it first") {
		t.Errorf("%v %v", many, err)
	}
	b.Stand(1, true)
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, sign(registration))
	opened := make(chan error, 1)
	go func() {
		answer, err := b.clients[1].Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: open}))
		if err == nil && (answer.Msg.GetTransactions()[0].GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE ||
			answer.Msg.GetTransactions()[0].GetShard() != 2) {
			err = fmt.Errorf("status %v", answer.Msg)
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Errorf("shard 1 does not know the organisation yet: %v", err)
	case <-time.After(100 * time.Millisecond):
		b.Stand(1, false)
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}

// The metrics of a node show its shard's streams and waiting transactions.
func TestMetricsOfShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	text := metricsOf(t, b.Door(0).URL)
	for _, line := range []string{`ledgerd_shard_streamed_total{child="1",shard="0"} 3`,
		`ledgerd_shard_pending_crossings{shard="0"} 0`,
		`ledgerd_shard_stream_behind{child="2",shard="0"} 0`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func metricsOf(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
