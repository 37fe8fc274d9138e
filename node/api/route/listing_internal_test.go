package route

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func listedAt(key api.ListedKey) *ledgerdv1.ListedTransaction {
	return &ledgerdv1.ListedTransaction{TimeMs: uint64(key.Time),
		Transaction: &ledgerdv1.TransactionSummary{Status: &ledgerdv1.TransactionStatus{
			Height: uint64(key.Height), Index: key.Index}}}
}

// TestMergeListing: pages of several shards, merged, show each transaction once and in order, also
// if shards end their pages early and have blocks of the same time.
func TestMergeListing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		descending := rapid.Bool().Draw(t, "descending")
		chains := make([][]api.ListedKey, rapid.IntRange(1, 4).Draw(t, "shards"))
		var want []api.ListedKey
		for shard := range chains {
			time := ledger.Milliseconds(0)
			for height := range rapid.IntRange(0, 9).Draw(t, "blocks") {
				time += ledger.Milliseconds(rapid.IntRange(0, 2).Draw(t, "later"))
				for index := range rapid.IntRange(1, 3).Draw(t, "entries") {
					chains[shard] = append(chains[shard], api.ListedKey{Time: time,
						Shard: ledger.ShardID(shard), Height: ledger.Height(height + 1),
						Index: uint32(index)})
				}
			}
			want = append(want, chains[shard]...)
		}
		order := (&listing{descending: descending}).compare
		slices.SortFunc(want, order)
		size := rapid.IntRange(1, 9).Draw(t, "size")
		var got []api.ListedKey
		for after, turns := (*api.ListedKey)(nil), 0; ; turns++ {
			list := listing{after: after, descending: descending}
			for shard, chain := range chains {
				chain = slices.Clone(chain)
				slices.SortFunc(chain, order)
				chain = slices.DeleteFunc(chain, func(key api.ListedKey) bool {
					return after != nil && order(key, *after) <= 0
				})
				most := min(len(chain), rapid.IntRange(1, size).Draw(t, "looked"))
				page := &ledgerdv1.ListTransactionsResponse{}
				for _, key := range chain[:most] {
					page.Transactions = append(page.Transactions, listedAt(key))
				}
				if most < len(chain) {
					page.NextPageToken = chain[most-1].Token()
				}
				if err := list.add(ledger.ShardID(shard), page); err != nil {
					t.Fatal(err)
				}
			}
			page, next := list.page(size)
			if len(page) > size || turns > 200 {
				t.Fatalf("a page of %d", len(page))
			}
			for _, each := range page {
				status := each.GetTransaction().GetStatus()
				got = append(got, api.KeyOfListed(each, ledger.ShardID(status.GetShard())))
			}
			if next == nil {
				break
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// TestListingRefusesLies: a page of a member that sends the caller back, shows what comes before,
// or claims an end in another shard is not merged.
func TestListingRefusesLies(t *testing.T) {
	t.Parallel()
	key := func(time uint64, shard ledger.ShardID) api.ListedKey {
		return api.ListedKey{Time: ledger.Milliseconds(time), Shard: shard, Height: 1}
	}
	after := key(5, 1)
	for name, page := range map[string]*ledgerdv1.ListTransactionsResponse{
		"before":      {Transactions: []*ledgerdv1.ListedTransaction{listedAt(key(4, 1))}},
		"again":       {Transactions: []*ledgerdv1.ListedTransaction{listedAt(key(5, 1))}},
		"back":        {NextPageToken: key(4, 1).Token()},
		"other shard": {NextPageToken: key(6, 2).Token()},
		"no token":    {NextPageToken: "x"},
		"beyond": {Transactions: []*ledgerdv1.ListedTransaction{listedAt(key(9, 1))},
			NextPageToken: key(6, 1).Token()},
		"without state": {Transactions: []*ledgerdv1.ListedTransaction{{TimeMs: 9}}},
	} {
		list := listing{after: &after}
		if list.add(1, page) == nil || list.end != nil || len(list.entries) > 0 {
			t.Errorf("%s: merged", name)
		}
	}
}
