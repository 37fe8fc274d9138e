package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Colours of a terminal, by their meaning.
const (
	colourGood = "\x1b[32m"
	colourWait = "\x1b[33m"
	colourBad  = "\x1b[31m"
	colourDim  = "\x1b[2m"
	colourNone = "\x1b[0m"
)

// addJSONFlag adds the flag --json to a command.
func addJSONFlag(command *cobra.Command, value *bool) {
	command.Flags().BoolVar(value, "json", false, "print JSON, for programs")
}

// writeJSON writes one JSON value, indented.
func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeJSONLine writes one JSON value on one line, for streams of values.
func writeJSONLine(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// isColourful reports whether to use colours, following https://no-color.org.
func isColourful(out io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(out)
}

// table is text in columns.
type table struct {
	header []string // may be empty
	right  []bool   // the columns with numbers
	rows   [][]string
	colour func(column int, cell string) string // of a cell; may be nil
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, with two spaces between its columns.
func (t *table) write(out io.Writer) error {
	var widths []int
	measure := func(cells []string) {
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	measure(t.header)
	for _, row := range t.rows {
		measure(row)
	}
	var text strings.Builder
	colourful := t.colour != nil && isColourful(out)
	line := func(cells []string, colour func(int, string) string) {
		for i, cell := range cells {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if strings.Join(cells[i:], "") == "" {
				break
			}
			if i > 0 {
				text.WriteString("  ")
			}
			right := i < len(t.right) && t.right[i]
			if right {
				text.WriteString(padding)
			}
			if code := colour(i, cell); code != "" {
				cell = code + cell + colourNone
			}
			text.WriteString(cell)
			if !right && strings.Join(cells[i+1:], "") != "" {
				text.WriteString(padding)
			}
		}
		text.WriteByte('\n')
	}
	none := func(int, string) string { return "" }
	if len(t.header) > 0 {
		line(t.header, none)
	}
	colour := none
	if colourful {
		colour = t.colour
	}
	for _, row := range t.rows {
		line(row, colour)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// sanitize makes text from elsewhere safe to print on a terminal: on one line, at most limit
// characters long. A limit of 0 means none.
func sanitize(text string, limit int) string {
	var clean strings.Builder
	count := 0
	for _, letter := range text {
		if limit > 0 && count == limit {
			clean.WriteString("…")
			break
		}
		if !unicode.IsPrint(letter) {
			letter = '�'
		}
		clean.WriteRune(letter)
		count++
	}
	return clean.String()
}

// moment formats a time in Unix milliseconds; 0 gives "-".
func moment(milliseconds uint64) string {
	if milliseconds == 0 {
		return "-"
	}
	return time.UnixMilli(int64(milliseconds)).UTC().Format("2006-01-02 15:04:05Z")
}

// take collects the first items of a list; limit 0 means all. more reports whether there are
// others.
func take[Item any](items iter.Seq2[Item, error], limit int) (taken []Item, more bool, err error) {
	taken = []Item{}
	for item, err := range items {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(taken) == limit {
			return taken, true, nil
		}
		taken = append(taken, item)
	}
	return taken, false, nil
}

// plural returns a count with its noun.
func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

// bindLimit adds the flag --limit.
func bindLimit(command *cobra.Command, value *int, standard int) {
	command.Flags().IntVar(value, "limit", standard, "show at most so many; 0 means all")
}

func checkLimit(limit int) error {
	if limit < 0 {
		return usagef("--limit is %d: it has to be above zero, or 0 for all", limit)
	}
	return nil
}

// writeList writes a list's table and a hint if there is more, or the text empty if there are no
// rows.
func writeList(out io.Writer, rows *table, more bool, empty string) error {
	if len(rows.rows) == 0 {
		_, err := fmt.Fprintln(out, empty)
		return err
	}
	if err := rows.write(out); err != nil || !more {
		return err
	}
	items := 0
	for _, row := range rows.rows {
		if row[0] != "" { // a further row of the same item has no first column
			items++
		}
	}
	_, err := fmt.Fprintf(out, "... these are the first %d: --limit 0 shows all\n", items)
	return err
}
