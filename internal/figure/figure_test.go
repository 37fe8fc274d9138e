package figure

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func mustMake(t testing.TB, number string, options Options) *Figure {
	t.Helper()
	f, err := Make(context.Background(), number, options)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// write returns the three forms of a figure.
func write(t testing.TB, f *Figure) (table, points, plot string) {
	t.Helper()
	var all [3]bytes.Buffer
	for i, to := range []func(io.Writer) error{f.WriteTable, f.WriteJSON, f.WriteSVG} {
		if err := to(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all[0].String(), all[1].String(), all[2].String()
}

// TestFiguresAreDeterministic: a figure does not depend on the number of concurrent runs.
func TestFiguresAreDeterministic(t *testing.T) {
	t.Parallel()
	tableA, pointsA, plotA := write(t, mustMake(t, "5.10", Options{Quick: true, Workers: 1}))
	tableB, pointsB, plotB := write(t, mustMake(t, "5.10", Options{Quick: true, Workers: 4}))
	if tableA != tableB || pointsA != pointsB || plotA != plotB {
		t.Error("two makes of one figure differ")
	}
}

// TestForms: points are one object a line with the six fields. The plot is well-formed XML and
// shows every series. The table has every x.
func TestForms(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "6.8", Options{Quick: true})
	table, points, plot := write(t, f)
	lines := strings.Split(strings.TrimSuffix(points, "\n"), "\n")
	want := 0
	for _, panel := range f.Panels {
		want += len(panel.Points)
		for _, series := range panel.Series {
			if !strings.Contains(plot, ">"+series+"<") {
				t.Errorf("the plot has no series %q", series)
			}
		}
	}
	if len(lines) != want || want == 0 {
		t.Errorf("%d lines for %d points", len(lines), want)
	}
	for _, line := range lines {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		var point Point
		if err := decoder.Decode(&point); err != nil || point.Figure != "6.8" ||
			point.Unit != "ratio" || point.Y <= 0 {
			t.Fatalf("%q: %v", line, err)
		}
	}
	decoder := xml.NewDecoder(strings.NewReader(plot))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"\n      8 ", "\n     72 "} {
		if !strings.Contains(table, n) {
			t.Errorf("no line %q in %s", n, table)
		}
	}
}

// TestPlotsEscape: text in a plot is escaped.
func TestPlotsEscape(t *testing.T) {
	t.Parallel()
	f := &Figure{Number: "0", Title: `a < b & "c"`}
	f.panel(Panel{Name: "p", Title: "<t>", X: "x&y", Y: "z", Unit: "u", LogX: true})
	f.add("p", "s<>", 1, 2)
	f.add("p", "s<>", 10, 3)
	f.addSpread("p", "other", 10, 5, 4, 6)
	var out bytes.Buffer
	if err := f.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(out.Bytes(), new(struct{})); err != nil {
		t.Errorf("%v in %s", err, out.String())
	}
	if !strings.Contains(out.String(), "a &lt; b &amp; &#34;c&#34;") {
		t.Errorf("the title is not in %s", out.String())
	}
}

func TestUnknownFigures(t *testing.T) {
	t.Parallel()
	if _, err := Make(context.Background(), "6.9", Options{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("figure 6.9: %v", err)
	}
	if About("6.9") != "" {
		t.Error("figure 6.9 is about something")
	}
	want := []string{"4.6", "4.7", "4.8", "4.9", "4.10", "4.11", "5.10", "5.11", "5.12", "5.13",
		"5.14", "6.5", "6.6", "6.7", "6.8", "in-flight", "trains-I", "trains-II", "trains-III",
		"trains-1"}
	if got := Numbers(); !slices.Equal(got, want) {
		t.Errorf("figures %v, want %v", got, want)
	}
	for _, number := range Numbers() {
		if About(number) == "" {
			t.Errorf("figure %s is about nothing", number)
		}
	}
}

func TestFiguresCanBeCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Make(ctx, "6.7", Options{Quick: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled figure: %v", err)
	}
}

// TestSweep: each case runs once, results are in the cases' order, and the first error ends the
// sweep.
func TestSweep(t *testing.T) {
	t.Parallel()
	cases := []int{3, 1, 4, 1, 5, 9, 2, 6}
	weight := func(c int) float64 { return float64(c) }
	told := 0.0
	results, err := sweep(context.Background(), Options{Workers: 3,
		Progress: func(done, total float64) {
			told = done / total
		}}, cases, weight,
		func(_ context.Context, c int) (int, error) { return c * c, nil })
	if err != nil || !slices.Equal(results, []int{9, 1, 16, 1, 25, 81, 4, 36}) || told != 1 {
		t.Errorf("%v, %v, told %f", results, err, told)
	}
	broken := errors.New("broken")
	_, err = sweep(context.Background(), Options{Workers: 2}, cases,
		weight, func(ctx context.Context, c int) (int, error) {
			if c == 9 {
				return 0, broken
			}
			return c, ctx.Err()
		})
	if !errors.Is(err, broken) && !errors.Is(err, context.Canceled) {
		t.Errorf("a case that fails: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.06554: "0.0655", 3.19784: "3.2",
		97.36: "97.4", 145666.4: "145,666", 1e6: "1,000,000", 1234: "1234", 12: "12"} {
		if got := number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	for x, want := range map[float64]string{1e4: "10k", 2.5e6: "2.5M", 512: "512", 0.05: "0.05",
		3e9: "3G"} {
		if got := tickLabel(x); got != want {
			t.Errorf("the label of %v is %q, want %q", x, got, want)
		}
	}
}

// TestTicks: axes have a few ticks, within their range.
func TestTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		log    bool
	}{{[]float64{8, 450}, true}, {[]float64{1, 1e8}, true}, {[]float64{3, 4}, true},
		{[]float64{0, 1000}, false}, {[]float64{5, 5}, false}, {nil, true}} {
		s := newScale(c.values, c.log, 0, 100)
		ticks := s.ticks()
		if len(ticks) < 1 || len(ticks) > 12 || !slices.IsSorted(ticks) {
			t.Errorf("%v: ticks %v", c, ticks)
		}
		for _, tick := range ticks {
			if at := s.at(tick); at < -0.01 || at > 100.01 {
				t.Errorf("%v: tick %v at %f", c, tick, at)
			}
		}
	}
}

// TestFiguresOverTime: the figures over time have samples, marks and notes.
func TestFiguresOverTime(t *testing.T) {
	t.Parallel()
	if testing.Short() || raceEnabled {
		t.Skip("millions of events")
	}
	for _, number := range []string{"5.11", "6.7"} {
		t.Run(number, func(t *testing.T) {
			t.Parallel()
			f := mustMake(t, number, Options{Quick: true})
			for _, panel := range f.Panels {
				if len(panel.Points) < 20 || len(panel.Marks) == 0 {
					t.Errorf("panel %s has %d points and %d marks", panel.Name, len(panel.Points),
						len(panel.Marks))
				}
			}
			if len(f.Notes) == 0 {
				t.Error("no notes")
			}
		})
	}
}

// smallestGroups are the servers of the smallest group of each deployment of figure 6.6.
var smallestGroups = map[string]int{"sdc": 8, "mdc": 30}

// smallestComparison is figure 6.6 with its smallest groups only. Its points are in every panel and
// of every series.
func smallestComparison(t *testing.T) *Figure {
	t.Helper()
	f := &Figure{Number: "6.6"}
	ledgerPanels(f, "servers", true)
	cases, err := comparisonCases(Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c ledgerCase) bool {
		return c.group.servers != smallestGroups[c.deployment.name]
	})
	for i := range cases {
		cases[i].window = 2
	}
	place := func(c ledgerCase) (string, float64) { return c.series, float64(c.group.servers) }
	if err := runLedger(context.Background(), f, Options{}, cases, place); err != nil {
		t.Fatal(err)
	}
	return f
}

// unknownToScripts lists what a script would not understand, or would miss, in the points of a
// figure 6.6 with its smallest groups.
func unknownToScripts(points string) (wrong []string) {
	panels := map[string]string{"sdc-latency": "ms", "sdc-throughput": "transactions/s",
		"mdc-latency": "ms", "mdc-throughput": "transactions/s"}
	found := map[[2]string]int{}
	for line := range strings.Lines(points) {
		var point map[string]any
		if err := json.Unmarshal([]byte(line), &point); err != nil {
			wrong = append(wrong, fmt.Sprintf("%q: %v", line, err))
			continue
		}
		number, _ := point["figure"].(string)
		panel, _ := point["panel"].(string)
		series, _ := point["series"].(string)
		x, hasX := point["x"].(float64)
		y, hasY := point["y"].(float64)
		unit, _ := point["unit"].(string)
		switch known, isPanel := panels[panel]; {
		case len(point) != 6 || !hasX || !hasY || series == "":
			wrong = append(wrong, fmt.Sprintf("%q has not the six fields", line))
		case number != "6.6" || !isPanel || unit != known:
			wrong = append(wrong, fmt.Sprintf("%q is in no panel of figure 6.6, or in another unit",
				line))
		case x != float64(smallestGroups[panel[:3]]) || y <= 0:
			wrong = append(wrong, fmt.Sprintf("%q is no measurement of the smallest group", line))
		default:
			found[[2]string{panel, series}]++
		}
	}
	for panel := range panels {
		for _, series := range []string{"allconcur+", "allconcur", "allconcur-w/ea", "allgather",
			"lcr", "libpaxos"} {
			if count := found[[2]string{panel, series}]; count != 1 {
				wrong = append(wrong, fmt.Sprintf("%d points of %s in %s", count, series, panel))
			}
		}
	}
	return wrong
}

// TestNamesThatScriptsKnow: scripts find the panels of figures 6.5 and 6.6, and the series of 6.6,
// by their names. The check detects any change of these names.
func TestNamesThatScriptsKnow(t *testing.T) {
	t.Parallel()
	_, points, _ := write(t, smallestComparison(t))
	for _, wrong := range unknownToScripts(points) {
		t.Error(wrong)
	}
	for name, fault := range map[string]func(point map[string]any){
		"a field less": func(point map[string]any) { delete(point, "unit") },
		"a field more": func(point map[string]any) { point["low"] = 1.0 },
		"a field's name": func(point map[string]any) {
			point["servers"] = point["x"]
			delete(point, "x")
		},
		"a text for x":     func(point map[string]any) { point["x"] = "8" },
		"another figure":   func(point map[string]any) { point["figure"] = "6.5" },
		"another panel":    func(point map[string]any) { point["panel"] = "sdc" },
		"no panel":         func(point map[string]any) { point["panel"] = "" },
		"another unit":     func(point map[string]any) { point["unit"] = "us" },
		"another series":   func(point map[string]any) { point["series"] = "AllConcur+" },
		"another group":    func(point map[string]any) { point["x"] = 9.0 },
		"nothing measured": func(point map[string]any) { point["y"] = 0.0 },
	} {
		if len(unknownToScripts(planted(t, points, fault))) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
	first, rest, _ := strings.Cut(points, "\n")
	for name, changed := range map[string]string{"a point less": rest,
		"a point twice": first + "\n" + points, "no JSON": "{" + points, "no points": ""} {
		if len(unknownToScripts(changed)) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
}

// planted changes the first of a figure's points.
func planted(t *testing.T, points string, fault func(map[string]any)) string {
	t.Helper()
	first, rest, _ := strings.Cut(points, "\n")
	var point map[string]any
	if err := json.Unmarshal([]byte(first), &point); err != nil {
		t.Fatal(err)
	}
	fault(point)
	changed, err := json.Marshal(point)
	if err != nil {
		t.Fatal(err)
	}
	return string(changed) + "\n" + rest
}

// TestBatchingIsBounded: cases that need too much memory or time are left out, and every group of
// figure 5.14 is measured with some messages.
func TestBatchingIsBounded(t *testing.T) {
	t.Parallel()
	const top = 1 << 15
	for _, servers := range []int{8, 64, 128, 256, 512, 1024} {
		for _, series := range []string{seriesAllConcur, seriesUnreliable} {
			count := 0
			for batch := 1; batch <= top; batch *= 2 {
				if batchingIsMeasured(series, servers, batch, top) {
					count++
				}
			}
			if count == 0 || servers >= 512 && count > 2 {
				t.Errorf("%s, %d servers: %d sizes of messages", series, servers, count)
			}
		}
	}
}
