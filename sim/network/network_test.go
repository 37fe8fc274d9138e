package network

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
)

// start returns a network for a valid model.
func start(t testing.TB, model Model) *Network {
	t.Helper()
	n, err := New(model)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// all takes events until none is left.
func all(n *Network) []Event {
	var events []Event
	for {
		event, more := n.Next()
		if !more {
			return events
		}
		events = append(events, event)
	}
}

func to(servers ...order.ServerID) []order.ServerID { return servers }

// TestLogPMatchesItsClosedForms: one short message takes L + 2o. The k-th of several to different
// receivers leaves k·o after the beginning, and the k-th of several that arrive at once is received
// k·o after the first [Poke19, section 5.6.2].
func TestLogPMatchesItsClosedForms(t *testing.T) {
	t.Parallel()
	for _, logp := range []LogP{InfiniBand, TCP} {
		logp.Rate = 0 // short messages
		n := start(t, logp.Model(5))
		n.Send(0, to(1), make([]byte, 64))
		if got := all(n); len(got) != 1 || got[0].At != logp.Transmission() {
			t.Errorf("%s: one message: %v, want it after %v", logp.Name, got, logp.Transmission())
		}
		n = start(t, logp.Model(5))
		n.Send(0, to(1, 2, 3, 4), make([]byte, 64))
		for k, event := range all(n) {
			if want := logp.Transmission() + time.Duration(k)*logp.Overhead; event.At != want ||
				int(event.Server) != k+1 {
				t.Errorf("%s: message %d of several: %v at %d, want %v", logp.Name, k, event.At,
					event.Server, want)
			}
		}
		n = start(t, logp.Model(5))
		for from := range order.ServerID(4) {
			n.Send(from, to(4), make([]byte, 64))
		}
		for k, event := range all(n) {
			if want := logp.Transmission() + time.Duration(k)*logp.Overhead; event.At != want {
				t.Errorf("%s: arrival %d of several at once: %v, want %v", logp.Name, k, event.At,
					want)
			}
		}
	}
}

// TestLogPWithARate: a long message also takes the time of its bytes on the link, and the second
// waits for the first.
func TestLogPWithARate(t *testing.T) {
	t.Parallel()
	logp := LogP{Latency: 10 * time.Microsecond, Overhead: time.Microsecond, Rate: Gigabit}
	n := start(t, logp.Model(2))
	frame := make([]byte, 12_500) // 100 us
	n.Send(0, to(1), frame)
	n.Send(0, to(1), frame)
	got := all(n)
	if want := 112 * time.Microsecond; got[0].At != want {
		t.Errorf("the first arrives at %v, want %v", got[0].At, want)
	}
	if want := 212 * time.Microsecond; got[1].At != want {
		t.Errorf("the second arrives at %v, want %v", got[1].At, want)
	}
}

// TestLogPModels checks the models' bounds for a group, by hand: GS(8,3) has diameter 2.
func TestLogPModels(t *testing.T) {
	t.Parallel()
	if got, want := TCP.Work(8, 3), 75_600*time.Nanosecond; got != want {
		t.Errorf("work is %v, want 2·7·3·1.8 us = %v", got, want)
	}
	if got, want := TCP.Depth(3, 2), 69_600*time.Nanosecond; got != want {
		t.Errorf("depth is %v, want 2·(12 + 3.6 + 1.8)·2 us = %v", got, want)
	}
}

// TestAloneAFrameTakesTheUnloadedTime: alone, a frame takes the time that the model gives: by hand
// for two servers of a pod, and by Unloaded for all pairs.
func TestAloneAFrameTakesTheUnloadedTime(t *testing.T) {
	t.Parallel()
	sdc, err := SDC(32)
	if err != nil {
		t.Fatal(err)
	}
	// 1,032 bytes with the lane's 16 and 78 of headers are 1,126 on the wire, 9.008 us a hop.
	// Server 0 and 1 share a pod: host, edge, aggregation, edge, host.
	if got, want := sdc.Unloaded(0, 1, 1032),
		4*9008*time.Nanosecond+2*hostCableDelay+2*switchCableDelay; got != want {
		t.Errorf("within a pod: %v, want %v", got, want)
	}
	if got, want := sdc.Unloaded(0, 31, 1032),
		6*9008*time.Nanosecond+2*hostCableDelay+4*switchCableDelay; got != want {
		t.Errorf("between pods: %v, want %v", got, want)
	}
	mdc, err := MDC(75)
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []Model{sdc, mdc, TCP.Model(8)} {
		for _, size := range []int{0, 64, 1032, 4000, 16_000} {
			for _, pair := range [][2]order.ServerID{{0, 1}, {1, 0},
				{0, order.ServerID(model.Servers - 1)}, {5, 2}} {
				n := start(t, model)
				n.Send(pair[0], to(pair[1]), make([]byte, size))
				want := model.Unloaded(int(pair[0]), int(pair[1]), size)
				if got := all(n); len(got) != 1 || got[0].At > want ||
					got[0].At < want-want/100-20*time.Nanosecond {
					t.Errorf("%s, %d bytes from %d to %d: %v, want %v", model.Name, size, pair[0],
						pair[1], got, want)
				}
			}
		}
	}
}

// TestWindowBoundsAConnection: with a window and a long way, a connection carries one window each
// round trip.
func TestWindowBoundsAConnection(t *testing.T) {
	t.Parallel()
	mdc, err := MDC(30)
	if err != nil {
		t.Fatal(err)
	}
	const frames, size = 400, 4000
	n := start(t, mdc)
	for range frames {
		n.Send(0, to(29), make([]byte, size)) // Dublin to Stockholm
	}
	got := all(n)
	roundTrip := mdc.Unloaded(0, 29, size) + mdc.Unloaded(29, 0, 0)
	perTrip := receiveWindow / (size + laneHeader)
	want := time.Duration(frames/perTrip-1) * roundTrip
	if last := got[len(got)-1].At; last < want || last > want+2*roundTrip {
		t.Errorf("%d frames took %v, want about %v: %d a round trip of %v", frames, last, want,
			perTrip, roundTrip)
	}
}

// TestFibres: fibres are as long as the distances between the cities. The dissertation says 2.5 to
// 8.9 ms, but London and Paris are nearer than that.
func TestFibres(t *testing.T) {
	t.Parallel()
	var delays []time.Duration
	for a := range Cities {
		for b := range a {
			if FibreDelay(a, b) != FibreDelay(b, a) {
				t.Errorf("%s and %s: %v there, %v back", Cities[a], Cities[b], FibreDelay(a, b),
					FibreDelay(b, a))
			}
			delays = append(delays, FibreDelay(a, b))
		}
	}
	slices.Sort(delays)
	millisecond := func(d time.Duration) string {
		return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
	}
	if got := []string{millisecond(delays[0]), millisecond(delays[1]),
		millisecond(delays[len(delays)-1])}; !slices.Equal(got, []string{"1.9", "2.6", "8.9"}) {
		t.Errorf("the shortest two and the longest are %v ms", got)
	}
}

// TestFibreKeepsNoPort sends a frame within a datacentre while frames from other datacentres are
// still on their fibres. The frame must not wait for them.
func TestFibreKeepsNoPort(t *testing.T) {
	t.Parallel()
	model, err := MDC(30)
	if err != nil {
		t.Fatal(err)
	}
	net, err := New(model)
	if err != nil {
		t.Fatal(err)
	}
	const receiver, neighbour, bytes = 24, 25, 1000
	for from := range order.ServerID(receiver) {
		net.Send(from, []order.ServerID{receiver}, make([]byte, bytes))
	}
	net.Send(neighbour, []order.ServerID{receiver}, make([]byte, bytes))
	event, more := net.Next()
	if want := model.Unloaded(neighbour, receiver, bytes); !more || event.From != neighbour ||
		event.At != want {
		t.Fatalf("the first frame is from %d at %v, want the neighbour's at %v", event.From,
			event.At, want)
	}
	arrived := 0
	for _, more = net.Next(); more; _, more = net.Next() {
		arrived++
	}
	if arrived != receiver {
		t.Errorf("%d frames from abroad, want %d", arrived, receiver)
	}
}

// TestRoutes: routes go from edge to edge, by ports that exist, and each is the same in the
// numbering of both pods.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{8, 18, 72, 450} {
		model, err := SDC(servers)
		if err != nil {
			t.Fatal(err)
		}
		checkRoutes(t, model, func(int, int) int { return 4 })
	}
	for _, servers := range []int{30, 75, 455} {
		model, err := MDC(servers)
		if err != nil {
			t.Fatal(err)
		}
		size := servers / len(Cities)
		checkRoutes(t, model, func(from, to int) int {
			if from/size != to/size {
				return 7
			}
			return 4
		})
	}
	for _, servers := range []int{0, 7, 9, 451} {
		if _, err := SDC(servers); !errors.Is(err, ErrModel) {
			t.Errorf("SDC(%d): %v", servers, err)
		}
		if _, err := MDC(servers); !errors.Is(err, ErrModel) {
			t.Errorf("MDC(%d): %v", servers, err)
		}
	}
}

