package docs

import (
	"bytes"
	"errors"
	"html/template"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown reads CommonMark with tables. It passes no HTML on.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// unbrokenMax is the length, in bytes, up to which code in a text stays in one line.
const unbrokenMax = 32

// render renders the Markdown file at docs/name.md.
func render(name string, content []byte) (*page, error) {
	p := &page{Path: urlOf(name)}
	tree := markdown.Parser().Parse(text.NewReader(content),
		parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{used: map[string]bool{}}))))
	err := ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok {
				p.anchors = append(p.anchors, string(id.([]byte)))
			}
			if n.Level == 1 && p.Title == "" {
				p.Title = plain(n, content)
			}
		case *ast.Link:
			n.Destination = []byte(target(name, string(n.Destination)))
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			n.Destination = []byte(target(name, string(n.Destination)))
			p.links = append(p.links, string(n.Destination))
		case *ast.CodeSpan:
			if len(plain(n, content)) <= unbrokenMax {
				n.SetAttributeString("class", []byte("short"))
			}
		case *ast.RawHTML, *ast.HTMLBlock:
			return ast.WalkStop, errors.New("HTML stands in the text, and would be left out")
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	if p.Title == "" {
		return nil, errors.New("the page has no title")
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, content, tree); err != nil {
		return nil, err
	}
	// Wide tables and code scroll by themselves, also with the keyboard. Text has no such tags:
	// all of its angle brackets are escaped.
	p.Content = template.HTML(strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`).Replace(b.String()))
	return p, nil
}

// plain returns the text of a node without its markup.
func plain(node ast.Node, content []byte) string {
	var b strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			b.Write(t.Value(content))
		} else {
			b.WriteString(plain(child, content))
		}
	}
	return b.String()
}

// target returns where a link of the page leads: to a page, to a file beside the pages, to the
// repository, or, if it is a whole URL or an anchor, where it leads anyway.
func target(name, link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	if file == "" || strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	file = path.Join("docs", path.Dir(name), file)
	below, inside := strings.CutPrefix(file, "docs/")
	if _, err := source.Open(below); !inside || err != nil {
		return repository + file + anchor
	}
	if below, is := strings.CutSuffix(below, ".md"); is {
		return urlOf(below) + anchor
	}
	return root + below
}

// anchors makes the anchors of one page's headings, as GitHub makes them.
type anchors struct{ used map[string]bool }

// Generate implements parser.IDs.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(heading)))
	anchor := base
	for i := 1; a.used[anchor]; i++ {
		anchor = base + "-" + strconv.Itoa(i)
	}
	a.used[anchor] = true
	return []byte(anchor)
}

// Put implements parser.IDs.
func (a *anchors) Put(anchor []byte) { a.used[string(anchor)] = true }
