package state_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// roundSeed returns a bundle with a registration and a transfer, and the round message with it.
func roundSeed() (bundle, batch []byte) {
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	register, transfer := client.Register("issuer", "a"),
		client.Transfer("acme:issuer", "acme:a", 5)
	transfer.Records = []ledger.Record{{Key: "acme:record", Value: []byte("value")}}
	transfer.Note = []byte(`{"of":"a note"}`)
	signed := client.Bundle(register, transfer)
	return signed.Encode(), ledgertest.Batch(7, signed)
}

// changeSeeds returns bundles with a join, a leave, an admission of a disk and changes of a
// policy and of the charter.
func changeSeeds() []*ledger.Bundle {
	genesis := ledgertest.OperatedGenesis(2)
	operator := ledgertest.NewOperator(genesis)
	admit := ledgertest.Admit("node-0", genesis, genesis.Membership(), 1, ledgertest.Disk(1), 0)
	charter := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: ledger.Charter{Number: 1, Threshold: 1, Operators: genesis.Operators}}}
	bounded := ledger.Transaction{Ledger: genesis.Book(), Charter: &ledger.CharterChange{
		Charter: charter.Charter.Clone()}}
	bounded.Charter.Quotas = ledger.DefaultQuotas()
	acme := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	policy := ledgertest.Policy(2, "acme", "second", "third")
	policy.Keys[2].Role = ledger.RolePost
	policy.Limits = []ledger.Limit{{Asset: "EUR", Above: ledger.NewAmount(9), Signatures: 2}}
	policy.RefuseAssets, policy.Assets = true, []ledger.AssetName{"EUR"}
	return []*ledger.Bundle{operator.Join(ledgertest.Member(2)), operator.Leave(1), admit,
		acme.Bundle(acme.ChangePolicy(policy)), operator.Bundle("operator", charter),
		operator.Bundle("operator", bounded)}
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
	if block.Len() != 2 || block.Unpacked[0].Transaction().Verdict.ID != first.ID(0) {
		panic("the seeds are not what they should be")
	}
	return genesis, block
}

