package shards

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

func someAnnouncement() Announcement {
	membership := changed(3, map[ledger.MemberIndex]int{0: 0, 2: 2, 5: 7})
	membership.Height, membership.Round, membership.Members[2].Joined = 9, 11, 9
	return Announcement{
		Shard: 2, Mode: report.ModeOrdering, APIAddress: "http://127.0.0.1:8000",
		Heights: report.Heights{Ordered: 30, Stored: 29, Durable: 28},
		Head:    ledger.Hash{1, 2}, Transactions: 100, Accounts: 5, Pending: 2, Carried: 17,
		Streamed: []Streamed{{3, 4}, {5, 6}}, Membership: &membership,
	}
}

func someVerdicts() []ledger.Verdict {
	return []ledger.Verdict{
		{ID: ledger.Hash{1}, Shard: 2, Result: ledger.Result{Code: ledger.SetAside,
			Item: ledger.NoItem}},
		{ID: ledger.Hash{2}, Shard: 2, Result: ledger.Result{Code: ledger.InsufficientFunds,
			Item: 3}},
	}
}

func TestMessagesComeBack(t *testing.T) {
	t.Parallel()
	for _, want := range []Announcement{someAnnouncement(), {Mode: report.ModeStarting}} {
		if got, err := DecodeAnnouncement(want.Encode()); err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%+v\ncame back as %+v, %v", want, got, err)
		}
	}
	if got, err := decodeVerdicts(encodeVerdicts(someVerdicts()), 2); err != nil ||
		!reflect.DeepEqual(got, someVerdicts()) {
		t.Errorf("verdicts came back as %+v, %v", got, err)
	}
	ids := []ledger.Hash{{1}, {2}, {3}}
	group := ledger.VerdictGroup{Shard: 2, IDs: ids}
	if got, err := decodeGroup(encodeGroup(&group), 2); err != nil ||
		!isGroup(encodeGroup(&group)) || !reflect.DeepEqual(got, group) ||
		isGroup(encodeVerdicts(someVerdicts())) {
		t.Errorf("a group came back as %+v, %v", got, err)
	}
	asked := ledger.Testimony{About: 2, AsOf: 3}.Subject()
	if got, subject, err := decodeQuery(encodeQuery(ids, asked)); err != nil ||
		subject != asked || !reflect.DeepEqual(got, ids) {
		t.Errorf("%v of %d: %v", got, subject, err)
	}
	if got, subject, err := decodeQuery(encodeQuery(ids, 0)); err != nil || subject != 0 ||
		!reflect.DeepEqual(got, ids) {
		t.Errorf("a question came back as %v, %v", got, err)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	a := someAnnouncement()
	whole := a.Encode()
	for size := range whole {
		if _, err := DecodeAnnouncement(whole[:size]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("the first %d bytes of %d: %v", size, len(whole), err)
		}
	}
	if _, err := DecodeAnnouncement(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrMalformed) {
		t.Error("a byte too many was taken")
	}
	applied := someVerdicts()
	applied[1].Result = ledger.Result{Code: ledger.Applied, Item: ledger.NoItem}
	for what, message := range map[string][]byte{
		"of another shard": encodeVerdicts([]ledger.Verdict{{Shard: 1,
			Result: ledger.Result{Code: ledger.SetAside}}}),
		"none at all":      encodeVerdicts(nil),
		"one that is none": encodeVerdicts(applied),
		"an unknown result": encodeVerdicts([]ledger.Verdict{{Shard: 2,
			Result: ledger.Result{Code: 250}}}),
		"too many":            encodeVerdicts(make([]ledger.Verdict, verdictsMax+1)),
		"half of one":         encodeVerdicts(someVerdicts())[:60],
		"nothing":             nil,
		"of a future version": {9},
	} {
		if _, err := decodeVerdicts(message, 2); !errors.Is(err, ErrMalformed) {
			t.Errorf("verdicts, %s: %v", what, err)
		}
	}
	group := ledger.VerdictGroup{Shard: 2, IDs: []ledger.Hash{{1}, {2}}}
	whole = encodeGroup(&group)
	many := make([]ledger.Hash, ledger.MaxVerdictGroup+1)
	for i := range many {
		many[i] = ledger.Hash{byte(i >> 8), byte(i)}
	}
	for what, message := range map[string][]byte{
		"of another shard": encodeGroup(&ledger.VerdictGroup{Shard: 1, IDs: group.IDs}),
		"alone":            encodeGroup(&ledger.VerdictGroup{Shard: 2, IDs: many[:1]}),
		"none at all":      encodeGroup(&ledger.VerdictGroup{Shard: 2}),
		"too many":         encodeGroup(&ledger.VerdictGroup{Shard: 2, IDs: many}),
		"out of order": encodeGroup(&ledger.VerdictGroup{Shard: 2,
			IDs: []ledger.Hash{{2}, {1}}}),
		"one twice": encodeGroup(&ledger.VerdictGroup{Shard: 2,
			IDs: []ledger.Hash{{1}, {1}}}),
		"a byte too many":   append(bytes.Clone(whole), 0),
		"a byte too few":    whole[:len(whole)-1],
		"nothing":           nil,
		"verdicts, instead": encodeVerdicts(someVerdicts()),
	} {
		if _, err := decodeGroup(message, 2); !errors.Is(err, ErrMalformed) {
			t.Errorf("a group, %s: %v", what, err)
		}
	}
	for what, message := range map[string][]byte{
		"none": encodeQuery(nil, 0), "too many": encodeQuery(make([]ledger.Hash, queryMax+1), 0),
		"half of one": encodeQuery(make([]ledger.Hash, 1), 0)[:20],
	} {
		if _, _, err := decodeQuery(message); !errors.Is(err, ErrMalformed) {
			t.Errorf("a question, %s: %v", what, err)
		}
	}
}

func FuzzDecodeAnnouncement(f *testing.F) {
	a := someAnnouncement()
	f.Add(a.Encode())
	f.Add((&Announcement{Mode: report.ModeHalted}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		decoded, err := DecodeAnnouncement(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(decoded.Encode(), data) {
			t.Fatalf("%+v has two encodings", decoded)
		}
	})
}

func FuzzDecodeVerdicts(f *testing.F) {
	f.Add(encodeVerdicts(someVerdicts()))
	f.Add(encodeQuery([]ledger.Hash{{1}}, 0))
	f.Add(encodeGroup(&ledger.VerdictGroup{Shard: 2, IDs: []ledger.Hash{{1}, {2}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if verdicts, err := decodeVerdicts(data, 2); err == nil &&
			!bytes.Equal(encodeVerdicts(verdicts), data) {
			t.Fatalf("%+v have two encodings", verdicts)
		}
		if group, err := decodeGroup(data, 2); err == nil &&
			(!bytes.Equal(encodeGroup(&group), data) || group.Validate() != nil) {
			t.Fatalf("%+v has two encodings", group)
		}
		if ids, subject, err := decodeQuery(data); err == nil &&
			!bytes.Equal(encodeQuery(ids, subject), data) {
			t.Fatalf("%v have two encodings", ids)
		}
	})
}
