package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// change is one change that gremlins makes to a token.
type change struct {
	kind string
	to   token.Token
}

// changes are the changes that gremlins makes, as in its internal/engine/mappings.go.
var changes = map[token.Token][]change{
	token.ADD: {{"ARITHMETIC_BASE", token.SUB}},
	token.ADD_ASSIGN: {{"INVERT_ASSIGNMENTS", token.SUB_ASSIGN},
		{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN}},
	token.AND: {{"INVERT_BITWISE", token.OR}},
	token.AND_ASSIGN: {{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN},
		{"INVERT_BWASSIGN", token.OR_ASSIGN}},
	token.AND_NOT: {{"INVERT_BITWISE", token.AND}},
	token.AND_NOT_ASSIGN: {{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN},
		{"INVERT_BWASSIGN", token.AND_ASSIGN}},
	token.BREAK:    {{"INVERT_LOOPCTRL", token.CONTINUE}},
	token.CONTINUE: {{"INVERT_LOOPCTRL", token.BREAK}},
	token.DEC:      {{"INCREMENT_DECREMENT", token.INC}},
	token.EQL:      {{"CONDITIONALS_NEGATION", token.NEQ}},
	token.GEQ: {{"CONDITIONALS_BOUNDARY", token.GTR},
		{"CONDITIONALS_NEGATION", token.LSS}},
	token.GTR: {{"CONDITIONALS_BOUNDARY", token.GEQ},
		{"CONDITIONALS_NEGATION", token.LEQ}},
	token.INC:  {{"INCREMENT_DECREMENT", token.DEC}},
	token.LAND: {{"INVERT_LOGICAL", token.LOR}},
	token.LEQ: {{"CONDITIONALS_BOUNDARY", token.LSS},
		{"CONDITIONALS_NEGATION", token.GTR}},
	token.LOR: {{"INVERT_LOGICAL", token.LAND}},
	token.LSS: {{"CONDITIONALS_BOUNDARY", token.LEQ},
		{"CONDITIONALS_NEGATION", token.GEQ}},
	token.MUL: {{"ARITHMETIC_BASE", token.QUO}},
	token.MUL_ASSIGN: {{"INVERT_ASSIGNMENTS", token.QUO_ASSIGN},
		{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN}},
	token.NEQ: {{"CONDITIONALS_NEGATION", token.EQL}},
	token.OR:  {{"INVERT_BITWISE", token.AND}},
	token.OR_ASSIGN: {{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN},
		{"INVERT_BWASSIGN", token.AND_ASSIGN}},
	token.QUO: {{"ARITHMETIC_BASE", token.MUL}},
	token.REM: {{"ARITHMETIC_BASE", token.MUL}},
	token.SHL: {{"INVERT_BITWISE", token.SHR}},
	token.SHL_ASSIGN: {{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN},
		{"INVERT_BWASSIGN", token.SHR_ASSIGN}},
	token.SHR: {{"INVERT_BITWISE", token.SHL}},
	token.SHR_ASSIGN: {{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN},
		{"INVERT_BWASSIGN", token.SHL_ASSIGN}},
	token.SUB: {{"INVERT_NEGATIVES", token.ADD}, {"ARITHMETIC_BASE", token.ADD}},
	token.SUB_ASSIGN: {{"INVERT_ASSIGNMENTS", token.ADD_ASSIGN},
		{"REMOVE_SELF_ASSIGNMENTS", token.ASSIGN}},
	token.XOR: {{"INVERT_BITWISE", token.AND}},
}

// mutant is one change of one token.
type mutant struct {
	place
	line, column int
	to           token.Token
	tok          *token.Token
	code         *code
}

// place identifies a mutant even after other lines of its file have changed. It consists of the
// mutant's function (T.f for a method, "" outside of any), the text of its line, and its number
// among the mutants of its kind on the line, from 1.
type place struct {
	file, function, text, kind string
	number                     int
}

func (p place) String() string {
	return fmt.Sprintf("%s %s: %s\n\t%s#%d", p.file, p.function, p.text, p.kind, p.number)
}

// code is the source of one package, without tests.
type code struct {
	folder  string
	set     *token.FileSet
	files   []*ast.File
	texts   map[string][]string // the lines of each file
	exports map[string]string   // the export data of each imported package, by import path
}

