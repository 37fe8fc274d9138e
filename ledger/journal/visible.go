package journal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns data as text in one line. A backslash is doubled. A line's end, another character
// that is not shown and a byte that is no text become \n, \r, \t, \u{...} and \x... So no two
// notes look the same, and none looks like a line of a journal.
func Visible(data []byte) string {
	var to strings.Builder
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&to, `\x%02x`, data[0])
		case r == '\\':
			to.WriteString(`\\`)
		case r == '\n':
			to.WriteString(`\n`)
		case r == '\r':
			to.WriteString(`\r`)
		case r == '\t':
			to.WriteString(`\t`)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&to, `\u{%x}`, r)
		default:
			to.Write(data[:size])
		}
		data = data[size:]
	}
	return to.String()
}
