package allconcur

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// BenchmarkPromptRound is a round of a group of engines in one goroutine, with messages of 64 B,
// from a server's A-broadcast to the A-delivery of all. One server has something to say, or all.
func BenchmarkPromptRound(b *testing.B) {
	for _, n := range []int{3, 8} {
		for _, prompt := range []bool{false, true} {
			for _, speakers := range []int{1, n} {
				b.Run(fmt.Sprintf("%d servers, prompt %t, %d speak", n, prompt,
					speakers), func(b *testing.B) {
					b.ReportAllocs()
					benchmarkRound(b, n, prompt, speakers)
				})
			}
		}
	}
}

func benchmarkRound(b *testing.B, n int, prompt bool, speakers int) {
	g := overlays(b, n)[0]
	engines := make([]*Engine, n)
	for p := range engines {
		var err error
		engines[p], err = New(Config{Engine: EngineAllConcurPlus, Servers: n, Reliable: g,
			Self: order.ServerID(p), Prompt: prompt})
		if err != nil {
			b.Fatal(err)
		}
	}
	type letter struct {
		from, to order.ServerID
		frame    []byte
	}
	var letters []letter
	delivered := 0
	turn := func(p int, payload []byte) {
		e := engines[p]
		for e.CanBroadcast() && (payload != nil || e.Solicited() || e.Undelivered()) {
			if err := e.Broadcast(payload); err != nil {
				b.Fatal(err)
			}
			payload = nil
		}
		ready := e.Ready()
		for _, send := range ready.Sends {
			for _, to := range send.To {
				letters = append(letters, letter{order.ServerID(p), to, send.Frame})
			}
		}
		for _, d := range ready.Deliveries {
			for _, m := range d.Messages {
				delivered += min(1, len(m.Payload))
			}
		}
	}
	payload := make([]byte, 64)
	for b.Loop() {
		delivered = 0
		for p := range speakers {
			turn(p, payload)
		}
		for i := 0; i < len(letters); i++ {
			l := letters[i]
			if err := engines[l.to].Receive(l.from, l.frame); err != nil {
				b.Fatal(err)
			}
			turn(int(l.to), nil)
		}
		letters = letters[:0]
		if delivered != n*speakers {
			b.Fatalf("%d deliveries, want %d", delivered, n*speakers)
		}
	}
}
