package mempool

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// What is in the chain already does not enter the pool, also if a block brings it while the chain
// is looked up. Without an answer nothing enters.
func TestKnownTransactionsStayOut(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	b, encoded := bundle(t, 0, 1, 2, 3)
	unreadable := errors.New("unreadable")
	if err := p.Add(b, encoded, func(*ledger.Bundle) ([]bool, error) {
		return nil, unreadable
	}); !errors.Is(err, unreadable) {
		t.Fatalf("got %v, want the error of the look-up", err)
	}
	if transactions, _ := p.Size(); transactions != 0 {
		t.Fatalf("%d transactions entered without a look-up", transactions)
	}
	lookUps := 0
	if err := p.Add(b, encoded, func(*ledger.Bundle) ([]bool, error) {
		if lookUps++; lookUps == 1 {
			p.Applied(&ledger.Block{Header: ledger.Header{Height: 1},
				Unpacked: []ledger.Entry{{ID: b.ID(0)}}})
			return []bool{false, true, false}, nil
		}
		return []bool{true, true, false}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if p.Pending(b.ID(0)) || p.Pending(b.ID(1)) || !p.Pending(b.ID(2)) || lookUps != 2 {
		t.Fatalf("after %d look-ups the pool has %v, %v, %v", lookUps, p.Pending(b.ID(0)),
			p.Pending(b.ID(1)), p.Pending(b.ID(2)))
	}
	if absent := p.Absent(b.IDs()); !slices.Equal(absent, []int{0, 1}) {
		t.Errorf("the transactions at %v are absent", absent)
	}
}

// Bundle finds what is in the pool by its bytes, under way or not, and nothing else.
func TestBundleByItsBytes(t *testing.T) {
	t.Parallel()
	p := pool(1 << 20)
	first, encodedFirst := bundle(t, 0, 1)
	second, encodedSecond := bundle(t, 0, 2)
	if err := p.Add(first, encodedFirst, nothingKnown); err != nil {
		t.Fatal(err)
	}
	for _, underWay := range []bool{false, true} {
		if p.Bundle(bytes.Clone(encodedFirst)) != first || p.Bundle(encodedSecond) != nil {
			t.Errorf("under way %v: %p and %p, want %p and nil", underWay, p.Bundle(encodedFirst),
				p.Bundle(encodedSecond), first)
		}
		taken(t, p, 1<<20)
	}
	p.Applied(block(1, first, second))
	if p.Bundle(encodedFirst) != nil {
		t.Error("found after its block")
	}
}
