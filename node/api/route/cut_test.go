package route_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/api/route"
	"github.com/ledgerd/ledgerd/node/report"
)

// cut asks a node for a cut.
func (b *book) cut(door int, height *uint64) *ledgerdv1.GetCutResponse {
	b.Helper()
	answer, err := b.clients[door].GetCut(b.context(),
		connect.NewRequest(&ledgerdv1.GetCutRequest{Height: height}))
	if err != nil {
		b.Fatalf("a cut at shard %d: %v", door, err)
	}
	return answer.Msg
}

// balancesAt returns all accounts as a node lists them at a cut, in pages, and their sum for each
// asset.
func (b *book) balancesAt(door int, size uint32, places []*ledgerdv1.Place) (text string,
	sums map[string]ledger.Amount) {
	b.Helper()
	sums = make(map[string]ledger.Amount)
	for token := ""; ; {
		var page *connect.Response[ledgerdv1.ListAccountsResponse]
		for {
			var err error
			page, err = b.clients[door].ListAccounts(b.context(),
				connect.NewRequest(&ledgerdv1.ListAccountsRequest{PageSize: size, PageToken: token,
					Cut: places}))
			if err == nil {
				break
			}
			if coded := (*connect.Error)(nil); !asConnect(err, &coded) ||
				coded.Meta().Get(api.HeaderRetry) != "true" {
				b.Fatalf("balances at shard %d: %v", door, err)
			}
		}
		for _, account := range page.Msg.GetAccounts() {
			text += account.GetAccount()
			for _, balance := range account.GetBalances() {
				amount, err := ledger.ParseAmount(balance.GetAmount())
				if err == nil {
					sums[balance.GetAsset()], err = sums[balance.GetAsset()].Add(amount)
				}
				if err != nil {
					b.Fatal(err)
				}
				if balance.GetSetAside() != "" || balance.GetIncoming() != "" {
					b.Errorf("something waits at a cut: %v", account)
				}
				text += " " + balance.GetAmount()
			}
			text += "\n"
		}
		if token = page.Msg.GetNextPageToken(); token == "" {
			return text, sums
		}
	}
}

// addsUp reports whether the sums are all zero.
func addsUp(sums map[string]ledger.Amount) bool {
	for _, sum := range sums {
		if sum.Sign() != 0 {
			return false
		}
	}
	return true
}

// pay makes payments between the shards until the context ends.
func (b *book) pay(ctx context.Context, payers *sync.WaitGroup) {
	for shard := range b.clients {
		var bundles []*ledger.Bundle
		for i := range 60 {
			from, to := b.orgs[shard], b.orgs[(shard+1+i%2)%len(b.orgs)]
			bundles = append(bundles, b.signed(from.Transfer(from.Account("mint"),
				to.Account("a"), int64(i+1))))
		}
		payers.Go(func() {
			for _, bundle := range bundles {
				if ctx.Err() != nil {
					return
				}
				if _, err := b.clients[shard].Submit(ctx, connect.NewRequest(
					&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(bundle),
						Wait: ledgerdv1.Level_LEVEL_ORDERED})); err != nil && ctx.Err() == nil {
					b.Errorf("paying from shard %d: %v", shard, err)
				}
			}
		})
	}
}

