package figure

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// docs/design/extending.md says why this package draws by itself.

// The measures of a plot, in pixels.
const (
	panelWidth, panelHeight = 460, 330
	marginLeft, marginRight = 68, 14
	marginTop, marginBottom = 46, 44
	titleHeight             = 34
	legendLine              = 15
	panelsAcross            = 2
)

// colours distinguish series, also for colour-blind readers (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
	"#999999", "#7a5195", "#8c564b"}

// scale maps values to pixels along one axis.
type scale struct {
	log         bool
	low, high   float64
	start, stop float64
}

// newScale covers the values, with a margin.
func newScale(values []float64, log bool, start, stop float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if log && v <= 0 {
			continue
		}
		low, high = min(low, v), max(high, v)
	}
	if low > high {
		low, high = 1, 10
	}
	if log {
		low, high = low/1.15, high*1.15
	} else {
		low, high = min(0, low), high*1.05
	}
	if low == high {
		high = low + 1
	}
	return scale{log: log, low: low, high: high, start: start, stop: stop}
}

func (s scale) at(v float64) float64 {
	share := 0.0
	if s.log {
		share = math.Log(v/s.low) / math.Log(s.high/s.low)
	} else {
		share = (v - s.low) / (s.high - s.low)
	}
	return s.start + share*(s.stop-s.start)
}

// ticks returns round values along the axis.
func (s scale) ticks() []float64 {
	var ticks []float64
	if !s.log {
		step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/4)))
		for _, factor := range []float64{1, 2, 5, 10} {
			if (s.high-s.low)/(step*factor) <= 6 {
				step *= factor
				break
			}
		}
		for v := math.Ceil(s.low/step) * step; v <= s.high; v += step {
			ticks = append(ticks, significant(v, digits))
		}
		return ticks
	}
	factors := []float64{1}
	switch ratio := s.high / s.low; {
	case ratio < 10:
		factors = []float64{1, 2, 3, 4, 5, 6, 8}
	case ratio < 200:
		factors = []float64{1, 2, 5}
	}
	for decade := math.Pow(10, math.Floor(math.Log10(s.low))); decade <= s.high; decade *= 10 {
		for _, factor := range factors {
			if v := decade * factor; v >= s.low && v <= s.high {
				ticks = append(ticks, significant(v, digits))
			}
		}
	}
	if len(ticks) > 9 { // many decades: every other one
		var fewer []float64
		for i := 0; i < len(ticks); i += 2 {
			fewer = append(fewer, ticks[i])
		}
		return fewer
	}
	return ticks
}

