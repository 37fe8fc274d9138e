package explorer

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, h http.Handler, path string, header map[string]string) *http.Response {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder.Result()
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// assetsOf lists the files that the embedded page loads.
func assetsOf(t *testing.T, page string) []string {
	t.Helper()
	var assets []string
	for _, match := range regexp.MustCompile(`(?:src|href)="(/[^"]+)"`).FindAllStringSubmatch(page,
		-1) {
		assets = append(assets, match[1])
	}
	if len(assets) == 0 {
		t.Fatal("the embedded page loads no file: the explorer is not built")
	}
	return assets
}

func TestEmbeddedPageAndEveryFileItLoads(t *testing.T) {
	t.Parallel()
	h := Handler()
	response := get(t, h, "/", nil)
	page := body(t, response)
	if response.StatusCode != http.StatusOK || !strings.Contains(page, "<title>") {
		t.Fatalf("GET / = %d with %d bytes", response.StatusCode, len(page))
	}
	if got := response.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("content type of the page = %q", got)
	}
	if strings.Contains(page, "<script>") {
		t.Error("the page holds an inline script, which its own policy forbids")
	}
	types := map[string]bool{}
	for _, asset := range assetsOf(t, page) {
		response := get(t, h, asset, nil)
		if response.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d", asset, response.StatusCode)
		}
		types[response.Header.Get("Content-Type")] = true
		if strings.HasPrefix(asset, "/assets/") &&
			!strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("GET %s: Cache-Control = %q, want immutable",
				asset, response.Header.Get("Cache-Control"))
		}
	}
	for _, want := range []string{"text/javascript; charset=utf-8", "text/css; charset=utf-8"} {
		if !types[want] {
			t.Errorf("the page loads nothing of type %s", want)
		}
	}
}

func TestNothingEmbeddedComesFromElsewhere(t *testing.T) {
	t.Parallel()
	h := Handler().(*handler)
	loads := regexp.MustCompile(
		`(?:src|href)="https?://|@import|url\(\s*["']?https?://|sourceMappingURL`)
	for name, f := range h.files {
		if found := loads.Find(f.Content()); found != nil {
			t.Errorf("%s loads from elsewhere: %q", name, found)
		}
	}
}

