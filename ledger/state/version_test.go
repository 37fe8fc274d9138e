package state_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// upgrade is a change of the charter to a version of the chain.
func (o *operated) upgrade(number uint64, version int) *ledger.Bundle {
	charter := ledgertest.Charter(1, "operator")
	charter.Number, charter.Version = number, version
	return o.charter(charter, "operator")
}

// TestUpgrade: the block with the change is the first one of the new version, its transactions
// before the change included. The digest then is that of a chain which had the version all along,
// and does not depend on when the chain changed over.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		genesis := ledgertest.OperatedGenesis(3)
		upgraded, replayed := newOperated(t, genesis), state.New(genesis)
		client := ledgertest.NewClient(genesis, "acme")
		blocks := rapid.IntRange(1, 6).Draw(r, "blocks")
		at := rapid.IntRange(0, blocks-1).Draw(r, "upgrade")
		for i := range blocks {
			var bundles []*ledger.Bundle
			if i == 0 {
				bundles = append(bundles, client.Bundle(client.Register("issuer", "a", "b")))
			}
			for range rapid.IntRange(1, 3).Draw(r, "transfers") {
				bundles = append(bundles, client.Bundle(client.Transfer("acme:issuer",
					rapid.SampledFrom([]ledger.AccountPath{"acme:a", "acme:b"}).Draw(r, "to"), 1)))
			}
			if i == at {
				place := rapid.IntRange(0, len(bundles)).Draw(r, "place")
				bundles = append(bundles[:place:place], append([]*ledger.Bundle{
					upgraded.upgrade(1, 2)}, bundles[place:]...)...)
			}
			block := upgraded.block(bundles...)
			if want := 1 + min(1, (i+1)/(at+1)); upgraded.state.Version() != want {
				t.Fatalf("block %d: version %d, want %d", i+1, upgraded.state.Version(), want)
			}
			again, _ := replayed.Execute(state.Redraft(block))
			if again.Hash != block.Hash {
				t.Fatalf("block %d replays as another", i+1)
			}
			restored := restoredFrom(t, genesis, upgraded.state)
			if restored.Version() != upgraded.state.Version() {
				t.Fatalf("restored as version %d", restored.Version())
			}
		}
	})
}

// TestVersionNeverGoesDown: an operator with an old program changes the charter without a version.
func TestVersionNeverGoesDown(t *testing.T) {
	t.Parallel()
	o := newOperated(t, ledgertest.OperatedGenesis(3))
	o.expect(ledger.Applied, o.upgrade(1, 2))
	o.expect(ledger.Applied, o.upgrade(2, 0))
	if charter := o.state.Charter(); charter.Version != 2 || charter.Number != 2 ||
		o.state.Version() != 2 {
		t.Errorf("charter %+v, version %d", charter, o.state.Version())
	}
	restoredFrom(t, ledgertest.OperatedGenesis(3), o.state)
}

// TestOnlyOperatorsUpgrade: a change that too few operators sign leaves the version as it is.
func TestOnlyOperatorsUpgrade(t *testing.T) {
	t.Parallel()
	o := newOperated(t, ledgertest.OperatedGenesis(3))
	charter := ledgertest.Charter(1, "operator")
	charter.Version = 2
	o.expect(ledger.Unauthorised, o.charter(charter, "a"))
	if o.state.Version() != 1 {
		t.Errorf("version %d", o.state.Version())
	}
}

// TestUnknownVersion: a state of a version that the program does not know is not completed.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	o := newOperated(t, genesis)
	o.block(o.upgrade(1, ledger.NewestVersion+1))
	restored := state.New(genesis)
	if err := o.state.Entries(restored.Restore); err != nil {
		t.Fatal(err)
	}
	if err := restored.Complete(nil); !errors.Is(err, ledger.ErrVersion) {
		t.Errorf("completed: %v", err)
	}
}

