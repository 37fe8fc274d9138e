package figure

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/sim/network"
)

const (
	// transactionBytes is the size of a transaction [Poke19, section 6.5]. batchFixed is how many a
	// message holds in figures that do not vary it.
	transactionBytes = 250
	batchFixed       = 4
)

// deployment is the placement of the servers.
type deployment struct {
	name  string
	model func(servers int) (network.Model, error)
}

var (
	singleDatacentre  = deployment{"sdc", network.SDC}
	severalDatacentre = deployment{"mdc", network.MDC}
)

// ledgerCase is a group of servers of a distributed ledger.
type ledgerCase struct {
	deployment deployment
	series     string
	group      *group
	batch      int
	// warmUp and window are numbers of rounds.
	warmUp, window int
}

// weight estimates the cost of a case.
func (c ledgerCase) weight() float64 {
	n := float64(c.group.servers)
	return n * n * c.group.degree(c.series) * float64(c.warmUp+c.window) *
		(1 + float64(c.batch*transactionBytes)/8192)
}

// run measures a case.
func (c ledgerCase) run(ctx context.Context) (measurement, error) {
	model, err := c.deployment.model(c.group.servers)
	if err != nil {
		return measurement{}, err
	}
	bytes := c.batch * transactionBytes
	return experiment{model: model, engine: c.group.engines(c.series, bytes),
		load: load{bytes: bytes}, warmUp: c.warmUp, window: c.window}.measure(ctx)
}

// windowFor returns how many rounds are measured: the dissertation's hundred in small groups, and
// fewer in large ones, whose rounds are alike and expensive.
func windowFor(servers int, quick bool) int {
	window := max(4, min(100, 1200/servers))
	if quick {
		window = min(12, window)
	}
	return window
}

// ledgerPanels adds the four panels of figures 6.5 and 6.6.
func ledgerPanels(f *Figure, x string, logX bool) {
	for _, d := range []struct {
		name, title string
	}{{"sdc", "One datacentre"}, {"mdc", "Five datacentres"}} {
		f.panel(Panel{Name: d.name + "-latency", Title: d.title + ": latency", X: x,
			Y: "latency [ms]", Unit: "ms", LogX: logX, LogY: true})
		f.panel(Panel{Name: d.name + "-throughput", Title: d.title + ": throughput",
			X: x, Y: "throughput [transactions/s]", Unit: "transactions/s",
			LogX: logX, LogY: true})
	}
}

// runLedger runs cases and adds their points. place returns the series and the x of a case.
func runLedger(ctx context.Context, f *Figure, options Options, cases []ledgerCase,
	place func(ledgerCase) (string, float64)) error {
	results, err := sweep(ctx, options, cases, ledgerCase.weight, func(ctx context.Context,
		c ledgerCase) (measurement, error) {
		m, err := c.run(ctx)
		if err != nil {
			return m, fmt.Errorf("%s, %d servers in %s, %d transactions a message: %w", c.series,
				c.group.servers, c.deployment.name, c.batch, err)
		}
		return m, nil
	})
	if err != nil {
		return err
	}
	for i, m := range results {
		c := cases[i]
		series, x := place(c)
		f.addSpread(c.deployment.name+"-latency", series, x, milliseconds(m.latency.median),
			milliseconds(m.latency.low), milliseconds(m.latency.high))
		f.add(c.deployment.name+"-throughput", series, x, m.messages*float64(c.batch))
	}
	return nil
}

// messageSize makes figure 6.5.
func messageSize(ctx context.Context, f *Figure, options Options) error {
	ledgerPanels(f, "transactions in a message", true)
	sizes := map[string][]int{"sdc": {8, 18, 32, 72, 128, 242, 450}, "mdc": {30, 75, 140, 225, 455}}
	// Messages of large groups and messages of many transactions are both expensive. At this
	// product, links have long been full.
	product := 300_000
	if options.Quick {
		sizes, product = map[string][]int{"sdc": {8, 32, 72}, "mdc": {30, 75}}, 80_000
	}
	var cases []ledgerCase
	for _, d := range []deployment{singleDatacentre, severalDatacentre} {
		for _, n := range sizes[d.name] {
			g, err := newGroup(n)
			if err != nil {
				return err
			}
			for batch := 1; batch <= 4096 && batch*n <= product; batch *= 2 {
				window := max(4, windowFor(n, true)/2)
				if batch >= 256 {
					window = 4
				}
				cases = append(cases, ledgerCase{deployment: d, series: seriesPlus, group: g,
					batch: batch, warmUp: 3, window: window})
			}
		}
	}
	if err := runLedger(ctx, f, options, cases, func(c ledgerCase) (string, float64) {
		return fmt.Sprintf("%s n=%d", c.series, c.group.servers), float64(c.batch)
	}); err != nil {
		return err
	}
	for _, d := range []struct {
		name, title string
		stated      string
	}{{"sdc", "one datacentre", "320,000"}, {"mdc", "five datacentres", "27,000"}} {
		least := 0.0
		p := f.find(d.name + "-throughput")
		for _, series := range p.Series {
			best := 0.0
			for _, point := range p.Points {
				if point.Series == series {
					best = max(best, point.Y)
				}
			}
			if least == 0 || best < least {
				least = best
			}
		}
		f.note("In %s every deployment's best throughput is at least %s transactions/s; the "+
			"dissertation: exceeds %s.", d.title, number(least), d.stated)
	}
	return nil
}

