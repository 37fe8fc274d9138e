package figure

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrUnknown is returned for an unknown figure number. Match it with errors.Is.
var ErrUnknown = errors.New("figure: unknown")

// Options describe how to make a figure.
type Options struct {
	// Quick makes a smaller figure: fewer and smaller groups, shorter windows.
	Quick bool
	// Workers is the maximum number of concurrent runs. 0 is the number of processors.
	Workers int
	// Progress, unless it is nil, is called after each run with the cost of the finished runs and
	// of all runs. Calls do not overlap.
	Progress func(done, total float64)
}

// Point is one point of a plot, as JSON gives it, one object a line.
type Point struct {
	Figure string `json:"figure"`
	Panel  string `json:"panel"`
	Series string `json:"series"`
	// X is in the unit of the panel's X axis, Y in Unit.
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Unit string  `json:"unit"`
	// low and high are the ends of the confidence interval, if there is one.
	low, high float64
}

// Panel is one plot of a figure.
type Panel struct {
	// Name is as in Point.Panel. Title, X and Y are the plot's title and axis labels.
	Name, Title, X, Y string
	// LogX and LogY select logarithmic axes.
	LogX, LogY bool
	// Unit is the unit of Y.
	Unit string
	// Series are the lines in order, and Points their points, by series and ascending X.
	Series []string
	Points []Point
	// Marks are instants that a vertical line shows.
	Marks []float64
	// Dense leaves the points out of the table: they are samples over time, one after each round.
	Dense bool
}

// Figure is a reproduced figure of the dissertation, or of another paper.
type Figure struct {
	// Number is the figure's number in the dissertation, or its name, and Title its contents.
	Number, Title string
	Panels        []Panel
	// Notes say what was measured, and what the dissertation or the paper states.
	Notes []string
}

// recipe describes how to make the figure with a number.
type recipe struct {
	number, title, about string
	make                 func(context.Context, *Figure, Options) error
}

// recipes returns all figures, in the dissertation's order, and then the others.
func recipes() []recipe {
	return []recipe{
		{"4.6", "The RDMA performance models",
			`how long reads and writes of remote memory and datagrams take, by the LogGP models`,
			remoteAccesses},
		{"4.7", "The reliability of DARE's in-memory approach",
			`how reliable entries are that are only in memory, by servers, from table 4.2`,
			memoryReliability},
		{"4.8", "DARE's latency: the model's bounds",
			`how quick a request to DARE's leader can be at best, by size and by servers`,
			leaderLatency},
		{"4.9", "DARE's throughput",
			`how many requests of clients a group of three answers, by clients and by workload`,
			leaderThroughput},
		{"4.10", "DARE's write throughput while the group changes",
			`a group's throughput over time, while servers join, fail and leave`, leaderChanges},
		{"4.11", "DARE's latency beside other algorithms",
			`how long a client's request takes, beside other algorithms and published numbers`,
			leaderComparison},
		{"5.10", "Agreement latency for a single (64-byte) request",
			`how long a group takes to agree on one request, beside the LogP models' bounds`,
			singleRequest},
		{"5.11", "Agreement throughput during membership changes",
			`throughput of 32 servers over time, while servers fail and join`, membership},
		{"5.12", "Constant (64-byte) request rate per server",
			`agreement latency while requests come to every server at a rate`, requestRate},
		{"5.13", "Multiplayer games and distributed exchanges",
			`agreement latency for players' actions, and for a rate of the whole system`,
			applications},
		{"5.14", "AllConcur, unreliable agreement and leader-based agreement",
			`agreement throughput by how many requests go in a message`, batching},
		{"6.5", "The effect of batching on AllConcur+",
			`latency and throughput by transactions in a message, in one datacentre and in five`,
			messageSize},
		{"6.6", "AllConcur+ beside other algorithms",
			`latency and throughput by servers, in one datacentre and in five`, comparison},
		{"6.7", "AllConcur+ and AllConcur while servers fail",
			`one server's throughput over time, with four crashes in a second`, failures},
		{"6.8", "AllConcur+'s expected latency and throughput",
			`ratios to AllConcur by how often servers fail, from figure 6.6 and the model of section 6.5.2`, expectation},
		{"in-flight", "AllConcur+ with several rounds in flight",
			`not in the dissertation: one to eight rounds in flight, between distant servers`,
			inFlightFigure},
		{"trains-I", "Throughput of LCR (TRAINS, Table I)",
			`TRAINS: throughput of LCR for 5 servers on a switch of 100 Mbit/s`, ringThroughput},
		{"trains-II", "Throughput of TRAINS and LCR (TRAINS, Table II)",
			`TRAINS: which share of the bytes sent are messages, and throughput, beside LCR`,
			ringEfficiency},
		{"trains-III", "Latency of TRAINS and LCR (TRAINS, Table III)",
			`TRAINS: how many rounds a message takes, beside LCR`, ringLatency},
		{"trains-1", "Two servers and two trains (TRAINS, figure 1)",
			`TRAINS: message sequence chart of two servers with two trains`, ringChart},
	}
}

