package ledger_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// clocks returns clocks of these members, each with this offset from the batch's time.
func clocks(offset ledger.Milliseconds, members ...ledger.MemberIndex) []ledger.MemberClock {
	list := make([]ledger.MemberClock, len(members))
	for i, member := range members {
		list[i] = ledger.MemberClock{Member: member, Offset: offset}
	}
	return list
}

func TestClocksOfABatch(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	bundle := client.Bundle(client.Register("a")).Encode()
	plain := ledger.Batch{Header: ledger.BatchHeader{Time: 1_700_000_000_000},
		Bundles: [][]byte{bundle}}
	all := plain
	all.Clocks = []ledger.MemberClock{{Member: 0}, {Member: 3, Offset: -ledger.ClockBound},
		{Member: 1<<16 - 1, Offset: ledger.ClockBound}}
	both := all
	both.Carried = []ledger.Carried{{Number: 1, Bundle: bundle}}
	for _, batch := range []ledger.Batch{all, both} {
		encoded := batch.Encode()
		decoded, err := ledger.DecodeBatch(encoded)
		if err != nil || !reflect.DeepEqual(*decoded, batch) {
			t.Fatalf("%+v became %+v, %v", batch, decoded, err)
		}
		for length := range encoded {
			if _, err := ledger.DecodeBatch(encoded[:length]); !errors.Is(err,
				ledger.ErrMalformed) {
				t.Errorf("%d of %d bytes were taken", length, len(encoded))
			}
		}
	}
	if more := len(all.Encode()) - len(plain.Encode()); more > ledger.ClocksSize(len(all.Clocks)) {
		t.Errorf("clocks of %d bytes, at most %d said", more, ledger.ClocksSize(len(all.Clocks)))
	}
	for name, wrong := range map[string][]ledger.MemberClock{
		"twice the same member": clocks(0, 1, 1),
		"out of order":          clocks(0, 2, 1),
		"no such member":        clocks(0, ledger.MaxMemberIndexes),
		"too far":               clocks(ledger.ClockBound+1, 1),
		"too far back":          clocks(-ledger.ClockBound-1, 1),
	} {
		batch := plain
		batch.Clocks = wrong
		if _, err := ledger.DecodeBatch(batch.Encode()); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
