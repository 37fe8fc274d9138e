package static

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	t.Parallel()
	f := New("text/plain", []byte(strings.Repeat("text ", 400)), false)
	get := func(method string, handle http.HandlerFunc, header ...string) *http.Response {
		request := httptest.NewRequest(method, "/", nil)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		recorder := httptest.NewRecorder()
		handle(recorder, request)
		return recorder.Result()
	}
	plain := get(http.MethodGet, f.ServeHTTP)
	gzipped := get(http.MethodGet, f.ServeHTTP, "Accept-Encoding", "br, gzip")
	if plain.StatusCode != 200 || plain.ContentLength != 2000 ||
		plain.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("plain: %d, %v", plain.StatusCode, plain.Header)
	}
	if gzipped.Header.Get("Content-Encoding") != "gzip" || gzipped.ContentLength >= 2000 ||
		gzipped.Header.Get("ETag") == plain.Header.Get("ETag") {
		t.Errorf("compressed: %v", gzipped.Header)
	}
	again := get(http.MethodGet, f.ServeHTTP, "If-None-Match", plain.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
	missing := get(http.MethodHead, f.NotFound)
	if missing.StatusCode != http.StatusNotFound || missing.ContentLength > 0 ||
		missing.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("missing: %d, %v", missing.StatusCode, missing.Header)
	}
	hashed := New("text/plain", []byte("x"), true)
	if got := get(http.MethodGet, hashed.ServeHTTP).Header; !strings.Contains(
		got.Get("Cache-Control"), "immutable") {
		t.Errorf("immutable: %v", got)
	}
}
