package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/comparator"
	"github.com/ledgerd/ledgerd/sim/network"
)

// measured is the result of a simulated run, per round: the duration, and the mean latency of a
// message.
type measured struct{ round, latency time.Duration }

// simulate runs servers that all A-broadcast a payload in every round, and measures the rounds
// after the first few.
func simulate(t *testing.T, s site, payload int,
	engine func(self order.ServerID) (order.Broadcaster, error)) measured {
	t.Helper()
	const first, last = 5, 12
	servers, place := s.servers, s.place
	net, err := network.New(s.model)
	if err != nil {
		t.Fatal(err)
	}
	engines := make([]order.Broadcaster, servers)
	ours := map[order.ServerID]int{}
	for s := range engines {
		if engines[s], err = engine(order.ServerID(s)); err != nil {
			t.Fatal(err)
		}
		ours[order.ServerID(place(s))] = s
	}
	message := make([]byte, payload)
	began := make([][]time.Duration, servers)
	var from, to, waited time.Duration
	delivered, counted := make([]int, servers), 0
	step := func(s int) {
		for {
			if engines[s].CanBroadcast() && delivered[s] <= last+3 {
				began[s] = append(began[s], net.Now())
				if err := engines[s].Broadcast(message); err != nil {
					t.Fatal(err)
				}
			}
			ready := engines[s].Ready()
			if len(ready.Sends) == 0 && len(ready.Deliveries) == 0 {
				return
			}
			for _, send := range ready.Sends {
				places := make([]order.ServerID, len(send.To))
				for i, to := range send.To {
					places[i] = order.ServerID(place(int(to)))
				}
				net.Send(order.ServerID(place(s)), places, send.Frame)
			}
			for range ready.Deliveries {
				delivered[s]++
				switch round := delivered[s]; {
				case round == first && s == 0:
					from = net.Now()
				case round > first && round <= last:
					waited += net.Now() - began[s][round-1]
					counted++
					if s == 0 {
						to = net.Now()
					}
				}
			}
		}
	}
	for s := range engines {
		step(s)
	}
	for {
		event, more := net.Next()
		if !more {
			break
		}
		s := ours[event.Server]
		if err := engines[s].Receive(order.ServerID(ours[event.From]), event.Frame); err != nil {
			t.Fatal(err)
		}
		step(s)
	}
	if delivered[0] < last {
		t.Fatalf("server 0 delivered %d rounds", delivered[0])
	}
	return measured{round: (to - from) / (last - first), latency: waited / time.Duration(counted)}
}

// TestAgainstSimulator compares the models with the simulator, for AllGather and the production
// engine on the same networks.
func TestAgainstSimulator(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for _, deployment := range deployments {
		for _, servers := range []int{8, 32, 72} {
			if servers > 32 && raceEnabled {
				continue
			}
			for _, batch := range []int{1, 64} {
				t.Run(fmt.Sprintf("%s, %d servers, batches of %d", deployment.Name, servers,
					batch), func(t *testing.T) {
					t.Parallel()
					compare(t, deployment, servers, batch)
				})
			}
		}
	}
}

// compare simulates both modes. The models leave out queues at switches, and count all messages of
// every server, even those that the engine omits.
func compare(t *testing.T, deployment Deployment, servers, batch int) {
	p, err := Make(Question{Servers: servers, Deployment: deployment, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	s, err := deployment.build(servers)
	if err != nil {
		t.Fatal(err)
	}
	s.model.Overhead, s.model.Window = deployment.Overhead, deployment.Window
	for _, test := range []struct {
		name   string
		model  Mode
		engine func(self order.ServerID) (order.Broadcaster, error)
	}{
		{"unreliable", p.Unreliable, func(self order.ServerID) (order.Broadcaster, error) {
			return comparator.NewAllGather(comparator.Config{Self: self, Servers: servers})
		}},
		{"reliable", p.Reliable, func(self order.ServerID) (order.Broadcaster, error) {
			return allconcur.New(allconcur.Config{
				Engine: allconcur.EngineAllConcur, Servers: servers, Self: self,
				Reliable: p.Overlay, Detector: allconcur.DetectorPerfect,
			})
		}},
	} {
		simulated := simulate(t, s, batch*TransactionDefault, test.engine)
		ratio := test.model.Duration.Seconds() / simulated.round.Seconds()
		t.Logf("%s: a round lasts %v by the model (%s), %v in the simulator, ratio %.2f", test.name,
			test.model.Duration, test.model.Bound, simulated.round, ratio)
		if ratio < 0.75 || ratio > 1.3 {
			t.Errorf("%s: a round lasts %v by the model, %v in the simulator", test.name,
				test.model.Duration, simulated.round)
		}
	}
}
