package api_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Figures count transactions and failed ones, in all and by hour, day and month, and go on with the
// chain.
func TestFigures(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	ask := func() *ledgerdv1.GetFiguresResponse {
		answer, err := b.client.GetFigures(b.context(), connect.NewRequest(
			&ledgerdv1.GetFiguresRequest{Hours: 744, Days: 3660,
				Months: 1200}))
		must(t, err)
		return answer.Msg
	}
	b.done(transfer("bank:mint", "bank:a", 5), transfer("bank:b", "bank:a", 1))
	for _, want := range []uint64{3, 4} {
		got := ask()
		total := got.GetTotal()
		if total.GetTransactions() != want || total.GetFirst() != want || total.GetFailed() != 1 ||
			total.GetBetween() != 0 || total.GetStartMs() == 0 ||
			got.GetCountedHeight() != got.GetHeadHeight() || got.GetFromHeight() != 1 {
			t.Errorf("%v, wanted %d transactions", got, want)
		}
		var hours, days, months uint64
		for _, hour := range got.GetHours() {
			hours += hour.GetTransactions()
		}
		for _, day := range got.GetDays() {
			days += day.GetTransactions()
		}
		for _, month := range got.GetMonths() {
			months += month.GetTransactions()
		}
		if hours != want || days != want || months != want {
			t.Errorf("%d by hour, %d by day, %d by month: %v", hours, days, months, got)
		}
		b.done(transfer("bank:mint", "bank:b", 1))
	}
	plain, err := b.client.GetFigures(b.context(), connect.NewRequest(
		&ledgerdv1.GetFiguresRequest{}))
	must(t, err)
	if len(plain.Msg.GetHours())+len(plain.Msg.GetDays())+
		len(plain.Msg.GetMonths()) > 0 {
		t.Errorf("periods without being asked for: %v", plain.Msg)
	}
	for _, wrong := range []*ledgerdv1.GetFiguresRequest{{Hours: 745}, {Days: 3661},
		{Months: 1201}} {
		_, err = b.client.GetFigures(b.context(), connect.NewRequest(wrong))
		codeIs(t, err, connect.CodeInvalidArgument)
	}
}
