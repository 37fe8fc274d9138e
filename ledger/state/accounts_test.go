package state

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestAccounts compares accounts with a map, as accounts are added and the last ones removed, over
// several sizes of the index and several pages.
func TestAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		accounts, model := newAccounts(), make(map[ledger.AccountPath]uint64)
		var order []ledger.AccountPath
		next := uint64(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			room := accounts.length + rapid.IntRange(0, 300).Draw(t, "reserved")
			accounts.reserve(room)
			slots := len(accounts.index)
			for range rapid.IntRange(0, 600).Draw(t, "added") {
				if accounts.length <= room && len(accounts.index) != slots {
					t.Fatalf("the index grew for %d of %d accounts", accounts.length, room)
				}
				next++
				path := ledger.AccountPath(fmt.Sprintf("acme:%d", next))
				if accounts.find(path) != nil {
					t.Fatalf("%s is there already", path)
				}
				added := accounts.add(path)
				if added.path != path || added.number != 0 {
					t.Fatalf("%s is not empty: %+v", path, added)
				}
				added.number, model[path] = next, next
				order = append(order, path)
			}
			for range rapid.IntRange(0, min(300, len(order))).Draw(t, "removed") {
				last := order[len(order)-1]
				accounts.remove(accounts.find(last))
				delete(model, last)
				order = order[:len(order)-1]
				if accounts.find(last) != nil {
					t.Fatalf("%s was removed", last)
				}
			}
			for path, number := range model {
				if found := accounts.find(path); found == nil || found.number != number {
					t.Fatalf("%s: %+v, want number %d", path, found, number)
				}
			}
			var lookups []lookup
			for number := range next + 2 {
				lookups = append(lookups,
					lookup{path: ledger.AccountPath(fmt.Sprintf("acme:%d", number))})
			}
			accounts.findAll(lookups)
			for i := range lookups {
				if want := accounts.find(lookups[i].path); lookups[i].found != want {
					t.Fatalf("%s: %+v, want %+v", lookups[i].path, lookups[i].found, want)
				}
			}
			place := 0
			for each := range accounts.all() {
				if each.path != order[place] {
					t.Fatalf("place %d has %s, want %s", place, each.path, order[place])
				}
				place++
			}
			if place != len(order) {
				t.Fatalf("%d accounts, want %d", place, len(order))
			}
		}
	})
}

// TestAccountsWithOneHash: accounts are told apart by their paths if these have the same hash.
func TestAccountsWithOneHash(t *testing.T) {
	t.Parallel()
	accounts := newAccounts()
	paths := make(map[uint32]ledger.AccountPath)
	var one, other ledger.AccountPath
	for i := 0; one == ""; i++ { // some 80,000 paths have two with the same 32 bits
		other = ledger.AccountPath(fmt.Sprintf("acme:%09d", i))
		hash := accounts.hash(other)
		one = paths[hash]
		paths[hash] = other
	}
	check := func(want ...*account) {
		t.Helper()
		lookups := []lookup{{path: one}, {path: other}}
		accounts.findAll(lookups)
		for i, l := range lookups {
			if found := accounts.find(l.path); found != want[i] || l.found != want[i] {
				t.Errorf("%s: %p and %p, want %p", l.path, found, l.found, want[i])
			}
		}
	}
	check(nil, nil)
	first := accounts.add(one)
	first.number = 1
	check(first, nil)
	second := accounts.add(other)
	second.number = 2
	check(first, second)
	accounts.remove(second)
	check(first, nil)
}

// TestAccountPages: an account that comes and goes where a page ends takes no page each time.
func TestAccountPages(t *testing.T) {
	t.Parallel()
	accounts := newAccounts()
	for i := range accountsPerPage {
		accounts.add(ledger.AccountPath(fmt.Sprintf("acme:%d", i)))
	}
	for range 10 {
		accounts.remove(accounts.add("acme:other"))
	}
	if len(accounts.pages) != 2 {
		t.Errorf("%d accounts have %d pages", accounts.length, len(accounts.pages))
	}
}

// TestPathMemory: kept paths do not change as others are kept, and fill their memory.
func TestPathMemory(t *testing.T) {
	t.Parallel()
	var memory pathMemory
	var kept, want []ledger.AccountPath
	for i := range 2000 {
		path := ledger.AccountPath(fmt.Sprintf("acme:%s:%d", strings.Repeat("x", i%100), i))
		kept, want = append(kept, memory.kept(path)), append(want, path)
	}
	for i := range kept {
		if kept[i] != want[i] {
			t.Fatalf("path %d is %s, want %s", i, kept[i], want[i])
		}
	}
}

// TestAssetNames: names are kept whatever names take their places.
func TestAssetNames(t *testing.T) {
	t.Parallel()
	var names assetNames
	var kept []ledger.AssetName
	for i := range 1000 {
		kept = append(kept, names.kept(ledger.AssetName(fmt.Sprintf("asset-%d", i))))
	}
	for i, name := range kept {
		if want := ledger.AssetName(fmt.Sprintf("asset-%d", i)); name != want {
			t.Errorf("name %d is %s, want %s", i, name, want)
		}
	}
}
