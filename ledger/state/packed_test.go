package state_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// packedGenesis is that of a chain that takes packed bundles.
func packedGenesis() *ledger.Genesis {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.PackedVersion
	return genesis
}

// packedBook is a chain that takes packed bundles, with accounts of two organisations. Some have an
// alias, and "poor" and "stranger:a" begin without the asset.
func packedBook(t *testing.T, genesis *ledger.Genesis, stranger *ledgertest.Client,
	policy bool) (chain *one, blocks []*ledger.Block) {
	chain = newChain(t, genesis)
	client := ledgertest.NewClient(genesis, "acme")
	register := client.Register("issuer", "a", "poor")
	aliased := client.Next()
	aliased.Openings = []ledger.Opening{{Account: "acme:b", Alias: "a name"}}
	blocks = append(blocks, chain.block(client.Bundle(register, aliased)),
		chain.block(stranger.Bundle(stranger.Register("issuer", "a"))))
	if policy {
		accepts := ledgertest.Policy(1, "stranger")
		accepts.RefuseAssets, accepts.Assets = true, []ledger.AssetName{"other"}
		blocks = append(blocks, chain.block(stranger.Bundle(stranger.ChangePolicy(accepts))))
	}
	return chain, blocks
}

// TestPackedTransfersAreTransfers: packed transfers have the same results and effects as the same
// transfers in a bundle of bodies, and the same block follows when it is executed again.
func TestPackedTransfersAreTransfers(t *testing.T) {
	t.Parallel()
	names := []ledger.AccountPath{"acme:issuer", "acme:a", "acme:b", "acme:poor", "acme:unknown",
		"stranger:a", "stranger:issuer", "stranger:unknown", "nobody:a"}
	rapid.Check(t, func(r *rapid.T) {
		genesis := packedGenesis()
		client := ledgertest.NewClient(genesis, "acme")
		client.Sequence = 100
		policy := rapid.Bool().Draw(r, "policy")
		packed, blocks := packedBook(t, genesis, ledgertest.NewClient(genesis, "stranger"), policy)
		plain, _ := packedBook(t, genesis, ledgertest.NewClient(genesis, "stranger"), policy)
		replayed := state.New(genesis)
		for _, block := range blocks {
			replayed.Execute(state.Redraft(block))
		}
		// With all of them, execution takes a path on which others are not seen.
		choose := names[:rapid.SampledFrom([]int{4, 7, 8, len(names)}).Draw(r, "names")]
		for block := range rapid.IntRange(1, 4).Draw(r, "blocks") {
			var transfers []ledger.Transaction
			for range rapid.IntRange(1, 70).Draw(r, "transfers") {
				from := rapid.IntRange(0, len(choose)-1).Draw(r, "from")
				to := (from + rapid.IntRange(1, len(choose)-1).Draw(r, "to")) % len(choose)
				transfer := client.Transfer(choose[from], choose[to],
					rapid.Int64Range(1, 9).Draw(r, "amount")+10*int64(block)) // never as before
				asset := rapid.SampledFrom([]ledger.AssetName{ledger.DefaultAsset, "other"}).
					Draw(r, "asset")
				for i := range transfer.Postings {
					transfer.Postings[i].Asset = asset
				}
				transfers = append(transfers, transfer)
			}
			if rapid.Bool().Draw(r, "stale") {
				client.Sequence -= uint64(len(transfers)) / 2 // so the next ones are stale
			}
			stream := rapid.Uint64Range(0, 1).Draw(r, "stream")
			expired := rapid.IntRange(0, 9).Draw(r, "expired") == 0
			for i := range transfers {
				transfers[i].Nonce.Stream = stream
				if expired {
					transfers[i].LastValid = 1
				}
			}
			bundle, bodies := client.Packed(transfers...), client.Bundle(transfers...)
			if rapid.Bool().Draw(r, "stranger signs") {
				for _, each := range []*ledger.Bundle{bundle, bodies} {
					if err := each.Sign("stranger", ledgertest.Key("stranger")); err != nil {
						r.Fatal(err)
					}
				}
			}
			prechecked := packed.state.Precheck(bundle, packed.parent.Header.Height+1)
			one, other := packed.block(bundle), plain.block(bodies)
			for i := range one.Entries {
				if one.Entries[i].Result != other.Entries[i].Result ||
					one.Entries[i].Result != prechecked[i] {
					r.Fatalf("transfer %d: %s, %s and %s", i, one.Entries[i].Result,
						other.Entries[i].Result, prechecked[i])
				}
			}
			if one.Header.StateDigest != other.Header.StateDigest || !one.Header.ByBundle {
				r.Fatal("the states differ")
			}
			decoded, err := ledger.DecodeBlock(one.Encode())
			if err != nil {
				r.Fatal(err)
			}
			if again, _ := replayed.Execute(state.Redraft(decoded)); again.Hash != one.Hash {
				r.Fatalf("executed again, the block is %s instead of %s", again.Hash, one.Hash)
			}
		}
	})
}

