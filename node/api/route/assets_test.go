package route_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestAssetsAtACut: an asset at a cut has the terms of then, and what all shards had issued of it.
// The node of each shard says the same.
func TestAssetsAtACut(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.NewestVersion
	b := newBookFrom(t, genesis)
	change := func(number uint64, allowance int64) {
		t.Helper()
		b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, b.signed(b.orgs[0].ChangeAsset("EUR",
			number, ledgertest.Capped(allowance, "org1", "org2")))), 0)
	}
	issue := func(shard int, amount int64) {
		t.Helper()
		org := b.orgs[shard]
		transfer := org.Transfer(org.Account("mint"), org.Account("a"), amount)
		for i := range transfer.Postings {
			transfer.Postings[i].Asset = "EUR"
		}
		b.settled(b.submit(shard, ledgerdv1.Level_LEVEL_DURABLE, b.signed(transfer)), shard)
	}
	var places [][]*ledgerdv1.Place
	note := func() { places = append(places, b.cut(1, nil).GetPlaces()) }
	note()
	change(1, 100)
	// The other shards have the registration once their places are after it.
	note()
	issue(1, 5)
	issue(2, 7)
	note()
	change(2, 90)
	note()
	issue(2, 3)
	note()
	for i, want := range []struct {
		revision    uint64
		outstanding string
	}{{}, {1, "0"}, {1, "12"}, {2, "12"}, {2, "15"}} {
		for door := range b.clients {
			one, err := b.clients[door].GetAsset(b.context(), connect.NewRequest(
				&ledgerdv1.GetAssetRequest{Name: "EUR", Cut: places[i]}))
			list, failed := b.clients[door].ListAssets(b.context(), connect.NewRequest(
				&ledgerdv1.ListAssetsRequest{Cut: places[i]}))
			if failed != nil || !list.Msg.GetAtCut() {
				t.Fatalf("cut %d at shard %d: %v: %v", i, door, list, failed)
			}
			if want.revision == 0 {
				if connect.CodeOf(err) != connect.CodeNotFound || len(list.Msg.GetAssets()) > 0 {
					t.Errorf("cut %d at shard %d: %v, %v", i, door, err, list.Msg)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, asset := range append(list.Msg.GetAssets(), one.Msg.GetAsset()) {
				if asset.GetRevision() != want.revision || !asset.GetTermsAtCut() ||
					asset.GetOutstanding() != want.outstanding ||
					len(asset.GetUnansweredShards()) > 0 {
					t.Errorf("cut %d at shard %d: %v", i, door, asset)
				}
			}
		}
	}
}