func checkRoutes(t *testing.T, model Model, longest func(from, to int) int) {
	t.Helper()
	ports := model.Topology.Ports()
	into := make([]map[PortID]bool, model.Servers)
	step := max(1, model.Servers/40)
	for from := 0; from < model.Servers; from++ {
		for to := 0; to < model.Servers; to += step {
			if from == to {
				continue
			}
			route := model.Topology.AppendRoute(nil, from, to)
			if len(route) != 2 && len(route) != longest(from, to) {
				t.Fatalf("%s: %d to %d over %d ports", model.Name, from, to, len(route))
			}
			seen := map[PortID]bool{}
			for _, id := range route {
				if id < 0 || int(id) >= len(ports) || seen[id] {
					t.Fatalf("%s: %d to %d over %v, there are %d ports", model.Name, from, to,
						route, len(ports))
				}
				seen[id] = true
			}
			if into[to] == nil {
				into[to] = map[PortID]bool{}
			}
			into[to][route[len(route)-1]] = true
		}
	}
	// The last port belongs to the receiver's edge switch alone, since there is one server a
	// subnet.
	owner := map[PortID]int{}
	for to, lasts := range into {
		for id := range lasts {
			if other, taken := owner[id]; taken {
				t.Fatalf("%s: the way to %d and to %d ends with port %d", model.Name, to, other, id)
			}
			owner[id] = to
		}
	}
}

