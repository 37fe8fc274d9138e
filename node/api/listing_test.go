package api_test

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestListTransactions: each filter selects what it says, and pages of any size, and with any bound
// of the work, show each transaction once and in order.
func TestListTransactions(t *testing.T) {
	t.Parallel()
	for _, effort := range []int{0, 60} {
		b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1, MaxReadEffort: effort})
		for i := range 12 {
			payment := transfer("bank:mint", "bank:a", int64(i+1))
			payment.Note = fmt.Appendf(nil, "Rent of month %d", i)
			payment.Records = []ledger.Record{{Key: "bank:rate", Value: fmt.Append(nil, i)}}
			if i%2 == 1 {
				payment.Records[0].Key = "bank:other"
			}
			b.done(payment)
		}
		b.done(transfer("bank:b", "bank:a", 99))
		list := func(request *ledgerdv1.ListTransactionsRequest) string {
			t.Helper()
			asked := *connect.NewRequest(request)
			var lines []string
			for turns := 0; ; turns++ {
				answer, err := b.client.ListTransactions(b.context(), &asked)
				must(t, err)
				for _, each := range answer.Msg.GetTransactions() {
					amount := ""
					if postings := each.GetTransaction().GetPostings(); len(postings) > 0 {
						amount = strings.TrimPrefix(postings[0].GetAmount(), "-")
					}
					lines = append(lines, amount+string(each.GetValue()))
				}
				next := answer.Msg.GetNextPageToken()
				if next == "" {
					return strings.Join(lines, " ")
				}
				if next == request.GetPageToken() || turns > 100 {
					t.Fatalf("token %s twice, or %d pages", next, turns)
				}
				request.PageToken = next
			}
		}
		for _, size := range []uint32{1, 3, 1000} {
			for _, c := range []struct {
				request *ledgerdv1.ListTransactionsRequest
				want    string
			}{
				{&ledgerdv1.ListTransactionsRequest{Kind: "payment"},
					"99 12 11 10 9 8 7 6 5 4 3 2 1"},
				{&ledgerdv1.ListTransactionsRequest{Kind: "payment", Ascending: true},
					"1 2 3 4 5 6 7 8 9 10 11 12 99"},
				{&ledgerdv1.ListTransactionsRequest{Status: "failed"}, "99"},
				{&ledgerdv1.ListTransactionsRequest{Status: "applied", MinAmount: "12"}, "12"},
				{&ledgerdv1.ListTransactionsRequest{Status: "waiting"}, ""},
				{&ledgerdv1.ListTransactionsRequest{MinAmount: "4", MaxAmount: "6"}, "6 5 4"},
				{&ledgerdv1.ListTransactionsRequest{Note: "RENT of month 1"}, "12 11 2"},
				{&ledgerdv1.ListTransactionsRequest{Record: "bank:rate", Ascending: true},
					"10 32 54 76 98 1110"},
				{&ledgerdv1.ListTransactionsRequest{Organisation: "bank", Asset: "gold"}, ""},
				{&ledgerdv1.ListTransactionsRequest{Kind: "hold"}, ""},
				{&ledgerdv1.ListTransactionsRequest{Kind: "verdict"}, ""},
				{&ledgerdv1.ListTransactionsRequest{Kind: "crossing"}, ""},
				{&ledgerdv1.ListTransactionsRequest{WithShard: new(uint32), MinAmount: "12",
					MaxAmount: "12"}, "12"},
				{&ledgerdv1.ListTransactionsRequest{FromTimeMs: 1 << 60}, ""},
				{&ledgerdv1.ListTransactionsRequest{ToTimeMs: 1}, ""},
			} {
				c.request.PageSize = size
				what := fmt.Sprintf("effort %d: %v", effort, c.request)
				if got := list(c.request); got != c.want {
					t.Errorf("%s:\n%s, want\n%s", what, got, c.want)
				}
			}
		}
	}
}

// TestListTransactionsRefuses: what a request cannot mean is refused and named.
func TestListTransactionsRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	for name, request := range map[string]*ledgerdv1.ListTransactionsRequest{
		"page_size":    {PageSize: 1001},
		"page_token":   {PageToken: "h1"},
		"kind":         {Kind: "gift"},
		"status":       {Status: "lost"},
		"organisation": {Organisation: "A B"},
		"asset":        {Asset: "€ "},
		"min_amount":   {MinAmount: "-1"},
		"max_amount":   {MaxAmount: "many"},
		"note":         {Note: strings.Repeat("x", ledger.MaxNote+1)},
		"record":       {Record: "x"},
		"hold_hex":     {HoldHex: "12"},
	} {
		_, err := b.client.ListTransactions(b.context(), connect.NewRequest(request))
		if connect.CodeOf(err) != connect.CodeInvalidArgument ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestListRecords: pages of any size show each record once, by key, with its last value.
func TestListRecords(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	for turn := range 3 {
		payment := transfer("bank:mint", "bank:a", int64(turn+1))
		for i := range 7 - turn {
			payment.Records = append(payment.Records, ledger.Record{
				Key: ledger.RecordKey(fmt.Sprintf("bank:r:%d", i)), Value: fmt.Append(nil, turn)})
		}
		b.done(payment)
	}
	for prefix, want := range map[string]string{
		"":         "bank:r:0=2 bank:r:1=2 bank:r:2=2 bank:r:3=2 bank:r:4=2 bank:r:5=1 bank:r:6=0",
		"bank:r:5": "bank:r:5=1",
		"bank:s":   "",
		"c":        "",
	} {
		for _, size := range []uint32{1, 3, 1000} {
			var got []string
			request := &ledgerdv1.ListRecordsRequest{Prefix: prefix, PageSize: size}
			for {
				answer, err := b.client.ListRecords(b.context(), connect.NewRequest(request))
				must(t, err)
				for _, each := range answer.Msg.GetRecords() {
					got = append(got, fmt.Sprintf("%s=%s", each.GetRecord().GetKey(),
						each.GetRecord().GetValue()))
				}
				if request.PageToken = answer.Msg.GetNextPageToken(); request.PageToken == "" {
					break
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%q, pages of %d: %s", prefix, size, got)
			}
		}
	}
}
