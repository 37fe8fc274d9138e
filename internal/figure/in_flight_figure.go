package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/sim/network"
)

const (
	// distantServers is the size of a group of servers that are all equally far from each other.
	distantServers = 3
	// distantRate is the rate of a server's link, distantChunk the piece that takes it at once.
	distantRate  = 100 * network.Megabit
	distantChunk = 16 << 10
	// boundedBytes is the largest message where throughput is measured, unboundedBytes where
	// latency is.
	boundedBytes   = 8 << 10
	unboundedBytes = 4 << 20
	// europeServers is the size of a group in five datacentres.
	europeServers = 30
)

var (
	// flightsShown are the numbers of rounds in flight.
	flightsShown = []int{1, 2, 4, 8}
	// distances are the delays of a message between two servers.
	distances = []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond,
		80 * time.Millisecond}
	// linkShares are the loads, in hundredths of what the servers' links carry.
	linkShares = []int{10, 50, 80}
	// europeRates are the requests at each server in a second, in five datacentres.
	europeRates = []int{100, 300, 1000}
)

// distant returns the model of servers whose messages take that long.
func distant(delay time.Duration) network.Model {
	return network.Model{Name: fmt.Sprintf("%d servers, %v apart", distantServers, delay),
		Servers: distantServers, HostRate: distantRate, HostDelay: delay / 2, Chunk: distantChunk}
}

// inFlightCase is one run.
type inFlightCase struct {
	panel    string
	x        float64
	inFlight int
	model    network.Model
	load     load
}

// weight estimates the cost of a case.
func (c inFlightCase) weight() float64 {
	n := float64(c.model.Servers)
	return n * n * float64(c.inFlight) * (1 + float64(c.load.perMinute)/60_000)
}

// run measures a case. Its window has as many rounds of each engine as any other.
func (c inFlightCase) run(ctx context.Context) (measurement, error) {
	g, err := newGroup(c.model.Servers)
	if err != nil {
		return measurement{}, err
	}
	const warmUp, window = 12, 25
	return experiment{model: c.model, engine: g.interleaved(c.inFlight), load: c.load,
		warmUp: warmUp * c.inFlight, window: window * c.inFlight}.measure(ctx)
}

// rateLoad is requests that arrive at each server, so many in a second.
func rateLoad(perSecond int) load {
	return load{perMinute: int64(perSecond) * 60, requestBytes: transactionBytes,
		payloadMax: unboundedBytes, fromArrival: true, undelivered: true}
}

// inFlightFigure makes the figure of several rounds in flight.
func inFlightFigure(ctx context.Context, f *Figure, options Options) error {
	var cases []inFlightCase
	europe, err := network.MDC(europeServers)
	if err != nil {
		return err
	}
	for _, delay := range distances {
		f.panel(Panel{Name: latencyPanel(delay), Title: fmt.Sprintf("%v apart: latency", delay),
			X: "load [% of the links]", Y: "latency [ms]", Unit: "ms"})
	}
	f.panel(Panel{Name: "bounded", Title: "Messages of 8 KiB: throughput", X: "distance [ms]",
		Y: "throughput [MB/s]", Unit: "MB/s", LogX: true, LogY: true})
	f.panel(Panel{Name: "mdc-latency", Title: "Five datacentres: latency",
		X: "requests a second at each server", Y: "latency [ms]", Unit: "ms", LogX: true})
	f.panel(Panel{Name: "mdc-bounded", Title: "Five datacentres, messages of 1 kB: throughput",
		X: "rounds in flight", Y: "throughput [MB/s]", Unit: "MB/s", LogX: true})
	flights, rates := flightsShown, europeRates
	if options.Quick {
		flights, rates = []int{1, 4}, []int{1000}
	}
	for _, inFlight := range flights {
		for _, delay := range distances {
			for _, share := range linkShares {
				if options.Quick && share < 80 {
					continue
				}
				// A server sends each request to all others.
				perSecond := int(distantRate) / 100 * share / (8 * transactionBytes *
					(distantServers - 1))
				cases = append(cases, inFlightCase{latencyPanel(delay), float64(share), inFlight,
					distant(delay), rateLoad(perSecond)})
			}
			cases = append(cases, inFlightCase{"bounded", milliseconds(delay), inFlight,
				distant(delay), load{bytes: boundedBytes}})
		}
		for _, rate := range rates {
			cases = append(cases, inFlightCase{"mdc-latency", float64(rate), inFlight, europe,
				rateLoad(rate)})
		}
		cases = append(cases, inFlightCase{"mdc-bounded", float64(inFlight), inFlight, europe,
			load{bytes: batchFixed * transactionBytes}})
	}
	results, err := sweep(ctx, options, cases, inFlightCase.weight,
		func(ctx context.Context, c inFlightCase) (measurement, error) {
			m, err := c.run(ctx)
			if err != nil {
				err = fmt.Errorf("%s, %d in flight: %w", c.panel, c.inFlight, err)
			}
			return m, err
		})
	if err != nil {
		return err
	}
	for i, m := range results {
		c := cases[i]
		series := fmt.Sprintf("%d in flight", c.inFlight)
		if c.load.isFixed() {
			f.add(c.panel, series, c.x, m.bytes/1e6)
			continue
		}
		f.addSpread(c.panel, series, c.x, milliseconds(m.latency.median),
			milliseconds(m.latency.low), milliseconds(m.latency.high))
		if m.unstable {
			f.note("%s, %s, x = %s: requests came faster than the group agreed.", c.panel, series,
				number(c.x))
		}
	}
	f.note("Latency is from the mean arrival of a message's requests of %d bytes to its "+
		"A-delivery at its server, in the median. Between distant servers, %d with links of "+
		"100 Mbit/s.",
		transactionBytes, distantServers)
	return nil
}

// latencyPanel returns the name of a distance's panel.
func latencyPanel(delay time.Duration) string { return fmt.Sprintf("%v-latency", delay) }