// traffic is a list of frames to send, at instants.
type traffic struct {
	at       time.Duration
	from, to order.ServerID
	size     int
}

func drawTraffic(t *rapid.T, servers int) []traffic {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) traffic {
		from := rapid.IntRange(0, servers-1).Draw(t, "from")
		to := rapid.IntRange(0, servers-2).Draw(t, "to")
		if to >= from {
			to++
		}
		return traffic{
			at:   time.Duration(rapid.IntRange(0, 2_000_000).Draw(t, "at")),
			from: order.ServerID(from), to: order.ServerID(to),
			size: rapid.SampledFrom([]int{0, 24, 64, 1032, 5000, 40_000}).Draw(t, "size"),
		}
	}), 1, 120).Draw(t, "traffic")
}

// send sends traffic and returns the arrivals.
func send(n *Network, frames []traffic) []Event {
	for i, f := range frames {
		n.After(f.at, f.from, uint64(i))
	}
	var arrived []Event
	for {
		event, more := n.Next()
		if !more {
			return arrived
		}
		if event.Frame != nil {
			arrived = append(arrived, event)
			continue
		}
		f := frames[event.Token]
		frame := make([]byte, f.size, f.size+8)
		n.Send(f.from, to(f.to), frame)
	}
}

// TestConservation: everything that is sent arrives once, in order on each connection, not sooner
// than alone, and no faster than the receiver's link carries it.
func TestConservation(t *testing.T) {
	t.Parallel()
	sdc, err := SDC(8)
	if err != nil {
		t.Fatal(err)
	}
	mdc, err := MDC(30)
	if err != nil {
		t.Fatal(err)
	}
	slow := LogP{Name: "slow links", Latency: 5 * time.Microsecond, Overhead: 2 * time.Microsecond,
		Rate: 100 * Megabit}.Model(6)
	for _, model := range []Model{sdc, mdc, slow, InfiniBand.Model(5)} {
		t.Run(model.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				checkConservation(t, model, drawTraffic(t, model.Servers))
			})
		})
	}
}

