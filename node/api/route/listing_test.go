package route_test

import (
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestListOfTheBook: the list of a book has each transaction once, also one across shards and in
// pages of any size; the list of a shard has what the shard executed. Records come from all shards.
func TestListOfTheBook(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	across := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	across.Note = []byte("listed across")
	bundle := b.signed(across)
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, bundle)
	b.everywhere(bundle.ID(0), "0 passed", "1 settled", "2 settled")
	for i := range 3 {
		own := b.orgs[i].Transfer(ledger.AccountPath(fmt.Sprintf("org%d:mint", i)),
			ledger.AccountPath(fmt.Sprintf("org%d:a", i)), 1)
		own.Note = []byte("listed own")
		own.Records = []ledger.Record{{Key: ledger.RecordKey(fmt.Sprintf("org%d:r", i)),
			Value: []byte{byte(i)}}}
		one := b.signed(own)
		b.submit(i, ledgerdv1.Level_LEVEL_DURABLE, one)
	}
	list := func(request *ledgerdv1.ListTransactionsRequest) (shards []uint32) {
		t.Helper()
		last := uint64(0)
		for turns := 0; ; turns++ {
			answer, err := b.clients[1].ListTransactions(b.context(), connect.NewRequest(request))
			if err != nil || len(answer.Msg.GetUnansweredShards()) > 0 || turns > 100 {
				t.Fatal(err, answer)
			}
			for _, each := range answer.Msg.GetTransactions() {
				if each.GetTimeMs() < last {
					t.Error("not in order")
				}
				last = each.GetTimeMs()
				shards = append(shards, each.GetTransaction().GetStatus().GetShard())
			}
			if request.PageToken = answer.Msg.GetNextPageToken(); request.PageToken == "" {
				return shards
			}
		}
	}
	for size := range uint32(5) {
		got := list(&ledgerdv1.ListTransactionsRequest{Note: "listed", PageSize: size,
			Ascending: true})
		if slices.Sort(got); !slices.Equal(got, []uint32{0, 1, 1, 2}) {
			t.Errorf("pages of %d: from shards %v", size, got)
		}
	}
	got := list(&ledgerdv1.ListTransactionsRequest{Note: "listed", Shard: ref(2), Ascending: true})
	if !slices.Equal(got, []uint32{2, 2}) {
		t.Errorf("of shard 2: %v", got)
	}
	for _, c := range []struct {
		request *ledgerdv1.ListTransactionsRequest
		want    []uint32
	}{
		{&ledgerdv1.ListTransactionsRequest{Kind: "crossing"}, []uint32{1}},
		{&ledgerdv1.ListTransactionsRequest{WithShard: ref(2)}, []uint32{1, 2}},
		{&ledgerdv1.ListTransactionsRequest{WithShard: ref(0)}, []uint32{0}},
		{&ledgerdv1.ListTransactionsRequest{Kind: "crossing", WithShard: ref(0)}, nil},
		{&ledgerdv1.ListTransactionsRequest{Shard: ref(2), WithShard: ref(1)}, []uint32{2}},
		{&ledgerdv1.ListTransactionsRequest{Shard: ref(0), WithShard: ref(1)}, nil},
		{&ledgerdv1.ListTransactionsRequest{Shard: ref(1), WithShard: ref(9999)}, nil},
	} {
		c.request.Note, c.request.Ascending = "listed", true
		got := list(c.request)
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%v: from shards %v", c.request, got)
		}
	}
	verdicts := &ledgerdv1.ListTransactionsRequest{Shard: ref(1), Kind: "verdict"}
	all := len(list(verdicts))
	verdicts.PageToken, verdicts.WithShard = "", ref(2)
	of2 := len(list(verdicts))
	verdicts.PageToken, verdicts.WithShard = "", ref(0)
	if of0 := len(list(verdicts)); of2 == 0 || of0+of2 != all {
		t.Errorf("%d verdicts, %d of shard 0, %d of shard 2", all, of0, of2)
	}
	for _, size := range []uint32{1, 100} {
		var keys []string
		request := &ledgerdv1.ListRecordsRequest{Prefix: "org", PageSize: size}
		for {
			answer, err := b.clients[0].ListRecords(b.context(), connect.NewRequest(request))
			if err != nil {
				t.Fatal(err)
			}
			for _, each := range answer.Msg.GetRecords() {
				keys = append(keys, each.GetRecord().GetKey())
			}
			if request.PageToken = answer.Msg.GetNextPageToken(); request.PageToken == "" {
				break
			}
		}
		if !slices.Equal(keys, []string{"org0:r", "org1:r", "org2:r"}) {
			t.Errorf("records in pages of %d: %v", size, keys)
		}
	}
}
