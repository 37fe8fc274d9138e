package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"regexp"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// The vectors are those of docs/encoding.md, and package ledger makes the same bytes.
func TestVectors(t *testing.T) {
	t.Parallel()
	basics := basicVectors{About: []string{
		"Test vectors for docs/encoding.md. All bytes are in hex.",
		"A part is its meaning and its bytes; the parts of an encoding, in order, are all of it.",
		"The seed of a key is the SHA-256 of its name.",
	}, Values: valueVectors(t), Geneses: genesisVectors(t), Homes: homeVectors(t)}
	for _, name := range []string{"alice", "bob", "operator", "another", "node-0", "node-1",
		"node-2", "node-3"} {
		seed := sha256.Sum256([]byte(name))
		key := ed25519.NewKeyFromSeed(seed[:])
		basics.Keys = append(basics.Keys, keyVector{name, hex.EncodeToString(seed[:]),
			hex.EncodeToString(key.Public().(ed25519.PublicKey))})
	}
	compareVectors(t, "basics.json", basics)
	e := newExamples(t)
	details, schedules, members, others := divided(e.transactionVectors(t))
	compareVectors(t, "details.json", details)
	compareVectors(t, "schedules.json", schedules)
	compareVectors(t, "members.json", members)
	compareVectors(t, "transactions.json", transactionVectors{Transactions: others,
		Bundles: e.bundleVectors(t), Carried: e.carriedVector(t), Batches: e.batchVectors(t)})
	blocks := blockVectors{Blocks: e.blockVectors(t), Proofs: e.proofVectors(t)}
	blocks.Statements, blocks.Certificates, blocks.Certified = e.finalityVectors(t)
	compareVectors(t, "blocks.json", blocks)
	compareVectors(t, "accounts.json", e.accountVectors(t))
	packed := newPackedExamples(t)
	compareVectors(t, "packed.json", packed.vectors(t))
	compareVectors(t, "bybundle.json", packed.byBundleVectors(t))
}

