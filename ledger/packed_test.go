package ledger_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// drawTransfers draws plain transfers that one packed bundle can hold.
func drawTransfers(r *rapid.T) []ledger.Transaction {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab]{1,2}:(acct-)?[0-9]{1,3}`), 2, 300,
		rapid.ID).Draw(r, "names")
	assets := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Z]{3}`), 1, ledger.MaxPackedAssets,
		rapid.ID).Draw(r, "assets")
	most := rapid.SampledFrom([]int64{200, math.MaxInt64}).Draw(r, "most")
	first := ledger.Nonce{Stream: rapid.Uint64().Draw(r, "stream"),
		Sequence: rapid.Uint64Range(0, math.MaxUint64-300).Draw(r, "sequence")}
	transactions := make([]ledger.Transaction, rapid.IntRange(1, 200).Draw(r, "transfers"))
	for i := range transactions {
		from := rapid.IntRange(0, len(names)-1).Draw(r, "from")
		to := (from + rapid.IntRange(1, len(names)-1).Draw(r, "to")) % len(names)
		asset := ledger.AssetName(rapid.SampledFrom(assets).Draw(r, "asset"))
		amount := ledger.NewAmount(rapid.Int64Range(1, most).Draw(r, "amount"))
		if rapid.IntRange(0, 50).Draw(r, "large") == 0 {
			amount = ledger.MaxAmount
		}
		taken, err := amount.Neg()
		if err != nil {
			r.Fatal(err)
		}
		transactions[i] = ledger.Transaction{Ledger: ledger.Hash{1, 2, 3}, Signer: "acme",
			Nonce:     ledger.Nonce{Stream: first.Stream, Sequence: first.Sequence + uint64(i)},
			LastValid: 77, Postings: []ledger.Posting{
				{Account: ledger.AccountPath(names[from]), Asset: asset, Amount: taken},
				{Account: ledger.AccountPath(names[to]), Asset: asset, Amount: amount}}}
	}
	return transactions
}

// transactionsOf returns the transactions of a bundle.
func transactionsOf(bundle *ledger.Bundle) []ledger.Transaction {
	transactions := make([]ledger.Transaction, bundle.Len())
	for i := range transactions {
		transactions[i] = *bundle.Transaction(i)
	}
	return transactions
}

// TestPackedBundleKeepsTransfers: what is packed is decoded again, with the same ids, root and
// signing message, and packing it again gives the same bytes. Each id has the root and the place,
// and what shows a transfer decodes to it.
func TestPackedBundleKeepsTransfers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		transactions := drawTransfers(r)
		bundle, err := ledger.PackBundle(transactions...)
		if err != nil {
			r.Fatal(err)
		}
		if err := bundle.Sign("acme", ledgertest.Key("acme")); err != nil {
			r.Fatal(err)
		}
		decoded, err := ledger.DecodeBundle(bundle.Encode())
		if err != nil {
			r.Fatal(err)
		}
		if !decoded.Packed() || decoded.Root() != bundle.Root() ||
			!bytes.Equal(decoded.SigningMessage(), bundle.SigningMessage()) ||
			!reflect.DeepEqual(transactionsOf(decoded), transactions) ||
			!reflect.DeepEqual(decoded.IDs(), bundle.IDs()) ||
			!reflect.DeepEqual(decoded.Signatures(), bundle.Signatures()) {
			r.Fatal("the decoded bundle differs")
		}
		assembled, err := ledger.AssemblePackedBundle(bundle.Content(), bundle.Signatures())
		if err != nil || !bytes.Equal(assembled.Encode(), bundle.Encode()) {
			r.Fatalf("the assembled bundle differs: %v", err)
		}
		again, err := ledger.PackBundle(transactionsOf(decoded)...)
		if err != nil || !bytes.Equal(again.Content(), bundle.Content()) {
			r.Fatalf("packed again, it has other bytes: %v", err)
		}
		root := bundle.Root()
		for i := range transactions {
			first, place := ledger.PackedPlace(bundle.ID(i))
			if first != bundle.ID(0) || place != i || !bytes.HasPrefix(first[:], root[:30]) {
				r.Fatalf("transfer %d has id %s", i, bundle.ID(i))
			}
			shown, err := ledger.DecodeBody(bundle.Body(i))
			if err != nil || !reflect.DeepEqual(*shown, transactions[i]) {
				r.Fatalf("transfer %d is shown as %+v: %v", i, shown, err)
			}
		}
	})
}

