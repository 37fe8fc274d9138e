package order_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// A round history judges an atomic broadcast while it runs. Here server 1 A-delivers another round
// than server 0.
func ExampleRoundHistory() {
	history := order.NewRoundHistory(2)
	history.Broadcast(0, []byte("apples"))
	history.Broadcast(1, []byte("bread"))
	messages := []order.Message{{Origin: 0, Payload: []byte("apples")},
		{Origin: 1, Payload: []byte("bread")}}
	round := order.Delivery{Epoch: 1, Round: 1, Messages: messages}
	if broken := history.Deliver(0, round); broken != nil {
		fmt.Println(broken)
	}
	round.Messages, round.Removed = messages[1:], []order.ServerID{0}
	if broken := history.Deliver(1, round); broken != nil {
		fmt.Println(broken)
	}
	// Output:
	// set agreement is broken:
	//   server 0 A-delivers [epoch 1, round 1] with messages of 0 1
	//   server 1 A-delivers [epoch 1, round 1] with messages of 1, removing 0
}

// A history judges an atomic multicast. Two groups of one server each A-deliver two messages in
// opposite orders.
func ExampleHistory() {
	history := order.NewHistory(1, 1)
	first := order.Replica{Group: 0, Server: 0}
	second := order.Replica{Group: 1, Server: 0}
	a := order.MessageID{Sender: first, Sequence: 1}
	b := order.MessageID{Sender: second, Sequence: 1}
	history.Submit(a, 0, 1)
	history.Submit(b, 0, 1)
	history.Deliver(first, a)
	history.Deliver(first, b)
	history.Deliver(second, b)
	history.Deliver(second, a)
	for _, broken := range history.Judge(order.AtRest) {
		fmt.Println(broken)
	}
	// Output:
	// total order is broken:
	//   replica 0/0 A-delivers m0/0.1 (its delivery number 1), then m1/0.1 (its delivery number 2)
	//   replica 1/0 A-delivers m1/0.1 (its delivery number 1), then m0/0.1 (its delivery number 2)
	// prefix order is broken:
	//   replica 0/0 A-delivers m0/0.1 (its delivery number 1) and not m1/0.1 before it
	//   replica 1/0 A-delivers m1/0.1 (its delivery number 1) and not m0/0.1 before it
	// acyclic order is broken:
	//   replica 0/0 A-delivers m0/0.1 (its delivery number 1), then m1/0.1 (its delivery number 2)
	//   replica 1/0 A-delivers m1/0.1 (its delivery number 1), then m0/0.1 (its delivery number 2)
}
