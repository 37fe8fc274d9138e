package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// referenceRoot is the root over leaves, straight from the definition.
func referenceRoot(level []ledger.Hash) ledger.Hash {
	switch len(level) {
	case 0:
		return ledger.Hash{}
	case 1:
		return level[0]
	}
	var above []ledger.Hash
	for len(level) > 0 {
		count := min(4, len(level))
		node := level[0]
		if count > 1 {
			data := []byte{1}
			for _, child := range level[:count] {
				data = append(data, child[:]...)
			}
			node = sha256.Sum256(data)
		}
		above, level = append(above, node), level[count:]
	}
	return referenceRoot(above)
}

func leafOf(number, version uint64) ledger.Hash {
	return accountHash(binary.AppendUvarint(binary.AppendUvarint(nil, number), version))
}

// set sets the hash of the account with this number, which is one of the accounts or the next one.
// It reports whether that changed the tree.
func (t *accountTree) set(number uint64, hash *ledger.Hash) bool {
	leaf := t.leaf(number)
	if *leaf == *hash {
		return false
	}
	*leaf = *hash
	t.outdate(number)
	return true
}

// TestAccountTree: however the tree grew and changed, its root is that of the definition.
func TestAccountTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tree accountTree
		var leaves []ledger.Hash
		for range rapid.IntRange(1, 8).Draw(t, "blocks") {
			for range rapid.IntRange(0, 80).Draw(t, "opened") {
				hash := leafOf(uint64(len(leaves)), 0)
				leaves = append(leaves, hash)
				if !tree.set(uint64(len(leaves)), &hash) {
					t.Fatal("a new account changes nothing")
				}
			}
			for range rapid.IntRange(0, 20).Draw(t, "changed") {
				if len(leaves) == 0 {
					break
				}
				place := rapid.IntRange(0, len(leaves)-1).Draw(t, "place")
				hash := leafOf(uint64(place), rapid.Uint64Range(0, 2).Draw(t, "version"))
				if changed := tree.set(uint64(place+1), &hash); changed != (hash != leaves[place]) {
					t.Fatalf("changed: %t", changed)
				}
				leaves[place] = hash
			}
			for i := range tree.levels {
				if level := &tree.levels[i]; len(level.stale) > level.length {
					t.Fatalf("%d of %d hashes are stale", len(level.stale), level.length)
				}
			}
			if tree.root(inTurn) != referenceRoot(leaves) || tree.accounts() != len(leaves) {
				t.Fatalf("another root over %d accounts", len(leaves))
			}
			for i := range tree.levels {
				if stale := len(tree.levels[i].stale); stale > 0 {
					t.Fatalf("%d hashes stay stale", stale)
				}
			}
		}
	})
}

// TestAccountTreeSizes: trees of all sizes around those at which levels and pages begin.
func TestAccountTreeSizes(t *testing.T) {
	t.Parallel()
	var tree accountTree
	var leaves []ledger.Hash
	ends := map[int]bool{}
	for _, around := range []int{1, 4, 16, 64, 256, 1024, hashesPerPage, 4 * hashesPerPage} {
		for i := max(0, around-2); i <= around+5; i++ {
			ends[i] = true
		}
	}
	for number := uint64(1); number <= 4*hashesPerPage+5; number++ {
		hash := leafOf(number, 0)
		leaves = append(leaves, hash)
		tree.set(number, &hash)
		if ends[len(leaves)] && tree.root(inTurn) != referenceRoot(leaves) {
			t.Fatalf("another root over %d accounts", len(leaves))
		}
	}
	for place := 0; place < len(leaves); place += 4095 {
		leaves[place] = leafOf(uint64(place), 1)
		tree.set(uint64(place+1), &leaves[place])
		if tree.root(inTurn) != referenceRoot(leaves) {
			t.Fatalf("another root after account %d changed", place+1)
		}
	}
}