func checkConservation(t *rapid.T, model Model, frames []traffic) {
	n, err := New(model)
	if err != nil {
		t.Fatal(err)
	}
	arrived := send(n, frames)
	if len(arrived) != len(frames) {
		t.Fatalf("%d frames arrived of %d", len(arrived), len(frames))
	}
	if s := n.Statistics(); s.Frames != int64(len(frames)) || s.Received != s.Frames ||
		s.Lost != 0 || s.Wire < s.Bytes {
		t.Fatalf("statistics %+v of %d frames", s, len(frames))
	}
	sorted := slices.Clone(frames)
	slices.SortStableFunc(sorted, func(a, b traffic) int { return cmp.Compare(a.at, b.at) })
	taken := make([]bool, len(sorted))
	received, last, began := map[order.ServerID]int{}, map[order.ServerID]time.Duration{},
		map[order.ServerID]time.Duration{}
	for _, event := range arrived {
		server := event.Server
		oldest := -1
		for i, f := range sorted {
			if f.from == event.From && f.to == server && !taken[i] {
				oldest = i
				break
			}
		}
		if oldest < 0 || sorted[oldest].size != len(event.Frame) {
			t.Fatalf("%d bytes from %d to %d were not sent, or overtook others", len(event.Frame),
				event.From, server)
		}
		taken[oldest] = true
		alone := model.Unloaded(int(event.From), int(server), len(event.Frame))
		if took := event.At - sorted[oldest].at; took < alone-alone/100-20*time.Nanosecond {
			t.Fatalf("%d bytes took %v, alone they take %v", len(event.Frame), took, alone)
		}
		// No faster than the link: all bytes since the first one was sent need their time.
		if _, seen := began[server]; !seen {
			at := slices.IndexFunc(sorted, func(f traffic) bool { return f.to == server })
			began[server] = sorted[at].at
		}
		received[server] += model.wireOf(len(event.Frame) + model.FrameHeader)
		if span := event.At - began[server]; model.HostRate.Serialisation(received[server]) > span {
			t.Fatalf("server %d received %d bytes in %v", server, received[server], span)
		}
		if last[server] > event.At {
			t.Fatalf("time goes back at server %d", server)
		}
		last[server] = event.At
	}
}

// TestLinkIsFullAndNeverOver: one sender keeps its link fully busy and never overloads it, whatever
// is between it and its receivers.
func TestLinkIsFullAndNeverOver(t *testing.T) {
	t.Parallel()
	sdc, err := SDC(8)
	if err != nil {
		t.Fatal(err)
	}
	const frames, size = 500, 1032
	n := start(t, sdc)
	for range frames {
		n.Send(0, to(1, 3, 7), make([]byte, size))
	}
	got := all(n)
	least := ethernetRate.Serialisation(3 * frames * sdc.Wire(size+laneHeader))
	if last := got[len(got)-1].At; last < least || last > least+least/50+100*time.Microsecond {
		t.Errorf("%d frames took %v, the link needs %v", 3*frames, last, least)
	}
}