// tickLabel returns a short label: three significant digits, or all of a whole number below 10,000,
// so that a size of 1,024 bytes is not said to be 1,020.
func tickLabel(v float64) string {
	size := math.Abs(v)
	if size == math.Trunc(size) && size < 1e4 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	for _, unit := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if size >= unit.from {
			divisor := unit.from
			if unit.name == "k" {
				divisor = 1e3
			}
			return strconv.FormatFloat(significant(v/divisor, 3), 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatFloat(significant(v, 3), 'f', -1, 64)
}

// drawing collects an SVG.
type drawing struct{ text strings.Builder }

func (d *drawing) add(format string, arguments ...any) {
	fmt.Fprintf(&d.text, format, arguments...)
	d.text.WriteByte('\n')
}

// label adds text. It escapes the text.
func (d *drawing) label(x, y float64, attributes, text string) {
	fmt.Fprintf(&d.text, `<text x="%.1f" y="%.1f"%s>`, x, y, attributes)
	_ = xml.EscapeText(&d.text, []byte(text)) // writing to a builder never fails
	d.text.WriteString("</text>\n")
}

// WriteSVG draws the figure, with two panels in a row.
func (f *Figure) WriteSVG(out io.Writer) error {
	var d drawing
	across := min(panelsAcross, max(1, len(f.Panels)))
	wide := len(f.Panels) == 1
	width := across * panelWidth
	if wide {
		width = panelsAcross * panelWidth
	}
	legends := make([]int, (len(f.Panels)+across-1)/across)
	height := titleHeight
	for i := range f.Panels {
		row := i / across
		legends[row] = max(legends[row], f.Panels[i].legendHeight())
	}
	for _, legend := range legends {
		height += panelHeight + legend
	}
	d.add(
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#222">`, width, height,
		width, height)
	d.add(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	d.label(float64(width)/2, 22, ` text-anchor="middle" font-size="15" font-weight="bold"`,
		"Figure "+f.Number+". "+f.Title)
	top := titleHeight
	for i := range f.Panels {
		if i > 0 && i%across == 0 {
			top += panelHeight + legends[i/across-1]
		}
		panel := panelWidth
		if wide {
			panel = width
		}
		d.add(`<g transform="translate(%d,%d)">`, i%across*panelWidth, top)
		f.Panels[i].draw(&d, float64(panel))
		d.add(`</g>`)
	}
	d.add(`</svg>`)
	if _, err := io.WriteString(out, d.text.String()); err != nil {
		return fmt.Errorf("write figure %s: %w", f.Number, err)
	}
	return nil
}

// legendColumns returns how many entries stand in a line of the legend.
func (p *Panel) legendColumns() int {
	const long = 17
	for _, series := range p.Series {
		if len(series) > long {
			return 2
		}
	}
	return 3
}

func (p *Panel) legendHeight() int {
	return (len(p.Series)/p.legendColumns()+1)*legendLine + 6
}

// xTicks returns the points' own places if there are few, and round values otherwise.
func (p *Panel) xTicks(x scale) []float64 {
	const few, apart = 9, 24.0
	xs := p.xs()
	if !p.LogX || len(xs) > few {
		return x.ticks()
	}
	var ticks []float64
	for _, v := range xs {
		if last := len(ticks) - 1; last >= 0 && x.at(v)-x.at(ticks[last]) < apart {
			continue
		}
		ticks = append(ticks, v)
	}
	return ticks
}

// draw draws one panel at the origin.
func (p *Panel) draw(d *drawing, width float64) {
	var xs, ys []float64
	for _, point := range p.Points {
		xs, ys = append(xs, point.X), append(ys, point.Y)
	}
	xs = append(xs, p.Marks...)
	x := newScale(xs, p.LogX, marginLeft, width-marginRight)
	y := newScale(ys, p.LogY, panelHeight-marginBottom, marginTop)
	d.label(width/2, marginTop-14, ` text-anchor="middle" font-size="13"`, p.Title)
	for _, v := range p.xTicks(x) {
		at := x.at(v)
		d.add(`<path d="M%.1f %dV%d" stroke="#e4e4e4"/>`, at, marginTop, panelHeight-marginBottom)
		d.label(at, panelHeight-marginBottom+15, ` text-anchor="middle"`, tickLabel(v))
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		d.add(`<path d="M%d %.1fH%.1f" stroke="#e4e4e4"/>`, marginLeft, at, width-marginRight)
		d.label(marginLeft-6, at+4, ` text-anchor="end"`, tickLabel(v))
	}
	for _, mark := range p.Marks {
		d.add(`<path d="M%.1f %dV%d" stroke="#c00" stroke-dasharray="4 3"/>`, x.at(mark), marginTop,
			panelHeight-marginBottom)
	}
	d.add(`<path d="M%d %dV%dH%.1f" fill="none" stroke="#222"/>`, marginLeft, marginTop,
		panelHeight-marginBottom, width-marginRight)
	d.label((marginLeft+width-marginRight)/2, panelHeight-8, ` text-anchor="middle"`, p.X)
	middle := float64(panelHeight-marginBottom+marginTop) / 2
	d.label(0, 0, fmt.Sprintf(` text-anchor="middle" transform="translate(14,%.1f) rotate(-90)"`,
		middle), p.Y)
	for i, series := range p.Series {
		p.line(d, x, y, series, colours[i%len(colours)], i)
	}
	columns := p.legendColumns()
	column := (width - marginLeft - marginRight) / float64(columns)
	for i, series := range p.Series {
		left := marginLeft + float64(i%columns)*column
		at := float64(panelHeight + 4 + i/columns*legendLine)
		d.add(`<path d="M%.1f %.1fh18" stroke="%s" stroke-width="2"%s/>`, left, at,
			colours[i%len(colours)], dashes(i))
		d.label(left+23, at+4, "", series)
	}
}

// dashes distinguishes series that have the same colour.
func dashes(i int) string {
	if i >= len(colours) {
		return ` stroke-dasharray="5 3"`
	}
	return ""
}

// line draws one series, with markers unless its points are dense.
func (p *Panel) line(d *drawing, x, y scale, series, colour string, index int) {
	var path, markers strings.Builder
	for _, point := range p.Points {
		if point.Series != series || p.LogX && point.X <= 0 || p.LogY && point.Y <= 0 {
			continue
		}
		command := "L"
		if path.Len() == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x.at(point.X), y.at(point.Y))
		if p.Dense {
			continue
		}
		fmt.Fprintf(&markers, `<circle cx="%.1f" cy="%.1f" r="2.6"/>`, x.at(point.X), y.at(point.Y))
		if point.high > point.low && (!p.LogY || point.low > 0) {
			fmt.Fprintf(&markers, `<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, x.at(point.X),
				y.at(point.low), y.at(point.high), colour)
		}
	}
	if path.Len() == 0 {
		return
	}
	width := "1.8"
	if p.Dense {
		width = "1"
	}
	d.add(`<path d="%s" fill="none" stroke="%s" stroke-width="%s"%s/>`, path.String(), colour,
		width, dashes(index))
	if markers.Len() > 0 {
		d.add(`<g fill="%s">%s</g>`, colour, markers.String())
	}
}
