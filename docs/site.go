// Package docs serves the documentation: the Markdown below this folder, rendered as pages beside
// a node's API and explorer.
//
// The binary embeds the Markdown. Handler renders all pages at the first request, keeps them in
// memory, and from then on only sends them. A page has a navigation that lists all pages in their
// sections, and no script. Links between the files become links between the pages. Links to other
// files of the repository lead to the repository on the web.
//
// Invariants: the pages load from their own origin only, so they work without a network beyond the
// node that serves them. Rendering reads embedded files only, so its cost is bounded and it fails
// at no node that passed the tests. Every file is in the navigation, and no link is dead.
package docs

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/static"
)

//go:embed *.md design/*.md reference/*.md figures/*.svg style.css
var source embed.FS

//go:embed page.html
var pageText string

// layout is the frame of every page.
var layout = template.Must(template.New("page").Parse(pageText))

const (
	// root is the path of all pages.
	root = "/docs/"
	// repository is the place of the files that are no pages.
	repository = "https://github.com/ledgerd/ledgerd/blob/main/"
	// indexName is the page at root.
	indexName = "README"
	// contentSecurityPolicy allows styles and images of this origin, and nothing else.
	contentSecurityPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// section is a part of the navigation.
type section struct {
	Title string
	names []string // of the pages: their paths below docs, without .md
	Pages []*page
}

// sections returns the navigation, without its pages.
func sections() []section {
	return []section{
		{Title: "Start", names: []string{indexName, "tutorial"}},
		{Title: "How to", names: []string{"membership", "access", "keys", "disks", "journals",
			"shards", "assets", "account-terms", "holds", "entries", "schedules", "dry-run",
			"sinks", "abci", "statements", "explorer", "auditing", "watching", "python",
			"typescript", "templates"}},
		{Title: "Reference", names: []string{"reference/commands", "reference/configuration",
			"reference/api", "reference/metrics", "encoding", "glossary", "status",
			"licences"}},
		{Title: "Concepts", names: []string{"guarantees", "certificates", "security", "fabric",
			"performance", "choosing-an-engine",
			"figures", "testing", "conformance"}},
		{Title: "Design", names: []string{"design/durability", "design/traffic", "design/cuts",
			"design/moves", "design/tree", "design/storage", "design/lone", "design/rounds",
			"design/prompt", "design/interleaving", "design/invariants", "design/deviations",
			"design/extending", "design/planted-bugs", "design/engines"}},
	}
}

// page is one rendered file.
type page struct {
	Title   string
	Path    string // of its URL
	Content template.HTML
	anchors []string
	links   []string // their destinations, as rendered
}

// site is the whole documentation, ready to be sent. It never changes after its making.
type site struct {
	files   map[string]*static.File // by the path of the URL
	missing *static.File
	pages   []*page
}

// Handler returns the handler of all pages, to be mounted at /docs/. It answers GET and HEAD, and
// is safe for concurrent use.
func Handler() http.Handler {
	load := sync.OnceValues(newSite)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := load()
		if err != nil {
			http.Error(w, "the documentation does not load: "+err.Error(),
				http.StatusInternalServerError)
			return
		}
		s.ServeHTTP(w, r)
	})
}

// newSite renders all pages.
func newSite() (*site, error) {
	s := &site{files: map[string]*static.File{}}
	navigation := sections()
	for i := range navigation {
		for _, name := range navigation[i].names {
			content, err := source.ReadFile(name + ".md")
			if err != nil {
				return nil, err
			}
			p, err := render(name, content)
			if err != nil {
				return nil, fmt.Errorf("%s.md: %w", name, err)
			}
			navigation[i].Pages = append(navigation[i].Pages, p)
			s.pages = append(s.pages, p)
		}
	}
	for _, p := range s.pages {
		file, err := framed(p, navigation)
		if err != nil {
			return nil, err
		}
		s.files[p.Path] = file
	}
	var err error
	s.missing, err = framed(&page{Title: "No such page", Content: "<h1>No such page</h1>\n" +
		"<p>The documentation has no page at this address. The list has all pages.</p>"},
		navigation)
	return s, errors.Join(err, s.addFiles())
}

// framed renders a page with its navigation.
func framed(p *page, navigation []section) (*static.File, error) {
	var b bytes.Buffer
	err := layout.Execute(&b, struct {
		*page
		Sections []section
	}{p, navigation})
	if err != nil {
		return nil, err
	}
	return static.New("text/html; charset=utf-8", b.Bytes(), false), nil
}

// addFiles adds the style sheet and the images.
func (s *site) addFiles() error {
	types := map[string]string{".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	return fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		contentType := types[path.Ext(name)]
		if err != nil || contentType == "" {
			return err
		}
		content, err := source.ReadFile(name)
		if err != nil {
			return err
		}
		s.files[root+name] = static.New(contentType, content, false)
		return nil
	})
}

// ServeHTTP answers with the page or file at the path, or with 404.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	static.Secure(w.Header(), contentSecurityPolicy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the documentation answers GET and HEAD only", http.StatusMethodNotAllowed)
		return
	}
	if file := s.files[r.URL.Path]; file != nil {
		file.ServeHTTP(w, r)
		return
	}
	// A reader who follows the name of a file gets its page.
	if name, is := strings.CutSuffix(r.URL.Path, ".md"); is && s.files[urlOf(
		strings.TrimPrefix(name, root))] != nil {
		http.Redirect(w, r, urlOf(strings.TrimPrefix(name, root)), http.StatusMovedPermanently)
		return
	}
	s.missing.NotFound(w, r)
}

// urlOf returns the path of a page's URL.
func urlOf(name string) string {
	if name == indexName {
		return root
	}
	return root + name
}
