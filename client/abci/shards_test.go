package abci

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// bookOf is a book of three shards, with acme in shard 1 and bank in shard 2.
type bookOf struct {
	*apitest.Book
	t      *testing.T
	nodes  *client.Client
	keys   map[ledger.OrganisationName]client.Key
	lookup atomic.Int32 // transactions that were asked for
}

func newBookOf(t *testing.T) *bookOf {
	t.Helper()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	b := &bookOf{Book: apitest.NewBook(t, genesis, api.Options{}), t: t,
		keys: make(map[ledger.OrganisationName]client.Key)}
	var err error
	if b.nodes, err = client.New([]string{b.Door(0).URL}, client.Options{}); err != nil {
		t.Fatal(err)
	}
	for name, shard := range map[ledger.OrganisationName]ledger.ShardID{"acme": 1, "bank": 2} {
		b.keys[name] = client.NewKey(name, ledgertest.Key(string(name)))
		b.post(name, ledger.Transaction{Registrations: []ledger.Registration{{Name: name,
			Keys: []ledger.PublicKey{b.keys[name].Public()}, Pinned: true, Shard: shard}}})
		b.post(name, ledger.Transaction{Openings: []ledger.Opening{
			{Account: ledger.AccountPath(name + ":mint"), Issuer: true},
			{Account: ledger.AccountPath(name + ":cash")}}})
	}
	return b
}

// post posts a transaction in the name of an organisation, signed by both, and waits for it.
func (b *bookOf) post(signer ledger.OrganisationName, transaction ledger.Transaction) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := b.nodes.Post(ctx, b.signers(signer), transaction,
		ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE)
	if err != nil || status.GetReason() != "" {
		b.t.Fatalf("%v, %v", status, err)
	}
}

func (b *bookOf) signers(first ledger.OrganisationName) []client.Key {
	signers := []client.Key{b.keys[first]}
	for name, key := range b.keys {
		if name != first {
			signers = append(signers, key)
		}
	}
	return signers
}

// records are records with transactions of the application.
func records(owner ledger.OrganisationName, texts ...string) (all []ledger.Record) {
	for i, text := range texts {
		all = append(all, ledger.Record{Key: transactionKey(owner, "kv", i), Value: []byte(text)})
	}
	return all
}

// crossing is a payment from acme to bank with records.
func crossing(all ...ledger.Record) ledger.Transaction {
	return ledger.Transaction{Records: all, Postings: []ledger.Posting{
		{Account: "acme:mint", Asset: "EUR", Amount: ledger.NewAmount(-1)},
		{Account: "bank:cash", Asset: "EUR", Amount: ledger.NewAmount(1)}}}
}

// counting are the nodes, and count the transactions that are asked for.
type counting struct {
	*client.Client
	book *bookOf
}

func (c counting) TransactionIn(ctx context.Context, shard ledger.ShardID, id ledger.Hash) (
	*ledger.Transaction, error) {
	c.book.lookup.Add(1)
	return c.Client.TransactionIn(ctx, shard, id)
}

func (b *bookOf) start(p *program, shard ledger.ShardID, folder string) *adapter {
	return run(b.t, Options{Config: &Config{ChainID: "kv", Application: p.address, Folder: folder,
		Shard: shard}, Nodes: counting{b.nodes, b}})
}

// gets waits until the application has executed these.
func (a *adapter) gets(p *program, want string) {
	a.t.Helper()
	a.await(fmt.Sprintf("%q", want), func(Notice) bool {
		texts, _, _ := p.executed()
		return texts == want
	})
	if _, _, wrong := p.executed(); wrong != "" {
		a.t.Error(wrong)
	}
}

// An application gets its shard's blocks. What crosses shards is in the block in which it takes
// effect, with the records of all organisations, also if the adapter and the application began anew
// while it waited. What is refused is nowhere.
func TestShards(t *testing.T) {
	t.Parallel()
	b := newBookOf(t)
	apps, folders := [3]*program{nil, newProgram(t), newProgram(t)}, [3]string{}
	var adapters [3]*adapter
	for shard := 1; shard <= 2; shard++ {
		folders[shard] = t.TempDir()
		adapters[shard] = b.start(apps[shard], ledger.ShardID(shard), folders[shard])
	}
	b.post("acme", ledger.Transaction{Records: records("acme", "one")})
	b.post("bank", ledger.Transaction{Records: records("bank", "two")})
	b.post("acme", crossing(append(records("acme", "three"), records("bank", "four")...)...))
	adapters[1].gets(apps[1], "one three four")
	adapters[2].gets(apps[2], "two three four")
	if asked := b.lookup.Load(); asked != 0 {
		t.Errorf("%d transactions were asked for that were in the blocks before", asked)
	}
	// Shard 2 stands still, and acme's part is set aside.
	b.Stand(2, true)
	_, before, _ := apps[1].executed()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		status, err := b.nodes.Post(ctx, b.signers("acme"), crossing(records("acme", "five")...),
			ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE)
		if err == nil && status.GetReason() != "" {
			err = errors.New(status.GetReason())
		}
		sent <- err
	}()
	aside := func(n Notice) bool {
		if n.Event != "block" || n.Height <= before {
			return false
		}
		chain, err := b.nodes.ReadChain(ctx, 1, ledger.Height(n.Height), 0)
		if err != nil || len(chain.Blocks) == 0 {
			return false
		}
		for _, entry := range chain.Blocks[0].All() {
			if entry.Result.Code == ledger.SetAside {
				return true
			}
		}
		return false
	}
	adapters[1].await("it is set aside", aside)
	b.post("acme", ledger.Transaction{Records: records("acme", "six")})
	adapters[1].gets(apps[1], "one three four six")
	adapters[1].stop()
	adapters[1].end()
	apps[1].die(-1)
	adapters[1] = b.start(apps[1], 1, folders[1])
	b.Stand(2, false)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	adapters[1].gets(apps[1], "one three four six five")
	adapters[2].gets(apps[2], "two three four five")
	if asked := b.lookup.Load(); asked != 1 {
		t.Errorf("%d transactions were asked for, want the one from before the restart", asked)
	}
	// One that is refused.
	refused := crossing(records("acme", "seven")...)
	refused.Postings[1].Account = "bank:none"
	if status, err := b.nodes.Post(ctx, b.signers("acme"), refused,
		ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE); err == nil && status.GetReason() == "" {
		t.Fatalf("%v", status)
	}
	b.post("acme", ledger.Transaction{Records: records("acme", "eight")})
	adapters[1].gets(apps[1], "one three four six five eight")
	// A new replica gets the same.
	fresh := newProgram(t)
	b.start(fresh, 1, t.TempDir()).gets(fresh, "one three four six five eight")
}

// A shard that the book does not have is refused, and so is an organisation of another shard, which
// would post what the application never gets.
func TestWrongShard(t *testing.T) {
	t.Parallel()
	b := newBookOf(t)
	for name, each := range map[string]struct {
		config Config
		want   string
	}{
		"no such shard": {Config{Shard: 7}, "there is no shard 7: the book has 3, from 0 to 2"},
		"post elsewhere": {Config{Shard: 1, Post: "bank"},
			"bank lives in shard 2, and the application gets the blocks of shard 1"},
	} {
		p := newProgram(t)
		each.config.ChainID, each.config.Application, each.config.Folder = "kv", p.address,
			t.TempDir()
		err := run(t, Options{Config: &each.config, Nodes: b.nodes}).end()
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), each.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
