package ledger_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// Testimonies are verdicts of their own: no other verdict has their subject, and they survive their
// encoding.
func TestTestimonies(t *testing.T) {
	t.Parallel()
	id := ledger.Hash{1}
	plain := ledger.Verdict{ID: id, Shard: 1,
		Result: ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}}
	if _, is := plain.Testimony(); is || plain.Subject() != 0 {
		t.Error("a verdict is a testimony")
	}
	subjects := map[ledger.Subject]ledger.Testimony{}
	for _, about := range []ledger.ShardID{0, 2, 3, ledger.MaxShards - 1} {
		for _, asOf := range []ledger.ShardID{0, 2, 3, ledger.MaxShards - 1} {
			want := ledger.Testimony{About: about, AsOf: asOf}
			for _, agreed := range []bool{false, true} {
				verdict := want.Verdict(id, 1, agreed)
				got, is := verdict.Testimony()
				again, subject := verdict.Subject().Testimony()
				if !is || got != want || !subject || again != want || verdict.Good() ||
					verdict.Validate() != nil {
					t.Errorf("%+v: %+v", want, verdict)
				}
				entry := verdict.Entry(ledger.Hash{2})
				decoded, err := ledger.DecodeBody(entry.Body)
				if err != nil || *decoded.Verdict != verdict {
					t.Errorf("%+v is decoded as %+v: %v", verdict, decoded, err)
				}
				_, of := ledger.VerdictOf(&ledger.Entry{ID: id, Result: verdict.Result,
					Decoded: new(ledger.Transaction)}, 1)
				if of {
					t.Error("a transaction has the result of a testimony")
				}
			}
			if before, taken := subjects[want.Subject()]; taken || want.Subject() == 0 {
				t.Errorf("%+v and %+v have one subject", want, before)
			}
			subjects[want.Subject()] = want
		}
	}
	for name, verdict := range map[string]ledger.Verdict{
		"about itself":        ledger.Testimony{About: 1, AsOf: 2}.Verdict(id, 1, true),
		"as of its own loss":  ledger.Testimony{About: 2, AsOf: 1}.Verdict(id, 1, true),
		"about no such shard": ledger.Testimony{About: ledger.MaxShards}.Verdict(id, 1, true),
		"as of no such shard": ledger.Testimony{AsOf: ledger.MaxShards}.Verdict(id, 1, false),
		"about nothing at all": {ID: id, Result: ledger.Result{Code: ledger.HeardNothing,
			Item: ledger.NoItem}},
	} {
		if err := verdict.Validate(); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("a testimony %s: %v", name, err)
		}
	}
}
