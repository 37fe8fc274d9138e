package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// twin executes the blocks of a chain again, on a state with few resident accounts. It keeps the
// entries as a store does: those of the last blocks are not stored yet.
type twin struct {
	genesis *ledger.Genesis
	state   *state.State
	limit   int
	stored  map[string][]byte
	pending []*state.Changes
	height  ledger.Height
	// leaves and counts are those after the stored blocks, as the changes of blocks have them.
	leaves []ledger.Hash
	counts map[ledger.OrganisationName]state.Counts
	// older are entries of accounts that were stored at some time.
	older []state.Change
	// fresh makes the state of a new process. read, if not nil, damages what is read.
	fresh func() *state.State
	read  func(path ledger.AccountPath, value []byte) []byte
}

func newTwin(genesis *ledger.Genesis, limit int) *twin {
	w := &twin{genesis: genesis, limit: limit, stored: make(map[string][]byte),
		counts: make(map[ledger.OrganisationName]state.Counts),
		fresh:  func() *state.State { return state.New(genesis) }}
	w.state = w.fresh()
	return w
}

// admit admits accounts that were asked for.
func (w *twin) admit(wanted []ledger.AccountPath) error {
	for i, path := range wanted {
		if slices.Contains(wanted[:i], path) {
			return fmt.Errorf("%s is wanted twice", path)
		}
		value := w.stored[string(state.AppendAccountKey(nil, path))]
		if w.read != nil {
			value = w.read(path, value)
		}
		if err := w.state.Admit(path, value); err != nil {
			return err
		}
	}
	return nil
}

// execute executes a block again, as far as it gives the same block. Before, it tries the block's
// transactions. unstored is the number of blocks that are not stored then.
func (w *twin) execute(block *ledger.Block, unstored int) error {
	tried, err := tryAll(w.state, block, w.admit)
	if err != nil {
		return err
	}
	expired := w.state.HoldsDue(block.Header.Time)
	draft := state.Redraft(block)
	if err := w.admit(w.state.Wanted(draft)); err != nil {
		return err
	}
	executed, changes := w.state.Execute(draft)
	if executed.Hash != block.Hash {
		return fmt.Errorf("block %d is another one", block.Header.Height)
	}
	if err := judgeTrials(executed, tried, expired); err != nil {
		return err
	}
	w.pending, w.height = append(w.pending, changes), block.Header.Height
	w.store(unstored)
	w.state.Evict(w.height-ledger.Height(len(w.pending)), w.limit)
	return w.state.CheckUses()
}

// store stores the changes of all but the last blocks.
func (w *twin) store(unstored int) {
	for ; len(w.pending) > unstored; w.pending = w.pending[1:] {
		for change := range w.pending[0].Entries.All() {
			if len(change.After) == 0 {
				delete(w.stored, string(change.Key))
			} else {
				w.stored[string(change.Key)] = change.After
			}
			if leaf, err := state.LeafOf(change.Key, change.After); err == nil {
				w.older = append(w.older, change)
				w.leaves = append(w.leaves, make([]ledger.Hash,
					max(int(leaf.Number), len(w.leaves))-len(w.leaves))...)
				w.leaves[leaf.Number-1] = leaf.Hash
			}
		}
		for _, each := range w.pending[0].Counts {
			w.counts[each.Organisation] = each
		}
	}
}

// warm offers an entry that was stored, and maybe replaced since, to be made resident.
func (w *twin) warm(entry state.Change) error {
	leaf, err := state.LeafOf(entry.Key, entry.After)
	if err != nil {
		return err
	}
	path, before := state.AccountOfKey(entry.Key), w.state.Resident()
	_, resident := w.state.Account(path)
	found, err := w.state.ReadAccount(path, entry.After)
	current := w.state.Version() >= ledger.AccountTreeVersion && err == nil
	some := []state.Warming{{Path: path, Value: entry.After, Leaf: leaf}}
	w.state.Warm(some, before) // there are enough
	if w.state.Resident() != before {
		return fmt.Errorf("more than %d are resident", before)
	}
	w.state.Warm(some, before+1)
	if resident || !current {
		if w.state.Resident() != before {
			return fmt.Errorf("%s is resident: %v, in the tree: %v, and was taken", path, resident,
				current)
		}
		return nil
	}
	if warmed, resident := w.state.Account(path); !resident ||
		fmt.Sprint(warmed) != fmt.Sprint(found) {
		return fmt.Errorf("%+v is resident, want %+v", warmed, found)
	}
	return nil
}