// TestPackedBundleIsInTheChainOnce: a packed bundle is in a block as a whole, once.
func TestPackedBundleIsInTheChainOnce(t *testing.T) {
	t.Parallel()
	genesis := packedGenesis()
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(client.Bundle(client.Register("issuer", "a")))
	transfers := []ledger.Transaction{client.Transfer("acme:issuer", "acme:a", 1),
		client.Transfer("acme:a", "acme:issuer", 5), client.Transfer("acme:a", "acme:issuer", 1)}
	bundle := client.Packed(transfers...)
	if block := chain.block(bundle, bundle); len(block.Entries) != 3 || len(block.Bundles) != 1 ||
		!block.Bundles[0].Packed() || block.Entries[1].Result.OK() {
		t.Fatalf("%d transactions in %d bundles", len(block.Entries), len(block.Bundles))
	}
	fresh := client.Bundle(client.Transfer("acme:issuer", "acme:a", 1))
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(5, bundle, fresh)})
	parent, asked := chain.parent, 0
	parent.Packed = true
	draft := state.Seal(parent, 1, 2, batches, func(id ledger.Hash,
		transaction *ledger.Transaction) bool {
		if id == fresh.ID(0) {
			return false
		}
		if asked++; id != bundle.ID(0) || transaction.Nonce != transfers[0].Nonce {
			t.Errorf("transfer %s stands for the bundle", id)
		}
		return chain.seen[id]
	})
	if draft == nil || draft.Len() != 1 || draft.Duplicates != 3 || asked != 1 {
		t.Errorf("after %d questions the draft is %+v", asked, draft)
	}
}

// TestPackedBundlesBeforeVersion3: what a chain does not take yet is left out, as every node does,
// and a batch with it may hold other bundles.
func TestPackedBundlesBeforeVersion3(t *testing.T) {
	t.Parallel()
	for name, genesis := range map[string]*ledger.Genesis{"version 1": ledgertest.Genesis(),
		"several shards": ledgertest.ShardedGenesis(1, 0, 0)} {
		if name == "several shards" {
			genesis.Version = ledger.PackedVersion
		}
		client := ledgertest.NewClient(genesis, "acme")
		batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(5,
			client.Bundle(client.Register("issuer", "a")),
			client.Packed(client.Transfer("acme:issuer", "acme:a", 1)))})
		parent := state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}
		unseen := func(ledger.Hash, *ledger.Transaction) bool { return false }
		draft := state.New(genesis).Seal(parent, 1, 1, batches, unseen)
		if draft == nil || draft.Malformed != 1 {
			t.Errorf("%s: the draft is %+v", name, draft)
		}
	}
}

// TestForgedPackedBundle: a packed bundle with a signature of another one is left out.
func TestForgedPackedBundle(t *testing.T) {
	t.Parallel()
	genesis := packedGenesis()
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(client.Bundle(client.Register("issuer", "a")))
	good := client.Packed(client.Transfer("acme:issuer", "acme:a", 1))
	forged, err := ledger.PackBundle(client.Transfer("acme:issuer", "acme:a", 1000))
	if err == nil {
		err = forged.AddSignature(good.Signatures()[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	// The signature of a bundle of bodies is none for a packed one, whatever their roots are.
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(5, forged, good)})
	parent := chain.parent
	parent.Packed = true
	draft := state.Seal(parent, 1, 2, batches, func(ledger.Hash, *ledger.Transaction) bool {
		return false
	})
	if draft == nil || draft.Len() != 1 || draft.Forged != 1 || draft.Malformed != 0 {
		t.Errorf("a forged bundle is in a block, or a good one is not: %+v", draft)
	}
}
