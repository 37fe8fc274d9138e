package state_test

import (
	"bytes"
	"fmt"
	"slices"
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
// transfers in a bundle of bodies, and the same block follows when it is executed again, with few
// accounts in memory.
func TestPackedTransfersAreTransfers(t *testing.T) {
	t.Parallel()
	names := []ledger.AccountPath{"acme:issuer", "acme:a", "acme:b", "acme:poor", "acme:unknown",
		"stranger:a", "stranger:issuer", "stranger:unknown", "nobody:a"}
	rapid.Check(t, func(r *rapid.T) {
		genesis := packedGenesis()
		genesis.Quotas.Assets = rapid.SampledFrom([]uint64{0, 0, 4}).Draw(r, "assets")
		client := ledgertest.NewClient(genesis, "acme")
		client.Sequence = 100
		policy := rapid.Bool().Draw(r, "policy")
		packed, blocks := packedBook(t, genesis, ledgertest.NewClient(genesis, "stranger"), policy)
		plain, _ := packedBook(t, genesis, ledgertest.NewClient(genesis, "stranger"), policy)
		little := newTwin(genesis, rapid.IntRange(0, 3).Draw(r, "limit"))
		for _, block := range blocks {
			if err := little.execute(block, 0); err != nil {
				r.Fatal(err)
			}
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
			one, other := packed.block(bundle), plain.block(bodies)
			for i := range one.Len() {
				if one.Entry(i).Result != other.Entry(i).Result {
					r.Fatalf("transfer %d: %s and %s", i, one.Entry(i).Result,
						other.Entry(i).Result)
				}
			}
			if one.Header.StateDigest != other.Header.StateDigest || !one.Header.ByBundle {
				r.Fatal("the states differ")
			}
			decoded, err := ledger.DecodeBlock(one.Encode())
			if err != nil {
				r.Fatal(err)
			}
			unstored := rapid.IntRange(0, 2).Draw(r, "unstored")
			if err := little.execute(decoded, unstored); err != nil {
				r.Fatal(err)
			}
			if err := little.check(packed.state); err != nil {
				r.Fatal(err)
			}
		}
	})
}

// TestPackedTransfersFillAccounts: an account takes as many assets from packed transfers as from
// others, and no more.
func TestPackedTransfersFillAccounts(t *testing.T) {
	t.Parallel()
	genesis := packedGenesis()
	packed, plain := newChain(t, genesis), newChain(t, genesis)
	client := ledgertest.NewClient(genesis, "acme")
	register := client.Bundle(client.Register("issuer", "other", "a"))
	packed.block(register)
	plain.block(register)
	transfers := func(from ledger.AccountPath, first, count int) (some []ledger.Transaction) {
		for i := range count {
			transfer := client.Transfer(from, "acme:a", 1)
			for j := range transfer.Postings {
				transfer.Postings[j].Asset = ledger.AssetName(fmt.Sprintf("asset-%d", first+i))
			}
			some = append(some, transfer)
		}
		return some
	}
	const together = 15
	for first := 0; first < ledger.MaxAssets+together; first += together {
		some := append(transfers("acme:issuer", first, together),
			transfers("acme:other", first, 1)...)
		one, other := packed.block(client.Packed(some...)), plain.block(client.Bundle(some...))
		for i, entry := range one.All() {
			if result := other.Entry(i).Result; entry.Result != result {
				t.Errorf("transfer %d: %s and %s", i, entry.Result, result)
			}
		}
		if one.Header.StateDigest != other.Header.StateDigest {
			t.Error("the states differ")
		}
	}
	filled, _ := packed.state.Account("acme:a")
	if len(filled.Balances) != ledger.MaxAssets {
		t.Errorf("the account has %d assets", len(filled.Balances))
	}
	if counts, want := packed.state.Counts(), plain.state.Counts(); !slices.Equal(counts, want) {
		t.Errorf("counted %v, want %v", counts, want)
	}
}

// TestNameThatIsThereTwice: a name may be in the table of a packed bundle twice. Both numbers are
// the same account, whether it is in memory or not.
func TestNameThatIsThereTwice(t *testing.T) {
	t.Parallel()
	genesis := packedGenesis()
	chain, plain, little := newChain(t, genesis), newChain(t, genesis), newTwin(genesis, 0)
	client := ledgertest.NewClient(genesis, "acme")
	register := client.Bundle(client.Register("issuer", "a", "aa"))
	plain.block(register)
	if err := little.execute(chain.block(register), 0); err != nil {
		t.Fatal(err)
	}
	transfers := func(second ledger.AccountPath) []ledger.Transaction {
		client.Sequence = 1
		return []ledger.Transaction{client.Transfer("acme:issuer", "acme:a", 5),
			client.Transfer("acme:issuer", second, 7), client.Transfer("acme:a", "acme:issuer", 11),
			client.Transfer(second, "acme:issuer", 1), client.Transfer("acme:a", "acme:issuer", 1)}
	}
	content := client.Packed(transfers("acme:aa")...).Content()
	// The third name has 6 bytes of the second one, and one more.
	twice := bytes.Replace(content, []byte{6, 1, 'a'}, []byte{6, 0}, 1)
	assembled, err := ledger.AssemblePackedBundle(twice, nil)
	if err != nil || len(twice) != len(content)-1 {
		t.Fatalf("%d of %d bytes: %v", len(twice), len(content), err)
	}
	if err := assembled.Sign(client.Organisation, ledgertest.Key("acme")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		little.state.Evict(little.height, 0)
	}
	one, other := chain.block(assembled), plain.block(client.Bundle(transfers("acme:a")...))
	for i := range one.Len() {
		result := one.Entry(i).Result
		if result != other.Entry(i).Result || result.OK() != (i != 4) {
			t.Errorf("transfer %d: %s and %s", i, one.Entry(i).Result, other.Entry(i).Result)
		}
	}
	if one.Header.StateDigest != other.Header.StateDigest {
		t.Error("the states differ")
	}
	if err := little.execute(one, 0); err != nil {
		t.Error(err)
	}
	if err := little.check(chain.state); err != nil {
		t.Error(err)
	}
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
	if block := chain.block(bundle, bundle); block.Len() != 3 || len(block.Bundles) != 1 ||
		!block.Bundles[0].Packed() || block.Entry(1).Result.OK() {
		t.Fatalf("%d transactions in %d bundles", block.Len(), len(block.Bundles))
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
