package sweep_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

func square(seed uint64) (uint64, error) { return seed * seed, nil }

func TestSeedsComeInOrder(t *testing.T) {
	t.Parallel()
	var got, want []uint64
	for seed := uint64(7); seed < 1007; seed++ {
		want = append(want, seed*seed)
	}
	err := sweep.Seeds(t.Context(), 7, 1000, square, func(result uint64) bool {
		got = append(got, result)
		return true
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v; %d results, the first %v", err, len(got), got[:min(3, len(got))])
	}
	if err := sweep.Seeds(t.Context(), 7, 0, square, func(uint64) bool {
		t.Error("a result of no seed")
		return true
	}); err != nil {
		t.Error(err)
	}
}

func TestSeedsEndEarly(t *testing.T) {
	t.Parallel()
	reported := 0
	if err := sweep.Seeds(t.Context(), 0, 1000, square, func(uint64) bool {
		reported++
		return reported < 10
	}); err != nil || reported != 10 {
		t.Errorf("%v after %d results, of which the tenth was to be the last", err, reported)
	}
	broken := errors.New("no such run")
	reported = 0
	err := sweep.Seeds(t.Context(), 0, 1000, func(seed uint64) (uint64, error) {
		if seed == 5 {
			return 0, broken
		}
		return seed, nil
	}, func(uint64) bool { reported++; return true })
	if !errors.Is(err, broken) || reported != 5 {
		t.Errorf("%v after %d results, want the error of the sixth run", err, reported)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = sweep.Seeds(ctx, 0, 1000, square, func(uint64) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}
