package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// TestHoldsOfLiars: a poster does not sign away what a node hides of a hold.
func TestHoldsOfLiars(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	for _, name := range []string{"acme", "shop"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " %n %k")
		s.must(fmt.Sprintf("account open %s:mint --issuer %%n %%k", name))
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	s.must("tx transfer acme:mint acme:cash 100 %n %k")
	hold := fmt.Sprint(s.object(
		"hold place acme:cash 60 --to shop:cash,acme:mint --poster shop --expires 1h %n %k")["id"])

	honest, err := url.Parse(s.doors[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*ledgerdv1.Hold){
		"less":  func(hold *ledgerdv1.Hold) { hold.Amount, hold.To = "1", []string{"shop:cash"} },
		"fewer": func(hold *ledgerdv1.Hold) { hold.To = []string{"acme:mint"} },
	} {
		node := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, honest.String())
		routes := http.NewServeMux()
		routes.Handle("/", httputil.NewSingleHostReverseProxy(honest))
		routes.Handle(ledgerdv1connect.LedgerServiceGetHoldProcedure, connect.NewUnaryHandler(
			ledgerdv1connect.LedgerServiceGetHoldProcedure, func(ctx context.Context,
				request *connect.Request[ledgerdv1.GetHoldRequest]) (
				*connect.Response[ledgerdv1.GetHoldResponse], error) {
				answer, err := node.GetHold(ctx, connect.NewRequest(request.Msg))
				if err != nil {
					return nil, err
				}
				lie(answer.Msg.GetHold().GetHold())
				return connect.NewResponse(answer.Msg), nil
			}))
		liar := httptest.NewServer(routes)
		defer liar.Close()
		got := s.run("hold post " + hold + " --node=" + liar.URL + " %k")
		if got.status == exitDone || !strings.Contains(got.errs, "does not tell the truth") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s.must("hold post " + hold + " --to shop:cash %n %k")
	if text := s.must("account show shop:cash %n"); !strings.Contains(text, "60") {
		t.Error(text)
	}
}
