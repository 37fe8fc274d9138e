package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

// transport is a LogP model and its name in panels.
type transport struct {
	name string
	logp network.LogP
}

var (
	verbs = transport{"ibv", network.InfiniBand}
	tcp   = transport{"tcp", network.TCP}
)

// logpCase is a group over a LogP model.
type logpCase struct {
	transport transport
	series    string
	group     *group
	load      load
	// x is the point's x, and panel its panel.
	panel          string
	x              float64
	warmUp, window int
}

func (c logpCase) weight() float64 {
	n := float64(c.group.servers)
	return n * n * c.group.degree(c.series) * float64(c.warmUp+c.window)
}

func (c logpCase) run(ctx context.Context) (measurement, error) {
	m, err := experiment{
		model:  c.transport.logp.Model(c.group.servers),
		engine: c.group.engines(c.series, c.load.bytes), load: c.load, warmUp: c.warmUp,
		window: c.window,
	}.measure(ctx)
	if err != nil {
		return m, fmt.Errorf("%s, %d servers, %s: %w", c.series, c.group.servers, c.transport.name,
			err)
	}
	return m, nil
}

// groups returns the groups of some sizes.
func groups(sizes ...int) ([]*group, error) {
	all := make([]*group, len(sizes))
	for i, n := range sizes {
		g, err := newGroup(n)
		if err != nil {
			return nil, err
		}
		all[i] = g
	}
	return all, nil
}

// singleRequest makes figure 5.10.
func singleRequest(ctx context.Context, f *Figure, options Options) error {
	sizes := []int{6, 8, 11, 16, 22, 32, 45, 64, 90}
	if options.Quick {
		sizes = []int{6, 8, 16, 32, 64}
	}
	all, err := groups(sizes...)
	if err != nil {
		return err
	}
	type single struct {
		transport transport
		series    string
		group     *group
		sender    int
	}
	var cases []single
	const senders = 5
	for _, t := range []transport{verbs, tcp} {
		f.panel(Panel{Name: t.name + "-latency", Title: t.logp.Name + ": agreement latency",
			X: "servers", Y: "latency [us]", Unit: "us", LogX: true, LogY: true})
		for _, g := range all {
			for _, series := range []string{seriesAllConcur, seriesPlus} {
				for s := range senders {
					cases = append(cases, single{t, series, g, s * g.servers / senders})
				}
			}
		}
	}
	results, err := sweep(ctx, options, cases, func(c single) float64 {
		return float64(c.group.servers * c.group.servers)
	},
		func(ctx context.Context, c single) (time.Duration, error) {
			agreed := time.Duration(0)
			_, err := experiment{
				model:  c.transport.logp.Model(c.group.servers),
				engine: c.group.engines(c.series, 0), load: load{bytes: 64, single: true,
					sender: c.sender}, window: 1,
				watch: func(at time.Duration, server order.ServerID, _ order.Delivery) {
					if agreed == 0 && int(server) == c.sender {
						agreed = at
					}
				},
			}.measure(ctx)
			return agreed, err
		})
	if err != nil {
		return err
	}
	worst := map[string]float64{}
	for i := 0; i < len(cases); i += senders {
		c := cases[i]
		s := spreadOf(results[i : i+senders])
		panel, x := c.transport.name+"-latency", float64(c.group.servers)
		f.addSpread(panel, c.series, x, microseconds(s.median), microseconds(s.low),
			microseconds(s.high))
		if c.series != seriesAllConcur {
			continue
		}
		diameter, err := c.group.reliable.Diameter()
		if err != nil {
			return err
		}
		work := c.transport.logp.Work(c.group.servers, c.group.reliable.Degree())
		depth := c.transport.logp.Depth(c.group.reliable.Degree(), diameter)
		f.add(panel, "model: work", x, microseconds(work))
		f.add(panel, "model: depth", x, microseconds(depth))
		worst[c.transport.name] = max(worst[c.transport.name],
			microseconds(s.median)/microseconds(max(work, depth)))
	}
	for _, t := range []transport{verbs, tcp} {
		f.note("%s: L = %v, o = %v; %s takes at most %.2f times the larger of the two models.",
			t.logp.Name, t.logp.Latency, t.logp.Overhead, seriesAllConcur, worst[t.name])
	}
	f.note("The dissertation says in words that the models are good indicators and that work " +
		"becomes dominant as groups grow.")
	f.note("Median over %d senders. %s, which the dissertation's figure does not have, waits "+
		"for two more rounds.", senders, seriesPlus)
	return nil
}

