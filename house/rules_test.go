package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// file is one source file, with its slash-separated path from the root of the repository.
type file struct {
	path    string
	content []byte
}

// fileLinesMax is the greatest number of lines of a file.
const fileLinesMax = 900

// goFile is a parsed Go file.
type goFile struct {
	file
	folder    string
	test      bool
	generated bool
	tree      *ast.File
	positions *token.FileSet
}

// at formats a violation with its place.
func (f goFile) at(position token.Pos, format string, arguments ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, f.positions.Position(position).Line,
		fmt.Sprintf(format, arguments...))
}

// check applies every rule to the files and returns what is broken, sorted.
func check(files []file) []string {
	var broken []string
	packages := map[string][]goFile{}
	for _, f := range files {
		broken = append(broken, checkText(f)...)
		if path.Ext(f.path) != ".go" {
			continue
		}
		positions := token.NewFileSet()
		tree, err := parser.ParseFile(positions, f.path, f.content,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			broken = append(broken, err.Error())
			continue
		}
		parsed := goFile{file: f, folder: path.Dir(f.path),
			test: strings.HasSuffix(f.path, "_test.go"), generated: ast.IsGenerated(tree),
			tree:      tree,
			positions: positions}
		packages[parsed.folder] = append(packages[parsed.folder], parsed)
	}
	for _, group := range packages {
		broken = append(broken, checkPackage(group)...)
		for _, f := range group {
			if !f.generated {
				broken = append(broken, checkLines(f)...)
				broken = append(broken, checkWords(f)...)
			}
			if f.test {
				continue
			}
			broken = append(broken, checkImports(f)...)
			if !f.generated {
				broken = append(broken, checkComments(f)...)
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// roomOf returns the line of the table with the longest folder that contains this one.
func roomOf(folder string) (room, bool) {
	var found room
	for _, r := range rooms {
		if (folder == r.folder || strings.HasPrefix(folder, r.folder+"/")) &&
			len(r.folder) > len(found.folder) {
			found = r
		}
	}
	return found, found.folder != ""
}

// covers reports whether an entry of room.imports allows the folder.
func covers(entry, folder string) bool {
	if whole, ok := strings.CutSuffix(entry, "/..."); ok {
		return folder == whole || strings.HasPrefix(folder, whole+"/")
	}
	return folder == entry
}

// hasPrefixPath reports whether name equals prefix or is below it.
func hasPrefixPath(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}

// servesTests reports whether a package exists for tests only.
func servesTests(folder string) bool { return strings.HasSuffix(path.Base(folder), "test") }

// checkImports checks one non-test file against the table and the limits of pure rooms.
func checkImports(f goFile) []string {
	var broken []string
	r, ok := roomOf(f.folder)
	if !ok {
		return []string{f.path + ": the folder is in no room of the table"}
	}
	for _, spec := range f.tree.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			broken = append(broken, f.at(spec.Pos(), "import %s: %v", spec.Path.Value, err))
			continue
		}
		switch folder, own := strings.CutPrefix(name, module+"/"); {
		case own:
			inside := hasPrefixPath(folder, r.folder)
			if other, found := roomOf(folder); inside && found && other.folder != r.folder {
				inside = false
			}
			if !inside && !slices.ContainsFunc(r.imports, func(entry string) bool {
				return covers(entry, folder)
			}) {
				broken = append(broken, f.at(spec.Pos(), "%s may not import %s", r.folder, folder))
			}
			if servesTests(folder) && !servesTests(f.folder) {
				broken = append(broken, f.at(spec.Pos(),
					"%s serves tests and is imported outside of them", folder))
			}
		case strings.Contains(strings.Split(name, "/")[0], "."):
			if !slices.ContainsFunc(r.modules, func(prefix string) bool {
				return hasPrefixPath(name, prefix)
			}) {
				broken = append(broken, f.at(spec.Pos(), "%s may not import %s", r.folder, name))
			}
		case r.pure && !slices.Contains(r.except, name) &&
			slices.ContainsFunc(impure, func(prefix string) bool {
				return hasPrefixPath(name, prefix)
			}):
			broken = append(broken, f.at(spec.Pos(), "%s is pure and may not import %s", r.folder,
				name))
		}
	}
	if r.pure {
		ast.Inspect(f.tree, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.GoStmt:
				broken = append(broken, f.at(n.Pos(), "%s is pure and may not start a goroutine",
					r.folder))
			case *ast.SelectorExpr:
				if from, ok := n.X.(*ast.Ident); ok && from.Name == "time" &&
					!slices.Contains(durations, n.Sel.Name) {
					broken = append(broken, f.at(n.Pos(), "%s is pure and may not use time.%s",
						r.folder, n.Sel.Name))
				}
			}
			return true
		})
	}
	return broken
}

// checkPackage checks a package as a whole: its name and its package comment.
func checkPackage(files []goFile) []string {
	var broken []string
	told, generated, source := false, true, ""
	for _, f := range files {
		name := f.tree.Name.Name
		if emptyNames[strings.TrimSuffix(name, "_test")] || emptyNames[path.Base(f.folder)] {
			broken = append(broken, f.path+": the package's name says nothing")
		}
		if f.test {
			continue
		}
		source = f.folder
		generated = generated && f.generated
		opening := "Package " + name + " "
		if name == "main" {
			opening = "Command " + path.Base(f.folder) + " "
		}
		if f.tree.Doc != nil && strings.HasPrefix(f.tree.Doc.Text(), opening) {
			told = true
		}
	}
	if source != "" && !told && !generated {
		broken = append(broken, source+": the package has no comment that tells its story")
	}
	return broken
}

