package api_test

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// history returns all entries that a request asks for, over pages of a size, as one text: the
// change and the balance after it. It also checks that the pages join.
func (b *bank) history(request *ledgerdv1.ListHistoryRequest) (text string) {
	b.Helper()
	request.Account = "bank:a"
	var edge string
	for pages := 0; ; pages++ {
		answer, err := b.client.ListHistory(b.context(), connect.NewRequest(request))
		must(b.T, err)
		if !answer.Msg.GetHasBalances() || answer.Msg.GetOpenedTimeMs() == 0 {
			b.Errorf("%v", answer.Msg)
		}
		for _, entry := range answer.Msg.GetEntries() {
			for i, change := range entry.GetChanges() {
				text += fmt.Sprintf("%s>%s%s ", change.GetAmount(),
					entry.GetBalancesAfter()[i].GetAmount(),
					strings.TrimPrefix(change.GetAsset(), "unit"))
			}
		}
		begin, end := answer.Msg.GetOpeningBalances(), answer.Msg.GetClosingBalances()
		if !request.GetAscending() {
			begin, end = end, begin
		}
		if now := fmt.Sprint(begin); pages > 0 && now != edge {
			b.Errorf("page %d begins with %s, and the one before ends with %s", pages, now, edge)
		}
		edge = fmt.Sprint(end)
		if request.PageToken = answer.Msg.GetNextPageToken(); request.PageToken == "" {
			return strings.TrimSuffix(text, " ")
		}
	}
}

// Each filter finds its entries, with the balances that all entries make up, in pages of any size,
// also if a node looks at few entries for a page.
func TestFiltersOfHistories(t *testing.T) {
	t.Parallel()
	for _, effort := range []int{0, 200} {
		b := newBank(t, apitest.Options{}, api.Options{MaxReadEffort: effort})
		height := func() uint64 {
			answer, err := b.client.GetAccount(b.context(),
				connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "bank:a"}))
			must(t, err)
			return answer.Msg.GetAccount().GetHeight()
		}
		b.done(transfer("bank:mint", "bank:a", 100))
		first := height()
		lunch := transfer("bank:a", "bank:b", 30)
		lunch.Note = []byte("Lunch with Zoë")
		b.done(lunch)
		second := height()
		gold := transfer("bank:mint", "bank:a", 7)
		gold.Postings[0].Asset, gold.Postings[1].Asset = "gold", "gold"
		b.done(gold)
		third := height()
		twice := ledger.Transaction{Postings: append(transfer("bank:a", "bank:b", 4).Postings,
			transfer("bank:b", "bank:a", 9).Postings...),
			Note: []byte(`{"invoice": {"number": 4711}, "paid": true}`)}
		b.done(twice)
		for name, c := range map[string]struct {
			request *ledgerdv1.ListHistoryRequest
			want    string
		}{
			"all":  {&ledgerdv1.ListHistoryRequest{}, "5>75 7>7gold -30>70 100>100"},
			"from": {&ledgerdv1.ListHistoryRequest{FromHeight: third}, "5>75 7>7gold"},
			"to":   {&ledgerdv1.ListHistoryRequest{ToHeight: second}, "-30>70 100>100"},
			"one block": {&ledgerdv1.ListHistoryRequest{FromHeight: first, ToHeight: first},
				"100>100"},
			"asset": {&ledgerdv1.ListHistoryRequest{Asset: "gold"}, "7>7gold"},
			"least": {&ledgerdv1.ListHistoryRequest{MinAmount: "30"}, "-30>70 100>100"},
			"most":  {&ledgerdv1.ListHistoryRequest{MaxAmount: "7"}, "5>75 7>7gold"},
			"of an asset": {&ledgerdv1.ListHistoryRequest{MinAmount: "6", Asset: "gold"},
				"7>7gold"},
			"other": {&ledgerdv1.ListHistoryRequest{Counterparty: "bank:b"}, "5>75 -30>70"},
			"of one": {&ledgerdv1.ListHistoryRequest{Counterparty: "bank"},
				"5>75 7>7gold -30>70 100>100"},
			"below":  {&ledgerdv1.ListHistoryRequest{Counterparty: "bank:mint:"}, ""},
			"nobody": {&ledgerdv1.ListHistoryRequest{Counterparty: "acme"}, ""},
			"note":   {&ledgerdv1.ListHistoryRequest{Note: "ZOË"}, "-30>70"},
			"metadata": {&ledgerdv1.ListHistoryRequest{
				Metadata: []string{"invoice.number=4711", "paid"}}, "5>75"},
			"all metadata": {&ledgerdv1.ListHistoryRequest{
				Metadata: []string{"invoice.number=4711", "paid=false"}}, ""},
			"past":   {&ledgerdv1.ListHistoryRequest{ToTimeMs: 5}, ""},
			"future": {&ledgerdv1.ListHistoryRequest{FromTimeMs: 1 << 50}, ""},
		} {
			for size := range uint32(5) {
				request := proto.CloneOf(c.request)
				request.PageSize = size + 1
				if got := b.history(request); got != c.want {
					t.Errorf("%s, pages of %d: %q, want %q", name, size+1, got, c.want)
				}
			}
		}
		if got := b.history(&ledgerdv1.ListHistoryRequest{Ascending: true,
			PageSize: 1}); got != "100>100 -30>70 7>7gold 5>75" {
			t.Error(got)
		}
		for name, wrong := range map[string]*ledgerdv1.ListHistoryRequest{
			"asset": {Asset: "no asset!"}, "amount": {MinAmount: "x"}, "sign": {MaxAmount: "-1"},
			"note":     {Note: strings.Repeat("n", ledger.MaxNote+1)},
			"other":    {Counterparty: strings.Repeat("n", ledger.MaxAccountPath+1)},
			"metadata": {Metadata: []string{"=5"}},
			"more":     {Metadata: strings.Split("a,b,c,d,e,f,g,h,i", ",")},
			"token":    {PageToken: "b1"}, "shard": {Shard: new(uint32(1))},
		} {
			wrong.Account = "bank:a"
			_, err := b.client.ListHistory(b.context(), connect.NewRequest(wrong))
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
