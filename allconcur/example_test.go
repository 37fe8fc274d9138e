package allconcur_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// Three servers A-broadcast once each. The loop hands every frame to its receiver.
func ExampleEngine() {
	overlay, err := digraph.Complete(3)
	if err != nil {
		fmt.Println(err)
		return
	}
	type frame struct {
		from, to order.ServerID
		bytes    []byte
	}
	var engines []*allconcur.Engine
	var network []frame
	// act does what a driver does after each input.
	act := func(self order.ServerID) {
		ready := engines[self].Ready()
		for _, send := range ready.Sends {
			for _, to := range send.To {
				network = append(network, frame{self, to, send.Frame})
			}
		}
		for _, delivery := range ready.Deliveries {
			fmt.Printf("server %d A-delivers round %d:", self, delivery.Round)
			for _, message := range delivery.Messages {
				fmt.Printf(" %s", message.Payload)
			}
			fmt.Println()
		}
	}
	for self := range order.ServerID(3) {
		engine, err := allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcur,
			Self: self, Servers: 3, Reliable: overlay})
		if err != nil {
			fmt.Println(err)
			return
		}
		engines = append(engines, engine)
		if err := engine.Broadcast(fmt.Appendf(nil, "m%d", self)); err != nil {
			fmt.Println(err)
			return
		}
		act(self)
	}
	for ; len(network) > 0; network = network[1:] {
		next := network[0]
		if err := engines[next.to].Receive(next.from, next.bytes); err != nil {
			fmt.Println(err)
			return
		}
		act(next.to)
	}
	// Output:
	// server 1 A-delivers round 1: m0 m1 m2
	// server 0 A-delivers round 1: m0 m1 m2
	// server 2 A-delivers round 1: m0 m1 m2
}

// A server that its failure detector suspects is removed, and the others go on.
func ExampleEngine_Suspect() {
	overlay, err := digraph.Complete(3)
	if err != nil {
		fmt.Println(err)
		return
	}
	var engines [2]*allconcur.Engine // server 2 has crashed
	for self := range engines {
		engines[self], err = allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus,
			Self: order.ServerID(self), Servers: 3, Reliable: overlay})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := engines[self].Suspect(2); err != nil {
			fmt.Println(err)
			return
		}
	}
	for moved := true; moved; {
		moved = false
		for self, engine := range engines {
			if engine.Solicited() { // a message is due, even if it is empty
				if err := engine.Broadcast(nil); err != nil {
					fmt.Println(err)
					return
				}
			}
			for _, send := range engine.Ready().Sends {
				for _, to := range send.To {
					if int(to) >= len(engines) {
						continue
					}
					moved = true
					err := engines[to].Receive(order.ServerID(self), send.Frame)
					if err != nil {
						fmt.Println(err)
						return
					}
				}
			}
		}
	}
	for self, engine := range engines {
		fmt.Printf("server %d: members %v\n", self, engine.Status().Members)
	}
	// Output:
	// server 0: members [0 1]
	// server 1: members [0 1]
}