// TestAccountNumbersHaveNoGaps: whatever accounts a snapshot claims, completing it needs no more
// memory than they do.
func TestAccountNumbersHaveNoGaps(t *testing.T) {
	t.Parallel()
	for name, numbers := range map[string][]uint64{"zero": {0}, "twice": {1, 1}, "a gap": {1, 3},
		"huge": {1 << 63}} {
		genesis := ledgertest.Genesis()
		genesis.Version = ledger.AccountTreeVersion
		s := state.New(genesis)
		for i, number := range numbers {
			key, value := state.AccountEntry(fmt.Sprintf("acme:%d", i), number)
			if err := s.Restore(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Complete(nil); !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDigestOfTheDefinition computes the state digest of version 2 as docs/encoding.md defines it,
// with accounts that were opened, used, and opened again after their first transaction failed.
func TestDigestOfTheDefinition(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = 2
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	for _, names := range [][]string{{"a"}, {"b", "c"}, {"d", "e", "f", "g"}} {
		failing := client.Register(names...)
		failing.Postings = client.Transfer("acme:nobody", "acme:a", 1).Postings
		chain.block(client.Bundle(failing, client.Register(names...),
			client.Transfer("acme:a", "acme:a", 0)))
		accounts := chain.state.Accounts()
		slices.SortFunc(accounts, func(a, b ledger.Account) int {
			return cmp.Compare(a.Number, b.Number)
		})
		var level []ledger.Hash
		for i := range accounts {
			a := &accounts[i]
			encoded := append([]byte("\x00a"+string(a.Path)+"\x00"), byte(a.Number), 0, 0,
				byte(a.Opened), byte(a.History), byte(len(a.Balances)))
			if a.Issuer {
				encoded[len(a.Path)+4] = 1
			}
			for _, balance := range a.Balances {
				encoded = append(encoded, byte(len(balance.Asset)))
				encoded = append(append(encoded, balance.Asset...), 0)
			}
			level = append(level, sha256.Sum256(encoded))
		}
		for len(level) > 1 {
			var above []ledger.Hash
			for hashes := range slices.Chunk(level, 4) {
				data := []byte{1}
				for _, hash := range hashes {
					data = append(data, hash[:]...)
				}
				if above = append(above, sha256.Sum256(data)); len(hashes) == 1 {
					above[len(above)-1] = hashes[0]
				}
			}
			level = above
		}
		var others state.Digest
		_ = chain.state.Entries(func(key, value []byte) error {
			if key[0] != 'a' {
				others.Add(slices.Concat(key, value))
			}
			return nil
		})
		rest := others.Sum()
		want := ledger.Hash(sha256.Sum256(slices.Concat([]byte("ledgerd/state/2\x00"),
			binary.BigEndian.AppendUint64(nil, uint64(len(accounts))), level[0][:], rest[:])))
		if got := chain.state.Digest(); got != want || chain.parent.Header.StateDigest != want {
			t.Errorf("%d accounts: digest %s, want %s", len(accounts), got, want)
		}
	}
}

// TestVersionsDifferInTheDigestOnly: the same transactions have the same results and entries in
// chains of all versions.
func TestVersionsDifferInTheDigestOnly(t *testing.T) {
	t.Parallel()
	var chains []*one
	var entries []string
	type made struct {
		entries []state.Change
		history []state.HistoryChange
		state.Crossings
	}
	changes := make([][]made, ledger.NewestVersion)
	for version := range ledger.NewestVersion {
		genesis := ledgertest.Genesis()
		genesis.Version = version + 1
		chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
		replayed := state.New(genesis)
		first := chain.block(client.Bundle(client.Register("issuer", "a", "b")))
		block := chain.block(client.Bundle(client.Transfer("acme:issuer", "acme:a", 5),
			client.Transfer("acme:a", "acme:nobody", 5),
			client.Transfer("acme:b", "acme:nobody", 5),
			client.Transfer("acme:a", "acme:issuer", 2)))
		for _, each := range []*ledger.Block{first, block} {
			_, executed := replayed.Execute(state.Redraft(each))
			changes[version] = append(changes[version], made{
				slices.Collect(executed.Entries.All()), executed.History, executed.Crossings})
		}
		text := ""
		for i := range block.Len() {
			text += fmt.Sprintln(block.Entry(i).Result)
		}
		for _, account := range chain.state.Accounts() {
			text += fmt.Sprintln(account)
		}
		chains, entries = append(chains, chain), append(entries, text)
	}
	for version := 1; version < ledger.NewestVersion; version++ {
		if entries[0] != entries[version] {
			t.Errorf("%s\n%s", entries[0], entries[version])
		}
		if !reflect.DeepEqual(changes[0], changes[version]) {
			t.Error("the changes differ")
		}
	}
	if chains[1].state.Digest() != chains[2].state.Digest() ||
		chains[1].parent.Header.ByBundle || !chains[2].parent.Header.ByBundle {
		t.Error("versions 2 and 3 differ in more than the roots over transactions and results")
	}
	if chains[0].state.Digest() == chains[1].state.Digest() {
		t.Error("the digests are equal")
	}
}

// TestRestoreTakesOneEncoding: the digest is computed from the restored entries, so what they do
// not say must not be in a snapshot. Otherwise a liar could give a member another key, or rows to a
// store that later contradict it.
func TestRestoreTakesOneEncoding(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	o, client := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	written := client.Next()
	written.Records = []ledger.Record{{Key: "acme:r", Value: []byte("x")}}
	charter := ledgertest.Charter(1, "operator")
	charter.Number, charter.Quotas = 1, ledger.DefaultQuotas()
	o.block(client.Bundle(client.Register("a"), written), o.charter(charter, "operator"))
	for name, change := range map[string]func(key, value []byte) ([]byte, []byte){
		"account": func(key, value []byte) ([]byte, []byte) {
			return key, append(value, 0) // a list of no holds
		},
		"organisation": func(_, value []byte) ([]byte, []byte) {
			return []byte("oother\x00"), value
		},
		"n": func(key, value []byte) ([]byte, []byte) { return append(key, 0), value },
		"record": func(key, value []byte) ([]byte, []byte) {
			// The index is the second number. It has 32 bits.
			return key, slices.Concat(value[:1], binary.AppendUvarint(nil, 1<<32|uint64(value[1])),
				value[2:])
		},
		"charter": func(key, value []byte) ([]byte, []byte) { return key, append(value, 1) },
	} {
		restored, found := state.New(genesis), false
		if err := o.state.Entries(func(key, value []byte) error {
			if key[0] != name[0] {
				return restored.Restore(key, value)
			}
			found = true
			if err := state.New(genesis).Restore(key, value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return restored.Restore(change(bytes.Clone(key), bytes.Clone(value)))
		}); !found || !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s, found: %t: %v", name, found, err)
		}
	}
	forged := ledgertest.Member(7)
	member := append([]byte{byte(len(forged.Name))}, forged.Name...)
	member = append(append(member, byte(len(forged.Key))), forged.Key...)
	member = append(append(member, byte(len(forged.Address))), forged.Address...)
	err := state.New(genesis).Restore([]byte("m\x00\x00\x00\x01\x00"), append(member,
		make([]byte, 6)...)) // it neither joined nor left
	if !errors.Is(err, state.ErrEntry) {
		t.Errorf("a member that never changed: %v", err)
	}
}

// TestUpgradeOfShards: the change comes to a shard in a block that also begins and ends waits and
// moves streams, and to the shard below it later. Each digest is that of the shard's entries.
func TestUpgradeOfShards(t *testing.T) {
	t.Parallel()
	for version := ledger.FirstVersion + 1; version <= ledger.NewestVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			upgradeShards(t, version)
		})
	}
}

func upgradeShards(t *testing.T, version int) {
	genesis := ledgertest.ShardedGenesis(1, 0, 0)
	n := newNetwork(t.Fatalf, genesis.Tree)
	waiting(n)
	client := ledgertest.NewClient(genesis, "org0")
	client.Sequence = 20
	transfer := func(amount int64) ledger.Transaction {
		t := client.Transfer("org0:issuer", "org1:a", amount)
		if ledger.TakesDeadlines(n.shards[0].state.Version()) {
			t.Deadline = n.time + 60_000
		}
		return t
	}
	charter := genesis.Charter()
	charter.Number, charter.Version = 1, version
	n.submit(0, client.Bundle(transfer(3)))
	n.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: genesis.Book(), Charter: &ledger.CharterChange{Charter: charter}}))
	n.submit(0, client.Bundle(transfer(4)))
	check := func(versions ...int) {
		t.Helper()
		for i, c := range n.shards {
			if got := c.state.Version(); got != versions[i] {
				t.Errorf("shard %d has version %d, want %d", i, got, versions[i])
			}
			restoredFrom(t, c.genesis, c.state)
			n.replay(i, c)
		}
		n.check()
	}
	n.shards[1].stopped = true
	n.flush()
	wait := 2
	if ledger.TakesDeadlines(version) {
		wait = 1 // the payment after the change names no deadline
	}
	if root := n.shards[0]; len(root.state.AllPending()) != wait || root.state.Streamed(1) == 0 {
		t.Fatalf("%d transactions wait", len(root.state.AllPending()))
	}
	check(version, 1)
	n.shards[1].stopped = false
	n.flush()
	check(version, version)
	n.submit(0, client.Bundle(transfer(5)))
	n.flush()
	check(version, version)
}

// TestBlocksCostTheirChanges: only a restore and the upgrade compute over the whole state, divided
// as the caller of Complete says.
func TestBlocksCostTheirChanges(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	o, client := newOperated(t, genesis), ledgertest.NewClient(genesis, "acme")
	calls := 0
	expect := func(when string, some bool) {
		t.Helper()
		if (calls > 0) != some {
			t.Errorf("%s: %d computations over the whole state", when, calls)
		}
		calls = 0
	}
	if err := o.state.Complete(func(parts int, do func(int)) {
		calls++
		for part := range parts {
			do(part)
		}
	}); err != nil {
		t.Fatal(err)
	}
	expect("complete", true)
	o.block(client.Bundle(client.Register("issuer", "a")))
	expect("version 1", false)
	o.block(o.upgrade(1, 2))
	expect("upgrade", true)
	o.block(client.Bundle(client.Transfer("acme:issuer", "acme:a", 1)))
	o.block(o.upgrade(2, 2))
	expect("version 2", false)
}
