package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package p

const size = 1 + 2

type T[E any] struct{}

func f(a, b int, s string) (string, bool) {
	for a < b {
		a++
		if a == 3 || b == 4 {
			break
		}
	}
	return s + "x", a-b > size
}

func (t *T[E]) g(a, b int) bool {
	switch {
	case a < b:
		break
	}
	return a < b
}
`

// testPackage returns a package of one file in a module of its own.
func testPackage(t *testing.T) *pkg {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n", "p/p.go": source,
		"p/p_test.go": "package p\n\nvar _ = 1 < 2\n"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := read(root, "p")
	if err != nil {
		t.Fatal(err)
	}
	c.exports = map[string]string{} // it imports nothing
	return &pkg{room: room{folder: "p"}, mutants: c.mutants()}
}

func TestMutants(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, m := range testPackage(t).mutants {
		viable, err := m.viable()
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(strings.Join([]string{m.function, m.text, m.kind}, " | "))
		if m.number > 1 {
			got.WriteString(" again")
		}
		if !viable {
			got.WriteString(", does not compile")
		}
		got.WriteString("\n")
	}
	const want = ` | const size = 1 + 2 | ARITHMETIC_BASE
f | for a < b { | CONDITIONALS_BOUNDARY
f | for a < b { | CONDITIONALS_NEGATION
f | a++ | INCREMENT_DECREMENT
f | if a == 3 || b == 4 { | CONDITIONALS_NEGATION
f | if a == 3 || b == 4 { | INVERT_LOGICAL
f | if a == 3 || b == 4 { | CONDITIONALS_NEGATION again
f | break | INVERT_LOOPCTRL
f | return s + "x", a-b > size | ARITHMETIC_BASE, does not compile
f | return s + "x", a-b > size | INVERT_NEGATIVES
f | return s + "x", a-b > size | ARITHMETIC_BASE again
f | return s + "x", a-b > size | CONDITIONALS_BOUNDARY
f | return s + "x", a-b > size | CONDITIONALS_NEGATION
T[E].g | case a < b: | CONDITIONALS_BOUNDARY
T[E].g | case a < b: | CONDITIONALS_NEGATION
T[E].g | break | INVERT_LOOPCTRL, does not compile
T[E].g | return a < b | CONDITIONALS_BOUNDARY
T[E].g | return a < b | CONDITIONALS_NEGATION
`
	if got.String() != want {
		t.Errorf("mutants:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	p := &progress{to: &told, room: "shard", total: 60}
	fmt.Fprint(p, "Starting...\nGathering coverage... done in 3s\n")
	for k := range 55 {
		fmt.Fprintf(p, "      KILLED CONDITIONALS_BOUNDARY at shard/")
		fmt.Fprintf(p, "group.go:%d:3\n", k)
	}
	fmt.Fprint(p, "Mutation testing completed in 9 seconds\n")
	if want := "shard: 25 of about 60 mutants\nshard: 50 of about 60 mutants\n"; told.String() !=
		want {
		t.Errorf("told %q, want %q", &told, want)
	}
	if !strings.HasSuffix(string(p.wrote), "in 9 seconds\n") {
		t.Errorf("kept %q", p.wrote)
	}
}

func TestSurvivors(t *testing.T) {
	t.Parallel()
	list, err := readSurvivors(strings.NewReader("# a comment\n\np/p.go f: for a < b {\n" +
		"\tCONDITIONALS_BOUNDARY#1, CONDITIONALS_NEGATION#1: it is\n\t\tso.\n" +
		"p/p.go T[E].g: break\n\tINVERT_LOOPCTRL#2: there is no second one.\n"))
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	p := place{file: "p/p.go", function: "f", text: "for a < b {", kind: "CONDITIONALS_NEGATION",
		number: 1}
	if list[p] != "it is so." {
		t.Errorf("the reason is %q", list[p])
	}
	stale := list.stale(testPackage(t).mutants)
	if len(stale) != 1 || stale[0].String() != "p/p.go T[E].g: break\n\tINVERT_LOOPCTRL#2" {
		t.Errorf("not there any more: %v", stale)
	}
	for _, bad := range []string{
		"no colon\n", "\tKIND#1: of no line\n", "a f: b\n\tKIND: no number\n",
		"a f: b\n\tno reason\n", "a f: b\n\t\ttoo far in\n",
		"a f: b\n\tKIND#1: one\n\tKIND#1: two\n",
	} {
		if list, err := readSurvivors(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, list)
		}
	}
}

// A sample consists of whole lines, is the same for the same seed, and leaves argued mutants out.
func TestSample(t *testing.T) {
	t.Parallel()
	lines := map[string]bool{}
	argued := survivors{{"p/p.go", "f", "a++", "INCREMENT_DECREMENT", 1}: "because"}
	for seed := range uint64(40) {
		first, again := testPackage(t), testPackage(t)
		for _, p := range []*pkg{first, again} {
			if err := p.sample(seed, 3, argued); err != nil {
				t.Fatal(err)
			}
		}
		if len(first.mutants) < 3 || len(first.mutants) != len(again.mutants) {
			t.Errorf("seed %d: %d and %d mutants", seed, len(first.mutants), len(again.mutants))
		}
		for _, m := range first.mutants {
			lines[m.text] = true
			if !again.lines[m.source()] {
				t.Errorf("seed %d: not the same lines", seed)
			}
		}
	}
	for text, want := range map[string]bool{"for a < b {": true, "a++": false,
		`return s + "x", a-b > size`: true, "break": true} {
		if lines[text] != want {
			t.Errorf("in a sample: %v: %s", lines[text], text)
		}
	}
}

// The committed list names only mutants that exist.
func TestCommittedSurvivors(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	file, err := os.Open(filepath.Join(root, "scripts", "mutants", "survivors.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	argued, err := readSurvivors(file)
	if err != nil {
		t.Fatal(err)
	}
	var every []*mutant
	for _, r := range rooms {
		c, err := read(root, r.folder)
		if err != nil {
			t.Fatal(err)
		}
		mutants := c.mutants()
		every = append(every, mutants...)
		listed := 0
		for _, m := range mutants {
			if argued[m.place] != "" {
				listed++
			}
		}
		if most := float64(len(mutants)) * (100 - r.least) / 100; float64(listed) > most {
			t.Errorf("%s: %d of %d mutants may live, which leaves a score below %.1f %%", r.folder,
				listed, len(mutants), r.least)
		}
	}
	for _, p := range argued.stale(every) {
		t.Errorf("not in the source any more:\n%s", p)
	}
}