// comparison makes figure 6.6.
func comparison(ctx context.Context, f *Figure, options Options) error {
	ledgerPanels(f, "servers", true)
	cases, err := comparisonCases(options)
	if err != nil {
		return err
	}
	if err := runLedger(ctx, f, options, cases, func(c ledgerCase) (string, float64) {
		return c.series, float64(c.group.servers)
	}); err != nil {
		return err
	}
	for _, d := range []struct {
		name, title string
	}{{"sdc", "One datacentre"}, {"mdc", "Five datacentres"}} {
		latency, throughput := f.find(d.name+"-latency"), f.find(d.name+"-throughput")
		for _, other := range []string{seriesAllConcur, seriesEarlyAgree, seriesLCR, seriesPaxos} {
			_, slower := latency.ratios(other, seriesPlus)
			_, more := throughput.ratios(seriesPlus, other)
			f.note("%s: %s takes up to %s times as long as %s, which has up to %s times the "+
				"throughput (the dissertation: %s).", d.title, other,
				number(significant(slower, 3)), seriesPlus, number(significant(more, 3)),
				statedRatios[d.name+other])
		}
		slowerLeast, slowerMost := latency.ratios(seriesPlus, seriesAllGather)
		shareLeast, shareMost := throughput.ratios(seriesPlus, seriesAllGather)
		f.note("%s: %s has %s to %s times %s's latency (the dissertation: about 2 to 2.6) and "+
			"%.0f to %.0f %% of its throughput (79 to 100).", d.title, seriesPlus,
			number(significant(slowerLeast, 3)), number(significant(slowerMost, 3)),
			seriesAllGather, 100*shareLeast, 100*shareMost)
	}
	f.note("%s delivers uniformly and takes its detector for perfect; %s is what the "+
		"dissertation's section 6.2.3 describes; %s is production's default, which forks under "+
		"no detector.",
		seriesPlus, seriesPlusEarly, seriesPlusEventual)
	return nil
}

// statedRatios are the dissertation's ratios, by deployment and series: latency, throughput.
var statedRatios = map[string]string{
	"sdc" + seriesAllConcur: "3.2, 6.4", "mdc" + seriesAllConcur: "3.5, 6.5",
	"sdc" + seriesEarlyAgree: "5, 10", "mdc" + seriesEarlyAgree: "3.7, 6.5",
	"sdc" + seriesLCR: "3.2, 6.3", "mdc" + seriesLCR: "5.2, 8.3",
	"sdc" + seriesPaxos: "158, 318", "mdc" + seriesPaxos: "10, 18",
}

// comparisonCases returns the cases of figure 6.6.
func comparisonCases(options Options) ([]ledgerCase, error) {
	sizes := map[string][]int{"sdc": {8, 18, 32, 72, 128, 242, 450}, "mdc": {30, 75, 140, 225, 455}}
	if options.Quick {
		sizes = map[string][]int{"sdc": {8, 18, 32, 72}, "mdc": {30, 75}}
	}
	var cases []ledgerCase
	for _, d := range []deployment{singleDatacentre, severalDatacentre} {
		for _, n := range sizes[d.name] {
			g, err := newGroup(n)
			if err != nil {
				return nil, err
			}
			for _, series := range []string{seriesPlus, seriesPlusEarly, seriesPlusEventual,
				seriesAllConcur, seriesEarlyAgree, seriesAllGather, seriesLCR,
				seriesPaxos} {
				cases = append(cases, ledgerCase{deployment: d, series: series, group: g,
					batch: batchFixed, warmUp: 3, window: windowFor(n, options.Quick)})
			}
		}
	}
	return cases, nil
}