// fromTree returns a state that began with the tree that was stored.
func (w *twin) fromTree() (*state.State, error) {
	s := w.fresh()
	err := s.RestoreTree(uint64(len(w.leaves)), slices.Collect(maps.Values(w.counts)), backwards,
		func(first uint64, leaves []ledger.Hash) error {
			copy(leaves, w.leaves[first-1:])
			return nil
		})
	for key, value := range w.stored {
		if err == nil && !state.IsAccountKey([]byte(key)) {
			err = s.Restore([]byte(key), value)
		}
	}
	return s, errors.Join(err, s.Complete(nil))
}

// backwards is a Divide that begins with the last part.
func backwards(parts int, do func(part int)) {
	for part := range parts {
		do(parts - 1 - part)
	}
}

// restart begins anew with what was stored. Accounts are added in parts, the last ones first, or
// with their tree if the parts are even.
func (w *twin) restart(part int) error {
	w.store(0)
	before := w.state
	tree := before.Version() >= ledger.AccountTreeVersion
	if tree && part%2 == 0 {
		restored, err := w.fromTree()
		if err != nil {
			return err
		}
		w.state = restored
		return w.checkRestart(before)
	}
	w.state = w.fresh()
	keys := slices.Sorted(maps.Keys(w.stored))
	slices.Reverse(keys)
	var leaves state.AccountLeaves
	for _, key := range keys {
		value := w.stored[key]
		if !tree || !state.IsAccountKey([]byte(key)) {
			if err := w.state.Restore([]byte(key), value); err != nil {
				return err
			}
			continue
		}
		if err := leaves.Add([]byte(key), value); err != nil {
			return err
		}
		if leaves.Len() == part {
			if err := w.state.RestoreLeaves(&leaves, uint64(len(keys))); err != nil {
				return err
			}
		}
	}
	if leaves.Len() > 0 {
		if err := w.state.RestoreLeaves(&leaves, uint64(len(keys))); err != nil {
			return err
		}
	}
	if err := w.state.Complete(nil); err != nil {
		return err
	}
	return w.checkRestart(before)
}

// checkRestart compares the state with the one before a restart.
func (w *twin) checkRestart(before *state.State) (err error) {
	if w.state.Digest() != before.Digest() ||
		w.state.AccountCount() != before.AccountCount() {
		err = fmt.Errorf("another state after a restart at block %d", w.height)
	}
	if got, want := w.state.AppendLeaves(nil, 1, math.MaxInt), before.AppendLeaves(nil, 1,
		math.MaxInt); !bytes.Equal(got, want) {
		err = fmt.Errorf("other leaves after a restart at block %d", w.height)
	}
	for _, each := range before.Organisations() {
		if used, want := w.state.Use(each.Name), before.Use(each.Name); err == nil && used != want {
			err = fmt.Errorf("%s uses %+v after a restart, want %+v", each.Name, used, want)
		}
	}
	return err
}

// check compares all accounts with those of a state that has all of them.
func (w *twin) check(with *state.State) error {
	for _, want := range with.Accounts() {
		found, resident := w.state.Account(want.Path)
		if !resident {
			var err error
			value := w.stored[string(state.AppendAccountKey(nil, want.Path))]
			if found, err = w.state.ReadAccount(want.Path, value); err != nil {
				return err
			}
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			return fmt.Errorf("%+v, want %+v", found, want)
		}
	}
	return nil
}

