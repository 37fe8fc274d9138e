package client

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A book of one shard has cuts, too: the balances at them stay as they are.
func TestBalancesAtACut(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 1})
	c := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, c, key)
	balances := func(cut *ledgerdv1.GetCutResponse) (text string) {
		for account, err := range c.AccountsAt(testContext(t), "acme:", cut.GetPlaces()) {
			if err != nil {
				t.Fatal(err)
			}
			text += account.GetAccount()
			for _, balance := range account.GetBalances() {
				text += " " + balance.GetAmount()
			}
			text += "\n"
		}
		return text
	}
	cutAt := func(height *uint64) *ledgerdv1.GetCutResponse {
		cut, err := c.Cut(testContext(t), height)
		if err != nil {
			t.Fatal(err)
		}
		return cut
	}
	before := cutAt(nil)
	was := balances(before)
	if _, err := c.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 7),
		ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		t.Fatal(err)
	}
	after, again := balances(cutAt(nil)), balances(before)
	if was == after || was != again || after == "" {
		t.Errorf("before\n%sand after\n%sand before again\n%s", was, after, again)
	}
	height := before.GetPlaces()[0].GetHeight()
	if past := balances(cutAt(&height)); past != was {
		t.Errorf("at block %d\n%s, want\n%s", height, past, was)
	}
	account, err := c.AccountAt(testContext(t), "acme:a", before.GetPlaces())
	if err != nil || account.GetHeight() != height {
		t.Errorf("%v, %v", account, err)
	}
	height = 1 << 40
	if _, err := c.Cut(testContext(t), &height); CodeOf(err) != connect.CodeOutOfRange {
		t.Errorf("a cut of the future: %v", err)
	}
}

func (c *crooked) GetAccount(context.Context, *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{}), nil
}

func (c *crooked) ListAccounts(context.Context, *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	return connect.NewResponse(&ledgerdv1.ListAccountsResponse{}), nil
}

// A node of a version before cuts answers with the balances of now, and is not believed.
func TestCutsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, (&crooked{}).serve(t))
	cut := []*ledgerdv1.Place{{Height: 1}}
	_, err := c.Cut(testContext(t), nil)
	_, accountErr := c.AccountAt(testContext(t), "acme:a", cut)
	failures := []error{err, accountErr}
	for _, err := range c.AccountsAt(testContext(t), "", cut) {
		failures = append(failures, err)
	}
	if len(failures) != 3 {
		t.Errorf("%v", failures)
	}
	for _, err := range failures {
		if !errors.Is(err, errNoCuts) {
			t.Error(err)
		}
	}
}