// While payments cross, the balances at each cut add up, and every node lists the same ones, then
// and later.
func TestBalancesAtACutAddUp(t *testing.T) {
	t.Parallel()
	b := newBookOf(t, 0, 0, 1)
	ctx, cancel := context.WithCancel(b.context())
	var payers sync.WaitGroup
	defer payers.Wait()
	defer cancel()
	b.pay(ctx, &payers)
	type read struct {
		places []*ledgerdv1.Place
		text   string
	}
	var reads []read
	for i := range 15 {
		door := i % len(b.clients)
		cut := b.cut(door, nil)
		if i%3 == 2 && cut.GetPlaces()[0].GetHeight() > 2 {
			height := cut.GetPlaces()[0].GetHeight() - 2
			past := b.cut(door, &height)
			if past.GetPlaces()[0].GetHeight() != height || past.GetRoot() != 0 {
				t.Errorf("asked for block %d: %v", height, past)
			}
			cut = past
		}
		text, sums := b.balancesAt(door, uint32(1+i%4), cut.GetPlaces())
		if !addsUp(sums) {
			t.Errorf("at %v: %s", cut, text)
		}
		reads = append(reads, read{cut.GetPlaces(), text})
	}
	payers.Wait()
	changed := 0
	for i, each := range reads {
		if i > 0 && each.text != reads[i-1].text {
			changed++
		}
		for door := range b.clients {
			if text, _ := b.balancesAt(door, 100, each.places); text != each.text {
				t.Errorf("at %v, a node of shard %d lists\n%s\nand once it was\n%s", each.places,
					door, text, each.text)
			}
		}
	}
	if changed < 3 {
		t.Errorf("the balances changed %d times: nothing was paid meanwhile", changed)
	}
}

// The heads of the chains are no cut: they are refused as they are, and if they lie about the
// entries of the streams.
func TestHeadsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	before := b.cut(0, nil).GetPlaces()
	payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, payment)
	b.everywhere(payment.ID(0), "0 passed", "1 settled", "2 settled")
	after := b.cut(1, nil).GetPlaces()
	if text, sums := b.balancesAt(0, 100, after); !addsUp(sums) ||
		!strings.Contains(text, "org2:a 5\n") {
		t.Error(text)
	}
	mixed := []*ledgerdv1.Place{after[0], after[1], before[2]}
	lie := proto.CloneOf(before[2])
	lie.Carried = after[2].GetCarried()
	short := proto.CloneOf(after[0])
	short.Streamed = nil
	within := proto.CloneOf(after[2])
	within.Height, within.Entries = before[2].GetHeight(), 1000
	for name, places := range map[string][]*ledgerdv1.Place{
		"of two moments":         mixed,
		"with a lie":             {after[0], after[1], lie},
		"without streams":        {short, after[1], after[2]},
		"too few":                after[:2],
		"with nothing":           {nil, nil, nil},
		"after too many entries": {after[0], after[1], within},
	} {
		for door := range b.clients {
			_, err := b.clients[door].ListAccounts(b.context(),
				connect.NewRequest(&ledgerdv1.ListAccountsRequest{Cut: places}))
			codeIs(t, err, connect.CodeInvalidArgument)
			if !strings.Contains(err.Error(), "GetCut") {
				t.Errorf("%s: %v", name, err)
			}
			_, err = b.clients[door].GetAccount(b.context(),
				connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: places}))
			codeIs(t, err, connect.CodeInvalidArgument)
		}
	}
}

// An account at a cut is as the list there has it, whichever node is asked.
func TestAccountAtACut(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	for amount := range int64(4) {
		before := b.cut(0, nil)
		payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", amount+1))
		b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, payment)
		for door := range b.clients {
			answer, err := b.clients[door].GetAccount(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: before.GetPlaces()}))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, balance := range answer.Msg.GetAccount().GetBalances() {
				got += balance.GetAmount()
			}
			if want := []string{"", "1", "3", "6"}[amount]; got != want || !answer.Msg.GetAtCut() ||
				answer.Msg.GetAccount().GetHeight() != before.GetPlaces()[2].GetHeight() {
				t.Errorf("at shard %d: %v, want %q", door, answer.Msg, want)
			}
			page, err := b.clients[door].ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Prefix: "org2:a", Cut: before.GetPlaces()}))
			if err != nil || len(page.Msg.GetAccounts()) != 1 || !page.Msg.GetAtCut() ||
				!proto.Equal(page.Msg.GetAccounts()[0], answer.Msg.GetAccount()) {
				t.Errorf("at shard %d, listed: %v, %v", door, page, err)
			}
			_, err = b.clients[door].GetAccount(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "org2:b", Cut: before.GetPlaces()}))
			codeIs(t, err, connect.CodeNotFound)
		}
	}
	// Nothing is open at the beginning.
	first := b.cut(1, new(uint64))
	if text, _ := b.balancesAt(2, 2, first.GetPlaces()); text != "" {
		t.Error(text)
	}
}

