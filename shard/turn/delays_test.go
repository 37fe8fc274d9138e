package turn_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// A batch that comes alone to three servers is A-delivered after four message delays: its round
// takes two, because the others answer it, and each of the next two rounds takes one, because all
// begin it at once. If the others wait for the next message of the batch's origin, each of these
// takes two as well. With five servers, some messages travel over a third.
func TestDelaysOfALoneBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers  int
		noLinger bool
		delays   int
	}{{3, true, 4}, {3, false, 6}, {5, true, 8}, {5, false, 10}} {
		t.Run(fmt.Sprintf("%d servers, no linger %v", c.servers, c.noLinger), func(t *testing.T) {
			t.Parallel()
			w := newLockstep(t, c.servers, c.noLinger, false)
			w.batch = []byte("alone")
			w.turn(0)
			delays, sent := 0, 0
			for ; len(w.sent) > 0; delays++ {
				sent += len(w.sent)
				w.delay()
			}
			if delays != c.delays || w.delivered != c.servers {
				t.Errorf("%d servers A-delivered after %d delays, want all after %d", w.delivered,
					delays, c.delays)
			}
			// Either way three rounds take place, in which each server gets each message once.
			if want := 3 * c.servers * (c.servers - 1); sent != want {
				t.Errorf("%d frames, want %d", sent, want)
			}
		})
	}
}

// With prompt delivery, a lone batch takes the delays of its round, and nothing else is sent. If
// every server has a batch, none vouches for all, and the next round tells that all are there.
func TestDelaysWithPromptDelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ servers, loneDelays, allDelays int }{
		{2, 2, 2}, {3, 2, 2}, {4, 4, 4}, {5, 4, 4}, {8, 6, 6},
	} {
		t.Run(fmt.Sprintf("%d servers", c.servers), func(t *testing.T) {
			t.Parallel()
			for _, all := range []bool{false, true} {
				w := newLockstep(t, c.servers, true, true)
				batches, delays, rounds := 1, c.loneDelays, 1
				if all {
					batches, delays, rounds = c.servers, c.allDelays, 2
				}
				for id := range batches {
					w.batch = []byte("alone")
					w.turn(order.ServerID(id))
				}
				took, sent := 0, 0
				for ; len(w.sent) > 0; took++ {
					sent += len(w.sent)
					w.delay()
				}
				if took != delays || w.delivered != batches*c.servers {
					t.Errorf("%d batches: %d A-delivered after %d delays, want %d after %d",
						batches, w.delivered, took, batches*c.servers, delays)
				}
				if want := rounds * c.servers * (c.servers - 1); sent != want {
					t.Errorf("%d batches: %d frames, want %d", batches, sent, want)
				}
			}
		})
	}
}

// lockstep is a group whose frames all take one delay. Timers take longer than everything else.
type lockstep struct {
	machines []*turn.Machine
	batch    []byte
	// sent are the frames under way. delivered is how many servers A-delivered a batch.
	sent      []letter
	delivered int
}

type letter struct {
	to order.ServerID
	turn.Arrival
}

func newLockstep(t *testing.T, servers int, noLinger, prompt bool) *lockstep {
	reliable, err := digraph.Complete(servers)
	if err != nil {
		t.Fatal(err)
	}
	w := &lockstep{}
	for id := range servers {
		engine, err := allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus,
			Servers: servers, Self: order.ServerID(id), Reliable: reliable, Generation: 1,
			Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		w.machines = append(w.machines, turn.New(turn.Config{Engine: engine,
			Self: order.ServerID(id), Servers: servers, NoLinger: noLinger}))
	}
	return w
}

// turn makes a server take turns until it has nothing more to do.
func (w *lockstep) turn(id order.ServerID, frames ...turn.Arrival) {
	m := w.machines[id]
	for again := true; again; again = m.Again() {
		m.Step(frames, nil)
		frames = nil
		if m.MayBroadcast() && m.Broadcast(w.batch) {
			w.batch = nil
		}
		for do := m.Next(); do.Kind != turn.Done; do = m.Next() {
			switch do.Kind {
			case turn.Send:
				for _, send := range do.Sends {
					for _, to := range send.To {
						w.sent = append(w.sent, letter{to, turn.Arrival{From: id,
							Frame: send.Frame}})
					}
				}
			case turn.Deliver:
				for _, d := range do.Deliveries {
					for _, message := range d.Messages {
						w.delivered += min(1, len(message.Payload))
					}
				}
			}
		}
	}
}

// delay delivers all frames that are under way.
func (w *lockstep) delay() {
	arrivals := make([][]turn.Arrival, len(w.machines))
	for _, l := range w.sent {
		arrivals[l.to] = append(arrivals[l.to], l.Arrival)
	}
	w.sent = nil
	for id, frames := range arrivals {
		if len(frames) > 0 {
			w.turn(order.ServerID(id), frames...)
		}
	}
}
