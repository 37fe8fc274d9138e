package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public lists the rooms that programs outside of the repository may rely on. All other rooms
// change as the product needs.
var public = []string{"client", "client/keyfile", "client/signer", "machine", "order",
	"allconcur", "digraph", "tram", "rdmanet",
	"rdmanet/memory", "rdmanet/p2p", "ledger", "ledger/state"}

// surfaces is the folder with one file for each public room: its exported declarations.
const surfaces = "testdata/surface"

// TestSurface compares the exported declarations of each public room with the committed ones, so
// that no change to them is made by accident. The flag -write records a change that is meant.
func TestSurface(t *testing.T) {
	t.Parallel()
	var names []string
	for _, folder := range public {
		name := strings.ReplaceAll(folder, "/", "-") + ".txt"
		names = append(names, name)
		got, err := surfaceOf(os.DirFS(".."), folder)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(surfaces, name)
		want, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if got == string(want) {
			continue
		}
		if !*write {
			t.Errorf("the exported declarations of %s changed:\n%s\nIf that is meant, run "+
				"go test ./house -run Surface -write, and say so in CHANGELOG.md.", folder,
				firstDifference(string(want), got))
			continue
		}
		err = errors.Join(os.MkdirAll(surfaces, 0o755), os.WriteFile(path, []byte(got), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(surfaces)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(names, entry.Name()) {
			t.Errorf("%s/%s is of no public room", surfaces, entry.Name())
		}
	}
}

// TestSurfaceCatches changes a package in ways that its users notice, and in ways that they do not.
func TestSurfaceCatches(t *testing.T) {
	t.Parallel()
	const before = `// Package low is low.
package low

// Level is a level.
type Level int

// High is the highest level.
const High Level = 3

// Reader has a level.
type Reader struct {
	// Level is its level.
	Level Level
	hidden int
}

// Read reads at most n levels.
func (r *Reader) Read(n int) (Level, error) { return r.Level, nil }
`
	surface := func(content string) string {
		t.Helper()
		text, err := surfaceOf(mapFS{"low/a.go": content,
			"low/a_test.go": "package low; type Test int"}, "low")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, c := range []struct {
		name, old, new string
		noticed        bool
	}{
		{"a comment", "reads at most", "gives at most", false},
		{"a body", "return r.Level, nil", "return 1, nil", false},
		{"a field that is not exported", "hidden int", "hidden string", false},
		{"a field", "Level Level\n\thidden", "Grade Level\n\thidden", true},
		{"a parameter's type", "(n int)", "(n int64)", true},
		{"a result", "(Level, error)", "Level", true},
		{"a method's name", "Read(", "ReadAll(", true},
		{"a receiver", "(r *Reader)", "(r Reader)", true},
		{"a constant's value", "Level = 3", "Level = 4", true},
		{"a type", "Level int", "Level uint8", true},
	} {
		changed := strings.Replace(before, c.old, c.new, 1)
		if changed == before {
			t.Fatalf("%s: nothing was changed", c.name)
		}
		if noticed := surface(changed) != surface(before); noticed != c.noticed {
			t.Errorf("%s: noticed %v, want %v", c.name, noticed, c.noticed)
		}
	}
	if text := surface(before); strings.Contains(text, "hidden") || strings.Contains(text, "Test") {
		t.Errorf("names that are not exported are shown:\n%s", text)
	}
}

// mapFS gives the surface of files in memory.
type mapFS map[string]string

func (m mapFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
}

func (m mapFS) Glob(string) (names []string, _ error) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m mapFS) ReadFile(name string) ([]byte, error) { return []byte(m[name]), nil }

// surfaceOf returns the exported declarations of a package without comments and bodies, in the
// order in which go doc shows them.
func surfaceOf(root fs.FS, folder string) (string, error) {
	names, err := fs.Glob(root, folder+"/*.go")
	if err != nil {
		return "", err
	}
	positions := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return "", err
		}
		tree, err := parser.ParseFile(positions, name, content, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		files = append(files, tree)
	}
	described, err := doc.NewFromFiles(positions, files, module+"/"+folder)
	if err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	var b bytes.Buffer
	show := func(declaration ast.Node) {
		if err == nil {
			err = format.Node(&b, positions, declaration)
			b.WriteString("\n")
		}
	}
	values := func(list []*doc.Value) {
		for _, value := range list {
			show(value.Decl)
		}
	}
	functions := func(list []*doc.Func) {
		for _, function := range list {
			show(function.Decl)
		}
	}
	values(described.Consts)
	values(described.Vars)
	functions(described.Funcs)
	for _, described := range described.Types {
		show(described.Decl)
		values(described.Consts)
		values(described.Vars)
		functions(described.Funcs)
		functions(described.Methods)
	}
	return b.String(), err
}

// firstDifference shows the first lines in which two texts differ.
func firstDifference(want, got string) string {
	before, after := strings.Split(want, "\n"), strings.Split(got, "\n")
	at := 0
	for at < min(len(before), len(after)) && before[at] == after[at] {
		at++
	}
	line := func(lines []string) string {
		if at < len(lines) {
			return lines[at]
		}
		return "(nothing more)"
	}
	return fmt.Sprintf("line %d was\n\t%s\nand is\n\t%s", at+1, line(before), line(after))
}
