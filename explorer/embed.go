// Package explorer serves the web explorer: a single-page application whose built files live in
// this binary.
//
// The source is TypeScript and Svelte under src, the built files are under dist and are committed,
// so that building ledgerd needs Go only; CI builds them again and fails when they differ. Handler
// loads the built files once, as files of package static, and serves them from memory.
//
// Invariants: a file under assets/ has a hash of its content in its name, so it may be cached for
// ever; everything else is revalidated on each use. The paths of the pages get index.html, and so
// do browsers with a 404 elsewhere. The page's policy lets it load from its own origin only, so the
// explorer works without a network beyond the node that serves it. It calls other nodes only if the
// reader names them.
package explorer

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/ledgerd/ledgerd/internal/static"
)

// dist holds the built files; the all: prefix keeps names that begin with a dot or an underscore.
//
//go:embed all:dist
var dist embed.FS

// indexName is the application's one page, served for every path that is no file.
const indexName = "index.html"

// contentSecurityPolicy loads everything from this origin. Styles may stand inline, because the
// charts and the digraph place what they draw through style attributes; scripts may not. Calls may
// go to any origin, because the reader names the nodes to compare. Those nodes decide which origins
// they answer.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self' " +
	"'unsafe-inline'; img-src 'self' data:; " +
	"font-src 'self'; connect-src 'self' http: https:; manifest-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// contentTypes maps the extensions that the build produces; the host's own table is not asked,
// since it differs between hosts.
var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".ico":  "image/x-icon",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".png":  "image/png",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// handler serves a fixed set of files and never changes after its making, so it needs no lock.
type handler struct {
	files map[string]*static.File
	index *static.File
}

// Handler returns the handler of the whole explorer, to be mounted at the root beneath the API's
// own paths. It answers GET and HEAD, is safe for concurrent use and holds the files in memory.
func Handler() http.Handler {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(fmt.Sprintf("explorer: the embedded folder is missing: %v", err))
	}
	h, err := newHandler(root)
	if err != nil {
		panic(fmt.Sprintf("explorer: the embedded files do not load: %v", err))
	}
	return h
}

// newHandler reads every file under root; it fails if one cannot be read, has an unknown type, or
// index.html is missing.
func newHandler(root fs.FS) (*handler, error) {
	h := &handler{files: make(map[string]*static.File)}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := newFile(name, content)
		if err != nil {
			return err
		}
		h.files[name] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the built explorer: %w", err)
	}
	index, ok := h.files[indexName]
	if !ok {
		return nil, fmt.Errorf("read the built explorer: %s: %w", indexName, fs.ErrNotExist)
	}
	h.index = index
	return h, nil
}

func newFile(name string, content []byte) (*static.File, error) {
	contentType, ok := contentTypes[path.Ext(name)]
	if !ok {
		return nil, fmt.Errorf("%s: no content type is known for this extension", name)
	}
	return static.New(contentType, content, strings.HasPrefix(name, "assets/")), nil
}

// pages matches the paths of the application's pages, as src/lib/router.svelte.ts lists them. The
// list of a book's assets is at /assets, and the built files are below it.
var pages = regexp.MustCompile(`^/(?:index\.html|blocks|accounts|organisations|assets|nodes|rounds|` +
	`agreement|search|shards(?:/blocks|/crossings|/\d{1,9}(?:/blocks(?:/[0-9a-zA-Z]+)?)?)?|` +
	`transactions|holds|schedules|records|chart|` +
	`(?:block|tx|account|organisation|asset|record|hold|schedule)/.+)?$`)

// ServeHTTP answers with the file at the path, with the application's page, or with 404. A browser
// gets a 404 as the application's own page, which says so; other clients get a line of text.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the explorer answers GET and HEAD only", http.StatusMethodNotAllowed)
		return
	}
	static.Secure(w.Header(), contentSecurityPolicy)
	name := path.Clean("/" + r.URL.Path)
	if f, found := h.files[strings.TrimPrefix(name, "/")]; found {
		f.ServeHTTP(w, r)
		return
	}
	if pages.MatchString(name) {
		h.index.ServeHTTP(w, r)
		return
	}
	asset := strings.HasPrefix(name+"/", "/assets/") || path.Ext(name) != ""
	if asset || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, "nothing is at this path: the explorer's pages begin at /",
			http.StatusNotFound)
		return
	}
	h.index.NotFound(w, r)
}
