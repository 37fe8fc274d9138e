package state_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A state that is restored while transactions wait counts them towards the bound as the state that
// saw them all does. Otherwise a member that began with a snapshot would take what the others
// refuse, and make other blocks. A wait whose good verdict has arrived does not count.
func TestRestoredWaitsCount(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 0)
	a.limit = 3
	for _, c := range a.shards {
		c.state.LimitWaiting(a.limit)
	}
	// Three transactions wait for shard 2. One of them waited for shard 1, too, and its verdict is
	// here.
	a.shards[2].stopped = true
	both := a.transfer(0, 2, 1)
	both.Postings = append(both.Postings, a.transfer(0, 1, 1).Postings...)
	all := a.enter(both)
	for range 2 {
		a.enter(a.transfer(0, 2, 1))
	}
	a.flush()
	waiting, _ := a.shards[0].state.Pending(all)
	if count := a.shards[0].state.PendingCount(); count != a.limit || len(waiting.Said) != 1 {
		t.Fatalf("%d transactions wait, one of them as %+v", count, waiting)
	}
	restored := restoredFrom(t, a.shards[0].genesis, a.shards[0].state)
	restored.LimitWaiting(a.limit)

	// The restored state executes every later block of the shard to the same header.
	height := len(a.shards[0].blocks)
	catchUp := func() {
		t.Helper()
		for _, block := range a.shards[0].blocks[height:] {
			decoded, err := ledger.DecodeBlock(block.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := restored.Execute(state.Redraft(decoded)); again.Hash != block.Hash {
				t.Errorf("block %d executes as another", block.Header.Height)
			}
		}
		height = len(a.shards[0].blocks)
		if restored.Digest() != a.shards[0].state.Digest() {
			t.Fatal("the restored state differs")
		}
	}
	refused := a.enter(a.transfer(0, 2, 1))
	a.flush()
	a.expect(refused, int(ledger.TooManyWaiting), none, none)
	catchUp()
	// Shard 1 said what it had to say, so there is room for as many that wait for it.
	a.shards[1].stopped = true
	var others []ledger.Hash
	for range a.limit + 1 {
		others = append(others, a.enter(a.transfer(0, 1, 1)))
	}
	a.flush()
	a.expect(others[a.limit-1], setAside, none, none)
	a.expect(others[a.limit], int(ledger.TooManyWaiting), none, none)
	catchUp()
	// The counts go down to what they were, so there is room again once all have spoken.
	a.shards[1].stopped, a.shards[2].stopped = false, false
	a.flush()
	later := a.enter(a.transfer(0, 2, 1))
	a.flush()
	a.expect(later, setAside, none, setAside)
	catchUp()
	a.checkEnd()
}

// fullAccount is a book of two shards whose account org1:b has room for so many more assets. Until
// flush, what shard 0 sends to shard 1 stays pending there.
type fullAccount struct{ *airlines }

func newFullAccount(t *testing.T, room int) fullAccount {
	f := fullAccount{newAirlines(t, 0, 0)}
	account, _ := f.shards[1].state.Account("org1:b")
	for number := range ledger.MaxAssets - room - len(account.Balances) {
		id := f.local(ledger.AssetName(fmt.Sprintf("fill%d", number)))
		f.expect(id, none, int(ledger.Applied))
	}
	account, _ = f.shards[1].state.Account("org1:b")
	if len(account.Balances) != ledger.MaxAssets-room {
		t.Fatalf("the account has %d assets", len(account.Balances))
	}
	return f
}

// issue is a transaction that gives one unit of each asset to org1:b.
func (f fullAccount) issue(from int, assets ...ledger.AssetName) ledger.Transaction {
	transaction := f.clients[from].Next()
	for _, asset := range assets {
		transaction.Postings = append(transaction.Postings,
			ledger.Posting{Account: f.clients[from].Account("issuer"), Asset: asset,
				Amount: ledger.NewAmount(-1)},
			ledger.Posting{Account: "org1:b", Asset: asset, Amount: ledger.NewAmount(1)})
	}
	return transaction
}

// local orders a transaction of shard 1 by itself.
func (f fullAccount) local(assets ...ledger.AssetName) ledger.Hash {
	bundle := f.signed(f.issue(1, assets...))
	f.submit(1, bundle)
	f.inbox[1] = nil
	f.round(1, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	return bundle.ID(0)
}

// across orders a transaction of both shards, without the verdicts on it.
func (f fullAccount) across(assets ...ledger.AssetName) ledger.Hash {
	bundle := f.signed(f.issue(0, assets...))
	f.submit(0, bundle)
	f.inbox[0] = nil
	f.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	f.round(1, &ledger.Batch{Carried: f.stream(1)})
	return bundle.ID(0)
}

// end settles everything, and expects that the account has all assets that it may have.
func (f fullAccount) end() {
	f.t.Helper()
	f.check()
	f.flush()
	f.checkEnd()
	if account, _ := f.shards[1].state.Account("org1:b"); len(account.Balances) !=
		ledger.MaxAssets {
		f.t.Errorf("the account has %d assets at the end, want %d", len(account.Balances),
			ledger.MaxAssets)
	}
}

// The place of an asset that one crossing waits for is not given to another crossing. Otherwise the
// second one to settle would not fit. More of the asset that is waited for needs no further place.
func TestPlaceOfAssetIsReserved(t *testing.T) {
	t.Parallel()
	f := newFullAccount(t, 1)
	f.expect(f.across("first"), setAside, setAside)
	f.expect(f.across("second"), setAside, int(ledger.TooManyAssets))
	f.expect(f.local("second"), none, int(ledger.TooManyAssets))
	f.expect(f.across("first"), setAside, setAside)
	f.expect(f.local("first"), none, int(ledger.Applied))
	f.end()
}

// A place that a crossing reserved and did not use is free again.
func TestPlaceOfAssetIsReleased(t *testing.T) {
	t.Parallel()
	f := newFullAccount(t, 1)
	released := f.issue(0, "first")
	released.Postings = append(released.Postings, f.transfer(0, 1, 1000).Postings...)
	bundle := f.signed(released)
	f.submit(0, bundle)
	f.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	f.inbox[0] = nil
	f.round(1, &ledger.Batch{Carried: f.stream(1)})
	f.expect(bundle.ID(0), int(ledger.InsufficientFunds), setAside)
	f.expect(f.across("second"), setAside, int(ledger.TooManyAssets))
	f.flush()
	f.expect(f.across("third"), setAside, setAside)
	f.end()
}

// One crossing with several new assets needs a place for each. The last that finds none is named.
func TestAssetsOfOneCrossingAdd(t *testing.T) {
	t.Parallel()
	f := newFullAccount(t, 2)
	for _, assets := range [][]ledger.AssetName{{"a", "b", "c"}, {"c", "a", "b"}} {
		id := f.across(assets...)
		f.expect(id, setAside, int(ledger.TooManyAssets))
		entry := f.shards[1].entries[f.shards[1].places[id]]
		if entry.Result.Item != 5 {
			t.Errorf("%v: posting %d is named, want 5", assets, entry.Result.Item)
		}
	}
	f.expect(f.across("a", "b"), setAside, setAside)
	f.expect(f.across("b", "a"), setAside, setAside)
	f.expect(f.across("b", "c"), setAside, int(ledger.TooManyAssets))
	f.end()
}
