package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// manyDecimals is a node that says that assets have more decimals than any asset has.
type manyDecimals struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
}

func (manyDecimals) GetAsset(context.Context, *connect.Request[ledgerdv1.GetAssetRequest]) (
	*connect.Response[ledgerdv1.GetAssetResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetAssetResponse{Asset: &ledgerdv1.Asset{
		Terms: &ledgerdv1.AssetTerms{Decimals: 1<<32 - 1}}}), nil
}

func (manyDecimals) GetAccount(context.Context, *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{Account: &ledgerdv1.Account{
		Balances: []*ledgerdv1.Balance{{Amount: "1", Decimals: 31}}}}), nil
}

// More decimals than an asset has would fill the memory of a program that writes them.
func TestRefusesManyDecimals(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(ledgerdv1connect.NewLedgerServiceHandler(manyDecimals{}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c := newTestClient(t, server.URL)
	if _, err := c.Asset(testContext(t), "EUR"); err == nil ||
		!strings.Contains(err.Error(), "at most 30") {
		t.Error(err)
	}
	if _, err := c.Account(testContext(t), "acme:cash"); err == nil ||
		!strings.Contains(err.Error(), "at most 30") {
		t.Error(err)
	}
}
