// Command broadcast shows atomic broadcast. Three servers A-broadcast different messages at the
// same time, and each A-delivers all of them in the same order. One loop carries their frames.
//
//	go run ./examples/broadcast
package main

import (
	"fmt"
	"log"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// frame is a frame on its way from one server to another.
type frame struct {
	from, to order.ServerID
	bytes    []byte
}

func main() {
	pools := [][]string{{"apples", "bread"}, {"cherries"}, {}} // what each server has to say
	overlay, err := digraph.Complete(len(pools))
	check(err)
	engines := make([]*allconcur.Engine, len(pools))
	for i := range engines {
		engines[i], err = allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus,
			Self: order.ServerID(i), Servers: len(engines), Reliable: overlay})
		check(err)
	}
	var network []frame // one queue for all: frames between two servers stay in order
	// turn does what a server does after each input.
	turn := func(i order.ServerID) {
		engine := engines[i]
		// It may A-broadcast once a round. With nothing to say it does so if others wait for it.
		for engine.CanBroadcast() && (len(pools[i]) > 0 || engine.Solicited() ||
			engine.Undelivered()) {
			var payload []byte
			if len(pools[i]) > 0 {
				payload, pools[i] = []byte(pools[i][0]), pools[i][1:]
			}
			check(engine.Broadcast(payload))
		}
		ready := engine.Ready()
		for _, send := range ready.Sends {
			for _, to := range send.To {
				network = append(network, frame{from: i, to: to, bytes: send.Frame})
			}
		}
		for _, delivery := range ready.Deliveries {
			for _, message := range delivery.Messages {
				if len(message.Payload) > 0 {
					fmt.Printf("server %d, round %d: %q from server %d\n", i, delivery.Round,
						message.Payload, message.Origin)
				}
			}
		}
	}
	for i := range engines {
		turn(order.ServerID(i))
	}
	for len(network) > 0 {
		next := network[0]
		network = network[1:]
		check(engines[next.to].Receive(next.from, next.bytes))
		turn(next.to)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