// TestResidentAccountsChangeNoResult: whatever accounts are resident, blocks and the state
// stay the same, over failures, accounts that are opened again, upgrades and restarts.
func TestResidentAccountsChangeNoResult(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		genesis := ledgertest.OperatedGenesis(3)
		if rapid.Bool().Draw(r, "tree from the genesis") {
			genesis.Version = rapid.IntRange(ledger.AccountTreeVersion,
				ledger.NewestVersion).Draw(r, "version")
		}
		chain, version := newOperated(t, genesis), uint64(0)
		little := newTwin(genesis, rapid.IntRange(0, 4).Draw(r, "limit"))
		acme := ledgertest.NewClient(genesis, "acme")
		path := func() ledger.AccountPath {
			return acme.Account(fmt.Sprint(rapid.IntRange(0, 12).Draw(r, "account")))
		}
		bundle := func() *ledger.Bundle {
			var some []ledger.Transaction
			if chain.state.Version() >= ledger.PackedVersion && rapid.Bool().Draw(r, "packed") {
				for range rapid.IntRange(1, 6).Draw(r, "transfers") {
					if from, to := path(), path(); from != to {
						some = append(some, acme.Transfer(from, to,
							int64(rapid.IntRange(1, 9).Draw(r, "amount"))))
					}
				}
				if len(some) > 0 {
					return acme.Packed(some...)
				}
			}
			if rapid.Bool().Draw(r, "only openings") {
				opening := acme.Next()
				for range rapid.IntRange(1, 4).Draw(r, "openings") {
					opening.Openings = append(opening.Openings, ledger.Opening{Account: path(),
						Issuer: true})
				}
				some = append(some, opening)
			}
			for range rapid.IntRange(1, 4).Draw(r, "transactions") {
				transaction := acme.Next()
				for range rapid.IntRange(0, 2).Draw(r, "openings") {
					transaction.Openings = append(transaction.Openings, ledger.Opening{
						Account: path(), Issuer: rapid.IntRange(0, 2).Draw(r, "issuer") > 0})
				}
				amount := int64(rapid.IntRange(0, 9).Draw(r, "amount"))
				asset := rapid.SampledFrom([]ledger.AssetName{"eur", "usd"}).Draw(r, "asset")
				for _, amount := range []int64{-amount, amount} {
					transaction.Postings = append(transaction.Postings, ledger.Posting{
						Account: path(), Asset: asset, Amount: ledger.NewAmount(amount)})
				}
				some = append(some, transaction)
			}
			return acme.Bundle(some...)
		}
		run := func(bundles ...*ledger.Bundle) {
			block := chain.block(bundles...)
			if err := little.execute(block, rapid.IntRange(0, 3).Draw(r, "unstored")); err != nil {
				r.Fatal(err)
			}
			if err := little.check(chain.state); err != nil {
				r.Fatal(err)
			}
		}
		run(acme.Bundle(acme.Register()))
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch rapid.IntRange(0, 6).Draw(r, "step") {
			case 6:
				for range rapid.IntRange(1, 9).Draw(r, "entries") {
					if len(little.older) == 0 {
						break
					}
					if err := little.warm(rapid.SampledFrom(little.older).Draw(r,
						"entry")); err != nil {
						r.Fatal(err)
					}
				}
			case 0:
				if err := little.restart(rapid.IntRange(1, 5).Draw(r, "part")); err != nil {
					r.Fatal(err)
				}
			case 1:
				version++
				run(chain.upgrade(version, rapid.IntRange(ledger.AccountTreeVersion,
					ledger.NewestVersion).Draw(r, "to version")))
			case 2:
				run(bundle(), bundle())
			default:
				run(bundle())
			}
		}
	})
}

// coldTwin returns a twin of a chain with accounts a to e, of which none is resident.
func coldTwin(t *testing.T) (*one, *ledgertest.Client, *twin) {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.AccountTreeVersion
	chain, client := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	little := newTwin(genesis, 0)
	for range 2 { // accounts are passed once before they are dropped
		if err := little.execute(chain.block(client.Bundle(client.Register("a", "b", "c", "d",
			"e"))), 0); err != nil {
			t.Fatal(err)
		}
	}
	little.state.Evict(little.height, 0)
	little.state.Evict(little.height, 0)
	if count := little.state.Resident(); count != 0 {
		t.Fatalf("%d accounts are resident", count)
	}
	return chain, client, little
}

// TestWrongEntriesAreNotAdmitted: an entry that is not the one in the tree is refused, whether it
// is an older one, one of another account, or malformed.
func TestWrongEntriesAreNotAdmitted(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	older := little.stored["aacme:a\x00"]
	for range 3 {
		err := little.execute(chain.block(client.Bundle(client.Transfer("acme:a", "acme:b", 1))), 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		little.state.Evict(little.height, 0)
	}
	right := little.stored["aacme:a\x00"]
	for range 2 { // the second time it is resident
		if err := little.state.Admit("acme:a", right); err != nil ||
			little.state.Resident() != 1 {
			t.Fatalf("%d accounts are resident: %v", little.state.Resident(), err)
		}
	}
	for range 2 {
		little.state.Evict(little.height, 0)
	}
	for name, value := range map[string][]byte{"older": older,
		"another": little.stored["aacme:c\x00"], "cut": right[:len(right)-1],
		"longer": append(bytes.Clone(right), 0), "zero": {0},
		"the next account": bytes.Replace(right, []byte{1}, []byte{6}, 1),
		"no such account":  bytes.Replace(right, []byte{1}, []byte{99}, 1)} {
		if err := little.state.Admit("acme:a", value); !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := little.state.ReadAccount("acme:a", value); !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: read: %v", name, err)
		}
		if little.state.Resident() != 0 {
			t.Errorf("%s: it is resident", name)
		}
	}
}