// TestPackBundleTakesPlainTransfersOnly has a case for each way not to be plain.
func TestPackBundleTakesPlainTransfersOnly(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ledger.Transaction){
		"note":   func(t *ledger.Transaction) { t.Note = []byte("n") },
		"record": func(t *ledger.Transaction) { t.Records = []ledger.Record{{Key: "acme:r"}} },
		"opening": func(t *ledger.Transaction) {
			t.Openings = []ledger.Opening{{Account: "acme:o"}}
		},
		"ledger":     func(t *ledger.Transaction) { t.Ledger[0]++ },
		"signer":     func(t *ledger.Transaction) { t.Signer = "other" },
		"last valid": func(t *ledger.Transaction) { t.LastValid++ },
		"stream":     func(t *ledger.Transaction) { t.Nonce.Stream++ },
		"gap":        func(t *ledger.Transaction) { t.Nonce.Sequence++ },
		"no posting": func(t *ledger.Transaction) { t.Postings = nil },
		"postings": func(t *ledger.Transaction) {
			t.Postings = append(t.Postings[:2:2], t.Postings...)
		},
		"order": func(t *ledger.Transaction) {
			t.Postings[0], t.Postings[1] = t.Postings[1], t.Postings[0]
		},
		"unbalanced": func(t *ledger.Transaction) { t.Postings[1].Amount = ledger.NewAmount(9) },
		"zero": func(t *ledger.Transaction) {
			t.Postings[0].Amount, t.Postings[1].Amount = ledger.Amount{}, ledger.Amount{}
		},
		"assets": func(t *ledger.Transaction) { t.Postings[1].Asset = "other" },
		"itself": func(t *ledger.Transaction) { t.Postings[1].Account = t.Postings[0].Account },
		"membership": func(t *ledger.Transaction) {
			t.Change = &ledger.MembershipChange{Kind: ledger.ChangeLeave}
		},
		"policy":  func(t *ledger.Transaction) { t.Policy = &ledger.PolicyChange{} },
		"charter": func(t *ledger.Transaction) { t.Charter = &ledger.CharterChange{} },
	} {
		client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
		transactions := []ledger.Transaction{client.Transfer("acme:a", "acme:b", 1),
			client.Transfer("acme:a", "acme:b", 2)}
		if _, err := ledger.PackBundle(transactions...); err != nil {
			t.Fatal(err)
		}
		if spoil(&transactions[1]); !refusesPacking(transactions) {
			t.Errorf("%s: it is packed", name)
		}
	}
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for sequence, refused := range map[uint64]bool{math.MaxUint64 - 4: false,
		math.MaxUint64 - 3: true, math.MaxUint64 - 2: true} {
		client.Sequence = sequence
		if refusesPacking([]ledger.Transaction{client.Transfer("acme:a", "acme:b", 1),
			client.Transfer("acme:a", "acme:b", 1),
			client.Transfer("acme:a", "acme:b", 1)}) != refused {
			t.Errorf("nonces that begin at %d are packed: %v", sequence+1, refused)
		}
	}
	var many []ledger.Transaction
	for i := range ledger.MaxPackedAssets + 1 {
		transfer := client.Transfer("acme:a", "acme:b", 1)
		transfer.Nonce.Sequence = uint64(i)
		transfer.Postings[0].Asset = ledger.AssetName(fmt.Sprintf("A%d", i))
		transfer.Postings[1].Asset = transfer.Postings[0].Asset
		many = append(many, transfer)
	}
	if !refusesPacking(many) || refusesPacking(many[1:]) {
		t.Error("the bound of assets does not hold")
	}
	for _, transactions := range [][]ledger.Transaction{nil, make([]ledger.Transaction,
		ledger.MaxBundleTransactions+1)} {
		if _, err := ledger.PackBundle(transactions...); !errors.Is(err, ledger.ErrBundleSize) {
			t.Errorf("%d transactions: %v", len(transactions), err)
		}
	}
}

func refusesPacking(transactions []ledger.Transaction) bool {
	_, err := ledger.PackBundle(transactions...)
	return errors.Is(err, ledger.ErrNotPlain)
}

