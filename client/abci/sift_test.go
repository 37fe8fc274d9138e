package abci

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// picky accepts a block without "bad" ones, and without two that are the same. It counts.
type picky struct{ questions, bytes int }

func (p *picky) accepts(transactions [][]byte) (bool, error) {
	p.questions++
	seen := make(map[string]bool)
	for _, each := range transactions {
		p.bytes += len(each)
		if seen[string(each)] || bytes.HasPrefix(each, []byte("bad")) {
			return false, nil
		}
		seen[string(each)] = true
	}
	return true, nil
}

// What stays is what the application accepts after those that stay before it, one after the other.
func TestSiftProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "bad", "bad1"}),
			0, 40).Draw(t, "texts")
		bounds := standardBounds
		bounds.transactions = rapid.IntRange(0, 50).Draw(t, "room")
		var all []carried
		var want []string
		for i, each := range texts {
			all = append(all, carried{"acme", []byte(each)})
			if i < bounds.transactions && !slices.Contains(want, each) && each[0:1] == each {
				want = append(want, each)
			}
		}
		kept, left, err := sift(all, bounds, new(picky).accepts)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(kept, []byte(" "))); got != strings.Join(want, " ") {
			t.Fatalf("%q, want %q of %q", got, want, texts)
		}
		for _, each := range left {
			if each.why != notAccepted && each.why != noRoom {
				t.Fatalf("%+v", each)
			}
		}
		if len(kept)+len(left) != len(all) {
			t.Fatalf("%d stay and %d are left out of %d", len(kept), len(left), len(all))
		}
	})
}

// An organisation that floods a block with what the application does not accept costs a bounded
// number of questions, and costs no other organisation a transaction.
func TestSiftFlood(t *testing.T) {
	t.Parallel()
	const count = 2048
	var all []carried
	size := 0
	for i := range count {
		owner, text := ledger.OrganisationName("flood"), fmt.Sprint("bad", i)
		if i%2 == 1 {
			owner, text = "acme", fmt.Sprint("good", i)
		}
		all = append(all, carried{owner, []byte(text)})
		size += len(text)
	}
	unbounded := new(picky)
	if _, _, err := sift(all, standardBounds, unbounded.accepts); err != nil {
		t.Fatal(err)
	}
	bounds, asked := standardBounds, new(picky)
	bounds.refused = 1 << 18
	kept, left, err := sift(all, bounds, asked.accepts)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != count/2 {
		t.Errorf("%d of %d good ones stay", len(kept), count/2)
	}
	reasons := make(map[why]int)
	for _, each := range left {
		reasons[each.why]++
	}
	if reasons[notAccepted] == 0 || reasons[notAsked] == 0 {
		t.Errorf("reasons: %v", reasons)
	}
	// Of each refused question, those around it have as many bytes at most at each level.
	if most := 14 * (bounds.refused + size) * 2; asked.bytes > most ||
		unbounded.questions < 4*asked.questions {
		t.Errorf("%d questions with %d bytes, at most %d; without the bound %d questions",
			asked.questions, asked.bytes, most, unbounded.questions)
	}
}

// A block takes what fits, in its order.
func TestSiftNoRoom(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]siftBounds{
		"transactions": {transactions: 2, bytes: 100, refused: 1},
		"bytes":        {transactions: 9, bytes: 7, refused: 1},
	} {
		all := []carried{{"acme", []byte("one")}, {"acme", []byte("two")},
			{"acme", []byte("three")}, {"acme", []byte("4")}}
		kept, left, err := sift(all, bounds, new(picky).accepts)
		if err != nil || string(bytes.Join(kept, []byte(" "))) != "one two" || len(left) != 2 ||
			left[0].why != noRoom || string(left[1].transaction) != "4" {
			t.Errorf("%s: %q, %+v, %v", name, kept, left, err)
		}
	}
}