// TestColdAccountsAreNotAbsent: executing a draft without what it wants panics, instead of taking a
// cold account for one that is not open.
func TestColdAccountsAreNotAbsent(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	block := chain.block(client.Bundle(client.Transfer("acme:a", "acme:b", 1)))
	defer func() {
		if reason := fmt.Sprint(recover()); !strings.Contains(reason, "acme:a is looked up") {
			t.Errorf("no panic, or another one: %s", reason)
		}
	}()
	little.state.Execute(state.Redraft(block))
}

// TestAbsentOnlyForOneBlock: an account that was absent, and that the block opened, is not absent
// for the next block.
func TestAbsentOnlyForOneBlock(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:new"}}
	if err := little.execute(chain.block(client.Bundle(opening)), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		little.state.Evict(little.height, 0)
	}
	block := chain.block(client.Bundle(client.Transfer("acme:a", "acme:new", 1)))
	if err := little.admit([]ledger.AccountPath{"acme:a"}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if reason := fmt.Sprint(recover()); !strings.Contains(reason, "acme:new is looked up") {
			t.Errorf("no panic, or another one: %s", reason)
		}
	}()
	little.state.Execute(state.Redraft(block))
}

// TestEvictionKeepsUnstored: accounts that blocks touched which are not stored stay.
func TestEvictionKeepsUnstored(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	if err := little.execute(chain.block(client.Bundle(client.Transfer("acme:a", "acme:b", 1))),
		1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		little.state.Evict(little.height-1, 0)
	}
	if count := little.state.Resident(); count != 2 {
		t.Errorf("%d accounts are resident, want the 2 of the block", count)
	}
	for range 3 {
		little.state.Evict(little.height, 0)
	}
	if count := little.state.Resident(); count != 0 {
		t.Errorf("%d accounts are resident", count)
	}
}

// TestEvictionPassesRecentAccounts: an account that a block touched since eviction came by stays
// longer than one that no block touched.
func TestEvictionPassesRecentAccounts(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	apply := func(limit int, transfers ...ledger.Transaction) {
		t.Helper()
		little.limit = limit
		if err := little.execute(chain.block(client.Bundle(transfers...)), 0); err != nil {
			t.Fatal(err)
		}
	}
	check := func(path ledger.AccountPath, want bool) {
		t.Helper()
		if _, resident := little.state.Account(path); resident != want {
			t.Errorf("%s is resident: %v", path, resident)
		}
	}
	apply(2, client.Transfer("acme:a", "acme:b", 1), client.Transfer("acme:a", "acme:c", 1))
	check("acme:a", true)
	check("acme:b", true)
	check("acme:c", false)
	apply(3, client.Transfer("acme:b", "acme:d", 1)) // eviction passes b next, then a
	little.state.Evict(little.height, 2)
	check("acme:a", false)
	check("acme:b", true)
	check("acme:d", true)
	if err := little.state.Admit("acme:a", little.stored["aacme:a\x00"]); err != nil {
		t.Fatal(err)
	}
	little.state.Evict(little.height, 1)
	check("acme:a", true) // it was admitted since
}

// TestKeysOfAccounts: only keys of accounts are taken for such.
func TestKeysOfAccounts(t *testing.T) {
	t.Parallel()
	key := state.AppendAccountKey(nil, "acme:a")
	if !state.IsAccountKey(key) || state.AccountOfKey(key) != "acme:a" {
		t.Errorf("%q is no key of an account", key)
	}
	for _, other := range []string{"oacme\x00", "a", "a\x00", "aacme:a", ""} {
		if state.IsAccountKey([]byte(other)) {
			t.Errorf("%q is a key of an account", other)
		}
	}
}

// TestLeavesOfOtherEntries: an entry that is no account gives no leaf, and a state with resident
// accounts takes none.
func TestLeavesOfOtherEntries(t *testing.T) {
	t.Parallel()
	var leaves state.AccountLeaves
	key, value := state.AccountEntry("acme:a", 1)
	if err := leaves.Add([]byte("oacme\x00"), value); !errors.Is(err, state.ErrEntry) {
		t.Errorf("an organisation: %v", err)
	}
	if err := leaves.Add(key, value); err != nil {
		t.Fatal(err)
	}
	chain, client, _ := coldTwin(t)
	chain.block(client.Bundle(client.Transfer("acme:a", "acme:b", 1)))
	if err := chain.state.RestoreLeaves(&leaves, 9); !errors.Is(err, state.ErrEntry) {
		t.Errorf("a state with accounts: %v", err)
	}
}