// backward is a Divide that begins with the last part.
func backward(parts int, do func(part int)) {
	for part := parts - 1; part >= 0; part-- {
		do(part)
	}
}

// TestNewAccountTree: a tree that is made at once, in any order of parts and accounts, equals one
// that grew.
func TestNewAccountTree(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 1, 5, 5000} {
		var grown accountTree
		accounts := make([]*account, count)
		for i := range accounts {
			each := &account{number: uint64(i + 1),
				path: ledger.AccountPath(fmt.Sprintf("acme:%d", i))}
			encoded, _ := each.appendEntry(nil)
			hash := accountHash(encoded)
			grown.set(each.number, &hash)
			accounts[i*7919%count] = each
		}
		made := newAccountTree(accounts, backward)
		if made.root(inTurn) != grown.root(inTurn) || made.accounts() != count {
			t.Errorf("%d accounts: another root", count)
		}
		next := leafOf(1<<40, 0)
		grown.set(uint64(count+1), &next)
		made.set(uint64(count+1), &next)
		if made.root(inTurn) != grown.root(inTurn) {
			t.Errorf("%d accounts and one more: another root", count)
		}
	}
}

// TestDividedDigest: a digest that is computed in parts, in any order, has all entries.
func TestDividedDigest(t *testing.T) {
	t.Parallel()
	var want, got Digest
	accounts := make([]*account, 2*partSize+1)
	for i := range accounts {
		accounts[i] = &account{number: uint64(i + 1)}
		encoded, _ := accounts[i].appendEntry(nil)
		want.Add(encoded)
	}
	addAll(&got, accounts, backward)
	if got.Sum() != want.Sum() {
		t.Error("another digest")
	}
}

// TestAccountTreeGap: an account whose predecessor is missing is a bug of execution.
func TestAccountTreeGap(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a gap was taken")
		}
	}()
	var tree accountTree
	hash := leafOf(2, 0)
	tree.set(2, &hash)
}

// BenchmarkAccountTree changes 10,000 of 10,000 and of 1 M accounts, as a loaded block does.
func BenchmarkAccountTree(b *testing.B) {
	for _, accounts := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(accounts), func(b *testing.B) {
			var tree accountTree
			tree.grow(accounts)
			entry := pattern(90, 1)
			const changed = 10_000
			next := uint64(1)
			for b.Loop() {
				for range changed {
					next = next*6364136223846793005 + 1442695040888963407
					binary.LittleEndian.PutUint64(entry, next)
					hash := accountHash(entry)
					tree.set(next>>20%uint64(accounts)+1, &hash)
				}
				_ = tree.root(inTurn)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changed, "ns/account")
		})
	}
}

// TestAppendLeaves: leaves that are read in parts are all of the tree, over the ends of pages.
func TestAppendLeaves(t *testing.T) {
	t.Parallel()
	s := &State{accountTree: &accountTree{}}
	const accounts = 2*hashesPerPage + 5
	s.accountTree.grow(accounts)
	var want []byte
	for place := range accounts {
		leaf := s.accountTree.levels[0].at(place)
		*leaf = accountHash(binary.AppendUvarint(nil, uint64(place)))
		want = append(want, leaf[:]...)
	}
	for _, most := range []int{1000, hashesPerPage, hashesPerPage + 1, accounts, accounts + 1} {
		var got []byte
		for len(got) < len(want) {
			before := len(got)
			got = s.AppendLeaves(got, uint64(before/ledger.HashSize+1), most)
			if more := len(got) - before; more == 0 || more > most*ledger.HashSize {
				t.Fatalf("%d bytes, at most %d leaves", more, most)
			}
		}
		if !bytes.Equal(got, want) || len(s.AppendLeaves(nil, accounts+1, most)) > 0 {
			t.Errorf("other leaves, %d at a time", most)
		}
	}
	if len((&State{}).AppendLeaves(nil, 1, 1)) > 0 {
		t.Error("leaves without a tree")
	}
}