// Pages at a cut have each account once and in order, also if many accounts were opened since.
func TestPagesAtACut(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	cut := b.cut(0, nil).GetPlaces()
	opening := b.orgs[1].Next()
	for i := range 30 {
		opening.Openings = append(opening.Openings, ledger.Opening{
			Account: b.orgs[1].Account(fmt.Sprintf("b%02d", i))})
	}
	b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, b.signed(opening)), 1)
	const want = "org0:a\norg0:mint\norg1:a\norg1:mint\norg2:a\norg2:mint\n"
	for size := range uint32(9) {
		for door := range b.clients {
			if text, _ := b.balancesAt(door, size, cut); text != want {
				t.Errorf("pages of %d at shard %d:\n%s", size, door, text)
			}
		}
	}
}

// There is no cut, and no list of all accounts at one, without a shard; the error names it.
// Requests that cannot be answered are refused.
func TestCutsNeedAllShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	places := b.cut(0, nil).GetPlaces()
	far := uint64(1 << 40)
	_, err := b.clients[0].GetCut(b.context(),
		connect.NewRequest(&ledgerdv1.GetCutRequest{Height: &far}))
	codeIs(t, err, connect.CodeOutOfRange)
	b.Silence(2, true)
	_, err = b.clients[1].GetCut(b.context(), connect.NewRequest(&ledgerdv1.GetCutRequest{}))
	_, listErr := b.clients[1].ListAccounts(b.context(),
		connect.NewRequest(&ledgerdv1.ListAccountsRequest{Cut: places}))
	for _, err := range []error{err, listErr} {
		codeIs(t, err, connect.CodeUnavailable)
		if coded := (*connect.Error)(nil); !asConnect(err, &coded) ||
			coded.Meta().Get(api.HeaderRetry) != "true" ||
			!strings.Contains(fmt.Sprint(err), "shard 2") {
			t.Errorf("%v, want it to name shard 2 and to say that it may be tried again", err)
		}
	}
	// A list of one organisation needs its home only.
	for door := range 2 {
		for prefix, want := range map[string]connect.Code{"org0:": 0, "org1:a": 0,
			"org2:": connect.CodeUnavailable, "org": connect.CodeUnavailable} {
			_, err := b.clients[door].ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Prefix: prefix, Cut: places}))
			if (err == nil) != (want == 0) || err != nil && connect.CodeOf(err) != want {
				t.Errorf("%q at shard %d: %v", prefix, door, err)
			}
		}
	}
	_, err = b.clients[0].GetPlace(b.context(), connect.NewRequest(&ledgerdv1.GetPlaceRequest{
		Streamed: make([]uint64, ledger.MaxShards+1)}))
	codeIs(t, err, connect.CodeInvalidArgument)
}

// A shard that stands still has no place in a cut with entries that it did not take: the error
// names it. A cut of before works meanwhile, and the new one does once the shard goes on.
func TestCutsWhileAShardStandsStill(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	before := b.cut(0, nil)
	b.Stand(2, true)
	payment := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
	b.submit(0, ledgerdv1.Level_LEVEL_ORDERED, b.signed(b.orgs[0].Transfer("org0:mint", "org0:a",
		1)))
	b.submit(0, ledgerdv1.Level_LEVEL_ADMITTED, payment)
	for {
		// Once the root has the payment, no cut of now is without it.
		_, err := b.clients[1].GetCut(b.context(), connect.NewRequest(&ledgerdv1.GetCutRequest{}))
		if err == nil {
			continue
		}
		codeIs(t, err, connect.CodeUnavailable)
		if !strings.Contains(err.Error(), "in shard 2") ||
			!strings.Contains(err.Error(), "not so far yet") {
			t.Error(err)
		}
		break
	}
	if text, sums := b.balancesAt(1, 100, before.GetPlaces()); !addsUp(sums) ||
		!strings.Contains(text, "org2:a\n") {
		t.Error(text)
	}
	b.Stand(2, false)
	b.everywhere(payment.ID(0), "0 passed", "1 settled", "2 settled")
	if text, sums := b.balancesAt(1, 100, b.cut(1, nil).GetPlaces()); !addsUp(sums) ||
		!strings.Contains(text, "org2:a 5\n") {
		t.Error(text)
	}
}

