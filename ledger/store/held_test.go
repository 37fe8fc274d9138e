package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// packedBlock returns a block with packed bundles of the largest number of transfers, which have
// some 5 bytes each.
func packedBlock(height ledger.Height, bundles int) *ledger.Block {
	client := ledgertest.NewClient(testGenesis(), "acme")
	all := make([]*ledger.Bundle, bundles)
	for i := range all {
		transfers := make([]ledger.Transaction, ledger.MaxBundleTransactions)
		for j := range transfers {
			transfers[j] = client.Transfer("acme:a", "acme:b", 1)
		}
		all[i] = client.Packed(transfers...)
	}
	parent := testGenesis().Block()
	parent.Header.Height = height - 1
	return ledgertest.After(parent, all...)
}

// TestMemoryOfPackedBlocks: a decoded transfer takes as much memory as any transaction, however few
// bytes it has in a packed bundle. So the bounds of memory hold for packed bundles, too.
func TestMemoryOfPackedBlocks(t *testing.T) {
	t.Parallel()
	const transfers = 8 * ledger.MaxBundleTransactions
	first, second := packedBlock(1, 8), packedBlock(2, 8)
	encoded := first.Encode()
	cache := newBlockCache(transfers * 150)
	cache.put(first, len(encoded))
	cache.put(second, len(encoded))
	if cache.get(1) != nil || cache.get(2) == nil {
		t.Errorf("a cache of %d bytes keeps %d transfers", cache.bound, 2*transfers)
	}
	s := &Store{unwritten: newUnwritten()}
	s.options = Options{checkpointBlocks: 1 << 30}.withDefaults()
	s.options.CheckpointBytes = maxPendingBytes / 4
	pending := 0
	for ; !s.full(); pending += transfers {
		s.unwritten.add(&pendingBlock{block: first, encoded: encoded,
			changes: &state.Changes{}})
	}
	if pending > maxPendingBytes/100 {
		t.Errorf("a layer has %d transfers", pending)
	}
	s.unwritten.seal()
	for ; s.hasRoom(); pending += transfers {
		s.unwritten.add(&pendingBlock{block: first, encoded: encoded,
			changes: &state.Changes{}})
	}
	if pending > maxPendingBytes/100 {
		t.Errorf("%d transfers wait for the database", pending)
	}
	if !s.full() {
		t.Error("no block is taken any more, and the layer does not go to the database")
	}
	for range 2 {
		s.unwritten.drop()
	}
	if s.unwritten.held != 0 || s.unwritten.bytes != 0 {
		t.Errorf("no block waits, and %d bytes do", s.unwritten.held)
	}
}

// TestMemoryOfLongNames: names of accounts count for what they take decoded. In a packed bundle a
// name may have some 5 bytes, because it has only what differs from the one before it.
func TestMemoryOfLongNames(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(testGenesis(), "acme")
	long := strings.Repeat("x", ledger.MaxAccountPath-len("acme:0000"))
	transfers := make([]ledger.Transaction, ledger.MaxBundleTransactions)
	for i := range transfers {
		transfers[i] = client.Transfer(client.Account(fmt.Sprintf("%s%04d", long, 2*i)),
			client.Account(fmt.Sprintf("%s%04d", long, 2*i+1)), 1)
	}
	block := ledgertest.After(testGenesis().Block(), client.Packed(transfers...))
	names := 2 * len(transfers) * ledger.MaxAccountPath
	if held := heldBytes(block, len(block.Encode())); held < names {
		t.Errorf("a block with %d bytes of names counts for %d", names, held)
	}
}
