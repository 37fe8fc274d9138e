package plan

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/sim/network"
)

// within reports whether got differs from want by at most a share of want.
func within(got, want, share float64) bool { return math.Abs(got-want) <= share*math.Abs(want) }

func deploymentOf(t testing.TB, name string) Deployment {
	t.Helper()
	d, err := DeploymentOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDegrees compares with tables 5.3 and 6.2 of [Poke19].
func TestDegrees(t *testing.T) {
	t.Parallel()
	lan := deploymentOf(t, "lan")
	for servers, want := range map[int][2]int{ // degree, and diameter or 0 if the tables have none
		6: {3, 2}, 8: {3, 2}, 11: {3, 3}, 16: {4, 2}, 22: {4, 3}, 32: {4, 3}, 45: {4, 4},
		64: {5, 4}, 90: {5, 3}, 128: {5, 4}, 256: {7, 4}, 512: {8, 3}, 1024: {11, 4},
		18: {4, 0}, 30: {4, 0}, 72: {5, 0}, 75: {5, 0}, 140: {6, 0}, 225: {6, 0}, 242: {7, 0},
		450: {8, 0}, 455: {8, 0},
	} {
		if (testing.Short() || raceEnabled) && servers > 256 {
			continue
		}
		p, err := Make(Question{Servers: servers, Deployment: lan})
		if err != nil {
			t.Fatal(err)
		}
		if p.Degree != want[0] || p.Connectivity != want[0] || want[1] != 0 &&
			p.Diameter != want[1] || !p.Meets {
			t.Errorf("n=%d: degree %d, connectivity %d, diameter %d, meets %t; want %v", servers,
				p.Degree, p.Connectivity, p.Diameter, p.Meets, want)
		}
		if p.FaultDiameter < p.Diameter || p.Tolerated != digraph.Tolerated(p.Overlay) {
			t.Errorf("n=%d: fault diameter %d, tolerated %d", servers, p.FaultDiameter, p.Tolerated)
		}
	}
}

// TestFigure67 compares the deployment of figure 6.7 with the text of the paper: 72 servers in one
// datacentre, messages of 1 kB, rounds of AllConcur of about 3.3 ms and about 85,000 transactions a
// second.
func TestFigure67(t *testing.T) {
	t.Parallel()
	p, err := Make(Question{Servers: 72, Deployment: deploymentOf(t, "dc"), Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Reliable.Duration.Seconds(); !within(got, 3.3e-3, 0.1) {
		t.Errorf("a reliable round lasts %v", p.Reliable.Duration)
	}
	if !within(p.Reliable.Throughput, 85_000, 0.1) {
		t.Errorf("throughput %v", p.Reliable.Throughput)
	}
	if p.Reliable.Bound != ResourceLink || p.Reliable.Latency != p.Reliable.Duration ||
		p.Unreliable.Latency != 2*p.Unreliable.Duration {
		t.Errorf("%+v, %+v", p.Reliable, p.Unreliable)
	}
	if !(p.Unreliable.Latency < p.Uniform && p.Uniform < 3*p.Unreliable.Duration) {
		t.Errorf("uniform latency %v", p.Uniform)
	}
	// A server receives messages, and each vote on fewer than 2d edges.
	if p.Eventual.Duration <= p.Reliable.Duration ||
		p.Eventual.Received <= p.Reliable.Received ||
		p.Eventual.Received >= 3*p.Reliable.Received {
		t.Errorf("%+v", p.Eventual)
	}
	if p.Received != 71*5 || p.ReceivedFailures != 71*5+4*25 {
		t.Errorf("work %d, %d", p.Received, p.ReceivedFailures)
	}
}

// TestLogP: if all paths are equal and messages are short, the models are exactly those of [Poke19,
// section 5.6].
func TestLogP(t *testing.T) {
	t.Parallel()
	short := Deployment{Name: "short", Overhead: network.TCP.Overhead,
		build: func(servers int) (site, error) {
			model := network.LogP{Latency: network.TCP.Latency}.Model(servers)
			return site{model: model, servers: servers}, nil
		}}
	for _, servers := range []int{6, 8, 22, 64, 90} {
		p, err := Make(Question{Servers: servers, Deployment: short})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.Reliable.Depth, network.TCP.Depth(p.Degree, p.Diameter)/2; got != want {
			t.Errorf("n=%d: depth %v, want %v", servers, got, want)
		}
		if got, want := p.Reliable.Work, network.TCP.Work(servers, p.Degree); got != want {
			t.Errorf("n=%d: work %v, want %v", servers, got, want)
		}
		if p.Reliable.Pace > p.Reliable.Depth || p.Reliable.Duration < p.Reliable.Pace ||
			p.Reliable.Duration < p.Reliable.Work {
			t.Errorf("n=%d: %+v", servers, p.Reliable)
		}
	}
}

// TestPace: if paths differ, the circles of servers that wait for each other determine the pace.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		times       []time.Duration
		depth, pace time.Duration
	}{
		{"alone", []time.Duration{0}, 0, 0},
		{"there and back", []time.Duration{0, 10, 4, 0}, 10, 7},
		{"a circle of three", []time.Duration{0, 9, 1, 1, 0, 9, 9, 1, 0}, 9, 9},
		{"a slow one nobody hears", []time.Duration{0, 5, 1, 5, 0, 1, 2, 2, 0}, 5, 5},
	} {
		w := ways{n: int(math.Sqrt(float64(len(test.times)))), times: test.times}
		if w.depth() != test.depth || w.pace() != test.pace {
			t.Errorf("%s: depth %d, pace %d, want %d, %d", test.name, w.depth(), w.pace(),
				test.depth, test.pace)
		}
	}
}

// TestRobust checks that the formulas yield the statements of [Poke19, section 6.5.2], for the
// ratios of durations that it measured.
func TestRobust(t *testing.T) {
	t.Parallel()
	const u = time.Millisecond
	// δr = 6.4 δu, the largest ratio: for λ = 10, "up to 1.9x lower expected latency and up to 3.5x
	// higher expected throughput than AllConcur".
	f := robust(u, 6400*time.Microsecond, 10, 100*10*u/10, 0, 1)
	if !within(f.Rounds, 10, 1e-9) || !within(6.4e-3/f.Latency.Seconds(), 1.9, 0.02) ||
		!within(f.Throughput*6.4e-3, 3.5, 0.02) {
		t.Errorf("lambda 10: %+v", f)
	}
	// δr = 2 δu, the smallest ratio: "in the worst case up to 3.5x higher expected latency and up
	// to 2x lower expected throughput than AllConcur".
	f = robust(u, 2*u, 1, time.Hour, 10*u, 1)
	if f.WorstLatencyMany != 7*u || !within(f.WorstThroughput*2e-3, 0.5, 1e-9) ||
		f.WorstLatency != 5*u || f.Pause != 12*u {
		t.Errorf("worst case: %+v", f)
	}
	if !within(f.Latency.Seconds(), 2e-3, 1e-5) || !within(f.Throughput, 1000, 1e-5) {
		t.Errorf("hardly a failure: %+v", f)
	}
}

// TestExcess: "a system of 256 servers connected via a digraph of degree 7 would finish 1 million
// rounds with 𝒟 <= D_f with a probability larger than 99.99 %" [Poke19, section 5.6.2.2].
func TestExcess(t *testing.T) {
	t.Parallel()
	e := excess(256, 7, network.TCP.Overhead, 2*365*24*time.Hour)
	if e.Million >= 1e-4 || e.Million < 1e-5 || !within(e.Round*1e6, e.Million, 1e-3) {
		t.Errorf("%+v", e)
	}
}

// TestUnreliability checks agreement with the choice of the degree.
func TestUnreliability(t *testing.T) {
	t.Parallel()
	for _, n := range []int{11, 45, 128, 455, 1024} {
		d, err := digraph.Degree(n, digraph.Target{})
		if err != nil {
			t.Fatal(err)
		}
		got := Unreliability(n, d-1, digraph.DefaultPeriod, digraph.DefaultMTTF)
		less := Unreliability(n, d-2, digraph.DefaultPeriod, digraph.DefaultMTTF)
		if got > 1e-6 || got <= 0 || d > 3 && less <= 1e-6 {
			t.Errorf("n=%d, d=%d: %v, with a degree less %v", n, d, got, less)
		}
	}
	if got := Unreliability(2, 0, time.Hour, time.Hour); !within(got, 1-math.Exp(-2), 1e-12) {
		t.Errorf("any of two within their mean time: %v", got)
	}
	if Unreliability(3, 3, time.Hour, time.Hour) != 0 ||
		Unreliability(3, -1, time.Hour, time.Hour) < 1-1e-12 {
		t.Error("more than all fail, or fewer than none")
	}
}

// TestInaccuracy checks that Inaccuracy is the complement of the detector's accuracy [Poke19,
// section 5.2.1.1], as far as that can be distinguished from one:
//
//	(1 - Π_{k=1..⌊Δto/Δhb⌋} Pr[T > Δto - k·Δhb])^(n·d)
func TestInaccuracy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers, degree := rapid.IntRange(1, 64).Draw(t, "servers"),
			rapid.IntRange(0, 8).Draw(t, "degree")
		beat := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "heartbeat")) * time.Millisecond
		timeout := beat + time.Duration(rapid.Int64Range(0, 5000).Draw(t, "more"))*time.Millisecond
		delay := Delay{Base: time.Duration(rapid.Int64Range(0, 100).Draw(t,
			"base")) * time.Millisecond,
			Tail: time.Duration(rapid.Int64Range(0, 1000).Draw(t, "tail")) * time.Millisecond}
		wrong, err := Inaccuracy(servers, degree, beat, timeout, delay.Exceeds)
		if err != nil {
			t.Fatal(err)
		}
		allLate := 1.0
		for k := time.Duration(1); k <= timeout/beat; k++ {
			allLate *= delay.Exceeds(timeout - k*beat)
		}
		right := math.Pow(1-allLate, float64(servers)*float64(degree))
		if math.Abs(1-right-wrong) > 1e-10 {
			t.Fatalf("%v and %v do not add up to 1", right, wrong)
		}
	})
	tiny, err := Inaccuracy(8, 3, 100*time.Millisecond, time.Second,
		Delay{Tail: 15 * time.Millisecond}.Exceeds)
	if err != nil || tiny <= 0 || tiny > 1e-100 {
		t.Errorf("a probability beside 1 is lost: %v, %v", tiny, err)
	}
	for _, p := range []float64{-1, 2, math.NaN()} {
		if _, err := Inaccuracy(8, 3, time.Second, time.Second, func(time.Duration) float64 {
			return p
		}); !errors.Is(err, ErrQuestion) {
			t.Errorf("%v is taken for a probability", p)
		}
	}
	if _, err := Inaccuracy(0, 3, time.Second, time.Second, Delay{}.Exceeds); !errors.Is(err,
		ErrQuestion) {
		t.Error("no servers")
	}
}

