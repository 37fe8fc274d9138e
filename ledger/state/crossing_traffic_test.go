package state_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// traffic makes transactions for a few organisations.
type traffic struct {
	random  *rand.Rand
	genesis *ledger.Genesis
	clients []*ledgertest.Client
	funds   int64
	keys    map[ledger.OrganisationName]ed25519.PrivateKey
	// now is the time from which deadlines are counted. It is nil if there are none.
	now func() ledger.Milliseconds
	// cancels says that clients cancel transactions.
	cancels bool
	// added counts the shards that may have been added.
	added int
}

func newTraffic(random *rand.Rand, genesis *ledger.Genesis, organisations int,
	funds int64) *traffic {
	made := &traffic{random: random, genesis: genesis, funds: funds}
	for i := range organisations {
		made.clients = append(made.clients, ledgertest.NewClient(genesis,
			ledger.OrganisationName(fmt.Sprintf("org%d", i))))
	}
	return made
}

func (f *traffic) client() *ledgertest.Client { return f.clients[f.random.IntN(len(f.clients))] }

// bundle signs with all organisations, so each payer has consented.
func (f *traffic) bundle(transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	for _, client := range f.clients {
		if err == nil {
			err = bundle.Sign(client.Organisation, f.key(client.Organisation))
		}
	}
	if err != nil {
		panic(err)
	}
	return bundle
}

// key returns an organisation's private key. It makes each key only once.
func (f *traffic) key(name ledger.OrganisationName) ed25519.PrivateKey {
	if f.keys == nil {
		f.keys = make(map[ledger.OrganisationName]ed25519.PrivateKey)
	}
	if f.keys[name] == nil {
		f.keys[name] = ledgertest.Key(string(name))
	}
	return f.keys[name]
}

// registration registers an organisation, sometimes pinned to a shard. opening opens its accounts,
// and fund adds money to them.
func (f *traffic) registration(client *ledgertest.Client) *ledger.Bundle {
	transaction := client.Register()
	if f.random.IntN(2) == 0 {
		transaction.Registrations[0].Pinned, transaction.Registrations[0].Shard = true,
			ledger.ShardID(f.random.IntN(len(f.genesis.Shards)+f.added))
	}
	return f.bundle(transaction)
}

func (f *traffic) opening(client *ledgertest.Client) *ledger.Bundle {
	opening, funding := client.Next(), client.Next()
	for i, name := range []string{"issuer", "a", "b"} {
		opening.Openings = append(opening.Openings, ledger.Opening{Account: client.Account(name),
			Issuer: i == 0})
	}
	for _, asset := range []ledger.AssetName{"unit", "gold"} {
		for name, amount := range map[string]int64{"issuer": -2 * f.funds, "a": f.funds,
			"b": f.funds} {
			funding.Postings = append(funding.Postings,
				ledger.Posting{Account: client.Account(name), Asset: asset,
					Amount: ledger.NewAmount(amount)})
		}
	}
	slices.SortFunc(funding.Postings, func(a, b ledger.Posting) int {
		return bytes.Compare([]byte(a.Account), []byte(b.Account))
	})
	return f.bundle(opening, funding)
}

// transaction moves random amounts between random accounts, and sometimes writes a record.
func (f *traffic) transaction() ledger.Transaction {
	signer := f.client()
	transaction := signer.Next()
	for _, asset := range []ledger.AssetName{"unit", "gold"}[:1+f.random.IntN(2)] {
		var sum int64
		for range 1 + f.random.IntN(3) {
			amount := f.random.Int64N(21) - 10
			sum += amount
			transaction.Postings = append(transaction.Postings,
				ledger.Posting{Account: f.client().Account([]string{"a", "b"}[f.random.IntN(2)]),
					Asset: asset, Amount: ledger.NewAmount(amount)})
		}
		transaction.Postings = append(transaction.Postings,
			ledger.Posting{Account: f.client().Account("a"), Asset: asset,
				Amount: ledger.NewAmount(-sum)})
	}
	for range f.random.IntN(3) {
		key := ledger.RecordKey(f.client().Account("record"))
		transaction.Records = append(transaction.Records,
			ledger.Record{Key: key, Value: []byte{byte(f.random.IntN(256))}})
	}
	switch f.random.IntN(20) {
	case 0:
		transaction.LastValid = 3
	case 1:
		transaction.Openings = []ledger.Opening{{Account: signer.Account("a")}}
	case 2:
		transaction.Postings[0].Account = f.client().Account("nobody")
	case 3:
		transaction.Nonce.Sequence = 1
	case 4:
		transaction.Ledger[0]++
	}
	if f.now != nil {
		switch f.random.IntN(20) {
		case 0:
		case 1:
			transaction.Deadline = f.now() + 2*ledger.MaxDeadline
		default:
			transaction.Deadline = f.now() + ledger.Milliseconds(1+f.random.IntN(60))
		}
	}
	return transaction
}

// cancelSome has a client, which may be a stranger to them, cancel transactions at some shards.
func (f *traffic) cancelSome(n *network, bundle *ledger.Bundle) {
	client := f.client()
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		if t.Deadline == 0 || f.random.IntN(3) == 0 {
			continue
		}
		for shard := range ledger.ShardID(len(n.shards)) {
			if f.random.IntN(2) == 0 {
				n.enter(f, client.Bundle(client.Cancel(bundle.ID(i), t.Deadline, shard)))
			}
		}
	}
}
