package state_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// If funds never run short, concurrent shards do the same as one shard that executes the same
// transactions one after another. There is one order that agrees with the order of every shard. In
// it each transaction has the same outcome, each account the same balance and each record the same
// value.
func TestShardsDoWhatOneDoes(t *testing.T) {
	t.Parallel()
	ended := map[bool]int{}
	rapid.Check(t, func(r *rapid.T) {
		parents := drawParents(r, 5)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 3))
		n := newNetwork(r.Fatalf, parents)
		f := newTraffic(random, n.shards[0].genesis, 4, 1<<40)
		for _, client := range f.clients {
			n.submit(n.tree.Root(), f.registration(client))
		}
		n.flush()
		var openings []*ledger.Bundle
		for _, client := range f.clients {
			openings = append(openings, f.opening(client))
			n.enter(f, openings[len(openings)-1])
		}
		n.flush()
		var made []ledger.Hash
		for range 8 {
			transaction := f.transaction()
			transaction.LastValid, transaction.Openings = 0, nil
			bundle := f.bundle(transaction)
			made = append(made, bundle.ID(0))
			n.enter(f, bundle)
			n.disorder(f, ledger.ShardID(random.IntN(len(n.shards))))
		}
		n.flush()
		n.checkEnd()

		one := plainBook(t, f, openings)
		for _, id := range n.oneOrder(made) {
			transaction := *n.transactions[id]
			transaction.Ledger = one.relabel(n.shards[0].genesis, transaction.Ledger)
			want := one.block(f.bundle(transaction)).Entry(0).Result.OK()
			for i, c := range n.shards {
				if place, here := c.places[id]; here &&
					c.entries[place].Result.Code != ledger.Relayed &&
					n.tookEffect(c, c.entries[place]) != want {
					r.Fatalf("transaction %s took effect in one shard: %v; in shard %d of "+
						"several: %s", id, want, i, c.entries[place].Result)
				}
			}
			ended[want]++
		}
		for _, c := range n.shards {
			for _, account := range c.state.Accounts() {
				plain, _ := one.state.Account(account.Path)
				for _, balance := range account.Balances {
					if plain.Balance(balance.Asset) != balance.Amount {
						r.Fatalf("%s has %s of %s; in one shard %s", account.Path, balance.Amount,
							balance.Asset, plain.Balance(balance.Asset))
					}
				}
			}
		}
		for _, client := range f.clients {
			key := ledger.RecordKey(client.Account("record"))
			place, written := n.shards[n.shards[0].state.HomeShard(
				client.Organisation)].state.Record(key)
			if plain, same := one.state.Record(key); written != same || written &&
				plain.Digest != place.Digest {
				r.Fatalf("record %s has another value than in one shard", key)
			}
		}
	})
	if ended[true] == 0 || ended[false] == 0 {
		t.Errorf("ends: %v", ended)
	}
}

// plainBook returns a book of one shard with the same organisations and accounts.
func plainBook(t *testing.T, f *traffic, openings []*ledger.Bundle) *one {
	genesis := ledgertest.Genesis()
	chain := newChain(t, genesis)
	for i, client := range f.clients {
		registration := client.Register()
		registration.Ledger, registration.Nonce = genesis.Hash(),
			ledger.Nonce{Stream: 99, Sequence: 1}
		chain.block(f.bundle(registration))
		var transactions []ledger.Transaction
		for each := range openings[i].Len() {
			transaction := *openings[i].Transaction(each)
			transaction.Ledger = genesis.Hash()
			transactions = append(transactions, transaction)
		}
		for _, entry := range chain.block(f.bundle(transactions...)).Unpacked {
			if !entry.Result.OK() {
				t.Fatal(entry.Result)
			}
		}
	}
	return chain
}

// relabel returns this book's identity if a transaction named the other book, and a wrong one if it
// did not.
func (o *one) relabel(other *ledger.Genesis, named ledger.Hash) ledger.Hash {
	if named == other.Book() {
		return o.parentBook()
	}
	return ledger.Hash{1}
}

func (o *one) parentBook() ledger.Hash { return ledgertest.Genesis().Book() }

// oneOrder returns an order of the transactions that agrees with the order of every shard that
// executes them. It fails if there is none.
func (n *network) oneOrder(ids []ledger.Hash) []ledger.Hash {
	before := map[ledger.Hash][]ledger.Hash{}
	for _, c := range n.shards {
		var last []ledger.Hash
		for _, entry := range c.entries {
			if entry.Result.Code == ledger.Relayed || !slices.Contains(ids, entry.ID) {
				continue
			}
			before[entry.ID] = append(before[entry.ID], last...)
			last = []ledger.Hash{entry.ID}
		}
	}
	var order []ledger.Hash
	for len(order) < len(ids) {
		next := slices.IndexFunc(ids, func(id ledger.Hash) bool {
			return !slices.Contains(order, id) &&
				!slices.ContainsFunc(before[id], func(earlier ledger.Hash) bool {
					return !slices.Contains(order, earlier)
				})
		})
		if next < 0 {
			n.fail("the shards' orders make a cycle")
			return order
		}
		order = append(order, ids[next])
	}
	return order
}