// read parses the package in a folder below root.
func read(root, folder string) (*code, error) {
	c := &code{folder: folder, set: token.NewFileSet(), texts: map[string][]string{}}
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		short := path.Join(folder, filepath.Base(name))
		file, err := parser.ParseFile(c.set, short, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, file)
		c.texts[short] = strings.Split(string(source), "\n")
	}
	if len(c.files) == 0 {
		return nil, fmt.Errorf("there is no Go package in %s", folder)
	}
	return c, nil
}

// mutants lists all mutants of a package, in the order of their places. A mutant that gremlins
// lists twice, under two kinds, is listed twice here, too.
func (c *code) mutants() (list []*mutant) {
	for _, file := range c.files {
		function := ""
		ast.Inspect(file, func(n ast.Node) bool {
			var tok *token.Token
			var at token.Pos
			switch n := n.(type) {
			case *ast.FuncDecl:
				function = functionName(n)
				return true
			case *ast.GenDecl:
				if c.set.Position(n.Pos()).Column == 1 {
					function = ""
				}
				return true
			case *ast.AssignStmt:
				tok, at = &n.Tok, n.TokPos
			case *ast.BinaryExpr:
				tok, at = &n.Op, n.OpPos
			case *ast.BranchStmt:
				tok, at = &n.Tok, n.TokPos
			case *ast.IncDecStmt:
				tok, at = &n.Tok, n.TokPos
			case *ast.UnaryExpr:
				tok, at = &n.Op, n.OpPos
			default:
				return true
			}
			position := c.set.Position(at)
			for _, change := range changes[*tok] {
				p := place{file: position.Filename, function: function, kind: change.kind,
					text: strings.TrimSpace(c.texts[position.Filename][position.Line-1])}
				list = append(list, &mutant{place: p, line: position.Line, column: position.Column,
					to: change.to, tok: tok, code: c})
			}
			return true
		})
	}
	slices.SortStableFunc(list, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line),
			cmp.Compare(a.column, b.column))
	})
	counts := map[place]int{}
	for i, m := range list {
		if i > 0 && (list[i-1].file != m.file || list[i-1].line != m.line) {
			clear(counts)
		}
		counts[m.place]++
		m.number = counts[m.place]
	}
	return list
}

// functionName returns the name of a function, with its receiver's type for a method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	return types.ExprString(of) + "." + f.Name.Name
}

// viable reports whether a mutant compiles. Gremlins counts one that does not compile as killed,
// since go test fails. That would raise the score.
func (m *mutant) viable() (bool, error) {
	c := m.code
	if c.exports == nil {
		if err := c.loadExports(); err != nil {
			return false, err
		}
	}
	// Print and parse the file again: that is the source that gremlins gives to the compiler.
	i := slices.IndexFunc(c.files, func(f *ast.File) bool {
		return c.set.Position(f.Pos()).Filename == m.file
	})
	parsed, err := parser.ParseFile(c.set, m.file, m.mutated(), parser.SkipObjectResolution)
	if err != nil {
		return false, nil
	}
	files := slices.Clone(c.files)
	files[i] = parsed
	config := types.Config{Importer: importer.ForCompiler(c.set, "gc", c.open)}
	_, err = config.Check(c.folder, c.set, files, nil)
	return err == nil, nil
}

// mutated returns the source of the mutant's file with the change, or nothing if it cannot be
// printed.
func (m *mutant) mutated() []byte {
	was := *m.tok
	*m.tok = m.to
	defer func() { *m.tok = was }()
	var text bytes.Buffer
	for _, file := range m.code.files {
		if m.code.set.Position(file.Pos()).Filename == m.file &&
			printer.Fprint(&text, m.code.set, file) != nil {
			return nil
		}
	}
	return text.Bytes()
}

// loadExports gets the compiled form of the package's imports from the go command.
func (c *code) loadExports() error {
	c.exports = map[string]string{}
	command := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}",
		"./"+c.folder)
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return fmt.Errorf("go list %s: %w", c.folder, err)
	}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		c.exports[name] = file
	}
	return nil
}

func (c *code) open(name string) (io.ReadCloser, error) {
	if c.exports[name] == "" {
		return nil, fmt.Errorf("no compiled form of %s", name)
	}
	return os.Open(c.exports[name])
}