// checkComments requires a comment for every exported name: types, functions, methods of exported
// types, constants and variables. A group's comment covers the whole group.
func checkComments(f goFile) []string {
	var broken []string
	missing := func(name *ast.Ident, kind string) {
		broken = append(broken, f.at(name.Pos(), "exported %s %s has no comment", kind, name.Name))
	}
	for _, declaration := range f.tree.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if !d.Name.IsExported() || d.Doc != nil {
				continue
			}
			if d.Recv == nil {
				missing(d.Name, "function")
			} else if ast.IsExported(receiver(d.Recv.List[0].Type)) {
				missing(d.Name, "method")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						missing(s.Name, "type")
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							missing(name, d.Tok.String())
						}
					}
				}
			}
		}
	}
	return broken
}

// receiver returns the name of a method's type.
func receiver(expression ast.Expr) string {
	for {
		switch e := expression.(type) {
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.IndexListExpr:
			expression = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// columnsMax is the greatest number of columns of a line of code. A tab takes four.
const columnsMax = 100

// columnsOf counts the columns of a line.
func columnsOf(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// checkLines requires that lines are no longer than columnsMax, but for raw strings and for code
// and tables in comments.
func checkLines(f goFile) []string {
	raw := map[int]bool{}
	ast.Inspect(f.tree, func(node ast.Node) bool {
		text, ok := node.(*ast.BasicLit)
		if ok && text.Kind == token.STRING && strings.HasPrefix(text.Value, "`") {
			first := f.positions.Position(text.Pos()).Line
			for line := first; line <= f.positions.Position(text.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	var broken []string
	for i, line := range strings.Split(string(f.content), "\n") {
		columns := columnsOf(line)
		preformatted := strings.HasPrefix(strings.TrimLeft(line, "\t"), "//\t")
		if columns > columnsMax && !raw[i+1] && !preformatted {
			broken = append(broken, fmt.Sprintf("%s:%d: %d columns, at most %d", f.path, i+1,
				columns, columnsMax))
		}
	}
	return broken
}

// unclear are words of comments that hide who acts. Each stands with what to write.
var unclear = []struct {
	words  *regexp.Regexp
	advice string
}{
	{regexp.MustCompile(`(?i)\bwho` + `(?:so)?ever\b`), "name the actor"},
	{regexp.MustCompile(`(?i)\btells ` + `whether\b`), `write "reports whether"`},
	{regexp.MustCompile(`(?i)\b(?:some|any|every)` + `body\b`), "name the peer, member or caller"},
}

// checkWords looks for unclear words in comments.
func checkWords(f goFile) []string {
	var broken []string
	for _, group := range f.tree.Comments {
		for _, comment := range group.List {
			for _, word := range unclear {
				if found := word.words.FindString(comment.Text); found != "" {
					broken = append(broken, f.at(comment.Pos(), "%q: %s", found, word.advice))
				}
			}
		}
	}
	return broken
}

// The forbidden words are assembled from parts, so that this file passes its own test.
var (
	openEnd     = regexp.MustCompile(`\b(?:` + "TO" + `DO|` + "FIX" + `ME)\b`)
	machinePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=:,(<>])/(?:" + "wo" + "rk|" + "ro" + "ot|" +
		"ho" + "me/[a-z])(?:/|\\b)")
	lockedHost = regexp.MustCompile(`"resolved"\s*:|\bregistry\s*=|` + "\\bregis" + `try\.|` +
		"\\bpro" + `xy\.|@[a-z-]+:` + "regis" + "try")
)

// lockFiles name versions to fetch. They must not name a host to fetch from.
var lockFiles = []string{"package-lock.json", "go.sum", "go.mod", ".npmrc"}

// narrow are the extensions of sources in other languages, whose lines are not longer than
// columnsMax. A Svelte file may have longer ones: white space in its markup is shown.
var narrow = []string{".ts", ".tsx", ".css", ".js", ".mjs", ".py"}

// checkText checks any text: its lines, open ends, and paths and hosts of one machine.
func checkText(f file) []string {
	var broken []string
	find := func(pattern *regexp.Regexp, rule string) {
		for _, place := range pattern.FindAllIndex(f.content, -1) {
			line := 1 + bytes.Count(f.content[:place[1]-1], []byte("\n"))
			broken = append(broken, fmt.Sprintf("%s:%d: %s", f.path, line, rule))
		}
	}
	find(openEnd, "an open end is left in the code")
	find(machinePath, "a path of one machine")
	locks := slices.Contains(lockFiles, path.Base(f.path))
	if locks {
		find(lockedHost, "a lock file names a host to fetch from")
	}
	generated := bytes.Contains(f.content[:min(len(f.content), 200)], []byte("enerated by"))
	if lines := bytes.Count(f.content, []byte("\n")); lines > fileLinesMax && !generated &&
		!locks && path.Ext(f.path) != ".md" {
		broken = append(broken, fmt.Sprintf("%s: %d lines, at most %d", f.path, lines,
			fileLinesMax))
	}
	if slices.Contains(narrow, path.Ext(f.path)) && !generated {
		for i, line := range strings.Split(string(f.content), "\n") {
			if columns := columnsOf(line); columns > columnsMax {
				broken = append(broken, fmt.Sprintf("%s:%d: %d columns, at most %d", f.path, i+1,
					columns, columnsMax))
			}
		}
	}
	return broken
}
