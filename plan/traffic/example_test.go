package traffic_test

import (
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan/traffic"
	"github.com/ledgerd/ledgerd/tram"
)

// Two banks with a customer each, in the wrong shards.
func ExampleAdvise() {
	const deals = "bank,customer,90\nrival,client,80\nbank,rival,5\n"
	read, err := traffic.Read(strings.NewReader(deals))
	if err != nil {
		fmt.Println(err)
		return
	}
	// The names are bank, client, customer and rival.
	book := traffic.Book{Tree: tram.Breadth(2), Traffic: read,
		Homes: []order.GroupID{0, 0, 1, 1}, Costs: traffic.MeasuredCosts}
	advice, err := traffic.Advise(book, traffic.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, move := range advice.Moves {
		fmt.Printf("%s from shard %d to shard %d\n", read.Names[move.Party], move.From, move.To)
	}
	fmt.Printf("%d of %d cross, then %d\n", advice.Before.Crossings, advice.Before.Transactions,
		advice.After.Crossings)
	// Output:
	// customer from shard 1 to shard 0
	// client from shard 0 to shard 1
	// 175 of 175 cross, then 5
}
