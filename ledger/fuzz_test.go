package ledger_test

import (
	"bytes"
	"encoding/json"
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
	draft := ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1,
		1, [][]byte{batch}, func(ledger.Hash, *ledger.Transaction) bool {
			return false
		})
	executed, _ := ledger.NewState(genesis).Execute(draft)
	return signed.Body(1), signed.Encode(), batch, executed.Encode(), executed.Proof(1).Encode()
}

// changeSeeds returns bundles with a join, a leave and an admission of a disk.
func changeSeeds() []*ledger.Bundle {
	genesis := ledgertest.OperatedGenesis(2)
	operator := ledgertest.NewOperator(genesis)
	admit := ledgertest.Admit("node-0", genesis, genesis.Membership(), 1, ledgertest.Disk(1), 0)
	return []*ledger.Bundle{operator.Join(ledgertest.Member(2)), operator.Leave(1), admit}
}

// waiting registers org0 at shard 0, the root, and org1 at shard 1 below it. It leaves a transfer
// between them waiting in both shards.
func waiting(n *network) *ledger.Bundle {
	client, other := ledgertest.NewClient(n.shards[0].genesis, "org0"),
		ledgertest.NewClient(n.shards[0].genesis, "org1")
	for shard, each := range []*ledgertest.Client{client, other} {
		registration := each.Register()
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true,
			ledger.ShardID(shard)
		n.submit(0, each.Bundle(registration))
	}
	n.flush()
	for shard, each := range []*ledgertest.Client{client, other} {
		opening := each.Next()
		opening.Openings = []ledger.Opening{{Account: each.Account("issuer"), Issuer: true},
			{Account: each.Account("a")}}
		n.submit(ledger.ShardID(shard), each.Bundle(opening))
	}
	n.flush()
	transfer := client.Transfer("org0:issuer", "org1:a", 7)
	transfer.Records = []ledger.Record{{Key: "org0:record", Value: []byte("value")}}
	bundle := client.Bundle(transfer)
	n.submit(0, bundle)
	n.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	n.inbox[0] = nil
	n.round(1, &ledger.Batch{Carried: n.stream(1)})
	return bundle
}

// crossingSeeds returns the genesis of a book of two shards, and a block of its second shard with a
// verdict and a bundle from the parent's stream.
func crossingSeeds() (*ledger.Genesis, *ledger.Block) {
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(func(string, ...any) {}, genesis.Tree)
	first := waiting(n)
	client := ledgertest.NewClient(genesis, "org0")
	client.Sequence = 10
	n.submit(0, client.Bundle(client.Transfer("org0:issuer", "org1:a", 3)))
	n.shards[1].stopped = true
	n.flush()
	block := n.round(1, &ledger.Batch{Verdicts: n.waiting(1), Carried: n.stream(1)})
	if len(block.Entries) != 2 || block.Entries[0].Transaction.Verdict.ID != first.ID(0) {
		panic("the seeds are not what they should be")
	}
	return genesis, block
}

func bundleSeed(f *testing.F) []byte {
	_, bundle, _, _, _ := seeds(f)
	return bundle
}

func FuzzTransaction(f *testing.F) {
	body, _, _, _, _ := seeds(f)
	f.Add(body)
	for _, bundle := range changeSeeds() {
		f.Add(bundle.Body(0))
	}
	_, crossing := crossingSeeds()
	f.Add(crossing.Entries[0].Body)
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

func FuzzBundle(f *testing.F) {
	_, bundle, _, _, _ := seeds(f)
	f.Add(bundle)
	for _, change := range changeSeeds() {
		f.Add(change.Encode())
	}
	genesis := ledgertest.Genesis()
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := ledger.DecodeBundle(data)
		if err != nil {
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
		_ = ledger.VerifyBundle(decoded, genesis, genesis.Hash(), ledger.NewState(genesis))
	})
}

