package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

// failures makes figure 6.7.
func failures(ctx context.Context, f *Figure, options Options) error {
	const servers = 72
	until := time.Second
	if options.Quick {
		until /= 4
	}
	crashes := []failure{{until / 5, 34}, {2 * until / 5, 50}, {3 * until / 5, 11},
		{4 * until / 5, 63}}
	panel := f.panel(Panel{Name: "sdc-throughput",
		Title: "One datacentre, 72 servers: throughput of server 0", X: "time [ms]",
		Y: "throughput [transactions/s]", Unit: "transactions/s", Dense: true})
	for _, c := range crashes {
		panel.Marks = append(panel.Marks, milliseconds(c.at))
	}
	g, err := newGroup(servers)
	if err != nil {
		return err
	}
	model, err := network.SDC(servers)
	if err != nil {
		return err
	}
	type sample struct {
		at     time.Duration
		amount int
	}
	type outcome struct {
		samples []sample
	}
	names := []string{seriesPlus, seriesAllConcur}
	outcomes, err := sweep(ctx, options, names, g.degree, func(ctx context.Context,
		series string) (outcome, error) {
		var out outcome
		_, err := experiment{
			model: model, engine: g.engines(series, 0),
			load: load{bytes: batchFixed * transactionBytes}, until: until, failures: crashes,
			reliable: g.reliable,
			detector: heartbeat{period: time.Millisecond, timeout: 10 * time.Millisecond},
			watch: func(at time.Duration, server order.ServerID, delivery order.Delivery) {
				if server == 0 {
					out.samples = append(out.samples, sample{at: at,
						amount: len(delivery.Messages) * batchFixed})
				}
			},
		}.measure(ctx)
		if err != nil {
			return out, fmt.Errorf("%s: %w", series, err)
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	averages := make([]float64, len(names))
	for i, series := range names {
		// A round's throughput is the amount A-delivered, divided by the time since the round
		// before.
		samples := outcomes[i].samples
		total, last := 0, time.Duration(0)
		for at := 0; at < len(samples); {
			amount, end := 0, at
			for ; end < len(samples) && samples[end].at == samples[at].at; end++ {
				amount += samples[end].amount
			}
			f.add("sdc-throughput", series, milliseconds(samples[at].at),
				float64(amount)/seconds(samples[at].at-last))
			total, last, at = total+amount, samples[at].at, end
		}
		averages[i] = float64(total) / seconds(until)
		steady := 0
		for _, s := range samples {
			if s.at <= crashes[0].at {
				steady += s.amount
			}
		}
		f.note("%s: %s transactions/s before the first crash, %s on average over %v with four "+
			"crashes.", series,
			number(significant(float64(steady)/seconds(crashes[0].at), 3)),
			number(significant(averages[i], 3)), until)
		for _, c := range crashes {
			longest := time.Duration(0)
			before := time.Duration(0)
			for _, s := range samples {
				if s.at > c.at && s.at < c.at+until/5 {
					longest = max(longest, s.at-max(before, c.at))
				}
				before = s.at
			}
			f.note("%s: after the crash of server %d at %v, the longest wait for a round is "+
				"%.1f ms.", series, c.server, c.at, milliseconds(longest))
		}
	}
	f.note("%s has %.2g times the throughput of %s over the whole run (the dissertation: about "+
		"4.6).", seriesPlus, averages[0]/averages[1], seriesAllConcur)
	f.note("Detectors: a heartbeat each millisecond, suspicion after 10 ms without one.")
	return nil
}

// expectation makes figure 6.8. It only uses the runs of figure 6.6, and arithmetic.
func expectation(ctx context.Context, f *Figure, options Options) error {
	f.panel(Panel{Name: "latency", Title: "Expected latency, AllConcur = 1", X: "servers",
		Y: "expected latency / AllConcur's", Unit: "ratio", LogX: true})
	f.panel(Panel{Name: "throughput", Title: "Expected throughput, AllConcur = 1", X: "servers",
		Y: "expected throughput / AllConcur's", Unit: "ratio", LogX: true})
	all, err := comparisonCases(options)
	if err != nil {
		return err
	}
	var cases []ledgerCase
	for _, c := range all {
		if c.deployment.name == singleDatacentre.name &&
			(c.series == seriesPlusEarly || c.series == seriesAllConcur) {
			cases = append(cases, c)
		}
	}
	results, err := sweep(ctx, options, cases, ledgerCase.weight, func(ctx context.Context,
		c ledgerCase) (measurement, error) {
		return c.run(ctx)
	})
	if err != nil {
		return err
	}
	for i := 0; i < len(results); i += 2 {
		plus, reliable := results[i], results[i+1]
		m := failureModel{unreliable: seconds(plus.latency.median) / 2,
			reliable: seconds(reliable.latency.median)}
		x := float64(cases[i].group.servers)
		add := func(series string, latency, throughput float64) {
			f.add("latency", series, x, latency/m.reliable)
			f.add("throughput", series, x, throughput*m.reliable)
		}
		add("nf", seconds(plus.latency.median), plus.messages/reliable.messages/m.reliable)
		for _, length := range []int{1000, 100, 10, 5, 3} {
			add(fmt.Sprintf("lambda=%d", length), m.latency(length), m.throughput(length))
		}
		add("wc", m.latencyWorst(), m.throughputWorst())
	}
	latency, throughput := f.find("latency"), f.find("throughput")
	most := func(p *Panel, series string, invert bool) float64 {
		best := 0.0
		for _, point := range p.Points {
			y := point.Y
			if invert {
				y = 1 / y
			}
			if point.Series == series {
				best = max(best, y)
			}
		}
		return best
	}
	f.note("Worst case: up to %.2g times the latency and %.2g times less throughput than %s "+
		"(the dissertation: 3.5 and 2).", most(latency, "wc", false),
		most(throughput, "wc", true), seriesAllConcur)
	f.note("Ten unreliable rounds between failures: up to %.2g times lower latency and %.2g "+
		"times higher throughput (the dissertation: 1.9 and 3.5).",
		most(latency, "lambda=10", true), most(throughput, "lambda=10", false))
	f.note("The unreliable round is half of the latency of %s, which A-delivers after two "+
		"rounds, as the model has it.", seriesPlusEarly)
	f.note("nf is without failures, as measured; wc is the worst case; lambda is the length of " +
		"the sequences of unreliable rounds between two failures.")
	return nil
}

// failureModel is the model of [Poke19, section 6.5.2]. Its fields are the expected durations of a
// round, in seconds.
type failureModel struct {
	unreliable, reliable float64
}

// latency returns the expected latency if failures leave sequences of the given number of
// unreliable rounds, 3 or more.
func (m failureModel) latency(length int) float64 {
	return 2*m.unreliable + (m.unreliable+2*m.reliable)/float64(length)
}

// throughput returns the expected throughput, in rounds a second.
func (m failureModel) throughput(length int) float64 {
	l := float64(length)
	return (1 - 1/l) / (m.unreliable + m.reliable/l)
}

// latencyWorst returns the expected latency if exactly two unreliable rounds lie between any two
// reliable ones, the second of them incomplete.
func (m failureModel) latencyWorst() float64 { return 3*m.unreliable + 2*m.reliable }

// throughputWorst returns the expected throughput in that case, in rounds a second.
func (m failureModel) throughputWorst() float64 { return 1 / (2*m.unreliable + m.reliable) }