// TestPackedDecoderRefuses builds bundles by hand, and spoils one thing in each.
func TestPackedDecoderRefuses(t *testing.T) {
	t.Parallel()
	chain := strings.Repeat("11", 32)
	const signer, nonce, assets = "0461636d65", "070109", "0103424f42"
	const names = "0006612d3a312f78" + "05017a" // a-:1/x, a-:1/z
	for name, parts := range map[string][]string{
		"good": {"03", chain, signer, nonce, assets, "020201", names, "000105", "010006"},
		"wide amounts": {"03", chain, signer, nonce, assets, "020202", names, "00010005",
			"01000006"},
		"no amounts": {"03", chain, signer, nonce, assets, "020200", names, "0001", "0100"},
		"zero":       {"03", chain, signer, nonce, assets, "020201", names, "000105", "010000"},
		"itself":     {"03", chain, signer, nonce, assets, "020201", names, "000105", "010106"},
		"order of names": {"03", chain, signer, nonce, assets, "020201", names, "010005",
			"000106"},
		"unknown name": {"03", chain, signer, nonce, assets, "020201", names, "000105", "020006"},
		"name after the last": {"03", chain, signer, nonce, assets, "020201", names, "000105",
			"000206"},
		"asset after the last": {"03", chain, signer, nonce, "0203424f4203424f43", "020301", names,
			"00010005", "01000106", "00010207"},
		"unused name": {"03", chain, signer, nonce, assets, "030201", names, "050179", "000105",
			"010006"},
		"a name of no transfer twice": {"03", chain, signer, nonce, assets, "020201",
			"0006612d3a312f78", "0600", "000105", "010006"},
		"less shared": {"03", chain, signer, nonce, assets, "020201", "0006612d3a312f78",
			"04022f7a", "000105", "010006"},
		"a byte less shared": {"03", chain, signer, nonce, assets, "020201", "0006612d3a312f78",
			"0502787a", "000105", "010006"},
		"more shared": {"03", chain, signer, nonce, assets, "020201", "0006612d3a312f78", "07017a",
			"000105", "010006"},
		"malformed name": {"03", chain, signer, nonce, assets, "020201", "0006612d3a312f78",
			"05015c", "000105", "010006"},
		"malformed signer": {"03", chain, "012f", nonce, assets, "020201", names, "000105",
			"010006"},
		"operator": {"03", chain, "00", nonce, assets, "020201", names, "000105", "010006"},
		"asset twice": {"03", chain, signer, nonce, "0203424f4203424f42", "020201", names,
			"00010005", "01000106"},
		"unused asset": {"03", chain, signer, nonce, "0203424f4203424f43", "020201", names,
			"00010005", "01000006"},
		"unknown asset": {"03", chain, signer, nonce, "0203424f4203424f43", "020201", names,
			"00010005", "01000206"},
		"malformed asset": {"03", chain, signer, nonce, "01012f", "020201", names, "000105",
			"010006"},
		"no asset":       {"03", chain, signer, nonce, "00", "020201", names, "000105", "010006"},
		"no transfers":   {"03", chain, signer, nonce, assets, "020001", names},
		"too many names": {"03", chain, signer, nonce, assets, "050201", names},
		"one name":       {"03", chain, signer, nonce, assets, "010201", "0006612d3a312f78"},
		"amounts of 17": {"03", chain, signer, nonce, assets, "020211", names,
			"0001" + strings.Repeat("00", 16) + "05", "0100" + strings.Repeat("00", 16) + "06"},
		"nonces": {"03", chain, signer, "07ffffffffffffffffff0109", assets, "020201", names,
			"000105", "010006"},
		"overflowing nonces": {"03", chain, signer, "07feffffffffffffffff0109", assets, "020201",
			names, "000105", "010006"},
		"last nonces": {"03", chain, signer, "07fdffffffffffffffff0109", assets, "020201", names,
			"000105", "010006"},
		"too many transfers": {"03", chain, signer, nonce, assets, "02812001", names,
			strings.Repeat("000105", ledger.MaxBundleTransactions+1)},
		"negative": {"03", chain, signer, nonce, assets, "020110", names, "0001",
			"ff000000000000000000000000000000"},
		"cut":     {"03", chain, signer, nonce, assets, "020201", names, "000105", "0100"},
		"version": {"04", chain, signer, nonce, assets, "020201", names, "000105", "010006"},
	} {
		content, err := hex.DecodeString(strings.Join(parts, ""))
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = ledger.DecodeBundle(append(content, 0)) // without signatures
		if good := name == "good" || name == "last nonces"; good !=
			(err == nil) || !good && !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNumbersOfNames: 256 names have numbers of one byte, and 257 have numbers of two.
func TestNumbersOfNames(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var transfers []ledger.Transaction
	for i := range 128 {
		transfers = append(transfers, client.Transfer(client.Account(fmt.Sprint(2*i)),
			client.Account(fmt.Sprint(2*i+1)), 5))
	}
	narrow := client.Packed(transfers...)
	wide := client.Packed(append(transfers, client.Transfer("acme:0", "acme:x", 5))...)
	for _, each := range []struct {
		bundle *ledger.Bundle
		end    []byte
	}{{narrow, []byte{252, 253, 5, 254, 255, 5}},
		{wide, []byte{0, 254, 0, 255, 5, 0, 0, 1, 0, 5}}} {
		if content := each.bundle.Content(); !bytes.HasSuffix(content, each.end) {
			t.Errorf("the records end with %x, and not with %x", content[len(content)-12:],
				each.end)
		}
		if decoded, err := ledger.DecodeBundle(each.bundle.Encode()); err != nil ||
			!reflect.DeepEqual(transactionsOf(decoded), transactionsOf(each.bundle)) {
			t.Errorf("it is decoded otherwise: %v", err)
		}
	}
}

// TestLargestPackedBundle has as many transfers as a bundle may have, and then names that are too
// long for them.
func TestLargestPackedBundle(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfers := make([]ledger.Transaction, ledger.MaxBundleTransactions)
	for i := range transfers {
		transfers[i] = client.Transfer(client.Account(fmt.Sprintf("%d-from", i)),
			client.Account(fmt.Sprintf("%d-to", i)), 1)
	}
	bundle := client.Packed(transfers...)
	decoded, err := ledger.DecodeBundle(bundle.Encode())
	if err != nil || !reflect.DeepEqual(decoded.IDs(), bundle.IDs()) {
		t.Fatal(err)
	}
	for i, id := range bundle.IDs() {
		if first, place := ledger.PackedPlace(id); first != bundle.ID(0) || place != i {
			t.Fatalf("transfer %d is at place %d", i, place)
		}
	}
	if shown, err := ledger.DecodeBody(bundle.Body(4095)); err != nil ||
		shown.Postings[1].Account != "acme:4095-to" {
		t.Errorf("the last one is shown as %+v: %v", shown, err)
	}
	for i := range transfers {
		long := strings.Repeat("x", ledger.MaxAccountPath-len("acme:f0000"))
		transfers[i].Postings[0].Account = client.Account(fmt.Sprintf("f%04d", i) + long)
		transfers[i].Postings[1].Account = client.Account(fmt.Sprintf("t%04d", i) + long)
	}
	if _, err := ledger.PackBundle(transfers...); !errors.Is(err, ledger.ErrBundleSize) {
		t.Errorf("a bundle of more than %d bytes: %v", ledger.MaxBundleBytes, err)
	}
	malformed := client.Transfer("acme:a", "acme:", 1)
	if _, err := ledger.PackBundle(malformed); !errors.Is(err, ledger.ErrName) {
		t.Errorf("a malformed name: %v", err)
	}
}

// TestAssemblePackedRefuses: only the content of a packed bundle is one.
func TestAssemblePackedRefuses(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfer := client.Transfer("acme:a", "acme:b", 1)
	plain, packed := client.Bundle(transfer), client.Packed(transfer)
	unsigned, err := ledger.NewBundle(transfer)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Packed() || plain.Content() != nil {
		t.Error("a bundle of bodies is packed")
	}
	for name, content := range map[string][]byte{"nothing": nil, "bodies": plain.Encode(),
		"bodies without signatures": unsigned.Encode()[:len(unsigned.Encode())-1],
		"cut":                       packed.Content()[:40],
		"more":                      append(bytes.Clone(packed.Content()), 1)} {
		if _, err := ledger.AssemblePackedBundle(content, nil); !errors.Is(err,
			ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ledger.AssemblePackedBundle(packed.Content(), make([]ledger.Signature,
		ledger.MaxBundleSignatures+1)); !errors.Is(err, ledger.ErrBundleSize) {
		t.Errorf("too many signatures: %v", err)
	}
	if _, err := ledger.AssemblePackedBundle(make([]byte, ledger.MaxBundleBytes),
		nil); !errors.Is(err, ledger.ErrBundleSize) {
		t.Errorf("too many bytes: %v", err)
	}
}

// TestChainsTakePackedBundlesFromVersion3: what the chain does not take is refused before it is
// proposed.
func TestChainsTakePackedBundlesFromVersion3(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		version        int
		sharded, takes bool
	}{{2, false, false}, {3, false, true}, {3, true, false}} {
		genesis := ledgertest.Genesis()
		if each.sharded {
			genesis = ledgertest.ShardedGenesis(1, 0, 0)
		}
		genesis.Version = each.version
		known, client := newAuthority(genesis), ledgertest.NewClient(genesis, "acme")
		known.charter.Version = each.version
		known.register(client.Bundle(client.Register("a", "b")))
		err := ledger.VerifyBundle(client.Packed(client.Transfer("acme:a", "acme:b", 1)), genesis,
			genesis.Book(), known)
		if each.takes != (err == nil) || !each.takes && !errors.Is(err,
			ledger.ErrInvalidTransaction) {
			t.Errorf("%+v: %v", each, err)
		}
	}
}

// TestPackedBundlesNeedTheSameConsent: a packed bundle may be proposed if and only if a bundle of
// the same transfers with the same signers may, and is refused for the same transfer and reason.
func TestPackedBundlesNeedTheSameConsent(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.PackedVersion
	names := []ledger.OrganisationName{"acme", "bank", "corp"}
	rapid.Check(t, func(t *rapid.T) {
		known := newAuthority(genesis)
		known.charter.Version = genesis.Version
		for _, name := range names {
			one := ledgertest.NewClient(genesis, name)
			known.register(one.Bundle(one.Register("a")))
			if rapid.IntRange(0, 5).Draw(t, "policy of "+string(name)) == 0 {
				organisation := known.organisations[name]
				organisation.Policy = &ledger.Policy{Threshold: 2, Keys: []ledger.PolicyKey{
					{Key: ledgertest.PublicKey(string(name))}}}
				known.organisations[name] = organisation
			}
		}
		client := ledgertest.NewClient(genesis, "acme")
		if rapid.IntRange(0, 9).Draw(t, "of another ledger") == 0 {
			client.Ledger = ledger.Hash{1}
		}
		payers := names[rapid.IntRange(0, 1).Draw(t, "payers from"):]
		path := func(owners []ledger.OrganisationName) ledger.AccountPath {
			return ledger.AccountPath(string(rapid.SampledFrom(owners).Draw(t, "owner")) + ":" +
				strconv.Itoa(rapid.IntRange(0, 400).Draw(t, "account")))
		}
		var transfers []ledger.Transaction
		for range rapid.IntRange(1, 300).Draw(t, "transfers") {
			from, to := path(payers), path(names)
			if from == to {
				to += "x"
			}
			transfers = append(transfers, client.Transfer(from, to, 1))
		}
		packed, err := ledger.PackBundle(transfers...)
		if err != nil {
			t.Fatal(err)
		}
		bodies, err := ledger.NewBundle(transfers...)
		if err != nil {
			t.Fatal(err)
		}
		for _, signer := range names {
			if rapid.IntRange(0, 4).Draw(t, "signs "+string(signer)) == 0 {
				continue
			}
			for _, bundle := range []*ledger.Bundle{packed, bodies} {
				if err := bundle.Sign(signer, ledgertest.Key(string(signer))); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := fmt.Sprint(ledger.CheckBundle(packed, genesis, genesis.Book(), known))
		if want := fmt.Sprint(ledger.CheckBundle(bodies, genesis, genesis.Book(),
			known)); got != want {
			t.Fatalf("packed: %s; otherwise: %s", got, want)
		}
	})
}

// mixedBlock returns a block with a packed bundle in which some transfers failed, one in which none
// did, and bundles of bodies: whole, with failed transactions, and with some that were dropped.
func mixedBlock(genesis *ledger.Genesis) *ledger.Block {
	client := ledgertest.NewClient(genesis, "acme")
	transfers := func(count int) (all []ledger.Transaction) {
		for i := range count {
			all = append(all, client.Transfer(client.Account(fmt.Sprintf("from-%d", i)),
				client.Account(fmt.Sprintf("to-%d", i/2)), int64(i+1)))
		}
		return all
	}
	block := ledgertest.Block(genesis, client.Packed(transfers(150)...),
		client.Bundle(transfers(3)...), client.Packed(transfers(1)...),
		client.Bundle(transfers(5)...), client.Bundle(transfers(2)...))
	short := ledger.Result{Code: ledger.InsufficientFunds}
	fail(&block.Bundles[0], 3, short)
	fail(&block.Bundles[0], 149, short)
	block.Unpacked[4].Result = short
	// The second and the last transactions of the fourth bundle were in an earlier block.
	seal := &block.Bundles[3]
	seal.Kept[1], seal.Kept[4] = false, false
	block.Unpacked = slices.Delete(slices.Delete(block.Unpacked, 7, 8), 4, 5)
	block.Header.Transactions = uint32(block.Len())
	block.Complete(ledger.Hash{9})
	return block
}

// fail gives one transfer of a packed bundle another result.
func fail(seal *ledger.BundleSeal, place int, result ledger.Result) {
	results := make([]ledger.Result, seal.Len())
	for i := range results {
		results[i] = seal.Result(i)
	}
	results[place] = result
	seal.SetResults(results)
}

// TestBlockByBundle: a block with packed bundles is what its encoding and its outline say, and each
// of its transactions can be proven.
func TestBlockByBundle(t *testing.T) {
	t.Parallel()
	block := mixedBlock(ledgertest.Genesis())
	decoded, err := ledger.DecodeBlock(block.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.VerifySignatures(decoded); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(decoded.Encode(), block.Encode()) || decoded.Hash != block.Hash {
		t.Error("a block has two encodings")
	}
	outline, err := ledger.DecodeOutline(&decoded.Header, decoded.Outline())
	if err != nil {
		t.Fatal(err)
	}
	for i := range block.Len() {
		entry := decoded.Entry(i)
		if seal := &block.Bundles[entry.Bundle]; !seal.Packed() || entry.Place == 0 {
			want := ledger.OutlineEntry{ID: entry.ID, Index: uint32(i), Result: entry.Result}
			if seal.Packed() {
				want.ID, want.Transfers = seal.ID(seal.Len()-1), seal.Len()
			}
			if len(outline) == 0 || outline[0] != want {
				t.Fatalf("the outline has %+v, want %+v", outline, want)
			}
			outline = outline[1:]
		}
		if made := block.Entry(i); entry.Result != made.Result ||
			!alike(entry.Transaction(), made.Transaction()) {
			t.Fatalf("transaction %d differs", i)
		}
		proof, err := ledger.DecodeProof(decoded.Proof(i).Encode())
		if err == nil {
			err = ledger.VerifyProof(proof)
		}
		if err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		transaction, err := proof.Transaction()
		if err != nil || !alike(transaction, entry.Transaction()) {
			t.Fatalf("transaction %d is proven as %+v: %v", i, transaction, err)
		}
	}
}

// alike reports whether two transactions have the same encoding.
func alike(a, b *ledger.Transaction) bool {
	first, err := a.EncodeBody()
	second, failure := b.EncodeBody()
	return err == nil && failure == nil && bytes.Equal(first, second)
}

// TestOutlineThatLies: an outline with another id, root, result or place does not fit the header.
func TestOutlineThatLies(t *testing.T) {
	t.Parallel()
	block := mixedBlock(ledgertest.Genesis())
	outline := block.Outline()
	for i := range outline {
		wrong := bytes.Clone(outline)
		wrong[i] ^= 1
		if _, err := ledger.DecodeOutline(&block.Header, wrong); err == nil {
			t.Errorf("byte %d of the outline may have another value", i)
		}
	}
	if _, err := ledger.DecodeOutline(&block.Header, outline[:len(outline)-1]); err == nil {
		t.Error("an outline is cut short")
	}
	if _, err := ledger.OutlineSize(&block.Header, []byte{0x7f, 0, 0, 0}); err == nil {
		t.Error("an outline has any size")
	}
	size, err := ledger.OutlineSize(&block.Header, outline[:ledger.OutlinePrefix])
	if err != nil || size != len(outline) {
		t.Errorf("an outline of %d bytes has size %d: %v", len(outline), size, err)
	}
}

// TestOutlineOfCopies: a block may have a bundle of which all transactions are copies, and even
// nothing else. Its outline can be read.
func TestOutlineOfCopies(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	for dropped := range 4 {
		block := ledgertest.Block(genesis, client.Bundle(client.Register("a")),
			client.Bundle(client.Transfer("acme:a", "acme:b", 1), client.Transfer("acme:a",
				"acme:b", 2)), client.Bundle(client.Next()))
		for bundle := range block.Bundles {
			if bundle == dropped || dropped == len(block.Bundles) {
				clear(block.Bundles[bundle].Kept)
			}
		}
		block.Unpacked = slices.DeleteFunc(block.Unpacked, func(entry ledger.Entry) bool {
			return !block.Bundles[entry.Bundle].Kept[0]
		})
		block.Header.Transactions, block.Header.ByBundle = uint32(block.Len()), true
		block.Complete(ledger.Hash{9})
		outline := block.Outline()
		size, err := ledger.OutlineSize(&block.Header, outline[:ledger.OutlinePrefix])
		entries, failure := ledger.DecodeOutline(&block.Header, outline)
		if err != nil || failure != nil || size != len(outline) || len(entries) != block.Len() {
			t.Fatalf("bundle %d dropped: %d bytes of %d, %d entries of %d: %v, %v", dropped, size,
				len(outline), len(entries), block.Len(), err, failure)
		}
		for i, entry := range entries {
			if want := block.Entry(i); entry.ID != want.ID || entry.Result != want.Result ||
				int(entry.Index) != i {
				t.Errorf("bundle %d dropped: entry %d is %+v", dropped, i, entry)
			}
		}
	}
}

// TestBlockByBundleThatLies: no bit of a block with packed bundles may have another value.
func TestBlockByBundleThatLies(t *testing.T) {
	t.Parallel()
	block := mixedBlock(ledgertest.Genesis())
	encoded := block.Encode()
	for i := ledger.HeaderSize; i < len(encoded); i++ {
		wrong := bytes.Clone(encoded)
		wrong[i] ^= 1 << (i % 8)
		if decoded, err := ledger.DecodeBlock(wrong); err == nil {
			t.Errorf("byte %d may have another value: %v", i, decoded.Hash == block.Hash)
		}
	}
	// Packed bundles are only in blocks by bundle.
	header := block.Header
	header.ByBundle = false
	if _, err := ledger.DecodeBlock(append(header.Encode(),
		encoded[ledger.HeaderSize:]...)); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("another kind of block: %v", err)
	}
}

// TestProofByBundleThatLies: each part of a proof in a block by bundle has to be right.
func TestProofByBundleThatLies(t *testing.T) {
	t.Parallel()
	block := mixedBlock(ledgertest.Genesis())
	for _, index := range []int{5, 149, 151, 156} {
		good := block.Proof(index).Encode()
		other := block.Proof(4)
		lies := map[string]func(*ledger.Proof){
			"body":         func(p *ledger.Proof) { p.Body = other.Body },
			"id":           func(p *ledger.Proof) { p.ID[31] ^= 1 },
			"root of id":   func(p *ledger.Proof) { p.ID[3] ^= 1 },
			"result":       func(p *ledger.Proof) { p.Result.Code ^= ledger.Expired },
			"item":         func(p *ledger.Proof) { p.Result.Item ^= 1 },
			"index":        func(p *ledger.Proof) { p.Index++ },
			"index before": func(p *ledger.Proof) { p.Index-- },
			"count":        func(p *ledger.Proof) { p.Count++ },
			"first":        func(p *ledger.Proof) { p.Placing.First++ },
			"kept":         func(p *ledger.Proof) { p.Placing.Kept++ },
			"bundle":       func(p *ledger.Proof) { p.Placing.Bundle ^= 1 },
			"path":         func(p *ledger.Proof) { p.Placing.TransactionPath[0][3]++ },
			"result path":  func(p *ledger.Proof) { p.Placing.ResultPath[0][3]++ },
			"applied":      func(p *ledger.Proof) { p.Placing.AllApplied = !p.Placing.AllApplied },
			"inner path": func(p *ledger.Proof) {
				p.TransactionPath = append(p.TransactionPath, p.ID)
			},
			"inner result": func(p *ledger.Proof) { p.ResultPath = append(p.ResultPath, p.ID) },
			"bundle root":  func(p *ledger.Proof) { p.BundleRoot[31]++ },
			"bundle index": func(p *ledger.Proof) { p.BundleIndex ^= 1 },
			"bundle path":  func(p *ledger.Proof) { p.BundlePath[0][0]++ },
			"cut path":     func(p *ledger.Proof) { p.BundlePath = p.BundlePath[1:] },
			"shorter path": func(p *ledger.Proof) {
				p.BundlePath = slices.Clip(p.BundlePath[:len(p.BundlePath)-1])
			},
			"longer path": func(p *ledger.Proof) { p.BundlePath = append(p.BundlePath, p.ID) },
			"signature":   func(p *ledger.Proof) { p.Signatures[0].Bytes[5] ^= 1 },
			"header":      func(p *ledger.Proof) { p.Header[70] ^= 1 },
			"no placing":  func(p *ledger.Proof) { p.Placing = nil },
			"the result of another": func(p *ledger.Proof) {
				near := block.Proof(index - 1)
				p.Index, p.BundleIndex, p.Result = near.Index, near.BundleIndex, near.Result
				p.ResultPath, p.Placing = near.ResultPath, near.Placing
			},
		}
		if index < 150 {
			// A path does not show how many leaves a tree of bodies has.
			lies["bundle count"] = func(p *ledger.Proof) { p.BundleCount++ }
		}
		for name, lie := range lies {
			proof, err := ledger.DecodeProof(bytes.Clone(good))
			if err != nil {
				t.Fatal(err)
			}
			lie(proof)
			if err := ledger.VerifyProof(proof); !errors.Is(err, ledger.ErrProof) {
				t.Errorf("transaction %d, %s: %v", index, name, err)
			}
		}
	}
}

// TestProofsOfOtherBlocks: a proof with a placing is of a block by bundle only, and so is one of a
// packed transfer.
func TestProofsOfOtherBlocks(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfer := client.Transfer("acme:a", "acme:b", 1)
	plain := ledgertest.Block(ledgertest.Genesis(), client.Bundle(transfer)).Proof(0)
	if err := ledger.VerifyProof(plain); err != nil {
		t.Fatal(err)
	}
	block := ledgertest.Block(ledgertest.Genesis(), client.Packed(transfer))
	plain.Placing = block.Proof(0).Placing
	if err := ledger.VerifyProof(plain); !errors.Is(err, ledger.ErrProof) {
		t.Errorf("a placing in a block that is not by bundle: %v", err)
	}
	block.Header.ByBundle = false
	block.Complete(ledger.Hash{})
	if err := ledger.VerifyProof(block.Proof(0)); !errors.Is(err, ledger.ErrProof) {
		t.Errorf("a packed transfer in a block that is not by bundle: %v", err)
	}
}

// TestPackedBodyThatLies: no byte of what shows a transfer may change.
func TestPackedBodyThatLies(t *testing.T) {
	t.Parallel()
	block := mixedBlock(ledgertest.Genesis())
	for _, index := range []int{70, 150 + 3} {
		good := block.Proof(index)
		for i := range good.Body {
			proof := *good
			proof.Body = bytes.Clone(good.Body)
			proof.Body[i] ^= 1 << (i % 8)
			if err := ledger.VerifyProof(&proof); !errors.Is(err, ledger.ErrProof) {
				t.Errorf("transaction %d, byte %d: %v", index, i, err)
			}
		}
	}
}

// bodyFields returns what shows a transfer as its fields.
func bodyFields(t *testing.T, body []byte) (fields [][]byte, place uint64) {
	t.Helper()
	rest := body[1:]
	text := func() {
		size, width := binary.Uvarint(rest)
		fields = append(fields, rest[width:][:size])
		rest = rest[width+int(size):]
	}
	text()
	place, width := binary.Uvarint(rest)
	for rest = rest[width:]; len(rest) > 0; {
		text()
	}
	if len(fields) != 4 {
		t.Fatalf("%d fields", len(fields))
	}
	return fields, place
}

// bodyOf puts such fields together.
func bodyOf(fields [][]byte, place uint64) []byte {
	body := []byte{8}
	for i, field := range fields {
		body = append(binary.AppendUvarint(body, uint64(len(field))), field...)
		if i == 0 {
			body = binary.AppendUvarint(body, place)
		}
	}
	return body
}

// TestPackedBodyHasOneForm: parts with more or less than the head says are refused, as are names
// that are given twice.
func TestPackedBodyHasOneForm(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var transfers []ledger.Transaction
	for i := range 70 {
		transfers = append(transfers, client.Transfer(client.Account(fmt.Sprintf("from-%d", i)),
			client.Account(fmt.Sprintf("to-%d", i)), 1))
	}
	transfers = append(transfers, client.Transfer("acme:from-1", "acme:to-69", 1))
	bundle := client.Packed(transfers...)
	for _, at := range []int{3, 69, 70} { // the last one has its names in two parts
		good := bundle.Body(at)
		fields, place := bodyFields(t, good)
		if !bytes.Equal(bodyOf(fields, place), good) || (len(fields[2]) > 0) != (at == 70) {
			t.Fatalf("transfer %d is shown by %d fields", at, len(fields))
		}
		lies := map[string][]byte{"longer": append(bytes.Clone(good), 0),
			"shorter": good[:len(good)-1], "place": bodyOf(fields, 71),
			"far place": bodyOf(fields, 1<<40)}
		for i := range fields {
			for name, field := range map[string][]byte{"more": append(bytes.Clone(fields[i]), 1),
				"less":    fields[i][:max(len(fields[i]), 1)-1],
				"another": fields[(i+1)%4], "none": nil} {
				if bytes.Equal(field, fields[i]) {
					continue
				}
				changed := slices.Clone(fields)
				changed[i] = field
				lies[fmt.Sprintf("field %d: %s", i, name)] = bodyOf(changed, place)
			}
		}
		if at != 70 {
			changed := slices.Clone(fields)
			changed[2] = fields[1]
			lies["the same part twice"] = bodyOf(changed, place)
		}
		for name, lie := range lies {
			if shown, err := ledger.DecodeBody(lie); !errors.Is(err, ledger.ErrMalformed) {
				t.Errorf("transfer %d, %s: %+v, %v", at, name, shown, err)
			}
		}
	}
	// The head, names and one record of a transfer from an account to itself.
	itself, err := hex.DecodeString("03" + strings.Repeat("11", 32) + "0461636d65" + "070109" +
		"0103424f42" + "020101")
	if err != nil {
		t.Fatal(err)
	}
	lie := bodyOf([][]byte{itself, []byte("\x00\x03a:b\x03\x00"), nil, {0, 1, 5}}, 0)
	if _, err := ledger.DecodeBody(lie); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("a transfer from an account to itself: %v", err)
	}
}