// TestHeartbeats checks that the settings are accurate enough, and that the next shorter ones are
// not.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, d := rapid.IntRange(2, 1000).Draw(t, "n"), rapid.IntRange(1, 12).Draw(t, "d")
		delay := Delay{Base: time.Duration(rapid.Int64Range(0, 20_000).Draw(t,
			"base")) * time.Microsecond,
			Tail: time.Duration(rapid.Int64Range(0, 50_000).Draw(t, "tail")) * time.Microsecond}
		wanted := math.Pow(10, -rapid.Float64Range(0.1, 12).Draw(t, "nines"))
		independent, together, err := heartbeats(n, d, delay, 24*time.Hour, wanted)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []Heartbeat{independent, together} {
			if h.WrongInPeriod > wanted || h.Timeout != 10*h.Period ||
				h.Period < time.Millisecond || h.Period%time.Millisecond != 0 {
				t.Fatalf("%+v for %v", h, wanted)
			}
		}
		if independent.Timeout > together.Timeout {
			t.Fatalf("%v is not careful beside %v", together.Timeout, independent.Timeout)
		}
		if shorter := together.Period - time.Millisecond; shorter > 0 {
			wrong := probabilityOfAny(delay.Exceeds(9*shorter), float64(n*d))
			if probabilityOfAny(wrong, float64(24*time.Hour)/float64(shorter)) <= wanted {
				t.Fatalf("a timeout of %v would be enough", 10*shorter)
			}
		}
	})
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	lan := deploymentOf(t, "lan")
	negative := lan
	negative.Tail = -1
	for _, q := range []Question{
		{Deployment: lan}, {Servers: ServersMax + 1, Deployment: lan}, {Servers: 3},
		{Servers: 3, Deployment: lan, Batch: -1}, {Servers: 3, Deployment: negative},
		{Servers: 3, Deployment: lan, Batch: BatchMax + 1},
		{Servers: 3, Deployment: lan, Transaction: -1},
		{Servers: 3, Deployment: lan, Batch: BatchMax, Transaction: TransactionMax},
		{Servers: 3, Deployment: lan, Accuracy: 1}, {Servers: 3, Deployment: lan, Accuracy: -1},
		{Servers: 3, Deployment: lan, Accuracy: math.NaN()},
	} {
		if _, err := Make(q); !errors.Is(err, ErrQuestion) {
			t.Errorf("%d servers, batch %d: %v", q.Servers, q.Batch, err)
		}
	}
	if _, err := Make(Question{Servers: 3, Deployment: lan,
		Target: digraph.Target{Nines: 99}}); !errors.Is(err, digraph.ErrTarget) {
		t.Errorf("99 nines: %v", err)
	}
	if _, err := DeploymentOf("moon"); !errors.Is(err, ErrQuestion) {
		t.Errorf("the moon: %v", err)
	}
}

