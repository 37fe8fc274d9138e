package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// seeds returns one valid encoding of each kind.
func seeds(f *testing.F) (body, bundle, batch, block, proof []byte) {
	f.Helper()
	genesis := ledgertest.Genesis()
	client := ledgertest.NewClient(genesis, "acme")
	register, transfer := client.Register("issuer", "a"),
		client.Transfer("acme:issuer", "acme:a", 5)
	transfer.Records = []ledger.Record{{Key: "acme:record", Value: []byte("value")}}
	transfer.Note = []byte(`{"of":"a note"}`)
	signed := client.Bundle(register, transfer)
	batch = ledgertest.Batch(7, signed)
	first := ledgertest.Block(genesis, signed)
	return signed.Body(1), signed.Encode(), batch, first.Encode(), first.Proof(1).Encode()
}

// changeSeeds returns bundles with a join, a leave, an admission of a disk and changes of the
// engine, of a policy and of the charter.
func changeSeeds() []*ledger.Bundle {
	genesis := ledgertest.OperatedGenesis(2)
	operator := ledgertest.NewOperator(genesis)
	admit := ledgertest.Admit("node-0", genesis, genesis.Membership(), 1, ledgertest.Disk(1), 0)
	charter := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: ledger.Charter{Number: 1, Threshold: 1, Operators: genesis.Operators}}}
	bounded := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: charter.Charter.Clone()}}
	bounded.Charter.Quotas = ledger.DefaultQuotas()
	versioned := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: bounded.Charter.Clone()}}
	versioned.Charter.Version = 2
	acme := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	policy := ledgertest.Policy(2, "acme", "second", "third")
	policy.Keys[2].Role = ledger.RolePost
	policy.Limits = []ledger.Limit{{Asset: "EUR", Above: ledger.NewAmount(9), Signatures: 2}}
	policy.RefuseAssets, policy.Assets = true, []ledger.AssetName{"EUR"}
	return []*ledger.Bundle{operator.Join(ledgertest.Member(2)), operator.Leave(1), admit,
		operator.ChangeEngine("allconcur"),
		acme.Bundle(acme.ChangePolicy(policy)), operator.Bundle("operator", charter),
		operator.Bundle("operator", bounded), operator.Bundle("operator", versioned)}
}

// crossingSeed returns a block of the second of two shards, with a verdict and a bundle from the
// parent's stream.
func crossingSeed() *ledger.Block {
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	client := ledgertest.NewClient(genesis, "org0")
	carried := client.Bundle(client.Transfer("org0:issuer", "org1:a", 3))
	block := ledgertest.Block(genesis, carried)
	block.Bundles[0].Number = 1
	entry := ledger.Verdict{ID: ledger.Hash{1}, Shard: 0,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}.Entry(genesis.Book())
	entry.Result = ledger.Result{Code: ledger.Settled, Item: ledger.NoItem}
	block.Unpacked = slices.Insert(block.Unpacked, 0, entry)
	block.Unpacked[1].Bundle = 1
	ids := []ledger.Hash{entry.ID}
	block.Bundles = slices.Insert(block.Bundles, 0, ledger.BundleSeal{IDs: ids,
		Kept: []bool{true}, Root: ledger.IDRoot(ids)})
	block.Header.Transactions, block.Header.Total = 2, 2
	block.Complete(ledger.Hash{})
	return block
}

// bundleOf decodes a bundle.
func bundleOf(f *testing.F, encoded []byte) *ledger.Bundle {
	f.Helper()
	bundle, err := ledger.DecodeBundle(encoded)
	if err != nil {
		f.Fatal(err)
	}
	return bundle
}

func bundleSeed(f *testing.F) []byte {
	_, bundle, _, _, _ := seeds(f)
	return bundle
}

