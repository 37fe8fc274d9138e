package docs

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPageIsInTheNavigation(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, part := range sections() {
		listed = append(listed, part.names...)
	}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		page, is := strings.CutSuffix(name, ".md")
		if is && !slices.Contains(listed, page) {
			t.Errorf("%s is in no section of the navigation, or is not embedded", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if unique := slices.Compact(slices.Clone(listed)); len(unique) != len(listed) {
		t.Errorf("a page is in the navigation twice: %v", listed)
	}
}

// TestLinks follows every link of the pages, of README.md and of ARCHITECTURE.md.
func TestLinks(t *testing.T) {
	t.Parallel()
	s, err := newSite()
	if err != nil {
		t.Fatal(err)
	}
	outside := map[string]*page{}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		outside[name] = readOutside(t, name)
	}
	follow := func(from, link string) {
		link, below := strings.CutPrefix(link, repository)
		file, anchor, _ := strings.Cut(link, "#")
		switch {
		case below && outside[file] != nil:
			if anchor != "" && !slices.Contains(outside[file].anchors, anchor) {
				t.Errorf("%s links to %s, which has no anchor %s", from, file, anchor)
			}
		case below:
			if _, err := os.Stat("../" + file); err != nil {
				t.Errorf("%s has a dead link: %v", from, err)
			}
		case strings.Contains(file, "://"):
		default:
			if file != "" && s.files[file] == nil {
				t.Errorf("%s has a dead link to %s", from, file)
			}
			i := slices.IndexFunc(s.pages, func(p *page) bool { return p.Path == file })
			if anchor != "" && (i < 0 || !slices.Contains(s.pages[i].anchors, anchor)) {
				t.Errorf("%s links to %s, which has no anchor %s", from, file, anchor)
			}
		}
	}
	links := 0
	for _, p := range s.pages {
		for _, link := range p.links {
			if strings.HasPrefix(link, "#") {
				link = p.Path + link
			}
			follow(p.Path, link)
			links++
		}
	}
	for name, p := range outside {
		for _, link := range p.links {
			if strings.HasPrefix(link, "#") {
				link = repository + name + link
			}
			follow(name, link)
			links++
		}
	}
	if links < 200 {
		t.Errorf("%d links were followed: the test does not read what it should", links)
	}
}

// readOutside reads a page of the repository's folder: its links and anchors, with those of HTML.
func readOutside(t *testing.T, name string) *page {
	t.Helper()
	content, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	html := regexp.MustCompile(`<a id="([^"]+)"></a>|<!--.*?-->`)
	var anchors []string
	for _, match := range html.FindAllSubmatch(content, -1) {
		anchors = append(anchors, string(match[1]))
	}
	p, err := render("../"+strings.TrimSuffix(name, ".md"), html.ReplaceAll(content, nil))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p.anchors = append(p.anchors, anchors...)
	return p
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, link, want string }{
		{"README", "tutorial.md", "/docs/tutorial"},
		{"README", "../ARCHITECTURE.md#x", repository + "ARCHITECTURE.md#x"},
		{"README", "#x", "#x"},
		{"design/storage", "../disks.md#recovery", "/docs/disks#recovery"},
		{"design/storage", "durability.md", "/docs/design/durability"},
		{"design/storage", "../README.md", "/docs/"},
		{"design/storage", "../../ledger/doc.go", repository + "ledger/doc.go"},
		{"figures", "figures/figure-6.6.svg", "/docs/figures/figure-6.6.svg"},
		{"figures", "screenshot.png", repository + "docs/screenshot.png"},
		{"figures", "https://example.org/a.md", "https://example.org/a.md"},
	} {
		if got := target(test.name, test.link); got != test.want {
			t.Errorf("target(%s, %s) = %s, want %s", test.name, test.link, got, test.want)
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	p, err := render("a", []byte("# A `b` c's (d): 1.2\n\n## [x]\n\n## E_f\n\n## [x]\n\n## Über\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a-b-cs-d-12", "x", "e_f", "x-1", "über"}
	if !slices.Equal(p.anchors, want) || p.Title != "A b c's (d): 1.2" {
		t.Errorf("anchors %q of %q, want %q", p.anchors, p.Title, want)
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no title": "text\n", "a block of HTML": "# A\n\n<div>x</div>\n",
		"HTML": "# A\n\nx <b>y</b>\n",
	} {
		if _, err := render("a", []byte(text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// served is the handler that the tests ask. It renders once.
var served = Handler()

func get(method, path string, header ...string) *http.Response {
	request := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	served.ServeHTTP(recorder, request)
	return recorder.Result()
}

func TestPaths(t *testing.T) {
	t.Parallel()
	const html = "text/html; charset=utf-8"
	for _, test := range []struct {
		path        string
		status      int
		contentType string
	}{
		{"/docs/", 200, html},
		{"/docs/tutorial", 200, html},
		{"/docs/design/storage", 200, html},
		{"/docs/reference/api", 200, html},
		{"/docs/style.css", 200, "text/css; charset=utf-8"},
		{"/docs/figures/figure-6.6.svg", 200, "image/svg+xml"},
		{"/docs/tutorial.md", 301, html},
		{"/docs/README.md", 301, html},
		{"/docs/nothing", 404, html},
		{"/docs/nothing.md", 404, html},
		{"/docs/page.html", 404, html},
		{"/docs/../go.mod", 404, html},
		{"/docs/site.go", 404, html},
	} {
		response := get(http.MethodGet, test.path)
		if response.StatusCode != test.status ||
			response.Header.Get("Content-Type") != test.contentType {
			t.Errorf("GET %s = %d, %s", test.path, response.StatusCode,
				response.Header.Get("Content-Type"))
		}
		if got := response.Header.Get("Content-Security-Policy"); got != contentSecurityPolicy {
			t.Errorf("GET %s: Content-Security-Policy = %q", test.path, got)
		}
	}
	if got := get(http.MethodPost, "/docs/").StatusCode; got != http.StatusMethodNotAllowed {
		t.Errorf("POST /docs/ = %d", got)
	}
	response := get(http.MethodGet, "/docs/tutorial", "Accept-Encoding", "gzip")
	if response.Header.Get("Content-Encoding") != "gzip" {
		t.Error("the tutorial is not compressed")
	}
	again := get(http.MethodGet, "/docs/tutorial", "Accept-Encoding", "gzip", "If-None-Match",
		response.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("the same tutorial again = %d", again.StatusCode)
	}
}

// TestNothingFromElsewhere checks that pages run no script and load nothing from other origins.
func TestNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s, err := newSite()
	if err != nil {
		t.Fatal(err)
	}
	loads := regexp.MustCompile(`<script|<style| style="| on[a-z]+="|src="(?:[^/]|//)|` +
		`<link[^>]*href="(?:[^/]|//)|@import|url\(|<!-- raw HTML`)
	for path, file := range s.files {
		if strings.HasSuffix(path, ".svg") {
			continue // shown as images, which run and load nothing
		}
		if found := loads.Find(file.Content()); found != nil {
			t.Errorf("%s has %q", path, found)
		}
	}
}