// decades lists the multiples of powers of ten in a range.
func decades(from, to float64, steps []float64) []float64 {
	var rates []float64
	for decade := from; decade <= to; decade *= 10 {
		for _, step := range steps {
			if decade*step <= to {
				rates = append(rates, decade*step)
			}
		}
	}
	return rates
}

// requestRate makes figure 5.12.
func requestRate(ctx context.Context, f *Figure, options Options) error {
	const requestBytes = 64
	sizes, rates := []int{8, 16, 32, 64}, decades(10, 1e8, []float64{1, 3.2})
	if options.Quick {
		sizes, rates = []int{8, 32}, decades(100, 1e8, []float64{1})
	}
	all, err := groups(sizes...)
	if err != nil {
		return err
	}
	var cases []logpCase
	for _, t := range []transport{verbs, tcp} {
		f.panel(Panel{Name: t.name + "-latency", Title: t.logp.Name + ": agreement latency",
			X: "requests/s at each server", Y: "latency [us]", Unit: "us", LogX: true,
			LogY: true})
		for _, g := range all {
			for _, rate := range rates {
				cases = append(cases, logpCase{
					transport: t, series: seriesAllConcur, group: g, panel: t.name + "-latency",
					x: rate, warmUp: 4, window: 12,
					load: load{perMinute: int64(60 * rate), requestBytes: requestBytes,
						payloadMax: 1 << 20},
				})
			}
		}
	}
	results, err := sweep(ctx, options, cases, logpCase.weight, func(ctx context.Context,
		c logpCase) (measurement, error) {
		return c.run(ctx)
	})
	if err != nil {
		return err
	}
	highest := map[string]float64{}
	for i, m := range results {
		c := cases[i]
		series := fmt.Sprintf("%s n=%d", c.series, c.group.servers)
		if m.unstable {
			continue
		}
		f.addSpread(c.panel, series, c.x, microseconds(m.latency.median),
			microseconds(m.latency.low), microseconds(m.latency.high))
		key := fmt.Sprintf("%s, %d servers", c.transport.logp.Name, c.group.servers)
		highest[key] = max(highest[key], c.x)
	}
	for _, t := range []transport{verbs, tcp} {
		for _, g := range all {
			key := fmt.Sprintf("%s, %d servers", t.logp.Name, g.servers)
			f.note("%s: stable up to %s requests/s at each server.", key, number(highest[key]))
		}
	}
	if y, ok := f.find("ibv-latency").at(seriesAllConcur+" n=64", 32_000); ok {
		z, _ := f.find("tcp-latency").at(seriesAllConcur+" n=64", 32_000)
		f.note("64 servers, 32,000 requests/s at each: %.3g us over %s, %.2g times that over %s "+
			"(the dissertation: less than 750 us, and about 3 times).", y,
			verbs.logp.Name, z/y, tcp.logp.Name)
	}
	f.note("The dissertation has 8 servers agree in 35 us with 100 million requests/s at each; " +
		"that would be 410 Gbit/s over links of 40.")
	f.note("Left out are rates at which messages grow without end (past 1 MiB): requests come " +
		"faster than the links' rate lets the group agree.")
	return nil
}