func FuzzTransaction(f *testing.F) {
	body, _, _, _, _ := seeds(f)
	f.Add(body)
	acme := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	timed := acme.Transfer("acme:issuer", "acme:a", 5)
	timed.Deadline = 1_700_000_000_000
	f.Add(acme.Bundle(timed).Body(0))
	f.Add(acme.Bundle(acme.Cancel(ledger.Hash{7}, timed.Deadline, 3)).Body(0))
	for _, bundle := range changeSeeds() {
		f.Add(bundle.Body(0))
	}
	crossing := crossingSeed()
	f.Add(crossing.Unpacked[0].Body)
	f.Fuzz(func(t *testing.T, data []byte) {
		transaction, err := ledger.DecodeBody(data)
		if err != nil {
			return
		}
		_ = transaction.Validate()
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("a transaction has two encodings: %v", err)
		}
		text, err := json.Marshal(transaction)
		if err != nil {
			t.Fatal(err)
		}
		var read ledger.Transaction
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzCharterChange(f *testing.F) {
	for i, bundle := range changeSeeds()[4:] {
		f.Add(bundle.Body(0)[1:], []byte{0}, byte(i))
	}
	f.Fuzz(func(t *testing.T, data, signers []byte, kind byte) {
		version := 5 + kind%3
		transaction, err := ledger.DecodeBody(append([]byte{version}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || again[0] != version ||
			!bytes.Equal(again[1:], data) {
			t.Fatalf("a change of the charter has two encodings: %v", err)
		}
		charter := transaction.Charter.Clone()
		var signatures []ledger.Signature
		distinct := map[int]bool{}
		for _, signer := range signers {
			at := int(signer) % len(charter.Operators)
			distinct[at] = true
			signatures = append(signatures, ledger.Signature{Key: charter.Operators[at]})
		}
		if charter.Consents(signatures) != (len(distinct) >= charter.Threshold) {
			t.Fatalf("%d of %d operators", len(distinct), charter.Threshold)
		}
	})
}

func FuzzPolicyChange(f *testing.F) {
	f.Add(changeSeeds()[3].Body(0)[1:], []byte{1, 2})
	f.Fuzz(func(t *testing.T, data, signers []byte) {
		transaction, err := ledger.DecodeBody(append([]byte{4}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("a change of a policy has two encodings: %v", err)
		}
		policy := transaction.Policy.Clone()
		organisation := ledger.Organisation{Name: transaction.Signer, Policy: &policy,
			Keys: policy.PublicKeys()}
		var signatures []ledger.Signature
		distinct := map[int]bool{}
		for _, signer := range signers {
			at := int(signer) % len(policy.Keys)
			if policy.Keys[at].Role == ledger.RoleAll {
				distinct[at] = true
			}
			signatures = append(signatures, ledger.Signature{Organisation: transaction.Signer,
				Key: policy.Keys[at].Key})
		}
		if consents := organisation.Consents(transaction, signatures) == ledger.Applied; consents !=
			(len(distinct) >= policy.Most()) {
			t.Fatalf("%d of %d keys consent: %t", len(distinct), policy.Most(), consents)
		}
	})
}

func FuzzAssetChange(f *testing.F) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	f.Add(client.Bundle(client.ChangeAsset("EUR", 1, ledgertest.Capped(5, "acme", "bank"))).
		Body(0)[1:], uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, less uint8) {
		transaction, err := ledger.DecodeBody(append([]byte{13}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("a change of an asset has two encodings: %v", err)
		}
		terms := &transaction.Asset.AssetTerms
		asset := ledger.Asset{Number: 1, Name: transaction.Asset.Asset, Owner: transaction.Signer,
			Revision: 1, AssetTerms: *terms, Issuances: make([]ledger.Issuance, len(terms.Issuers))}
		entry, key := asset.AppendEntry(nil)
		if _, err := ledger.DecodeAsset(entry[:key], entry[key:]); err != nil {
			t.Fatal(err)
		}
		if len(terms.Issuers) == 0 || terms.Supply != ledger.SupplyCapped {
			return
		}
		// What one issuer gives up, no other one gets.
		next, given := terms.Clone(), ledger.NewAmount(int64(less))
		next.Issuers[0].Allowance = next.Issuers[0].Allowance.Minus(given)
		if next.Validate() == nil && terms.MayBecome(&next) != (less == 0) {
			t.Fatalf("%+v may become %+v", terms, next)
		}
	})
}

func FuzzHold(f *testing.F) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for end, t := range []ledger.Transaction{
		client.PlaceHold("acme:a", "shop:a", 5, 7),
		client.EndHold(ledger.Hash{1}, "shop:a", "acme:a", 5),
		client.EndHold(ledger.Hash{1}, "shop:a", "acme:a", 0)} {
		f.Add(client.Bundle(t).Body(0)[1:], end > 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, end bool) {
		version := byte(14)
		if end {
			version = 15
		}
		transaction, err := ledger.DecodeBody(append([]byte{version}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("a hold has two encodings: %v", err)
		}
		if (transaction.Hold != nil) == end || (transaction.HoldEnd != nil) != end ||
			!transaction.TakesNonce() || transaction.BookWide() {
			t.Fatalf("%+v", transaction)
		}
		if end && slices.ContainsFunc(transaction.Postings, func(p ledger.Posting) bool {
			return transaction.Takes(&p)
		}) {
			t.Fatal("the end of a hold needs the holder's consent")
		}
	})
}

// FuzzDetails: an entry with details has one encoding, and what it says of refunds is bounded.
func FuzzDetails(f *testing.F) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for _, details := range []ledger.Details{{Effective: 5}, {Key: "invoice 7"}, {Refundable: 9},
		{Key: "k", Refund: &ledger.Refund{Entry: ledger.Hash{1}, Organisation: "shop"}}} {
		t := client.Transfer("acme:a", "shop:a", 5)
		t.Details = &details
		f.Add(client.Bundle(t).Body(0)[1:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		transaction, err := ledger.DecodeBody(append([]byte{17}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("an entry with details has two encodings: %v", err)
		}
		d := transaction.Details
		if d == nil || !transaction.TakesNonce() || transaction.BookWide() ||
			d.Refundable != 0 && d.Refund != nil || d.Key != "" &&
			!ledger.ValidIdempotencyKey(d.Key) || (d.Refundable != 0 || d.Refund != nil) &&
			len(transaction.Postings) > ledger.MaxRefundPostings {
			t.Fatalf("%+v", transaction)
		}
	})
}

func FuzzSchedule(f *testing.F) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	placed, end := client.Next(), client.Next()
	placed.Schedule = &ledger.Schedule{Postings: client.Transfer("acme:a", "shop:a", 5).Postings,
		First: 7, Period: ledger.Months, Every: 1, Count: 9}
	end.ScheduleEnd = &ledger.ScheduleEnd{Schedule: ledger.Hash{1}}
	occurrence := ledger.OccurrenceOf(&placed, ledger.Hash{1}, 3)
	entry, _ := ledger.OccurrenceEntry(&occurrence, 0)
	for i, body := range [][]byte{client.Bundle(placed).Body(0), client.Bundle(end).Body(0),
		entry.Body} {
		f.Add(body[1:], byte(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		transaction, err := ledger.DecodeBody(append([]byte{18 + kind%3}, data...))
		if err != nil {
			return
		}
		if again, err := transaction.EncodeBody(); err != nil || !bytes.Equal(again[1:], data) {
			t.Fatalf("a schedule has two encodings: %v", err)
		}
		if transaction.TakesNonce() || transaction.BookWide() || !transaction.Schedules() {
			t.Fatalf("%+v", transaction)
		}
		if s := transaction.Schedule; s != nil {
			count := s.Occurrences()
			if count == 0 || count > ledger.MaxOccurrences || s.Until > 0 &&
				s.TimeOf(count) > s.Until {
				t.Fatalf("%+v has %d occurrences", s, count)
			}
			for number := uint64(1); number < count; number++ {
				if s.TimeOf(number) >= s.TimeOf(number+1) {
					t.Fatalf("%+v: occurrence %d is not before the next one", s, number)
				}
			}
		}
	})
}

func FuzzBundle(f *testing.F) {
	_, bundle, _, _, _ := seeds(f)
	f.Add(bundle)
	for _, change := range changeSeeds() {
		f.Add(change.Encode())
	}
	f.Add(packedSeed().Encode())
	genesis := ledgertest.Genesis()
	known := newAuthority(genesis)
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeBundle(data)
		if err != nil {
			return
		}
		if decoded.Packed() {
			checkPacked(t, decoded, data)
			return
		}
		var transactions []ledger.Transaction
		for i := range decoded.Len() {
			transactions = append(transactions, *decoded.Transaction(i))
		}
		again, err := ledger.NewBundle(transactions...)
		if err != nil {
			return
		}
		for _, signature := range decoded.Signatures() {
			if err := again.AddSignature(signature); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again.Encode(), data) || again.Root() != decoded.Root() {
			t.Fatal("a bundle has two encodings")
		}
		_ = ledger.VerifyBundle(decoded, genesis, genesis.Hash(), known)
	})
}

// packedSeed returns a packed bundle.
func packedSeed() *ledger.Bundle {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	return client.Packed(client.Transfer("acme:a", "acme:b", 1),
		client.Transfer("acme:b", "other:a", 300))
}

// checkPacked checks a packed bundle that was decoded from data: assembled again it has the same
// bytes, and what shows each of its transfers decodes to it.
func checkPacked(t *testing.T, decoded *ledger.Bundle, data []byte) {
	t.Helper()
	assembled, err := ledger.AssemblePackedBundle(decoded.Content(), decoded.Signatures())
	if errors.Is(err, ledger.ErrBundleSize) { // no room for all signatures that there may be
		return
	}
	if err != nil || !bytes.Equal(assembled.Encode(), data) || assembled.Root() != decoded.Root() {
		t.Fatalf("a packed bundle has two encodings: %v", err)
	}
	for i := range decoded.Len() {
		shown, err := ledger.DecodeBody(decoded.Body(i))
		if err != nil || !reflect.DeepEqual(shown, decoded.Transaction(i)) {
			t.Fatalf("transfer %d is shown as %+v: %v", i, shown, err)
		}
		if err := shown.Validate(); err != nil {
			t.Fatalf("transfer %d: %v", i, err)
		}
	}
}

func FuzzBatch(f *testing.F) {
	_, _, batch, _, _ := seeds(f)
	f.Add(batch)
	f.Add(ledgertest.Batch(7, changeSeeds()...))
	f.Add((&ledger.Batch{Bundles: [][]byte{bundleSeed(f)},
		Clocks: []ledger.MemberClock{{Member: 0}, {Member: 1, Offset: -9000}}}).Encode())
	f.Add(ledgertest.Batch(7, changeSeeds()[2]))
	crossing := crossingSeed()
	verdicts := []ledger.Verdict{*crossing.Unpacked[0].Transaction().Verdict}
	f.Add((&ledger.Batch{
		Bundles: [][]byte{bundleSeed(f)}, Carried: []ledger.Carried{{Number: 1,
			Bundle: crossing.CarriedBundle(1)}},
		Verdicts: verdicts,
	}).Encode())
	f.Add((&ledger.Batch{Bundles: [][]byte{changeSeeds()[0].Encode()},
		Verdicts: verdicts}).Encode())
	f.Add(vouchedSeed().Encode())
	f.Add(groupedSeed().Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		batch, err := ledger.DecodeBatch(data)
		if err == nil && !bytes.Equal(batch.Encode(), data) {
			t.Fatal("a batch has two encodings")
		}
	})
}

func FuzzBlock(f *testing.F) {
	_, _, _, block, _ := seeds(f)
	f.Add(block)
	crossing := crossingSeed()
	f.Add(crossing.Encode())
	f.Add(ledgertest.Block(ledgertest.Genesis(), packedSeed(), bundleOf(f, bundleSeed(f))).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeBlock(data)
		if err == nil && !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a block has two encodings")
		}
	})
}

