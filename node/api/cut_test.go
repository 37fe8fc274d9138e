package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// watched is a node that says when a call looks how far its chain is.
type watched struct {
	api.Backend
	looked chan report.Heights
}

func (w *watched) Heights() (report.Heights, <-chan struct{}) {
	heights, changed := w.Backend.Heights()
	select {
	case w.looked <- heights:
	default:
	}
	return heights, changed
}

// behind serves the API of a bank's node, which says when a call looks how far its chain is.
func (b *bank) behind() (ledgerdv1connect.LedgerServiceClient, *watched) {
	node := &watched{b.cluster.Node(0), make(chan report.Heights, 100)}
	door := apitest.Serve(b.T, node, api.Options{})
	return ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, door.URL), node
}

// seen waits until a call sees a chain that ends with a block, and is durable up to another.
func (w *watched) seen(t *testing.T, ordered, durable ledger.Height, failed <-chan error) {
	t.Helper()
	for {
		select {
		case heights := <-w.looked:
			if heights.Ordered == ordered && heights.Durable == durable {
				return
			}
		case err := <-failed:
			t.Fatalf("the call did not wait: %v", err)
		}
	}
}

// readsBehind are calls that need the next block of a chain, by name.
func readsBehind(next uint64) map[string]func(ctx context.Context,
	client ledgerdv1connect.LedgerServiceClient) error {
	cut := []*ledgerdv1.Place{{Height: next}}
	return map[string]func(ctx context.Context, client ledgerdv1connect.LedgerServiceClient) error{
		"place": func(ctx context.Context, client ledgerdv1connect.LedgerServiceClient) error {
			_, err := client.GetPlace(ctx,
				connect.NewRequest(&ledgerdv1.GetPlaceRequest{Height: next}))
			return err
		},
		"cut": func(ctx context.Context, client ledgerdv1connect.LedgerServiceClient) error {
			_, err := client.GetCut(ctx,
				connect.NewRequest(&ledgerdv1.GetCutRequest{Height: &next}))
			return err
		},
		"account": func(ctx context.Context, client ledgerdv1connect.LedgerServiceClient) error {
			_, err := client.GetAccount(ctx, connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "bank:a", Cut: cut}))
			return err
		},
		"accounts": func(ctx context.Context, client ledgerdv1connect.LedgerServiceClient) error {
			_, err := client.ListAccounts(ctx,
				connect.NewRequest(&ledgerdv1.ListAccountsRequest{Cut: cut}))
			return err
		},
	}
}

// A member that is a block behind waits for the block, and until it is durable.
func TestReadsAtACutWaitForTheBlock(t *testing.T) {
	t.Parallel()
	for name, read := range readsBehind(2) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{Manual: true}, api.Options{})
			client, node := b.behind()
			b.submit(ledgerdv1.Level_LEVEL_ADMITTED, b.sign(transfer("bank:mint", "bank:a", 5)))
			failed := make(chan error, 1)
			go func() { failed <- read(b.context(), client) }()
			node.seen(t, 1, 1, failed)
			if err := b.cluster.Order(); err != nil {
				t.Fatal(err)
			}
			node.seen(t, 2, 1, failed)
			if err := b.cluster.Store(); err != nil {
				t.Fatal(err)
			}
			b.cluster.Durable()
			if err := <-failed; err != nil {
				t.Errorf("once the block was there: %v", err)
			}
		})
	}
}

// A member that does not get the block says so in bounded time, and that another one may have it:
// whether it lacks the block, or has it and does not know that it is durable.
func TestReadsAtACutEndWithoutTheBlock(t *testing.T) {
	t.Parallel()
	for name, read := range readsBehind(2) {
		for _, has := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBank(t, apitest.Options{Manual: true}, api.Options{})
				if has {
					b.submit(ledgerdv1.Level_LEVEL_ADMITTED,
						b.sign(transfer("bank:mint", "bank:a", 5)))
					if err := b.cluster.Order(); err != nil {
						t.Fatal(err)
					}
				}
				err := read(b.context(), b.client)
				codeIs(t, err, connect.CodeUnavailable)
				if coded := (*connect.Error)(nil); !asConnect(err, &coded) ||
					coded.Meta().Get(api.HeaderRetry) != "true" ||
					!strings.Contains(err.Error(), "not so far yet") ||
					!strings.Contains(err.Error(), "in shard 0") {
					t.Errorf("%v, want it to say that another member may have it", err)
				}
			})
		}
	}
}

// A block that no member can have soon is out of range, at once.
func TestCutsOfTheFarFuture(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	client, node := b.behind()
	for _, height := range []uint64{20_000, 1<<64 - 1} {
		_, err := client.GetCut(b.context(),
			connect.NewRequest(&ledgerdv1.GetCutRequest{Height: &height}))
		codeIs(t, err, connect.CodeOutOfRange)
		if !strings.Contains(err.Error(), "ends with block 1: ask for an earlier one") {
			t.Error(err)
		}
	}
	if len(node.looked) > 0 {
		t.Error("the call waited for a block that cannot come")
	}
}

// A read at a cut that takes more work than a call may do fails, and says what to do. What is
// nearer can be read, and the accounts before the one that takes long.
func TestReadsAtACutAreBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxReadEffort: 400})
	first := b.cluster.Node(0).Store().AppendedHeight()
	b.done(transfer("bank:mint", "bank:a", 1))
	for range 30 {
		b.done(transfer("bank:mint", "bank:b", 1))
	}
	last := b.cluster.Node(0).Store().AppendedHeight()
	account := func(name string, height ledger.Height) error {
		_, err := b.client.GetAccount(b.context(), connect.NewRequest(&ledgerdv1.GetAccountRequest{
			Account: name, Cut: []*ledgerdv1.Place{{Height: uint64(height)}}}))
		return err
	}
	for _, err := range []error{account("bank:a", first), account("bank:b", last-10)} {
		if err != nil {
			t.Error(err)
		}
	}
	err := account("bank:b", first)
	codeIs(t, err, connect.CodeFailedPrecondition)
	if !strings.Contains(err.Error(), "ask for a later cut") {
		t.Error(err)
	}
	token, listed := "", []string(nil)
	for {
		page, err := b.client.ListAccounts(b.context(), connect.NewRequest(
			&ledgerdv1.ListAccountsRequest{PageToken: token,
				Cut: []*ledgerdv1.Place{{Height: uint64(first)}}}))
		if err != nil {
			codeIs(t, err, connect.CodeFailedPrecondition)
			break
		}
		for _, account := range page.Msg.GetAccounts() {
			listed = append(listed, account.GetAccount())
		}
		if token = page.Msg.GetNextPageToken(); token == "" {
			t.Fatalf("the list came to an end: %v", listed)
		}
	}
	if strings.Join(listed, " ") != "bank:a" {
		t.Errorf("listed %v before the account that takes long", listed)
	}
}
