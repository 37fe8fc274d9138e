package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// busyStore returns a store whose issuer changes in each of its later blocks, and the place before
// these. Other accounts change less often.
func busyStore(t *testing.T, blocks int) (*Store, Place) {
	t.Helper()
	s := open(t, t.TempDir(), small())
	traffic := newBook(3)
	traffic.apply(t, s, 0)
	place := Place{Height: s.AppendedHeight()}
	for i := range blocks {
		if _, err := s.Apply(1, s.Head().Round+1, [][]byte{ledgertest.Batch(1,
			traffic.client.Bundle(traffic.client.Transfer("acme:issuer", traffic.account(i%3),
				1)))}); err != nil {
			t.Fatal(err)
		}
	}
	return s, place
}

// A read does as much work as it may, and no more. It tells once that it does much.
func TestEffortOfReadsAtAPlace(t *testing.T) {
	t.Parallel()
	const blocks, each = 40, 1 + blockEffort + 1 // a step, and its block of one entry
	s, place := busyStore(t, blocks)
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		effort Effort
		far    error
		want   error
		calls  int
	}{
		"enough":              {Effort{Most: blocks * each, Near: blocks * each}, nil, nil, 0},
		"a little too little": {Effort{Most: blocks*each - 1, Near: 1000}, nil, ErrFarBack, 0},
		"nothing":             {Effort{}, nil, ErrFarBack, 0},
		"far, and allowed":    {Effort{Most: blocks * each, Near: each}, nil, nil, 1},
		"far, and refused":    {Effort{Most: blocks * each, Near: each}, refused, refused, 1},
		"far, and not enough": {Effort{Most: 10 * each, Near: each}, nil, ErrFarBack, 1},
	} {
		effort, calls := test.effort, 0
		effort.Far = func(context.Context) error {
			calls++
			return test.far
		}
		_, err := s.AccountAt(t.Context(), "acme:issuer", place, &effort)
		if !errors.Is(err, test.want) || calls != test.calls ||
			effort.Over() != (test.want != nil) {
			t.Errorf("%s: %v after %d calls, over: %v", name, err, calls, effort.Over())
		}
		if effort.done > effort.Most+each {
			t.Errorf("%s: it did %d, and may %d", name, effort.done, effort.Most)
		}
	}
	// Once refused, the effort does nothing more.
	effort := Effort{Most: 1000, Near: 1, Far: func(context.Context) error { return refused }}
	for range 2 {
		if _, err := s.AccountAt(t.Context(), "acme:issuer", place, &effort); !errors.Is(err,
			refused) {
			t.Error(err)
		}
	}
	// A read that needs no step takes none.
	if _, err := s.AccountAt(t.Context(), "acme:issuer", Place{Height: s.AppendedHeight()},
		new(Effort)); err != nil {
		t.Error(err)
	}
}

// A page at a place ends before the account that takes more work than is left. The next page fails,
// if it takes more work than a page may do.
func TestEffortOfPages(t *testing.T) {
	t.Parallel()
	s, place := busyStore(t, 30)
	want, _, _, err := s.AccountsAt(t.Context(), place, "", 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []ledger.Account
	after, more, pages := ledger.AccountPath(""), true, 0
	for ; more; pages++ {
		var page []ledger.Account
		page, after, more, err = s.AccountsAt(t.Context(), place, after, 10,
			&Effort{Most: 500, Near: 500})
		got = append(got, page...)
		if err != nil {
			break
		}
	}
	// The issuer is the last by name. Each of the others has a third of the steps.
	if !errors.Is(err, ErrFarBack) || pages != 2 || len(got) != 3 || len(want) != 4 ||
		after != "" {
		t.Errorf("%d accounts of %d in %d pages: %v", len(got), len(want), pages, err)
	}
	for i := range got {
		if got[i].Path != want[i].Path || !slices.Equal(got[i].Balances, want[i].Balances) {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}