// TestCrash: a crash loses the frames that have not left the link, and no others.
func TestCrash(t *testing.T) {
	t.Parallel()
	sdc, err := SDC(8)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, sdc)
	const frames, size = 100, 1032
	for range frames {
		n.Send(0, to(5), make([]byte, size))
	}
	const alive = 200 * time.Microsecond
	n.After(alive, 0, 1)
	count, last := 0, time.Duration(0)
	for {
		event, more := n.Next()
		if !more {
			break
		}
		if event.Frame == nil {
			n.Crash(0)
			if !n.UnderWay(0, 5) {
				t.Error("nothing is under way")
			}
			continue
		}
		count, last = count+1, event.At
	}
	perFrame := ethernetRate.Serialisation(sdc.Wire(size + laneHeader))
	if want := int(alive/perFrame) + 1; count != want || n.UnderWay(0, 5) {
		t.Errorf("%d frames arrived, want %d; under way: %v", count, want, n.UnderWay(0, 5))
	}
	if last > alive+sdc.Unloaded(0, 5, size)+perFrame {
		t.Errorf("the last arrived at %v", last)
	}
	n.Send(0, to(5), make([]byte, size))
	n.Send(5, to(0), make([]byte, size))
	if got := all(n); len(got) != 0 {
		t.Errorf("a crashed server sent or received: %v", got)
	}
	if s := n.Statistics(); s.Received+s.Lost != s.Frames {
		t.Errorf("statistics %+v do not add up", s)
	}
}

// TestDeterminism: two runs of one traffic give the same events at the same instants, in every
// version.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	digest := func() uint64 {
		mdc, err := MDC(30)
		if err != nil {
			t.Fatal(err)
		}
		n := start(t, mdc)
		sum := fnv.New64a()
		var frames []traffic
		for i := range 3000 {
			frames = append(frames, traffic{at: time.Duration(i * i % 7919 * 100),
				from: order.ServerID(i % 30), to: order.ServerID((i%30 + 1 + i%29) % 30),
				size: i % 3000})
		}
		for _, event := range send(n, frames) {
			fmt.Fprintln(sum, event.At, event.Server, event.From, len(event.Frame))
		}
		return sum.Sum64()
	}
	if a, b := digest(), digest(); a != b {
		t.Errorf("%x and %x", a, b)
	}
}

func TestModelsAreValidated(t *testing.T) {
	t.Parallel()
	for name, model := range map[string]Model{
		"no servers":         {},
		"too many":           {Servers: ServersMax + 1},
		"negative overhead":  {Servers: 2, Overhead: -1},
		"negative window":    {Servers: 2, Window: -1},
		"parts of a segment": {Servers: 2, Segment: 1000, Chunk: 1500},
	} {
		if _, err := New(model); !errors.Is(err, ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCarryingAllocatesNothing: once its queues have grown, a network carries frames without
// allocating.
func TestCarryingAllocatesNothing(t *testing.T) {
	sdc, err := SDC(18)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, sdc)
	frame := make([]byte, 1032)
	receivers := [][]order.ServerID{to(1, 5, 9), to(2, 7, 17), to(3, 4, 8)}
	round := func() {
		for from, list := range receivers {
			for range 20 {
				n.Send(order.ServerID(from+10), list, frame)
			}
		}
		for {
			if _, more := n.Next(); !more {
				return
			}
		}
	}
	round()
	if allocations := testing.AllocsPerRun(20, round); allocations > 0 {
		t.Errorf("%.0f allocations a round", allocations)
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, servers := range []int{72, 450} {
		b.Run(fmt.Sprint(servers), func(b *testing.B) {
			sdc, err := SDC(servers)
			if err != nil {
				b.Fatal(err)
			}
			n := start(b, sdc)
			frame := make([]byte, 1032)
			b.ReportAllocs()
			sent := 0
			for sent < b.N {
				for from := range servers {
					n.Send(order.ServerID(from), to(order.ServerID((from+1)%servers),
						order.ServerID((from+9)%servers)), frame)
					sent += 2
				}
				for range 2 * servers {
					n.Next()
				}
			}
		})
	}
}