// TestAnyQuestion checks that every plan makes sense.
func TestAnyQuestion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(deployments).Draw(t, "deployment")
		d.Window = rapid.SampledFrom([]int{0, 65_535}).Draw(t, "window")
		q := Question{
			Servers: rapid.IntRange(1, 60).Draw(t, "servers"), Deployment: d,
			Batch: rapid.IntRange(0, 5000).Draw(t, "batch"),
			Target: digraph.Target{Nines: rapid.IntRange(1, 9).Draw(t, "nines"),
				MTTF: time.Duration(rapid.IntRange(24, 100_000).Draw(t, "hours")) * time.Hour},
		}
		p, err := Make(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []Mode{p.Unreliable, p.Reliable, p.Eventual} {
			if m.Duration <= 0 || m.Latency < m.Duration || !(m.Throughput > 0) ||
				m.Duration < m.Pace || m.Depth < m.Pace {
				t.Fatalf("%+v", m)
			}
		}
		if p.Failures.Latency < p.Unreliable.Latency ||
			p.Failures.Throughput > p.Unreliable.Throughput || p.Excess.Round < 0 ||
			p.Excess.Million > 1 {
			t.Fatalf("%+v, %+v", p.Failures, p.Excess)
		}
		if p.Question.Servers >= 6 && p.Connectivity == p.Degree &&
			p.Degree < p.Question.Servers-1 && p.Tolerated == p.Degree-1 && !p.Meets {
			t.Fatalf("degree %d of %d servers does not meet its own target: %v", p.Degree,
				p.Question.Servers, p.Unreliability)
		}
	})
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, d := range deployments {
		for servers := 1; servers <= 90; servers++ {
			s, err := d.build(servers)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[int]bool{}
			for server := range servers {
				place := s.place(server)
				if place < 0 || place >= s.model.Servers || seen[place] || s.city > 0 &&
					place/s.city != s.cityOf(server) {
					t.Fatalf("%s of %d: server %d at %d of %d", d.Name, servers, server, place,
						s.model.Servers)
				}
				seen[place] = true
			}
		}
	}
}

func BenchmarkMake(b *testing.B) {
	europe := deploymentOf(b, "europe")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Make(Question{Servers: 128, Deployment: europe}); err != nil {
			b.Fatal(err)
		}
	}
}
