package replica_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/tram"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// turns polls all processes of a deployment one after the other, in the caller's goroutine. It
// measures the protocol's work, all of it on one processor, without a scheduler.
type turns struct {
	*deployment
	gone      map[*process]bool
	delivered map[order.MessageID]int // by how many leaders
	oracle    []order.ServerID        // the leader of each group
	sequence  []uint64                // by client
	clients   []*process
}

func newTurns(tb testing.TB, tree *tram.Tree, size, clients int,
	options replica.Options) (*turns, func(int)) {
	hosts, kill := memoryHosts(tb, tree.Groups()*size+clients)
	d := newDeployment(tb, tree, size, clients, options, hosts, 0)
	t := &turns{deployment: d, gone: map[*process]bool{}, delivered: map[order.MessageID]int{},
		oracle: make([]order.ServerID, tree.Groups()), sequence: make([]uint64, clients)}
	for client := range clients {
		t.clients = append(t.clients, d.at(order.Replica{Group: order.Clients,
			Server: order.ServerID(client)}))
	}
	for group := range tree.Groups() {
		t.elect(order.GroupID(group), 0)
	}
	return t, kill
}

// elect tells a group its leader.
func (t *turns) elect(group order.GroupID, server order.ServerID) {
	t.oracle[group] = server
	for _, p := range t.members(group) {
		p.replica.Lead(server)
	}
}

// turn makes all processes work once.
func (t *turns) turn() {
	now := time.Since(t.start)
	for _, p := range t.processes {
		if t.gone[p] {
			continue
		}
		p.machine.Poll(now)
		for _, want := range p.machine.Wanted() {
			ctx, cancel := context.WithTimeout(context.Background(), 0) // it must not wait
			if !t.down(want) {
				cancel()
				ctx, cancel = context.WithTimeout(context.Background(), time.Second)
			}
			attachment, err := p.host.Attach(ctx, want.Peer, want.Region)
			cancel()
			p.machine.Attached(want.Number, attachment, err)
		}
		if p.replica != nil {
			for _, m := range p.replica.Delivered() {
				if t.oracle[p.name.Group] == p.name.Server {
					t.delivered[m.ID]++
				}
			}
		}
	}
}

func (t *turns) down(want protected.Want) bool {
	for p := range t.gone {
		if p.host.ID() == want.Peer {
			return true
		}
	}
	return false
}

// send makes a client multicast.
func (t *turns) send(tb testing.TB, client int, to []order.GroupID,
	payload []byte) order.MessageID {
	t.sequence[client]++
	id := order.MessageID{Sender: t.clients[client].name, Sequence: t.sequence[client]}
	if err := t.clients[client].client.Multicast(order.Multicast{ID: id,
		To: to, Payload: payload}); err != nil {
		tb.Fatal(err)
	}
	return id
}

// until takes turns until the leaders of the given number of groups have delivered a message.
func (t *turns) until(tb testing.TB, id order.MessageID, groups int) {
	for began := time.Now(); t.delivered[id] < groups; t.turn() {
		if time.Since(began) > 10*time.Second {
			tb.Fatalf("%v is delivered by %d leaders of %d\n%s", id, t.delivered[id], groups,
				t.describe())
		}
	}
	delete(t.delivered, id)
}

// all lists groups 0 to count-1.
func all(count int) []order.GroupID {
	to := make([]order.GroupID, count)
	for i := range to {
		to[i] = order.GroupID(i)
	}
	return to
}

// BenchmarkLatency measures the time from a client's multicast until the leader of each destination
// delivers: [TRAM, figure 5] with groups of 3, on memory.
func BenchmarkLatency(b *testing.B) {
	for _, tree := range []struct {
		name string
		make func(int) *tram.Tree
	}{{"breadth", tram.Breadth}, {"chain", tram.Chain}} {
		for groups := 1; groups <= 4; groups++ {
			for _, size := range []int{64, 16 << 10} {
				if size > 64 && groups%3 != 1 {
					continue
				}
				b.Run(fmt.Sprintf("%s/groups-%d/%d", tree.name, groups, size), func(b *testing.B) {
					t, _ := newTurns(b, tree.make(groups), 3, 1, replica.Options{PayloadMax: size})
					payload := make([]byte, size)
					to := all(groups)
					for range 2000 { // the log wraps around
						t.until(b, t.send(b, 0, to, payload), groups)
					}
					b.ReportAllocs()
					for b.Loop() {
						t.until(b, t.send(b, 0, to, payload), groups)
					}
				})
			}
		}
	}
}