// No content of a round makes sealing or execution fail.
func FuzzSeal(f *testing.F) {
	bundle, batch := roundSeed()
	f.Add(batch)
	f.Add(ledgertest.Batch(7, changeSeeds()...))
	f.Add((&ledger.Batch{Bundles: [][]byte{bundle},
		Clocks: []ledger.MemberClock{{Member: 0}, {Member: 1, Offset: -9000}}}).Encode())
	f.Add(ledgertest.Batch(7, changeSeeds()[2]))
	genesis := ledgertest.OperatedGenesis(2)
	sharded, crossing := crossingSeeds()
	f.Add((&ledger.Batch{
		Bundles: [][]byte{bundle}, Carried: []ledger.Carried{{Number: 1,
			Bundle: crossing.CarriedBundle(1)}},
		Verdicts: []ledger.Verdict{*crossing.Unpacked[0].Transaction().Verdict},
	}).Encode())
	below, _ := sharded.ForShard(1)
	admit := ledgertest.Admit("node-1", below, below.Membership(), 0, ledgertest.Disk(1), 0)
	f.Add((&ledger.Batch{Bundles: [][]byte{admit.Encode()}}).Encode())
	f.Add((&ledger.Batch{Bundles: [][]byte{ledgertest.NewOperator(below).Join(
		ledgertest.Member(5)).Encode()},
		Verdicts: []ledger.Verdict{*crossing.Unpacked[0].Transaction().Verdict}}).Encode())
	client := ledgertest.NewClient(sharded, "org0")
	registration := client.Register()
	registration.Registrations[0].Pinned = true
	timed := by(sharded.Time+1000, client.Transfer("org0:a", "org0:b", 0))
	f.Add(ledgertest.Batch(7, client.Bundle(registration), client.Bundle(client.Cancel(
		client.Bundle(timed).ID(0), timed.Deadline, 0)), client.Bundle(timed)))
	f.Fuzz(func(t *testing.T, data []byte) {
		never := func(ledger.Hash, *ledger.Transaction) bool { return false }
		if draft := state.Seal(state.Parent{Hash: genesis.Hash()},
			1, 1, ledger.VerifyBatches([][]byte{data}),
			never); draft != nil {
			s := state.New(genesis)
			block, _ := s.Execute(draft)
			if s.Membership().Number > 0 && !ledger.MembershipChangeIn(data, genesis,
				genesis.Hash()) {
				t.Fatal("a change was applied that is not found in the round message")
			}
			if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		for version := range 4 {
			one, _ := sharded.ForShard(ledger.ShardID(version % 2))
			one.Version = []int{ledger.FirstVersion, ledger.NewestVersion}[version/2]
			s := state.New(one)
			draft := s.Seal(state.Parent{Hash: one.Hash()}, 1, 1,
				ledger.VerifyBatches([][]byte{data}), never)
			if draft == nil {
				continue
			}
			block, changes := s.Execute(draft)
			if s.Membership().Number > 0 && !ledger.MembershipChangeIn(data, one, one.Hash()) {
				t.Fatal("a change was applied to a shard that is not found in the round message")
			}
			if _, err := ledger.DecodeBlock(block.Encode()); err != nil || changes.OutOfPlace > 0 {
				t.Fatalf("shard %d: %d out of place, %v", one.Shard, changes.OutOfPlace, err)
			}
		}
	})
}

func FuzzStateEntry(f *testing.F) {
	s := state.New(ledgertest.Genesis())
	_, batch := roundSeed()
	s.Execute(state.Seal(state.Parent{}, 1, 1,
		ledger.VerifyBatches([][]byte{batch}), func(ledger.Hash, *ledger.Transaction) bool {
			return false
		}))
	_ = s.Entries(func(key, value []byte) error {
		f.Add(bytes.Clone(key), bytes.Clone(value))
		return nil
	})
	operated := ledgertest.OperatedGenesis(2)
	for _, change := range changeSeeds() {
		members := state.New(operated)
		batch := ledgertest.Batch(7, change)
		never := func(ledger.Hash, *ledger.Transaction) bool { return false }
		members.Execute(state.Seal(state.Parent{Hash: operated.Hash()}, 1,
			1, ledger.VerifyBatches([][]byte{batch}),
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
			if key[0] == 'p' { // a waiting transaction that a quota counts
				f.Add(bytes.Clone(key), append(bytes.Clone(value), "\x04org0"...))
			}
			return nil
		})
	}
	f.Add([]byte("a\x00"), []byte("0\x01\x0000\x00")) // an account without a path
	f.Add(append(append([]byte{'x'}, make([]byte, ledger.HashSize)...), "org0\x00"...), []byte{9})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, genesis := range []*ledger.Genesis{ledgertest.Genesis(), sharded} {
			s := state.New(genesis)
			if err := s.Restore(key, value); err == nil {
				if s.CheckUses() != nil {
					t.Fatal(s.CheckUses())
				}
				// The digest covers all that was taken.
				entries := 0
				_ = s.Entries(func(k, v []byte) error {
					if !bytes.Equal(k, key) || !bytes.Equal(v, value) {
						t.Fatalf("%x: %x is restored as %x: %x", key, value, k, v)
					}
					entries++
					return nil
				})
				if entries != 1 {
					t.Fatalf("%x: %x is restored as %d entries", key, value, entries)
				}
			}
			if err := s.Complete(nil); err != nil && !errors.Is(err, state.ErrEntry) &&
				!errors.Is(err, ledger.ErrVersion) {
				t.Fatal(err)
			}
		}
		// The members can be read from any state that accepted an entry.
		s := state.New(operated)
		if err := s.Restore(key, value); err == nil && key[0] == 'm' {
			_, _, _ = s.Membership(), s.MembershipAt(1), s.FormerMembers()
		}
	})
}

// No content of a stream makes sealing or execution fail. What a shard keeps is kept unchanged.
func FuzzStream(f *testing.F) {
	genesis, crossing := crossingSeeds()
	f.Add(crossing.CarriedBundle(1))
	below, _ := genesis.ForShard(1)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := state.New(below)
		batch := &ledger.Batch{Carried: []ledger.Carried{{Number: 1, Bundle: data}}}
		draft := s.Seal(state.Parent{Hash: below.Hash()}, 1,
			1, ledger.VerifyBatches([][]byte{batch.Encode()}), func(ledger.Hash,
				*ledger.Transaction) bool {
				return false
			})
		if draft == nil {
			return
		}
		block, _ := s.Execute(draft)
		if s.Carried() != 1 || block.Bundles[0].Number != 1 {
			t.Fatal("an entry of the stream is not counted")
		}
		// Transactions that the shard keeps are kept unchanged.
		if block.Len() == block.Bundles[0].Len() &&
			!bytes.Equal(block.CarriedBundle(0), data) {
			t.Fatal("a carried bundle has two encodings")
		}
		if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
			t.Fatal(err)
		}
	})
}