// earlier is a node of a version before cuts: it ignores what it does not know.
type earlier struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
}

func (earlier) ListAccounts(context.Context, *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	return connect.NewResponse(&ledgerdv1.ListAccountsResponse{}), nil
}

func (earlier) GetAccount(context.Context, *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{}), nil
}

// withEarlier is a book whose shard 2 has nodes of a version before cuts.
type withEarlier struct {
	route.Shards
	url string
}

func (w withEarlier) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	if shard != 2 {
		return w.Shards.Client(shard)
	}
	return ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, w.url)
}

// counting is a node that counts how often a call looks how far its chain is.
type counting struct {
	api.Backend
	looks atomic.Int32
}

func (c *counting) Heights() (report.Heights, <-chan struct{}) {
	c.looks.Add(1)
	return c.Backend.Heights()
}

// The node that is asked checks its place of a cut once, and then reads there.
func TestPlacesAreCheckedOnce(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	places := b.cut(0, nil).GetPlaces()
	node := &counting{Backend: b.Shard(1).Node(0)}
	server, err := route.New(node, b.Shards(1), api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	door := httptest.NewServer(server.Handler())
	defer door.Close()
	defer func() { _ = server.Shutdown(context.Background()) }()
	client := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, door.URL)
	own := uint32(1)
	for _, each := range []struct {
		name string
		read func() error
		want int32 // one look for the check, and one for each read
	}{
		{"an account of this shard", func() error {
			_, err := client.GetAccount(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "org1:a", Cut: places}))
			return err
		}, 2},
		{"an account of another shard", func() error {
			_, err := client.GetAccount(b.context(), connect.NewRequest(
				&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: places}))
			return err
		}, 1},
		{"accounts of this shard", func() error {
			_, err := client.ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Shard: &own, Cut: places}))
			return err
		}, 2},
		{"accounts of all shards", func() error {
			_, err := client.ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Cut: places}))
			return err
		}, 2},
		{"accounts with a prefix that is one", func() error {
			_, err := client.ListAccounts(b.context(), connect.NewRequest(
				&ledgerdv1.ListAccountsRequest{Prefix: "org1:a", Cut: places}))
			return err
		}, 3},
	} {
		before := node.looks.Load()
		if err := each.read(); err != nil {
			t.Errorf("%s: %v", each.name, err)
		}
		if looks := node.looks.Load() - before; looks != each.want {
			t.Errorf("%s: %d looks, want %d", each.name, looks, each.want)
		}
	}
}

// Nodes of a version before cuts would answer with the balances of now. They are not believed.
func TestCutsWithEarlierVersions(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	places := b.cut(0, nil).GetPlaces()
	_, handler := ledgerdv1connect.NewLedgerServiceHandler(earlier{})
	old := httptest.NewServer(handler)
	defer old.Close()
	server, err := route.New(b.Shard(0).Node(0), withEarlier{b.Shards(0), old.URL}, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mixed := httptest.NewServer(server.Handler())
	defer mixed.Close()
	defer func() { _ = server.Shutdown(context.Background()) }()
	client := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient, mixed.URL)
	_, cutErr := client.GetCut(b.context(), connect.NewRequest(&ledgerdv1.GetCutRequest{}))
	_, listErr := client.ListAccounts(b.context(),
		connect.NewRequest(&ledgerdv1.ListAccountsRequest{Cut: places}))
	_, oneErr := client.GetAccount(b.context(),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "org2:a", Cut: places}))
	for _, err := range []error{cutErr, listErr, oneErr} {
		codeIs(t, err, connect.CodeUnimplemented)
		if !strings.Contains(err.Error(), "shard 2") || !strings.Contains(err.Error(), "update") {
			t.Error(err)
		}
	}
}
