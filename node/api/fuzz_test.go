package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// fuzzSeeds are valid requests of each kind, from which fuzzing starts.
func fuzzSeeds(genesis ledger.Hash) map[string]proto.Message {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	var public ledger.PublicKey
	copy(public[:], key.Public().(ed25519.PublicKey))
	bundle, err := ledger.NewBundle(ledger.Transaction{
		Ledger: genesis, Signer: "bank", Nonce: ledger.Nonce{Sequence: 1},
		Registrations: []ledger.Registration{{Name: "bank", Keys: []ledger.PublicKey{public}}},
		Openings: []ledger.Opening{{Account: "bank:a", Issuer: true},
			{Account: "bank:b", Alias: "Bé"}},
		Postings: transfer("bank:a", "bank:b", 3).Postings,
		Records:  []ledger.Record{{Key: "bank:r", Value: []byte("v")}},
	})
	if err != nil {
		panic(err)
	}
	if err := bundle.Sign("bank", key); err != nil {
		panic(err)
	}
	id := bundle.ID(0)
	signed := api.BundleToProto(bundle)
	return map[string]proto.Message{
		"Submit": &ledgerdv1.SubmitRequest{Bundle: signed,
			Wait: ledgerdv1.Level_LEVEL_ORDERED},
		"SubmitMany": &ledgerdv1.SubmitManyRequest{Bundles: []*ledgerdv1.Bundle{signed,
			signed}, InOrder: true, After: id[:]},
		"Prepare": &ledgerdv1.PrepareRequest{
			Transactions: []*ledgerdv1.TransactionBody{{Signer: "bank",
				Postings: []*ledgerdv1.Posting{{Account: "bank:a", Amount: "-1"},
					{Account: "bank:b", Amount: "1"}}}}},
		"GetTransaction": &ledgerdv1.GetTransactionRequest{Id: id[:]},
		"WaitTransaction": &ledgerdv1.WaitTransactionRequest{IdHex: id.String(),
			Wait: ledgerdv1.Level_LEVEL_ADMITTED},
		"GetBlock": &ledgerdv1.GetBlockRequest{
			Block: &ledgerdv1.GetBlockRequest_Height{Height: 1}, PageSize: 3, PageToken: "t1.0"},
		"ListBlocks": &ledgerdv1.ListBlocksRequest{FromHeight: 1, Ascending: true,
			PageToken: "b1"},
		"GetAccount": &ledgerdv1.GetAccountRequest{Account: "bank:a"},
		"ListAccounts": &ledgerdv1.ListAccountsRequest{Prefix: "bank:", PageToken: "bank:a",
			Cut: []*ledgerdv1.Place{{Height: 1}}},
		"GetAccountProof": &ledgerdv1.GetAccountProofRequest{Account: "bank:a"},
		"ListHistory": &ledgerdv1.ListHistoryRequest{Account: "bank:a", PageToken: "h1",
			FromHeight: 1, ToTimeMs: 5, MinAmount: "1", Counterparty: "bank:", Note: "n"},
		"GetRecord":         &ledgerdv1.GetRecordRequest{Key: "bank:r"},
		"GetOrganisation":   &ledgerdv1.GetOrganisationRequest{Name: "bank"},
		"ListOrganisations": &ledgerdv1.ListOrganisationsRequest{PageToken: "a"},
		"GetNonce":          &ledgerdv1.GetNonceRequest{Organisation: "bank", Stream: 1},
		"GetUse":            &ledgerdv1.GetUseRequest{Organisation: "bank"},
		"GetCut":            &ledgerdv1.GetCutRequest{Height: new(uint64)},
		"GetPlace": &ledgerdv1.GetPlaceRequest{Latest: true, Carried: new(uint64),
			Streamed: []uint64{1}},
		"GetProof":       &ledgerdv1.GetProofRequest{Id: id[:]},
		"GetCertificate": &ledgerdv1.GetCertificateRequest{Height: 1},
		"ListEvidence":   &ledgerdv1.ListEvidenceRequest{},
		"GetFigures":     &ledgerdv1.GetFiguresRequest{Hours: 24, Days: 31},
		"Search":         &ledgerdv1.SearchRequest{Query: "bank:a"},
		"GetNode":        &ledgerdv1.GetNodeRequest{},
		"GetCluster":     &ledgerdv1.GetClusterRequest{},
		"WatchCluster":   &ledgerdv1.WatchClusterRequest{},
		"Subscribe":      &ledgerdv1.SubscribeRequest{FromHeight: 1, WithTransactions: true},
		"WaitTransactions": &ledgerdv1.WaitTransactionsRequest{Ids: [][]byte{id[:], id[:]},
			Wait: ledgerdv1.Level_LEVEL_ORDERED},
		"SubmitStream": &ledgerdv1.SubmitStreamRequest{Number: 300, Bundle: bundle.Encode(),
			Wait: ledgerdv1.Level_LEVEL_ORDERED, WaitMs: 1},
		"GetGenesis": &ledgerdv1.GetGenesisRequest{Shard: new(uint32)},
		"GetTree":    &ledgerdv1.GetTreeRequest{}, "WatchTree": &ledgerdv1.WatchTreeRequest{},
		"GetRounds":   &ledgerdv1.GetRoundsRequest{Last: 5, ForMs: 1},
		"WatchRounds": &ledgerdv1.WatchRoundsRequest{},
	}
}

