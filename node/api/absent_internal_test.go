package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// lender is a backend that has blocks fetched up to a height.
type lender struct {
	Backend
	has     ledger.Height
	fetched map[ledger.Height]int
}

func (l *lender) FetchAbsent(_ context.Context, height ledger.Height) error {
	l.fetched[height]++
	if height > l.has {
		return errors.New("nobody has it")
	}
	return nil
}

// A call runs again until it has all blocks that it needs, or until one cannot be fetched. Other
// errors pass.
func TestCallsFetchAbsentBlocks(t *testing.T) {
	t.Parallel()
	other := errors.New("another error")
	for name, test := range map[string]struct {
		needs, has ledger.Height // the blocks from 1 on
		end        error
		fetches    int
		want       error
	}{
		"nothing is absent": {0, 0, nil, 0, nil},
		"some are":          {5, 9, nil, 5, nil},
		"one is nowhere":    {5, 3, nil, 4, store.ErrAbsent},
		"it fails then":     {2, 2, other, 2, other},
		"more than it may fetch": {2 * maxFetched, 3 * maxFetched, nil, maxFetched,
			store.ErrAbsent},
		"as many as it may": {maxFetched, maxFetched, nil, maxFetched, nil},
	} {
		backend := &lender{has: test.has, fetched: make(map[ledger.Height]int)}
		_, err := absent{backend}.WrapUnary(func(context.Context,
			connect.AnyRequest) (connect.AnyResponse, error) {
			for height := ledger.Height(1); height <= test.needs; height++ {
				if backend.fetched[height] == 0 || height > test.has {
					lacks := &store.AbsentError{Height: height, Absent: test.needs}
					return nil, Retryable(connect.CodeUnavailable, fmt.Errorf("reading: %w",
						lacks), nil)
				}
			}
			return connect.NewResponse(new(string)), test.end
		})(t.Context(), connect.NewRequest(new(string)))
		if len(backend.fetched) != test.fetches || !errors.Is(err, test.want) ||
			test.want == nil && err != nil {
			t.Errorf("%s: %d were fetched, %v", name, len(backend.fetched), err)
		}
	}
}
