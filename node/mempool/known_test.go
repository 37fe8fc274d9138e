package mempool

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

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

// If blocks come faster than the chain is looked up, the pool takes them all the same: no look-up
// holds them up. What they bring stays out, although the look-up did not see it. What they do not
// bring enters, once.
func TestBlocksFasterThanLookUps(t *testing.T) {
	t.Parallel()
	plain, encodedPlain := bundle(t, 0, 1, 2, 3)
	whole, encodedWhole := packed(t, 1, 3)
	for _, each := range []struct {
		name    string
		bundle  *ledger.Bundle
		encoded []byte
		brings  []ledger.Hash // of the block during the last look-up
		sees    []bool        // what that look-up says
		want    []bool        // whether each transaction is in the pool then
	}{
		{"nothing", plain, encodedPlain, nil, nil, []bool{true, true, true}},
		{"one", plain, encodedPlain, []ledger.Hash{plain.ID(1)}, nil, []bool{true, false, true}},
		{"one, and one was there", plain, encodedPlain, []ledger.Hash{plain.ID(1)},
			[]bool{true, false, false}, []bool{false, false, true}},
		{"all", plain, encodedPlain, plain.IDs(), nil, []bool{false, false, false}},
		{"others", whole, encodedWhole, []ledger.Hash{plain.ID(0)}, nil, []bool{true, true, true}},
		{"a packed bundle", whole, encodedWhole, []ledger.Hash{whole.ID(0)}, nil,
			[]bool{false, false, false}},
	} {
		p, height, lookUps := pool(1<<20), ledger.Height(0), 0
		comes := func(ids ...ledger.Hash) {
			applied := make(chan struct{})
			height++
			brought := &ledger.Block{Header: ledger.Header{Height: height}}
			for _, id := range ids {
				brought.Unpacked = append(brought.Unpacked, ledger.Entry{ID: id})
			}
			go func() {
				defer close(applied)
				p.Applied(brought)
			}()
			select {
			case <-applied:
			case <-time.After(time.Minute):
				t.Error("a look-up holds up a block")
			}
		}
		if err := p.Add(each.bundle, each.encoded, func(*ledger.Bundle) ([]bool, error) {
			if lookUps++; lookUps < lookUpsMost {
				comes(ledger.Hash{byte(lookUps)})
				return nil, nil
			}
			comes(each.brings...)
			comes(ledger.Hash{99})
			return each.sees, nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range each.bundle.Len() {
			if got := p.Pending(each.bundle.ID(i)); got != each.want[i] {
				t.Errorf("%s: transaction %d is in the pool: %v", each.name, i, got)
			}
		}
		if lookUps != lookUpsMost || len(p.watches) > 0 {
			t.Errorf("%s: %d look-ups, and %d go on", each.name, lookUps, len(p.watches))
		}
		// A block with all of it empties the pool.
		comes(each.bundle.IDs()...)
		if transactions, _ := p.Size(); transactions != 0 {
			t.Errorf("%s: %d transactions stay for ever", each.name, transactions)
		}
	}
	p, lookUps, unreadable := pool(1<<20), 0, errors.New("unreadable")
	if err := p.Add(plain, encodedPlain, func(*ledger.Bundle) ([]bool, error) {
		if lookUps++; lookUps == lookUpsMost {
			return nil, unreadable
		}
		p.Applied(&ledger.Block{})
		return nil, nil
	}); !errors.Is(err, unreadable) || len(p.watches) > 0 {
		t.Errorf("%v, %d look-ups go on", err, len(p.watches))
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
