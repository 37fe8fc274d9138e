// Package pagetest keeps the pages of docs/reference equal to the sources that they describe. It
// serves tests only. A test beside a source makes the page and compares it:
//
//	pagetest.Compare(t, "metrics.md", page)
//
// The flag -write records the page instead:
//
//	go test ./cmd/ledgerd ./node ./node/api ./node/home -run TestReference -write
//
// Wrap and Cell write plain text as Markdown, so that no character of it is taken for markup.
package pagetest

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var write = flag.Bool("write", false, "write the pages of docs/reference instead of comparing them")

// columnsMax is the greatest number of columns of a line of prose.
const columnsMax = 100

// Compare fails the test unless docs/reference/name holds the page. With -write it writes the page.
func Compare(t *testing.T, name, page string) {
	t.Helper()
	path := filepath.Join(Root(t), "docs", "reference", name)
	committed, err := os.ReadFile(path)
	if err != nil && !(*write && errors.Is(err, fs.ErrNotExist)) {
		t.Fatalf("%v; run the test again with -write to make the page", err)
	}
	if string(committed) == page {
		return
	}
	if *write {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, got := strings.Split(string(committed), "\n"), strings.Split(page, "\n")
	line := 0
	for line < min(len(want), len(got))-1 && want[line] == got[line] {
		line++
	}
	t.Fatalf("%s does not match its source; run the test again with -write.\nline %d of the "+
		"page:   %s\nof the source: %s", path, line+1, want[line], got[line])
}

// Root returns the folder of the repository: the nearest one above the test with a go.mod.
func Root(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("no folder above the test has a go.mod")
		}
		folder = above
	}
}

// Wrap writes plain text as one paragraph of Markdown, in lines of at most 100 columns. Text in
// backticks stays code.
func Wrap(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(escape(text)) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columnsMax:
			lines, line = append(lines, line), beginning(word)
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

// Cell writes plain text as a cell of a table of Markdown.
func Cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(escape(text)), " "), "|", `\|`)
}

// Code writes plain text as code in a cell of a table; an empty text stays empty.
func Code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// beginning escapes a word that would begin a list or a heading at the beginning of a line.
func beginning(word string) string {
	if word == "-" || word == "+" || word == "1." || strings.Trim(word, "#=") == "" {
		return `\` + word
	}
	return word
}

// escape escapes the characters of Markdown in the text outside of backticks.
func escape(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		code := i%2 == 1 && i < len(parts)-1
		if !code {
			parts[i] = strings.NewReplacer(`\`, `\\`, "<", `\<`, "*", `\*`, "[", `\[`,
				"]", `\]`).Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}