func fixture(t *testing.T) http.Handler {
	t.Helper()
	h, err := newHandler(fstest.MapFS{
		"index.html": {Data: []byte("<title>page</title>" + strings.Repeat("page ",
			400))},
		"assets/app-1234.js":   {Data: []byte(strings.Repeat("let a = 1;\n", 400))},
		"assets/app-1234.css":  {Data: []byte("b{}")},
		"assets/icon-1234.png": {Data: []byte{0x89, 'P', 'N', 'G'}},
		"icon.svg":             {Data: []byte("<svg/>")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPaths(t *testing.T) {
	t.Parallel()
	h := fixture(t)
	const page = "text/html; charset=utf-8"
	for _, test := range []struct {
		path        string
		status      int
		contentType string
		cache       string
	}{
		{"/", 200, page, "no-cache"},
		{"/index.html", 200, page, "no-cache"},
		{"/block/12", 200, page, "no-cache"},
		{"/tx/00ff", 200, page, "no-cache"},
		{"/assets", 200, page, "no-cache"},
		{"/asset/EUR", 200, page, "no-cache"},
		{"/nodes/", 200, page, "no-cache"},
		{"/rounds", 200, page, "no-cache"},
		{"/agreement", 200, page, "no-cache"},
		{"/shards/2/blocks/17", 200, page, "no-cache"},
		{"/shards/blocks", 200, page, "no-cache"},
		{"/account/bank:a.b:c", 200, page, "no-cache"},
		{"/account/bank:invoice.js", 200, page, "no-cache"},
		{"/organisation/acme.example", 200, page, "no-cache"},
		{"/assets/app-1234.js", 200, "text/javascript; charset=utf-8",
			"public, max-age=31536000, immutable"},
		{"/assets/app-1234.css", 200, "text/css; charset=utf-8",
			"public, max-age=31536000, immutable"},
		{"/assets/icon-1234.png", 200, "image/png", "public, max-age=31536000, immutable"},
		{"/icon.svg", 200, "image/svg+xml", "no-cache"},
		{"/assets/app-old.js", 404, "text/plain; charset=utf-8", ""},
		{"/assets/", 200, page, "no-cache"}, // the list of assets, as /nodes/ is that of nodes
		{"/assets/nothing", 404, "text/plain; charset=utf-8", ""},
		{"/robots.txt", 404, "text/plain; charset=utf-8", ""},
		{"/../../etc/passwd", 404, "text/plain; charset=utf-8", ""},
		{"/api/v1/blocks", 404, "text/plain; charset=utf-8", ""},
		{"/block", 404, "text/plain; charset=utf-8", ""},
		{"/shards/2/nothing", 404, "text/plain; charset=utf-8", ""},
		{"/..%2f..%2fembed.go", 404, "text/plain; charset=utf-8", ""},
	} {
		response := get(t, h, test.path, nil)
		if response.StatusCode != test.status {
			t.Errorf("GET %s = %d, want %d", test.path, response.StatusCode, test.status)
		}
		if got := response.Header.Get("Content-Type"); test.contentType != "" &&
			got != test.contentType {
			t.Errorf("GET %s: Content-Type = %q, want %q", test.path, got, test.contentType)
		}
		if got := response.Header.Get("Cache-Control"); test.cache != "" && got != test.cache {
			t.Errorf("GET %s: Cache-Control = %q, want %q", test.path, got, test.cache)
		}
		if got := response.Header.Get("Content-Security-Policy"); !strings.Contains(got,
			"default-src 'none'") {
			t.Errorf("GET %s: Content-Security-Policy = %q", test.path, got)
		}
	}
}

// Each page that the router knows is served as a page, so that a link to it is no error.
func TestPathsOfTheRouter(t *testing.T) {
	t.Parallel()
	router, err := os.ReadFile("src/lib/router.svelte.ts")
	if err != nil {
		t.Fatal(err)
	}
	h := fixture(t)
	paths := 0
	for _, match := range regexp.MustCompile(
		`(?m)^  "(/[^"]*)": "[a-z]+",$|^  ([a-z]+): "[a-z]+",$`).
		FindAllStringSubmatch(string(router), -1) {
		path := match[1]
		if path == "" {
			path = "/" + match[2] + "/key"
		}
		paths++
		if response := get(t, h, path, nil); response.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d", path, response.StatusCode)
		}
	}
	if paths < 20 {
		t.Errorf("the router has %d paths here: the test does not read it", paths)
	}
}

// A browser that asks for a page that does not exist gets the application, which says so.
func TestNoSuchPage(t *testing.T) {
	t.Parallel()
	h := fixture(t)
	browser := map[string]string{"Accept": "text/html,application/xhtml+xml;q=0.9"}
	for path, wantPage := range map[string]bool{"/nothing": true, "/assets/old.js": false,
		"/nothing.txt": false} {
		response := get(t, h, path, browser)
		isPage := strings.Contains(body(t, response), "<title>page</title>")
		if response.StatusCode != http.StatusNotFound || isPage != wantPage {
			t.Errorf("GET %s = %d, the page %v; want 404, %v", path, response.StatusCode, isPage,
				wantPage)
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	h := fixture(t)
	plain := body(t, get(t, h, "/assets/app-1234.js", nil))
	for _, test := range []struct {
		accept string
		want   string
	}{
		{"gzip", "gzip"},
		{"deflate, GZIP;q=0.5", "gzip"},
		{"gzip;q=0", ""},
		{"gzip; q=0.000", ""},
		{"br", ""},
		{"", ""},
	} {
		response := get(t, h, "/assets/app-1234.js",
			map[string]string{"Accept-Encoding": test.accept})
		if got := response.Header.Get("Content-Encoding"); got != test.want {
			t.Errorf("Accept-Encoding %q: Content-Encoding = %q, want %q", test.accept, got,
				test.want)
			continue
		}
		if response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: no Vary", test.accept)
		}
		got := response.Body
		if test.want == "gzip" {
			reader, err := gzip.NewReader(got)
			if err != nil {
				t.Fatal(err)
			}
			got = reader
		}
		content, err := io.ReadAll(got)
		if err != nil || string(content) != plain {
			t.Errorf("Accept-Encoding %q: content differs (%v)", test.accept, err)
		}
	}
	if got := get(t, h, "/assets/app-1234.css",
		map[string]string{"Accept-Encoding": "gzip"}).Header.Get("Content-Encoding"); got != "" {
		t.Errorf("a file that does not shrink was sent with Content-Encoding %q", got)
	}
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	h := fixture(t)
	plain := get(t, h, "/", nil).Header.Get("ETag")
	gzipped := get(t, h, "/", map[string]string{"Accept-Encoding": "gzip"}).Header.Get("ETag")
	if plain == "" || plain == gzipped {
		t.Fatalf("tags of the plain and the compressed form: %q and %q", plain, gzipped)
	}
	for _, test := range []struct {
		ifNoneMatch string
		status      int
	}{
		{plain, http.StatusNotModified},
		{"W/" + plain, http.StatusNotModified},
		{`"other", ` + plain, http.StatusNotModified},
		{"*", http.StatusNotModified},
		{gzipped, http.StatusOK},
		{`"other"`, http.StatusOK},
	} {
		response := get(t, h, "/", map[string]string{"If-None-Match": test.ifNoneMatch})
		if response.StatusCode != test.status {
			t.Errorf("If-None-Match %s = %d, want %d", test.ifNoneMatch, response.StatusCode,
				test.status)
		}
		if response.StatusCode == http.StatusNotModified && body(t, response) != "" {
			t.Errorf("If-None-Match %s: a body came with 304", test.ifNoneMatch)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	h := fixture(t)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", nil))
	if recorder.Code != http.StatusMethodNotAllowed ||
		recorder.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST / = %d, Allow %q", recorder.Code, recorder.Header().Get("Allow"))
	}
	recorder = httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodHead, "/", nil))
	if recorder.Code != http.StatusOK || recorder.Body.Len() != 0 ||
		recorder.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD / = %d with %d bytes", recorder.Code, recorder.Body.Len())
	}
}

func TestUnbuiltExplorerIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := newHandler(fstest.MapFS{"other.html": {Data: []byte("x")}}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("without index.html: %v", err)
	}
	if _, err := newHandler(fstest.MapFS{"index.html": {}, "program.exe": {}}); err == nil {
		t.Error("a file of unknown type was accepted")
	}
}
