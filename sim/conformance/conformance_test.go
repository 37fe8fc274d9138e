package conformance

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

var write = flag.Bool("write", false, "write the table into the page of the documentation")

// TestMain makes the garbage collector run less often: a run leaves much garbage and holds little
// memory.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

const (
	// page shows the table, behind a text that people wrote.
	page = "../../docs/design/engines.md"
	// shownSeeds is the number of seeds of the table on the page.
	shownSeeds = 20
)

// TestPageShowsTheTable makes the table and compares it with the page. No property may be broken.
func TestPageShowsTheTable(t *testing.T) {
	t.Parallel()
	made, err := Make(t.Context(), Options{Seeds: shownSeeds})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range made.Failures() {
		t.Errorf("%s is broken:\n%s\n%s", failure.Property, strings.Join(failure.Evidence, "\n"),
			failure.Replay)
	}
	var text bytes.Buffer
	if err := made.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	written, table, found := strings.Cut(string(shown), "\n## ")
	if !found || "\n## "+table != text.String() {
		if !*write {
			t.Fatalf("%s shows another table: go test ./sim/conformance -run Page -write", page)
		}
		if err := os.WriteFile(page, append([]byte(written), text.Bytes()...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range made.Parts {
		struck := 0
		for _, c := range p.Columns {
			struck += c.Struck
			if c.Delivered == 0 {
				t.Errorf("%s with %s: nothing is delivered with %s", p.Engine, p.Setting, c.Faults)
			}
			if c.Faults != "none" && c.Struck == 0 {
				t.Errorf("%s with %s: %s never struck", p.Engine, p.Setting, c.Faults)
			}
		}
		if struck == 0 {
			t.Errorf("%s with %s has no faults", p.Engine, p.Setting)
		}
	}
}

// first returns the property that a run breaks first, "" if none.
func first(violations []*order.Violation) order.Property {
	if len(violations) == 0 {
		return ""
	}
	return violations[0].Property
}

// searched is how many seeds a test looks at for another run that shows a bug.
const searched = 400

// TestBugsBreakProperties runs the bugs of the table. A failure names another seed, if one shows
// the bug.
func TestBugsBreakProperties(t *testing.T) {
	t.Parallel()
	for at, bugs := range broadcastBugs {
		for _, bug := range bugs {
			t.Run(at.engine+at.setting.flags()+" "+string(bug.property), func(t *testing.T) {
				t.Parallel()
				options, err := bug.options(at)
				if err != nil {
					t.Fatal(err)
				}
				shows(t, bug.of(at), bug.property, bug.seed,
					func(seed uint64) (order.Property, error) {
						r, err := options.RunSeed(seed)
						return first(r.Violations), err
					})
			})
		}
	}
	for engine, bugs := range multicastBugs {
		for _, bug := range bugs {
			t.Run(engine+" "+string(bug.property), func(t *testing.T) {
				t.Parallel()
				options := bug.options(engine)
				shows(t, bug.of(engine), bug.property, bug.seed,
					func(seed uint64) (order.Property, error) {
						r, err := options.RunSeed(seed)
						return first(r.Violations), err
					})
			})
		}
	}
}

// shows requires that the seed breaks the property first.
func shows(t *testing.T, bug *Bug, property order.Property, seed uint64,
	run func(seed uint64) (order.Property, error)) {
	t.Helper()
	got, err := run(seed)
	if err != nil {
		t.Fatal(err)
	}
	if got == property {
		return
	}
	other := uint64(0)
	err = sweep.Seeds(t.Context(), 1, searched, func(seed uint64) (uint64, error) {
		got, err := run(seed)
		if got != property {
			seed = 0
		}
		return seed, err
	}, func(shows uint64) bool {
		other = shows
		return other == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Errorf("%s: seed %d breaks %q first, want %q; seed %d does (0: none of %d)", bug.Replay, seed,
		got, property, other, searched)
}

// TestEnginesOfTheTable requires a part for each engine that is listed, and one for no other.
func TestEnginesOfTheTable(t *testing.T) {
	t.Parallel()
	all, err := parts()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		if len(got) == 0 || got[len(got)-1] != p.engine {
			got = append(got, p.engine)
		}
	}
	if want := Engines(); !slices.Equal(got, want) {
		t.Errorf("parts of %q, want %q", got, want)
	}
}

// TestBrokenCells requires that a broken property shows in the table, and only where it broke.
func TestBrokenCells(t *testing.T) {
	t.Parallel()
	broken := &order.Violation{Property: order.Agreement, Evidence: []string{"so it is"}}
	p := part{engine: "e", setting: "nothing", properties: []property{{name: order.Integrity},
		{order.Agreement, true}}}
	for _, name := range []string{"good", "bad", "safe"} {
		p.columns = append(p.columns, column{faults: name, sizes: []int{1, 2},
			safetyOnly: name == "safe",
			run: func(size int, seed uint64) (outcome, error) {
				o := outcome{seed: seed, delivered: 1, struck: seed == 1}
				if name == "bad" && size == 2 && seed == 3 {
					o.violations = []*order.Violation{broken}
				}
				return o, nil
			},
			replay: func(int, uint64) string { return "again" },
		})
	}
	filled, err := p.fill(t.Context(), Options{Seeds: 4})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	made := Table{Seeds: 4, Parts: []Part{filled}}
	if err := made.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| integrity | ✓ | ✓ | ✓ |  |",
		"| agreement | ✓ | **broken** | – |  |",
		"| *runs with a fault* | 2 of 8 | 2 of 8 | 2 of 8 |  |"} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, text.String())
		}
	}
	if all := made.Failures(); len(all) != 1 || all[0].Replay != "again" ||
		all[0].Property != order.Agreement {
		t.Errorf("failures %+v", all)
	}
}

// TestMakeEnds requires that a table is not made to its end when its context is done.
func TestMakeEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	columns := 0
	_, err := Make(ctx, Options{Seeds: 1, Engine: "allconcur", Progress: func(string, string) {
		if columns++; columns == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || columns != 3 {
		t.Errorf("%v after %d columns", err, columns)
	}
}