// BenchmarkThroughput makes a client keep some messages under way.
func BenchmarkThroughput(b *testing.B) {
	for _, groups := range []int{1, 4} {
		b.Run(fmt.Sprintf("groups-%d", groups), func(b *testing.B) {
			t, _ := newTurns(b, tram.Breadth(groups), 3, 1, replica.Options{})
			payload := make([]byte, 64)
			to := all(groups)
			var under []order.MessageID
			b.ReportAllocs()
			for b.Loop() {
				under = append(under, t.send(b, 0, to, payload))
				if len(under) >= 64 {
					t.until(b, under[0], groups)
					under = slices.Delete(under, 0, 1)
				}
			}
		})
	}
}

// BenchmarkFailover is [TRAM, table 1]: the delay of messages during a change of leader. In crash,
// the leader of a group ends together with its host, and the others are told at once. In change,
// all groups are told at once to change their leaders. Each client has a message to all groups
// under way.
func BenchmarkFailover(b *testing.B) {
	const clients = 20
	late := func(b *testing.B, t *turns, groups int, change func()) (latencies []time.Duration) {
		ids := make([]order.MessageID, clients)
		for client := range ids {
			ids[client] = t.send(b, client, all(groups), make([]byte, 64))
		}
		runtime.GC() // do not measure the cost of building deployments
		began := time.Now()
		change()
		for _, id := range ids {
			t.until(b, id, groups)
			latencies = append(latencies, time.Since(began))
		}
		return latencies
	}
	// warm makes all buffers wrap around, so that no memory is touched for the first time later.
	options := replica.Options{BufferSlots: 32}
	warm := func(b *testing.B, t *turns, groups int) {
		for range 60 {
			for client := range clients {
				t.until(b, t.send(b, client, all(groups), make([]byte, 64)), groups)
			}
		}
	}
	report := func(b *testing.B, latencies []time.Duration) {
		sum := time.Duration(0)
		for _, l := range latencies {
			sum += l
		}
		b.ReportMetric(float64(sum.Nanoseconds())/float64(len(latencies))/1e3, "us/message")
		slices.Sort(latencies)
		b.ReportMetric(float64(latencies[len(latencies)/2].Nanoseconds())/1e3, "us-median")
		b.ReportMetric(float64(latencies[len(latencies)-1].Nanoseconds())/1e3, "us-worst")
		b.ReportMetric(0, "ns/op")
	}
	for _, groups := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("crash/groups-%d", groups), func(b *testing.B) {
			var latencies []time.Duration
			for range b.N {
				t, kill := newTurns(b, tram.Breadth(groups), 3, clients, options)
				warm(b, t, groups)
				latencies = append(latencies, late(b, t, groups, func() {
					kill(0)
					t.gone[t.processes[0]] = true
					for _, p := range t.members(0)[1:] {
						p.replica.Exclude(0)
					}
					t.elect(0, 1)
				})...)
				t.stop()
				for _, p := range t.processes {
					closeHost(b, p.host)
				}
			}
			report(b, latencies)
		})
		b.Run(fmt.Sprintf("change/groups-%d", groups), func(b *testing.B) {
			t, _ := newTurns(b, tram.Breadth(groups), 3, clients, options)
			warm(b, t, groups)
			var latencies []time.Duration
			for range b.N {
				latencies = append(latencies, late(b, t, groups, func() {
					for group := range groups {
						t.elect(order.GroupID(group), (t.oracle[group]+1)%3)
					}
				})...)
			}
			report(b, latencies)
		})
	}
}
