package client

import (
	"context"
	"math/big"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func unit(amount string) []*ledgerdv1.Balance {
	if amount == "" {
		return nil
	}
	return []*ledgerdv1.Balance{{Asset: "unit", Amount: amount}}
}

// statementOf returns a statement whose entries change and leave the given amounts.
func statementOf(opening, closing string, entries ...[2]string) *Statement {
	s := &Statement{Opening: unit(opening), Closing: unit(closing)}
	for _, entry := range entries {
		s.Entries = append(s.Entries, &ledgerdv1.HistoryEntry{TransactionIdHex: "77",
			Changes: unit(entry[0]), BalancesAfter: unit(entry[1])})
	}
	return s
}

// A statement of a node that does not add up is not believed.
func TestStatementsAreChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		statement *Statement
		want      string // of the error
	}{
		"nothing":       {statementOf("", ""), ""},
		"all well":      {statementOf("3", "-2", [2]string{"5", "8"}, [2]string{"-10", "-2"}), ""},
		"down to 0":     {statementOf("3", "", [2]string{"-3", "0"}), ""},
		"entry":         {statementOf("3", "8", [2]string{"5", "9"}), "after transaction 77"},
		"closing":       {statementOf("3", "9", [2]string{"5", "8"}), "does not follow"},
		"no closing":    {statementOf("3", "", [2]string{"5", "8"}), "is missing"},
		"new asset":     {statementOf("", "8"), "does not follow"},
		"no amount":     {statementOf("3", "x"), "does not follow"},
		"bad opening":   {statementOf("1e3", "1e3"), "amount of unit"},
		"bad change":    {statementOf("", "5", [2]string{"+5", "5"}), "amount of unit"},
		"other numbers": {statementOf("", "5", [2]string{"5", ""}), "balances"},
	} {
		err := test.statement.check()
		if test.want == "" && err != nil || test.want != "" && (err == nil ||
			!strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := statementOf("3", "-2", [2]string{"5", "8"}, [2]string{"-10", "-2"})
	if err := s.check(); err != nil || len(s.Totals) != 1 ||
		s.Totals[0].In.Cmp(big.NewInt(5)) != 0 || s.Totals[0].Out.Cmp(big.NewInt(10)) != 0 {
		t.Errorf("%v: %v", s.Totals, err)
	}
}

// ListHistory answers as a node of a version before periods.
func (c *crooked) ListHistory(context.Context, *connect.Request[ledgerdv1.ListHistoryRequest]) (
	*connect.Response[ledgerdv1.ListHistoryResponse], error) {
	return connect.NewResponse(&ledgerdv1.ListHistoryResponse{}), nil
}

// A node of an earlier version ignores periods and filters, and is not believed.
func TestPeriodsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, (&crooked{}).serve(t))
	for _, err := range c.HistoryOf(testContext(t), &ledgerdv1.ListHistoryRequest{
		Account: "acme:a", Note: "lunch"}) {
		if err == nil || !strings.Contains(err.Error(), "periods and filters") {
			t.Error(err)
		}
	}
	for _, err := range c.History(testContext(t), "acme:a", true) {
		t.Errorf("without filters: %v", err)
	}
	if _, err := c.Statement(testContext(t), &ledgerdv1.ListHistoryRequest{
		Account: "acme:a", ToHeight: 3}); err == nil {
		t.Error("a statement")
	}
}
