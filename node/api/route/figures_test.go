package route_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Figures of all shards, asked at any node, count each transaction of the book once, apart from the
// entries between shards. Two shards count the same crossings between them, in all and by hour.
func TestFiguresOfShards(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	figures := func(shard uint32) *ledgerdv1.Figures {
		answer, err := b.clients[1].GetFigures(b.context(), connect.NewRequest(
			&ledgerdv1.GetFiguresRequest{Shard: ref(shard), Hours: 744, Crossings: true}))
		if err != nil {
			t.Fatal(err)
		}
		if answer.Msg.GetCountedHeight() != answer.Msg.GetHeadHeight() {
			t.Fatalf("not all is counted: %v", answer.Msg)
		}
		hours := map[uint32]uint64{}
		for _, hour := range answer.Msg.GetHours() {
			for _, each := range hour.GetCrossings() {
				hours[each.GetShard()] += each.GetTransactions()
			}
		}
		for _, each := range answer.Msg.GetTotal().GetCrossings() {
			if hours[each.GetShard()] != each.GetTransactions() {
				t.Errorf("shard %d: %v in all, by hour %v", shard, each, hours)
			}
		}
		return answer.Msg.GetTotal()
	}
	var before [3]*ledgerdv1.Figures
	for shard := range before {
		before[shard] = figures(uint32(shard))
	}
	good := b.signed(b.orgs[1].Transfer("org1:mint", "org2:a", 5))
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, good)
	b.everywhere(good.ID(0), "0 passed", "1 settled", "2 settled")
	bad := b.signed(b.orgs[1].Transfer("org1:mint", "org2:nobody", 5))
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, bad)
	b.everywhere(bad.ID(0), "0 passed", "1 refused", "2 refused")
	local := b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))
	b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, local)
	b.everywhere(local.ID(0), "2 settled")
	// Two payments pass shard 0. Each of shards 1 and 2 has a verdict of the other one on the good
	// payment; on the bad one, shard 1 has that of shard 2, which waits for none.
	want := [3]ledgerdv1.Figures{{Between: 2}, {Transactions: 2, First: 2, Failed: 1, Between: 2},
		{Transactions: 3, First: 1, Failed: 1, Between: 1}}
	for shard := range want {
		got, had := figures(uint32(shard)), before[shard]
		if got.GetTransactions()-had.GetTransactions() != want[shard].Transactions ||
			got.GetFirst()-had.GetFirst() != want[shard].First ||
			got.GetFailed()-had.GetFailed() != want[shard].Failed ||
			got.GetBetween()-had.GetBetween() != want[shard].Between {
			t.Errorf("shard %d: %v, before %v, more by %v wanted", shard, got, had, &want[shard])
		}
		for other := range uint32(3) {
			wanted := [3]uint64{}
			if shard+int(other) == 3 {
				wanted = [3]uint64{2, 2, 1}
			}
			now, before := crossingsWith(got, other), crossingsWith(had, other)
			if now[0]-before[0] != wanted[0] || now[1]-before[1] != wanted[shard] {
				t.Errorf("shard %d with %d: %v, before %v, more by %v wanted", shard, other, now,
					before, wanted)
			}
		}
	}
}

// crossingsWith returns the transactions that concern another shard too, and its verdicts.
func crossingsWith(figures *ledgerdv1.Figures, other uint32) [2]uint64 {
	for _, each := range figures.GetCrossings() {
		if each.GetShard() == other {
			return [2]uint64{each.GetTransactions(), each.GetVerdicts()}
		}
	}
	return [2]uint64{}
}
