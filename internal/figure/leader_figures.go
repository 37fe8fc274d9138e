package figure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan"
	"github.com/ledgerd/ledgerd/sim/network"
)

// This file is figures 4.9 to 4.11: DARE's engine on timed memory, with clients.

// leaderWarm is when a group has a leader and answers.
const leaderWarm = 5 * time.Millisecond

// leaderCase is a series of a panel, with a number of clients.
type leaderCase struct {
	panel, series string
	leaderLoad
	// x is the point's x, and scale what a request counts.
	x, scale float64
}

// measure returns how many requests a second the group answers, and the mean latency.
func (c leaderCase) measure(ctx context.Context, span time.Duration) (float64, time.Duration,
	error) {
	count, sum := 0, time.Duration(0)
	g, err := newLeaderGroup(c.leaderLoad, func(at, took time.Duration, _ bool) {
		if at > leaderWarm {
			count++
			sum += took
		}
	})
	if err != nil {
		return 0, 0, err
	}
	defer g.network.Close()
	if err := g.run(ctx, leaderWarm+span); err != nil {
		return 0, 0, err
	}
	if count == 0 {
		return 0, 0, fmt.Errorf("%w: no answer", errStuck)
	}
	return float64(count) / seconds(span), sum / time.Duration(count), nil
}

// leaderThroughput makes figure 4.9.
func leaderThroughput(ctx context.Context, f *Figure, options Options) error {
	const servers, small, large, mebibyte = 3, 64, 2048, 1 << 20
	span, counts := 20*time.Millisecond, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if options.Quick {
		span, counts = 4*time.Millisecond, []int{1, 3, 9}
	}
	f.panel(Panel{Name: "requests", Title: "(a) Requests of 64 bytes", X: "clients",
		Y: "throughput [requests/s]", Unit: "requests/s"})
	f.panel(Panel{Name: "bytes", Title: "Requests of 2048 bytes", X: "clients",
		Y: "throughput [MiB/s]", Unit: "MiB/s"})
	f.panel(Panel{Name: "workloads", Title: "(b) Workloads of 64 bytes", X: "clients",
		Y: "throughput [requests/s]", Unit: "requests/s"})
	var cases []leaderCase
	for _, clients := range counts {
		add := func(panel, series string, bytes int, writes, scale float64) {
			cases = append(cases, leaderCase{panel, series, leaderLoad{servers: servers,
				seats: servers, clients: clients, bytes: bytes, writes: writes},
				float64(clients), scale})
		}
		add("requests", "reads", small, 0, 1)
		add("requests", "writes", small, 1, 1)
		add("bytes", "reads", large, 0, float64(large)/mebibyte)
		add("bytes", "writes", large, 1, float64(large)/mebibyte)
		add("workloads", "read-heavy", small, 0.05, 1)
		add("workloads", "update-heavy", small, 0.5, 1)
	}
	results, err := sweep(ctx, options, cases, func(leaderCase) float64 { return 1 },
		func(ctx context.Context, c leaderCase) (float64, error) {
			rate, _, err := c.measure(ctx, span)
			return rate, err
		})
	if err != nil {
		return err
	}
	for i, c := range cases {
		f.add(c.panel, c.series, c.x, results[i]*c.scale)
	}
	most := float64(counts[len(counts)-1])
	at := func(panel, series string) string {
		y, _ := f.find(panel).at(series, most)
		return number(significant(y, 3))
	}
	f.note("%d servers. With %v clients: %s reads and %s writes a second (the dissertation: more "+
		"than 720,000 and 460,000).", servers, most, at("requests", "reads"),
		at("requests", "writes"))
	f.note("Of 2,048 bytes, %s MiB/s read and %s written (the dissertation: 760 and 470).",
		at("bytes", "reads"), at("bytes", "writes"))
	f.note("With %v clients the read-heavy workload has %s requests a second, and the "+
		"update-heavy one %s (the dissertation in words: the first one fluctuates, and the "+
		"second one saturates sooner).", most, at("workloads", "read-heavy"),
		at("workloads", "update-heavy"))
	f.note("A leader has one batch of writes under way, as the dissertation's has. Computation " +
		"takes no time. Datagrams take the leader's processor as table 4.1 has it.")
	return ctx.Err()
}

