package api_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// bank is a chain with the organisation bank, which has the issuer bank:mint and the accounts
// bank:a and bank:b.
type bank struct {
	*testing.T
	cluster *apitest.Cluster
	door    *apitest.TestServer
	client  ledgerdv1connect.LedgerServiceClient
	key     ed25519.PrivateKey
	manual  bool
	next    uint64
}

func newBank(t *testing.T, cluster apitest.Options, options api.Options) *bank {
	t.Helper()
	b := &bank{T: t, cluster: apitest.NewCluster(t, cluster),
		key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), manual: cluster.Manual}
	b.door = apitest.Serve(t, b.cluster.Node(0), options)
	b.client = ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, b.door.URL)
	level := ledgerdv1.Level_LEVEL_DURABLE
	if b.manual {
		level = ledgerdv1.Level_LEVEL_ADMITTED
	}
	b.submit(level, b.sign(ledger.Transaction{
		Registrations: []ledger.Registration{{Name: "bank", Keys: []ledger.PublicKey{b.public()}}},
		Openings: []ledger.Opening{
			{Account: "bank:mint", Issuer: true}, {Account: "bank:a", Alias: "Anna"},
			{Account: "bank:b"},
		},
	}))
	b.advance()
	return b
}

func (b *bank) public() (key ledger.PublicKey) {
	copy(key[:], b.key.Public().(ed25519.PublicKey))
	return key
}

// sign fills in ledger, signer and nonce, and makes a signed bundle.
func (b *bank) sign(transactions ...ledger.Transaction) *ledger.Bundle {
	b.Helper()
	return b.signed(ledger.NewBundle, transactions)
}

// packed is sign for a packed bundle.
func (b *bank) packed(transactions ...ledger.Transaction) *ledger.Bundle {
	b.Helper()
	return b.signed(ledger.PackBundle, transactions)
}

func (b *bank) signed(newBundle func(...ledger.Transaction) (*ledger.Bundle, error),
	transactions []ledger.Transaction) *ledger.Bundle {
	b.Helper()
	for i := range transactions {
		b.next++
		transactions[i].Ledger = b.cluster.Genesis().Hash()
		transactions[i].Signer = "bank"
		transactions[i].Nonce = ledger.Nonce{Sequence: b.next}
	}
	bundle, err := newBundle(transactions...)
	if err != nil {
		b.Fatal(err)
	}
	if err := bundle.Sign("bank", b.key); err != nil {
		b.Fatal(err)
	}
	return bundle
}

func transfer(from, to ledger.AccountPath, amount int64) ledger.Transaction {
	return ledger.Transaction{Postings: []ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-amount)},
		{Account: to, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(amount)},
	}}
}

func (b *bank) submit(level ledgerdv1.Level, bundle *ledger.Bundle) *ledgerdv1.SubmitResponse {
	b.Helper()
	answer, err := b.client.Submit(b.context(),
		connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
			Wait: level}))
	if err != nil {
		b.Fatalf("submitting: %v", err)
	}
	return answer.Msg
}

// done submits transactions, waits until they are durable and returns their ids.
func (b *bank) done(transactions ...ledger.Transaction) []ledger.Hash {
	b.Helper()
	bundle := b.sign(transactions...)
	if b.manual {
		b.submit(ledgerdv1.Level_LEVEL_ADMITTED, bundle)
		b.advance()
	} else {
		b.submit(ledgerdv1.Level_LEVEL_DURABLE, bundle)
	}
	return bundle.IDs()
}

// advance makes the next blocks if the test makes them by hand.
func (b *bank) advance() {
	b.Helper()
	if !b.manual {
		return
	}
	if err := b.cluster.Advance(); err != nil {
		b.Fatal(err)
	}
}

// patience bounds a call on a machine that runs many other tests at the same time.
const patience = 2 * time.Minute

func (b *bank) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.Cleanup(cancel)
	return ctx
}

func codeIs(t *testing.T, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Fatalf("error %v, want code %v", err, want)
	}
}

func asConnect(err error, target **connect.Error) bool { return errors.As(err, target) }
