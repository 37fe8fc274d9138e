package house

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table of rooms into ARCHITECTURE.md")

const (
	// document shows the table of rooms between these two lines.
	document   = "../ARCHITECTURE.md"
	tableBegin = "<!-- rooms -->\n"
	tableEnd   = "<!-- end of rooms -->\n"
)

// TestRoomsDocument compares the table in ARCHITECTURE.md with rooms. The flag -write rewrites it.
func TestRoomsDocument(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := replaceTable(string(content), tableOf(rooms))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	if want == string(content) {
		return
	}
	if !*write {
		t.Fatalf("%s shows another table of rooms: run go test ./house -run Rooms -write", document)
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRoomsInOrder checks that the table is complete and that no room imports one below it.
func TestRoomsInOrder(t *testing.T) {
	t.Parallel()
	for _, broken := range checkRooms(rooms) {
		t.Error(broken)
	}
}

// TestRoomsCatches plants one violation of each rule for the table and the document.
func TestRoomsCatches(t *testing.T) {
	t.Parallel()
	low := room{folder: "low", purpose: "is low"}
	high := room{folder: "high", purpose: "is high"}
	inner := room{folder: "high/inner", purpose: "is high"}
	with := func(r room, imports ...string) room {
		r.imports = imports
		return r
	}
	tables := []struct {
		name  string
		rooms []room
		want  string // the one violation; "" for none
	}{
		{"nothing wrong", []room{low, with(high, "low")}, ""},
		{"its own folders", []room{low, with(high, "high/...")}, ""},
		{"import from below", []room{with(low, "high"), high},
			"low may import high, which is not above it"},
		{"folders from below", []room{with(low, "high/..."), high},
			"low may import high/..., which is not above it"},
		{"one folder from below", []room{high, with(low, "high/..."), inner},
			"low may import high/..., which is not above it"},
		{"import of no room", []room{with(low, "lost")},
			"low may import lost, which is not above it"},
		{"no purpose", []room{{folder: "low"}}, "low has no purpose"},
		{"a column too many", []room{{folder: "low", purpose: "a | b"}},
			"low has a purpose that is no table cell"},
		{"twice", []room{low, low}, "low stands twice"},
	}
	for _, test := range tables {
		if broken := strings.Join(checkRooms(test.rooms), "; "); broken != test.want {
			t.Errorf("%s: got %q, want %q", test.name, broken, test.want)
		}
	}

	old, err := replaceTable("a\n"+tableBegin+tableEnd+"b\n", tableOf([]room{low}))
	if err != nil || !strings.HasPrefix(old, "a\n") || !strings.HasSuffix(old, "b\n") {
		t.Fatalf("replaceTable lost what is around the table: %q, %v", old, err)
	}
	stale, err := replaceTable(old, tableOf([]room{low, high}))
	if err != nil || stale == old || strings.Count(stale, "`low`") != 1 {
		t.Errorf("replaceTable kept a stale table: %q, %v", stale, err)
	}
	for _, content := range []string{"", tableBegin, tableEnd, tableEnd + tableBegin, old + old} {
		if _, err := replaceTable(content, ""); err == nil {
			t.Errorf("replaceTable accepts %q", content)
		}
	}
}

// checkRooms returns the errors in a table: a room without a purpose, a room that is listed twice,
// a room that may import one that is not above it.
func checkRooms(table []room) []string {
	var broken []string
	for i, r := range table {
		switch {
		case r.purpose == "":
			broken = append(broken, r.folder+" has no purpose")
		case strings.ContainsAny(r.purpose, "|\n"):
			broken = append(broken, r.folder+" has a purpose that is no table cell")
		}
		named := func(other room) bool { return other.folder == r.folder }
		if slices.ContainsFunc(table[:i], named) {
			broken = append(broken, r.folder+" stands twice")
		}
		for _, entry := range r.imports {
			covered := func(other room) bool { return covers(entry, other.folder) }
			found := slices.ContainsFunc(table[:i+1], covered)
			if !found || slices.ContainsFunc(table[i+1:], covered) {
				broken = append(broken,
					fmt.Sprintf("%s may import %s, which is not above it", r.folder, entry))
			}
		}
	}
	return broken
}

// tableOf renders rooms as a table in Markdown.
func tableOf(rooms []room) string {
	var b strings.Builder
	b.WriteString("| room | what it does | pure | may import |\n|---|---|---|---|\n")
	for _, r := range rooms {
		pure := ""
		if r.pure {
			pure = "yes"
			if len(r.except) > 0 {
				pure += ", except " + strings.Join(r.except, ", ")
			}
		}
		imports := strings.Join(slices.Concat(r.imports, r.modules), ", ")
		if imports == "" {
			imports = "-"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.folder, r.purpose, pure, imports)
	}
	return b.String()
}

// replaceTable returns the document with another table between the two markers. Each marker must
// occur exactly once.
func replaceTable(content, table string) (string, error) {
	once := strings.Count(content, tableBegin) == 1 && strings.Count(content, tableEnd) == 1
	before, rest, _ := strings.Cut(content, tableBegin)
	_, after, ordered := strings.Cut(rest, tableEnd)
	if !once || !ordered {
		return "", errors.New("want each marker of the table of rooms once, the beginning first")
	}
	return before + tableBegin + table + tableEnd + after, nil
}