// compareVectors fails the test unless a file has these vectors. With -write it writes the file.
func compareVectors(t *testing.T, name string, made any) {
	t.Helper()
	text, err := json.MarshalIndent(made, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(onOneLine.ReplaceAll(text, []byte("[$1, $2]")), '\n')
	if *write {
		if err := os.WriteFile(vectorsFolder+name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed, err := os.ReadFile(vectorsFolder + name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, text) {
		t.Errorf("%s is not what this test makes: an encoding of version 1 has changed, or its "+
			"examples; run the test with -write to see the difference", name)
	}
}

// onOneLine matches a list of two texts, as a part is.
var onOneLine = regexp.MustCompile(`\[\n\s+("[^"]*"),\n\s+("[^"]*")\n\s+\]`)

// same fails the test unless package ledger makes these bytes.
func same(t *testing.T, name, made string, want []byte) {
	t.Helper()
	if made != hex.EncodeToString(want) {
		t.Errorf("%s: the parts are\n%s\nand package ledger makes\n%x", name, made, want)
	}
}

func valueVectors(t *testing.T) (values []valueVector) {
	t.Helper()
	for _, value := range []uint64{0, 1, 127, 128, 300, 16384, 1 << 32, math.MaxUint64} {
		encoded := uvarint(value)
		reader := codec.Reader{Data: encoded}
		if read := reader.Uvarint(); read != value || reader.End() != nil {
			t.Errorf("uvarint %d: %x is read as %d, %v", value, encoded, read, reader.Err)
		}
		values = append(values, valueVector{"uvarint", fmt.Sprint(value),
			hex.EncodeToString(encoded)})
	}
	for _, text := range []string{"0", "1", "-1", "255", "256", "-256", "18446744073709551615",
		"18446744073709551616", "170141183460469231731687303715884105727",
		"-170141183460469231731687303715884105728"} {
		encoded := amount(decimal(text))
		reader := codec.Reader{Data: encoded}
		negative, high, low := reader.Amount()
		read, inRange := ledger.AmountOf(negative, high, low)
		if read.String() != text || !inRange || reader.End() != nil {
			t.Errorf("amount %s: %x is read as %s, %v", text, encoded, read, reader.Err)
		}
		again := codec.AppendAmount(nil, negative, high, low)
		same(t, "amount "+text, hex.EncodeToString(encoded), again)
		values = append(values, valueVector{"amount", text, hex.EncodeToString(encoded)})
	}
	for _, text := range []string{"", "unit", "alice:cash"} {
		var p parts
		p.string("text", []byte(text))
		same(t, "string "+text, p.hex(), codec.AppendString(nil, text))
		values = append(values, valueVector{"string", text, p.hex()})
	}
	for _, refused := range []struct{ kind, reason, bytes string }{
		{"uvarint", "not the shortest form of 1", "8100"},
		{"uvarint", "above 64 bits", "ffffffffffffffffff02"},
		{"amount", "a leading zero byte", "0200ff"},
		{"amount", "a negative zero", "80"},
		{"amount", "2^127 does not fit", "1080000000000000000000000000000000"},
		{"string", "cut short", "05616c"},
	} {
		reader := codec.Reader{Data: fromHex(refused.bytes)}
		good := true
		switch refused.kind {
		case "uvarint":
			reader.Uvarint()
		case "amount":
			_, good = ledger.AmountOf(reader.Amount())
		case "string":
			reader.Bytes("bytes", 100)
		}
		if reader.End() == nil && good {
			t.Errorf("%s of %s is taken", refused.kind, refused.bytes)
		}
		values = append(values, valueVector{refused.kind, "refused: " + refused.reason,
			refused.bytes})
	}
	return values
}

func genesisVectors(t *testing.T) (all []vector) {
	t.Helper()
	one, two := ledgertest.OperatedGenesis(3), ledgertest.ShardedGenesis(2, 0, 0)
	changed := func(genesis *ledger.Genesis, change func(*ledger.Genesis)) *ledger.Genesis {
		other := *genesis
		other.Operators = append(other.Operators[:1:1], ledgertest.PublicKey("another"))
		change(&other)
		return &other
	}
	threshold := func(g *ledger.Genesis) { g.OperatorThreshold = 2 }
	quotas := func(g *ledger.Genesis) {
		g.RegistrationByOperator, g.Quotas = true, ledger.DefaultQuotas()
	}
	for _, each := range []struct {
		name    string
		version byte
		genesis *ledger.Genesis
	}{
		{"one shard", 1, one},
		{"two shards, the chain of shard 1", 2, changed(two, func(g *ledger.Genesis) {
			g.Operators, g.Shard, g.Members = g.Operators[:1], 1, g.Shards[1]
		})},
		{"one shard, two operators sign", 3, changed(one, threshold)},
		{"two shards, two operators sign", 4, changed(two, threshold)},
		{"one shard with quotas", 5, changed(one, quotas)},
		{"two shards with quotas", 6, changed(two, quotas)},
		{"two shards, vouched crossings", 8, changed(two, func(g *ledger.Genesis) {
			g.VouchedCrossings = true
		})},
		{"two shards, vouched crossings with quotas", 8, changed(two, func(g *ledger.Genesis) {
			quotas(g)
			g.VouchedCrossings = true
		})},
		{"one shard, version 2", 9, changed(one, func(g *ledger.Genesis) { g.Version = 2 })},
		{"two shards, version 2, vouched crossings, with quotas", 10, changed(two,
			func(g *ledger.Genesis) {
				quotas(g)
				g.Version, g.VouchedCrossings = 2, true
			})},
	} {
		if err := each.genesis.Validate(); err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		v := genesisVector(each.name, each.version, each.genesis)
		same(t, each.name, v.Encoded, each.genesis.Encode())
		hash, book := each.genesis.Hash(), each.genesis.Book()
		same(t, each.name+", hash", v.Hash, hash[:])
		same(t, each.name+", book", v.Book, book[:])
		all = append(all, v)
	}
	return all
}

// examples are transactions, bundles and blocks of one book, and of one of two shards.
type examples struct {
	genesis, sharded *ledger.Genesis
	transactions     []namedTransaction
	three, alone     signedBundle
	crossing         signedBundle
	join, policy     signedBundle
	verdict          ledger.Verdict
	blocks           []exampleBlock
}

type namedTransaction struct {
	name        string
	transaction ledger.Transaction
}

func posting(account, asset, amount string) ledger.Posting {
	parsed, err := ledger.ParseAmount(amount)
	if err != nil {
		panic(err)
	}
	return ledger.Posting{Account: ledger.AccountPath(account), Asset: ledger.AssetName(asset),
		Amount: parsed}
}

func newExamples(t *testing.T) *examples {
	t.Helper()
	e := &examples{genesis: ledgertest.OperatedGenesis(3),
		sharded: ledgertest.ShardedGenesis(2, 0, 0)}
	book, shards, chain := e.genesis.Book(), e.sharded.Book(), e.genesis.Hash()
	at := func(book ledger.Hash, sequence uint64) ledger.Transaction {
		return ledger.Transaction{Ledger: book, Signer: "alice",
			Nonce: ledger.Nonce{Stream: 7, Sequence: sequence}}
	}
	add := func(name string, transaction ledger.Transaction, change func(*ledger.Transaction)) {
		change(&transaction)
		e.transactions = append(e.transactions, namedTransaction{name, transaction})
	}
	add("a transfer", at(book, 1), func(t *ledger.Transaction) {
		t.Postings = []ledger.Posting{posting("alice:cash", "unit", "-5"),
			posting("bob:cash", "unit", "5")}
	})
	add("several postings of two organisations and two assets", at(book, 300),
		func(t *ledger.Transaction) {
			t.LastValid, t.Note = 1000, []byte("invoice 17")
			t.Postings = []ledger.Posting{posting("alice:cash", "EUR", "-18446744073709551616"),
				posting("bob:cash", "EUR", "18446744073709551360"),
				posting("bob:fees:2024", "EUR", "256"), posting("bob:stock", "share", "-1"),
				posting("alice:stock", "share", "1")}
		})
	add("a registration and openings", at(book, 2), func(t *ledger.Transaction) {
		t.Registrations = []ledger.Registration{{Name: "alice", Keys: []ledger.PublicKey{
			ledgertest.PublicKey("alice"), ledgertest.PublicKey("another")}}}
		t.Openings = []ledger.Opening{{Account: "alice:mint", Issuer: true},
			{Account: "alice:cash", Alias: "Kasse"}}
	})
	add("a record", at(book, 3), func(t *ledger.Transaction) {
		t.Records = []ledger.Record{{Key: "alice:contracts/1", Value: []byte("signed")}}
	})
	add("a change of a policy", at(book, 4), func(t *ledger.Transaction) {
		t.Policy = &ledger.PolicyChange{Policy: ledger.Policy{Number: 1, Threshold: 1,
			Keys: []ledger.PolicyKey{{Key: ledgertest.PublicKey("alice")},
				{Key: ledgertest.PublicKey("another")},
				{Key: ledgertest.PublicKey("bob"), Role: ledger.RolePost}},
			Limits: []ledger.Limit{{Asset: "unit", Above: ledger.NewAmount(1000),
				Signatures: 2}},
			RefuseAssets: true, Assets: []ledger.AssetName{"EUR", "unit"}}}
	})
	add("a registration of an asset", at(book, 5), func(t *ledger.Transaction) {
		t.Asset = &ledger.AssetChange{Asset: "EUR", Number: 1, AssetTerms: ledger.AssetTerms{
			Decimals: 2, Supply: ledger.SupplyCapped, Cap: ledger.NewAmount(1_000_000),
			Issuers: []ledger.Issuer{{Organisation: "alice", Allowance: ledger.NewAmount(700_000)},
				{Organisation: "bob", Allowance: ledger.NewAmount(300_000), Withdrawn: true}}}}
	})
	add("a hold", at(book, 6), func(t *ledger.Transaction) {
		t.Deadline = 1_700_000_060_000
		t.Hold = &ledger.Hold{From: "alice:cash", Asset: "EUR", Amount: ledger.NewAmount(5000),
			To: []ledger.AccountPath{"bob:cash", "carol:fees"}, Poster: "bob",
			Expires: 1_700_600_000_000}
	})
	add("the end of a hold", at(book, 7), func(t *ledger.Transaction) {
		t.LastValid = 12
		t.HoldEnd = &ledger.HoldEnd{Hold: ledger.Hash{1, 2, 3}, From: "carol:cash"}
		t.Postings = []ledger.Posting{
			{Account: "carol:cash", Asset: "EUR", Amount: ledger.NewAmount(-4200)},
			{Account: "alice:cash", Asset: "EUR", Amount: ledger.NewAmount(4200)}}
	})
	add("a voided hold", at(book, 8), func(t *ledger.Transaction) {
		t.HoldEnd = &ledger.HoldEnd{Hold: ledger.Hash{1, 2, 3}, From: "carol:cash"}
	})
	add("a freeze by a guardian", at(book, 10), func(t *ledger.Transaction) {
		t.Account = &ledger.AccountChange{Account: "bob:till", Number: 3,
			AccountTerms: ledger.AccountTerms{Freeze: ledger.FreezeGuardian, Guardian: "alice"}}
	})
	add("a change of the terms of an account", at(book, 9), func(t *ledger.Transaction) {
		floor, ceiling := ledger.NewAmount(50), ledger.NewAmount(9_000)
		t.Account = &ledger.AccountChange{Account: "alice:till", Number: 2, Alias: "front desk",
			AccountTerms: ledger.AccountTerms{NoCredits: true, Freeze: ledger.FreezeGuardian,
				Guardian: "bob", Limits: []ledger.AccountLimit{
					{Asset: "EUR", Floor: &floor, Ceiling: &ceiling},
					{Asset: "unit", Velocity: &ledger.Velocity{Amount: ledger.NewAmount(1_000),
						Seconds: 86_400}}},
				Metadata: []ledger.Metadatum{{Key: "iban", Value: "DE12", Indexed: true},
					{Key: "note", Value: "ours"}}}}
	})
	add("an entry with a date and a key that can be refunded", at(book, 10),
		func(t *ledger.Transaction) {
			t.Deadline = 1_700_000_060_000
			t.Details = &ledger.Details{Effective: 1_690_000_000_000, Key: "invoice 2024/17",
				Refundable: 1_702_000_000_000}
			t.Postings = []ledger.Posting{
				{Account: "alice:cash", Asset: "EUR", Amount: ledger.NewAmount(-4200)},
				{Account: "bob:cash", Asset: "EUR", Amount: ledger.NewAmount(4200)}}
			t.Note = []byte("books")
		})
	add("a refund", at(book, 11), func(t *ledger.Transaction) {
		t.LastValid = 12
		t.Details = &ledger.Details{Refund: &ledger.Refund{Entry: ledger.Hash{1, 2, 3},
			Organisation: "bob"}}
		t.Postings = []ledger.Posting{
			{Account: "alice:cash", Asset: "EUR", Amount: ledger.NewAmount(-200)},
			{Account: "bob:cash", Asset: "EUR", Amount: ledger.NewAmount(200)}}
		t.Records = []ledger.Record{{Key: "alice:refunds/1", Value: []byte("torn page")}}
	})
	add("an opening with a date", at(book, 12), func(t *ledger.Transaction) {
		t.Details = &ledger.Details{Effective: 1}
		t.Openings = []ledger.Opening{{Account: "alice:late"}}
	})
	rent := []ledger.Posting{
		{Account: "alice:cash", Asset: "EUR", Amount: ledger.NewAmount(-90_000)},
		{Account: "bob:rents", Asset: "EUR", Amount: ledger.NewAmount(90_000)}}
	add("a schedule", at(book, 10), func(t *ledger.Transaction) {
		t.Deadline = 1_700_000_060_000
		t.Schedule = &ledger.Schedule{Shard: 2, Postings: rent, First: 1_706_659_200_000,
			Period: ledger.Months, Every: 1, Until: 1_800_000_000_000}
	})
	add("the end of a schedule", at(book, 11), func(t *ledger.Transaction) {
		t.ScheduleEnd = &ledger.ScheduleEnd{Shard: 2, Schedule: ledger.Hash{1, 2, 3}}
	})
	add("an occurrence of a schedule", at(book, 12), func(t *ledger.Transaction) {
		t.Nonce, t.LastValid, t.Deadline = ledger.Nonce{}, 0, 0
		t.Occurrence = &ledger.Occurrence{Schedule: ledger.Hash{1, 2, 3}, Number: 2,
			Time: 1_709_164_800_000}
		t.Postings = rent
	})
	operators := func(book ledger.Hash, sequence uint64) ledger.Transaction {
		return ledger.Transaction{Ledger: book, Nonce: ledger.Nonce{Sequence: sequence}}
	}
	charter := ledger.Charter{Number: 1, Threshold: 2, Operators: []ledger.PublicKey{
		ledgertest.PublicKey("operator"), ledgertest.PublicKey("another")}}
	add("a change of the charter", operators(book, 1), func(t *ledger.Transaction) {
		t.Charter = &ledger.CharterChange{Charter: charter}
	})
	add("a change of the charter with quotas", operators(book, 2), func(t *ledger.Transaction) {
		charter.Quotas = ledger.Quotas{Accounts: 1 << 20}
		t.Charter = &ledger.CharterChange{Charter: charter}
	})
	add("a change of the charter with a version", operators(book, 3), func(t *ledger.Transaction) {
		t.Charter = &ledger.CharterChange{Charter: ledger.Charter{Number: 2, Threshold: 1,
			Operators: charter.Operators[:1], Version: 2}}
	})
	add("a change of the charter with a version and quotas", operators(book, 4),
		func(t *ledger.Transaction) {
			t.Charter = &ledger.CharterChange{Charter: charter}
			t.Charter.Number, t.Charter.Version = 3, 2
		})
	add("a member joins", operators(chain, 1), func(t *ledger.Transaction) {
		t.Change = &ledger.MembershipChange{Kind: ledger.ChangeJoin, Member: ledgertest.Member(3)}
	})
	add("a member leaves", operators(chain, 2), func(t *ledger.Transaction) {
		t.Change = &ledger.MembershipChange{Kind: ledger.ChangeLeave, Index: 1}
	})
	add("a disk is admitted", operators(chain, 1), func(t *ledger.Transaction) {
		t.Nonce.Stream, t.LastValid = ledger.AdmitStream, 1001
		t.Change = &ledger.MembershipChange{Kind: ledger.ChangeAdmit, Index: 2,
			Disk: ledgertest.Disk(1)}
	})
	add("the engine changes", operators(chain, 3), func(t *ledger.Transaction) {
		t.Change = &ledger.MembershipChange{Kind: ledger.ChangeEngine, Engine: "allconcur"}
	})
	add("two shards: a registration pinned to a shard", at(shards, 1),
		func(t *ledger.Transaction) {
			t.Registrations = []ledger.Registration{{Name: "alice", Pinned: true, Shard: 1,
				Keys: []ledger.PublicKey{ledgertest.PublicKey("alice")}}}
		})
	add("two shards: a transfer between them", at(shards, 2), func(t *ledger.Transaction) {
		t.Postings = []ledger.Posting{posting("alice:cash", "unit", "-5"),
			posting("bob:cash", "unit", "5")}
	})
	add("two shards: a transfer between them with a deadline", at(shards, 3),
		func(t *ledger.Transaction) {
			t.Deadline = 1_700_000_000_000
			t.Postings = []ledger.Posting{posting("alice:cash", "unit", "-5"),
				posting("bob:cash", "unit", "5")}
		})
	crossing := e.find(t, "two shards: a transfer between them with a deadline")
	add("two shards: a cancellation of it at one of them", at(shards, 4),
		func(t *ledger.Transaction) {
			t.Deadline = crossing.Deadline
			t.Cancellation = &ledger.Cancellation{Transaction: ledger.Hash(idOf(&crossing)),
				Shard: 1}
		})
	crossing = e.find(t, "two shards: a transfer between them")
	e.verdict = ledger.Verdict{ID: ledger.Hash(idOf(&crossing)), Shard: 1,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}
	add("two shards: a verdict", ledger.Transaction{Ledger: shards},
		func(t *ledger.Transaction) { t.Verdict = &e.verdict })
	add("two shards: a settlement with a lost shard", operators(shards, 5),
		func(t *ledger.Transaction) {
			t.Book = &ledger.BookChange{Number: 1, Loss: &ledger.ShardLoss{Shard: 1}}
		})
	add("two shards: a change of the tree", operators(shards, 6),
		func(t *ledger.Transaction) {
			t.Book = &ledger.BookChange{Number: 2,
				Rehang: &ledger.ShardRehang{Shard: 3, Parent: 1}}
		})
	testimony := ledger.Testimony{About: 1, AsOf: 1}.Verdict(e.verdict.ID, 0, true)
	add("two shards: a testimony about a lost shard", ledger.Transaction{Ledger: shards},
		func(t *ledger.Transaction) { t.Verdict = &testimony })
	e.makeBundles(t)
	e.makeBlocks(t)
	return e
}

func (e *examples) find(t *testing.T, name string) ledger.Transaction {
	t.Helper()
	for _, each := range e.transactions {
		if each.name == name {
			return each.transaction
		}
	}
	t.Fatalf("no transaction %q", name)
	return ledger.Transaction{}
}

func (e *examples) makeBundles(t *testing.T) {
	t.Helper()
	alice, bob := signer{"alice", "alice"}, signer{"bob", "bob"}
	e.three = signedBundle{name: "three transactions, with the consents of two organisations",
		transactions: []ledger.Transaction{e.find(t, "a transfer"),
			e.find(t, "several postings of two organisations and two assets"),
			e.find(t, "a record")},
		signers: []signer{alice, bob}}
	e.alone = signedBundle{name: "one transaction",
		transactions: []ledger.Transaction{e.find(t, "a registration and openings")},
		signers:      []signer{alice}}
	e.policy = signedBundle{name: "a change of a policy",
		transactions: []ledger.Transaction{e.find(t, "a change of a policy")},
		signers:      []signer{alice}}
	e.join = signedBundle{name: "a member joins, by an operator",
		transactions: []ledger.Transaction{e.find(t, "a member joins")},
		signers:      []signer{{ledger.Operator, "operator"}}}
	e.crossing = signedBundle{name: "two shards: a transfer between them",
		transactions: []ledger.Transaction{e.find(t, "two shards: a transfer between them")},
		signers:      []signer{alice}}
}

func (e *examples) makeBlocks(t *testing.T) {
	t.Helper()
	applied := outcome{result: ledger.Result{Code: ledger.Applied, Item: ledger.NoItem}}
	unknown := outcome{result: ledger.Result{Code: ledger.UnknownAccount, Item: 1}}
	digest := ledger.Hash(hashOf([]byte("the state after the block")))
	e.blocks = []exampleBlock{
		{"block 1, with a dropped and a failed transaction",
			ledger.Header{Height: 1, Epoch: 2, Round: 3, Time: 1_700_000_000_123,
				StateDigest: digest, Total: 3},
			[]sealedBundle{{signedBundle: e.alone, outcomes: []outcome{applied}},
				{signedBundle: e.three, outcomes: []outcome{unknown, {dropped: true}, applied}}}},
		{"block 2, in which a member joins", ledger.Header{Height: 2, Epoch: 2, Round: 4,
			Time: 1_700_000_000_124, StateDigest: digest, Total: 4},
			[]sealedBundle{{signedBundle: e.join, outcomes: []outcome{applied}}}},
		{"block 3, by the members after it", ledger.Header{Height: 3, Epoch: 3, Round: 8,
			Time: 1_700_000_000_124, StateDigest: digest, Total: 5},
			[]sealedBundle{{signedBundle: e.policy, outcomes: []outcome{applied}}}},
		{"two shards: a block with an entry of the parent's stream and a verdict",
			ledger.Header{Height: 1, Epoch: 1, Round: 1, Time: 1_700_000_000_001,
				StateDigest: digest, Total: 2},
			[]sealedBundle{
				{signedBundle: e.crossing, number: 9, outcomes: []outcome{{
					result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}}},
				{signedBundle: signedBundle{transactions: []ledger.Transaction{
					e.find(t, "two shards: a verdict")}},
					outcomes: []outcome{{result: ledger.Result{Code: ledger.Settled,
						Item: ledger.NoItem}}}}}},
	}
}

func (e *examples) transactionVectors(t *testing.T) (all []vector) {
	t.Helper()
	for i := range e.transactions {
		each := &e.transactions[i]
		v := transactionVector(each.name, &each.transaction)
		body, err := each.transaction.EncodeBody()
		if err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		same(t, each.name, v.Encoded, body)
		id := ledger.TransactionID(body)
		same(t, each.name+", id", v.Hash, id[:])
		if _, err := ledger.DecodeBody(fromHex(v.Encoded)); err != nil {
			t.Errorf("%s: %v", each.name, err)
		}
		all = append(all, v)
	}
	return all
}

func (e *examples) bundleVectors(t *testing.T) (all []bundleVector) {
	t.Helper()
	for _, each := range []signedBundle{e.alone, e.three, e.join, e.crossing} {
		v := each.vector()
		compareBundle(t, &v, each.bundle(t))
		all = append(all, v)
	}
	return all
}

// compareBundle fails the test unless package ledger makes the bundle of a vector.
func compareBundle(t *testing.T, v *bundleVector, bundle *ledger.Bundle) {
	t.Helper()
	same(t, v.Name, v.Encoded, bundle.Encode())
	root := bundle.Root()
	same(t, v.Name+", root", v.Root, root[:])
	same(t, v.Name+", message", v.Signed, bundle.SigningMessage())
	decoded, err := ledger.DecodeBundle(fromHex(v.Encoded))
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	if failed := ledger.NewVerifier().Bundles([]*ledger.Bundle{decoded})[0]; failed != nil {
		t.Errorf("%s: %v", v.Name, failed)
	}
}

// carriedVector is the bundle of three in block 1, as a stream to a child shard would carry it.
func (e *examples) carriedVector(t *testing.T) vector {
	t.Helper()
	ids, _ := e.three.ids()
	var p parts
	p.add("version", 2)
	p.uvarint("transactions, count", uint64(len(ids)))
	for i, each := range e.blocks[0].bundles[1].outcomes {
		p.bool(fmt.Sprintf("transaction %d, kept", i), !each.dropped)
		if each.dropped {
			p.add(fmt.Sprintf("transaction %d, id", i), ids[i]...)
			continue
		}
		p.string(fmt.Sprintf("transaction %d, body", i),
			transactionParts(&e.three.transactions[i]).bytes())
	}
	e.three.signaturesParts(&p)
	v := vector{Name: "a bundle of three without the second", Parts: p, Encoded: p.hex(),
		Hash: hex.EncodeToString(hashOf(domain("ledgerd/carried/1"), p.bytes()))}
	carried := e.blocks[0].block(t, e.genesis.Hash()).CarriedBundle(1)
	same(t, "carried bundle", v.Encoded, carried)
	hash := ledger.CarriedHash(carried)
	same(t, "hash of a carried bundle", v.Hash, hash[:])
	return v
}

func (e *examples) batchVectors(t *testing.T) (all []vector) {
	t.Helper()
	chain := e.sharded.Hash()
	batches := []struct {
		name  string
		batch ledger.Batch
	}{
		{"bundles", ledger.Batch{Bundles: [][]byte{e.alone.bundle(t).Encode(),
			e.three.bundle(t).Encode()}}},
		{"nothing", ledger.Batch{}},
		{"an entry of the parent's stream and a verdict", ledger.Batch{}},
		{"members' clocks", ledger.Batch{Clocks: []ledger.MemberClock{{Member: 0, Offset: -3},
			{Member: 2, Offset: 400}}}},
		{"a voucher", ledger.Batch{}},
		{"a voucher with a group of verdicts", ledger.Batch{Groups: []ledger.VerdictGroup{{Shard: 2,
			IDs: []ledger.Hash{{1}, {2}}}}}},
	}
	carried := fromHex(e.carriedVector(t).Encoded)
	for _, i := range []int{2, 4} {
		batches[i].batch.Carried = []ledger.Carried{{Number: 9, Bundle: carried}}
		batches[i].batch.Verdicts = []ledger.Verdict{e.verdict}
	}
	batches[4].batch.Vouch(ledgertest.Key("node-0"), chain, []ledger.Vouched{{Number: 9,
		Hash: ledger.CarriedHash(carried)}})
	batches[5].batch.Vouch(ledgertest.Key("node-0"), chain, nil)
	for i, each := range batches {
		batch := &each.batch
		batch.Header = ledger.BatchHeader{Time: 1_700_000_000_125, Height: 3, Tip: chain}
		version := []byte{1, 1, 2, 3, 4, 5}[i]
		p := batchParts(version, batch)
		v := vector{Name: each.name, Parts: p, Encoded: p.hex()}
		if batch.Voucher != nil {
			v.Signed = hex.EncodeToString(voucherMessage(batch))
		}
		same(t, each.name, v.Encoded, batch.Encode())
		if _, err := ledger.DecodeBatch(fromHex(v.Encoded)); err != nil {
			t.Errorf("%s: %v", each.name, err)
		}
		all = append(all, v)
	}
	return all
}

func batchParts(version byte, batch *ledger.Batch) (p parts) {
	p.add("version", version)
	p.big("time", uint64(batch.Header.Time), 8)
	p.big("height of the last block", uint64(batch.Header.Height), 8)
	p.add("hash of the last block", batch.Header.Tip[:]...)
	p.uvarint("bundles, count", uint64(len(batch.Bundles)))
	for i, bundle := range batch.Bundles {
		p.string(fmt.Sprintf("bundle %d", i), bundle)
	}
	if version == 1 {
		return p
	}
	p.uvarint("entries of the parent's stream, count", uint64(len(batch.Carried)))
	for i, each := range batch.Carried {
		p.uvarint(fmt.Sprintf("entry %d, number", i), each.Number)
		p.string(fmt.Sprintf("entry %d, bundle", i), each.Bundle)
	}
	verdictsParts(&p, batch)
	if version >= 3 {
		p.uvarint("clocks, count", uint64(len(batch.Clocks)))
		for i, clock := range batch.Clocks {
			p.uvarint(fmt.Sprintf("clock %d, member", i), uint64(clock.Member))
			twice := 2 * int64(clock.Offset)
			if clock.Offset < 0 {
				twice = -twice - 1
			}
			p.uvarint(fmt.Sprintf("clock %d, offset %d", i, clock.Offset), uint64(twice))
		}
	}
	if version >= 4 {
		p.add("voucher, chain", batch.Voucher.Chain[:]...)
		p.add("voucher, key", ledgertest.Key("node-0").Public().(ed25519.PublicKey)...)
		vouchedParts(&p, batch)
		p.add("voucher, ed25519", ed25519.Sign(ledgertest.Key("node-0"), voucherMessage(batch))...)
	}
	if version == 5 {
		p.uvarint("groups, count", uint64(len(batch.Groups)))
	}
	for i := range batch.Groups {
		group := &batch.Groups[i]
		p.uvarint(fmt.Sprintf("group %d, shard", i), uint64(group.Shard))
		p.uvarint(fmt.Sprintf("group %d, count", i), uint64(len(group.IDs)))
		for j, id := range group.IDs {
			p.add(fmt.Sprintf("group %d, id %d", i, j), id[:]...)
		}
	}
	return p
}

func verdictsParts(p *parts, batch *ledger.Batch) {
	p.uvarint("verdicts, count", uint64(len(batch.Verdicts)))
	for i := range batch.Verdicts {
		verdictParts(p, fmt.Sprintf("verdict %d, ", i), &batch.Verdicts[i])
	}
}

func vouchedParts(p *parts, batch *ledger.Batch) {
	p.uvarint("vouched entries, count", uint64(len(batch.Voucher.Stream)))
	for i, each := range batch.Voucher.Stream {
		p.uvarint(fmt.Sprintf("vouched entry %d, number", i), each.Number)
		p.add(fmt.Sprintf("vouched entry %d, hash", i), each.Hash[:]...)
	}
}

func voucherMessage(batch *ledger.Batch) []byte {
	var said parts
	vouchedParts(&said, batch)
	verdictsParts(&said, batch)
	if len(batch.Groups) > 0 {
		said.uvarint("groups, count", uint64(len(batch.Groups)))
	}
	for i := range batch.Groups {
		said.add("group", groupHash(&batch.Groups[i])...)
	}
	return bytes.Join([][]byte{domain("ledgerd/vouched/1"), batch.Voucher.Chain[:],
		hashOf(said.bytes())}, nil)
}

// groupHash returns the id of a group of verdicts.
func groupHash(group *ledger.VerdictGroup) []byte {
	content := binary.LittleEndian.AppendUint32(domain("ledgerd/group/1"), uint32(group.Shard))
	for _, id := range group.IDs {
		content = append(content, id[:]...)
	}
	return hashOf(content)
}

// previous returns the hash of the block before block i.
func (e *examples) previous(i int) []byte {
	switch e.blocks[i].header.Height {
	case 1:
		hash := e.genesis.Hash()
		if i > 0 {
			hash = e.sharded.Hash()
		}
		return hash[:]
	default:
		return fromHex(e.blocks[i-1].vector(e.previous(i - 1)).Hash)
	}
}

func (e *examples) blockVectors(t *testing.T) (all []blockVector) {
	t.Helper()
	for i, each := range e.blocks {
		v := each.vector(e.previous(i))
		compareBlock(t, &v, each.block(t, ledger.Hash(e.previous(i))))
		all = append(all, v)
	}
	return all
}

// compareBlock fails the test unless package ledger makes the block of a vector.
func compareBlock(t *testing.T, v *blockVector, block *ledger.Block) {
	t.Helper()
	same(t, v.Name+", header", v.EncodedHeader, block.Header.Encode())
	same(t, v.Name+", hash", v.Hash, block.Hash[:])
	same(t, v.Name, v.Encoded, block.Encode())
	if _, err := ledger.DecodeBlock(fromHex(v.Encoded)); err != nil {
		t.Errorf("%s: %v", v.Name, err)
	}
}

func (e *examples) proofVectors(t *testing.T) (all []vector) {
	t.Helper()
	for index, name := range []string{"a registration and openings", "a transfer", "a record"} {
		p := e.blocks[0].proofParts(e.previous(0), index)
		v := vector{Name: "block 1: " + name, Parts: p, Encoded: p.hex()}
		compareProof(t, &v, e.blocks[0].block(t, e.genesis.Hash()).Proof(index))
		all = append(all, v)
	}
	return all
}

// compareProof fails the test unless package ledger makes the proof of a vector, and it holds.
func compareProof(t *testing.T, v *vector, made *ledger.Proof) {
	t.Helper()
	same(t, v.Name, v.Encoded, made.Encode())
	proof, err := ledger.DecodeProof(fromHex(v.Encoded))
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	if err := ledger.VerifyProof(proof); err != nil {
		t.Errorf("%s: %v", v.Name, err)
	}
}

// finalityVectors certifies block 1 by itself, and once more by block 3 after a change of the
// members.
func (e *examples) finalityVectors(t *testing.T) (statements, certificates, certified []vector) {
	t.Helper()
	chain := e.genesis.Hash()
	of := func(block int, epoch uint64, members ...int) certificateOf {
		return certificateOf{chain: chain[:], hash: e.previous(block + 1), epoch: epoch,
			height: uint64(block + 1), members: members}
	}
	first, joined := of(0, 0, 0, 2), of(1, 0, 1, 2)
	joined.change = e.blocks[1].proofParts(e.previous(1), 0)
	third := of(1, 1, 0, 1, 3)
	third.height, third.hash = 3, fromHex(e.blocks[2].vector(e.previous(2)).Hash)
	for _, member := range first.members {
		p := first.statementParts(member)
		v := vector{Name: fmt.Sprintf("block 1, by member %d", member), Parts: p,
			Encoded: p.hex(), Signed: hex.EncodeToString(first.message())}
		statement := ledger.SignStatement(ledgertest.Key(fmt.Sprintf("node-%d", member)), chain,
			ledger.MemberIndex(member), 0, 1, ledger.Hash(first.hash))
		same(t, v.Name, v.Encoded, statement.Encode())
		statements = append(statements, v)
	}
	for _, each := range []struct {
		name        string
		certificate certificateOf
	}{{"block 1", first}, {"block 2, with its change of the members", joined},
		{"block 3, by the members after the change", third}} {
		p := each.certificate.parts()
		v := vector{Name: each.name, Parts: p, Encoded: p.hex(),
			Signed: hex.EncodeToString(each.certificate.message())}
		decoded, err := ledger.DecodeCertificate(fromHex(v.Encoded))
		if err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		same(t, each.name, v.Encoded, decoded.Encode())
		certificates = append(certificates, v)
	}
	header := func(block int) []byte {
		return e.blocks[block].headerParts(e.previous(block)).bytes()
	}
	for _, each := range []struct {
		name     string
		finality parts
	}{
		{"block 1: a transfer, certified by the certificate of block 1",
			finalityParts(nil, nil, first)},
		{"block 1: a transfer, certified by that of block 3 after a member joined",
			finalityParts([]certificateOf{joined}, [][]byte{header(1), header(2)}, third)},
	} {
		var p parts
		p.add("version", 2)
		p.uvarint("finality, length", uint64(len(each.finality.bytes())))
		p.nested("finality", each.finality)
		p.nested("proof", e.blocks[0].proofParts(e.previous(0), 1))
		v := vector{Name: each.name, Parts: p, Encoded: p.hex()}
		proof, err := ledger.DecodeCertifiedProof(fromHex(v.Encoded))
		if err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		same(t, each.name, v.Encoded, proof.Encode())
		if err := ledger.VerifyCertifiedProof(proof, e.genesis); err != nil {
			t.Errorf("%s: %v", each.name, err)
		}
		certified = append(certified, v)
	}
	return statements, certificates, certified
}

// homeVectors are the shards that hold organisations that are not pinned.
func homeVectors(t *testing.T) map[string][]shardOf {
	t.Helper()
	homes := map[string][]shardOf{}
	for _, shards := range []int{2, 3, 16} {
		key := fmt.Sprintf("%d shards", shards)
		for _, name := range []ledger.OrganisationName{"alice", "bob", "carol", "dave"} {
			best, highest := 0, new(big.Int)
			for shard := range shards {
				score := new(big.Int).SetBytes(hashOf(domain("ledgerd/home/1"),
					bigEndian(uint64(shard), 4), []byte(name))[:8])
				if score.Cmp(highest) > 0 || shard == 0 {
					best, highest = shard, score
				}
			}
			if home := ledger.Rendezvous(name, shards); int(home) != best {
				t.Errorf("%s of %s is shard %d, not %d", name, key, home, best)
			}
			homes[key] = append(homes[key], shardOf{string(name), best})
		}
	}
	return homes
}
