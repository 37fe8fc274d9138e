package home

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/docs/pagetest"
)

// TestReference compares docs/reference/configuration.md with Config, its comments and its
// defaults. The flag -write writes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	comments := configComments(t)
	var b strings.Builder
	b.WriteString("# Configuration\n\nEvery key of `config.toml`, which lies in a node's home " +
		"folder. The page is made from\n`node/home/config.go`; `go test ./node/home -run " +
		"TestReference -write` writes it.\n\n")
	b.WriteString(pagetest.Wrap("A node reads the file when it starts, and some keys again at a "+
		"SIGHUP: "+codes(reloads)+". The environment "+
		"overrides it: `"+EnvPrefix+"API_LISTEN` overrides `listen` in `[api]`, and so on. A "+
		"node refuses to start with an unknown key, with a value out of its bounds, or without "+
		"`listen` in `[api]` and `[fabric]`. All other keys are optional. Durations are text such "+
		"as `\"800ms\"` or `\"5s\"`.") + "\n")
	defaults := reflect.ValueOf(Default())
	var listed []string
	for i := range defaults.NumField() {
		section, field := defaults.Type().Field(i), defaults.Field(i)
		name := section.Tag.Get("koanf")
		fmt.Fprintf(&b, "\n## [%s]\n\n%s\n\n| key | type | default | meaning |\n"+
			"|---|---|---|---|\n", name, pagetest.Wrap(comments[section.Type.Name()]))
		for j := range field.NumField() {
			key := field.Type().Field(j)
			comment := comments[section.Type.Name()+"."+key.Name]
			if comment == "" {
				t.Errorf("%s.%s has no comment that says what the key means",
					section.Type.Name(), key.Name)
			}
			tag := key.Tag.Get("koanf")
			listed = append(listed, name+"."+tag)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", pagetest.Code(tag), typeName(key.Type),
				pagetest.Code(valueText(field.Field(j))), pagetest.Cell(capital(comment)))
		}
	}
	if !slices.Equal(listed, keys) {
		t.Errorf("Config has the keys %v; a file may have %v", listed, keys)
	}
	b.WriteString("\n## A new node's file\n\n`ledgerd init` and `ledgerd testnet` write this " +
		"file, with addresses of their own:\n\n```toml\n")
	config := Initial("")
	config.Fabric.Listen = "127.0.0.1:8081"
	b.WriteString(config.text() + "```\n")
	pagetest.Compare(t, "configuration.md", b.String())
}

// configComments returns the comments of config.go: of the types by name, without the name at the
// beginning, and of their fields by type and name.
func configComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		declaration, ok := node.(*ast.GenDecl)
		if !ok || declaration.Tok != token.TYPE {
			return true
		}
		spec := declaration.Specs[0].(*ast.TypeSpec)
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		name := spec.Name.Name
		comments[name] = capital(strings.TrimPrefix(oneLine(declaration.Doc.Text()), name+" "))
		for _, field := range structure.Fields.List {
			text := field.Doc.Text() + " " + field.Comment.Text()
			comments[name+"."+field.Names[0].Name] = oneLine(text)
		}
		return true
	})
	return comments
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// capital makes a comment a sentence.
func capital(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// typeName returns the type of a key as the file has it.
func typeName(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[time.Duration]():
		return "duration"
	case of.Kind() == reflect.String:
		return "text"
	case of.Kind() == reflect.Slice:
		return "list of texts"
	case of.Kind() == reflect.Float64:
		return "number"
	case of.Kind() == reflect.Bool:
		return "true or false"
	default:
		return "integer"
	}
}

// valueText returns a default as the file has it, and "" for an empty one.
func valueText(of reflect.Value) string {
	switch value := of.Interface().(type) {
	case time.Duration:
		return strconv.Quote(value.String())
	case int, int64, float64, bool:
		return fmt.Sprint(value)
	}
	if of.Len() == 0 {
		return ""
	}
	return strconv.Quote(of.String())
}

// codes lists keys as the page shows them.
func codes(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = "`" + key + "`"
	}
	return strings.Join(quoted, ", ")
}