// leaderEvent is something that happens to a group of figure 4.10.
type leaderEvent struct {
	at   time.Duration
	text string
	do   func(*leaderGroup) error
}

// leaderEvents returns the events of figure 4.10, spread over time.
func leaderEvents(apart time.Duration) (events []leaderEvent) {
	at := leaderWarm
	add := func(after time.Duration, text string, do func(*leaderGroup) error) {
		at += after
		events = append(events, leaderEvent{at, text, do})
	}
	joins := func(seat int) func(*leaderGroup) error {
		return func(g *leaderGroup) error { return g.join(seat) }
	}
	crashes := func(leads bool) func(*leaderGroup) error {
		return func(g *leaderGroup) error {
			for seat, s := range g.seats {
				if s != nil && !s.gone && s.Leading() == leads {
					g.crash(seat)
					return nil
				}
			}
			return errStuck
		}
	}
	returns := func(g *leaderGroup) error {
		for seat := range g.seats {
			if _, dead := g.dead[seat]; dead {
				return g.join(seat)
			}
		}
		return errStuck
	}
	// One server notices before the others that the leader failed, and campaigns. So it wins.
	failsTo := func(next int) func(*leaderGroup) error {
		return func(g *leaderGroup) error {
			g.network.After(leaderTimeout, g.seats[next].Campaign)
			return crashes(true)(g)
		}
	}
	shrinks := func(size int) func(*leaderGroup) error {
		return func(g *leaderGroup) error { g.size = size; return nil }
	}
	add(apart, "a server joins, the group grows", joins(5))
	add(apart/2, "another one", joins(6))
	add(apart, "the leader fails", crashes(true))
	add(apart, "another server fails", crashes(false))
	add(apart, "a server joins", returns)
	add(apart/2, "another one", returns)
	add(apart, "five servers are left", shrinks(5))
	// In the dissertation the last step removes the leader.
	add(apart, "the leader fails", failsTo(4))
	add(apart, "a server joins", returns)
	add(apart, "three servers are left", shrinks(3))
	add(apart, "the end", nil)
	return events
}

// leaderChanges makes figure 4.10.
func leaderChanges(ctx context.Context, f *Figure, options Options) error {
	const bytes, clients = 64, 1
	bin, apart := 10*time.Millisecond, 50*time.Millisecond
	if options.Quick {
		apart = 40 * time.Millisecond
	}
	events := leaderEvents(apart)
	panel := f.panel(Panel{Name: "throughput", Title: "Writes of 64 bytes", X: "time [ms]",
		Y: "throughput [requests/s]", Unit: "requests/s", Dense: true})
	end := events[len(events)-1].at
	bins := make([]int, int(end/bin)+1)
	answers := []time.Duration{0} // with the beginning
	g, err := newLeaderGroup(leaderLoad{servers: 5, seats: 7, clients: clients, bytes: bytes,
		writes: 1}, func(at, _ time.Duration, _ bool) {
		bins[min(int(at/bin), len(bins)-1)]++
		answers = append(answers, at)
	})
	if err != nil {
		return err
	}
	defer g.network.Close()
	for i, event := range events {
		if err := g.run(ctx, event.at); err != nil {
			return err
		}
		if event.do == nil {
			break
		}
		panel.Marks = append(panel.Marks, milliseconds(event.at))
		if err := event.do(g); err != nil {
			return fmt.Errorf("%s: %w", event.text, err)
		}
		if err := g.run(ctx, events[i+1].at); err != nil {
			return err
		}
		from, _ := slices.BinarySearch(answers, event.at)
		longest := events[i+1].at - answers[len(answers)-1]
		for k := max(from, 1); k < len(answers); k++ {
			longest = max(longest, answers[k]-answers[k-1])
		}
		leads := "nobody leads"
		if now := g.leader(); now >= 0 {
			leads = fmt.Sprintf("server %d leads a group of size %d", now,
				g.seats[now].Configuration().Size)
		}
		f.note("%.0f ms: %s. The longest time without an answer until the next event is %s ms; "+
			"then %s.", milliseconds(event.at), event.text,
			number(significant(milliseconds(longest), 3)), leads)
	}
	for b, count := range bins[:len(bins)-1] {
		if at := time.Duration(b) * bin; at >= leaderWarm {
			f.add("throughput", "writes", milliseconds(at), float64(count)/seconds(bin))
		}
	}
	f.note("%d client, bins of %v. A leader beats every %v and is suspected after %v; the "+
		"dissertation has about 30 ms without a leader. When a leader fails the second time, "+
		"server 4 campaigns first: it leads when the last step removes it. Where an access of a "+
		"failed host holds a write up, that takes %v.", clients, bin, leaderBeat, leaderTimeout,
		accessTimeout)
	return ctx.Err()
}

