package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteJSON writes the points, one object a line.
func (f *Figure) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, panel := range f.Panels {
		for _, point := range panel.Points {
			if err := encoder.Encode(point); err != nil {
				return fmt.Errorf("write figure %s: %w", f.Number, err)
			}
		}
	}
	return nil
}

// WriteTable writes the figure for people: a table for each panel, with a line for each x and a
// column for each series, and the notes.
func (f *Figure) WriteTable(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Figure %s. %s\n", f.Number, f.Title)
	for i := range f.Panels {
		if panel := &f.Panels[i]; !panel.Dense {
			fmt.Fprintf(&text, "\n%s (%s)\n", panel.Title, panel.Unit)
			panel.table(&text)
		}
	}
	if len(f.Notes) > 0 {
		text.WriteString("\n")
	}
	for _, note := range f.Notes {
		fmt.Fprintf(&text, "- %s\n", note)
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write figure %s: %w", f.Number, err)
	}
	return nil
}

// table lays out a panel.
func (p *Panel) table(text *strings.Builder) {
	rows := [][]string{append([]string{p.X}, p.Series...)}
	for _, x := range p.xs() {
		row := []string{number(x)}
		for _, series := range p.Series {
			row = append(row, p.cell(series, x))
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				text.WriteString("  ")
			}
			text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + cell)
		}
		text.WriteString("\n")
	}
}

// cell formats a point, with its confidence interval unless that equals the point.
func (p *Panel) cell(series string, x float64) string {
	at := slices.IndexFunc(p.Points, func(point Point) bool {
		return point.Series == series && point.X == x
	})
	if at < 0 {
		return "-"
	}
	point := p.Points[at]
	text := number(point.Y)
	if low, high := number(point.low), number(point.high); point.high > 0 &&
		(low != text || high != text) {
		text += " [" + low + ", " + high + "]"
	}
	return text
}

// number formats three significant digits, or all digits before the point, with separators between
// thousands.
func number(x float64) string {
	size := math.Abs(x)
	switch {
	case size != math.Trunc(size) && size < 100:
		return strconv.FormatFloat(significant(x, 3), 'f', -1, 64)
	case size < 10_000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	whole := strconv.FormatFloat(x, 'f', 0, 64)
	var parts []string
	for len(whole) > 3 {
		parts = append([]string{whole[len(whole)-3:]}, parts...)
		whole = whole[:len(whole)-3]
	}
	return strings.Join(append([]string{whole}, parts...), ",")
}
