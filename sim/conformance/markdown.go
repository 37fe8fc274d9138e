package conformance

import (
	"bufio"
	"fmt"
	"io"
)

// WriteMarkdown writes the parts of the table, with the bugs that broke each property.
func (t *Table) WriteMarkdown(to io.Writer) error {
	out := bufio.NewWriter(to)
	for i, p := range t.Parts {
		if i == 0 || t.Parts[i-1].Engine != p.Engine {
			fmt.Fprintf(out, "\n## %s\n", p.Engine)
		}
		p.writeMarkdown(out)
	}
	return out.Flush()
}

func (p *Part) writeMarkdown(out *bufio.Writer) {
	fmt.Fprintf(out, "\n**With %s.**\n\n", p.Setting)
	line := func(name string, cell func(i int) string, last string) {
		out.WriteString("| " + name)
		for i := range p.Columns {
			out.WriteString(" | " + cell(i))
		}
		out.WriteString(" | " + last + " |\n")
	}
	line("", func(i int) string { return p.Columns[i].Faults }, "a bug that breaks it")
	line("---", func(int) string { return "---" }, "---")
	for _, row := range p.Rows {
		bug := ""
		if row.Bug != nil {
			bug = "`" + row.Bug.Plant + "`"
		}
		line(string(row.Property), func(i int) string { return row.Cells[i].mark() }, bug)
	}
	line("*runs with a fault*", func(i int) string {
		return fmt.Sprintf("%d of %d", p.Columns[i].Struck, p.Columns[i].Runs)
	}, "")
}

// mark is the cell in a word, or less.
func (c Cell) mark() string {
	switch c {
	case Held:
		return "✓"
	case NotJudged:
		return "–"
	}
	return "**" + string(c) + "**"
}