// The latencies that the dissertation has in its text, in us [Poke19, section 4.7.3].
var publishedLatencies = []struct {
	panel, series string
	latency       float64
}{
	{"reads", "zookeeper, published", 120}, {"reads", "etcd, published", 1600},
	{"writes", "zookeeper, published", 380}, {"writes", "etcd, published", 50_000},
	{"writes", "paxossb, published", 2600}, {"writes", "libpaxos, published", 320},
}

// leaderComparison makes figure 4.11.
func leaderComparison(ctx context.Context, f *Figure, options Options) error {
	const servers, first, last = 5, 8, 2048
	step, span := 2, 4*time.Millisecond
	if options.Quick {
		step, span = 16, 2*time.Millisecond
	}
	for _, panel := range []string{"reads", "writes"} {
		f.panel(Panel{Name: panel, Title: panel, X: "bytes", Y: "latency [us]", Unit: "us",
			LogX: true, LogY: true})
	}
	all, err := groups(servers)
	if err != nil {
		return err
	}
	for bytes := first; bytes <= last; bytes *= step {
		for writes, panel := range []string{"reads", "writes"} {
			_, latency, err := leaderCase{leaderLoad: leaderLoad{servers: servers, seats: servers,
				clients: 1, bytes: bytes, writes: float64(writes)}}.measure(ctx, span)
			if err != nil {
				return err
			}
			bound, err := plan.DAREOf(network.InfiniBandRDMA, servers, bytes)
			if err != nil {
				return err
			}
			model := map[string]time.Duration{"reads": bound.ReadLatency(),
				"writes": bound.WriteLatency()}[panel]
			f.add(panel, "dare", float64(bytes), microseconds(latency))
			f.add(panel, "dare, bound", float64(bytes), microseconds(model))
		}
		for _, series := range []string{seriesPlusEventual, seriesAllConcur} {
			latency, err := agreedAndBack(ctx, all[0], series, bytes)
			if err != nil {
				return err
			}
			f.add("writes", series, float64(bytes), microseconds(latency))
		}
	}
	for _, p := range publishedLatencies {
		f.add(p.panel, p.series, first, p.latency)
		f.add(p.panel, p.series, last, p.latency)
	}
	for _, panel := range []string{"reads", "writes"} {
		dare, _ := f.find(panel).at("dare", first)
		best := map[string]float64{"reads": 120, "writes": 320}[panel]
		f.note("%s: DARE takes %s us for %d bytes here, %.0f times less than the best of the four "+
			"others in the dissertation (there: %s).", panel, number(significant(dare, 3)), first,
			best/dare, map[string]string{"reads": "at least 22", "writes": "at least 35"}[panel])
	}
	f.note("One client, %d servers. ZooKeeper, etcd, PaxosSB and Libpaxos are programs that the "+
		"dissertation measured over IP over InfiniBand. Their lines are the numbers of its text, "+
		"whatever the size.", servers)
	f.note("%s and %s run over %s, for one request in an idle group, with the client's way to "+
		"a server and back. They have no reads of their own.", seriesPlusEventual,
		seriesAllConcur, network.TCP.Name)
	return ctx.Err()
}

// agreedAndBack returns how long a client's request to a server takes that agrees on it over TCP.
func agreedAndBack(ctx context.Context, g *group, series string, bytes int) (time.Duration,
	error) {
	agreed := time.Duration(0)
	model := network.TCP.Model(g.servers)
	_, err := experiment{model: model, engine: g.engines(series, 0), load: load{
		bytes: keyBytes + bytes, single: true}, window: 1,
		watch: func(at time.Duration, server order.ServerID, _ order.Delivery) {
			if agreed == 0 && server == 0 {
				agreed = at
			}
		}}.measure(ctx)
	return model.Unloaded(0, 1, keyBytes+bytes) + agreed + model.Unloaded(0, 1, 1), err
}