func FuzzProof(f *testing.F) {
	_, _, _, _, proof := seeds(f)
	f.Add(proof)
	packed := ledgertest.Block(ledgertest.Genesis(), packedSeed(), bundleOf(f, bundleSeed(f)))
	for i := range packed.Len() {
		f.Add(packed.Proof(i).Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeProof(data)
		if err != nil {
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatal("a proof has two encodings")
		}
		_ = ledger.VerifyProof(decoded)
	})
}

func FuzzGenesis(f *testing.F) {
	f.Add(ledgertest.Genesis().Encode())
	f.Add(ledgertest.ShardedGenesis(2, 0, 0, 1).Encode())
	for _, genesis := range []*ledger.Genesis{ledgertest.OperatedGenesis(2),
		ledgertest.ShardedGenesis(1, 0, 0)} {
		genesis.Operators = append(genesis.Operators, ledgertest.PublicKey("b"))
		genesis.OperatorThreshold = 2
		f.Add(genesis.Encode())
		genesis.Quotas = ledger.DefaultQuotas()
		f.Add(genesis.Encode())
		genesis.OperatorThreshold = 0
		f.Add(genesis.Encode())
		genesis.VouchedCrossings = true
		f.Add(genesis.Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		genesis, err := ledger.DecodeGenesis(data)
		if err == nil && !bytes.Equal(genesis.Encode(), data) {
			t.Fatal("a genesis has two encodings")
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("acme:a")
	f.Add(ledgertest.Disk(1).String())
	f.Add("-170141183460469231731687303715884105728")
	f.Fuzz(func(t *testing.T, text string) {
		if path, err := ledger.ParseAccountPath(text); err == nil &&
			path.Organisation().Validate() != nil {
			t.Fatal("an account of no organisation")
		}
		if amount, err := ledger.ParseAmount(text); err == nil && amount.String() != text {
			t.Fatal("an amount has two texts")
		}
		if disk, err := ledger.ParseDiskID(text); err == nil {
			if again, err := ledger.ParseDiskID(disk.String()); err != nil || again != disk {
				t.Fatalf("a disk has two texts: %v", err)
			}
		}
		if hash, err := ledger.ParseHash(text); err == nil && len(hash.String()) != len(text) {
			t.Fatal("a hash has two texts")
		}
	})
}

func FuzzCarried(f *testing.F) {
	f.Add(crossingSeed().CarriedBundle(1))
	f.Fuzz(func(t *testing.T, data []byte) {
		bundle, kept, err := ledger.DecodeCarried(data)
		if err != nil {
			return
		}
		block := &ledger.Block{Bundles: []ledger.BundleSeal{{IDs: bundle.IDs(), Kept: kept,
			Signatures: bundle.Signatures(), Root: bundle.Root()}}}
		for place, is := range kept {
			if is {
				block.Unpacked = append(block.Unpacked, ledger.Entry{Body: bundle.Body(place)})
			}
		}
		if !bytes.Equal(block.CarriedBundle(0), data) {
			t.Fatal("a carried bundle has two encodings")
		}
	})
}
