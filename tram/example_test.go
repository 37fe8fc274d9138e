package tram_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// Group 0 has the children 1 and 2, and group 1 the children 3 and 4.
func ExampleTree() {
	tree := tram.Binary(5)
	to := []order.GroupID{3, 4}
	fmt.Println("a message to", to, "enters at group", tree.LCA(to))
	fmt.Println("group 1 reaches", tree.Reach(1))
	to = []order.GroupID{2, 3}
	fmt.Println("a message to", to, "enters at group", tree.LCA(to), "and passes", tree.Span(to))
	// Output:
	// a message to [3 4] enters at group 1
	// group 1 reaches [1 3 4]
	// a message to [2 3] enters at group 0 and passes [0 1 2 3]
}

// A relay reads the log of group 1, whose parent is group 0. Entries with a number come from the
// parent, the others from clients.
func ExampleRelay() {
	relay := tram.NewRelay(tram.Binary(5), 1)
	log := []tram.Item{
		{Message: order.Multicast{To: []order.GroupID{1, 3}, Payload: []byte("a")}},
		{Number: 1, Message: order.Multicast{To: []order.GroupID{2, 3, 4}, Payload: []byte("b")}},
		{Number: 1, Message: order.Multicast{To: []order.GroupID{2, 3, 4}, Payload: []byte("b")}},
		{Number: 2, Message: order.Multicast{To: []order.GroupID{0, 1}, Payload: []byte("c")}},
	}
	for _, item := range log {
		outcome := relay.Order(item)
		fmt.Printf("%s: %s", item.Message.Payload, outcome.Skipped)
		if outcome.Delivered {
			fmt.Print(", A-delivered")
		}
		for _, forward := range outcome.Forwards {
			fmt.Printf(", entry %d to group %d", forward.Number, forward.Child)
		}
		fmt.Println()
	}
	// Output:
	// a: taken, A-delivered, entry 1 to group 3
	// b: taken, entry 2 to group 3, entry 1 to group 4
	// b: duplicate
	// c: taken, A-delivered
}