func FuzzBatch(f *testing.F) {
	_, _, batch, _, _ := seeds(f)
	f.Add(batch)
	f.Add(ledgertest.Batch(7, changeSeeds()...))
	f.Add((&ledger.Batch{Bundles: [][]byte{bundleSeed(f)},
		Clocks: []ledger.MemberClock{{Member: 0}, {Member: 1, Offset: -9000}}}).Encode())
	f.Add(ledgertest.Batch(7, changeSeeds()[2]))
	genesis := ledgertest.OperatedGenesis(2)
	sharded, crossing := crossingSeeds()
	f.Add((&ledger.Batch{
		Bundles: [][]byte{bundleSeed(f)}, Carried: []ledger.Carried{{Number: 1,
			Bundle: crossing.CarriedBundle(1)}},
		Verdicts: []ledger.Verdict{*crossing.Entries[0].Transaction.Verdict},
	}).Encode())
	below, _ := sharded.ForShard(1)
	admit := ledgertest.Admit("node-1", below, below.Membership(), 0, ledgertest.Disk(1), 0)
	f.Add((&ledger.Batch{Bundles: [][]byte{admit.Encode()}}).Encode())
	f.Add((&ledger.Batch{Bundles: [][]byte{ledgertest.NewOperator(below).Join(
		ledgertest.Member(5)).Encode()},
		Verdicts: []ledger.Verdict{*crossing.Entries[0].Transaction.Verdict}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		// No content of a round may make sealing or execution fail.
		never := func(ledger.Hash, *ledger.Transaction) bool { return false }
		if draft := ledger.Seal(ledger.Parent{Hash: genesis.Hash()}, 1, 1, [][]byte{data},
			never); draft != nil {
			state := ledger.NewState(genesis)
			block, _ := state.Execute(draft)
			if state.Membership().Number > 0 && !ledger.MembershipChangeIn(data, genesis,
				genesis.Hash()) {
				t.Fatal("a change was applied that is not found in the round message")
			}
			if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		for shard := range ledger.ShardID(2) {
			one, _ := sharded.ForShard(shard)
			state := ledger.NewState(one)
			draft := state.Seal(ledger.Parent{Hash: one.Hash()}, 1, 1, [][]byte{data}, never)
			if draft == nil {
				continue
			}
			block, changes := state.Execute(draft)
			if state.Membership().Number > 0 && !ledger.MembershipChangeIn(data, one, one.Hash()) {
				t.Fatal("a change was applied to a shard that is not found in the round message")
			}
			if _, err := ledger.DecodeBlock(block.Encode()); err != nil || changes.OutOfPlace > 0 {
				t.Fatalf("shard %d: %d out of place, %v", shard, changes.OutOfPlace, err)
			}
		}
		batch, err := ledger.DecodeBatch(data)
		if err == nil && !bytes.Equal(batch.Encode(), data) {
			t.Fatal("a batch has two encodings")
		}
	})
}

func FuzzBlock(f *testing.F) {
	_, _, _, block, _ := seeds(f)
	f.Add(block)
	_, crossing := crossingSeeds()
	f.Add(crossing.Encode())
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

func FuzzStateEntry(f *testing.F) {
	state := ledger.NewState(ledgertest.Genesis())
	_, _, batch, _, _ := seeds(f)
	state.Execute(ledger.Seal(ledger.Parent{}, 1, 1,
		[][]byte{batch}, func(ledger.Hash, *ledger.Transaction) bool {
			return false
		}))
	_ = state.Entries(func(key, value []byte) error {
		f.Add(bytes.Clone(key), bytes.Clone(value))
		return nil
	})
	operated := ledgertest.OperatedGenesis(2)
	for _, change := range changeSeeds() {
		members := ledger.NewState(operated)
		batch := ledgertest.Batch(7, change)
		never := func(ledger.Hash, *ledger.Transaction) bool { return false }
		members.Execute(ledger.Seal(ledger.Parent{Hash: operated.Hash()}, 1, 1, [][]byte{batch},
			never))
		_ = members.Entries(func(key, value []byte) error {
			f.Add(bytes.Clone(key), bytes.Clone(value))
			return nil
		})
	}
	sharded, _ := crossingSeeds()
	n := newNetwork(f.Fatalf, sharded.Tree)
	waiting(n)
	for _, c := range n.shards {
		_ = c.state.Entries(func(key, value []byte) error {
			f.Add(bytes.Clone(key), bytes.Clone(value))
			return nil
		})
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_ = ledger.NewState(ledgertest.Genesis()).Restore(key, value)
		_ = ledger.NewState(sharded).Restore(key, value)
		// The members can be read from any state that accepted an entry.
		state := ledger.NewState(operated)
		if err := state.Restore(key, value); err == nil && key[0] == 'm' {
			_, _, _ = state.Membership(), state.MembershipAt(1), state.FormerMembers()
		}
	})
}

// A carried bundle has one encoding. No content of a stream makes sealing or execution fail.
func FuzzCarried(f *testing.F) {
	genesis, crossing := crossingSeeds()
	f.Add(crossing.CarriedBundle(1))
	below, _ := genesis.ForShard(1)
	f.Fuzz(func(t *testing.T, data []byte) {
		state := ledger.NewState(below)
		batch := &ledger.Batch{Carried: []ledger.Carried{{Number: 1, Bundle: data}}}
		draft := state.Seal(ledger.Parent{Hash: below.Hash()}, 1,
			1, [][]byte{batch.Encode()}, func(ledger.Hash, *ledger.Transaction) bool {
				return false
			})
		if draft == nil {
			return
		}
		block, _ := state.Execute(draft)
		if state.Carried() != 1 || block.Bundles[0].Number != 1 {
			t.Fatal("an entry of the stream is not counted")
		}
		// Transactions that the shard keeps are kept unchanged.
		if len(block.Entries) == len(block.Bundles[0].IDs) &&
			!bytes.Equal(block.CarriedBundle(0), data) {
			t.Fatal("a carried bundle has two encodings")
		}
		if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
			t.Fatal(err)
		}
	})
}