// applications makes figure 5.13.
func applications(ctx context.Context, f *Figure, options Options) error {
	const requestBytes = 40
	cray := transport{"tcp", network.Cray}
	players, systems := []int{8, 16, 32, 64, 128, 256, 512, 1024},
		[]int{8, 16, 32, 64, 128, 256, 512, 1024}
	rates := decades(1e4, 1e8, []float64{1})
	if options.Quick {
		players, systems = []int{8, 32, 128}, []int{8, 32, 128}
	}
	f.panel(Panel{Name: "apm-latency", Title: "(a) Players: agreement latency", X: "players",
		Y: "latency [ms]", Unit: "ms", LogX: true, LogY: true})
	f.panel(Panel{Name: "rate-latency", Title: "(b) Exchange: agreement latency",
		X: "requests/s in the whole system", Y: "latency [ms]", Unit: "ms", LogX: true, LogY: true})
	byPlayers, err := groups(players...)
	if err != nil {
		return err
	}
	bySystems, err := groups(systems...)
	if err != nil {
		return err
	}
	var cases []logpCase
	for _, g := range byPlayers {
		for _, actions := range []int64{200, 400} {
			cases = append(cases, logpCase{
				transport: cray, series: seriesAllConcur, group: g, panel: "apm-latency",
				x: float64(g.servers), warmUp: 2, window: roundsFor(g.servers),
				load: load{perMinute: actions, requestBytes: requestBytes, payloadMax: 1 << 20},
			})
		}
	}
	for _, g := range bySystems {
		for _, rate := range rates {
			if g.servers >= 512 && rate != 1e6 {
				continue // each of these runs takes a minute
			}
			cases = append(cases, logpCase{
				transport: cray, series: seriesAllConcur, group: g, panel: "rate-latency", x: rate,
				warmUp: 2, window: roundsFor(g.servers),
				load: load{perMinute: int64(60 * rate / float64(g.servers)),
					requestBytes: requestBytes, payloadMax: 1 << 20},
			})
		}
	}
	results, err := sweep(ctx, options, cases, logpCase.weight, func(ctx context.Context,
		c logpCase) (measurement, error) {
		return c.run(ctx)
	})
	if err != nil {
		return err
	}
	for i, m := range results {
		c := cases[i]
		if m.unstable {
			continue
		}
		series := fmt.Sprintf("%s n=%d", c.series, c.group.servers)
		if c.panel == "apm-latency" {
			series = fmt.Sprintf("%s %d APM", c.series, c.load.perMinute)
		}
		f.addSpread(c.panel, series, c.x, milliseconds(m.latency.median),
			milliseconds(m.latency.low), milliseconds(m.latency.high))
	}
	for _, actions := range []int{200, 400} {
		if y, ok := f.find("apm-latency").at(fmt.Sprintf("%s %d APM", seriesAllConcur, actions),
			512); ok {
			f.note("512 players with %d actions a minute: %.3g ms (the dissertation: %d ms).",
				actions, y, map[int]int{200: 28, 400: 38}[actions])
		}
	}
	system := f.find("rate-latency")
	if y, ok := system.at(seriesAllConcur+" n=8", 1e8); ok {
		f.note("8 servers, 100 million requests/s: %.3g us (the dissertation: below 90 us).",
			1000*y)
	} else {
		f.note("8 servers, 100 million requests/s of 40 bytes are 32 Gbit/s, more than the 8.6 " +
			"Gbit/s that the dissertation's figure 5.14 has 8 servers agree on: unstable here " +
			"(the dissertation: below 90 us).")
	}
	if y, ok := system.at(seriesAllConcur+" n=512", 1e6); ok {
		f.note("512 servers, 1 million requests/s: %.3g ms (the dissertation: below 20 ms).", y)
		if z, ok := system.at(seriesAllConcur+" n=1024", 1e6); ok {
			f.note("1,024 servers take %.2g times as long (the dissertation: 4 times).", z/y)
		}
	}
	return nil
}

// roundsFor returns how many rounds a LogP figure measures.
func roundsFor(servers int) int { return max(2, min(12, 1024/servers)) }

// batchingRequest is the size of a request of figure 5.14, in bytes.
const batchingRequest = 8

