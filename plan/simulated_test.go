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

// measured is the result of a simulated run: the duration of a round, the times from a message's
// A-broadcast to its A-delivery (mean at its own server, mean at the last server, and the longest),
// and the bytes on all links in a round.
type measured struct {
	round, latency, all, worst time.Duration
	wire                       float64
}

// simulate runs servers that all A-broadcast a payload in every round, and measures the rounds
// after the first ones, up to the last one.
func simulate(t *testing.T, s site, payload, first, last int,
	engine func(self order.ServerID) (order.Broadcaster, error)) measured {
	t.Helper()
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
	began, delivered := make([][]time.Duration, servers), make([][]time.Duration, servers)
	wire := [2]int64{}
	step := func(s int) {
		for {
			if engines[s].CanBroadcast() && len(delivered[s]) <= last+3 {
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
				delivered[s] = append(delivered[s], net.Now())
				switch round := len(delivered[s]); {
				case round == first && s == 0:
					wire[0] = net.Statistics().Wire
				case round == last && s == 0:
					wire[1] = net.Statistics().Wire
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
	rounds := last - first
	result := measured{wire: float64(wire[1]-wire[0]) / float64(rounds)}
	for s := range engines {
		if len(delivered[s]) < last {
			t.Fatalf("server %d delivered %d rounds", s, len(delivered[s]))
		}
	}
	result.round = (delivered[0][last-1] - delivered[0][first-1]) / time.Duration(rounds)
	for round := first; round < last; round++ {
		end := time.Duration(0)
		for s := range engines {
			end = max(end, delivered[s][round])
		}
		for s := range engines {
			result.latency += delivered[s][round] - began[s][round]
			result.all += end - began[s][round]
			result.worst = max(result.worst, end-began[s][round])
		}
	}
	result.latency /= time.Duration(rounds * servers)
	result.all /= time.Duration(rounds * servers)
	return result
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
	s, err := deployment.site(servers)
	if err != nil {
		t.Fatal(err)
	}
	s.model.Window = deployment.Window
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
		{"eventual", p.Eventual, func(self order.ServerID) (order.Broadcaster, error) {
			return allconcur.New(allconcur.Config{
				Engine: allconcur.EngineAllConcur, Servers: servers, Self: self,
				Reliable: p.Overlay,
			})
		}},
	} {
		simulated := simulate(t, s, batch*TransactionDefault, 5, 12, test.engine)
		ratio := test.model.Duration.Seconds() / simulated.round.Seconds()
		t.Logf("%s: a round lasts %v by the model (%s), %v in the simulator, ratio %.2f", test.name,
			test.model.Duration, test.model.Bound, simulated.round, ratio)
		if ratio < 0.75 || ratio > 1.3 {
			t.Errorf("%s: a round lasts %v by the model, %v in the simulator", test.name,
				test.model.Duration, simulated.round)
		}
	}
}
