package figure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

func mustGroup(t testing.TB, servers int) *group {
	t.Helper()
	g, err := newGroup(servers)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustMeasure(t testing.TB, e experiment) measurement {
	t.Helper()
	m, err := e.measure(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTwoServers: two servers that A-broadcast at once agree when each has the other's message:
// after L + 2o, and again after as long.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	g := mustGroup(t, 2)
	logp := network.TCP
	logp.Rate = 0
	m := mustMeasure(t, experiment{model: logp.Model(2), engine: g.engines(seriesAllConcur, 0),
		load: load{bytes: 64}, warmUp: 2, window: 10})
	if m.latency.median != logp.Transmission() || m.latency.low != m.latency.high {
		t.Errorf("latency %+v, want L + 2o = %v", m.latency, logp.Transmission())
	}
	if want := 2 / seconds(logp.Transmission()); m.messages < want*0.999 ||
		m.messages > want*1.001 {
		t.Errorf("%f messages/s, want %f", m.messages, want)
	}
	// AllConcur+ delivers uniformly when a majority is two rounds further. With two servers, that
	// takes three rounds.
	m = mustMeasure(t, experiment{model: logp.Model(2), engine: g.engines(seriesPlusEarly, 0),
		load: load{bytes: 64}, warmUp: 2, window: 10})
	if m.latency.median != 2*logp.Transmission() {
		t.Errorf("latency %+v, want two rounds of %v", m.latency, logp.Transmission())
	}
}

// TestThroughputStaysWithinTheLinks: whatever the algorithm, a server A-delivers no more than its
// link can carry, and most algorithms come near their own bound.
func TestThroughputStaysWithinTheLinks(t *testing.T) {
	t.Parallel()
	const servers, batch = 32, 64
	model, err := network.SDC(servers)
	if err != nil {
		t.Fatal(err)
	}
	g := mustGroup(t, servers)
	rate := float64(model.HostRate) / 8
	// Each message comes over the link at least this often. With AllConcur, it comes once from each
	// predecessor, except messages that go back to where they came from.
	for series, copies := range map[string]float64{seriesAllConcur: 3, seriesPlus: 1,
		seriesAllGather: 1, seriesLCR: 1, seriesPaxos: 1, seriesUnreliable: 1} {
		m, err := ledgerCase{deployment: singleDatacentre, series: series, group: g, batch: batch,
			warmUp: 3, window: 4}.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		bound := rate / copies / (1 - 1.0/servers)
		if m.bytes <= 0 || m.bytes > bound {
			t.Errorf("%s: %.0f bytes/s are A-delivered, the link carries %.0f", series, m.bytes,
				bound)
		}
		if series == seriesPlus && m.bytes < bound/2 {
			t.Errorf("%s: %.0f bytes/s are A-delivered, the link carries %.0f", series, m.bytes,
				bound)
		}
	}
}

// TestRatios checks that the ratios of figure 6.6 are plausible, for one size.
func TestRatios(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("a million events")
	}
	g := mustGroup(t, 72)
	results := map[string]measurement{}
	for _, series := range []string{seriesPlus, seriesPlusEarly, seriesAllConcur, seriesEarlyAgree,
		seriesAllGather, seriesLCR} {
		m, err := ledgerCase{deployment: singleDatacentre, series: series, group: g,
			batch: batchFixed, warmUp: 3, window: 5}.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		results[series] = m
	}
	within := func(what string, ratio, least, most float64) {
		if ratio < least || ratio > most {
			t.Errorf("%s: %.2f, want %.2f to %.2f", what, ratio, least, most)
		}
	}
	latency := func(series string) float64 { return seconds(results[series].latency.median) }
	within("AllConcur's latency in ms (the dissertation: about 3.3)", 1000*latency(seriesAllConcur),
		3, 3.6)
	within("throughput over AllConcur's",
		results[seriesPlus].messages/results[seriesAllConcur].messages, 3, 6.4)
	within("throughput over AllGather's",
		results[seriesPlus].messages/results[seriesAllGather].messages, 0.79, 1.01)
	within("latency over AllGather's", latency(seriesPlusEarly)/latency(seriesAllGather), 2, 2.6)
	within("AllConcur's latency over AllConcur+'s",
		latency(seriesAllConcur)/latency(seriesPlusEarly), 1.5, 3.2)
	within("throughput over LCR's", results[seriesPlus].messages/results[seriesLCR].messages,
		2, 6.4)
	within("AllConcur-w/EA's latency over AllConcur's",
		latency(seriesEarlyAgree)/latency(seriesAllConcur), 1.01, 2)
}

// TestCrash: after a crash the group waits for the detector, and goes on without the server.
func TestCrash(t *testing.T) {
	t.Parallel()
	const servers = 8
	model, err := network.SDC(servers)
	if err != nil {
		t.Fatal(err)
	}
	g := mustGroup(t, servers)
	const crash, timeout, period = 20 * time.Millisecond, 10 * time.Millisecond, time.Millisecond
	for _, series := range []string{seriesAllConcur, seriesPlus} {
		var removed []order.ServerID
		var gap, last time.Duration
		after := 0
		mustMeasure(t, experiment{
			model: model, engine: g.engines(series, 0), load: load{bytes: 1000},
			until: 60 * time.Millisecond, reliable: g.reliable,
			failures: []failure{{crash, 3}}, detector: heartbeat{period: period, timeout: timeout},
			watch: func(at time.Duration, server order.ServerID, delivery order.Delivery) {
				if server != 0 {
					return
				}
				gap, last = max(gap, at-last), at
				removed = append(removed, delivery.Removed...)
				if len(removed) > 0 && len(delivery.Messages) == servers-1 {
					after++
				}
			},
		})
		if len(removed) != 1 || removed[0] != 3 || after < 50 {
			t.Errorf("%s: removed %v, %d rounds after that", series, removed, after)
		}
		if gap < timeout-period-time.Millisecond || gap > timeout+5*time.Millisecond {
			t.Errorf("%s: %v without a round, the detector takes %v", series, gap, timeout)
		}
	}
}

// TestJoin: a server that crashed and joins is in the rounds of the next eon.
func TestJoin(t *testing.T) {
	t.Parallel()
	const servers = 8
	for _, series := range []string{seriesAllConcur, seriesPlus} {
		overlays := newEonOverlays(servers)
		var sizes []int
		rounds := map[order.ServerID]order.Round{}
		mustMeasure(t, experiment{
			model: network.InfiniBand.Model(servers),
			load:  load{perMinute: 60 * 10_000, requestBytes: 64, payloadMax: 1 << 16},
			engine: func(self order.ServerID) (order.Broadcaster, error) {
				return newEonServer(series, self, overlays)
			},
			failures: []failure{{5 * time.Millisecond, 3}, {6 * time.Millisecond, 5}},
			joins:    []failure{{30 * time.Millisecond, 3}, {35 * time.Millisecond, 5}},
			until:    45 * time.Millisecond, detector: heartbeat{period: time.Millisecond,
				timeout: 10 * time.Millisecond},
			watch: func(_ time.Duration, server order.ServerID, delivery order.Delivery) {
				if last, began := rounds[server]; began && server != 3 && server != 5 &&
					delivery.Round != last+1 {
					t.Errorf("%s: server %d A-delivers round %d after %d", series, server,
						delivery.Round, last)
				}
				rounds[server] = delivery.Round
				if size := len(delivery.Messages); server == 0 &&
					(len(sizes) == 0 || sizes[len(sizes)-1] != size) {
					sizes = append(sizes, size)
				}
			},
		})
		if len(sizes) < 4 || sizes[0] != servers || sizes[len(sizes)-2] != servers-1 ||
			sizes[len(sizes)-1] != servers {
			t.Errorf("%s: the rounds have %v messages, want all, fewer, all but one, all", series,
				sizes)
		}
		if rounds[3]+2 < rounds[0] || rounds[5]+2 < rounds[0] {
			t.Errorf("%s: the servers' last rounds are %v", series, rounds)
		}
	}
}

func TestRunsEnd(t *testing.T) {
	t.Parallel()
	g := mustGroup(t, 3)
	e := experiment{model: network.TCP.Model(3), engine: g.engines(seriesAllConcur, 0),
		load: load{bytes: 8}, warmUp: 1, window: 1000, until: time.Millisecond}
	if _, err := e.measure(context.Background()); !errors.Is(err, errStuck) {
		t.Errorf("a window that does not end: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.measure(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is cancelled: %v", err)
	}
	e.load = load{perMinute: 60 * 100_000_000, requestBytes: 64, payloadMax: 1 << 20}
	e.warmUp, e.window, e.until = 20, 4, time.Second
	if m := mustMeasure(t, e); !m.unstable {
		t.Errorf("requests past what links carry: %+v is called stable", m)
	}
}

// TestRequests: the k-th request has arrived at its instant, and not before.
func TestRequests(t *testing.T) {
	t.Parallel()
	const servers = 7
	for _, perMinute := range []int64{1, 200, 600_000, 6_000_000_000} {
		l := load{perMinute: perMinute}
		for server := range servers {
			for _, k := range []int64{1, 2, 3, 1000} {
				at := l.next(k, server, servers)
				if got := l.arrived(at, server, servers); got < k {
					t.Errorf("%d a minute: %d requests at server %d by %v, want %d", perMinute, got,
						server, at, k)
				}
				if at > 0 && l.arrived(at-1, server, servers) >= k {
					t.Errorf("%d a minute: request %d at server %d came before %v", perMinute,
						k, server, at)
				}
			}
		}
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	if s := spreadOf(nil); s != (spread{}) {
		t.Errorf("nothing: %+v", s)
	}
	if s := spreadOf([]time.Duration{7}); s.median != 7 || s.low != 7 || s.high != 7 {
		t.Errorf("one: %+v", s)
	}
	samples := make([]time.Duration, 100)
	for i := range samples {
		samples[i] = time.Duration((i*37)%100 + 1)
	}
	// The 95 % interval of 100 samples' median: their 40th or 41st to 60th or 61st.
	if s := spreadOf(samples); s.median != 51 || s.low != 41 || s.high != 61 || s.count != 100 {
		t.Errorf("a hundred: %+v", s)
	}
}

// TestFailureModel checks the model of section 6.5.2, by hand: rounds of 1 and 3 ms.
func TestFailureModel(t *testing.T) {
	t.Parallel()
	m := failureModel{unreliable: 1, reliable: 3}
	near := func(what string, got, want float64) {
		if got < want*0.999999 || got > want*1.000001 {
			t.Errorf("%s: %f, want %f", what, got, want)
		}
	}
	near("latency", m.latency(10), 2+0.7)
	near("throughput", m.throughput(10), 0.9/1.3)
	near("worst latency", m.latencyWorst(), 9)
	near("worst throughput", m.throughputWorst(), 0.2)
	near("throughput of endless sequences", m.throughput(1_000_000_000), 1)
}