// batching makes figure 5.14.
func batching(ctx context.Context, f *Figure, options Options) error {
	cray := transport{"tcp", network.Cray}
	sizes, top, step := []int{8, 16, 32, 64, 128, 256, 512, 1024}, 1<<15, 2
	if options.Quick {
		sizes, top, step = []int{8, 16, 32, 64}, 1<<12, 8
	}
	panels := []struct{ name, series, title string }{
		{"allconcur-throughput", seriesAllConcur, "(a) AllConcur"},
		{"unreliable-throughput", seriesUnreliable, "(b) Unreliable agreement"},
		{"leader-throughput", seriesPaxos, "(c) Leader-based agreement"},
	}
	for _, p := range panels {
		f.panel(Panel{Name: p.name, Title: p.title + ": agreement throughput",
			X: "requests in a message", Y: "throughput [Gbit/s]", Unit: "Gbit/s", LogX: true,
			LogY: true})
	}
	f.panel(Panel{Name: "aggregated-throughput", Title: "(d) AllConcur: aggregated throughput",
		X: "requests in a message", Y: "throughput [Gbit/s]", Unit: "Gbit/s", LogX: true,
		LogY: true})
	all, err := groups(sizes...)
	if err != nil {
		return err
	}
	var cases []logpCase
	for _, g := range all {
		for _, p := range panels {
			for batch := 1; batch <= top; batch *= step {
				if !batchingIsMeasured(p.series, g.servers, batch, top) {
					continue
				}
				cases = append(cases, logpCase{
					transport: cray, series: p.series, group: g, panel: p.name, x: float64(batch),
					warmUp: 2, window: roundsFor(g.servers),
					load: load{bytes: batch * batchingRequest},
				})
			}
		}
	}
	results, err := sweep(ctx, options, cases, logpCase.weight, func(ctx context.Context,
		c logpCase) (measurement, error) {
		return c.run(ctx)
	})
	if err != nil {
		return err
	}
	best := 0.0
	for i, m := range results {
		c := cases[i]
		series := fmt.Sprintf("%s n=%d", c.series, c.group.servers)
		gigabits := m.bytes * 8 / 1e9
		f.add(c.panel, series, c.x, gigabits)
		if c.series == seriesAllConcur {
			best = max(best, gigabits)
			f.add("aggregated-throughput", series, c.x, gigabits*float64(c.group.servers))
		}
	}
	f.note("%s agrees on up to %.3g Gbit/s (the dissertation: 8.6, from which the links' rate "+
		"here is taken).", seriesAllConcur, best)
	overhead(f, all, top, step)
	return nil
}

// batchingIsMeasured leaves out cases that would be too expensive: most messages of large groups, a
// leader's largest groups, and unreliable agreement that would take more than a GiB, since its
// servers copy every message.
func batchingIsMeasured(series string, servers, batch, top int) bool {
	const copiesMax = 1 << 30
	switch {
	case servers > 256 && (series == seriesPaxos || batch != 1<<7 && batch != 1<<11):
		return false
	case servers > 64 && batch != 1 && batch != 1<<7 && batch != 1<<11 && batch != top:
		return false
	}
	return series != seriesUnreliable || servers*servers*batch*batchingRequest <= copiesMax
}

// overhead notes the cost of reliability compared with unreliable agreement, and the cost of a
// leader.
func overhead(f *Figure, all []*group, top, step int) {
	reliable, unreliable, leader := f.find("allconcur-throughput"), f.find("unreliable-throughput"),
		f.find("leader-throughput")
	sum, count, largest, least := 0.0, 0, 0.0, 0.0
	for _, g := range all {
		name := func(series string) string { return fmt.Sprintf("%s n=%d", series, g.servers) }
		for batch := 1; batch <= top; batch *= step {
			a, hasA := reliable.at(name(seriesAllConcur), float64(batch))
			u, hasU := unreliable.at(name(seriesUnreliable), float64(batch))
			if hasA && hasU {
				sum, count = sum+1-a/u, count+1
				if batch >= 2048 {
					largest = max(largest, 1-a/u)
				}
			}
			if l, hasL := leader.at(name(seriesPaxos), float64(batch)); hasA && hasL &&
				(least == 0 || a/l < least) {
				least = a / l
			}
		}
	}
	f.note("Reliability costs %.0f %% of the unreliable throughput on average, and up to %.0f "+
		"%% with 2,048 or more requests in a message (the dissertation: 58 and 75).",
		100*sum/float64(count), 100*largest)
	f.note("%s has at least %.2g times the leader-based throughput (the dissertation: 17).",
		seriesAllConcur, least)
	peak := 0.0
	for _, point := range f.find("aggregated-throughput").Points {
		peak = max(peak, point.Y)
	}
	f.note("Aggregated throughput peaks at %s Gbit/s (the dissertation: about 750 for 512 and "+
		"1,024 servers).", number(significant(peak, 3)))
}
