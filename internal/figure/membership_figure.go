package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

// membershipCase is one series of one panel of figure 5.11.
type membershipCase struct {
	panel, series string
	// failures is how many servers fail, one after another, and join again.
	failures int
}

// events returns the instants of failures and joins, and the end.
func (c membershipCase) events() (failures, joins []failure, until time.Duration) {
	const (
		quiet = 30 * time.Millisecond
		// a failure is noticed and overcome well before the next event
		between = 150 * time.Millisecond
		settled = 40 * time.Millisecond
	)
	at := quiet
	for i := range c.failures {
		failures = append(failures, failure{at: at, server: order.ServerID(7 + 9*i)})
		at += between
	}
	for i := range c.failures {
		joins = append(joins, failure{at: at, server: order.ServerID(7 + 9*i)})
		at += settled
	}
	return failures, joins, at
}

// membership makes figure 5.11.
func membership(ctx context.Context, f *Figure, options Options) error {
	const (
		servers      = 32
		perSecond    = 10_000
		requestBytes = 64
		bin          = 10 * time.Millisecond
	)
	most, series := 3, []string{seriesAllConcur, seriesPlus}
	if options.Quick {
		most, series = 1, series[:1]
	}
	var cases []membershipCase
	for failures := 1; failures <= most; failures++ {
		name := fmt.Sprintf("failures-%d", failures)
		panel := f.panel(Panel{Name: name, Title: fmt.Sprintf("%d failed and joined", failures),
			X: "time [ms]", Y: "throughput [requests/s]", Unit: "requests/s", Dense: true})
		fails, joins, _ := membershipCase{failures: failures}.events()
		for _, event := range append(fails, joins...) {
			panel.Marks = append(panel.Marks, milliseconds(event.at))
		}
		for _, s := range series {
			cases = append(cases, membershipCase{panel: name, series: s, failures: failures})
		}
	}
	type outcome struct {
		requests []int
		// rounds are the instants at which server 0 A-delivered.
		rounds []time.Duration
	}
	results, err := sweep(ctx, options, cases, func(c membershipCase) float64 {
		return float64(c.failures)
	},
		func(ctx context.Context, c membershipCase) (outcome, error) {
			fails, joins, until := c.events()
			out := outcome{requests: make([]int, int(until/bin)+1)}
			overlays := newEonOverlays(servers)
			_, err := experiment{
				model: network.InfiniBand.Model(servers), load: load{perMinute: 60 * perSecond,
					requestBytes: requestBytes, payloadMax: 1 << 20},
				engine: func(self order.ServerID) (order.Broadcaster, error) {
					return newEonServer(c.series, self, overlays)
				},
				failures: fails, joins: joins, until: until,
				detector: heartbeat{period: 10 * time.Millisecond, timeout: 100 * time.Millisecond},
				watch: func(at time.Duration, server order.ServerID, delivery order.Delivery) {
					if server != 0 {
						return
					}
					out.rounds = append(out.rounds, at)
					for _, m := range delivery.Messages {
						out.requests[at/bin] += len(m.Payload) / requestBytes
					}
				},
			}.measure(ctx)
			if err != nil {
				return out, fmt.Errorf("%s, %d failures: %w", c.series, c.failures, err)
			}
			return out, nil
		})
	if err != nil {
		return err
	}
	for i, out := range results {
		c := cases[i]
		fails, joins, until := c.events()
		for b, requests := range out.requests[:int(until/bin)] {
			f.add(c.panel, c.series, milliseconds(time.Duration(b)*bin),
				float64(requests)/seconds(bin))
		}
		f.note("%s, %s: without a round for %s after failures, %s after joins.", c.panel, c.series,
			waits(out.rounds, fails), waits(out.rounds, joins))
	}
	f.note("%d servers, each with %d requests of %d bytes a second, over %s; a heartbeat every "+
		"10 ms, suspicion after 100 ms without one. Bins of %v.",
		servers, perSecond, requestBytes, network.InfiniBand.Name, bin)
	f.note("The dissertation: about 190 ms after a failure, about 80 ms after a join.")
	return nil
}

// waits describes how long after each event no round was A-delivered: the longest gap between
// rounds that begins before the next event.
func waits(rounds []time.Duration, events []failure) string {
	text := ""
	for i, event := range events {
		end := event.at + 150*time.Millisecond
		if i+1 < len(events) {
			end = events[i+1].at
		}
		longest, before := time.Duration(0), event.at
		for _, at := range rounds {
			if at < event.at || before > end {
				continue
			}
			longest, before = max(longest, at-before), at
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.2f ms", milliseconds(longest))
	}
	return text
}
