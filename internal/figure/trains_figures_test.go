package figure

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/plan"
)

// TestTrainsEfficiency holds what runs count against the formulas and against Table II of [TRAINS]:
// the paper's layout within a thousandth of the formula, the house's within a hundredth.
func TestTrainsEfficiency(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "trains-II", Options{Quick: true})
	pote := f.find("pote")
	for _, bytes := range pote.xs() {
		ring, err := plan.RingOf(5, int(bytes), plan.TrainPaper)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			series           string
			formula, allowed float64
		}{
			{seriesTrainsPaper, ring.Trains(), 0.001}, {seriesTrainsHouse, ring.Trains(), 0.01},
			{seriesTrainsHouse, ring.TrainsInHouse(), 0.001}, {seriesLCR, ring.LCR(), 0.001},
			{seriesTrainsFormula, ring.Trains(), 1e-5}, {seriesLCRFormula, ring.LCR(), 1e-5},
		} {
			got, ok := pote.at(c.series, bytes)
			if want := 100 * c.formula; !ok || math.Abs(got-want) > c.allowed*want {
				t.Errorf("%v bytes: %s has %v %%, want %v %%", bytes, c.series, got, want)
			}
		}
		for _, pair := range [][2]string{{seriesTrainsInPaper, seriesTrainsPaper},
			{seriesLCRInPaper, seriesLCR}} {
			got, _ := pote.at(pair[1], bytes)
			if want, is := pote.at(pair[0], bytes); is && math.Abs(got-want) > 0.1 {
				t.Errorf("%v bytes: %s has %v %%, published are %v %%", bytes, pair[1], got, want)
			}
		}
	}
	// What the authors measured has processors besides.
	if least, most := f.find("throughput").ratios(seriesTrainsPaper,
		seriesTrainsInPaper); least < 1 || most > 1.05 {
		t.Errorf("throughput is %.3f to %.3f of what is published", least, most)
	}
	table, _, _ := write(t, f)
	for _, text := range []string{"peak of 250 % at 10", "257 % there", "643 % at 1"} {
		if !strings.Contains(table, text) {
			t.Errorf("the figure does not say %q:\n%s", text, table)
		}
	}
}

// TestTrainsThroughputOfLCR: the published throughput of LCR lies below that of quick processors.
func TestTrainsThroughputOfLCR(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "trains-I", Options{Quick: true})
	for _, panel := range []string{"throughput", "mte"} {
		if least, most := f.find(panel).ratios(seriesSimulated, seriesPublished); least < 1 ||
			most > 1.25 {
			t.Errorf("%s is %.3f to %.3f of what is published", panel, least, most)
		}
	}
}

// TestTrainsLatency holds the rounds that messages really take against the formulas and against
// Table III of [TRAINS].
func TestTrainsLatency(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "trains-III", Options{})
	latency := f.find("latency")
	if got := latency.xs(); !slices.Equal(got, []float64{2, 4, 6, 8}) {
		t.Errorf("%v servers", got)
	}
	for _, panel := range []struct {
		name   string
		groups [][]string
	}{
		{"latency", [][]string{{seriesTrainsInPaper, seriesTrainsFormula, seriesTrainsPaper},
			{seriesLCRInPaper, seriesLCRFormula, seriesLCR}}},
		{"alteration", [][]string{{seriesPublished, "formula", seriesSimulated}}},
	} {
		for _, group := range panel.groups {
			for _, other := range group[1:] {
				if least, most := f.find(panel.name).ratios(other, group[0]); least < 0.999 ||
					most > 1.001 {
					t.Errorf("%s is %v to %v of what is published", other, least, most)
				}
			}
		}
	}
	for _, servers := range []int{3, 5, 7, 12} {
		ring, err := plan.RingOf(servers, 1, plan.TrainPaper)
		if err != nil {
			t.Fatal(err)
		}
		trained, err := trainsLatency(servers)
		if err != nil || trained != ring.TrainsLatency() {
			t.Errorf("%d servers: %v rounds, want %v, %v", servers, trained, ring.TrainsLatency(),
				err)
		}
		linked, err := lcrLatency(servers)
		if err != nil || linked != ring.LCRLatency() {
			t.Errorf("%d servers: %v rounds with LCR, want %v, %v", servers, linked,
				ring.LCRLatency(), err)
		}
	}
}

// TestTrainsChart finds what section III-E of [TRAINS] says of its figure 1, by its names.
func TestTrainsChart(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "trains-1", Options{})
	at := -1
	for _, line := range []string{"B -> A  t_000", "A -> B  t_011(w_A1m0)", "B -> A  t_100",
		"A -> B  t_111(w_A1m2)", "B -> A  t_021(w_B1m1)", "B -> A  t_042(w_B2m5)",
		"A A-delivers w_A1m0 and w_B1m1", "A -> B  t_050(w_A0m8)"} {
		next := slices.IndexFunc(f.Notes, func(note string) bool {
			return strings.HasSuffix(note, " "+line)
		})
		if next <= at {
			t.Errorf("%q is not said, or not in its place:\n%s", line, strings.Join(f.Notes, "\n"))
		}
		at = next
	}
	// Both servers A-deliver the same, and each train is at one server after the other.
	for _, train := range []string{"train 0", "train 1"} {
		var before *Point
		for _, point := range f.find("chart").Points {
			if point.Series != train {
				continue
			}
			if before != nil && (point.X != before.X+1 || point.Y == before.Y) {
				t.Errorf("%s is at %v in round %v, and at %v in round %v", train, before.Y,
					before.X, point.Y, point.X)
			}
			before = &point
		}
	}
}
