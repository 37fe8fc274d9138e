package pagetest

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one\ntwo":                       "one two",
		"a <b> *c* [d] `<e> *`":          "a \\<b> \\*c\\* \\[d\\] `<e> *`",
		strings.Repeat("x", 99) + " - y": strings.Repeat("x", 99) + "\n\\- y",
		strings.Repeat("x", 98) + " y z": strings.Repeat("x", 98) + " y\nz",
	} {
		if got := Wrap(text); got != want {
			t.Errorf("Wrap(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	t.Parallel()
	if got := Cell("a | b\n<c>"); got != `a \| b \<c>` {
		t.Errorf("Cell = %q", got)
	}
	if got := Code("a|b"); got != "`a\\|b`" {
		t.Errorf("Code = %q", got)
	}
}