// Numbers lists the numbers of the figures, in the dissertation's order, and the names of the
// others.
func Numbers() []string {
	var numbers []string
	for _, r := range recipes() {
		numbers = append(numbers, r.number)
	}
	return numbers
}

// About describes a figure in a line. It returns "" for an unknown number.
func About(number string) string {
	for _, r := range recipes() {
		if r.number == number {
			return r.about
		}
	}
	return ""
}

// Make runs a figure's experiments. The same options give the same figure on every machine. The
// error wraps ErrUnknown, or is the context's.
func Make(ctx context.Context, number string, options Options) (*Figure, error) {
	for _, r := range recipes() {
		if r.number == number {
			f := &Figure{Number: r.number, Title: r.title}
			if err := r.make(ctx, f, options); err != nil {
				return nil, fmt.Errorf("figure %s: %w", number, err)
			}
			return f, nil
		}
	}
	return nil, fmt.Errorf("%w: %q, use one of %v", ErrUnknown, number, Numbers())
}

// panel adds a panel.
func (f *Figure) panel(p Panel) *Panel {
	f.Panels = append(f.Panels, p)
	return &f.Panels[len(f.Panels)-1]
}

// find returns the panel with a name, which must exist.
func (f *Figure) find(name string) *Panel {
	at := slices.IndexFunc(f.Panels, func(p Panel) bool { return p.Name == name })
	return &f.Panels[at]
}

// note adds a note.
func (f *Figure) note(format string, arguments ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, arguments...))
}

const (
	// digits is the number of significant digits of points.
	digits = 6
)

// add adds a point to a panel of the figure.
func (f *Figure) add(panel, series string, x, y float64) { f.addSpread(panel, series, x, y, 0, 0) }

// addSpread adds a point with its confidence interval.
func (f *Figure) addSpread(panel, series string, x, y, low, high float64) {
	p := f.find(panel)
	if !slices.Contains(p.Series, series) {
		p.Series = append(p.Series, series)
	}
	p.Points = append(p.Points, Point{
		Figure: f.Number, Panel: panel, Series: series, X: significant(x, digits),
		Y: significant(y, digits), Unit: p.Unit,
		low: significant(low, digits), high: significant(high, digits),
	})
}

// at returns a series' y for an x. It returns false if there is no point.
func (p *Panel) at(series string, x float64) (float64, bool) {
	for _, point := range p.Points {
		if point.Series == series && point.X == x {
			return point.Y, true
		}
	}
	return 0, false
}

// xs lists the x of all points, ascending, each once.
func (p *Panel) xs() []float64 {
	var xs []float64
	for _, point := range p.Points {
		xs = append(xs, point.X)
	}
	slices.Sort(xs)
	return slices.Compact(xs)
}

// ratios returns the least and the largest ratio of one series to another, over all x that both
// have.
func (p *Panel) ratios(over, under string) (least, largest float64) {
	for _, x := range p.xs() {
		a, hasA := p.at(over, x)
		b, hasB := p.at(under, x)
		if !hasA || !hasB || b == 0 {
			continue
		}
		ratio := a / b
		if least == 0 || ratio < least {
			least = ratio
		}
		largest = max(largest, ratio)
	}
	return least, largest
}