// TestNoPathOfABlockIsKept: once a block is executed, the memory for look-ups has no path of it.
// Such a path would keep the memory of the whole batch that it came in.
func TestNoPathOfABlockIsKept(t *testing.T) {
	t.Parallel()
	chain, client, little := coldTwin(t)
	packed := newChain(t, packedGenesis())
	other := ledgertest.NewClient(packedGenesis(), "acme")
	packed.block(other.Bundle(other.Register("a", "b")))
	packed.block(other.Packed(other.Transfer("acme:a", "acme:b", 1)))
	bundle := client.Bundle(client.Transfer("acme:a", "acme:b", 1))
	if err := little.execute(chain.block(bundle), 0); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*state.State{"bodies": chain.state, "packed": packed.state,
		"few in memory": little.state} {
		if count := s.LookedUp(); count > 0 {
			t.Errorf("%s: %d paths are kept", name, count)
		}
	}
}

// TestLeavesOfOneNumber: leaves with numbers that are there twice, missing or too high are refused.
func TestLeavesOfOneNumber(t *testing.T) {
	t.Parallel()
	var none state.AccountLeaves
	empty := state.New(ledgertest.Genesis())
	if err := errors.Join(empty.RestoreLeaves(&none, 0), empty.Complete(nil)); err != nil {
		t.Error(err)
	}
	for name, numbers := range map[string][]uint64{"zero": {0}, "twice": {1, 1}, "a gap": {1, 3},
		"huge": {1 << 63}, "above the most": {1, 2, 3, 4}} {
		genesis := ledgertest.Genesis()
		genesis.Version = ledger.AccountTreeVersion
		s := state.New(genesis)
		var leaves state.AccountLeaves
		for i, number := range numbers {
			key, value := state.AccountEntry(fmt.Sprintf("acme:%d", i), number)
			if err := leaves.Add(key, value); err != nil {
				t.Fatal(err)
			}
		}
		err := s.RestoreLeaves(&leaves, 3)
		if err == nil {
			err = s.Complete(nil)
		}
		if !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRestoreTreeRefuses: leaves that are missing, counts of other accounts and a second tree are
// errors, and a wrong leaf gives another digest.
func TestRestoreTreeRefuses(t *testing.T) {
	t.Parallel()
	_, _, little := coldTwin(t)
	restore := func(accounts uint64, change func(leaves []ledger.Hash)) (*state.State, error) {
		s := little.fresh()
		err := s.RestoreTree(accounts, slices.Collect(maps.Values(little.counts)), backwards,
			func(first uint64, leaves []ledger.Hash) error {
				copy(leaves, little.leaves[first-1:])
				change(leaves)
				return nil
			})
		for key, value := range little.stored {
			if err == nil && !state.IsAccountKey([]byte(key)) {
				err = s.Restore([]byte(key), value)
			}
		}
		if err == nil {
			err = s.Complete(nil)
		}
		return s, err
	}
	right, all := func([]ledger.Hash) {}, uint64(len(little.leaves))
	s, err := restore(all, right)
	if err != nil || s.Digest() != little.state.Digest() {
		t.Fatalf("the tree is refused: %v", err)
	}
	if err := s.RestoreTree(0, nil, backwards, nil); !errors.Is(err, state.ErrEntry) {
		t.Errorf("a second tree: %v", err)
	}
	for _, accounts := range []uint64{0, all - 1, all + 1} {
		if _, err := restore(accounts, right); !errors.Is(err, state.ErrEntry) {
			t.Errorf("%d accounts of %d: %v", accounts, all, err)
		}
	}
	if _, err := restore(all, func(leaves []ledger.Hash) {
		leaves[2] = ledger.Hash{}
	}); !errors.Is(err, state.ErrEntry) {
		t.Errorf("a leaf without a hash: %v", err)
	}
	s, err = restore(all, func(leaves []ledger.Hash) { leaves[2][7] ^= 1 })
	if err != nil || s.Digest() == little.state.Digest() {
		t.Errorf("a wrong leaf is not noticed: %v", err)
	}
	broken := errors.New("broken")
	if err := little.fresh().RestoreTree(all, slices.Collect(maps.Values(little.counts)), backwards,
		func(uint64, []ledger.Hash) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error of fill is lost: %v", err)
	}
}