// No bytes sent to any method, in any encoding, cause a panic or an answer that blames the node.
func FuzzHandlers(f *testing.F) {
	genesis := ledger.Genesis{Chain: "fuzz", Members: []ledger.Member{{Name: "node-0"}}}
	forms := []string{"application/json", "application/proto", "application/grpc-web+proto",
		"application/grpc+proto", "application/connect+json", "application/connect+proto", "GET"}
	for method, message := range fuzzSeeds(genesis.Hash()) {
		binaryForm, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		jsonForm, err := protojson.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		envelope := func(data []byte) []byte {
			return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
		}
		for form, data := range [][]byte{jsonForm, binaryForm, envelope(binaryForm),
			envelope(binaryForm), envelope(jsonForm), envelope(binaryForm), jsonForm} {
			f.Add(method, uint8(form), data)
		}
	}
	f.Add("GetNode", uint8(2), []byte{0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add("Nothing", uint8(0), []byte(`{}`))

	cluster := apitest.NewCluster(f, apitest.Options{Genesis: genesis})
	var complaints atomic.Pointer[string]
	server, err := api.New(cluster.Node(0), api.Options{
		Logger:         slog.New(errorLog{slog.NewTextHandler(io.Discard, nil), &complaints}),
		CallsPerSecond: -1, MaxWaitTime: 5 * time.Millisecond, MaxReadTime: time.Second,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method string, form uint8, data []byte) {
		// Streams never end by themselves; they end with their caller.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		address := "http://node/ledgerd.v1.LedgerService/" + url.PathEscape(method)
		contentType := forms[int(form)%len(forms)]
		var request *http.Request
		if contentType == "GET" {
			request = httptest.NewRequestWithContext(ctx, "GET",
				address+"?connect=v1&encoding=json&message="+url.QueryEscape(string(data)), nil)
		} else {
			request = httptest.NewRequestWithContext(ctx, "POST", address, bytes.NewReader(data))
			request.Header.Set("Content-Type", contentType)
			request.ProtoMajor = 2
		}
		request.Host = "localhost"
		answer := httptest.NewRecorder()
		server.Handler().ServeHTTP(deadlines{answer}, request)
		if complaint := complaints.Swap(nil); complaint != nil {
			t.Fatalf("%s as %s: the node complains: %s", method, contentType, *complaint)
		}
		if answer.Code == http.StatusInternalServerError {
			t.Fatalf("%s as %s: %d %s", method, contentType, answer.Code, answer.Body)
		}
	})
}

// deadlines is a recorder as a server's connection, whose deadlines never pass.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetReadDeadline(time.Time) error  { return nil }
func (deadlines) SetWriteDeadline(time.Time) error { return nil }

// errorLog keeps the last error that the node logged: a panic, or a failure of its own.
type errorLog struct {
	slog.Handler
	last *atomic.Pointer[string]
}

func (l errorLog) Handle(_ context.Context, record slog.Record) error {
	if record.Level < slog.LevelError {
		return nil
	}
	text := record.Message
	record.Attrs(func(attribute slog.Attr) bool { text += " " + attribute.String(); return true })
	l.last.Store(&text)
	return nil
}
