// Command platforms checks that the module compiles for other platforms.
//
//	go run ./scripts/platforms linux/arm64 darwin/arm64
//
// It checks the types of every package and test without cgo, from the sources alone. So it finds
// what a platform lacks (a system call, a field, a file for that platform) in a few seconds. A
// build finds the same, but first generates code for all dependencies and the standard library,
// which takes minutes of processor time for each platform.
//
// The exit status is 1 if anything does not compile.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/platforms OS/ARCHITECTURE...")
		os.Exit(2)
	}
	for _, platform := range os.Args[1:] {
		if err := check(".", platform); err != nil {
			fmt.Fprintf(os.Stderr, "for %s:\n%v\n", platform, err)
			os.Exit(1)
		}
	}
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	// ImportMap maps the imports whose packages have other names.
	ImportMap map[string]string
	Module    *struct{ Main bool }
}

// check checks the types of all packages of the module in dir, and of all that they import.
func check(dir, platform string) error {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("%q: write OS/ARCHITECTURE", platform)
	}
	sizes := types.SizesFor("gc", architecture)
	if sizes == nil {
		return fmt.Errorf("there is no architecture %q", architecture)
	}
	list := exec.Command("go", "list", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
	var complaints bytes.Buffer
	list.Stderr = &complaints
	output, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(complaints.Bytes()))
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	// The packages come in an order in which each is after its imports.
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue // go list generates the main packages of tests
		}
		if checked[p.ImportPath], err = p.check(checked, sizes); err != nil {
			return err
		}
	}
}

// check checks one package, given the packages that it imports. Of a package outside the module it
// checks the declarations only.
func (p *listed) check(imports map[string]*types.Package, sizes types.Sizes) (*types.Package,
	error) {
	fileSet := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fileSet, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	var wrong []error
	configuration := types.Config{
		IgnoreFuncBodies: p.Module == nil || !p.Module.Main,
		Sizes:            sizes,
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if found := imports[path]; found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("go list did not list %s", path)
		}),
		Error: func(err error) { wrong = append(wrong, err) },
	}
	// The import path of a test's variant ends with the name of the test in brackets.
	path, _, _ := strings.Cut(p.ImportPath, " ")
	checked, _ := configuration.Check(path, fileSet, files, nil) // Error collects the errors
	return checked, errors.Join(wrong...)
}

// importer is a types.Importer.
type importer func(path string) (*types.Package, error)

// Import returns a package.
func (i importer) Import(path string) (*types.Package, error) { return i(path) }
